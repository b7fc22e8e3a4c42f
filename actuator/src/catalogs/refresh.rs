//! The loop that keeps catalogs up to date.

use super::build;
use super::facts::{self, Region};
use crate::io::CloudReads;
use crate::ports::CloudError;
use crate::settings::Settings;
use crate::state::catalogs::{CatalogEntry, Catalogs};
use crate::stores::{Stores, WatchedKind};
use plimsoll_api::EC2NodeClass;
use plimsoll_catalog::Prices;
use plimsoll_runtime::workers::apart;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval between reads of types and prices, as in Karpenter.
const PERIOD: Duration = Duration::from_secs(12 * 3600);
/// First pause after a failure. Doubles up to [`LAST_PAUSE`]. Short, since nothing can be launched before the first
/// success.
const FIRST_PAUSE: Duration = Duration::from_secs(2);
const LAST_PAUSE: Duration = Duration::from_secs(300);
/// Maximum pause of prices. There are built-in prices, and in some VPCs the price list cannot be reached at all.
const LAST_PAUSE_OF_PRICES: Duration = Duration::from_secs(3600);

/// Dependencies of the refresh loop.
pub struct Refresh {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// Settings of the installation.
    pub settings: Arc<Settings>,
    /// The catalogs.
    pub catalogs: Catalogs,
}

/// A periodic read.
struct ReadSchedule {
    at: Instant,
    failures: u32,
}

impl ReadSchedule {
    fn now() -> Self {
        Self { at: Instant::now(), failures: 0 }
    }

    fn is_due(&self) -> bool {
        self.at <= Instant::now()
    }

    /// Schedules the next read after one of `what`.
    fn read(&mut self, what: &str, result: Result<(), CloudError>, last_pause: Duration) {
        let Err(error) = result else {
            *self = Self { at: Instant::now() + PERIOD, failures: 0 };
            return;
        };
        let pause = FIRST_PAUSE.saturating_mul(1_u32 << self.failures.min(11)).min(last_pause);
        self.failures = self.failures.saturating_add(1);
        self.at = Instant::now() + pause;
        tracing::warn!(%error, ?pause, "{what} not refreshed, keeping the last values");
    }
}

/// The input and the result of a build. An entry is rebuilt only if its input changes.
type BuiltEntry = (Arc<EC2NodeClass>, CatalogEntry);

/// Keeps the catalogs of all node classes up to date: rebuilds on each change of a class, and reads EC2 periodically.
/// Standbys do so too, so that a new leader can launch at once.
pub async fn run(deps: Refresh, stop: CancellationToken) {
    tokio::select! {
        biased;
        () = stop.cancelled() => return,
        () = deps.stores.wait_ready() => {}
    }
    let mut changes = deps.stores.changes(&[WatchedKind::EC2NodeClass]);
    let mut region: Option<Region> = None;
    let mut prices = facts::builtin(&deps.settings.region);
    let mut region_due = ReadSchedule::now();
    let (mut on_demand_due, mut spot_due) = (ReadSchedule::now(), ReadSchedule::now());
    let mut built: BTreeMap<String, BuiltEntry> = BTreeMap::new();
    loop {
        if region_due.is_due() {
            match facts::region(&deps.cloud_reads).await {
                Ok(read) => {
                    region_due.read("instance types", Ok(()), LAST_PAUSE);
                    tracing::info!(types = read.types.len(), zones = read.zones.len(), "instance types refreshed");
                    if region.as_ref() != Some(&read) {
                        region = Some(read);
                        built.clear();
                    }
                }
                Err(error) => region_due.read("instance types", Err(error), LAST_PAUSE),
            }
        }
        let mut read = prices.clone();
        if on_demand_due.is_due() {
            let result = facts::read_on_demand(&deps.cloud_reads, &mut read).await;
            on_demand_due.read("On-Demand prices", result, LAST_PAUSE_OF_PRICES);
        }
        if spot_due.is_due() {
            let result = facts::read_spot(&deps.cloud_reads, &mut read).await;
            spot_due.read("Spot prices", result, LAST_PAUSE_OF_PRICES);
        }
        if read != prices {
            prices = read;
            built.clear();
        }
        if let Some(region) = &region {
            built = rebuild(&deps, region, &prices, built).await;
            deps.catalogs.replace(built.iter().map(|(name, (_, entry))| (name.clone(), entry.clone())).collect());
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = changes.next() => {}
            () = tokio::time::sleep_until(region_due.at.min(on_demand_due.at).min(spot_due.at)) => {}
        }
    }
}

/// Builds the entries of all current classes. Unchanged entries are reused.
async fn rebuild(
    deps: &Refresh,
    region: &Region,
    prices: &Prices,
    mut previous: BTreeMap<String, BuiltEntry>,
) -> BTreeMap<String, BuiltEntry> {
    let classes = deps.stores.classes.state();
    let (settings, region, prices) = (Arc::clone(&deps.settings), region.clone(), prices.clone());
    // A class has thousands of offerings: build them outside the async runtime.
    let rebuilt = apart(move || {
        let entries = classes.into_iter().map(|class| {
            let name = class.metadata.name.clone().unwrap_or_default();
            let entry = match previous.remove(&name) {
                Some((before, entry)) if is_same(&before, &class) => entry,
                _ => build::entry(&settings, &class, &region, &prices),
            };
            (name, (class, entry))
        });
        entries.collect()
    });
    rebuilt.await.unwrap_or_else(|error| {
        tracing::error!(%error, "catalogs not built, retrying after the next change");
        BTreeMap::new()
    })
}

/// Whether two versions of a class yield the same entry.
fn is_same(before: &EC2NodeClass, after: &EC2NodeClass) -> bool {
    before.metadata.generation == after.metadata.generation
        && before.metadata.deletion_timestamp == after.metadata.deletion_timestamp
        && before.spec == after.spec
        && before.status == after.status
}

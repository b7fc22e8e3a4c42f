//! The loop that keeps catalogs up to date.

use super::build::{self, Closed};
use super::facts::{self, Facts};
use crate::clock::Timestamped;
use crate::io::CloudReads;
use crate::overlays;
use crate::ports::CloudError;
use crate::settings::Settings;
use crate::state::catalogs::{CatalogEntry, Catalogs};
use crate::state::discovered_memory::{DiscoveredMemory, MemoryKey};
use crate::state::insufficient_capacity::{InsufficientCapacity, Key};
use crate::state::zonal_shifts::ZonalShifts;
use crate::stores::{Stores, WatchedKind};
use parking_lot::Mutex;
use plimsoll_api::EC2NodeClass;
use plimsoll_model::time::Millis;
use plimsoll_runtime::backoff;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::workers::apart;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio_util::sync::CancellationToken;

/// Interval between reads of types and prices, as in Karpenter.
const PERIOD: Duration = Duration::from_secs(12 * 3600);
/// First pause after a failure. Doubles up to [`LAST_PAUSE`].
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
    /// Memory of instance types as nodes report it.
    pub memory: DiscoveredMemory,
    /// Offerings known to lack capacity.
    pub insufficient_capacity: Arc<Mutex<InsufficientCapacity>>,
    /// Zones that the cluster is shifted away from.
    pub zonal_shifts: ZonalShifts,
    /// Time.
    pub clock: Clock,
}

/// The input and the result of a build. An entry is rebuilt only if its input changes.
#[derive(Debug)]
struct BuiltEntry {
    class: Arc<EC2NodeClass>,
    closed: Closed,
    /// Memory of instance types with images of the class.
    memory: BTreeMap<MemoryKey, i64>,
    entry: CatalogEntry,
}

/// Keeps the catalogs of all node classes up to date: rebuilds on each change of a class, and reads EC2 periodically.
/// Standbys do so too, so that a new leader can launch at once. Nothing waits for EC2's first answer in regions with a
/// built-in catalog, and no read waits for another.
pub async fn run(deps: Refresh, stop: CancellationToken) {
    let facts = watch::Sender::new(Facts::builtin(&deps.settings.region));
    let cloud = &deps.cloud_reads;
    let region = || read_region(cloud, &facts);
    let on_demand = || async {
        let read = facts::on_demand_prices(cloud).await?;
        change(&facts, |facts| facts.prices.on_demand.extend(read));
        Ok(())
    };
    let spot = || async {
        let read = facts::spot_prices(cloud).await?;
        change(&facts, |facts| facts.add_spot_prices(read));
        Ok(())
    };
    tokio::select! {
        biased;
        () = stop.cancelled() => {}
        () = read_periodically("instance types", LAST_PAUSE, region) => {}
        () = read_periodically("On-Demand prices", LAST_PAUSE_OF_PRICES, on_demand) => {}
        () = read_periodically("Spot prices", LAST_PAUSE_OF_PRICES, spot) => {}
        () = build_on_change(&deps, facts.subscribe()) => {}
    }
}

async fn read_region(cloud: &CloudReads, facts: &watch::Sender<Facts>) -> Result<(), CloudError> {
    let read = facts::region(cloud).await?;
    tracing::info!(types = read.types.len(), zones = read.zones.len(), "instance types refreshed");
    change(facts, |facts| facts.region = Some(read));
    Ok(())
}

/// Changes the facts. Wakes the build only if they differ.
fn change(facts: &watch::Sender<Facts>, change: impl FnOnce(&mut Facts)) {
    let mut changed = facts.borrow().clone();
    change(&mut changed);
    facts.send_if_modified(|current| {
        let differs = *current != changed;
        if differs {
            *current = changed;
        }
        differs
    });
}

/// Calls `read` every [`PERIOD`], and after a failure with a growing pause up to `last_pause`. Never returns.
async fn read_periodically<F>(what: &str, last_pause: Duration, read: impl Fn() -> F)
where
    F: Future<Output = Result<(), CloudError>>,
{
    let mut failures = 0_u32;
    loop {
        let pause = match read().await {
            Ok(()) => {
                failures = 0;
                PERIOD
            }
            Err(error) => {
                let pause = backoff::delay(FIRST_PAUSE, last_pause, failures);
                failures = failures.saturating_add(1);
                tracing::warn!(%error, ?pause, "{what} not refreshed, keeping the last values");
                pause
            }
        };
        tokio::time::sleep(pause).await;
    }
}

/// Rebuilds the catalogs when facts, node classes or the prices of NodeOverlays change.
async fn build_on_change(deps: &Refresh, mut facts: watch::Receiver<Facts>) {
    deps.stores.wait_ready().await;
    let mut changes = deps.stores.changes(&[WatchedKind::EC2NodeClass, WatchedKind::NodeOverlay]);
    let closed = deps.insufficient_capacity.lock().changed();
    let learned = deps.memory.changed();
    let mut shifts = deps.zonal_shifts.subscribe();
    let mut built: BTreeMap<String, BuiltEntry> = BTreeMap::new();
    let mut overlaid = overlays::prices(&[]);
    loop {
        let (mut current, changed) = {
            let current = facts.borrow_and_update();
            (current.clone(), current.has_changed())
        };
        let prices = overlays::prices(&overlays::in_use(&deps.stores, &deps.settings));
        if changed || prices != overlaid {
            built.clear();
        }
        current.add_missing_prices(&prices);
        overlaid = prices;
        let lacking = deps.lacking();
        let until = lacking.next_end();
        if current.region.is_some() {
            built = rebuild(deps, &current, lacking, built).await;
            let entries = built.iter().map(|(name, built)| (name.clone(), built.entry.clone()));
            deps.catalogs.replace(entries.collect());
        }
        tokio::select! {
            biased;
            changed = facts.changed() => match changed {
                Ok(()) => built.clear(),
                Err(_) => return,
            },
            () = changes.next() => {}
            () = closed.notified() => {}
            () = learned.notified() => {}
            result = shifts.changed() => if result.is_err() { return },
            () = tokio::time::sleep(until.unwrap_or(PERIOD)) => {}
        }
    }
}

/// What some node classes lack capacity for and others may use, and for how long.
struct Lacking {
    in_groups: Vec<(Key, Millis)>,
    full_subnets: BTreeMap<String, Millis>,
}

impl Lacking {
    /// Time until the first of them may have capacity again.
    fn next_end(&self) -> Option<Duration> {
        let left = self.in_groups.iter().map(|(_, left)| left).chain(self.full_subnets.values());
        left.min().map(|left| Duration::from_millis(left.0))
    }
}

impl Refresh {
    fn lacking(&self) -> Lacking {
        let (memory, now) = (self.insufficient_capacity.lock(), self.clock.timestamp());
        let in_groups = memory.in_groups(now).map(|(key, left)| (key.clone(), left)).collect();
        let full_subnets = memory.full_subnets(now).map(|(id, left)| (id.to_owned(), left)).collect();
        Lacking { in_groups, full_subnets }
    }
}

/// Builds the entries of all current classes. Unchanged entries are reused.
async fn rebuild(
    deps: &Refresh,
    facts: &Facts,
    lacking: Lacking,
    previous: BTreeMap<String, BuiltEntry>,
) -> BTreeMap<String, BuiltEntry> {
    let classes = deps.stores.classes.state();
    let inputs = Inputs {
        settings: Arc::clone(&deps.settings),
        facts: facts.clone(),
        memory: deps.memory.clone(),
        lacking,
        shifted_zones: deps.zonal_shifts.zones(&deps.stores, deps.clock.timestamp()),
        catalogs: deps.catalogs.clone(),
    };
    // A class has thousands of offerings: build them outside the async runtime.
    apart(move || inputs.entries(classes, previous)).await.unwrap_or_else(|error| {
        tracing::error!(%error, "catalogs not built, retrying after the next change");
        BTreeMap::new()
    })
}

/// What all entries are built from.
struct Inputs {
    settings: Arc<Settings>,
    facts: Facts,
    memory: DiscoveredMemory,
    lacking: Lacking,
    shifted_zones: BTreeSet<String>,
    catalogs: Catalogs,
}

impl Inputs {
    fn entries(
        &self,
        classes: Vec<Arc<EC2NodeClass>>,
        mut previous: BTreeMap<String, BuiltEntry>,
    ) -> BTreeMap<String, BuiltEntry> {
        let entries = classes.into_iter().map(|class| {
            let name = class.metadata.name.clone().unwrap_or_default();
            let group = class.placement_group().map(|group| &group.id);
            let in_groups = self.lacking.in_groups.iter().map(|(key, _)| key);
            let in_group = in_groups.filter(|key| group.is_some() && key.placement_group.as_ref() == group);
            let in_group = in_group.cloned().collect();
            let mut zones = build::full_zones(&class, |subnet| self.lacking.full_subnets.contains_key(subnet));
            zones.extend(self.shifted_zones.iter().cloned());
            let closed = Closed { in_group, zones };
            let images = class.status.iter().flat_map(|status| &status.amis).map(|image| image.id.as_str());
            let memory = self.memory.of_images(&images.collect());
            let is_current =
                |built: &BuiltEntry| is_same(&built.class, &class) && built.closed == closed && built.memory == memory;
            let entry = match previous.remove(&name).filter(is_current) {
                Some(built) => built.entry,
                // At once: a catalog has megabytes, and many classes may have the same.
                None => self.catalogs.share(build::entry(&self.settings, &class, &self.facts, &closed, &memory)),
            };
            (name, BuiltEntry { class, closed, memory, entry })
        });
        entries.collect()
    }
}

/// Whether two versions of a class yield the same entry.
fn is_same(before: &EC2NodeClass, after: &EC2NodeClass) -> bool {
    before.metadata.generation == after.metadata.generation
        && before.metadata.deletion_timestamp == after.metadata.deletion_timestamp
        && before.spec == after.spec
        && before.status == after.status
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn classes_with_equal_catalogs_keep_only_one_in_memory() {
        let settings = Settings { region: "us-west-2".to_owned(), ..Settings::default() };
        let inputs = Inputs {
            settings: Arc::new(settings),
            facts: Facts::builtin("us-west-2"),
            memory: DiscoveredMemory::default(),
            lacking: Lacking { in_groups: Vec::new(), full_subnets: BTreeMap::new() },
            shifted_zones: BTreeSet::new(),
            catalogs: Catalogs::default(),
        };
        let condition = json!({"type": "Ready", "status": "True", "reason": "", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let classes = ["a", "b"].map(|name| -> Arc<EC2NodeClass> {
            let class = json!({
                "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": name},
                "spec": {"amiSelectorTerms": [{"alias": "al2023@latest"}], "subnetSelectorTerms": [{"id": "s"}],
                    "securityGroupSelectorTerms": [{"id": "g"}]},
                "status": {"conditions": [condition]},
            });
            Arc::new(serde_json::from_value(class).unwrap())
        });
        let built = inputs.entries(classes.to_vec(), BTreeMap::new());
        let of = |name: &str| &built[name].entry.catalog.as_ref().unwrap().1;
        assert!(!of("a").instance_types.is_empty());
        assert!(Arc::ptr_eq(of("a"), of("b")));
    }
}

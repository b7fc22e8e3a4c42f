//! Learns the memory of instance types from registered nodes, and keeps what was learnt in a ConfigMap, so that a
//! restart loses nothing.

mod observe;
mod stored;

use crate::io::{ObjectPart, ReadError, Reads, UpdateResult, WriteError, Writes};
use crate::pacing::until;
use crate::settings::ObjectName;
use crate::state::catalogs::Catalogs;
use crate::state::discovered_memory::{DiscoveredMemory, Learned, MemoryEntries, Observation};
use crate::stores::{Stores, WatchedKind};
use jiff::civil::Date;
use jiff::tz::Offset;
use k8s_openapi::api::core::v1::ConfigMap;
use plimsoll_runtime::clock::Clock;
use std::collections::BTreeSet;
use std::time::Duration;
use stored::ForeignError;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Delay that coalesces changes: thousands of nodes may register in a minute, and each pass reads all of them. It is
/// shorter than the time from the registration of a node until it is initialized, so that the next plan knows its
/// memory.
const COALESCE: Duration = Duration::from_millis(500);
/// Minimum time between two writes, and before a failed read or write is retried. A leader that dies before its next
/// write costs little: its successor learns from the same nodes.
const WRITE_INTERVAL: Duration = Duration::from_secs(60);
/// Interval of a pass without any change, in which entries end. They end to the day.
const AGE_CHECK: Duration = Duration::from_secs(3600);

/// Dependencies of the controller.
#[derive(Clone)]
pub struct MemoryLearner {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Catalog of each node class.
    pub catalogs: Catalogs,
    /// What was learnt.
    pub memory: DiscoveredMemory,
    /// Name of the ConfigMap.
    pub config_map: ObjectName,
    /// Live reads of the cluster.
    pub reads: Reads,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Time.
    pub clock: Clock,
}

/// Why the memory was not saved.
#[derive(Debug, thiserror::Error)]
enum SaveError {
    #[error(transparent)]
    Read(#[from] ReadError),
    #[error(transparent)]
    Foreign(#[from] ForeignError),
    #[error(transparent)]
    Write(#[from] WriteError),
}

/// Progress of one term.
struct Progress {
    /// The ConfigMap was read. Nothing is written before, since that would overwrite what is in it.
    restored: bool,
    /// The ConfigMap lacks something.
    unsaved: bool,
    /// Time of the next read or write.
    next_call: Instant,
    /// Nodes whose memory is implausible, which were logged.
    reported: BTreeSet<String>,
}

/// Learns and saves until `stop`.
pub(crate) async fn run(deps: MemoryLearner, stop: CancellationToken) {
    until(&stop, learn_for_ever(&deps)).await;
}

async fn learn_for_ever(deps: &MemoryLearner) {
    deps.stores.wait_ready().await;
    let mut changes = deps.stores.changes(&[WatchedKind::Node, WatchedKind::NodeClaim, WatchedKind::EC2NodeClass]);
    let mut progress =
        Progress { restored: false, unsaved: false, next_call: Instant::now(), reported: BTreeSet::new() };
    loop {
        restore(deps, &mut progress).await;
        let learned = deps.memory.learn(observations(deps), deps.today());
        report(deps, &learned, &mut progress);
        progress.unsaved |= learned.differs;
        save(deps, &mut progress).await;
        let waits_for_call = !progress.restored || progress.unsaved;
        let wake = if waits_for_call { progress.next_call } else { Instant::now() + AGE_CHECK };
        tokio::select! {
            biased;
            () = changes.next() => tokio::time::sleep(COALESCE).await,
            () = tokio::time::sleep_until(wake) => {}
        }
    }
}

impl MemoryLearner {
    fn today(&self) -> Date {
        Offset::UTC.to_datetime(self.clock.now()).date()
    }
}

fn observations(deps: &MemoryLearner) -> Vec<Observation> {
    let (stores, catalogs) = (&deps.stores, deps.catalogs.all());
    observe::observations(&stores.claims.state(), |claim| stores.nodes_of(claim), &stores.classes.state(), &catalogs)
}

/// Logs new values, and each node with an implausible one once.
fn report(deps: &MemoryLearner, learned: &Learned, progress: &mut Progress) {
    let entries = if learned.changed.is_empty() { MemoryEntries::new() } else { deps.memory.all() };
    for key in &learned.changed {
        let mib = entries.get(key).map(|entry| entry.mib);
        tracing::info!(instance_type = key.instance_type, image = key.image, mib, "memory of an instance type learnt");
    }
    let implausible: BTreeSet<String> = learned.implausible.iter().map(|one| one.node.clone()).collect();
    for one in learned.implausible.iter().filter(|one| !progress.reported.contains(&one.node)) {
        tracing::warn!(
            "Node {}: status.capacity.memory: {} bytes are implausible for {} with {} MiB, ignored",
            one.node,
            one.bytes,
            one.key.instance_type,
            one.nominal_mib
        );
    }
    progress.reported = implausible;
}

/// Reads the ConfigMap once per term. Without it nothing is lost but what earlier processes learnt.
async fn restore(deps: &MemoryLearner, progress: &mut Progress) {
    if progress.restored || progress.next_call > Instant::now() {
        return;
    }
    let name = &deps.config_map;
    match deps.reads.config_map(name).await {
        Ok(found) => {
            progress.restored = true;
            let (entries, errors) = match found.as_ref().map(|found| stored::read(name, found)) {
                Some(Ok(read)) => read,
                Some(Err(foreign)) => {
                    tracing::error!(%foreign, "memory of instance types not restored");
                    Default::default()
                }
                None => Default::default(),
            };
            for error in errors {
                tracing::error!(%error, "memory of an instance type not restored");
            }
            tracing::info!(config_map = %name, entries = entries.len(), "memory of instance types restored");
            deps.memory.restore(entries.clone(), deps.today());
            progress.unsaved = deps.memory.all() != entries;
        }
        Err(error) => {
            progress.next_call = Instant::now() + WRITE_INTERVAL;
            tracing::warn!(config_map = %name, %error, "memory of instance types not restored, retrying");
        }
    }
}

async fn save(deps: &MemoryLearner, progress: &mut Progress) {
    if !progress.restored || !progress.unsaved || progress.next_call > Instant::now() {
        return;
    }
    progress.next_call = Instant::now() + WRITE_INTERVAL;
    match write(deps).await {
        Ok(()) => progress.unsaved = false,
        // While Karpenter leads, nothing is written.
        Err(SaveError::Write(WriteError::NotAllowed(error))) => {
            tracing::debug!(%error, "memory of instance types not saved");
        }
        Err(error) => {
            tracing::warn!(config_map = %deps.config_map, %error, "memory of instance types not saved, retrying");
        }
    }
}

async fn write(deps: &MemoryLearner) -> Result<(), SaveError> {
    let name = &deps.config_map;
    let data = stored::data(&deps.memory.all()).map_err(WriteError::from)?;
    if let Some(found) = deps.reads.config_map(name).await? {
        stored::check_owner(name, &found)?;
        let change = |map: &mut ConfigMap| map.data = Some(data.clone());
        let result = deps.writes.update(&found, ObjectPart::Main, change).await?;
        if result != UpdateResult::Gone {
            return Ok(());
        }
    }
    deps.writes.create_config_map(&stored::object(name, data)).await?;
    Ok(())
}

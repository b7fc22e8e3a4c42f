//! Publishes numbered snapshots of the cluster, each with the delta from its predecessor.

mod service;

pub use service::SnapshotService;

use crate::facts::Facts;
use crate::metrics::WatcherMetrics;
use plimsoll_model::execution::BufferReport;
use plimsoll_model::identity::PodUid;
use plimsoll_model::snapshot::{Snapshot, SnapshotEdits};
use plimsoll_model::time::Timestamp;
use plimsoll_proto::convert::encoded_size;
use plimsoll_proto::delta;
use plimsoll_proto::snapshot::v1 as wire;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::serve::MAX_DECODING_BYTES;
use plimsoll_runtime::workers::apart;
use plimsoll_snapshot::{Built, Problem};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Resolution of the time in snapshots, in milliseconds. Plans made within one second are then identical, and
/// everything a plan waits for is counted in seconds.
pub const TIME_STEP_MS: i64 = 1000;

/// Objects per message. Objects of a few kB each stay below the size at which a chunk ends earlier.
pub(crate) const OBJECTS_PER_CHUNK: usize = 1000;

/// Maximum objects in a delta: with more, a full snapshot is hardly larger.
const OBJECTS_PER_DELTA: usize = 2000;

/// Maximum size of a delta: half of what a receiver accepts.
const BYTES_PER_DELTA: usize = MAX_DECODING_BYTES / 2;

/// Maximum object problems logged per snapshot; further problems are only counted.
const LOGGED_PROBLEMS: usize = 20;

/// Pause before a failed build is repeated. It is a bug that fails it, mostly in the same way again, and each attempt
/// reads the whole cluster.
const RETRY_PAUSE: Duration = Duration::from_secs(5);

/// A numbered snapshot.
#[derive(Debug)]
pub struct PublishedSnapshot {
    /// The snapshot.
    pub snapshot: Arc<Snapshot>,
    /// Its checksum.
    pub checksum: u64,
    /// Delta from the previous snapshot; `None` for the first.
    pub delta: Option<wire::Delta>,
    /// Sequence of the last snapshot that changed anything a plan depends on, or that was requested.
    pub relevant_sequence: u64,
    /// Pending pods whose owners want more pods than have been observed.
    pub incomplete: BTreeSet<PodUid>,
    /// Status of each CapacityBuffer.
    pub buffers: Vec<BufferReport>,
    /// Monotonic time at which building the snapshot began.
    pub started_at: Instant,
    /// Wall-clock time at `started_at`, not rounded to `TIME_STEP_MS` as the snapshot's time is.
    pub time: Timestamp,
}

impl AsRef<Snapshot> for PublishedSnapshot {
    fn as_ref(&self) -> &Snapshot {
        &self.snapshot
    }
}

impl PublishedSnapshot {
    /// Delta from an earlier snapshot to this one. `None` if the delta is too large for one message; a full snapshot
    /// can be sent in chunks instead.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<wire::Delta> {
        let delta = match &self.delta {
            Some(delta) if delta.base_sequence == earlier.snapshot.sequence => delta.clone(),
            _ => delta::diff_from(&earlier.snapshot, earlier.checksum, &self.snapshot),
        };
        let fits =
            delta.upserts.as_ref().map_or(0, count) <= OBJECTS_PER_DELTA && encoded_size(&delta) <= BYTES_PER_DELTA;
        fits.then_some(delta)
    }
}

/// Number of objects, excluding kinds that are small and few.
fn count(part: &wire::Snapshot) -> usize {
    part.shapes.len() + part.pods.len() + part.nodes.len() + part.ignored.len()
}

/// The newest snapshot; `None` before the first.
pub type Newest = watch::Receiver<Option<Arc<PublishedSnapshot>>>;

/// Requests a snapshot of the present time even if nothing else changed. Clones notify the same publisher.
#[derive(Debug, Clone, Default)]
pub struct Refresh(Arc<Notify>);

impl Refresh {
    /// Requests a snapshot.
    pub fn request(&self) {
        self.0.notify_one();
    }
}

/// Who needs snapshots: the leader, and clients that follow them. Clones count the same readers.
#[derive(Debug, Clone, Default)]
pub struct Readers(watch::Sender<usize>);

impl Readers {
    /// Adds a reader.
    pub fn add(&self) -> Reader {
        self.0.send_modify(|count| *count += 1);
        Reader(self.clone())
    }
}

/// A reader of snapshots, until it is dropped.
#[derive(Debug)]
#[must_use]
pub struct Reader(Readers);

impl Drop for Reader {
    fn drop(&mut self) {
        let Readers(count) = &self.0;
        count.send_modify(|count| *count -= 1);
    }
}

/// Builds snapshots whenever the facts change, while there are readers. A standby has none, and needs less memory.
pub struct Publisher {
    facts: Arc<Facts>,
    clock: Clock,
    metrics: WatcherMetrics,
    refresh: Refresh,
    readers: Readers,
    newest: watch::Sender<Option<Arc<PublishedSnapshot>>>,
    /// Problems of the last build, sorted.
    problems: Vec<Problem>,
    /// Number of the last build. Its snapshot has the same objects as the newest one.
    last_build: Option<u64>,
}

impl Publisher {
    /// Creates a publisher of snapshots of `facts`.
    #[must_use]
    pub fn new(facts: Arc<Facts>, clock: Clock, metrics: WatcherMetrics) -> Self {
        let (refresh, readers, newest) = (Refresh::default(), Readers::default(), watch::Sender::new(None));
        Self { facts, clock, metrics, refresh, readers, newest, problems: Vec::new(), last_build: None }
    }

    /// Receiver of the newest snapshot.
    #[must_use]
    pub fn newest(&self) -> Newest {
        self.newest.subscribe()
    }

    /// Handle to request a snapshot of the present time.
    #[must_use]
    pub fn refresh(&self) -> Refresh {
        self.refresh.clone()
    }

    /// The readers of the snapshots.
    #[must_use]
    pub fn readers(&self) -> Readers {
        self.readers.clone()
    }

    /// Builds a snapshot after each change, until `Facts` is dropped. Pauses after each snapshot for as long as
    /// building it took, so that building takes at most half of the time. A failed build is repeated after a pause.
    /// Without readers it waits for one.
    pub async fn run(mut self) {
        let mut changes = self.facts.changes();
        let mut readers = self.readers.0.subscribe();
        let mut demand = Demand::default();
        loop {
            self.forget_without_readers();
            // No error: this value keeps the sender.
            if readers.wait_for(|count| *count > 0).await.is_err() {
                return;
            }
            changes.mark_unchanged();
            let began = Instant::now();
            demand.built(self.publish(began, demand.requested).await);
            tokio::time::sleep(began.elapsed()).await;
            tokio::select! {
                biased;
                () = self.refresh.0.notified() => demand.requested = true,
                changed = changes.changed() => if changed.is_err() { return },
                _ = readers.wait_for(|count| *count == 0) => {}
                () = tokio::time::sleep(RETRY_PAUSE), if demand.failed => {}
            }
        }
    }

    /// Drops the last snapshot and what builds remember, if there are no readers. The next snapshot is a first one.
    fn forget_without_readers(&mut self) {
        let last = {
            // Locked meanwhile: whoever becomes a reader later sees no snapshot of the numbering that ends here.
            let readers = self.readers.0.borrow();
            if *readers > 0 {
                return;
            }
            self.newest.send_replace(None)
        };
        // It is large. Readers need not wait for it.
        drop(last);
        self.facts.forget_builds();
        self.last_build = None;
        self.problems = Vec::new();
        self.metrics.problems.set(0);
    }

    async fn publish(&mut self, began: Instant, requested: bool) -> BuildResult {
        let time = Timestamp(self.clock.now_millis());
        let facts = Arc::clone(&self.facts);
        let (before, last_build) = (self.newest.borrow().clone(), self.last_build);
        let build = move || build_next(&facts, (began, time), before.as_deref().zip(last_build), requested);
        let built = apart(build).await;
        let NextSnapshot { published, problems, number } = match built {
            Ok(Some(built)) => built,
            Ok(None) => return BuildResult::FactsMissing,
            Err(error) => {
                tracing::error!(%error, "snapshot not made");
                return BuildResult::Failed;
            }
        };
        self.last_build = Some(number);
        self.metrics.snapshot_seconds.observe(began.elapsed().as_secs_f64());
        self.log_problems(problems);
        if let Some(published) = published {
            self.metrics.snapshots.inc();
            self.newest.send_replace(Some(Arc::new(published)));
        }
        BuildResult::Built
    }

    /// Logs problems that the previous snapshot did not have.
    fn log_problems(&mut self, problems: Vec<Problem>) {
        for problem in new_problems(&problems, &self.problems).take(LOGGED_PROBLEMS) {
            if problem.left_out {
                tracing::warn!(%problem, "object left out of the snapshot");
            } else {
                tracing::warn!(%problem, "field ignored");
            }
        }
        let left_out = problems.iter().filter(|problem| problem.left_out).count();
        self.metrics.problems.set(i64::try_from(left_out).unwrap_or(i64::MAX));
        self.problems = problems;
    }
}

/// The problems that are not among `before`, which is sorted. There may be one for each pod.
fn new_problems<'p>(problems: &'p [Problem], before: &'p [Problem]) -> impl Iterator<Item = &'p Problem> {
    problems.iter().filter(|problem| before.binary_search(problem).is_err())
}

/// The result of an attempt to build a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum BuildResult {
    /// A snapshot was built, and was published if it is new or was requested.
    Built,
    /// A change of the facts will tell when they are complete.
    FactsMissing,
    /// Nothing else may tell when to try again.
    Failed,
}

/// Why the next snapshot is built.
#[derive(Debug, Default)]
struct Demand {
    /// It was requested. The loop may wait for nothing else, so a request stays until a snapshot was built.
    requested: bool,
    /// The last build failed.
    failed: bool,
}

impl Demand {
    fn built(&mut self, result: BuildResult) {
        self.failed = result == BuildResult::Failed;
        self.requested &= result != BuildResult::Built;
    }
}

/// Rounds down to `TIME_STEP_MS`.
fn coarse(time: Timestamp) -> Timestamp {
    Timestamp(time.0 - time.0.rem_euclid(TIME_STEP_MS))
}

/// The result of a build.
struct NextSnapshot {
    /// `None` if the snapshot is unchanged and was not requested.
    published: Option<PublishedSnapshot>,
    /// Problems of the cluster's objects, sorted.
    problems: Vec<Problem>,
    /// Number of the build.
    number: u64,
}

/// Builds the snapshot after `previous`, which has the objects of the build with the given number. Returns `None` while
/// facts are missing.
fn build_next(
    facts: &Facts,
    (started_at, time): (Instant, Timestamp),
    previous: Option<(&PublishedSnapshot, u64)>,
    requested: bool,
) -> Option<NextSnapshot> {
    let sequence = previous.map_or(1, |(previous, _)| previous.snapshot.sequence + 1);
    let (built, incomplete) = facts.build_snapshot(coarse(time), sequence)?;
    let Built { snapshot, edits, number, problems, buffers } = built;
    let Some((previous, last_build)) = previous else {
        let checksum = delta::checksum(&snapshot);
        let published = PublishedSnapshot {
            relevant_sequence: 1,
            snapshot,
            checksum,
            delta: None,
            incomplete,
            buffers,
            started_at,
            time,
        };
        return Some(NextSnapshot { published: Some(published), problems, number });
    };
    // Another caller may have built a snapshot in between, or publishing one may have failed.
    let edits = if number == last_build + 1 { edits } else { SnapshotEdits::between(&previous.snapshot, &snapshot) };
    let delta = delta::delta_of((&previous.snapshot, &snapshot), previous.checksum, &edits);
    let (same, same_for_plans) = compare(&delta, previous.snapshot.ledger == snapshot.ledger);
    // Buffer status is sent together with a plan.
    let same_buffers = buffers == previous.buffers;
    let relevant_sequence =
        if same_for_plans && same_buffers && !requested { previous.relevant_sequence } else { snapshot.sequence };
    let unchanged = same && same_buffers && incomplete == previous.incomplete;
    let checksum = delta.checksum;
    let published = PublishedSnapshot {
        relevant_sequence,
        snapshot,
        checksum,
        delta: Some(delta),
        incomplete,
        buffers,
        started_at,
        time,
    };
    Some(NextSnapshot { published: (requested || !unchanged).then_some(published), problems, number })
}

/// Returns whether only sequence and time changed, and whether only sequence, time and ignored pods changed. Plans do
/// not depend on ignored pods. Each pod is ignored once, before its scheduler has looked at it.
fn compare(delta: &wire::Delta, same_ledger: bool) -> (bool, bool) {
    let mut upserts = delta.upserts.clone().unwrap_or_default();
    let mut removals = delta.removals.clone().unwrap_or_default();
    (upserts.sequence, upserts.ledger, upserts.now_unix_ms) = Default::default();
    let ignored = std::mem::take(&mut upserts.ignored).len() + std::mem::take(&mut removals.ignored).len();
    let same_for_plans = same_ledger && upserts == wire::Snapshot::default() && removals == wire::Removals::default();
    (same_for_plans && ignored == 0, same_for_plans)
}

#[cfg(test)]
pub(crate) mod tests;

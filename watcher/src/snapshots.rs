//! Snapshots of what is known, numbered, each with what changed since the one before.

mod service;

pub use service::SnapshotService;

use crate::facts::{Facts, View};
use crate::metrics::WatcherMetrics;
use plimsoll_model::execution::BufferReport;
use plimsoll_model::identity::PodUid;
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use plimsoll_proto::delta;
use plimsoll_proto::snapshot::v1 as wire;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::workers::apart;
use plimsoll_snapshot::Problem;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio::sync::{Notify, watch};
use tokio::time::Instant;

/// Snapshots tell the time no finer than this, in milliseconds (rule 23): plans of one second are then alike, and what a
/// plan waits for is counted in seconds.
pub const TIME_STEP_MS: i64 = 1000;

/// Objects in a message: well below the size limit for messages of a few kB each.
pub(crate) const OBJECTS_PER_CHUNK: usize = 1000;

/// Objects in a change: as many as fit into one message even if each is as large as a node with all its labels.
const OBJECTS_PER_DELTA: usize = 2000;

/// Objects with problems that are named in the log at a change; the rest are counted.
const LOGGED_PROBLEMS: usize = 20;

/// A numbered snapshot.
#[derive(Debug)]
pub struct Published {
    /// The snapshot.
    pub snapshot: Snapshot,
    /// Its checksum.
    pub checksum: u64,
    /// What changed since the one before; `None` for the first.
    pub delta: Option<wire::Delta>,
    /// Sequence of the last snapshot in which anything changed that a plan depends on, or that was asked for.
    pub relevant: u64,
    /// Pods to be placed whose owners want more than have been seen.
    pub incomplete: BTreeSet<PodUid>,
    /// What CapacityBuffers come to.
    pub buffers: Vec<BufferReport>,
    /// When its making began.
    pub at: Instant,
    /// The exact time then, of which the snapshot tells the last step.
    pub time: Timestamp,
}

impl Published {
    /// What changed from an earlier snapshot to this one; `None` if it is too much for one message, so that a whole
    /// snapshot, which comes in pieces, is the better answer.
    #[must_use]
    pub fn since(&self, earlier: &Self) -> Option<wire::Delta> {
        let delta = match &self.delta {
            Some(delta) if delta.base_sequence == earlier.snapshot.sequence => delta.clone(),
            _ => delta::diff_from(&earlier.snapshot, earlier.checksum, &self.snapshot),
        };
        (delta.upserts.as_ref().map_or(0, count) <= OBJECTS_PER_DELTA).then_some(delta)
    }
}

/// How many objects there are, without those that are small and few.
fn count(part: &wire::Snapshot) -> usize {
    part.shapes.len() + part.pods.len() + part.nodes.len() + part.ignored.len()
}

/// The newest snapshot; `None` before the first.
pub type Newest = watch::Receiver<Option<Arc<Published>>>;

/// Asks for a snapshot of the present time, whether or not anything else changed. Clones ask the same publisher.
#[derive(Debug, Clone, Default)]
pub struct Refresh(Arc<Notify>);

impl Refresh {
    /// Asks.
    pub fn ask(&self) {
        self.0.notify_one();
    }
}

/// Makes snapshots.
pub struct Publisher {
    facts: Arc<Facts>,
    clock: Clock,
    metrics: WatcherMetrics,
    refresh: Refresh,
    newest: watch::Sender<Option<Arc<Published>>>,
    problems: Vec<Problem>,
}

impl Publisher {
    /// Of what `facts` know.
    #[must_use]
    pub fn new(facts: Arc<Facts>, clock: Clock, metrics: WatcherMetrics) -> Self {
        let newest = watch::Sender::new(None);
        Self { facts, clock, metrics, refresh: Refresh::default(), newest, problems: Vec::new() }
    }

    /// Where the newest snapshot is found.
    #[must_use]
    pub fn newest(&self) -> Newest {
        self.newest.subscribe()
    }

    /// By which one for the present time is asked for.
    #[must_use]
    pub fn refresh(&self) -> Refresh {
        self.refresh.clone()
    }

    /// Makes a snapshot after each change, for ever: at once, and again no sooner than half of the time would be spent on it.
    pub async fn run(mut self) {
        let mut changes = self.facts.changes();
        let mut asked = false;
        loop {
            changes.mark_unchanged();
            let began = Instant::now();
            self.publish(began, asked).await;
            tokio::time::sleep(began.elapsed()).await;
            asked = tokio::select! {
                biased;
                () = self.refresh.0.notified() => true,
                changed = changes.changed() => {
                    if changed.is_err() {
                        return;
                    }
                    false
                }
            };
        }
    }

    async fn publish(&mut self, began: Instant, asked: bool) {
        let time = Timestamp(self.clock.now_millis());
        let facts = Arc::clone(&self.facts);
        let before = self.newest.borrow().clone();
        let made = apart(move || make(&facts, (began, time), before.as_deref(), asked)).await;
        let (published, problems) = match made {
            Ok(Some(made)) => made,
            Ok(None) => return,
            Err(error) => return tracing::error!(%error, "snapshot not made"),
        };
        self.metrics.snapshot_seconds.observe(began.elapsed().as_secs_f64());
        self.note(problems);
        if let Some(published) = published {
            self.metrics.snapshots.inc();
            self.newest.send_replace(Some(Arc::new(published)));
        }
    }

    /// Logs problems that are new.
    fn note(&mut self, problems: Vec<Problem>) {
        let new = problems.iter().filter(|problem| !self.problems.contains(problem));
        for problem in new.take(LOGGED_PROBLEMS) {
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

/// The last step of the clock.
fn coarse(time: Timestamp) -> Timestamp {
    Timestamp(time.0 - time.0.rem_euclid(TIME_STEP_MS))
}

/// The next snapshot, unless it would be the same and nobody asked; and what was left out.
fn make(
    facts: &Facts,
    (at, time): (Instant, Timestamp),
    before: Option<&Published>,
    asked: bool,
) -> Option<(Option<Published>, Vec<Problem>)> {
    let View { mut snapshot, incomplete, problems, buffers } = facts.view(coarse(time))?;
    let Some(before) = before else {
        snapshot.sequence = 1;
        let checksum = delta::checksum(&snapshot);
        return Some((
            Some(Published { relevant: 1, snapshot, checksum, delta: None, incomplete, buffers, at, time }),
            problems,
        ));
    };
    snapshot.sequence = before.snapshot.sequence + 1;
    let delta = delta::diff_from(&before.snapshot, before.checksum, &snapshot);
    let (same, alike) = compare(&delta, before.snapshot.ledger == snapshot.ledger);
    // What is told of a buffer is told with a plan.
    let same_buffers = buffers == before.buffers;
    let relevant = if alike && same_buffers && !asked { before.relevant } else { snapshot.sequence };
    let unchanged = same && same_buffers && incomplete == before.incomplete;
    let checksum = delta.checksum;
    let published = Published { relevant, snapshot, checksum, delta: Some(delta), incomplete, buffers, at, time };
    Some(((asked || !unchanged).then_some(published), problems))
}

/// Whether nothing but sequence and time changed; and whether nothing else but pods that nobody is to place: those come
/// and go, each once before its scheduler has looked at it, and no plan depends on them.
fn compare(delta: &wire::Delta, same_ledger: bool) -> (bool, bool) {
    let mut upserts = delta.upserts.clone().unwrap_or_default();
    let mut removals = delta.removals.clone().unwrap_or_default();
    (upserts.sequence, upserts.ledger, upserts.now_unix_ms) = Default::default();
    let ignored = std::mem::take(&mut upserts.ignored).len() + std::mem::take(&mut removals.ignored).len();
    let alike = same_ledger && upserts == wire::Snapshot::default() && removals == wire::Removals::default();
    (alike && ignored == 0, alike)
}

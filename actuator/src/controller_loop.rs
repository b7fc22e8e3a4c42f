//! The loop of a controller: lists all objects after each change and reconciles those that changed, each in its own
//! task.

use crate::fencing::{CLUSTER_CALL, Fence};
use crate::io::WriteError;
use crate::metrics::ActuatorMetrics;
use crate::metrics::reconciles::ControllerMetrics;
use crate::pacing::pause_after;
use crate::stores::{ChangeSignal, Stores, WatchedKind};
use plimsoll_runtime::backoff;
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::hash::{BuildHasher, BuildHasherDefault, DefaultHasher, Hash};
use std::time::Duration;
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Delay that coalesces bursts of changes, such as a hundred nodes that register at once.
const COALESCE: Duration = Duration::from_millis(10);
/// Objects reconciled concurrently. Hundreds of nodes may come or go together, and each task mostly waits for the API
/// server.
const MAX_BUSY: usize = 128;
/// First pause after an error; doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// Interval of a full pass without any signal; bounds the cost of a missed signal.
const RESYNC: Duration = Duration::from_secs(60);

/// Interval at which the loop checks whether writes are allowed again (the lease is not renewed, or another autoscaler
/// is active).
const LOCKED_RETRY: Duration = Duration::from_secs(1);

/// An object to reconcile.
pub(crate) struct Candidate<Input> {
    /// Unique key of the object.
    pub(crate) key: String,
    /// Version of the input. The object is not reconciled again while the version is unchanged. `None`: always
    /// reconcile.
    pub(crate) version: Option<u64>,
    /// Input of the reconciler.
    pub(crate) input: Input,
}

/// A version of an input: the hash of what its reconcile depends on.
pub(crate) fn version_of(inputs: &impl Hash) -> u64 {
    BuildHasherDefault::<DefaultHasher>::default().hash_one(inputs)
}

/// When to reconcile again without a change; `None` means only on a change.
pub(crate) type Requeue = Option<Duration>;

#[derive(Default)]
struct ObjectState {
    busy: bool,
    seen: Option<u64>,
    /// Back-off after an error.
    paused_until: Option<Instant>,
    again: Option<Instant>,
    failures: u32,
    /// The object changed since its last reconcile started.
    dirty: bool,
    /// Number of its last reconcile, counted over all objects; 0 before the first one.
    last_started: u64,
}

/// A signal of changes. Only tests have another one than [`ChangeSignal`].
trait Changes: Send {
    /// Resolves once there was a change since the last call.
    fn next(&mut self) -> impl Future<Output = ()> + Send;
}

impl Changes for ChangeSignal {
    async fn next(&mut self) {
        ChangeSignal::next(self).await;
    }
}

/// The loop of one controller.
pub(crate) struct ControllerLoop<'a> {
    controller: ControllerMetrics,
    stores: &'a Stores,
    fence: &'a Fence,
}

impl<'a> ControllerLoop<'a> {
    /// The loop of the controller with this name, which its metrics and logs have.
    pub(crate) fn new(name: &'static str, metrics: &ActuatorMetrics, stores: &'a Stores, fence: &'a Fence) -> Self {
        Self { controller: metrics.reconciles.of(name), stores, fence }
    }

    /// Runs until `stop`. Calls `list` after each change of `kinds`, and `work` for each object that changed or is due.
    pub(crate) async fn run<Input, Work>(
        &self,
        stop: &CancellationToken,
        kinds: &[WatchedKind],
        list: impl FnMut() -> Vec<Candidate<Input>> + Send,
        work: impl FnMut(Input) -> Work + Send,
    ) where
        Work: Future<Output = Result<Requeue, WriteError>> + Send + 'static,
        Input: Send,
    {
        self.stores.wait_ready().await;
        // While writes are not allowed, reconcilers would only fail and log a warning for each object.
        let is_allowed = || self.fence.check(CLUSTER_CALL).is_ok();
        repeat(Reconciles::new(&self.controller), self.stores.changes(kinds), is_allowed, stop, list, work).await;
    }
}

/// Makes a pass after each change, after each reconcile and when an object is due, until `stop`.
async fn repeat<Input, Work>(
    mut reconciles: Reconciles<'_>,
    mut changes: impl Changes,
    is_allowed: impl Fn() -> bool + Send,
    stop: &CancellationToken,
    mut list: impl FnMut() -> Vec<Candidate<Input>> + Send,
    mut work: impl FnMut(Input) -> Work + Send,
) where
    Work: Future<Output = Result<Requeue, WriteError>> + Send + 'static,
    Input: Send,
{
    let mut changed = true;
    loop {
        let started = Instant::now();
        // Not left to the `select!` below: it does not get to ended reconciles while changes come all the time.
        reconciles.take_ended();
        let allowed = is_allowed();
        let next = reconciles.pass(list(), changed, allowed, &mut work);
        let pause = pause_after(started.elapsed());
        changed = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = changes.next() => {
                tokio::time::sleep(COALESCE.max(pause)).await;
                true
            }
            Some(ended) = reconciles.running.join_next_with_id() => {
                reconciles.ended(ended);
                // Each pass lists all objects. Reconciles that end during the pause are handled in the same pass.
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                false
            }
            () = tokio::time::sleep_until(next) => false,
        };
    }
}

/// Result of a reconcile, and how long it took.
type Reconciled = (Result<Requeue, WriteError>, Duration);

/// The objects of a controller and their running reconciles.
struct Reconciles<'a> {
    controller: &'a ControllerMetrics,
    states: BTreeMap<String, ObjectState>,
    running: JoinSet<Reconciled>,
    /// Key of the object of each running reconcile.
    keys: HashMap<Id, String>,
    /// Number of reconciles so far.
    starts: u64,
}

impl<'a> Reconciles<'a> {
    fn new(controller: &'a ControllerMetrics) -> Self {
        Self { controller, states: BTreeMap::new(), running: JoinSet::new(), keys: HashMap::new(), starts: 0 }
    }

    /// Starts the reconciles of the objects that are due, if it is `allowed`. Returns when the next pass is due without
    /// a change.
    fn pass<Input, Work>(
        &mut self,
        candidates: Vec<Candidate<Input>>,
        changed: bool,
        allowed: bool,
        work: &mut impl FnMut(Input) -> Work,
    ) -> Instant
    where
        Work: Future<Output = Result<Requeue, WriteError>> + Send + 'static,
    {
        let now = Instant::now();
        let mut states: BTreeMap<String, ObjectState> = BTreeMap::new();
        let mut next = now + if allowed { RESYNC } else { LOCKED_RETRY };
        let mut due = Vec::new();
        for candidate in candidates {
            let (key, mut state) = (candidate.key.clone(), self.states.remove(&candidate.key).unwrap_or_default());
            state.dirty |= match candidate.version {
                Some(version) => state.seen != Some(version),
                None => changed || state.seen.is_none(),
            };
            if state.busy {
                // A change during the run is handled when the run ends.
            } else if is_due(&state, now) {
                due.push((state.last_started, candidate));
            } else {
                let wake = [state.paused_until, state.again].into_iter().flatten().max();
                next = next.min(wake.filter(|wake| *wake > now).unwrap_or(next));
            }
            states.insert(key, state);
        }
        // Keep the state of objects that are gone until their reconciler has ended.
        states.extend(std::mem::take(&mut self.states).into_iter().filter(|(_, state)| state.busy));
        self.states = states;
        let free = if allowed { MAX_BUSY.saturating_sub(self.running.len()) } else { 0 };
        // Least recently reconciled first. Otherwise the first objects starve the last ones.
        due.sort_by_key(|(last_started, _)| *last_started);
        for (_, candidate) in due.into_iter().take(free) {
            self.start(candidate, work);
        }
        next
    }

    fn start<Input, Work>(&mut self, candidate: Candidate<Input>, work: &mut impl FnMut(Input) -> Work)
    where
        Work: Future<Output = Result<Requeue, WriteError>> + Send + 'static,
    {
        let Some(state) = self.states.get_mut(&candidate.key) else { return };
        state.busy = true;
        state.dirty = false;
        self.starts = self.starts.saturating_add(1);
        state.last_started = self.starts;
        state.seen = candidate.version.or(Some(0));
        state.again = None;
        let future = work(candidate.input);
        let task = self.running.spawn(async move {
            let started = Instant::now();
            (future.await, started.elapsed())
        });
        self.keys.insert(task.id(), candidate.key);
    }

    /// Handles all reconciles that have ended.
    fn take_ended(&mut self) {
        while let Some(ended) = self.running.try_join_next_with_id() {
            self.ended(ended);
        }
    }

    fn ended(&mut self, ended: Result<(Id, Reconciled), JoinError>) {
        let (id, result) = match ended {
            Ok((id, (result, took))) => {
                self.controller.observe(label(&result), took);
                (id, result.map_err(|error| error.to_string()))
            }
            Err(error) => (error.id(), Err(error.to_string())),
        };
        if let Some(key) = self.keys.remove(&id)
            && let Some(state) = self.states.get_mut(&key)
        {
            finish(self.controller.name(), &key, state, result);
        }
    }
}

/// Value of the metrics' label `result`.
fn label(result: &Result<Requeue, WriteError>) -> &'static str {
    match result {
        Ok(None) => "success",
        Ok(Some(_)) => "requeue_after",
        Err(_) => "error",
    }
}

fn is_due(state: &ObjectState, now: Instant) -> bool {
    match state.paused_until {
        Some(until) => until <= now,
        None => state.dirty || state.again.is_some_and(|again| again <= now),
    }
}

fn finish(name: &str, key: &str, state: &mut ObjectState, result: Result<Requeue, String>) {
    state.busy = false;
    match result {
        Ok(again) => {
            state.failures = 0;
            state.paused_until = None;
            state.again = again.map(|after| Instant::now() + after);
        }
        Err(error) => {
            let pause = backoff::delay(FIRST_PAUSE, LAST_PAUSE, state.failures);
            state.failures = state.failures.saturating_add(1);
            state.paused_until = Some(Instant::now() + pause);
            tracing::warn!(controller = name, object = key, error, ?pause, "reconciliation failed, retrying");
        }
    }
}

#[cfg(test)]
mod tests;

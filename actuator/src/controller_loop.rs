//! The loop of a controller: lists all objects after each change and reconciles those that changed, each in its own
//! task.

use crate::fencing::{CLUSTER_CALL, Fence};
use crate::io::WriteError;
use crate::metrics::reconciles::ControllerMetrics;
use crate::pacing::pause_after;
use crate::stores::{Stores, WatchedKind};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::time::Duration;
use tokio::task::{Id, JoinSet};
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
}

/// Runs until `stop`. Calls `list` after each change of `kinds`, and `work` for each object that changed or is due.
pub(crate) async fn run<Input, Work>(
    controller: &ControllerMetrics,
    stores: &Stores,
    fence: &Fence,
    stop: &CancellationToken,
    kinds: &[WatchedKind],
    mut list: impl FnMut() -> Vec<Candidate<Input>> + Send,
    mut work: impl FnMut(Input) -> Work + Send,
) where
    Work: Future<Output = Result<Requeue, WriteError>> + Send + 'static,
    Input: Send,
{
    stores.wait_ready().await;
    let mut changes = stores.changes(kinds);
    let mut states: BTreeMap<String, ObjectState> = BTreeMap::new();
    let mut running: JoinSet<(Result<Requeue, WriteError>, Duration)> = JoinSet::new();
    let mut tasks: HashMap<Id, String> = HashMap::new();
    let mut changed = true;
    loop {
        let now = Instant::now();
        // While writes are not allowed, reconcilers would only fail and log a warning for each object.
        let allowed = fence.check(CLUSTER_CALL).is_ok();
        let candidates = list();
        let mut next_states: BTreeMap<String, ObjectState> = BTreeMap::new();
        let mut next = now + if allowed { RESYNC } else { LOCKED_RETRY };
        for candidate in candidates {
            let mut state = states.remove(&candidate.key).unwrap_or_default();
            state.dirty |= match candidate.version {
                Some(version) => state.seen != Some(version),
                None => changed || state.seen.is_none(),
            };
            if state.busy {
                // A change during the run is handled when the run ends.
            } else if allowed && running.len() < MAX_BUSY && is_due(&state, now) {
                state.busy = true;
                state.dirty = false;
                state.seen = candidate.version.or(Some(0));
                state.again = None;
                let future = work(candidate.input);
                let task = running.spawn(async move {
                    let started = Instant::now();
                    (future.await, started.elapsed())
                });
                tasks.insert(task.id(), candidate.key.clone());
            } else {
                let wake = [state.paused_until, state.again].into_iter().flatten().max();
                next = next.min(wake.filter(|wake| *wake > now).unwrap_or(next));
            }
            next_states.insert(candidate.key, state);
        }
        // Keep the state of objects that are gone until their reconciler has ended.
        next_states.extend(states.into_iter().filter(|(_, state)| state.busy));
        states = next_states;
        let pause = pause_after(now.elapsed());
        changed = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = changes.next() => {
                tokio::time::sleep(COALESCE.max(pause)).await;
                true
            }
            Some(done) = running.join_next_with_id() => {
                if !pause.is_zero() {
                    tokio::time::sleep(pause).await;
                }
                let mut done = Some(done);
                // Handle all tasks that have ended in one pass, since each pass lists all objects.
                while let Some(ended) = done {
                    let (id, result) = match ended {
                        Ok((id, (result, took))) => {
                            controller.observe(label(&result), took);
                            (id, result.map_err(|error| error.to_string()))
                        }
                        Err(error) => (error.id(), Err(error.to_string())),
                    };
                    if let Some(key) = tasks.remove(&id)
                        && let Some(state) = states.get_mut(&key)
                    {
                        finish(controller.name(), &key, state, result);
                    }
                    done = running.try_join_next_with_id();
                }
                false
            }
            () = tokio::time::sleep_until(next) => false,
        };
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
            let pause = FIRST_PAUSE.saturating_mul(1_u32 << state.failures.min(10)).min(LAST_PAUSE);
            state.failures = state.failures.saturating_add(1);
            state.paused_until = Some(Instant::now() + pause);
            tracing::warn!(controller = name, object = key, error, ?pause, "reconciliation failed, retrying");
        }
    }
}

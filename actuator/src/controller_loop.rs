//! The loop of a controller: look at all objects after each change, and work on those that need it, each by itself.

use crate::fencing::{CLUSTER_CALL, Fence};
use crate::io::WriteError;
use crate::stores::{Kind, Stores};
use std::collections::{BTreeMap, HashMap};
use std::future::Future;
use std::time::Duration;
use tokio::task::{Id, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Changes come in bursts (a hundred nodes register at once): they are looked at together.
const COALESCE: Duration = Duration::from_millis(10);
/// Objects worked on at once: some hundreds of nodes come or go together, each waits for the API server only.
const MAX_BUSY: usize = 128;
/// First pause after an error; doubles up to [`LAST_PAUSE`].
const FIRST_PAUSE: Duration = Duration::from_millis(250);
const LAST_PAUSE: Duration = Duration::from_secs(30);
/// With nothing to wait for, everything is looked at anyway from time to time: a missed signal costs no more than this.
const RESYNC: Duration = Duration::from_secs(60);

/// While this process may not write (its lease is not renewed, another autoscaler is at work), it asks again so often.
const LOCKED_RETRY: Duration = Duration::from_secs(1);

/// An object to look at.
pub(crate) struct Candidate<Input> {
    /// Names it.
    pub(crate) key: String,
    /// What it is looked at by: the same as last time means that there is nothing new. `None`: there always may be.
    pub(crate) version: Option<u64>,
    /// What the work needs.
    pub(crate) input: Input,
}

/// When to look again though nothing changes.
pub(crate) type Again = Option<Duration>;

#[derive(Default)]
struct State {
    busy: bool,
    seen: Option<u64>,
    /// Not before then, after an error.
    paused_until: Option<Instant>,
    again: Option<Instant>,
    failures: u32,
    /// Something changed while it was busy.
    fresh: bool,
}

/// Runs until `stop`. `list` is asked after each change of `kinds`; `work` is called for objects that differ, or whose time has come.
pub(crate) async fn run<Input, Work>(
    name: &'static str,
    stores: &Stores,
    fence: &Fence,
    stop: &CancellationToken,
    kinds: &[Kind],
    mut list: impl FnMut() -> Vec<Candidate<Input>> + Send,
    mut work: impl FnMut(Input) -> Work + Send,
) where
    Work: Future<Output = Result<Again, WriteError>> + Send + 'static,
    Input: Send,
{
    stores.wait_ready().await;
    let mut changes = stores.changes(kinds);
    let mut states: BTreeMap<String, State> = BTreeMap::new();
    let mut running: JoinSet<Result<Again, WriteError>> = JoinSet::new();
    let mut tasks: HashMap<Id, String> = HashMap::new();
    let mut changed = true;
    loop {
        let now = Instant::now();
        // While nothing may be written there is no use in trying, nor in a warning for each object.
        let allowed = fence.check(CLUSTER_CALL).is_ok();
        let candidates = list();
        let mut known: BTreeMap<String, State> = BTreeMap::new();
        let mut next = now + if allowed { RESYNC } else { LOCKED_RETRY };
        for candidate in candidates {
            let mut state = states.remove(&candidate.key).unwrap_or_default();
            state.fresh |= match candidate.version {
                Some(version) => state.seen != Some(version),
                None => changed || state.seen.is_none(),
            };
            if state.busy {
                // It is looked at again when the work is done.
            } else if allowed && running.len() < MAX_BUSY && is_due(&state, now) {
                state.busy = true;
                state.fresh = false;
                state.seen = candidate.version.or(Some(0));
                state.again = None;
                let future = work(candidate.input);
                let task = running.spawn(future);
                tasks.insert(task.id(), candidate.key.clone());
            } else {
                let wake = [state.paused_until, state.again].into_iter().flatten().max();
                next = next.min(wake.filter(|wake| *wake > now).unwrap_or(next));
            }
            known.insert(candidate.key, state);
        }
        // Those that are gone but still worked on are kept until they are done.
        known.extend(states.into_iter().filter(|(_, state)| state.busy));
        states = known;
        changed = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = changes.next() => {
                tokio::time::sleep(COALESCE).await;
                true
            }
            Some(done) = running.join_next_with_id() => {
                let mut done = Some(done);
                // Those that ended at the same time are taken together: each look at everything has its price.
                while let Some(ended) = done {
                    let (id, result) = match ended {
                        Ok((id, result)) => (id, result.map_err(|error| error.to_string())),
                        Err(error) => (error.id(), Err(error.to_string())),
                    };
                    if let Some(key) = tasks.remove(&id)
                        && let Some(state) = states.get_mut(&key)
                    {
                        finish(name, &key, state, result);
                    }
                    done = running.try_join_next_with_id();
                }
                false
            }
            () = tokio::time::sleep_until(next) => false,
        };
    }
}

fn is_due(state: &State, now: Instant) -> bool {
    match state.paused_until {
        Some(until) => until <= now,
        None => state.fresh || state.again.is_some_and(|again| again <= now),
    }
}

fn finish(name: &str, key: &str, state: &mut State, result: Result<Again, String>) {
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
            tracing::warn!(controller = name, object = key, error, ?pause, "failed, it is tried again");
        }
    }
}

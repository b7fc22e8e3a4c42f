//! The rounds of writes in which pods are nominated and bound.

use super::Nominations;
use crate::fencing::{CLUSTER_CALL, NotAllowed};
use crate::pacing::{pause_after, until};
use crate::pods;
use crate::stores::{ChangeSignal, WatchedKind};
use plimsoll_api::Pod;
use plimsoll_model::identity::PodUid;
use plimsoll_runtime::signal;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Delay that coalesces bursts of changes. It delays no pod, since a Node becomes Ready only seconds after it appears.
const COALESCE: Duration = Duration::from_millis(100);
/// Interval of a full pass, since reservations expire by time alone.
const TICK: Duration = Duration::from_secs(10);
/// Concurrent writes, which mostly wait for the API server.
pub(super) const CONCURRENT_WRITES: usize = 16;
/// Writes per round. The next round recomputes the rest, since much of it may be obsolete by then.
pub(super) const PER_ROUND: usize = 200;
/// With this many pods refused and no write permitted in between, the right is held to be missing. A webhook that
/// denies a pod and a namespace that is being deleted refuse writes, too, but rarely so many and nothing else.
const REFUSED_PODS: usize = 10;
/// Pause while the right is missing. Once it is granted, no restart is needed. Until then, there is at most about one
/// round of refused writes in each pause.
const NO_RIGHT_PAUSE: Duration = Duration::from_secs(300);

/// What a controller writes.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kind {
    /// Its name in logs.
    pub(super) name: &'static str,
    /// The right that it needs.
    pub(super) right: &'static str,
}

/// Result of a nomination or a binding.
#[derive(Debug)]
pub(super) enum WriteResult {
    Done,
    /// A concurrent write won, or the pod is gone. The next pass decides on the new state.
    Overtaken,
    /// The right is missing, or this pod is refused: by a webhook, or because its namespace is being deleted.
    Forbidden(String),
    Failed(String),
}

impl WriteResult {
    pub(super) fn of<T>(answer: Result<Result<T, kube::Error>, NotAllowed>) -> Self {
        match answer {
            Ok(Ok(_)) => Self::Done,
            Ok(Err(kube::Error::Api(status))) if matches!(status.code, 404 | 409) => Self::Overtaken,
            Ok(Err(kube::Error::Api(status))) if status.code == 403 => Self::Forbidden(status.message.clone()),
            Ok(Err(error)) => Self::Failed(error.to_string()),
            Err(error) => Self::Failed(error.to_string()),
        }
    }

    /// Value of the metrics' label `result`; `done` if the write is done.
    pub(super) fn label(&self, done: &'static str) -> &'static str {
        match self {
            Self::Done => done,
            Self::Overtaken => "overtaken",
            Self::Forbidden(_) => "forbidden",
            Self::Failed(_) => "failed",
        }
    }
}

/// Results of a round.
#[derive(Debug, Default)]
pub(super) struct Round {
    /// Whether an answer shows that the right is there. The API server checks it before it looks for the pod.
    permitted: bool,
    refused: BTreeSet<PodUid>,
    /// The last refusal.
    refusal: String,
    failed: u32,
    /// The last failure besides refusals.
    failure: String,
}

impl Round {
    pub(super) fn note(&mut self, pod: &Pod, result: WriteResult) {
        match result {
            WriteResult::Done | WriteResult::Overtaken => self.permitted = true,
            WriteResult::Forbidden(problem) => {
                self.refused.insert(PodUid(pods::uid(pod)));
                self.refusal = problem;
            }
            WriteResult::Failed(problem) => (self.failed, self.failure) = (self.failed + 1, problem),
        }
    }
}

/// What the rounds so far say about the right.
#[derive(Debug, Default, PartialEq, Eq)]
struct Right {
    /// Pods refused since a write was permitted, or since the last pause.
    refused: BTreeSet<PodUid>,
    /// The right was found to be missing, and no write has been permitted since then.
    missing: bool,
}

/// What follows from a round.
#[derive(Debug, PartialEq, Eq)]
enum Conclusion {
    /// Go on. Refused pods are tried again after a delay, as after any other failure.
    GoOn,
    /// The right is missing: pause.
    Missing,
    /// It is still missing: pause again, without another warning.
    StillMissing,
}

impl Right {
    fn after(&mut self, round: &Round) -> Conclusion {
        if round.permitted {
            *self = Self::default();
            return Conclusion::GoOn;
        }
        self.refused.extend(round.refused.iter().cloned());
        if self.refused.len() < REFUSED_PODS {
            return Conclusion::GoOn;
        }
        self.refused.clear();
        if std::mem::replace(&mut self.missing, true) { Conclusion::StillMissing } else { Conclusion::Missing }
    }

    /// Logs the problems of a round. Returns whether the right is missing.
    fn report(&mut self, kind: Kind, round: &Round) -> bool {
        let Round { refused, refusal, failed, failure, .. } = round;
        if *failed > 0 {
            tracing::warn!(writes = kind.name, failed, failure, "writes failed, kube-scheduler decides without them");
        }
        let (conclusion, refused) = (self.after(round), refused.len());
        match conclusion {
            Conclusion::Missing => {
                let (right, pause) = (kind.right, NO_RIGHT_PAUSE);
                tracing::warn!(writes = kind.name, refusal, ?pause, "writes are refused for all pods: allow {right}");
            }
            Conclusion::GoOn if refused > 0 && !self.missing => {
                tracing::warn!(writes = kind.name, refused, refusal, "writes refused for some pods, retrying");
            }
            Conclusion::GoOn | Conclusion::StillMissing => {}
        }
        conclusion != Conclusion::GoOn
    }
}

/// Performs the writes that are `due` after each change, until `stop`.
pub(super) async fn run<Write, Performed>(
    deps: &Nominations,
    stop: &CancellationToken,
    kind: Kind,
    mut due: impl FnMut() -> Vec<Write> + Send,
    perform: impl Fn(Vec<Write>) -> Performed + Send,
) where
    Performed: Future<Output = Round> + Send,
    Write: Send,
{
    let rounds = async {
        let mut inputs = Inputs::ready(deps).await;
        let mut right = Right::default();
        loop {
            inputs.mark_unchanged();
            let allowed = deps.fence.check(CLUSTER_CALL).is_ok();
            let began = Instant::now();
            let writes = if allowed { due() } else { Vec::new() };
            let pass = began.elapsed();
            let more = writes.len() == PER_ROUND;
            let round = perform(writes).await;
            if right.report(kind, &round) {
                tokio::time::sleep(NO_RIGHT_PAUSE).await;
            } else if !more {
                inputs.changed(pass).await;
            }
        }
    };
    until::<()>(stop, rounds).await;
}

/// What nominations and bindings depend on.
struct Inputs {
    stores: ChangeSignal,
    ledger: signal::Receiver,
    placements: signal::Receiver,
}

impl Inputs {
    /// Waits until the stores are ready.
    async fn ready(deps: &Nominations) -> Self {
        deps.stores.wait_ready().await;
        Self {
            stores: deps.stores.changes(&[WatchedKind::Pod, WatchedKind::Node, WatchedKind::NodeClaim]),
            ledger: deps.ledger.subscribe(),
            placements: deps.placements.subscribe(),
        }
    }

    /// Must be called before the ledger and the placements are read.
    fn mark_unchanged(&mut self) {
        self.ledger.mark_unchanged();
        self.placements.mark_unchanged();
    }

    /// Waits for a change, at most for [`TICK`], and for further changes that come at the same time. The last pass took
    /// `pass`.
    async fn changed(&mut self, pass: Duration) {
        tokio::select! {
            biased;
            () = self.stores.next() => {}
            () = self.ledger.changed() => {}
            () = self.placements.changed() => {}
            () = tokio::time::sleep(TICK) => {}
        }
        tokio::time::sleep(COALESCE.max(pause_after(pass))).await;
    }
}

#[cfg(test)]
mod tests;

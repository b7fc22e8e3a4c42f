//! Starts the removals of a plan in a task of its own: starting a removal writes to the cluster, which must not depend
//! on the call.

use super::Leader;
use crate::launch::admit::wire_reason;
use crate::ledger::{Outcome as LedgerOutcome, PlanContext};
use crate::pacing::until;
use crate::removal::{self, RemovalDecision};
use futures::{StreamExt, stream};
use kube::ResourceExt;
use plimsoll_model::execution::{Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::identity::{ActionId, NodeName};
use plimsoll_model::plan::{Plan, PodRef, Termination};
use std::collections::{BTreeMap, BTreeSet};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Capacity of the queue, in plans. A watcher sends one plan at a time.
const QUEUE: usize = 64;
/// Removals of a plan whose commands are written at the same time. The watcher plans for new pods only after it knows
/// the outcome of each removal.
const CONCURRENT_WRITES: usize = 16;

/// A removal with its context from the plan.
#[derive(Debug, Clone)]
pub struct Job {
    /// The removal.
    pub termination: Termination,
    /// Launches that the removal waits for.
    pub replacements: Vec<ActionId>,
    /// The plan.
    pub plan: PlanContext,
    /// Correlation id of the planning cycle, for logs.
    pub cycle_id: String,
    /// The ledger's decision, if already requested.
    decision: Option<RemovalDecision>,
}

/// The removals of a plan, in order. Removals that wait for launches are admitted at once, since a launch that only
/// replaces a node is executed only if the removal is admitted. Each of the others costs a pass over all pods and waits
/// for its turn, which may be seconds: by then, a claim may show a pod event that the plan does not know.
#[must_use]
pub fn jobs(deps: &Leader, plan: &Plan, context: &PlanContext, cycle_id: &str) -> Vec<Job> {
    let job = |termination: &Termination| {
        let launches = termination.replaced_by.iter().filter_map(|index| plan.launches.get(*index));
        let replacements: Vec<ActionId> = launches.map(|launch| launch.action_id.clone()).collect();
        let decision = if replacements.is_empty() {
            removal::misses_pod_event(&deps.removals, termination)
        } else {
            Some(removal::admit(&deps.removals, termination, &replacements, context))
        };
        let (termination, plan, cycle_id) = (termination.clone(), context.clone(), cycle_id.to_owned());
        Job { termination, replacements, plan, cycle_id, decision }
    };
    plan.terminations.iter().map(job).collect()
}

/// Launches that serve only rejected removals, by index in the plan, each with the action of the first such removal.
#[must_use]
pub fn refused<'a>(plan: &Plan, context: &PlanContext, jobs: &'a [Job]) -> BTreeMap<usize, &'a ActionId> {
    let mut rejected = BTreeMap::new();
    for (index, launch) in plan.launches.iter().enumerate() {
        let jobs_served = || jobs.iter().filter(|job| job.termination.replaced_by.contains(&index));
        let Some(first) = jobs_served().next() else { continue };
        let moves = |pod: &PodRef| jobs_served().any(|job| job.termination.pods.contains(pod));
        let replaces_only = launch.pods.iter().all(|pod| moves(pod) || context.virtual_pods.contains(&pod.uid));
        if replaces_only && jobs_served().all(|job| matches!(job.decision, Some(RemovalDecision::Rejected(_)))) {
            rejected.insert(index, &first.termination.action_id);
        }
    }
    rejected
}

/// Nodes that wait for a launch without pods: the nodes of static pools that the plan replaces.
#[must_use]
pub fn replaced_in_static_pools(plan: &Plan) -> BTreeSet<NodeName> {
    let waits_for = |index: &usize| plan.launches.get(*index).is_some_and(|launch| launch.pods.is_empty());
    let replaced = plan.terminations.iter().filter(|termination| termination.replaced_by.iter().any(waits_for));
    replaced.map(|termination| termination.node.clone()).collect()
}

/// Creates the queue for [`run`].
#[must_use]
pub fn queue() -> (mpsc::Sender<Vec<Job>>, mpsc::Receiver<Vec<Job>>) {
    mpsc::channel(QUEUE)
}

/// Starts queued removals until `stop`. The ledger decides on the removals of a plan in their order. Their commands may
/// be written in any order, since each is on its own claim.
pub async fn run(deps: Leader, mut queue: mpsc::Receiver<Vec<Job>>, stop: CancellationToken) {
    while let Some(Some(jobs)) = until(&stop, queue.recv()).await {
        stream::iter(jobs).for_each_concurrent(CONCURRENT_WRITES, |job| admit(&deps, job)).await;
    }
}

async fn admit(deps: &Leader, job: Job) {
    let Job { termination, replacements, plan, cycle_id, decision } = job;
    let decision = decision.unwrap_or_else(|| removal::admit(&deps.removals, &termination, &replacements, &plan));
    let (status, reason, message, claim) = match decision {
        RemovalDecision::Admitted(admitted) => match removal::begin(&deps.removals, &admitted).await {
            Ok(()) => {
                let pool = admitted.claim.node_pool();
                deps.metrics.disruption.admitted(pool, termination.reason, !replacements.is_empty());
                (OutcomeStatus::Accepted, None, String::new(), Some(admitted.claim.name_any()))
            }
            Err(error) => (OutcomeStatus::Rejected, Some(OutcomeReason::ClusterRefused), error.to_string(), None),
        },
        RemovalDecision::Repeated(outcome) => {
            let done = outcome == LedgerOutcome::Done;
            // A removal that is done has no final outcome if no controller saw the deletion before the claim was gone.
            let known = deps.outcomes.of(&termination.action_id);
            if known.last().is_some_and(|last| !done || last.status.is_final()) {
                return;
            }
            let status = if done { OutcomeStatus::Removed } else { OutcomeStatus::Accepted };
            (status, None, String::new(), None)
        }
        RemovalDecision::Rejected(rejection) => {
            let (reason, message) = wire_reason(&rejection);
            deps.metrics.disruption.rejected(termination.reason);
            (OutcomeStatus::Rejected, Some(reason), message, None)
        }
    };
    let counted = match status {
        OutcomeStatus::Rejected => "rejected",
        OutcomeStatus::Removed => "removed",
        _ => "accepted",
    };
    deps.metrics.actions.with_label_values(&["termination", counted]).inc();
    tracing::info!(
        cycle_id, node = %termination.node, reason = termination.reason.as_str(), ?status, message, "removal requested"
    );
    deps.outcomes.post(Outcome {
        action_id: termination.action_id.clone(),
        status,
        reason,
        message,
        node_claim: claim,
        ledger: deps.ledger.position(),
    });
}

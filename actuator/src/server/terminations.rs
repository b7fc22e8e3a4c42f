//! Removals of a plan, admitted one after the other. Admission writes to the cluster, so it does not hang on the call that asked.

use crate::context::Context;
use crate::launch::admit::words;
use crate::ledger::{Admission, Outcome as LedgerOutcome, PlanContext};
use plimsoll_model::execution::{Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::identity::ActionId;
use plimsoll_model::plan::{Plan, Termination};
use tokio::sync::mpsc;
use tokio_util::sync::CancellationToken;

/// Plans with removals that wait; a watcher sends one at a time.
const QUEUE: usize = 64;

/// A removal with what its plan says of it.
#[derive(Debug, Clone)]
pub struct Job {
    /// The removal.
    pub termination: Termination,
    /// Launches that it waits for.
    pub replacements: Vec<ActionId>,
    /// The plan.
    pub plan: PlanContext,
    /// Names the round in logs.
    pub cycle_id: String,
}

/// Removals of one plan, in its order.
#[must_use]
pub fn jobs(plan: &Plan, about: &PlanContext, cycle_id: &str) -> Vec<Job> {
    let replacements = |termination: &Termination| {
        let launches = termination.replaced_by.iter().filter_map(|index| plan.launches.get(*index));
        launches.map(|launch| launch.action_id.clone()).collect()
    };
    let job = |termination: &Termination| Job {
        termination: termination.clone(),
        replacements: replacements(termination),
        plan: about.clone(),
        cycle_id: cycle_id.to_owned(),
    };
    plan.terminations.iter().map(job).collect()
}

/// A queue for [`run`].
#[must_use]
pub fn queue() -> (mpsc::Sender<Vec<Job>>, mpsc::Receiver<Vec<Job>>) {
    mpsc::channel(QUEUE)
}

/// Admits removals until `stop`.
pub async fn run(context: Context, mut queue: mpsc::Receiver<Vec<Job>>, stop: CancellationToken) {
    loop {
        let jobs = tokio::select! {
            biased;
            () = stop.cancelled() => return,
            jobs = queue.recv() => match jobs {
                Some(jobs) => jobs,
                None => return,
            },
        };
        for job in jobs {
            admit(&context, &job).await;
        }
    }
}

async fn admit(context: &Context, job: &Job) {
    let Job { termination, replacements, plan, cycle_id } = job;
    let (status, reason, message, claim) = match crate::removal::admit(context, termination, replacements, plan).await {
        Ok(Admission::Admitted { claim, .. }) => (OutcomeStatus::Accepted, None, String::new(), Some(claim)),
        Ok(Admission::Repeated(known)) => {
            if !context.outcomes.of(&termination.action_id).is_empty() {
                return;
            }
            let done = known == LedgerOutcome::Done;
            let status = if done { OutcomeStatus::Removed } else { OutcomeStatus::Accepted };
            (status, None, String::new(), None)
        }
        Ok(Admission::Rejected(rejection)) => {
            let (reason, message) = words(&rejection);
            (OutcomeStatus::Rejected, Some(reason), message, None)
        }
        Err(error) => (OutcomeStatus::Rejected, Some(OutcomeReason::ClusterRefused), error.to_string(), None),
    };
    let counted = if status == OutcomeStatus::Rejected { "rejected" } else { "accepted" };
    context.metrics.actions.with_label_values(&["termination", counted]).inc();
    tracing::info!(
        cycle_id, node = %termination.node, reason = termination.reason.as_str(), ?status, message, "removal asked for"
    );
    context.outcomes.post(Outcome {
        action_id: termination.action_id.clone(),
        status,
        reason,
        message,
        node_claim: claim,
        ledger: context.ledger.position(),
    });
}

//! Execute: receives a plan and streams outcomes. All launches are admitted in one synchronous step, based on the
//! actuator's own view. Admitted actions are executed even if the caller disconnects.

mod first_actions;

use super::Leader;
use super::{Responses, driver, nominated, refused, streaming, terminations};
use crate::clock::Timestamped;
use crate::launch::Admitted;
use crate::launch::admit::{self, NotAdmitted};
use crate::launch::launcher::{QUEUE, QueueSlots};
use crate::launch::purchase::RequestError;
use crate::launch::record::is_leaving;
use crate::ledger::failures::INSUFFICIENT_CAPACITY;
use crate::ledger::{Driver, Outcome as LedgerOutcome, PlanContext, Rejection, feed};
use crate::metrics::view;
use crate::removal::step;
use first_actions::first_actions;
use plimsoll_api::Pod;
use plimsoll_model::execution::{Execution, Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::identity::{ActionId, NodeName, PodUid};
use plimsoll_model::plan::{Launch, Plan, PodRef};
use plimsoll_proto::actuator::v1 as wire;
use plimsoll_runtime::telemetry::MAX_CYCLE_ID_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// How long a caller receives outcomes; it may ask again. A minute longer than a removal waits for its replacements, so
/// that the caller learns that the removal was undone.
const MAX_STREAM_DURATION: Duration = Duration::from_millis(step::TIMEOUT.0 + 60_000);
/// Launches admitted from one plan, since each may need its own group. The rest comes with the next plan.
const MAX_LAUNCHES: usize = QUEUE / 2;

pub(super) async fn execute(
    deps: Leader,
    request: wire::ExecuteRequest,
    stop: CancellationToken,
) -> Result<Responses<wire::ExecuteResponse>, Status> {
    let received = Instant::now();
    let execution = Execution::try_from(request).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let Execution { driver, plan, cycle_id, virtual_pods, buffers } = execution;
    if cycle_id.len() > MAX_CYCLE_ID_BYTES {
        return Err(Status::invalid_argument(format!("cycle_id has more than {MAX_CYCLE_ID_BYTES} bytes")));
    }
    let plan = considered(plan, &virtual_pods, &cycle_id);
    let driver = Driver { holder: driver.identity, transitions: driver.transitions };
    publish_problems(&deps, &plan);
    note_if_paused(&deps, &plan, &cycle_id);
    deps.fence.check_admission().map_err(|error| refused(&error))?;
    driver::check(&deps.drivers, &driver).await?;
    let slots = deps.admission.launches.reserve(plan.launches.len().min(MAX_LAUNCHES));
    let busy = || Status::resource_exhausted("too many actions are queued, retry later");
    let mut slots = slots.ok_or_else(busy)?;
    let queue = deps.terminations.clone();
    let removals = queue.try_reserve().map_err(|_full| busy())?;
    deps.outcomes.planned(&plan, deps.clock.timestamp());
    let (position, snapshot_sequence) = (plan.ledger, plan.snapshot_sequence);
    let (virtual_pods, replaced) = (Arc::new(virtual_pods), Arc::new(terminations::replaced_in_static_pools(&plan)));
    let context = PlanContext { driver, position, snapshot_sequence, virtual_pods, replaced };
    tracing::info!(
        cycle_id,
        snapshot = plan.snapshot_sequence,
        launches = plan.launches.len(),
        terminations = plan.terminations.len(),
        unschedulable = plan.unschedulable.len(),
        "plan received"
    );
    // No await from here until the groups are queued, so a caller that disconnects cannot leave a partial execution.
    feed::refresh_pools(&deps.sources, &mut BTreeSet::new());
    feed::refresh_quotas(&deps.sources);
    let placed = deps.placements.note(&plan, deps.clock.timestamp());
    deps.postponed.note(&plan, deps.clock.timestamp());
    deps.buffers.note(buffers);
    count_planned(&deps, &plan);
    let admitted = admit_launches(&deps, &plan, &context, &cycle_id);
    let jobs = terminations::jobs(&deps, &plan, &context, &cycle_id);
    let admitted = drop_unneeded(&deps, &plan, &context, &jobs, admitted);
    nominated::publish(&deps, &placed, &admitted);
    start(&deps, admitted, &cycle_id, &mut slots, received);
    drop(slots);
    if !jobs.is_empty() {
        jobs.iter().for_each(|job| deps.outcomes.decided_again(&job.termination.action_id));
        removals.send(jobs);
    }
    let ids = plan.launches.iter().map(|launch| &launch.action_id);
    let ids: Vec<ActionId> =
        ids.chain(plan.terminations.iter().map(|termination| &termination.action_id)).cloned().collect();
    Ok(stream_outcomes(deps, ids, context.driver, stop))
}

/// The plan with as many actions as are considered at once.
fn considered(plan: Plan, virtual_pods: &BTreeSet<PodUid>, cycle_id: &str) -> Plan {
    let (launches, terminations) = (plan.launches.len(), plan.terminations.len());
    let plan = first_actions(plan, virtual_pods);
    if (launches, terminations) != (plan.launches.len(), plan.terminations.len()) {
        tracing::warn!(cycle_id, launches, terminations, "plan has too many actions, only the first are considered");
    }
    plan
}

/// Publishes Events: why pods are unschedulable, and why NodePools launch nothing.
fn publish_problems(deps: &Leader, plan: &Plan) {
    // A watcher sends some pods without their reasons if not all fit into one message, and sends those later.
    for unschedulable in plan.unschedulable.iter().filter(|unschedulable| !unschedulable.reasons.is_empty()) {
        deps.events.unschedulable(&unschedulable.pod, &unschedulable.reasons);
    }
    for problem in &plan.pool_problems {
        if let Some(pool) = deps.stores.pools.get(&problem.node_pool) {
            deps.events.pool_problem(&pool, problem);
        }
    }
}

/// Records the actions of the plan if it is not executed because writes are paused.
fn note_if_paused(deps: &Leader, plan: &Plan, cycle_id: &str) {
    let Some(reason) = deps.fence.paused() else { return };
    tracing::info!(
        cycle_id,
        reason,
        launches = plan.launches.len(),
        terminations = plan.terminations.len(),
        "paused, plan not executed"
    );
    let pool_of = |node: &NodeName| {
        let node = deps.stores.nodes.get(&node.0)?;
        Some(view::pool_of(node.metadata.labels.as_ref()).to_owned()).filter(|pool| !pool.is_empty())
    };
    deps.unexecuted.note(plan, &deps.catalogs.all(), pool_of);
}

/// Records when pods without a node were first planned.
fn count_planned(deps: &Leader, plan: &Plan) {
    let metrics = &deps.metrics.pods;
    if !metrics.has_news(plan) {
        return;
    }
    let waiting = deps.stores.pods.unbound();
    let created = |pod: &'_ Arc<Pod>| pod.metadata.creation_timestamp.as_ref().map(|time| time.0);
    let created: BTreeMap<&str, _> =
        waiting.iter().filter_map(|pod| Some((pod.metadata.uid.as_deref()?, created(pod)?))).collect();
    metrics.planned(plan, deps.clock.now(), |uid| created.get(uid).copied());
}

/// Admits launches in the ledger, and posts a rejection for each of the others.
fn admit_launches(deps: &Leader, plan: &Plan, context: &PlanContext, cycle_id: &str) -> Vec<Admitted> {
    let unneeded = unneeded(deps, plan);
    let mut admitted = Vec::new();
    for launch in plan.launches.iter().skip(MAX_LAUNCHES) {
        let message = format!("plan has more than {MAX_LAUNCHES} launches");
        deps.outcomes.post(outcome(deps, launch, OutcomeStatus::Rejected, Some(OutcomeReason::StaleSnapshot), message));
    }
    for launch in plan.launches.iter().take(MAX_LAUNCHES) {
        let (reason, message) = match admit::admit_launch(&deps.admission, launch, context, &unneeded) {
            Ok(launch) => {
                admitted.push(launch);
                continue;
            }
            Err(NotAdmitted::Repeated(outcome)) => {
                count(deps, "repeated");
                post_repeated(deps, launch, &outcome);
                continue;
            }
            Err(NotAdmitted::Refused(refusal)) => (refusal.reason, refusal.message),
            Err(NotAdmitted::Rejected(rejection)) => admit::wire_reason(&rejection),
        };
        count(deps, "rejected");
        tracing::info!(cycle_id, action = %launch.action_id, ?reason, message, "launch rejected");
        deps.outcomes.post(outcome(deps, launch, OutcomeStatus::Rejected, Some(reason), message));
    }
    admitted
}

/// Drops admitted launches that only replace nodes whose removals are rejected (rule 18).
fn drop_unneeded(
    deps: &Leader,
    plan: &Plan,
    context: &PlanContext,
    jobs: &[terminations::Job],
    mut admitted: Vec<Admitted>,
) -> Vec<Admitted> {
    for (index, removal) in terminations::refused(plan, context, jobs) {
        let Some(launch) = plan.launches.get(index) else { continue };
        let Some(position) = admitted.iter().position(|candidate| candidate.launch.action_id == launch.action_id)
        else {
            continue;
        };
        let withdrawn = admitted.remove(position);
        let (reason, message) = admit::wire_reason(&Rejection::DependencyRejected(removal.clone()));
        deps.ledger.with(|ledger| ledger.withdraw(&withdrawn.claim, context));
        deps.ledger.not_launching(&withdrawn.claim);
        count(deps, "rejected");
        deps.outcomes.post(outcome(deps, launch, OutcomeStatus::Rejected, Some(reason), message));
    }
    admitted
}

/// Queues admitted launches for execution.
fn start(deps: &Leader, admitted: Vec<Admitted>, cycle_id: &str, slots: &mut QueueSlots<'_>, received: Instant) {
    for launch in &admitted {
        count(deps, "accepted");
        let accepted = outcome(deps, &launch.launch, OutcomeStatus::Accepted, None, String::new());
        deps.outcomes.post(Outcome { node_claim: Some(launch.claim.clone()), ..accepted });
    }
    let (groups, refused) = admit::group(&deps.admission, admitted, cycle_id);
    for (admitted, error) in refused {
        withdraw_launch(deps, &admitted, &error);
    }
    for (group, purchase) in groups {
        slots.launch(group, purchase, received);
    }
}

/// Withdraws a launch whose node class cannot be used after all. Nothing was written yet.
fn withdraw_launch(deps: &Leader, admitted: &Admitted, error: &RequestError) {
    let now = deps.clock.timestamp();
    let (cause, reason) = match error {
        // Other zones of the pool may have addresses. The catalog of the class closes these zones, so the pool is not
        // paused.
        RequestError::NoSubnet(_) => (INSUFFICIENT_CAPACITY, OutcomeReason::NoCapacity),
        _ => ("NodeClassNotReady", OutcomeReason::PoolChanged),
    };
    deps.ledger.with(|ledger| {
        ledger.failed(&admitted.claim, cause, now);
        ledger.gone(&admitted.claim);
    });
    deps.ledger.not_launching(&admitted.claim);
    deps.outcomes.post(outcome(deps, &admitted.launch, OutcomeStatus::Failed, Some(reason), error.to_string()));
}

/// Pods of the plan's launches that need no launch, with the reason, from the watch cache. A pod that the cache does
/// not show may just be new.
fn unneeded(deps: &Leader, plan: &Plan) -> BTreeMap<PodUid, String> {
    let planned: Vec<&PodRef> = plan.launched_pods().collect();
    if planned.is_empty() {
        return BTreeMap::new();
    }
    let leaving = leaving(deps, plan);
    let unneeded = planned.into_iter().filter_map(|pod| {
        let cached = deps.stores.pods.with_uid(pod.uid.as_str())?;
        let message = match cached.node_name.as_deref() {
            Some(node) if leaving.contains(node) => None,
            Some(node) => Some(format!("pod {} runs on node {node}", pod.name)),
            None => cached.metadata.deletion_timestamp.as_ref().map(|_| format!("pod {} is being deleted", pod.name)),
        };
        Some((pod.uid.clone(), message?))
    });
    unneeded.collect()
}

/// Nodes being removed, by this plan or already.
fn leaving(deps: &Leader, plan: &Plan) -> BTreeSet<String> {
    let mut leaving: BTreeSet<String> =
        plan.terminations.iter().map(|termination| termination.node.0.clone()).collect();
    for claim in deps.stores.claims.state() {
        leaving.extend(claim.node_name().filter(|_| is_leaving(&claim)).map(str::to_owned));
    }
    let nodes = deps.stores.nodes.state().into_iter().filter(|node| node.metadata.deletion_timestamp.is_some());
    leaving.extend(nodes.filter_map(|node| node.metadata.name.clone()));
    leaving
}

/// Answers a repeated launch with its known outcome. If this leader has no record, the claim's state is reported.
fn post_repeated(deps: &Leader, launch: &Launch, ledger_outcome: &LedgerOutcome) {
    if !deps.outcomes.of(&launch.action_id).is_empty() {
        return;
    }
    let claim = crate::state::launch_group::claim_name(&launch.node_pool, &launch.action_id);
    let launched = deps.ledger.read(|ledger| ledger.claim(&claim).is_some_and(|claim| claim.launched));
    let status = match ledger_outcome {
        LedgerOutcome::Done => OutcomeStatus::Launched,
        _ if launched => OutcomeStatus::Launched,
        _ => OutcomeStatus::Accepted,
    };
    deps.outcomes.post(Outcome { node_claim: Some(claim), ..outcome(deps, launch, status, None, String::new()) });
}

fn outcome(
    deps: &Leader,
    launch: &Launch,
    status: OutcomeStatus,
    reason: Option<OutcomeReason>,
    message: String,
) -> Outcome {
    let ledger = deps.ledger.position();
    Outcome { action_id: launch.action_id.clone(), status, reason, message, node_claim: None, ledger }
}

fn count(deps: &Leader, outcome: &str) {
    deps.metrics.actions.with_label_values(&["launch", outcome]).inc();
}

/// Streams outcomes of these actions until all are final or another watcher is the driver.
fn stream_outcomes(
    deps: Leader,
    actions: Vec<ActionId>,
    driver: Driver,
    stop: CancellationToken,
) -> Responses<wire::ExecuteResponse> {
    streaming(deps, stop, move |deps, sender| async move {
        let until = Instant::now() + MAX_STREAM_DURATION;
        let (mut posted, mut ledger) = (deps.outcomes.subscribe(), deps.ledger.subscribe());
        let mut open: BTreeMap<ActionId, usize> = actions.into_iter().map(|action| (action, 0)).collect();
        loop {
            posted.mark_unchanged();
            ledger.mark_unchanged();
            if !driver::is_known(&deps.drivers, &driver) {
                return Err(Status::failed_precondition("another watcher leads"));
            }
            let mut unsent = Vec::new();
            open.retain(|action, sent_count| {
                let outcomes = deps.outcomes.of(action);
                // The action started over, so the outcomes sent before are obsolete.
                *sent_count = if *sent_count > outcomes.len() { 0 } else { *sent_count };
                unsent.extend(outcomes.iter().skip(*sent_count).cloned());
                *sent_count = outcomes.len();
                !outcomes.last().is_some_and(|last| last.status.is_final())
            });
            for outcome in unsent {
                if sender.send(Ok((&outcome).into())).await.is_err() {
                    return Ok(());
                }
            }
            if open.is_empty() {
                return Ok(());
            }
            tokio::select! {
                biased;
                () = posted.changed() => {}
                () = ledger.changed() => {}
                () = tokio::time::sleep_until(until) => {
                    return Err(Status::deadline_exceeded("some actions are in progress; send the plan again for their outcomes"));
                }
            }
        }
    })
}

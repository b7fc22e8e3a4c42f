//! Execute: a plan in, outcomes out. Everything is admitted in one go, on the actuator's own view; what was admitted is
//! carried out whether or not the caller stays to hear of it.

use super::{Responses, driver, refused, streaming, terminations};
use crate::context::Context;
use crate::launch::admit::{self, Admitted, Asked, Pods};
use crate::launch::launcher::{QUEUE, Room};
use crate::launch::record::annotation as read;
use crate::ledger::{Driver, Outcome as LedgerOutcome, PlanContext, Rejection, feed};
use k8s_openapi::api::core::v1::Pod;
use plimsoll_model::execution::{Execution, Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::identity::ActionId;
use plimsoll_model::names::annotation;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_proto::actuator::v1 as wire;
use plimsoll_runtime::telemetry::MAX_CYCLE_ID_BYTES;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use tonic::Status;

/// A caller hears of its actions for so long; it may ask again. Longer than a node takes to come up or to drain.
const LONGEST: Duration = Duration::from_secs(600);
/// Actions in one plan: more come with the next one.
const MAX_ACTIONS: usize = 10_000;
/// Launches taken from one plan: each may be a group of its own, and the rest comes with the next plan.
const AT_ONCE: usize = QUEUE / 2;

pub(super) async fn execute(
    context: Context,
    request: wire::ExecuteRequest,
    stop: CancellationToken,
) -> Result<Responses<wire::ExecuteResponse>, Status> {
    let received = Instant::now();
    let execution = Execution::try_from(request).map_err(|error| Status::invalid_argument(error.to_string()))?;
    let Execution { driver, plan, cycle_id, virtual_pods, buffers } = execution;
    let actions = plan.launches.len().saturating_add(plan.terminations.len());
    if actions > MAX_ACTIONS {
        return Err(Status::invalid_argument(format!("plan: {actions} actions, at most {MAX_ACTIONS} are taken")));
    }
    if cycle_id.len() > MAX_CYCLE_ID_BYTES {
        return Err(Status::invalid_argument(format!("cycle_id: is longer than {MAX_CYCLE_ID_BYTES} bytes")));
    }
    let driver = Driver { holder: driver.identity, transitions: driver.transitions };
    for unschedulable in &plan.unschedulable {
        context.events.unschedulable(&unschedulable.pod, &unschedulable.reasons);
    }
    plan.pool_problems.iter().for_each(|problem| context.events.pool_problem(problem));
    if let Some(reason) = context.fence.paused() {
        tracing::info!(
            cycle_id,
            reason,
            launches = plan.launches.len(),
            terminations = plan.terminations.len(),
            "nothing is written; this is what would be done"
        );
        context.unexecuted.note(&plan);
    }
    context.fence.check_admission().map_err(|error| refused(&error))?;
    driver::check(&context, &driver).await?;
    context.outcomes.planned(context.now());
    let room = context.launches.room(plan.launches.len().min(AT_ONCE));
    let busy = || Status::resource_exhausted("too many actions wait, ask again");
    let mut room = room.ok_or_else(busy)?;
    let queue = context.terminations.clone();
    let removals = queue.try_reserve().map_err(|_full| busy())?;
    let (position, snapshot_sequence) = (plan.ledger, plan.snapshot_sequence);
    let about = PlanContext { driver, position, snapshot_sequence, virtual_pods: Arc::new(virtual_pods) };
    tracing::info!(
        cycle_id,
        snapshot = plan.snapshot_sequence,
        launches = plan.launches.len(),
        terminations = plan.terminations.len(),
        unschedulable = plan.unschedulable.len(),
        "plan received"
    );
    // From here to the queue there is no await: a caller that goes away cannot leave half of it.
    feed::refresh_pools(&context, &mut BTreeSet::new());
    context.placed.note(&plan, context.now());
    context.buffers.note(buffers);
    let admitted = admit_launches(&context, &plan, &about, &cycle_id);
    let jobs = terminations::jobs(&context, &plan, &about, &cycle_id);
    let admitted = without_refused(&context, &plan, &about, &jobs, admitted);
    start(&context, admitted, &cycle_id, &mut room, received);
    drop(room);
    if !jobs.is_empty() {
        removals.send(jobs);
    }
    let ids = plan.launches.iter().map(|launch| &launch.action_id);
    let ids: Vec<ActionId> = ids.chain(plan.terminations.iter().map(|it| &it.action_id)).cloned().collect();
    Ok(answers(&context, ids, about.driver, stop))
}

/// The launches that the ledger admits. The others are told why not.
fn admit_launches(context: &Context, plan: &Plan, about: &PlanContext, cycle_id: &str) -> Vec<Admitted> {
    let pods = pods_of(context, plan);
    let mut admitted = Vec::new();
    for launch in plan.launches.iter().skip(AT_ONCE) {
        let message = format!("more than {AT_ONCE} launches in one plan");
        context.outcomes.post(outcome(
            context,
            launch,
            OutcomeStatus::Rejected,
            Some(OutcomeReason::StaleSnapshot),
            message,
        ));
    }
    for launch in plan.launches.iter().take(AT_ONCE) {
        match admit::ask(context, launch, about, &pods) {
            Asked::Admitted(it) => admitted.push(*it),
            Asked::Repeated(known) => {
                count(context, "repeated");
                repeated(context, launch, &known);
            }
            Asked::Rejected(reason, message) => {
                count(context, "rejected");
                tracing::info!(cycle_id, action = %launch.action_id, ?reason, message, "launch rejected");
                context.outcomes.post(outcome(context, launch, OutcomeStatus::Rejected, Some(reason), message));
            }
        }
    }
    admitted
}

/// Admitted launches but for those that only replace nodes whose removals are refused (rule 18).
fn without_refused(
    context: &Context,
    plan: &Plan,
    about: &PlanContext,
    jobs: &[terminations::Job],
    mut admitted: Vec<Admitted>,
) -> Vec<Admitted> {
    for (index, removal) in terminations::refused(plan, about, jobs) {
        let Some(launch) = plan.launches.get(index) else { continue };
        let Some(place) = admitted.iter().position(|it| *it.action() == launch.action_id) else { continue };
        let taken = admitted.remove(place);
        let rejection = Rejection::DependencyRejected(removal.clone());
        let (reason, message) = admit::words(&rejection);
        context.ledger.with(|ledger| ledger.withdraw(&taken.claim, rejection, about));
        count(context, "rejected");
        context.outcomes.post(outcome(context, launch, OutcomeStatus::Rejected, Some(reason), message));
    }
    admitted
}

/// Carries admitted launches out.
fn start(context: &Context, admitted: Vec<Admitted>, cycle_id: &str, room: &mut Room<'_>, received: Instant) {
    for it in &admitted {
        count(context, "accepted");
        admit::show(context, it);
        context.outcomes.post(Outcome {
            action_id: it.action().clone(),
            status: OutcomeStatus::Accepted,
            reason: None,
            message: String::new(),
            node_claim: Some(it.claim.clone()),
            ledger: context.ledger.position(),
        });
    }
    let (groups, refused) = admit::bundle(context, admitted, cycle_id);
    for (admitted, error) in refused {
        take_back(context, &admitted, &error.to_string());
    }
    for group in groups {
        room.launch(group, received);
    }
}

/// The node class cannot be used after all: nothing was written yet.
fn take_back(context: &Context, admitted: &Admitted, message: &str) {
    let now = context.now();
    context.ledger.with(|ledger| {
        ledger.failed(&admitted.claim, "NodeClassNotReady", now);
        ledger.gone(&admitted.claim);
    });
    context.ledger.not_launching(&admitted.claim);
    context.outcomes.post(Outcome {
        action_id: admitted.action().clone(),
        status: OutcomeStatus::Failed,
        reason: Some(OutcomeReason::PoolChanged),
        message: message.to_owned(),
        node_claim: None,
        ledger: context.ledger.position(),
    });
}

/// Pods that the plan's launches are for, as our watch shows them.
fn pods_of(context: &Context, plan: &Plan) -> Pods {
    let wanted: BTreeSet<&str> =
        plan.launches.iter().flat_map(|launch| &launch.pods).map(|pod| pod.uid.as_str()).collect();
    if wanted.is_empty() {
        return Pods::default();
    }
    let all = context.stores.pods.state().into_iter();
    let of_plan = |pod: Arc<Pod>| Some((pod.metadata.uid.clone().filter(|uid| wanted.contains(uid.as_str()))?, pod));
    Pods { by_uid: all.filter_map(of_plan).collect(), leaving: leaving(context, plan) }
}

/// Nodes on their way out, by this plan or already.
fn leaving(context: &Context, plan: &Plan) -> BTreeSet<String> {
    let mut leaving: BTreeSet<String> = plan.terminations.iter().map(|it| it.node.0.clone()).collect();
    for claim in context.stores.claims.state() {
        let marked = [annotation::REMOVAL, annotation::INTERRUPTED].iter().any(|key| read(&claim, key).is_some());
        let node = claim.status.as_ref().and_then(|status| status.node_name.clone());
        leaving.extend(node.filter(|_| marked || claim.metadata.deletion_timestamp.is_some()));
    }
    let nodes = context.stores.nodes.state().into_iter().filter(|node| node.metadata.deletion_timestamp.is_some());
    leaving.extend(nodes.filter_map(|node| node.metadata.name.clone()));
    leaving
}

/// Asked for again: what is known is told again. Before a new leader has heard of it, what the claim says.
fn repeated(context: &Context, launch: &Launch, known: &LedgerOutcome) {
    if !context.outcomes.of(&launch.action_id).is_empty() {
        return;
    }
    let claim = crate::launch::group::claim_name(&launch.node_pool, &launch.action_id);
    let launched = context.ledger.read(|ledger| ledger.claim(&claim).is_some_and(|view| view.launched));
    let status = match known {
        LedgerOutcome::Done => OutcomeStatus::Launched,
        _ if launched => OutcomeStatus::Launched,
        _ => OutcomeStatus::Accepted,
    };
    context.outcomes.post(Outcome { node_claim: Some(claim), ..outcome(context, launch, status, None, String::new()) });
}

fn outcome(
    context: &Context,
    launch: &Launch,
    status: OutcomeStatus,
    reason: Option<OutcomeReason>,
    message: String,
) -> Outcome {
    let ledger = context.ledger.position();
    Outcome { action_id: launch.action_id.clone(), status, reason, message, node_claim: None, ledger }
}

fn count(context: &Context, outcome: &str) {
    context.metrics.actions.with_label_values(&["launch", outcome]).inc();
}

/// Outcomes of these actions, until all of them are final or another watcher drives.
fn answers(
    context: &Context,
    actions: Vec<ActionId>,
    driver: Driver,
    stop: CancellationToken,
) -> Responses<wire::ExecuteResponse> {
    let inner = context.clone();
    streaming(context, stop, move |sender| async move {
        let context = inner;
        let until = Instant::now() + LONGEST;
        let (mut posted, mut ledger) = (context.outcomes.subscribe(), context.ledger.subscribe());
        let mut open: BTreeMap<ActionId, usize> = actions.into_iter().map(|action| (action, 0)).collect();
        loop {
            posted.mark_unchanged();
            ledger.mark_unchanged();
            if !driver::is_known(&context, &driver) {
                return Err(Status::failed_precondition("another watcher leads"));
            }
            let mut fresh = Vec::new();
            open.retain(|action, told| {
                let all = context.outcomes.of(action);
                // It began anew: what was told is over.
                *told = if *told > all.len() { 0 } else { *told };
                fresh.extend(all.iter().skip(*told).cloned());
                *told = all.len();
                !all.last().is_some_and(|last| last.status.is_final())
            });
            for outcome in fresh {
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
                    return Err(Status::deadline_exceeded("some actions go on; send the plan again to hear of them"));
                }
            }
        }
    })
}

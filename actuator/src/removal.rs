//! Voluntary removals of nodes (safety rules 9 to 12). A removal is admitted, written to the claim, tainted and checked
//! again; only then is the claim deleted. Otherwise the removal is undone. The command is stored on the claim, so a new
//! leader continues where the former one stopped.

pub mod blocked_nodes;
mod blocked_pools;
mod candidates;
mod deletion;
pub mod facts;
mod lookup;
pub mod postponed;
pub mod step;
mod undo;

use crate::clock::Timestamped;
use crate::controller_loop::{ControllerLoop, Requeue};
use crate::durable;
use crate::events::{Note, Recorder, object, reason};
use crate::fencing::Fence;
use crate::io::{ObjectPart, UpdateResult, WriteError, Writes};
use crate::ledger::handle::LedgerHandle;
use crate::ledger::{Admission, Outcome as LedgerOutcome, PlanContext, Rejection, Removal, RemovalFacts, Subject};
use crate::metrics::ActuatorMetrics;
use crate::nodes::taints;
use crate::state::outcomes::Outcomes;
use crate::state::pod_events::PodEvents;
use crate::state::zonal_shifts::ZonalShifts;
use crate::stores::{Stores, WatchedKind};
use crate::termination::{is_disrupted, taint_disrupted};
use deletion::{Target, post_removed, prepare, report_deleted};
use facts::{Obstacle, RemovalObjects, RemovalView};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use lookup::{
    claim_of, counts_pod_events, expected_pods, expires, has_new_pod_event, is_expired, long_drained, pods_to_move,
    pool_of, removal_objects,
};
use plimsoll_api::NodeClaim;
use plimsoll_api::condition::Status;
use plimsoll_api::condition::node_claim::DISRUPTION_REASON;
use plimsoll_model::identity::{ActionId, NodeName, PodUid};
use plimsoll_model::names::annotation;
use plimsoll_model::plan::Termination;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_runtime::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use step::{Observation, Replacements, Step};
use tokio_util::sync::CancellationToken;
use undo::undo;

/// Interval between checks; bounds how late a timeout is noticed.
const POLL_INTERVAL: Duration = Duration::from_secs(10);

/// Dependencies of the controller.
#[derive(Clone)]
pub struct Removals {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Zones that the cluster is shifted away from.
    pub zonal_shifts: ZonalShifts,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Outcomes of actions.
    pub outcomes: Outcomes,
    /// Pod events that plans may not know.
    pub pod_events: PodEvents,
    /// Events on objects.
    pub events: Recorder,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Fence of the term.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

/// A removal that the ledger admitted, not yet written to its claim.
#[derive(Debug, Clone)]
pub struct AdmittedRemoval {
    /// The candidate claim.
    pub claim: Arc<NodeClaim>,
    command: Removal,
}

/// The ledger's decision on a removal.
#[derive(Debug, Clone)]
pub enum RemovalDecision {
    /// The removal may start.
    Admitted(Box<AdmittedRemoval>),
    /// The removal is already in progress or done.
    Repeated(LedgerOutcome),
    /// The removal is rejected.
    Rejected(Rejection),
}

/// Requests admission of a removal, based on the watch cache. The removal waits for the launches in `replacements`.
pub fn admit(deps: &Removals, removal: &Termination, replacements: &[ActionId], plan: &PlanContext) -> RemovalDecision {
    let node = &removal.node;
    let Some((claim, found)) = claim_of(deps, node) else {
        // The claim of a removal that is done is gone.
        return match deps.ledger.read(|ledger| ledger.outcome(&removal.action_id).cloned()) {
            Some(done @ LedgerOutcome::Done) => RemovalDecision::Repeated(done),
            _ => RemovalDecision::Rejected(Rejection::UnknownNode(node.clone())),
        };
    };
    let pool = || pool_of(deps, &claim, &found);
    if removal.reason == DisruptionReason::Expired && !is_expired(&claim, pool().as_deref(), deps.clock.timestamp()) {
        tracing::warn!(node = node.as_str(), "removal rejected: the node has not expired by the actuator's clock");
        return RemovalDecision::Rejected(Rejection::Changed(Subject::Node(node.clone())));
    }
    let to: BTreeMap<NodeName, BTreeSet<PodUid>> = removal
        .moved_to
        .iter()
        .map(|placement| (placement.node.clone(), placement.pods.iter().map(|pod| pod.uid.clone()).collect()))
        .collect();
    let view = RemovalView::of(removal_objects(deps, node, to.keys()));
    let planned_pods: BTreeSet<PodUid> = removal.pods.iter().map(|pod| pod.uid.clone()).collect();
    if let Err(obstacle) = view.check(&planned_pods, removal.reason) {
        tracing::info!(node = node.as_str(), %obstacle, "removal rejected");
        return RemovalDecision::Rejected(rejection(node, obstacle));
    }
    if let Some(rejected) = misses_pod_event(deps, removal) {
        return rejected;
    }
    let name = claim.name_any();
    let mut expected = expected_pods(deps, &name);
    expected.extend(pods_to_move(deps, &claim));
    let drained = long_drained(deps, &claim);
    let facts = RemovalFacts { expected, drained, ..view.facts(&name, view.moves(&to)) };
    let (admission, command) = deps.ledger.with(|ledger| {
        let admission = ledger.admit_removal(removal, replacements, plan, &facts);
        (admission, ledger.removal(&name).cloned())
    });
    match (admission, command) {
        (Admission::Admitted { .. }, Some(command)) => {
            RemovalDecision::Admitted(Box::new(AdmittedRemoval { claim, command }))
        }
        // An admitted removal is in the ledger.
        (Admission::Admitted { .. }, None) => RemovalDecision::Rejected(Rejection::UnknownNode(node.clone())),
        (Admission::Repeated(outcome), _) => RemovalDecision::Repeated(outcome),
        (Admission::Rejected(rejection), _) => RemovalDecision::Rejected(rejection),
    }
}

/// The rejection of a consolidation whose plan does not know the last pod event of the node, if it is one. To be asked
/// as soon as the plan arrives: once the claim has shown the event for a second, nothing tells that the plan is older.
#[must_use]
pub fn misses_pod_event(deps: &Removals, removal: &Termination) -> Option<RemovalDecision> {
    let node = &removal.node;
    let (claim, found) = claim_of(deps, node)?;
    let pool = pool_of(deps, &claim, &found)?;
    if !counts_pod_events(&pool, removal.reason) || !has_new_pod_event(deps, &claim) {
        return None;
    }
    // The plan is repeated. The pods leave the node because of the removal.
    let is_admitted = |outcome: &LedgerOutcome| matches!(outcome, LedgerOutcome::Admitted | LedgerOutcome::Done);
    if deps.ledger.read(|ledger| ledger.outcome(&removal.action_id).is_some_and(is_admitted)) {
        return None;
    }
    tracing::info!(node = node.as_str(), "removal rejected: the plan does not know the last pod event of the node");
    Some(RemovalDecision::Rejected(Rejection::Changed(Subject::Node(node.clone()))))
}

/// Writes the command of an admitted removal to its claim. [`run`] does the rest.
///
/// # Errors
/// The command could not be written. The removal is not in progress.
pub async fn begin(deps: &Removals, admitted: &AdmittedRemoval) -> Result<(), WriteError> {
    let AdmittedRemoval { claim, command } = admitted;
    if let Err(error) = write_command(deps, claim, command).await {
        let name = claim.name_any();
        if error.may_have_happened() {
            // The removal stays in the ledger and counts there: [`reconcile`] writes the command again or undoes it.
            tracing::warn!(node_claim = name, %error, "removal command may not be written, writing it again");
            return Ok(());
        }
        deps.ledger.with(|ledger| ledger.removal_undone(&name));
        return Err(error);
    }
    Ok(())
}

fn rejection(node: &NodeName, obstacle: Obstacle) -> Rejection {
    match obstacle {
        Obstacle::NotInService(node) => Rejection::UnknownNode(node),
        Obstacle::ProtectedPod(pod, _) | Obstacle::SeveralBudgets(pod, _) | Obstacle::NewPod(pod, _) => {
            Rejection::Changed(Subject::Pod(pod))
        }
        Obstacle::ProtectedNode | Obstacle::Unreadable(_) => Rejection::Changed(Subject::Node(node.clone())),
    }
}

/// Executes the commands on claims until `stop`.
pub async fn run(deps: Removals, stop: CancellationToken) {
    let kinds = [WatchedKind::NodeClaim, WatchedKind::Node, WatchedKind::Pod, WatchedKind::PodDisruptionBudget];
    let work = |claim: Arc<NodeClaim>| reconcile(deps.clone(), claim);
    let controller = ControllerLoop::new("removal", &deps.metrics, &deps.stores, &deps.fence);
    controller.run(&stop, &kinds, || candidates::candidates(&deps), work).await;
}

async fn write_command(deps: &Removals, claim: &NodeClaim, command: &Removal) -> Result<(), WriteError> {
    let text = durable::write(command)?;
    let change = |claim: &mut NodeClaim| {
        claim.annotations_mut().insert(annotation::REMOVAL.to_owned(), text.clone());
    };
    deps.writes.update(claim, ObjectPart::Main, change).await.map(|_| ())
}

async fn reconcile(deps: Removals, claim: Arc<NodeClaim>) -> Result<Requeue, WriteError> {
    let name = claim.name_any();
    let admitted = deps.ledger.read(|ledger| ledger.removal(&name).cloned());
    if claim.metadata.deletion_timestamp.is_some() {
        // The deletion got no response, or is somebody else's.
        admitted.iter().for_each(|command| post_removed(&deps, name.clone(), command));
        return Ok(None);
    }
    // The watch cache may not show the deletion yet, and the removal of a deleted claim is not undone.
    if deps.ledger.read(|ledger| ledger.claim(&name).is_some_and(|claim| claim.deleting)) {
        return Ok(Some(POLL_INTERVAL));
    }
    let Some(text) = claim.annotations().get(annotation::REMOVAL).cloned() else {
        let Some(command) = admitted else {
            return undo(&deps, &claim, None, "the node has no removal command").await;
        };
        // The watch cache may lag, or the write got no response. Write the command again.
        if deps.clock.timestamp().since(command.admitted) > step::TIMEOUT {
            return undo(&deps, &claim, Some(&command), "the removal command could not be written").await;
        }
        write_command(&deps, &claim, &command).await?;
        return Ok(Some(POLL_INTERVAL));
    };
    let command: Removal = match durable::read(&text) {
        Ok(command) => command,
        Err(error) => {
            let cause = format!("annotation {} cannot be read: {error}", annotation::REMOVAL);
            return undo(&deps, &claim, None, &cause).await;
        }
    };
    let node = claim_of(&deps, &command.node).filter(|(other, _)| other.name_any() == claim.name_any());
    let node = node.map(|(_, node)| node);
    let tainted = node.as_ref().is_some_and(|node| is_disrupted(taints(node)));
    let objects = removal_objects(&deps, &command.node, command.rooms.keys());
    let observed = Observation {
        command: &command,
        node_is_there: node.is_some(),
        tainted,
        obstacle: obstacle(&deps, &claim, &command, objects),
        replacements: replacements(&deps, &command),
        expires: node.as_ref().and_then(|node| expires(&claim, pool_of(&deps, &claim, node).as_deref())),
        now: deps.clock.timestamp(),
    };
    let next = step::next(&observed);
    let Some(node) = node else { return undo(&deps, &claim, Some(&command), "node not found").await };
    match next {
        Step::Undo(cause) => undo(&deps, &claim, Some(&command), &cause).await,
        Step::Taint => mark(&deps, &claim, &node, &command).await,
        Step::Wait(why) => {
            let note = Note::normal(object(&*claim), reason::DISRUPTION_WAITING, why);
            deps.events.publish(note.with_cause("replacements"));
            Ok(Some(POLL_INTERVAL))
        }
        Step::Delete => finish(&deps, &claim, &node, &command).await,
    }
}

fn obstacle(deps: &Removals, claim: &NodeClaim, command: &Removal, objects: RemovalObjects) -> Option<String> {
    let view = RemovalView::of(objects);
    if let Err(obstacle) = view.check(&command.pods, command.reason) {
        return Some(obstacle.to_string());
    }
    let drained = long_drained(deps, claim);
    let facts = RemovalFacts { drained, ..view.facts(&claim.name_any(), command.rooms.clone()) };
    deps.ledger.read(|ledger| ledger.check_removal_again(&facts)).err().map(|rejection| rejection.to_string())
}

fn replacements(deps: &Removals, command: &Removal) -> Replacements {
    let claims = deps.stores.claims.state();
    let mut awaited = Vec::new();
    for action in &command.replacements {
        let is_for_action =
            |claim: &&Arc<NodeClaim>| claim.annotations().get(annotation::ACTION_ID).is_some_and(|id| *id == action.0);
        match claims.iter().find(is_for_action) {
            // Until this term admits actions, a former leader's NodeClaim may still appear.
            None if deps.ledger.read(|ledger| ledger.is_under_way(action) || !ledger.is_admitting()) => {
                awaited.push(action.0.clone());
            }
            None => return Replacements::Lost(action.0.clone()),
            Some(claim) if claim.metadata.deletion_timestamp.is_some() => return Replacements::Lost(claim.name_any()),
            Some(claim) if !claim.is_initialized() => {
                let message = format!("launched for the removal of node {}: {}", command.node, command.reason.as_str());
                let note = Note::normal(object(&**claim), reason::DISRUPTION_LAUNCHING, message);
                deps.events.publish(note.with_long_window());
                awaited.push(claim.name_any());
            }
            Some(_) => {}
        }
    }
    if awaited.is_empty() { Replacements::Ready } else { Replacements::Awaited(awaited) }
}

/// Taints the node and writes the reason to the claim.
async fn mark(deps: &Removals, claim: &NodeClaim, node: &Node, command: &Removal) -> Result<Requeue, WriteError> {
    deps.writes.update(node, ObjectPart::Main, taint_disrupted).await?;
    write_reason(deps, claim, command).await?;
    Ok(Some(POLL_INTERVAL))
}

/// Writes the reason of the removal to the claim, as a condition.
async fn write_reason(
    deps: &Removals,
    claim: &NodeClaim,
    command: &Removal,
) -> Result<UpdateResult<NodeClaim>, WriteError> {
    let (why, now) = (command.reason.as_str(), deps.clock.now());
    let change = |claim: &mut NodeClaim| claim.set_condition(now, DISRUPTION_REASON, Status::True, why, why);
    deps.writes.update(claim, ObjectPart::Status, change).await
}

/// Deletes the claim if the live pods of its node permit it. No other request comes between the list of the pods and
/// the deletion.
async fn finish(deps: &Removals, claim: &NodeClaim, node: &Node, command: &Removal) -> Result<Requeue, WriteError> {
    let is_deleted = match prepare(deps, claim, command).await? {
        Target::Version(version) => {
            if let Some(cause) = live_obstacle(deps, claim, command).await? {
                return undo(deps, claim, Some(command), &cause).await;
            }
            deps.writes.delete_unchanged(&*version).await?
        }
        Target::Deleted => true,
        Target::Changed => false,
    };
    if is_deleted {
        report_deleted(deps, claim, Some(node), command);
    }
    Ok(Some(POLL_INTERVAL))
}

/// Lists the node's pods live, since the pod watch may lag behind the node watch. So no node is removed as empty on the
/// word of the watch cache alone, however many nodes become empty at once (rule 15). What the watch cache shows counts
/// too, in a view of its own: a pod may come, or be protected, after the list. A forced removal does not depend on the
/// pods, and an unreadable pod, of which the list fails, must not keep the node.
async fn live_obstacle(deps: &Removals, claim: &NodeClaim, command: &Removal) -> Result<Option<String>, WriteError> {
    if command.reason.is_forced() {
        return Ok(None);
    }
    let live = deps.writes.list_pods_on(command.node.as_str()).await?;
    let cached = removal_objects(deps, &command.node, command.rooms.keys());
    let shown = obstacle(deps, claim, command, cached.clone());
    Ok(shown.or_else(|| obstacle(deps, claim, command, cached.with_live_pods(live))))
}

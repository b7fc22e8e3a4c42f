//! The lifecycle of a claim from launch until its node is ready for use: Registered, Initialized, and the timeouts.

mod absent_pools;
mod missing_node;
mod node;
mod partition;
mod step;
#[cfg(test)]
mod tests;

use crate::events::{Note, Recorder, object, reason};
use crate::fencing::Fence;
use crate::guarded;
use crate::io::{CloudReads, ObjectPart, WriteError, Writes, add_finalizer};
use crate::ledger::failures::{INITIALIZATION_TIMEOUT, NOT_INITIALIZED};
use crate::ledger::handle::LedgerHandle;
use crate::metrics::ActuatorMetrics;
use crate::rollout::Halt;
use crate::state::registrations::Registrations;
use crate::stores::{Stores, WatchedKind};
use plimsoll_runtime::clock::Clock;
pub use step::{LAUNCH_TIMEOUT, Observation, REGISTRATION_TIMEOUT, Step, TimedOut, next};

use crate::clock::Timestamped;
use crate::controller_loop::{Candidate, ControllerLoop, Requeue, version_of};
use absent_pools::AbsentPools;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use missing_node::{MissingNodes, NodeState};
use plimsoll_api::NodeClaim;
use plimsoll_api::condition::Status;
use plimsoll_api::condition::node_claim::{DISRUPTION_REASON, INITIALIZED, LAUNCHED, REGISTERED};
use plimsoll_model::identity::NodeName;
use plimsoll_model::names::{TERMINATION_FINALIZER, label};
use plimsoll_model::snapshot::DisruptionReason;
use std::collections::BTreeSet;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Until the next look at a claim whose deletion was refused because the claim has changed. The watch shows the change
/// earlier, if it does not lag. The claim has waited for minutes, so ten seconds more do not matter.
const RETRY: Duration = Duration::from_secs(10);

/// Dependencies of the controller.
#[derive(Clone)]
pub struct Lifecycle {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// Fence of the term.
    pub fence: Fence,
    /// Recent registration results by pool.
    pub registrations: Registrations,
    /// Events on objects.
    pub events: Recorder,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Time.
    pub clock: Clock,
}

/// A claim and the Nodes with its providerID.
#[derive(Clone)]
struct ClaimWithNodes {
    claim: Arc<NodeClaim>,
    nodes: Vec<Arc<Node>>,
    /// Whether the node belongs to a NodePool that plans know, or knew until recently.
    has_pool: bool,
}

/// Registers and initializes claims until `stop`.
pub async fn run(deps: Lifecycle, stop: CancellationToken) {
    let kinds = [WatchedKind::NodeClaim, WatchedKind::Node, WatchedKind::NodePool];
    let missing: Arc<MissingNodes> = Arc::default();
    let work = |subject: ClaimWithNodes| reconcile(deps.clone(), Arc::clone(&missing), subject);
    let mut absent_pools = AbsentPools::default();
    let list = || candidates(&deps, &mut absent_pools);
    let controller = ControllerLoop::new("lifecycle", &deps.metrics, &deps.stores, &deps.fence);
    controller.run(&stop, &kinds, list, work).await;
}

fn candidates(deps: &Lifecycle, absent_pools: &mut AbsentPools) -> Vec<Candidate<ClaimWithNodes>> {
    // The conditions of an unreadable claim may be incomplete, so it might seem to have timed out.
    let is_live =
        |claim: &Arc<NodeClaim>| claim.metadata.deletion_timestamp.is_none() && guarded::unreadable(claim).is_none();
    let with_nodes = |claim: Arc<NodeClaim>| {
        let nodes = deps.stores.nodes_of(&claim);
        (claim, nodes)
    };
    let live: Vec<_> = deps.stores.claims.state().into_iter().filter(is_live).map(with_nodes).collect();
    let named = live.iter().filter_map(|(claim, nodes)| node_pool(claim, nodes));
    absent_pools.observe(named, &planned_pools(&deps.stores));
    let candidate = |(claim, nodes): (Arc<NodeClaim>, Vec<Arc<Node>>)| {
        let has_pool = node_pool(&claim, &nodes).is_some_and(|pool| !absent_pools.is_gone(pool));
        // Heartbeats of an initialized claim's Node do not trigger a reconcile.
        let settled = is_settled(&claim).then(|| NodeState::of(&claim, &nodes));
        let unsettled = nodes.iter().filter(|_| settled.is_none());
        let unsettled: Vec<_> = unsettled.map(|node| &node.metadata.resource_version).collect();
        let version = version_of(&(&claim.metadata.resource_version, has_pool, settled, unsettled));
        let input = ClaimWithNodes { claim, nodes, has_pool };
        Candidate { key: input.claim.name_any(), version: Some(version), input }
    };
    live.into_iter().map(candidate).collect()
}

/// NodePools that plans know. Unreadable ones are not in the watch cache.
fn planned_pools(stores: &Stores) -> BTreeSet<String> {
    stores.pools.state().into_iter().map(|pool| pool.name_any()).collect()
}

/// The NodePool of a claim and its Nodes. As in plans, which remove only nodes with the label, the label of a
/// registered Node decides, and otherwise that of the claim.
fn node_pool<'a>(claim: &'a NodeClaim, nodes: &'a [Arc<Node>]) -> Option<&'a str> {
    let is_registered = |node: &&Arc<Node>| node.labels().get(label::REGISTERED).is_some_and(|value| value == "true");
    let labels = nodes.iter().find(is_registered).map_or(claim.labels(), |node| node.labels());
    labels.get(label::NODE_POOL).map(String::as_str)
}

fn is_settled(claim: &NodeClaim) -> bool {
    [LAUNCHED, REGISTERED, INITIALIZED].iter().all(|name| claim.true_condition(name).is_some())
}

async fn reconcile(
    deps: Lifecycle,
    missing: Arc<MissingNodes>,
    subject: ClaimWithNodes,
) -> Result<Requeue, WriteError> {
    let claim = &*subject.claim;
    let name = claim.name_any();
    let hold = |claim: &mut NodeClaim| add_finalizer(claim, TERMINATION_FINALIZER);
    deps.writes.update(claim, ObjectPart::Main, hold).await?;
    let ControlFlow::Continue(look_again) = missing.follow(&deps, claim, &subject.nodes).await? else {
        return Ok(None);
    };
    let nodes: Vec<&Node> = subject.nodes.iter().map(|node| &**node).collect();
    let (now, has_pool) = (deps.clock.now(), subject.has_pool);
    let step = next(&Observation { claim, nodes: &nodes, has_pool, now });
    if let Some(timed_out) = step.timed_out {
        return give_up(&deps, claim, timed_out).await;
    }
    if step.expired {
        return expire(&deps, claim).await;
    }
    if let (Some(_), Some(node_seen)) = (&step.node, subject.nodes.first()) {
        // Recomputed for each newer version of the Node, since the kubelet writes it too.
        let apply = |node: &mut Node| {
            if let Some(desired) = next(&Observation { claim, nodes: &[&node.clone()], has_pool, now }).node {
                *node = desired;
            }
        };
        if !deps.writes.update(&**node_seen, ObjectPart::Main, apply).await?.exists() {
            return Ok(None);
        }
    }
    if step.taint_was_missing {
        let message = "Node registered without taint karpenter.sh/unregistered: pods may have been bound too early";
        deps.events.publish(Note::warning(object(claim), reason::UNREGISTERED_TAINT_MISSING, message));
    }
    if step.status.is_some() {
        let apply = |claim: &mut NodeClaim| {
            if let Some(status) = next(&Observation { claim: &claim.clone(), nodes: &nodes, has_pool, now }).status {
                claim.status = Some(status);
            }
        };
        deps.writes.update(claim, ObjectPart::Status, apply).await?;
    }
    if let Some(message) = step.undeclared_taint {
        deps.events.publish(Note::warning(object(claim), reason::UNDECLARED_TAINT, message).with_long_window());
    }
    publish_progress(&deps, claim, &name, &nodes, &step.reached);
    if let Some(missing) = &step.not_initialized {
        stop_waiting(&deps, claim, missing);
    }
    let again = step.look_again.and_then(|at| Duration::try_from(at.duration_since(now)).ok());
    let ask_again = if step.needs_partition { partition::fill(&deps, claim).await? } else { None };
    Ok([again, ask_again, look_again].into_iter().flatten().min())
}

fn publish_progress(deps: &Lifecycle, claim: &NodeClaim, name: &str, nodes: &[&Node], reached: &[&'static str]) {
    let node = nodes.first().and_then(|node| node.metadata.name.clone()).unwrap_or_default();
    for condition in reached {
        let (word, message) = match *condition {
            REGISTERED => {
                deps.ledger.with(|ledger| ledger.node_of(name, NodeName(node.clone())));
                deps.registrations.note(claim.node_pool(), true);
                deps.metrics.nodes.created(claim);
                if claim.node_name().is_none() {
                    deps.metrics.claims.registered(claim, deps.clock.now());
                }
                (reason::REGISTERED, format!("registered as Node {node}"))
            }
            _ => {
                deps.ledger.with(|ledger| ledger.initialized(name, deps.clock.timestamp()));
                (reason::INITIALIZED, format!("Node {node} is initialized"))
            }
        };
        tracing::info!(node_claim = name, node, condition, "NodeClaim condition reached");
        deps.events.publish(Note::normal(object(claim), word, message));
    }
}

/// Pods get another node. The claim is not deleted: pods may run on its Node, and it may still be initialized.
fn stop_waiting(deps: &Lifecycle, claim: &NodeClaim, missing: &str) {
    let (name, cause) = (claim.name_any(), NOT_INITIALIZED);
    tracing::warn!(node_claim = name, cause, missing, "Node is not initialized in time");
    let message = format!("Node is not initialized after {} minutes: {missing}", INITIALIZATION_TIMEOUT.as_mins());
    deps.events.publish(Note::warning(object(claim), reason::TIMED_OUT, message));
    deps.metrics.claims_failed.with_label_values(&[claim.node_pool(), cause]).inc();
    let now = deps.clock.timestamp();
    deps.ledger.with(|ledger| ledger.not_initialized(&name, now));
}

/// Marks an expired claim whose node has no NodePool that plans know, and deletes it. Because of the mark, its drain
/// differs from that of a claim that a user deletes. The drain respects PodDisruptionBudgets.
async fn expire(deps: &Lifecycle, claim: &NodeClaim) -> Result<Requeue, WriteError> {
    let (why, now) = (DisruptionReason::Expired.as_str(), deps.clock.now());
    let mark = |claim: &mut NodeClaim| claim.set_condition(now, DISRUPTION_REASON, Status::True, why, why);
    if !deps.writes.update(claim, ObjectPart::Status, mark).await?.exists() {
        return Ok(None);
    }
    tracing::info!(node_claim = claim.name_any(), "deleting expired NodeClaim, its node has no NodePool");
    deps.writes.delete(claim, None).await?;
    deps.metrics.claims.disrupted(claim, "expired", None, 0);
    Ok(None)
}

async fn give_up(deps: &Lifecycle, claim: &NodeClaim, timed_out: TimedOut) -> Result<Requeue, WriteError> {
    let name = claim.name_any();
    let message = match timed_out {
        TimedOut::Launch => "no instance launched in time, deleting the NodeClaim",
        TimedOut::Registration => "instance did not register as a Node in time, deleting the NodeClaim",
    };
    tracing::warn!(node_claim = name, cause = timed_out.as_str(), "deleting NodeClaim after timeout");
    if timed_out == TimedOut::Registration {
        let halt = Halt { stores: &deps.stores, writes: &deps.writes, events: &deps.events };
        halt.not_registered(deps.clock, claim, "its instance did not register as a Node in time").await?;
    }
    deps.events.publish(Note::warning(object(claim), reason::TIMED_OUT, message));
    // The registration changes the claim. A deletion without a response must not take effect after that.
    if !deps.writes.delete_unchanged(claim).await? {
        return Ok(Some(RETRY));
    }
    let pool = claim.node_pool();
    deps.registrations.note(pool, false);
    deps.metrics.claims.disrupted(claim, timed_out.as_str(), None, 0);
    deps.metrics.claims_failed.with_label_values(&[pool, timed_out.as_str()]).inc();
    let now = deps.clock.timestamp();
    deps.ledger.with(|ledger| ledger.failed(&name, timed_out.as_str(), now));
    Ok(None)
}

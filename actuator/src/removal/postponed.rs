//! Keeps the taint `plimsoll.dev/removal-postponed:PreferNoSchedule` on nodes that consolidation will remove next.
//!
//! kube-scheduler binds the pods of removed nodes to the emptiest nodes, and these are the ones to be removed next.
//! With the taint it prefers other nodes, so that fewer pods move twice. Cluster Autoscaler taints its candidates in
//! the same way. The taint is a preference and blocks nothing, so nothing depends on when it is written.

use crate::clock::Timestamped;
use crate::controller_loop::{Candidate, ControllerLoop, Requeue};
use crate::fencing::Fence;
use crate::io::{ObjectPart, WriteError, Writes};
use crate::metrics::ActuatorMetrics;
use crate::nodes::{remove_taint, set_taint, taints};
use crate::state::postponed_removals::{Postponed, PostponedRemovals};
use crate::stores::{Stores, WatchedKind};
use crate::termination::is_disrupted;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_model::identity::NodeName;
use plimsoll_model::names::{annotation, taint};
use plimsoll_model::time::Millis;
use plimsoll_runtime::clock::Clock;
use std::collections::BTreeSet;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// How long postponed removals count after their plan while no removal is under way. With a budget of one node, there
/// are pauses between the removals, in which the taints would be removed and written again.
const PAUSE: Millis = Millis::from_seconds(120);
/// How long postponed removals count after their plan at most. Later, the removals that they waited for should have
/// ended, and a new plan should have followed.
const HOLD: Millis = Millis::from_seconds(600);
/// Nodes written in one pass, so that other writes do not wait behind hundreds of them.
const MAX_PER_PASS: usize = 50;
/// Effect of the taint.
const EFFECT: &str = "PreferNoSchedule";

/// Dependencies of the controller.
#[derive(Clone)]
pub struct PostponedTaints {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Postponed removals of the latest plan.
    pub postponed: PostponedRemovals,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Fence of the term.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

/// Adds and removes taints until `stop`.
pub async fn run(deps: PostponedTaints, stop: CancellationToken) {
    let kinds = [WatchedKind::NodeClaim, WatchedKind::Node];
    let work = |(node, wanted): (Arc<Node>, bool)| write(deps.clone(), node, wanted);
    let controller = ControllerLoop::new("postponed_removal", &deps.metrics, &deps.stores, &deps.fence);
    controller.run(&stop, &kinds, || candidates(&deps), work).await;
}

/// Nodes with the taint that should not have it, and nodes without it that should.
fn candidates(deps: &PostponedTaints) -> Vec<Candidate<(Arc<Node>, bool)>> {
    let wanted = wanted(deps);
    let nodes = deps.stores.nodes.state();
    let differs = |node: &Arc<Node>| {
        let is_wanted = !wanted.is_empty() && wanted.contains(&NodeName(node.name_any()));
        // A node that is being removed keeps what it has.
        let is_leaving = node.metadata.deletion_timestamp.is_some() || is_disrupted(taints(node));
        (!is_leaving && is_postponed(node) != is_wanted).then(|| (Arc::clone(node), is_wanted))
    };
    let candidate = |input: (Arc<Node>, bool)| Candidate { key: input.0.name_any(), version: None, input };
    nodes.iter().filter_map(differs).take(MAX_PER_PASS).map(candidate).collect()
}

/// Nodes that should have the taint: those of the latest plan, as long as the removals that they wait for are under
/// way, and a short time after the plan.
fn wanted(deps: &PostponedTaints) -> Arc<BTreeSet<NodeName>> {
    let is_under_way = || {
        deps.stores.claims.state().iter().any(|claim| {
            claim.metadata.deletion_timestamp.is_some() || claim.annotations().contains_key(annotation::REMOVAL)
        })
    };
    let now = deps.clock.timestamp();
    let counts = |at| now.since(at) <= PAUSE || (now.since(at) <= HOLD && is_under_way());
    match deps.postponed.latest() {
        Some(Postponed { at, nodes }) if !nodes.is_empty() && counts(at) => nodes,
        _ => Arc::default(),
    }
}

fn is_postponed(node: &Node) -> bool {
    taints(node).iter().any(|taint| taint.key == taint::REMOVAL_POSTPONED)
}

async fn write(deps: PostponedTaints, node: Arc<Node>, wanted: bool) -> Result<Requeue, WriteError> {
    let change = |node: &mut Node| match wanted {
        true => set_taint(node, taint::REMOVAL_POSTPONED, EFFECT),
        false => remove_taint(node, taint::REMOVAL_POSTPONED),
    };
    deps.writes.update(&*node, ObjectPart::Main, change).await?;
    tracing::debug!(node = node.name_any(), wanted, "taint of a postponed removal");
    Ok(None)
}

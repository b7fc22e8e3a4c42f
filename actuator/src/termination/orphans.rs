//! Deleted Nodes without a claim, for example because someone removed the claim's finalizer. They are drained, unless
//! their instance is gone, and their finalizer is removed. Garbage collection terminates their instances.

use super::instances::InstancePhase;
use super::{POLL_INTERVAL, Shared, drain, live_pods, taint_and_exclude};
use crate::clock::Timestamped;
use crate::controller_loop::{Candidate, ControllerLoop, Requeue};
use crate::io::{ObjectPart, WriteError, has_finalizer};
use crate::metrics::view::label_of;
use crate::nodes;
use crate::stores::WatchedKind;
use crate::termination::Termination;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::Pod;
use plimsoll_model::names::{TERMINATION_FINALIZER, label};
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// A Node with its pods.
#[derive(Clone)]
struct Orphan {
    node: Arc<Node>,
    pods: Vec<Arc<Pod>>,
}

pub(super) async fn run(deps: &Termination, shared: &Arc<Shared>, stop: &CancellationToken) {
    let kinds = [WatchedKind::NodeClaim, WatchedKind::Node, WatchedKind::Pod];
    let work = |orphan: Orphan| reconcile(deps.clone(), Arc::clone(shared), orphan);
    let controller = ControllerLoop::new("orphans", &deps.metrics, &deps.stores, &deps.fence);
    controller.run(stop, &kinds, || candidates(deps), work).await;
}

fn candidates(deps: &Termination) -> Vec<Candidate<Orphan>> {
    let is_going =
        |node: &Arc<Node>| node.metadata.deletion_timestamp.is_some() && has_finalizer(&**node, TERMINATION_FINALIZER);
    let going: Vec<Arc<Node>> = deps.stores.nodes.state().into_iter().filter(is_going).collect();
    let orphans = going.into_iter().filter(|node| deps.stores.claims_of(node).is_empty());
    orphans
        .map(|node| {
            let pods = deps.stores.pods.on_node(&node.name_any());
            Candidate { key: node.name_any(), version: None, input: Orphan { node, pods } }
        })
        .collect()
}

async fn reconcile(deps: Termination, shared: Arc<Shared>, orphan: Orphan) -> Result<Requeue, WriteError> {
    let node = &*orphan.node;
    for owner in node.owner_references().iter().filter(|owner| owner.kind == "NodeClaim") {
        // The watch cache may not show the claim or its providerID yet.
        let live = deps.writes.read_claim(&owner.name).await?;
        if live.is_some_and(|claim| claim.metadata.uid.as_ref() == Some(&owner.uid)) {
            return Ok(Some(POLL_INTERVAL));
        }
    }
    deps.writes.update(node, ObjectPart::Main, taint_and_exclude).await?;
    if !is_dead(&deps, &shared, node) && !is_drained(&deps, &shared, &orphan).await? {
        return Ok(Some(POLL_INTERVAL));
    }
    tracing::info!(node = node.name_any(), "removing finalizer from Node without NodeClaim");
    deps.writes.release(node).await?;
    Ok(None)
}

/// Evicts the pods that are due. Returns whether no pod is waited for.
async fn is_drained(deps: &Termination, shared: &Shared, orphan: &Orphan) -> Result<bool, WriteError> {
    let (node, now) = (&orphan.node, deps.clock.now());
    let mut plan = drain::plan(&orphan.pods, None, false, now);
    if plan.waiting == 0 {
        plan = drain::plan(&live_pods::on(deps, &[node], None, now).await?, None, false, now);
    }
    shared.evictions.carry_out(deps, None, Some(node), &plan).await?;
    Ok(plan.waiting == 0)
}

/// Whether there is nothing to drain: the kubelet is silent and the instance is gone.
fn is_dead(deps: &Termination, shared: &Shared, node: &Node) -> bool {
    let (Some(id), false) = (nodes::instance_id(node), nodes::is_ready(node)) else { return false };
    let now = deps.clock.timestamp();
    // During a zonal shift, EC2 may not see all of the zone.
    if deps.zonal_shifts.zones(&deps.stores, now).contains(label_of(node.metadata.labels.as_ref(), label::ZONE)) {
        return false;
    }
    shared.instances.observe(id, plimsoll_snapshot::created(&node.metadata), now) == InstancePhase::Gone
}

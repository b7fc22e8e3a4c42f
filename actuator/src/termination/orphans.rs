//! Deleted Nodes without a claim, for example because someone removed the claim's finalizer. They are drained, and
//! their finalizer is removed. Garbage collection terminates their instances.

use super::{POLL_INTERVAL, Shared, drain, taint_and_exclude};
use crate::controller_loop::{self, Candidate, Requeue};
use crate::io::{ObjectPart, WriteError};
use crate::stores::WatchedKind;
use crate::termination::Termination;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::Pod;
use plimsoll_model::names::TERMINATION_FINALIZER;
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
    controller_loop::run(
        &deps.metrics.reconciles.of("orphans"),
        &deps.stores,
        &deps.fence,
        stop,
        &kinds,
        || candidates(deps),
        work,
    )
    .await;
}

fn candidates(deps: &Termination) -> Vec<Candidate<Orphan>> {
    let is_going = |node: &Arc<Node>| {
        node.metadata.deletion_timestamp.is_some()
            && node.finalizers().iter().any(|finalizer| finalizer == TERMINATION_FINALIZER)
    };
    let going: Vec<Arc<Node>> = deps.stores.nodes.state().into_iter().filter(is_going).collect();
    let owned = |node: &Arc<Node>| {
        let id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        id.is_some_and(|id| !deps.stores.claims.with_provider_id(id).is_empty())
    };
    let orphans = going.into_iter().filter(|node| !owned(node));
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
    let plan = drain::plan(&orphan.pods, None, deps.clock.now());
    shared.evictions.carry_out(&deps, None, Some(&orphan.node), &plan).await?;
    if plan.waiting > 0 {
        return Ok(Some(POLL_INTERVAL));
    }
    tracing::info!(node = node.name_any(), "removing finalizer from Node without NodeClaim");
    let release = |node: &mut Node| node.finalizers_mut().retain(|finalizer| finalizer != TERMINATION_FINALIZER);
    deps.writes.update(node, ObjectPart::Main, release).await?;
    Ok(None)
}

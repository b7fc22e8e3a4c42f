//! Registered claims whose Node is gone, or was created anew. Somebody removed the Node's finalizer and deleted the
//! Node, while the instance runs on. A kubelet creates its Node only when it starts.

use super::{Lifecycle, REGISTRATION_TIMEOUT, RETRY, node};
use crate::controller_loop::Requeue;
use crate::events::{Note, object, reason};
use crate::io::{ObjectPart, WriteError};
use crate::nodes;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use plimsoll_api::condition::Status;
use plimsoll_api::condition::node_claim::{INITIALIZED, REGISTERED};
use std::collections::BTreeMap;
use std::ops::ControlFlow;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// How long after a live read that did not find the Node another one must not find it either, before the claim is
/// deleted. A machine that restarts has as long for its Node as a new one.
const MISSING_FOR: Duration = REGISTRATION_TIMEOUT.unsigned_abs();

/// What the watch cache shows of the Node of a registered claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) enum NodeState {
    /// The Node that registered. Also if the claim has not registered.
    Known,
    /// No Node.
    Missing,
    /// A Node that a kubelet created since the claim registered.
    Recreated,
}

impl NodeState {
    pub(super) fn of(claim: &NodeClaim, nodes: &[Arc<Node>]) -> Self {
        match nodes {
            _ if claim.true_condition(REGISTERED).is_none() => Self::Known,
            [] => Self::Missing,
            [only] if node::is_new(only, claim) => Self::Recreated,
            _ => Self::Known,
        }
    }
}

/// Since when live reads do not find the Nodes of claims, by name and UID of the claim. A new leader counts anew.
#[derive(Debug, Default)]
pub(super) struct MissingNodes(Mutex<BTreeMap<(String, String), Instant>>);

fn key(claim: &NodeClaim) -> (String, String) {
    (claim.name_any(), claim.uid().unwrap_or_default())
}

impl MissingNodes {
    /// Deletes the claim if its Node is gone, and lets it register again if its Node was created anew. Returns when to
    /// look again. Breaks if the claim was written.
    pub(super) async fn follow(
        &self,
        deps: &Lifecycle,
        claim: &NodeClaim,
        nodes: &[Arc<Node>],
    ) -> Result<ControlFlow<(), Requeue>, WriteError> {
        let state = NodeState::of(claim, nodes);
        if state == NodeState::Missing && !has_live_node(deps, claim).await? {
            return self.missed(deps, claim).await;
        }
        self.0.lock().remove(&key(claim));
        match (state, nodes.first()) {
            (NodeState::Recreated, Some(node)) => register_again(deps, claim, node).await,
            // The watch cache lags.
            (NodeState::Missing, _) => Ok(ControlFlow::Continue(Some(MISSING_FOR))),
            _ => Ok(ControlFlow::Continue(None)),
        }
    }

    /// Deletes the claim if the first live read that did not find its Node is long ago.
    async fn missed(&self, deps: &Lifecycle, claim: &NodeClaim) -> Result<ControlFlow<(), Requeue>, WriteError> {
        let now = Instant::now();
        let since = {
            let mut missing = self.0.lock();
            missing.retain(|(name, uid), _| {
                let known = deps.stores.claims.get(name);
                known.is_some_and(|claim| claim.metadata.uid.as_deref() == Some(uid.as_str()))
            });
            *missing.entry(key(claim)).or_insert(now)
        };
        let left = MISSING_FOR.saturating_sub(now.duration_since(since));
        if !left.is_zero() {
            return Ok(ControlFlow::Continue(Some(left)));
        }
        let message = format!(
            "Node {} has not existed for {} minutes, deleting the NodeClaim",
            claim.node_name().unwrap_or_default(),
            REGISTRATION_TIMEOUT.as_mins()
        );
        tracing::warn!(node_claim = claim.name_any(), node = claim.node_name(), "deleting NodeClaim, its Node is gone");
        deps.events.publish(Note::warning(object(claim), reason::TIMED_OUT, message));
        // A Node that comes back changes the claim. A deletion without a response must not take effect after that.
        if !deps.writes.delete_unchanged(claim).await? {
            return Ok(ControlFlow::Continue(Some(RETRY)));
        }
        deps.metrics.claims.disrupted(claim, "garbage_collected", None, 0);
        deps.metrics.claims_collected.with_label_values(&["node_gone"]).inc();
        Ok(ControlFlow::Break(()))
    }
}

/// Whether a live read finds the claim's Node, or one without providerID, which the cloud controller may write later.
async fn has_live_node(deps: &Lifecycle, claim: &NodeClaim) -> Result<bool, WriteError> {
    let (Some(name), Some(id)) = (claim.node_name(), claim.provider_id()) else { return Ok(true) };
    let may_be_its = |node: &Node| nodes::provider_id(node).is_none_or(|found| found.is_empty() || found == id);
    match deps.writes.read_node(name).await {
        Ok(node) => Ok(node.is_some_and(|node| may_be_its(&node))),
        // The watch cache leaves it out, too.
        Err(WriteError::Unreadable(_)) => Ok(true),
        Err(error) => Err(error),
    }
}

/// Resets the conditions of a claim, so that its new Node registers and is initialized as the first one was.
async fn register_again(
    deps: &Lifecycle,
    claim: &NodeClaim,
    node: &Node,
) -> Result<ControlFlow<(), Requeue>, WriteError> {
    let name = node.name_any();
    let live = deps.writes.read_node(&name).await?;
    let is_new = live.is_some_and(|live| live.metadata.uid == node.metadata.uid && node::is_new(&live, claim));
    if !is_new {
        // The watch cache shows the Node as it was before its registration.
        return Ok(ControlFlow::Continue(None));
    }
    tracing::warn!(node_claim = claim.name_any(), node = name, "Node was deleted and created again, registering it");
    let message = format!("Node {name} was deleted and created again");
    let now = deps.clock.now();
    let reset = |claim: &mut NodeClaim| {
        for condition in [REGISTERED, INITIALIZED] {
            claim.set_condition(now, condition, Status::Unknown, "NodeRecreated", &message);
        }
    };
    deps.writes.update(claim, ObjectPart::Status, reset).await?;
    Ok(ControlFlow::Break(()))
}

//! Which Nodes of a claim are drained: those that have registered. The watch of Nodes may lag while that of NodeClaims
//! does not, and an instance must not end under running pods.

use super::{POLL_INTERVAL, Termination, TerminationFlow, condition_of};
use crate::io::WriteError;
use crate::nodes;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use plimsoll_api::condition::node_claim::INSTANCE_TERMINATING;
use plimsoll_model::names::label;
use std::collections::BTreeMap;
use std::sync::Arc;
use tokio::time::Instant;

/// Whether pods may run on the Node. Somebody may have removed the finalizer of a registered Node.
fn is_registered(node: &Node) -> bool {
    !node.finalizers().is_empty() || node.labels().contains_key(label::REGISTERED)
}

impl TerminationFlow<'_> {
    /// The Nodes that are drained.
    pub(super) fn registered(&self) -> Vec<&Arc<Node>> {
        self.subject.nodes.iter().filter(|node| is_registered(node)).collect()
    }

    /// Whether the claim has a registered Node that the watch cache does not show. Once the instance was to be
    /// terminated, the drain is over, and after the deadline nothing may delay the node any longer.
    pub(super) async fn has_hidden_node(&self, deadline: Option<Timestamp>) -> Result<bool, WriteError> {
        let claim = &*self.subject.claim;
        let is_over = condition_of(claim, INSTANCE_TERMINATING).is_some()
            || deadline.is_some_and(|deadline| deadline <= self.deps.clock.now());
        if is_over || !self.registered().is_empty() {
            return Ok(false);
        }
        self.shared.node_reads.finds_one(self.deps, claim).await
    }
}

/// Live reads of Nodes within the last [`POLL_INTERVAL`], by claim UID: when, and whether the Node has registered.
#[derive(Debug, Default)]
pub(super) struct NodeReads {
    recent: Mutex<BTreeMap<String, (Instant, bool)>>,
}

impl NodeReads {
    /// Whether the claim has a registered Node. Reads at most once per [`POLL_INTERVAL`], however often the claim is
    /// looked at.
    async fn finds_one(&self, deps: &Termination, claim: &NodeClaim) -> Result<bool, WriteError> {
        let (Some(name), Some(id)) = (claim.node_name(), claim.provider_id()) else { return Ok(false) };
        let (uid, now) = (claim.uid().unwrap_or_default(), Instant::now());
        {
            let mut recent = self.recent.lock();
            recent.retain(|_, (read, _)| *read + POLL_INTERVAL > now);
            if let Some((_, found)) = recent.get(&uid) {
                return Ok(*found);
            }
        }
        let is_its = |node: &Node| nodes::provider_id(node) == Some(id);
        let found = match deps.writes.read_node(name).await {
            Ok(node) => node.is_some_and(|node| is_its(&node) && is_registered(&node)),
            // The watch cache leaves it out too, so that it would keep the claim for ever.
            Err(WriteError::Unreadable(error)) => {
                tracing::warn!(node = name, %error, "Node cannot be read, it is not drained");
                false
            }
            Err(error) => return Err(error),
        };
        self.recent.lock().insert(uid, (now, found));
        Ok(found)
    }
}

//! The pods of a node, read live before its drain ends: the watch cache may lag, and an instance must not end under
//! running pods.

use crate::io::WriteError;
use crate::termination::Termination;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::Pod;
use std::sync::Arc;

/// The pods of these nodes. Those of a node whose list failed are left out if the drain must not wait for it.
///
/// # Errors
/// A list failed.
pub(super) async fn on(
    deps: &Termination,
    nodes: &[&Arc<Node>],
    deadline: Option<Timestamp>,
    now: Timestamp,
) -> Result<Vec<Arc<Pod>>, WriteError> {
    let mut pods = Vec::new();
    for node in nodes {
        match deps.writes.list_pods_on(&node.name_any()).await {
            Ok(live) => pods.extend(live.into_iter().map(Arc::new)),
            // Nothing may delay the node any longer. Nor may a pod that is unreadable, and that the watch cache leaves
            // out too: it would keep the node for ever.
            Err(error) if deadline.is_some_and(|deadline| deadline <= now) || is_unreadable(&error) => {
                tracing::warn!(node = node.name_any(), %error, "pods not listed, ending the drain without the list");
            }
            Err(error) => return Err(error),
        }
    }
    Ok(pods)
}

fn is_unreadable(error: &WriteError) -> bool {
    matches!(error, WriteError::Cluster(kube::Error::SerdeError(_)))
}

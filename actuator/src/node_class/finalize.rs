//! Deletion of a node class: waits for the claims that use it, then deletes its AWS resources.

use super::profile;
use crate::io::{ObjectPart, WriteError};
use crate::launch_template;
use crate::node_class::controller::NodeClasses;
use kube::ResourceExt;
use plimsoll_api::{EC2NodeClass, NodeClaim};
use plimsoll_model::names::EC2_NODE_CLASS_FINALIZER;
use std::sync::Arc;

/// The claims that use a class, sorted by name.
pub(super) fn claims_of(deps: &NodeClasses, class: &EC2NodeClass) -> Vec<Arc<NodeClaim>> {
    let mut claims = deps.stores.claims.state();
    claims.retain(|claim| {
        let reference = &claim.spec.node_class_ref;
        reference.kind == "EC2NodeClass" && Some(&reference.name) == class.metadata.name.as_ref()
    });
    claims.sort_by(|left, right| left.metadata.name.cmp(&right.metadata.name));
    claims
}

/// Deletes the AWS resources of a class that is being deleted, once no claim uses it. Returns whether it is done.
pub(super) async fn finalize(deps: &NodeClasses, class: &EC2NodeClass) -> Result<bool, WriteError> {
    if !class.finalizers().iter().any(|finalizer| finalizer == EC2_NODE_CLASS_FINALIZER) {
        return Ok(true);
    }
    let claims = claims_of(deps, class);
    if !claims.is_empty() {
        tracing::info!(
            node_class = class.metadata.name,
            claims = claims.len(),
            "waiting for NodeClaims of the EC2NodeClass to be deleted"
        );
        return Ok(false);
    }
    profile::delete_all(deps, class).await?;
    launch_template::delete_of_class(&deps.launch_templates, class.metadata.name.as_deref().unwrap_or_default())
        .await?;
    deps.writes
        .update(class, ObjectPart::Main, |class| {
            class.finalizers_mut().retain(|finalizer| finalizer != EC2_NODE_CLASS_FINALIZER);
        })
        .await?;
    Ok(true)
}

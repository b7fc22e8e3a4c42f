//! Deletion of a node class: waits for the claims that use it, then deletes its AWS resources.

use super::profile;
use crate::events::{Note, object, reason};
use crate::io::{ObjectPart, WriteError, has_finalizer};
use crate::launch_template;
use crate::node_class::controller::NodeClasses;
use kube::ResourceExt;
use plimsoll_api::{EC2NodeClass, NodeClaim};
use plimsoll_model::names::EC2_NODE_CLASS_FINALIZER;
use std::sync::Arc;

/// Maximum number of claims that an Event names.
const NAMED: usize = 5;

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
    if !has_finalizer(class, EC2_NODE_CLASS_FINALIZER) {
        return Ok(true);
    }
    let claims = claims_of(deps, class);
    if !claims.is_empty() {
        tracing::info!(
            node_class = class.metadata.name,
            claims = claims.len(),
            "waiting for NodeClaims of the EC2NodeClass to be deleted"
        );
        deps.events.publish(waiting(class, &claims));
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

/// Tells which claims a class waits for. The cause is fixed, since claims come and go.
fn waiting(class: &EC2NodeClass, claims: &[Arc<NodeClaim>]) -> Note {
    let mut names: Vec<String> = claims.iter().take(NAMED).map(|claim| claim.name_any()).collect();
    if claims.len() > NAMED {
        names.push(format!("{} more", claims.len() - NAMED));
    }
    let message = format!("waiting for NodeClaims to be deleted: {}", names.join(", "));
    Note::normal(object(class), reason::WAITING_ON_NODE_CLAIMS, message).with_cause("NodeClaims").with_long_window()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::events::Severity;
    use serde_json::json;

    #[test]
    fn a_waiting_class_names_some_of_its_claims() {
        let spec = json!({"subnetSelectorTerms": [], "securityGroupSelectorTerms": []});
        let class = EC2NodeClass::new("default", serde_json::from_value(spec).unwrap());
        let claim = |index: usize| -> Arc<NodeClaim> {
            let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
            let spec = json!({"nodeClassRef": reference, "requirements": []});
            Arc::new(NodeClaim::new(&format!("claim-{index}"), serde_json::from_value(spec).unwrap()))
        };
        let of = |count: usize| waiting(&class, &(0..count).map(claim).collect::<Vec<_>>());
        let (few, many) = (of(2), of(7));
        assert_eq!(few.message, "waiting for NodeClaims to be deleted: claim-0, claim-1");
        assert!(many.message.ends_with("claim-4, 2 more"), "{}", many.message);
        assert_eq!((many.reason, many.severity), ("WaitingOnNodeClaimTermination", Severity::Normal));
        assert_eq!(many.object.kind.as_deref(), Some("EC2NodeClass"));
        assert_eq!(few.cause, many.cause, "it is not repeated when a claim is gone");
    }
}

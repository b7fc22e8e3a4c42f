//! The hash for drift detection. It is written to the class, and to its claims when the hash algorithm changes.

use crate::io::{ObjectPart, UpdateResult, WriteError};
use crate::node_class::controller::NodeClasses;
use kube::ResourceExt;
use plimsoll_api::condition::node_claim::DRIFTED;
use plimsoll_api::{EC2NodeClass, NodeClaim, condition, hash};
use plimsoll_model::identity::ContentHasher;
use plimsoll_model::names::{EC2_NODE_CLASS_FINALIZER, annotation};

/// Hashes the annotations of a class other than those that [`mark`] writes.
pub(super) fn user_annotations(class: &EC2NodeClass, hasher: &mut ContentHasher) {
    let is_ours = |key: &str| [annotation::EC2_NODE_CLASS_HASH, annotation::EC2_NODE_CLASS_HASH_VERSION].contains(&key);
    for (key, value) in class.annotations().iter().filter(|(key, _)| !is_ours(key)) {
        hasher.text(key);
        hasher.text(value);
    }
    // Ends the list: what follows must not be taken for an annotation.
    hasher.text("");
}

/// Writes the class's annotations and finalizer. Returns the class as written; `None` if it is gone.
pub(super) async fn mark(deps: &NodeClasses, class: &EC2NodeClass) -> Result<Option<EC2NodeClass>, WriteError> {
    let hash = hash::ec2_node_class(&class.spec, &deps.settings.cluster_ca_bundle);
    let version =
        class.metadata.annotations.as_ref().and_then(|item| item.get(annotation::EC2_NODE_CLASS_HASH_VERSION));
    if version.is_some_and(|version| version != hash::EC2_NODE_CLASS_VERSION) {
        // Update claims first: after a crash in between, the next pass repeats it.
        for claim in super::finalize::claims_of(deps, class) {
            carry_over(deps, &claim, &hash).await?;
        }
    }
    let written = deps
        .writes
        .update(class, ObjectPart::Main, |class| {
            let annotations = class.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::EC2_NODE_CLASS_HASH.to_owned(), hash.clone());
            let version = hash::EC2_NODE_CLASS_VERSION.to_owned();
            annotations.insert(annotation::EC2_NODE_CLASS_HASH_VERSION.to_owned(), version);
            if class.metadata.deletion_timestamp.is_none() {
                let finalizers = class.finalizers_mut();
                if !finalizers.iter().any(|item| item == EC2_NODE_CLASS_FINALIZER) {
                    finalizers.push(EC2_NODE_CLASS_FINALIZER.to_owned());
                }
            }
        })
        .await?;
    Ok(match written {
        UpdateResult::Written(class) => Some(*class),
        UpdateResult::Unchanged => Some(class.clone()),
        UpdateResult::Gone => None,
    })
}

/// Updates a claim hashed by an older algorithm. A drift that the old hash showed stays; otherwise the claim gets the
/// new hash.
async fn carry_over(deps: &NodeClasses, claim: &NodeClaim, hash: &str) -> Result<(), WriteError> {
    let of_claim =
        |claim: &NodeClaim| claim.metadata.annotations.as_ref()?.get(annotation::EC2_NODE_CLASS_HASH_VERSION).cloned();
    if of_claim(claim).as_deref() == Some(hash::EC2_NODE_CLASS_VERSION) {
        return Ok(());
    }
    deps.writes
        .update(claim, ObjectPart::Main, |claim| {
            let drifted = condition::get(claim.conditions(), DRIFTED).is_some();
            let annotations = claim.metadata.annotations.get_or_insert_default();
            let version = hash::EC2_NODE_CLASS_VERSION.to_owned();
            annotations.insert(annotation::EC2_NODE_CLASS_HASH_VERSION.to_owned(), version);
            if !drifted {
                annotations.insert(annotation::EC2_NODE_CLASS_HASH.to_owned(), hash.to_owned());
            }
        })
        .await?;
    Ok(())
}

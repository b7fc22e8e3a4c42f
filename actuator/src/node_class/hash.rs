//! The hash for drift detection. It is written to the class, and to its claims when the hash algorithm changes.

use crate::drift_hash::DriftHash;
use crate::io::{ObjectPart, UpdateResult, WriteError, add_finalizer};
use crate::node_class::controller::NodeClasses;
use kube::ResourceExt;
use plimsoll_api::{EC2NodeClass, hash};
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

/// Updates the claims of the class that another algorithm has hashed. Must be called before [`mark`].
///
/// # Errors
/// A claim was not written.
pub(super) async fn carry_over_claims(deps: &NodeClasses, class: &EC2NodeClass) -> Result<(), WriteError> {
    let claims = super::finalize::claims_of(deps, class);
    current(deps, class).carry_over_claims(&deps.writes, class, claims).await
}

/// Writes the class's annotations and finalizer. Returns the class as written; `None` if it is gone.
pub(super) async fn mark(deps: &NodeClasses, class: &EC2NodeClass) -> Result<Option<EC2NodeClass>, WriteError> {
    let current = current(deps, class);
    let written = deps
        .writes
        .update(class, ObjectPart::Main, |class| {
            current.mark(class);
            if class.metadata.deletion_timestamp.is_none() {
                add_finalizer(class, EC2_NODE_CLASS_FINALIZER);
            }
        })
        .await?;
    Ok(match written {
        UpdateResult::Written(class) => Some(*class),
        UpdateResult::Unchanged => Some(class.clone()),
        UpdateResult::Gone => None,
    })
}

fn current(deps: &NodeClasses, class: &EC2NodeClass) -> DriftHash {
    DriftHash {
        key: annotation::EC2_NODE_CLASS_HASH,
        version_key: annotation::EC2_NODE_CLASS_HASH_VERSION,
        version: hash::EC2_NODE_CLASS_VERSION,
        hash: hash::ec2_node_class(&class.spec, &deps.settings.cluster_ca_bundle),
    }
}

//! The hash for drift detection. It is written to the pool, and to its claims when the hash algorithm changes (spec:
//! core section 1.1).

use crate::io::{ObjectPart, WriteError};
use crate::metrics::view::pool_of;
use crate::node_pool_status::NodePoolStatus;
use kube::ResourceExt;
use plimsoll_api::condition::node_claim::DRIFTED;
use plimsoll_api::{NodeClaim, NodePool, condition, hash};
use plimsoll_model::names::annotation;

/// Writes the annotations of the pool.
pub(super) async fn mark(deps: &NodePoolStatus, pool: &NodePool) -> Result<(), WriteError> {
    if version(pool) != Some(hash::NODE_POOL_VERSION) {
        // Update claims first: after a crash in between, the next pass repeats it.
        let (name, hash) = (pool.name_any(), hash::node_pool(&pool.spec.template));
        for claim in deps.stores.claims.state() {
            if pool_of(claim.metadata.labels.as_ref()) == name {
                deps.writes.update(&*claim, ObjectPart::Main, |claim| carry_over(claim, &hash)).await?;
            }
        }
    }
    let stamp = |pool: &mut NodePool| {
        let hash = hash::node_pool(&pool.spec.template);
        let annotations = pool.annotations_mut();
        annotations.insert(annotation::NODE_POOL_HASH.to_owned(), hash);
        annotations.insert(annotation::NODE_POOL_HASH_VERSION.to_owned(), hash::NODE_POOL_VERSION.to_owned());
    };
    deps.writes.update(pool, ObjectPart::Main, stamp).await?;
    Ok(())
}

/// Version of the algorithm by which an object was hashed.
fn version<K: ResourceExt>(object: &K) -> Option<&str> {
    object.annotations().get(annotation::NODE_POOL_HASH_VERSION).map(String::as_str)
}

/// Updates a claim hashed by another algorithm. A drift that the other hash showed stays; otherwise the claim gets the
/// hash of its pool.
fn carry_over(claim: &mut NodeClaim, hash: &str) {
    if version(claim) == Some(hash::NODE_POOL_VERSION) {
        return;
    }
    let drifted = condition::get(claim.conditions(), DRIFTED).is_some();
    let annotations = claim.annotations_mut();
    annotations.insert(annotation::NODE_POOL_HASH_VERSION.to_owned(), hash::NODE_POOL_VERSION.to_owned());
    if !drifted {
        annotations.insert(annotation::NODE_POOL_HASH.to_owned(), hash.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Hash and version of a claim after the migration.
    fn migrated(version: &str, drifted: bool) -> (String, String) {
        let drift = json!({"type": "Drifted", "status": "True", "reason": "NodePoolDrifted", "message": "",
            "lastTransitionTime": "2026-01-01T00:00:00Z"});
        let mut claim: NodeClaim = serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "c", "annotations":
                {"karpenter.sh/nodepool-hash": "old", "karpenter.sh/nodepool-hash-version": version}},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"conditions": if drifted { vec![drift] } else { Vec::new() }},
        }))
        .unwrap();
        carry_over(&mut claim, "new");
        let of = |key: &str| claim.annotations().get(key).cloned().unwrap_or_default();
        (of(annotation::NODE_POOL_HASH), of(annotation::NODE_POOL_HASH_VERSION))
    }

    #[test]
    fn claims_of_another_version_get_the_hash_of_the_pool_unless_they_have_drifted() {
        let pair = |hash: &str| (hash.to_owned(), hash::NODE_POOL_VERSION.to_owned());
        assert_eq!(migrated("v2", false), pair("new"));
        assert_eq!(migrated("v2", true), pair("old"), "the drift stays");
        assert_eq!(migrated(hash::NODE_POOL_VERSION, false), pair("old"), "this hash shows whether the claim drifted");
    }
}

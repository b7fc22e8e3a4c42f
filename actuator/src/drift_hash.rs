//! The hashes by which drift is found. They stand in annotations of NodePools and node classes, and in those of their
//! claims.

use crate::io::{ObjectPart, WriteError, Writes};
use kube::ResourceExt;
use plimsoll_api::condition::node_claim::DRIFTED;
use plimsoll_api::{NodeClaim, condition};
use std::sync::Arc;

/// The hash that a NodePool or node class has now, and where it stands.
pub(crate) struct DriftHash {
    /// Annotation with the hash.
    pub(crate) key: &'static str,
    /// Annotation with the version of the algorithm.
    pub(crate) version_key: &'static str,
    /// Version of our algorithm.
    pub(crate) version: &'static str,
    pub(crate) hash: String,
}

impl DriftHash {
    /// Updates the claims of a NodePool or node class that another algorithm has hashed. Claims without a version are
    /// updated only if our algorithm has not hashed the object either: this must be called before the object is marked.
    /// A claim that cannot be written keeps no other from it. If it has a version, each pass tries it again.
    ///
    /// # Errors
    /// A claim was not written. If no write is allowed, the rest is not tried.
    pub(crate) async fn carry_over_claims(
        &self,
        writes: &Writes,
        object: &(impl ResourceExt + Sync),
        claims: Vec<Arc<NodeClaim>>,
    ) -> Result<(), WriteError> {
        let is_first = self.version_of(object) != Some(self.version);
        let mut failure = None;
        for claim in claims {
            let is_other = self.version_of(&*claim).map_or(is_first, |version| version != self.version);
            if !is_other {
                continue;
            }
            match writes.update(&*claim, ObjectPart::Main, |claim| self.carry_over(claim)).await {
                Ok(_) => {}
                Err(error) if error.concerns_all_writes() => return Err(error),
                Err(error) => {
                    failure.get_or_insert(error);
                }
            }
        }
        failure.map_or(Ok(()), Err)
    }

    /// Version of the algorithm by which an object was hashed.
    fn version_of<'object>(&self, object: &'object impl ResourceExt) -> Option<&'object str> {
        object.annotations().get(self.version_key).map(String::as_str)
    }

    /// Writes hash and version to an object.
    pub(crate) fn mark(&self, object: &mut impl ResourceExt) {
        object.annotations_mut().insert(self.key.to_owned(), self.hash.clone());
        object.annotations_mut().insert(self.version_key.to_owned(), self.version.to_owned());
    }

    /// Updates a claim hashed by another algorithm. A drift that the other hash showed stays; otherwise the claim gets
    /// the hash of its NodePool or node class.
    fn carry_over(&self, claim: &mut NodeClaim) {
        if self.version_of(claim) == Some(self.version) {
            return;
        }
        if condition::get(claim.conditions(), DRIFTED).is_some() {
            claim.annotations_mut().insert(self.version_key.to_owned(), self.version.to_owned());
        } else {
            self.mark(claim);
        }
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
            "metadata": {"name": "c", "annotations": {"hash": "old", "version": version}},
            "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
            "status": {"conditions": if drifted { vec![drift] } else { Vec::new() }},
        }))
        .unwrap();
        let current = DriftHash { key: "hash", version_key: "version", version: "v3", hash: "new".to_owned() };
        current.carry_over(&mut claim);
        let of = |key: &str| claim.annotations().get(key).cloned().unwrap_or_default();
        (of("hash"), of("version"))
    }

    #[test]
    fn claims_of_another_version_get_the_current_hash_unless_they_have_drifted() {
        let pair = |hash: &str| (hash.to_owned(), "v3".to_owned());
        assert_eq!(migrated("v2", false), pair("new"));
        assert_eq!(migrated("v2", true), pair("old"), "the drift stays");
        assert_eq!(migrated("v3", false), pair("old"), "this hash shows whether the claim drifted");
    }
}

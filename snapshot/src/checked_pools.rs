//! Which NodePools are valid, remembered from one build to the next.

use plimsoll_api::{NodePool, NodePoolSpec, Validate};
use std::collections::BTreeMap;

/// The first error of each NodePool, with the spec that it was found in: to compare a spec takes much less time than to
/// check it.
#[derive(Debug, Default)]
pub(crate) struct CheckedPools(BTreeMap<String, (NodePoolSpec, Option<String>)>);

impl CheckedPools {
    /// Forgets everything if it has more pools than the cluster: some no longer exist.
    pub(crate) fn limit(&mut self, pools: usize) {
        if self.0.len() > pools {
            self.0.clear();
        }
    }

    /// The first error of the pool, which depends on its name and its spec only.
    pub(crate) fn error(&mut self, pool: &NodePool) -> Option<String> {
        let check = || pool.validate().first().map(ToString::to_string);
        let Some(name) = &pool.metadata.name else { return check() };
        if let Some((_, error)) = self.0.get(name).filter(|(spec, _)| *spec == pool.spec) {
            return error.clone();
        }
        let error = check();
        self.0.insert(name.clone(), (pool.spec.clone(), error.clone()));
        error
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn a_pool_is_checked_again_after_each_change_of_its_spec() {
        let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        let pool = |name: &str, weight: i32| -> NodePool {
            let template = json!({"spec": {"nodeClassRef": class, "requirements": []}});
            let spec = json!({"template": template, "weight": weight});
            serde_json::from_value(json!({"metadata": {"name": name}, "spec": spec})).unwrap()
        };
        let mut checked = CheckedPools::default();
        let known = |checked: &CheckedPools| checked.0.keys().cloned().collect::<Vec<_>>();
        for (name, weight, is_valid) in
            [("a", 1, true), ("a", 1, true), ("a", 0, false), ("b", 2, true), ("a", 0, false), ("a", 1, true)]
        {
            let pool = pool(name, weight);
            assert_eq!(checked.error(&pool).is_none(), is_valid, "{name} {weight}");
            assert_eq!(checked.error(&pool), pool.validate().first().map(ToString::to_string));
        }
        checked.limit(2);
        assert_eq!(known(&checked), ["a", "b"]);
        checked.limit(1);
        assert!(known(&checked).is_empty());
    }
}

//! Limits how many impaired nodes are replaced by force at the same time: many impaired instances point to a fault of a
//! zone or of the health check itself, and replacing all of them would turn it into an outage (spec: core section 8).

use kube::ResourceExt;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::label;
use std::collections::BTreeMap;

/// Maximum share of impaired nodes of a NodePool or zone, as Karpenter's node repair has it.
const MAX_IMPAIRED_PERCENT: usize = 20;

/// Groups in which impaired nodes are counted: label key and name in messages.
const GROUPS: [(&str, &str); 2] = [(label::NODE_POOL, "NodePool"), (label::ZONE, "zone")];

#[derive(Debug, Default)]
struct Count {
    nodes: usize,
    impaired: usize,
}

/// Number of nodes and of impaired nodes in each NodePool and zone.
#[derive(Debug, Default)]
pub(super) struct RepairLimit {
    counts: BTreeMap<(&'static str, String), Count>,
}

impl RepairLimit {
    /// Counts claims, each with whether its instance is impaired.
    pub(super) fn new<'claims>(claims: impl IntoIterator<Item = (&'claims NodeClaim, bool)>) -> Self {
        let mut limit = Self::default();
        for (claim, impaired) in claims {
            for (key, _) in GROUPS {
                let group = claim.labels().get(key).cloned().unwrap_or_default();
                let count = limit.counts.entry((key, group)).or_default();
                count.nodes += 1;
                count.impaired += usize::from(impaired);
            }
        }
        limit
    }

    /// Why an impaired node must not be replaced now, if so.
    pub(super) fn blocked(&self, claim: &NodeClaim) -> Option<String> {
        GROUPS.into_iter().find_map(|(key, name)| {
            let group = claim.labels().get(key).cloned().unwrap_or_default();
            let count = self.counts.get(&(key, group.clone()))?;
            // One node may always be replaced: a share of a small group is less than one node.
            let most = (count.nodes * MAX_IMPAIRED_PERCENT).div_ceil(100);
            (count.impaired > most).then(|| {
                format!(
                    "{} of {} nodes of {name} {group} are impaired, more than {MAX_IMPAIRED_PERCENT} %: \
                     none of them is replaced",
                    count.impaired, count.nodes
                )
            })
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    fn claim(pool: &str, zone: &str) -> NodeClaim {
        serde_json::from_value(json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
            "metadata": {"name": "c", "labels": {label::NODE_POOL: pool, label::ZONE: zone}},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "requirements": []},
        }))
        .unwrap()
    }

    /// Impaired nodes of ten in one pool, one zone each; whether one of them may be replaced.
    fn may_replace(impaired: usize) -> bool {
        let claims: Vec<NodeClaim> = (0..10).map(|index| claim("default", &format!("zone-{index}"))).collect();
        let limit = RepairLimit::new(claims.iter().enumerate().map(|(index, claim)| (claim, index < impaired)));
        limit.blocked(&claims[0]).is_none()
    }

    #[test]
    fn a_fifth_of_a_pool_may_be_replaced_at_once() {
        assert!(may_replace(1) && may_replace(2));
        assert!(!may_replace(3), "3 of 10 are more than 20 %");
    }

    #[test]
    fn zones_are_limited_across_pools_and_a_single_node_may_always_be_replaced() {
        let claims: Vec<NodeClaim> = (0..6).map(|index| claim(&format!("pool-{index}"), "a")).collect();
        let all = |impaired: usize| {
            let limit = RepairLimit::new(claims.iter().enumerate().map(|(index, claim)| (claim, index < impaired)));
            limit.blocked(&claims[0])
        };
        assert_eq!(all(2), None, "2 of 6: a fifth is 1.2, and there is room for the next whole node");
        let message = all(3).unwrap();
        assert!(message.contains("3 of 6 nodes of zone a"), "{message}");
        let single = claim("only", "b");
        assert_eq!(RepairLimit::new([(&single, true)]).blocked(&single), None);
    }
}

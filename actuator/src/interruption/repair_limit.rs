//! Limits how many impaired nodes are replaced by force at the same time: many impaired instances point to a fault of a
//! zone or of the health check itself, and replacing all of them would turn it into an outage.

use kube::ResourceExt;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::label;
use std::collections::BTreeMap;
use std::fmt;

/// Maximum share of impaired nodes of a group, as Karpenter's node repair has it.
const MAX_IMPAIRED_PERCENT: usize = 20;

/// A group in which impaired nodes are counted.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Group {
    NodePool(String),
    Zone(String),
    Cluster,
}

impl fmt::Display for Group {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::NodePool(name) => write!(f, "NodePool {name}"),
            Self::Zone(name) => write!(f, "zone {name}"),
            Self::Cluster => f.write_str("the cluster"),
        }
    }
}

fn pool(claim: &NodeClaim) -> Option<Group> {
    claim.labels().get(label::NODE_POOL).cloned().map(Group::NodePool)
}

fn zone(claim: &NodeClaim) -> Group {
    Group::Zone(claim.labels().get(label::ZONE).cloned().unwrap_or_default())
}

#[derive(Debug, Default)]
struct Count {
    nodes: usize,
    impaired: usize,
}

/// Number of nodes and of impaired nodes in each group.
#[derive(Debug, Default)]
pub(super) struct RepairLimit {
    counts: BTreeMap<Group, Count>,
}

impl RepairLimit {
    /// Counts claims, each with whether its instance is impaired.
    pub(super) fn new<'claims>(claims: impl IntoIterator<Item = (&'claims NodeClaim, bool)>) -> Self {
        let mut limit = Self::default();
        for (claim, impaired) in claims {
            for group in pool(claim).into_iter().chain([zone(claim), Group::Cluster]) {
                let count = limit.counts.entry(group).or_default();
                count.nodes += 1;
                count.impaired += usize::from(impaired);
            }
        }
        limit
    }

    /// Why an impaired node must not be replaced now, if so.
    pub(super) fn blocked(&self, claim: &NodeClaim) -> Option<String> {
        // A claim without a pool is limited by the cluster instead, as in Karpenter.
        [pool(claim).unwrap_or(Group::Cluster), zone(claim)].into_iter().find_map(|group| {
            let count = self.counts.get(&group)?;
            // One node may always be replaced: a share of a small group is less than one node.
            let most = (count.nodes * MAX_IMPAIRED_PERCENT).div_ceil(100);
            (count.impaired > most).then(|| {
                format!(
                    "{} of {} nodes of {group} are impaired, more than {MAX_IMPAIRED_PERCENT} %: \
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
    fn for_a_claim_without_a_pool_the_nodes_of_all_pools_count() {
        let mut claims: Vec<NodeClaim> = (0..10).map(|index| claim("default", &format!("zone-{index}"))).collect();
        for claim in &mut claims[..2] {
            claim.labels_mut().remove(label::NODE_POOL);
        }
        let blocked = |impaired: usize| {
            let limit = RepairLimit::new(claims.iter().enumerate().map(|(index, claim)| (claim, index < impaired)));
            limit.blocked(&claims[0])
        };
        assert_eq!(blocked(2), None, "2 of 10, although both nodes without a pool are impaired");
        let message = blocked(3).unwrap();
        assert!(message.contains("3 of 10 nodes of the cluster"), "{message}");
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

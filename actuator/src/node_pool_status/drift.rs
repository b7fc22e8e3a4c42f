//! Whether a claim has drifted, in Karpenter's order. Pure functions.

mod provider;

pub(super) use provider::{CAPACITY_RESERVATION_DRIFT, ProviderFacts};

use jiff::Timestamp;
use kube::ResourceExt;
use plimsoll_api::{EC2NodeClass, NodeClaim, NodePool};
use plimsoll_model::names::{annotation, label};
use plimsoll_model::requirements::{NodeSelectorRequirement, Requirements};

/// Result of a drift check.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Drift {
    /// The claim has drifted, for this reason.
    Drifted(&'static str),
    /// The claim has not drifted.
    None,
    /// What a check of the provider needs is not known now. A node must not be removed for that.
    Unknown,
}

/// Whether the claim has drifted from its pool, its node class or what EC2 offers.
pub(super) fn drift(
    claim: &NodeClaim,
    pool: &NodePool,
    class: Option<&EC2NodeClass>,
    facts: &ProviderFacts,
    now: Timestamp,
) -> Drift {
    if hash_differs(claim, pool, annotation::NODE_POOL_HASH, annotation::NODE_POOL_HASH_VERSION) {
        return Drift::Drifted("NodePoolDrifted");
    }
    if !fits(claim, pool) {
        return Drift::Drifted("RequirementsDrifted");
    }
    // The launched nodes of a class that is being deleted are removed with it.
    let class = class.filter(|class| class.metadata.deletion_timestamp.is_none());
    let Some(class) = class.filter(|_| claim.spec.node_class_ref.is_ec2()) else { return Drift::None };
    let instance_type = provider::instance_type(claim, facts, now);
    if let Drift::Drifted(_) = instance_type {
        return instance_type;
    }
    if hash_differs(claim, class, annotation::EC2_NODE_CLASS_HASH, annotation::EC2_NODE_CLASS_HASH_VERSION) {
        return Drift::Drifted("NodeClassDrift");
    }
    let checks = [
        instance_type,
        provider::image(claim, class, facts),
        provider::security_groups(class, facts),
        provider::subnet(class, facts),
        provider::capacity_reservation(class, facts),
        provider::placement_group(claim, class),
    ];
    let is_drifted = |drift: &&Drift| matches!(drift, Drift::Drifted(_));
    let is_unknown = || checks.contains(&Drift::Unknown).then_some(Drift::Unknown);
    checks.iter().find(is_drifted).copied().or_else(is_unknown).unwrap_or(Drift::None)
}

/// Whether the hashes of two objects differ. Those of different versions are not comparable.
fn hash_differs(one: &impl ResourceExt, other: &impl ResourceExt, hash: &str, version: &str) -> bool {
    let both = |key: &str| one.annotations().get(key).zip(other.annotations().get(key));
    both(version).is_some_and(|(one, other)| one == other) && both(hash).is_some_and(|(one, other)| one != other)
}

/// Whether the claim's labels satisfy the pool's requirements.
fn fits(claim: &NodeClaim, pool: &NodePool) -> bool {
    let labels = claim.metadata.labels.clone().unwrap_or_default();
    let partition = label::PLACEMENT_GROUP_PARTITION;
    let is_unknown = labels.get(partition).is_some_and(String::is_empty);
    let requirements: Vec<NodeSelectorRequirement> = pool
        .spec
        .template
        .spec
        .requirements
        .iter()
        // EC2 has not chosen the partition yet.
        .filter(|requirement| !is_unknown || requirement.key != partition)
        .map(NodeSelectorRequirement::from)
        .collect();
    let has = Requirements::from_labels(&labels);
    Requirements::from_api(&requirements).map_or(true, |requirements| has.is_compatible(&requirements))
}

#[cfg(test)]
mod tests;

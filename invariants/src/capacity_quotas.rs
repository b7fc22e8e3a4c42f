//! Checks that launches and existing nodes together stay within CapacityQuotas.

use crate::Violation;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{CapacityQuota, Node, NodePool, Snapshot, quota_resource};

/// Whether the quota certainly counts a new node of `pool`, of which `label` returns the labels. A label that the pool
/// requires and the launch leaves open will have some value.
pub(crate) fn selects<'l>(quota: &CapacityQuota, pool: &NodePool, label: impl Fn(&str) -> Option<&'l str>) -> bool {
    let is_open = |wanted: &NodeSelectorRequirement| {
        let mut own = pool.requirements.iter().filter(|one| one.key == wanted.key);
        label(&wanted.key).is_none() && own.any(|one| one.operator != Operator::DoesNotExist)
    };
    if quota.selector.iter().any(is_open) {
        return false;
    }
    let term = NodeSelectorTerm { expressions: quota.selector.clone(), fields: Vec::new() };
    // A term without requirements matches nothing, but a quota without selector counts every node.
    term.expressions.is_empty() || term.matches_node_with("", label)
}

/// What an existing node uses of the limited resources. What a launch in flight has reserved is in its limit usage.
fn usage(quota: &CapacityQuota, node: &Node) -> Resources {
    let counts = quota.counts(node);
    let amount = |resource: &str| {
        let reserved = quota_resource(&quota.name, resource);
        let usage = &node.limit_usage;
        if usage.contains(&reserved) { usage.get(&reserved) } else { usage.get(resource) * i64::from(counts) }
    };
    quota.limits.iter().map(|(resource, _)| (resource, amount(resource))).collect()
}

/// Checks each quota. `growth` is what the launches add to each.
pub(crate) fn check(snapshot: &Snapshot, growth: &[Resources], violations: &mut Vec<Violation>) {
    for (quota, added) in snapshot.capacity_quotas.iter().zip(growth).filter(|(_, added)| !added.is_empty()) {
        let mut used = added.clone();
        snapshot.nodes.iter().for_each(|node| used.add(&usage(quota, node)));
        // A quota that was exceeded before is only reported if the plan adds to it.
        let exceeded = quota.limits.iter().filter(|(name, limit)| added.get(name) > 0 && used.get(name) > *limit);
        violations.extend(exceeded.map(|(resource, _)| Violation::QuotaExceeded {
            quota: quota.name.clone(),
            resource: resource.to_owned(),
        }));
    }
}

//! Checks that launches and existing nodes together stay within CapacityQuotas.

use crate::Violation;
use plimsoll_model::requirements::NodeSelectorTerm;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{CapacityQuota, Snapshot};

/// Whether the quota counts a new node, of which `label` returns the labels.
pub(crate) fn selects<'l>(quota: &CapacityQuota, label: impl Fn(&str) -> Option<&'l str>) -> bool {
    let term = NodeSelectorTerm { expressions: quota.selector.clone(), fields: Vec::new() };
    // A term without requirements matches nothing, but a quota without selector counts every node.
    term.expressions.is_empty() || term.matches_node_with("", label)
}

/// Checks each quota. `growth` is what the launches add to each.
pub(crate) fn check(snapshot: &Snapshot, growth: &[Resources], violations: &mut Vec<Violation>) {
    for (quota, added) in snapshot.capacity_quotas.iter().zip(growth).filter(|(_, added)| !added.is_empty()) {
        let mut used = added.clone();
        snapshot.nodes.iter().filter(|node| quota.counts(node)).for_each(|node| used.add(&node.limit_usage));
        // A quota that was exceeded before is only reported if the plan adds to it.
        let exceeded = quota.limits.iter().filter(|(name, limit)| added.get(name) > 0 && used.get(name) > *limit);
        violations.extend(exceeded.map(|(resource, _)| Violation::QuotaExceeded {
            quota: quota.name.clone(),
            resource: resource.to_owned(),
        }));
    }
}

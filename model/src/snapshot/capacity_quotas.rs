//! CapacityQuotas: limits on all nodes that a selector matches, across NodePools.

use super::{LaunchLabels, Node, NodeState};
use crate::catalog::Catalog;
use crate::names::label;
use crate::plan::Launch;
use crate::requirements::{NodeSelectorRequirement, selector_matches};
use crate::resources::Resources;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

const PREFIX: &str = "plimsoll.dev/capacity-quota.";
/// A label that every instance type has, but that hardly any requirement of a claim names.
const TYPE_LABEL: &str = "karpenter.k8s.aws/instance-cpu";

/// A CapacityQuota.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct CapacityQuota {
    /// Key.
    pub name: String,
    /// Requirements on labels of nodes, all of which must hold (In, NotIn, Exists, DoesNotExist). Empty matches all
    /// nodes.
    pub selector: Vec<NodeSelectorRequirement>,
    /// Limits; the resource `nodes` is the number of nodes.
    pub limits: Resources,
}

/// Resource by which a node counts `resource` against the quota `name`. It limits launches across NodePools, like the
/// resources of a NodePool's limits do within one.
#[must_use]
pub fn quota_resource(name: &str, resource: &str) -> String {
    format!("{PREFIX}{name}/{resource}")
}

/// The quota and the resource that a [`quota_resource`] counts, if it is one.
#[must_use]
pub fn quota_of_resource(resource: &str) -> Option<(&str, &str)> {
    // Names of objects contain no slash.
    resource.strip_prefix(PREFIX)?.split_once('/')
}

impl CapacityQuota {
    /// Whether the quota counts a node with these labels. For a requirement on a missing label that may still get a
    /// value, `open` returns whether one of the possible values satisfies it; otherwise `None`.
    pub fn matches<'l>(
        &self,
        value: impl Fn(&str) -> Option<&'l str>,
        open: impl Fn(&NodeSelectorRequirement) -> Option<bool>,
    ) -> bool {
        self.selector.iter().all(|requirement| {
            let value = value(&requirement.key);
            let undecided = if value.is_none() { open(requirement) } else { None };
            undecided.unwrap_or_else(|| selector_matches(requirement, value))
        })
    }

    /// Whether the quota counts a node with these labels, all of which are known.
    #[must_use]
    pub fn matches_labels(&self, labels: &BTreeMap<String, String>) -> bool {
        self.matches(|key| label::lookup(labels, key), |_| None)
    }

    /// Whether the quota counts the node of a claim, of which only the labels `labels` are known. Labels that a launch
    /// decides may get any value until it is done.
    #[must_use]
    pub fn may_match_claim(&self, labels: &BTreeMap<String, String>) -> bool {
        let launched = [TYPE_LABEL, label::INSTANCE_TYPE, label::ZONE, label::CAPACITY_TYPE];
        let is_launched = launched.iter().all(|key| labels.contains_key(*key));
        let open = |requirement: &NodeSelectorRequirement| {
            (!is_launched && label::is_well_known(label::normalized(&requirement.key))).then_some(true)
        };
        self.matches(|key| label::lookup(labels, key), open)
    }

    /// Whether the quota counts the node.
    #[must_use]
    pub fn counts(&self, node: &Node) -> bool {
        match node.state {
            NodeState::InFlight => self.may_match_claim(&node.labels),
            NodeState::Registered | NodeState::Initialized => self.matches_labels(&node.labels),
        }
    }

    /// The limited resources, each with the name of its [`quota_resource`], the resource, and the limit.
    pub fn resources(&self) -> impl Iterator<Item = (String, &str, i64)> {
        self.limits.iter().map(|(resource, limit)| (quota_resource(&self.name, resource), resource, limit))
    }

    /// What `usage` of a counted node adds to the quota, by [`quota_resource`].
    #[must_use]
    pub fn charge(&self, usage: &Resources) -> Resources {
        self.resources().map(|(name, resource, _)| (name, usage.get(resource))).collect()
    }
}

/// What the node counts against `quotas`, by [`quota_resource`]. If its limit usage contains such a resource, a launch
/// has reserved this amount, whatever the labels are.
#[must_use]
pub fn quota_usage(quotas: &[CapacityQuota], node: &Node) -> Resources {
    let mut usage = Resources::new();
    for quota in quotas {
        let counts = quota.counts(node);
        for (name, resource, _) in quota.resources() {
            let amount = match node.limit_usage.contains(&name) {
                true => node.limit_usage.get(&name),
                false if counts => node.limit_usage.get(resource),
                false => continue,
            };
            usage.set(&name, amount);
        }
    }
    usage
}

/// The most that a launch may add to `quotas`, by [`quota_resource`]: of the first `count` offerings that the launch
/// lists, the maximum over those whose node the quota may count.
#[must_use]
pub fn quota_usage_of_launch(quotas: &[CapacityQuota], launch: &Launch, catalog: &Catalog, count: usize) -> Resources {
    let mut usage = Resources::new();
    if quotas.is_empty() {
        return usage;
    }
    for choice in launch.offerings.iter().take(count) {
        let Some((kind, offering)) = catalog.find(choice) else { continue };
        let labels = LaunchLabels { launch, catalog, kind, offering };
        let counts = |quota: &&CapacityQuota| quota.matches(|key| labels.get(key), |one| labels.open(one));
        let counting: Vec<&CapacityQuota> = quotas.iter().filter(counts).collect();
        if !counting.is_empty() {
            let added = kind.limit_usage(offering);
            counting.iter().for_each(|quota| usage.raise_to(&quota.charge(&added)));
        }
    }
    usage
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::requirements::Operator;

    fn quota(key: &str, operator: Operator, values: &[&str]) -> CapacityQuota {
        let selector = vec![NodeSelectorRequirement::new(key, operator, values.iter().copied())];
        CapacityQuota { name: "q".to_owned(), selector, limits: Resources::from([("cpu", 4000), ("nodes", 2)]) }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn names_of_resources_can_be_read_back() {
        let name = quota_resource("team-a.eu", "nvidia.com/gpu");
        assert_eq!(quota_of_resource(&name), Some(("team-a.eu", "nvidia.com/gpu")));
        assert_eq!(quota_of_resource("nvidia.com/gpu"), None);
    }

    #[test]
    fn a_claim_counts_while_its_launch_may_still_choose_the_label() {
        let zone_a = quota(label::ZONE, Operator::In, &["a"]);
        assert!(zone_a.may_match_claim(&labels(&[])));
        assert!(!zone_a.matches_labels(&labels(&[])), "a node without zone");
        assert!(!zone_a.may_match_claim(&labels(&[(label::ZONE, "b")])));
        let team = quota("team", Operator::In, &["a"]);
        assert!(!team.may_match_claim(&labels(&[])), "no launch adds the label");
        assert!(team.may_match_claim(&labels(&[("team", "a")])));
        let launched = labels(&[
            (TYPE_LABEL, "4"),
            (label::INSTANCE_TYPE, "m5.xlarge"),
            (label::ZONE, "a"),
            (label::CAPACITY_TYPE, "spot"),
        ]);
        let gpus = quota("karpenter.k8s.aws/instance-gpu-name", Operator::Exists, &[]);
        assert!(gpus.may_match_claim(&labels(&[])) && !gpus.may_match_claim(&launched));
    }

    #[test]
    fn the_charge_has_only_limited_resources() {
        let charge =
            quota("team", Operator::Exists, &[]).charge(&Resources::from([("cpu", 2000), ("memory", 7), ("nodes", 1)]));
        let expected = [("plimsoll.dev/capacity-quota.q/cpu", 2000), ("plimsoll.dev/capacity-quota.q/nodes", 1)];
        assert_eq!(charge, Resources::from(expected));
    }
}

//! Counts of running and assigned pods per topology group.

use super::{Group, GroupKind, Rules};
use crate::input::context::SolveContext;
use crate::input::pool_requirements::lookup;
use crate::place::hostname_topology::HostRule;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::{Node, Pod, PodShape};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Members and owners of a group by domain.
type Domains = BTreeMap<String, (i64, i64)>;

/// Pod counts of all groups.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Copy-on-write: a plan tries many alternatives, each of which changes few groups.
    domains: IndexVec<Group, Arc<Domains>>,
    /// Members on any host.
    pub(super) hosts: IndexVec<HostRule, i64>,
}

/// Contribution of one node's pods to the counts.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct PodMarks {
    /// Members and owners by group and domain.
    domains: BTreeMap<(Id<Group>, String), (i64, i64)>,
    /// Members by hostname group.
    hosts: BTreeMap<Id<HostRule>, i64>,
}

impl PodMarks {
    /// Marks of `pods`, the number of pods per shape on `node`.
    pub(crate) fn new(rules: &Rules, node: &Node, pods: &BTreeMap<Id<PodShape>, i64>) -> Self {
        let mut marks = Self::default();
        for (shape, count) in pods {
            each(rules, *shape, Some(node), |group, owner| {
                if let Some(domain) = lookup(&node.labels, &rules.groups[group].key) {
                    let entry = marks.domains.entry((group, domain.to_owned())).or_default();
                    *(if owner { &mut entry.1 } else { &mut entry.0 }) += count;
                }
            });
            for group in &rules.hosts[*shape].matches {
                *marks.hosts.entry(*group).or_default() += count;
            }
        }
        marks
    }
}

/// Calls `note` for each domain group that counts a pod of `shape`, with `false` for a member and `true` for an owner.
/// The pod is on `node`, or on a new node if `node` is `None`.
fn each(rules: &Rules, shape: Id<PodShape>, node: Option<&Node>, mut note: impl FnMut(Id<Group>, bool)) {
    let membership = &rules.shapes[shape];
    for (groups, owner) in [(&membership.matches, false), (&membership.owns, true)] {
        for group in groups {
            let counted = match (&rules.groups[*group].kind, node) {
                // The spread of a running pod does not restrict pods that come later.
                (GroupKind::TopologySpread { .. }, Some(_)) if owner => false,
                (GroupKind::TopologySpread { nodes, .. }, Some(node)) => nodes.passes(node),
                _ => !rules.uncounted.contains(&(shape, *group)),
            };
            if counted {
                note(*group, owner);
            }
        }
    }
}

impl Counts {
    pub(crate) fn new(rules: &Rules) -> Self {
        Self {
            domains: IndexVec::filled(Arc::default(), rules.groups.len()),
            hosts: IndexVec::filled(0, rules.host_rules.len()),
        }
    }

    /// Adds `marks`, or subtracts them if `times` is -1.
    pub(crate) fn join(&mut self, marks: &PodMarks, times: i64) {
        for ((group, domain), (members, owners)) in &marks.domains {
            self.change(*group, domain, (members * times, owners * times));
        }
        for (group, members) in &marks.hosts {
            self.hosts[*group] += members * times;
        }
    }

    fn change(&mut self, group: Id<Group>, domain: &str, (members, owners): (i64, i64)) {
        let domains = Arc::make_mut(&mut self.domains[group]);
        if !domains.contains_key(domain) {
            domains.insert(domain.to_owned(), (0, 0));
        }
        if let Some(entry) = domains.get_mut(domain) {
            *entry = (entry.0 + members, entry.1 + owners);
            if *entry == (0, 0) {
                domains.remove(domain);
            }
        }
    }

    /// Subtracts a pod that leaves its node. Ignores terminating pods.
    pub(crate) fn leave(&mut self, context: &SolveContext<'_>, pod: &Pod, node: Id<Node>) {
        let Some(shape) = context.shape_of(pod).filter(|_| !pod.terminating) else { return };
        let node = context.nodes[node].node;
        self.add(context, shape, -1, Some(node), |key| lookup(&node.labels, key));
    }

    /// Adds a pod that is placed on an existing node.
    pub(crate) fn enter(&mut self, context: &SolveContext<'_>, pod: &Pod, node: Id<Node>) {
        let Some(shape) = context.shape_of(pod) else { return };
        let node = context.nodes[node].node;
        self.add(context, shape, 1, Some(node), |key| lookup(&node.labels, key));
    }

    /// Adds `by` pods of `shape` that may go to any domain. Their domain is known only if their node selector names it.
    pub(super) fn add_anywhere(&mut self, context: &SolveContext<'_>, shape: Id<PodShape>, by: i64) {
        let selector = &context.shapes[shape].shape.node_selector;
        self.add(context, shape, by, None, |key| lookup(selector, key));
    }

    /// Adds `by` pods of `shape` to the domain that `domain` returns for each key. The pods are on `node`, or on a new
    /// node if `node` is `None`.
    pub(super) fn add<'d>(
        &mut self,
        context: &SolveContext<'_>,
        shape: Id<PodShape>,
        by: i64,
        node: Option<&Node>,
        domain: impl Fn(&str) -> Option<&'d str>,
    ) {
        let rules: &Rules = &context.topology;
        each(rules, shape, node, |group, owner| {
            if let Some(value) = domain(&rules.groups[group].key) {
                self.change(group, value, if owner { (0, by) } else { (by, 0) });
            }
        });
        for group in &rules.hosts[shape].matches {
            self.hosts[*group] += by;
        }
    }

    /// Members and owners in a domain.
    pub(crate) fn both(&self, group: Id<Group>, domain: &str) -> (i64, i64) {
        self.domains[group].get(domain).copied().unwrap_or_default()
    }

    pub(crate) fn any_member(&self, group: Id<Group>) -> bool {
        self.domains[group].values().any(|count| count.0 > 0)
    }
}

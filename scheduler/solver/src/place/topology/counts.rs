//! Running and assigned pods by group.

use super::{GroupKind, Rules};
use crate::input::context::SolveContext;
use crate::input::pool_requirements::lookup;
use plimsoll_model::snapshot::{Node, Pod};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Members and owners of a group by domain.
type Domains = BTreeMap<String, (i64, i64)>;

/// How many there are.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(crate) struct Counts {
    /// Per group. Shared until they differ: a plan tries many things, each of which concerns few groups.
    domains: Vec<Arc<Domains>>,
    /// Per host group: members on any host.
    pub(super) hosts: Vec<i64>,
}

/// What the pods of one node add to the counts.
#[derive(Debug, PartialEq, Eq, Default)]
pub(crate) struct PodMarks {
    /// By group and domain: members and owners.
    domains: BTreeMap<(usize, String), (i64, i64)>,
    /// Members by host group.
    hosts: BTreeMap<usize, i64>,
}

impl PodMarks {
    /// Of `pods`, by shape, on a node.
    pub(crate) fn new(rules: &Rules, node: &Node, pods: &BTreeMap<usize, i64>) -> Self {
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

/// Calls `note` with each domain group that counts a pod of `shape`, on `node` or else on one to come, as a member or (true) as an owner.
fn each(rules: &Rules, shape: usize, node: Option<&Node>, mut note: impl FnMut(usize, bool)) {
    let membership = &rules.shapes[shape];
    for (groups, owner) in [(&membership.matches, false), (&membership.owns, true)] {
        for group in groups {
            let counted = match (&rules.groups[*group].kind, node) {
                // A pod that runs is past caring how many come.
                (GroupKind::TopologySpread { .. }, Some(_)) if owner => false,
                (GroupKind::TopologySpread { nodes, .. }, Some(node)) => nodes.passes(node),
                _ => !rules.beside.contains(&(shape, *group)),
            };
            if counted {
                note(*group, owner);
            }
        }
    }
}

impl Counts {
    /// Of no pods.
    pub(crate) fn new(rules: &Rules) -> Self {
        Self { domains: vec![Arc::default(); rules.groups.len()], hosts: vec![0; rules.host_rules.len()] }
    }

    /// Adds what `marks` say, or with `times` -1 takes it out.
    pub(crate) fn join(&mut self, marks: &PodMarks, times: i64) {
        for ((group, domain), (members, owners)) in &marks.domains {
            self.change(*group, domain, (members * times, owners * times));
        }
        for (group, members) in &marks.hosts {
            self.hosts[*group] += members * times;
        }
    }

    fn change(&mut self, group: usize, domain: &str, (members, owners): (i64, i64)) {
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

    /// Takes out a pod that leaves its node.
    pub(crate) fn leave(&mut self, context: &SolveContext<'_>, pod: &Pod, node: usize) {
        let Some(shape) = context.shape_of(pod).filter(|_| !pod.terminating) else { return };
        let node = context.nodes[node].node;
        self.note(context, shape, -1, Some(node), |key| lookup(&node.labels, key));
    }

    /// Adds a pod that comes to a node.
    pub(crate) fn enter(&mut self, context: &SolveContext<'_>, pod: &Pod, node: usize) {
        let Some(shape) = context.shape_of(pod) else { return };
        let node = context.nodes[node].node;
        self.note(context, shape, 1, Some(node), |key| lookup(&node.labels, key));
    }

    /// Notes `by` pods of `shape` in the domains that `domain` gives by key.
    pub(super) fn add<'d>(
        &mut self,
        context: &SolveContext<'_>,
        shape: usize,
        by: i64,
        domain: impl Fn(&str) -> Option<&'d str>,
    ) {
        self.note(context, shape, by, None, domain);
    }

    fn note<'d>(
        &mut self,
        context: &SolveContext<'_>,
        shape: usize,
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

    pub(super) fn members(&self, group: usize, domain: &str) -> i64 {
        self.domains[group].get(domain).map_or(0, |count| count.0)
    }

    /// Members and owners.
    pub(super) fn both(&self, group: usize, domain: &str) -> (i64, i64) {
        self.domains[group].get(domain).copied().unwrap_or_default()
    }

    pub(super) fn any_member(&self, group: usize) -> bool {
        self.domains[group].values().any(|count| count.0 > 0)
    }
}

//! Running and assigned pods by group.

use super::Kind;
use crate::facts::lookup;
use crate::world::World;
use plimsoll_model::snapshot::{Node, Pod};
use std::collections::BTreeMap;

/// How many there are.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    /// Per group: members and owners by domain.
    domains: Vec<BTreeMap<String, (i64, i64)>>,
    /// Per host group: members on any host.
    pub(super) hosts: Vec<i64>,
}

impl Counts {
    /// Of the pods that are on nodes.
    pub(crate) fn new(world: &World<'_>) -> Self {
        let topology = &world.topology;
        let mut counts =
            Self { domains: vec![BTreeMap::new(); topology.groups.len()], hosts: vec![0; topology.host_rules.len()] };
        for (node, view) in world.nodes.iter().enumerate() {
            for pod in view.pods.iter().filter(|pod| !pod.terminating) {
                counts.change(world, pod, node, 1);
            }
        }
        counts
    }

    /// Takes out a pod that leaves its node.
    pub(crate) fn leave(&mut self, world: &World<'_>, pod: &Pod, node: usize) {
        if !pod.terminating {
            self.change(world, pod, node, -1);
        }
    }

    fn change(&mut self, world: &World<'_>, pod: &Pod, node: usize, by: i64) {
        let Some(shape) = world.shape_of(pod) else { return };
        let node = world.nodes[node].node;
        self.note(world, shape, by, Some(node), |key| lookup(&node.labels, key));
    }

    /// Notes `by` pods of `shape` in the domains that `domain` gives by key.
    pub(super) fn add<'d>(
        &mut self,
        world: &World<'_>,
        shape: usize,
        by: i64,
        domain: impl Fn(&str) -> Option<&'d str>,
    ) {
        self.note(world, shape, by, None, domain);
    }

    fn note<'d>(
        &mut self,
        world: &World<'_>,
        shape: usize,
        by: i64,
        node: Option<&Node>,
        domain: impl Fn(&str) -> Option<&'d str>,
    ) {
        let topology = &world.topology;
        let membership = &topology.shapes[shape];
        for (groups, owner) in [(&membership.matches, false), (&membership.owns, true)] {
            for group in groups {
                let one = &topology.groups[*group];
                let counted = match (&one.kind, node) {
                    // A pod that runs is past caring how many come.
                    (Kind::Spread { .. }, Some(_)) if owner => false,
                    (Kind::Spread { nodes, .. }, Some(node)) => nodes.passes(node),
                    _ => !topology.beside.contains(&(shape, *group)),
                };
                if let Some(value) = domain(&one.key).filter(|_| counted) {
                    let entry = self.domains[*group].entry(value.to_owned()).or_default();
                    let slot = if owner { &mut entry.1 } else { &mut entry.0 };
                    *slot += by;
                }
            }
        }
        for group in &topology.hosts[shape].matches {
            self.hosts[*group] += by;
        }
    }

    pub(super) fn members(&self, group: usize, domain: &str) -> i64 {
        self.domains[group].get(domain).map_or(0, |count| count.0)
    }

    pub(super) fn owners(&self, group: usize, domain: &str) -> i64 {
        self.domains[group].get(domain).map_or(0, |count| count.1)
    }

    pub(super) fn any_member(&self, group: usize) -> bool {
        self.domains[group].values().any(|count| count.0 > 0)
    }
}

//! Who must, or must not, share a domain (zone, capacity type, host, any label) with whom.
//!
//! Rules about hosts are kept while nodes are filled ([`crate::hosts`]); for all other keys pods are assigned to domains first.

mod assign;
mod cells;

pub(crate) use assign::{assign, place};
use cells::Cell;
pub(crate) use cells::Cells;

use crate::facts::{holds, lookup};
use crate::hosts::{Membership, Rule};
use crate::world::World;
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::snapshot::{LabelSelector, Pod, PodShape};
use std::collections::BTreeMap;

/// What a group asks of the domains of its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Kind {
    /// Members are at most so far apart in number.
    Spread { skew: i64, min_domains: usize, honor_affinity: bool, honor_taints: bool },
    /// Owners and members exclude each other.
    Apart,
    /// Owners go where members are.
    Together,
}

/// A constraint that one or more shapes have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) key: String,
    pub(crate) kind: Kind,
    namespaces: Vec<String>,
    selector: LabelSelector,
}

/// All groups, and what shapes have to do with them.
#[derive(Debug, Default)]
pub(crate) struct Topology {
    /// Of keys other than the host.
    pub(crate) groups: Vec<Group>,
    /// Per shape, by number in `groups`.
    pub(crate) shapes: Vec<Membership>,
    pub(crate) host_rules: Vec<Rule>,
    /// Per shape, by number in `host_rules`.
    pub(crate) hosts: Vec<Membership>,
}

/// Running and assigned pods by group.
#[derive(Debug, Clone, Default)]
pub(crate) struct Counts {
    /// Per group: members and owners by domain.
    domains: Vec<BTreeMap<String, (i64, i64)>>,
    /// Per host group: members on any host.
    hosts: Vec<i64>,
}

impl Topology {
    pub(crate) fn new(shapes: &[PodShape]) -> Self {
        let mut domains: BTreeMap<Group, Vec<usize>> = BTreeMap::new();
        let mut hosts: BTreeMap<Group, Vec<usize>> = BTreeMap::new();
        for (index, shape) in shapes.iter().enumerate() {
            for group in constraints(shape) {
                let map = if group.key == label::HOSTNAME { &mut hosts } else { &mut domains };
                map.entry(group).or_default().push(index);
            }
        }
        let host_rules = hosts
            .keys()
            .map(|group| match group.kind {
                Kind::Spread { skew, .. } => Rule::Most(usize::try_from(skew).unwrap_or(1)),
                Kind::Apart => Rule::Apart,
                Kind::Together => Rule::Together,
            })
            .collect();
        Self {
            shapes: memberships(&domains, shapes),
            groups: domains.into_keys().collect(),
            host_rules,
            hosts: memberships(&hosts, shapes),
        }
    }

    /// Whether pods of that shape are to be assigned before they are placed.
    pub(crate) fn concerns(&self, shape: usize) -> bool {
        !self.relevant(shape).is_empty() || self.joins(shape).next().is_some()
    }

    /// Domain groups that bind a shape: its own, and those whose owners it must avoid.
    fn relevant(&self, shape: usize) -> Vec<usize> {
        let membership = &self.shapes[shape];
        let avoided = membership.matches.iter().copied().filter(|group| self.groups[*group].kind == Kind::Apart);
        let mut all: Vec<usize> = membership.owns.iter().copied().chain(avoided).collect();
        all.sort_unstable();
        all.dedup();
        all
    }

    /// Host groups by which a shape goes where others are.
    fn joins(&self, shape: usize) -> impl Iterator<Item = usize> + '_ {
        self.hosts[shape].owns.iter().copied().filter(|group| self.host_rules[*group] == Rule::Together)
    }
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
        let labels = &world.nodes[node].node.labels;
        self.add(world, shape, by, |key| lookup(labels, key));
    }

    /// Notes `by` pods of `shape` in the domains that `domain` gives by key.
    fn add<'d>(&mut self, world: &World<'_>, shape: usize, by: i64, domain: impl Fn(&str) -> Option<&'d str>) {
        let membership = &world.topology.shapes[shape];
        for (groups, owner) in [(&membership.matches, false), (&membership.owns, true)] {
            for group in groups {
                if let Some(value) = domain(&world.topology.groups[*group].key) {
                    let entry = self.domains[*group].entry(value.to_owned()).or_default();
                    let slot = if owner { &mut entry.1 } else { &mut entry.0 };
                    *slot += by;
                }
            }
        }
        for group in &world.topology.hosts[shape].matches {
            self.hosts[*group] += by;
        }
    }

    fn members(&self, group: usize, domain: &str) -> i64 {
        self.domains[group].get(domain).map_or(0, |count| count.0)
    }

    fn owners(&self, group: usize, domain: &str) -> i64 {
        self.domains[group].get(domain).map_or(0, |count| count.1)
    }

    fn any_member(&self, group: usize) -> bool {
        self.domains[group].values().any(|count| count.0 > 0)
    }
}

/// The required constraints of a shape.
fn constraints(shape: &PodShape) -> Vec<Group> {
    let spread = shape.topology_spread.iter().filter(|one| one.required).filter_map(|one| {
        Some(Group {
            key: label::normalized(&one.topology_key).to_owned(),
            kind: Kind::Spread {
                skew: i64::from(one.max_skew.max(1)),
                min_domains: one.min_domains.and_then(|least| usize::try_from(least).ok()).unwrap_or(1),
                honor_affinity: one.honor_node_affinity,
                honor_taints: one.honor_node_taints,
            },
            namespaces: vec![shape.namespace.clone()],
            selector: one.selector.clone()?,
        })
    });
    let affinity = shape.pod_affinity.iter().filter(|one| one.weight.is_none()).filter_map(|one| {
        // A term that selects nothing keeps nobody away, but nobody can be near it either.
        let selector = one.selector.clone().or_else(|| (!one.anti).then(nothing))?;
        Some(Group {
            key: label::normalized(&one.topology_key).to_owned(),
            kind: if one.anti { Kind::Apart } else { Kind::Together },
            namespaces: one.namespaces.clone(),
            selector,
        })
    });
    spread.chain(affinity).collect()
}

/// A selector that no labels match.
fn nothing() -> LabelSelector {
    let requirement =
        |operator| NodeSelectorRequirement { key: "nothing".into(), operator, values: Vec::new(), min_values: None };
    LabelSelector {
        match_labels: BTreeMap::new(),
        match_expressions: vec![requirement(Operator::Exists), requirement(Operator::DoesNotExist)],
    }
}

fn memberships(groups: &BTreeMap<Group, Vec<usize>>, shapes: &[PodShape]) -> Vec<Membership> {
    let mut all = vec![Membership::default(); shapes.len()];
    for (number, (group, owners)) in groups.iter().enumerate() {
        for (index, shape) in shapes.iter().enumerate() {
            if group.namespaces.contains(&shape.namespace) && selects(&group.selector, &shape.labels) {
                all[index].matches.push(number);
            }
        }
        for index in owners {
            if !all[*index].owns.contains(&number) {
                all[*index].owns.push(number);
            }
        }
    }
    all
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(|one| holds(one, labels.get(&one.key).map(String::as_str)))
}

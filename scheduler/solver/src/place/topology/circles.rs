//! Circles: workloads that need each other, some of them on the same host.
//!
//! Pods with affinity are assigned to domains after pods that they need, and kube-scheduler can bind them in the same
//! order. Which pods share a host is known only when nodes are filled, and a pod may follow one to its host that is
//! assigned later. If that pod needed the other in turn, neither could be bound first. Therefore, pods of a circle that
//! others may follow to their hosts are not assigned after these.

use super::{Group, GroupKind, Rules};
use crate::place::hostname_topology::HostRule;
use crate::place::relaxation::RelaxationLevels;
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::PodShape;
use std::collections::{BTreeMap, BTreeSet};

/// A group of required pod affinity.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Affinity {
    Domain(Id<Group>),
    Host(Id<HostRule>),
}

/// By group, the groups that its members own.
type Needs = BTreeMap<Affinity, BTreeSet<Affinity>>;

/// Groups of circles over both hosts and other domains, each with a group that stands for its circle. Circles over
/// hosts alone need no care: a node gets pods that follow others after these. Neither do hostname groups whose members
/// follow each other: the first member on a host runs already or starts the group.
#[derive(Debug, Default)]
pub(super) struct Circles(BTreeMap<Affinity, Affinity>);

impl Circles {
    /// The circles of all pods, whatever they prefer.
    pub(super) fn new(rules: &Rules, relaxation: &RelaxationLevels) -> Self {
        let (mut needs, mut needed_by) = (Needs::new(), Needs::new());
        // Groups that pods with affinity match without owning them.
        let mut open: BTreeSet<Affinity> = BTreeSet::new();
        for shape in rules.shapes.ids().filter(|shape| relaxation.is_required_only(*shape)) {
            let owns: Vec<Affinity> = rules.affinities(shape).collect();
            for group in rules.affinities_to(shape).filter(|_| !owns.is_empty()) {
                needs.entry(group).or_default().extend(&owns);
                open.extend((!owns.contains(&group)).then_some(group));
                for own in &owns {
                    needed_by.entry(*own).or_default().insert(group);
                }
            }
        }
        let mut circles = Self::default();
        let is_domain = |group: &Affinity| matches!(group, Affinity::Domain(_));
        for group in open.iter().filter(|group| !is_domain(group)) {
            if circles.0.contains_key(group) {
                continue;
            }
            let after = reachable(&needs, *group);
            if !after.contains(group) || !after.iter().any(is_domain) {
                continue;
            }
            let circle: BTreeSet<Affinity> = &after & &reachable(&needed_by, *group);
            if circle.iter().any(is_domain) {
                let relevant = circle.into_iter().filter(|one| is_domain(one) || open.contains(one));
                circles.0.extend(relevant.map(|one| (one, *group)));
            }
        }
        circles
    }
}

/// Groups that `from` leads to. Includes `from` itself only if it is part of a circle.
fn reachable(needs: &Needs, from: Affinity) -> BTreeSet<Affinity> {
    let mut found = BTreeSet::new();
    let mut next = vec![from];
    // Each group is added once.
    while let Some(one) = next.pop() {
        next.extend(needs.get(&one).into_iter().flatten().filter(|to| found.insert(**to)));
    }
    found
}

impl Rules {
    /// Affinity groups that `shape` owns.
    fn affinities(&self, shape: Id<PodShape>) -> impl Iterator<Item = Affinity> + '_ {
        let owns = self.shapes[shape].owns.iter().copied().filter(|group| self.is_affinity(*group));
        owns.map(Affinity::Domain).chain(self.host_affinities(shape).map(Affinity::Host))
    }

    /// Affinity groups that pods of `shape` match.
    fn affinities_to(&self, shape: Id<PodShape>) -> impl Iterator<Item = Affinity> + '_ {
        let matches = self.shapes[shape].matches.iter().copied().filter(|group| self.is_affinity(*group));
        let hosts = self.hosts[shape].matches.iter().copied();
        let hosts = hosts.filter(|group| self.host_rules[*group] == HostRule::NeedsMember);
        matches.map(Affinity::Domain).chain(hosts.map(Affinity::Host))
    }

    fn is_affinity(&self, group: Id<Group>) -> bool {
        self.groups[group].kind == GroupKind::PodAffinity
    }

    /// Hostname groups of circles that `shape` owns.
    pub(super) fn hosts_in_circles(&self, shape: Id<PodShape>) -> impl Iterator<Item = Id<HostRule>> + '_ {
        self.host_affinities(shape).filter(|group| self.circles.0.contains_key(&Affinity::Host(*group)))
    }

    /// Whether pods of `shape` must not be assigned any more: owners of the hostname groups `followed` are assigned
    /// already. They may follow pods of `shape` to their hosts, and these may need the owners. Pods that own the group
    /// themselves follow as the others do.
    pub(super) fn closes_circle(&self, shape: Id<PodShape>, followed: &BTreeSet<Id<HostRule>>) -> bool {
        let circle = |group: Affinity| self.circles.0.get(&group);
        let hosts = &self.hosts[shape];
        let mut led = hosts.matches.iter().filter(|group| followed.contains(group) && !hosts.owns.contains(group));
        led.any(|group| {
            let followed = circle(Affinity::Host(*group));
            followed.is_some() && self.affinities(shape).any(|own| circle(own) == followed)
        })
    }
}

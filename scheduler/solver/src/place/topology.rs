//! Topology rules: which pods must, or must not, share a domain (zone, capacity type, hostname, any label).
//!
//! The solver enforces hostname rules while it fills nodes ([`crate::place::hostname_topology`]). For every other key
//! it assigns pods to domains before it places them.

mod assign;
mod circles;
mod counts;
mod domain_tuples;
mod explain;
mod group_constraint;
mod groups;
mod place_assigned;
mod uneven;

pub(crate) use assign::assign;
pub(crate) use counts::{Counts, PodMarks};
pub(crate) use domain_tuples::{DomainTupleCache, DomainTuples, eligible, restriction};
pub(crate) use explain::{assigns, explain, left_text, open_nodes, open_offerings};
pub(crate) use groups::{Group, GroupKind, NodeFilter, constraints};
pub(crate) use place_assigned::place;
pub(crate) use uneven::{restrict, uneven};

use crate::input::intern::Bits;
use crate::input::offerings::PoolView;
use crate::input::solve_index::ShapeData;
use crate::place::hostname_topology::{HostRule, Membership};
use crate::place::relaxation::RelaxationLevels;
use circles::Circles;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{NodePool, PodShape};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::ops::Deref;
use std::sync::Arc;

/// All topology groups and the membership of each shape in them.
#[derive(Debug, Default)]
pub(crate) struct Rules {
    /// Groups over keys other than the hostname.
    pub(crate) groups: IndexVec<Group, Arc<Group>>,
    /// Membership in `groups`.
    pub(crate) shapes: IndexVec<PodShape, Membership<Group>>,
    pub(crate) host_rules: IndexVec<HostRule, HostRule>,
    host_groups: IndexVec<HostRule, Arc<Group>>,
    /// Whether no shape is a member, per group, then per hostname group.
    has_no_members: Vec<bool>,
    /// Membership in `host_rules`.
    pub(crate) hosts: IndexVec<PodShape, Membership<HostRule>>,
    /// Pairs of a shape and a spread group that selects but does not constrain the shape, where none of the shape's
    /// offerings passes the spread's node filter. The spread never counts such pods on new nodes.
    uncounted: BTreeSet<(Id<PodShape>, Id<Group>)>,
    /// PodAffinity groups over keys other than the hostname, with the base shapes of their owners.
    seekers: Vec<(Id<Group>, BTreeSet<Id<PodShape>>)>,
    /// Spread groups that also count pods that they do not constrain.
    pub(crate) mixed: BTreeSet<Id<Group>>,
    /// No pod's placement depends on how many pods of a shape are placed, provided that at least one is.
    is_count_independent: IndexVec<PodShape, bool>,
    circles: Circles,
}

/// Topology rules with the settings of one plan.
#[derive(Debug)]
pub(crate) struct Topology<'a> {
    rules: &'a Rules,
    /// PodAffinity groups with owners among the pending pods.
    pub(crate) sought: BTreeSet<Id<Group>>,
    /// Spread groups whose unconstrained members are also assigned to domains.
    pub(crate) assigned_spreads: BTreeSet<Id<Group>>,
    /// Whether pods with several spreads are assigned to the domain tuple with the fewest pods instead of the cheapest.
    /// Wherever kube-scheduler then puts some of these pods, the other domains have capacity for the rest.
    pub(crate) evenly: bool,
}

impl Deref for Topology<'_> {
    type Target = Rules;

    fn deref(&self) -> &Rules {
        self.rules
    }
}

impl Rules {
    /// `data` is the derived data of each shape, including its groups.
    pub(crate) fn new(
        shapes: &IndexVec<PodShape, &PodShape>,
        data: &IndexVec<PodShape, ShapeData>,
        relaxation: &RelaxationLevels,
    ) -> Self {
        let mut domains = Owners::new();
        let mut hosts = Owners::new();
        for (shape, data) in data.iter_enumerated() {
            for group in &data.groups {
                let map = if group.key == label::HOSTNAME { &mut hosts } else { &mut domains };
                map.entry(Arc::clone(group)).or_default().push(shape);
            }
        }
        let host_rules = hosts
            .keys()
            .map(|group| match group.kind {
                GroupKind::TopologySpread { skew, .. } => HostRule::MaxMembers(usize::try_from(skew).unwrap_or(1)),
                GroupKind::PodAntiAffinity { mutual: true } => HostRule::Exclusive,
                GroupKind::PodAntiAffinity { mutual: false } => HostRule::AvoidMembers,
                GroupKind::PodAffinity => HostRule::NeedsMember,
            })
            .collect();
        let seekers = domains.iter().enumerate().filter(|(_, (group, _))| group.kind == GroupKind::PodAffinity);
        let seekers = seekers
            .map(|(number, (_, owners))| {
                (Id::new(number), owners.iter().map(|owner| relaxation.base(*owner)).collect())
            })
            .collect();
        let (shapes_of, mut has_no_members) = memberships(&domains, shapes);
        let (hosts_of, hosts_have_no_members) = memberships(&hosts, shapes);
        has_no_members.extend(hosts_have_no_members);
        let groups: IndexVec<Group, (&Group, &Vec<Id<PodShape>>)> =
            domains.iter().map(|(group, owners)| (group.as_ref(), owners)).collect();
        let is_count_independent = shapes_of.iter_enumerated().map(|(shape, membership)| {
            let own = |owner: &Id<PodShape>| relaxation.base(*owner) == relaxation.base(shape);
            let tolerates_count_change = |group: &Id<Group>| match groups[*group] {
                (Group { kind: GroupKind::TopologySpread { .. }, .. }, _) => false,
                (Group { kind: GroupKind::PodAntiAffinity { .. }, .. }, _) => true,
                (Group { kind: GroupKind::PodAffinity, .. }, owners) => owners.iter().all(own),
            };
            membership.matches.iter().all(tolerates_count_change)
                && !membership
                    .owns
                    .iter()
                    .any(|group| matches!(groups[*group].0.kind, GroupKind::TopologySpread { .. }))
        });
        let required_only = |shape: &Id<PodShape>| relaxation.is_required_only(*shape);
        let planned = shapes_of.iter_enumerated().filter(|(shape, _)| required_only(shape));
        let counted_only =
            planned.flat_map(|(_, one)| one.matches.iter().filter(|group| !one.owns.contains(group)).copied());
        let counted_only: BTreeSet<Id<Group>> = counted_only.collect();
        let mixed = counted_only.into_iter().filter(|number| {
            let (group, owners) = groups[*number];
            matches!(group.kind, GroupKind::TopologySpread { .. }) && owners.iter().any(required_only)
        });
        let mut rules = Self {
            mixed: mixed.collect(),
            is_count_independent: is_count_independent.collect(),
            seekers,
            shapes: shapes_of,
            groups: domains.into_keys().collect(),
            host_rules,
            hosts: hosts_of,
            host_groups: hosts.into_keys().collect(),
            has_no_members,
            uncounted: BTreeSet::new(),
            circles: Circles::default(),
        };
        rules.circles = Circles::new(&rules, relaxation);
        rules
    }

    /// Computes `uncounted`: the pods that a spread does not count on any new node.
    pub(crate) fn compute_uncounted(
        &mut self,
        pools: &IndexVec<NodePool, PoolView<'_>>,
        shapes: &IndexVec<PodShape, ShapeData>,
        relaxation: &RelaxationLevels,
    ) {
        // Only members that the spread does not constrain.
        let mut members: IndexVec<Group, Vec<Id<PodShape>>> = IndexVec::filled(Vec::new(), self.groups.len());
        for (shape, membership) in self.shapes.iter_enumerated() {
            let owns = &self.shapes[relaxation.base(shape)].owns;
            let counted_only = membership.matches.iter().filter(|group| !owns.contains(group));
            counted_only.for_each(|group| members[*group].push(shape));
        }
        for (number, group) in self.groups.iter_enumerated() {
            let GroupKind::TopologySpread { nodes, .. } = &group.kind else { continue };
            if nodes.is_all() || members[number].is_empty() {
                continue;
            }
            let passing: Vec<Bits<Offering>> =
                pools.iter().map(|pool| pool.any_of(&nodes.alternatives(pool))).collect();
            for index in members[number].iter().copied() {
                let fits = shapes[index].fits.iter().zip(&passing);
                let mut meeting = fits.filter(|(fits, passing)| fits.iter().any(|one| one.offerings.meets(passing)));
                if meeting.next().is_none() {
                    self.uncounted.insert((index, number));
                }
            }
        }
    }

    /// Whether the groups equal those of `other`. They determine the cached data of nodes and their pods, whatever
    /// other shapes exist.
    pub(crate) fn has_groups_of(&self, other: &Self) -> bool {
        self.groups == other.groups
            && self.host_groups == other.host_groups
            && self.has_no_members == other.has_no_members
    }

    /// Whether pods of `shape` require a host with members of a PodAffinity group.
    pub(crate) fn seeks_host(&self, shape: Id<PodShape>) -> bool {
        self.host_affinities(shape).next().is_some()
    }

    /// Whether pods of `shape` follow others to their hosts that may need them in turn.
    pub(crate) fn follows_in_circle(&self, shape: Id<PodShape>) -> bool {
        self.hosts_in_circles(shape).next().is_some()
    }

    /// Whether a pod matches all required affinity terms of `shape`, of which `group` is one, and runs on a node with
    /// the label of at least one of these terms. kube-scheduler then accepts no first pod in another domain, even if no
    /// domain of another term has such a pod.
    fn is_started(&self, counts: &Counts, shape: Id<PodShape>, group: &Group) -> bool {
        let is_term = |other: &Group| other.kind == GroupKind::PodAffinity && other.has_members_of(group);
        let mut domains = self.shapes[shape].owns.iter();
        domains.any(|other| is_term(&self.groups[*other]) && counts.any_member(*other))
            || self.host_affinities(shape).any(|other| is_term(&self.host_groups[other]) && counts.hosts[other] > 0)
    }

    /// Hostname PodAffinity groups that `shape` owns.
    fn host_affinities(&self, shape: Id<PodShape>) -> impl Iterator<Item = Id<HostRule>> + '_ {
        self.hosts[shape].owns.iter().copied().filter(|group| self.host_rules[*group] == HostRule::NeedsMember)
    }
}

impl<'a> Topology<'a> {
    /// `waiting` holds the shapes of the pending pods.
    pub(crate) fn new(rules: &'a Rules, waiting: &BTreeSet<Id<PodShape>>) -> Self {
        let sought = rules.seekers.iter().filter(|(_, owners)| !owners.is_disjoint(waiting));
        Self {
            rules,
            sought: sought.map(|(number, _)| *number).collect(),
            assigned_spreads: BTreeSet::new(),
            evenly: false,
        }
    }

    /// Whether pods of `shape` are assigned to domains, or to a host with other pods, before they are placed.
    pub(crate) fn concerns(&self, shape: Id<PodShape>) -> bool {
        !self.relevant(shape).is_empty() || self.seeks_host(shape)
    }

    /// Whether pods of `shape` are assigned to domains only because the spreads of other pods count them.
    pub(crate) fn is_assigned_for_others(&self, shape: Id<PodShape>) -> bool {
        let membership = &self.shapes[shape];
        membership.matches.iter().any(|group| self.assigned_spreads.contains(group) && !membership.owns.contains(group))
    }

    /// Domain groups that matter for the domain of a pod of `shape`: groups that the shape owns, mutual anti-affinity
    /// groups that select it, and groups that must know the pod's domain because of other pods (PodAffinity of pending
    /// pods and `assigned_spreads`).
    fn relevant(&self, shape: Id<PodShape>) -> Vec<Id<Group>> {
        let membership = &self.shapes[shape];
        let binds = |group: &Id<Group>| {
            self.groups[*group].kind == GroupKind::PodAntiAffinity { mutual: true }
                || self.sought.contains(group)
                || self.assigned_spreads.contains(group)
        };
        let avoided = membership.matches.iter().copied().filter(binds);
        let mut all: Vec<Id<Group>> = membership.owns.iter().copied().chain(avoided).collect();
        all.sort_unstable();
        all.dedup();
        all
    }
}

/// Groups with the shapes that own them.
type Owners = BTreeMap<Arc<Group>, Vec<Id<PodShape>>>;

/// Returns the membership of each shape and, per group, whether it has no member.
fn memberships<G>(
    groups: &Owners,
    shapes: &IndexVec<PodShape, &PodShape>,
) -> (IndexVec<PodShape, Membership<G>>, Vec<bool>) {
    let mut without = Vec::with_capacity(groups.len());
    let none = |_: &&PodShape| Membership { owns: Vec::new(), matches: Vec::new() };
    let mut all: IndexVec<PodShape, Membership<G>> = shapes.iter().map(none).collect();
    // Most selectors name labels. Only shapes with the rarest of these labels need a check. The map serves lookups
    // only; iterating over it would not be deterministic.
    let named = groups.keys().flat_map(|group| group.labels());
    let mut labelled: HashMap<(&str, &str), Vec<Id<PodShape>>> = named.map(|label| (label, Vec::new())).collect();
    for (index, shape) in shapes.iter_enumerated() {
        for (key, value) in &shape.labels {
            if let Some(all) = labelled.get_mut(&(key.as_str(), value.as_str())) {
                all.push(index);
            }
        }
    }
    let all_shapes: Vec<Id<PodShape>> = shapes.ids().collect();
    for (number, (group, owners)) in groups.iter().enumerate() {
        let number = Id::new(number);
        let named = group.labels().map(|label| labelled.get(&label).map_or(&[][..], Vec::as_slice));
        let candidates = named.min_by_key(|some| some.len()).unwrap_or(&all_shapes);
        let mut has_no_members = true;
        for index in candidates.iter().copied().filter(|index| group.selects(shapes[*index])) {
            all[index].matches.push(number);
            has_no_members = false;
        }
        without.push(has_no_members);
        // An anti-affinity group without members does not restrict its owners.
        let no_effect = has_no_members && matches!(group.kind, GroupKind::PodAntiAffinity { .. });
        for index in owners.iter().filter(|_| !no_effect) {
            if !all[*index].owns.contains(&number) {
                all[*index].owns.push(number);
            }
        }
    }
    (all, without)
}

//! Spreads whose selector counts pods that they do not constrain.
//!
//! The solver places such pods freely at first. The order in which kube-scheduler schedules pods is unknown, so a
//! constrained pod may find its domain too full. In this case, the solver also assigns the unconstrained pods to
//! domains. It takes for granted that the spread counts these pods. Launches of which the spread counts only some
//! offerings are finally restricted to these.

use super::groups::NodeFilter;
use super::{Counts, Group, GroupKind};
use crate::input::context::SolveContext;
use crate::input::custom_labels::{LabelValues, Narrowed, combine};
use crate::input::intern::Bits;
use crate::input::offerings::Alternative;
use crate::input::pool_requirements::lookup;
use crate::place::Placed;
use crate::place::draft::{Draft, Spare};
use crate::place::launch;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::{NodePool, PodShape};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Placed pods of one spread by domain.
#[derive(Default)]
struct Tallies<'p> {
    /// Members that are certain to be counted in the domain.
    sure: BTreeMap<&'p str, i64>,
    /// Members that may be counted in the domain.
    maybe: BTreeMap<&'p str, i64>,
    /// Domains with placed pods that the spread constrains.
    bound: BTreeSet<&'p str>,
}

/// What a spread counts of a launch.
struct Counted {
    /// Possible domains of the launch if the spread counts its node.
    domains: BTreeSet<String>,
    /// Whether the spread counts the node whatever offering is launched.
    always: bool,
    /// The offerings and custom labels with which the spread counts the node. `None` if it never does.
    restriction: Option<(Bits<Offering>, Narrowed)>,
}

/// Spread groups that `placed` may violate once all its pods run. `before` holds the counts before placing.
pub(crate) fn uneven(context: &SolveContext<'_>, before: &Counts, placed: &Placed<'_>) -> BTreeSet<Id<Group>> {
    let topology = &context.topology;
    // Groups share a handful of keys and node filters.
    let mut known: BTreeMap<(&str, &NodeFilter), Vec<Counted>> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for group in topology.mixed.difference(&topology.assigned_spreads).copied() {
        let one = &topology.groups[group];
        let GroupKind::TopologySpread { nodes, .. } = &one.kind else { continue };
        let counted = known.entry((&one.key, nodes)).or_insert_with(|| counted(context, placed, one, nodes));
        if !is_even(context, before, placed, group, counted) {
            found.insert(group);
        }
    }
    found
}

/// Restricts launches with members of a spread that is violated otherwise to offerings on whose nodes the spread counts
/// them. Each member must be assigned to a domain already. Does not change launches whose other offerings are needed
/// for `minValues`.
pub(crate) fn restrict(context: &SolveContext<'_>, before: &Counts, placed: &mut Placed<'_>) {
    let topology = &context.topology;
    for group in topology.mixed.iter().copied() {
        let one = &topology.groups[group];
        let GroupKind::TopologySpread { nodes, .. } = &one.kind else { continue };
        if nodes.is_all() {
            continue;
        }
        let counted = counted(context, placed, one, nodes);
        let sometimes = |one: &Counted| !one.always && one.restriction.is_some();
        if !counted.iter().any(sometimes) || is_even(context, before, placed, group, &counted) {
            continue;
        }
        for (draft, counted) in placed.launches.iter_mut().zip(counted).filter(|(_, counted)| sometimes(counted)) {
            let mut shapes = draft.pod_groups.iter().map(|pod_group| context.relaxation.base(pod_group.shape));
            let has_member = shapes.any(|shape| topology.shapes[shape].matches.contains(&group));
            if let Some((offerings, custom)) = counted.restriction.filter(|_| has_member) {
                draft.restrict(context, &offerings, custom);
            }
        }
    }
}

/// What the spread counts of each launch.
fn counted(context: &SolveContext<'_>, placed: &Placed<'_>, group: &Group, nodes: &NodeFilter) -> Vec<Counted> {
    let alternatives: IndexVec<NodePool, Vec<Alternative>> =
        context.pools.iter().map(|pool| nodes.alternatives(pool)).collect();
    let of_draft = |draft: &Draft<'_>| {
        let mut found = Counted { domains: BTreeSet::new(), always: false, restriction: None };
        let mut cheapest = None;
        for one in &alternatives[draft.pool] {
            let (custom, first) = (combine(&draft.custom, &one.custom), draft.first_of(&one.offerings));
            let Some((custom, first)) = custom.zip(first) else { continue };
            found.always |= custom == draft.custom && draft.offerings.iter().all(|all| one.offerings.has(*all));
            found.domains.extend(domains(context, draft, &custom, &one.offerings, &group.key));
            if cheapest.is_none_or(|known| first < known) {
                (cheapest, found.restriction) = (Some(first), Some((one.offerings.clone(), custom)));
            }
        }
        found
    };
    placed.launches.iter().map(of_draft).collect()
}

/// Values of `key` that the node may have if it is launched with one of `offerings`.
fn domains(
    context: &SolveContext<'_>,
    draft: &Draft<'_>,
    custom: &Narrowed,
    offerings: &Bits<Offering>,
    key: &str,
) -> BTreeSet<String> {
    let pool = &context.pools[draft.pool];
    if pool.custom.has(key) {
        let listed = custom.get(key).and_then(LabelValues::listed);
        return listed.cloned().unwrap_or_else(|| pool.custom.values(key).into_iter().collect());
    }
    let by_value = pool.by_value(key);
    let has = |bits: &Bits<Offering>| draft.offerings.iter().any(|one| offerings.has(*one) && bits.has(*one));
    by_value.iter().filter(|(_, bits)| has(bits)).filter_map(|(value, _)| value.clone()).collect()
}

/// Whether the spread holds whatever offerings are launched. `counted` is what the spread counts of each launch.
fn is_even(
    context: &SolveContext<'_>,
    before: &Counts,
    placed: &Placed<'_>,
    group: Id<Group>,
    counted: &[Counted],
) -> bool {
    let one = &context.topology.groups[group];
    let GroupKind::TopologySpread { skew, min_domains, nodes } = &one.kind else { return true };
    let eligible = context.eligible(group);
    let mut tallies = Tallies::default();
    for (node, pods) in &placed.existing {
        let node = context.nodes[*node].node;
        let domain = lookup(&node.labels, &one.key).filter(|_| nodes.passes(node));
        for shape in pods.iter().filter_map(|pod| context.shape_of(pod)) {
            tallies.note(context, group, (shape, 1), domain.as_slice(), true);
        }
    }
    for (draft, counted) in placed.launches.iter().zip(counted) {
        // Domains that are not eligible do not count.
        let domains = counted.domains.iter().filter_map(|one| eligible.get(one));
        let domains: Vec<&str> = domains.map(String::as_str).collect();
        for pod_group in &draft.pod_groups {
            let pods = (context.relaxation.base(pod_group.shape), pod_group.pods.len());
            tallies.note(context, group, pods, &domains, counted.always);
        }
    }
    let sure = |domain: &str| before.both(group, domain).0 + tallies.sure.get(domain).copied().unwrap_or(0);
    let least = eligible.iter().map(|domain| sure(domain)).min().filter(|_| eligible.len() >= *min_domains);
    let most = |domain: &str| sure(domain) + tallies.maybe.get(domain).copied().unwrap_or(0);
    tallies.bound.iter().all(|domain| most(domain) - least.unwrap_or(0) <= *skew)
}

impl<'p> Tallies<'p> {
    /// Records pods (shape, number) in one of `domains`. `always` tells whether the spread is certain to count them.
    fn note(
        &mut self,
        context: &SolveContext<'_>,
        group: Id<Group>,
        (shape, count): (Id<PodShape>, usize),
        domains: &[&'p str],
        always: bool,
    ) {
        let membership = &context.topology.shapes[shape];
        if membership.matches.contains(&group) {
            let counts = if always && domains.len() == 1 { &mut self.sure } else { &mut self.maybe };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            domains.iter().for_each(|domain| *counts.entry(domain).or_default() += count);
        }
        if membership.owns.contains(&group) {
            self.bound.extend(domains);
        }
    }
}

impl Draft<'_> {
    /// The cheapest listed offering among `offerings`.
    fn first_of(&self, offerings: &Bits<Offering>) -> Option<Id<Offering>> {
        self.offerings.iter().copied().find(|one| offerings.has(*one))
    }

    /// Keeps only `offerings`, with these custom labels, unless `minValues` of the pool needs further offerings.
    fn restrict(&mut self, context: &SolveContext<'_>, offerings: &Bits<Offering>, custom: Narrowed) {
        let view = &context.pools[self.pool];
        let listed = self.offerings.iter().copied().filter(|one| offerings.has(*one));
        let listed = Bits::from_ids(view.offerings.len(), listed);
        let Some(left) = launch::acceptable(view, &listed) else { return };
        (self.offerings, self.custom) = (left, custom);
        if let Some(spare) = &self.spare {
            let (accept, charge) = (spare.accept.and(offerings), spare.charge.clone());
            self.spare = Some(Rc::new(Spare { accept, charge }));
        }
    }
}

//! Spreads whose selector counts pods that they do not constrain.
//!
//! The solver places such pods freely at first. The order in which kube-scheduler schedules pods is unknown, so a
//! constrained pod may find its domain too full. In this case, the solver also assigns the unconstrained pods to
//! domains.

use super::{Counts, Group, GroupKind};
use crate::input::context::SolveContext;
use crate::input::intern::Bits;
use crate::input::pool_requirements::lookup;
use crate::place::Placed;
use crate::place::draft::Draft;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::PodShape;
use std::collections::{BTreeMap, BTreeSet};

/// Placed pods of one spread by domain.
#[derive(Default)]
struct Tallies<'p> {
    /// Members that are certain to be in the domain.
    sure: BTreeMap<&'p str, i64>,
    /// Members that may be in the domain.
    maybe: BTreeMap<&'p str, i64>,
    /// Domains with placed pods that the spread constrains.
    bound: BTreeSet<&'p str>,
}

/// Spread groups that `placed` may violate once all its pods run. `before` holds the counts before placing.
pub(crate) fn uneven(context: &SolveContext<'_>, before: &Counts, placed: &Placed<'_>) -> BTreeSet<Id<Group>> {
    let topology = &context.topology;
    let open = topology.mixed.difference(&topology.strict).copied();
    // Possible domains of each launch by key. Groups share a handful of keys.
    let mut domains: BTreeMap<&str, Vec<BTreeSet<String>>> = BTreeMap::new();
    let mut found = BTreeSet::new();
    for group in open {
        let key = topology.groups[group].key.as_str();
        let of_drafts = || placed.launches.iter().map(|draft| of_draft(context, draft, key)).collect();
        let domains = domains.entry(key).or_insert_with(of_drafts);
        if !is_even(context, before, placed, group, domains) {
            found.insert(group);
        }
    }
    found
}

/// Whether the spread holds wherever the launches are. `launched` holds the possible domains of each launch.
fn is_even(
    context: &SolveContext<'_>,
    before: &Counts,
    placed: &Placed<'_>,
    group: Id<Group>,
    launched: &[BTreeSet<String>],
) -> bool {
    let one = &context.topology.groups[group];
    let GroupKind::TopologySpread { skew, min_domains, nodes } = &one.kind else { return true };
    let eligible = context.eligible(group);
    let mut tallies = Tallies::default();
    for (node, pods) in &placed.existing {
        let node = context.nodes[*node].node;
        let domain = lookup(&node.labels, &one.key).filter(|_| nodes.passes(node));
        for shape in pods.iter().filter_map(|pod| context.shape_of(pod)) {
            tallies.note(context, group, (shape, 1), domain.as_slice());
        }
    }
    for (draft, domains) in placed.launches.iter().zip(launched) {
        // Domains that are not eligible do not count.
        let domains: Vec<&str> = domains.iter().filter_map(|one| eligible.get(one)).map(String::as_str).collect();
        for pod_group in &draft.pod_groups {
            tallies.note(context, group, (context.relaxation.base(pod_group.shape), pod_group.pods.len()), &domains);
        }
    }
    let sure = |domain: &str| before.members(group, domain) + tallies.sure.get(domain).copied().unwrap_or(0);
    let least = eligible.iter().map(|domain| sure(domain)).min().filter(|_| eligible.len() >= *min_domains);
    let most = |domain: &str| sure(domain) + tallies.maybe.get(domain).copied().unwrap_or(0);
    tallies.bound.iter().all(|domain| most(domain) - least.unwrap_or(0) <= *skew)
}

impl<'p> Tallies<'p> {
    /// Records `count` pods of a shape in one of `domains`.
    fn note(
        &mut self,
        context: &SolveContext<'_>,
        group: Id<Group>,
        (shape, count): (Id<PodShape>, usize),
        domains: &[&'p str],
    ) {
        let membership = &context.topology.shapes[shape];
        if membership.matches.contains(&group) && !context.topology.beside.contains(&(shape, group)) {
            let counts = if domains.len() == 1 { &mut self.sure } else { &mut self.maybe };
            let count = i64::try_from(count).unwrap_or(i64::MAX);
            domains.iter().for_each(|domain| *counts.entry(domain).or_default() += count);
        }
        if membership.owns.contains(&group) {
            self.bound.extend(domains);
        }
    }
}

/// Values of `key` that the node may have.
fn of_draft(context: &SolveContext<'_>, draft: &Draft<'_>, key: &str) -> BTreeSet<String> {
    let pool = &context.pools[draft.pool];
    if pool.custom.has(key) {
        let left = draft.custom.get(key).filter(|left| !left.complement);
        return left.map_or_else(|| pool.custom.values(key).into_iter().collect(), |left| left.values.clone());
    }
    let by_value = pool.by_value(key);
    let has = |bits: &Bits<Offering>| draft.offerings.iter().any(|offering| bits.has(*offering));
    by_value.iter().filter(|(_, bits)| has(bits)).filter_map(|(value, _)| value.clone()).collect()
}

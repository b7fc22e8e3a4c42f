//! Explains which topology constraints leave no domain for a shape.

use super::group_constraint::GroupConstraint;
use super::groups::{Group, GroupKind};
use crate::input::context::SolveContext;
use crate::input::intern::Bits;
use crate::input::offerings::PoolView;
use crate::place::State;
use crate::place::hostname_topology::HostRule;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::Id;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{Node, PodShape};
use std::borrow::Borrow;
use std::collections::BTreeSet;

/// Maximum number of domains in a message. The remaining domains are only counted.
const SHOWN: usize = 5;

/// Nodes in domains that permit one more pod of `shape`; `None` if no topology group restricts the shape.
pub(crate) fn open_nodes(context: &SolveContext<'_>, state: &State, shape: Id<PodShape>) -> Option<Bits<Node>> {
    let relevant = context.topology.relevant(shape);
    if relevant.is_empty() {
        return None;
    }
    let tuples = context.tuples(shape);
    let mut open = Bits::none(context.nodes.len());
    let constraints: Vec<GroupConstraint<'_>> =
        relevant.iter().map(|group| GroupConstraint::new(context, state, shape, *group, &tuples)).collect();
    for (index, tuple) in tuples.all.iter_enumerated() {
        if constraints.iter().all(|one| one.permits(index, false)) {
            open.join(&tuple.only.nodes);
        }
    }
    Some(open)
}

/// Of `among`, the offerings in domains that every topology group permits. In contrast to domain tuples, they need not
/// be usable.
pub(crate) fn open_offerings(
    context: &SolveContext<'_>,
    state: &State,
    (view, shape): (&PoolView<'_>, Id<PodShape>),
    among: &Bits<Offering>,
) -> Bits<Offering> {
    let tuples = context.tuples(shape);
    let mut open = among.clone();
    for group in context.topology.relevant(shape) {
        let key = &context.topology.groups[group].key;
        let constraint = GroupConstraint::new(context, state, shape, group, &tuples);
        let permits = |value: &String| constraint.permits_with(state.counts.both(group, value), false);
        let custom = view.custom.values(key);
        let mut permitted = Bits::none(view.offerings.len());
        for (value, with) in view.by_value(key).iter() {
            let is_open = match value {
                Some(value) => permits(value),
                None if custom.is_empty() => constraint.permits_no_label(),
                None => custom.iter().any(permits),
            };
            if is_open {
                permitted.join(with);
            }
        }
        open.keep(&permitted);
    }
    open
}

/// Whether pods of the shape are assigned to domains of this key.
pub(crate) fn assigns(context: &SolveContext<'_>, shape: Id<PodShape>, key: &str) -> bool {
    context.topology.relevant(shape).into_iter().any(|group| context.topology.groups[group].key == key)
}

/// Names the topology constraints of a shape and the domains of `open`, which they leave.
pub(crate) fn left_text(
    context: &SolveContext<'_>,
    (view, shape): (&PoolView<'_>, Id<PodShape>),
    open: &Bits<Offering>,
) -> String {
    let relevant = context.topology.relevant(shape).into_iter();
    let groups: Vec<&Group> = relevant.map(|group| context.topology.groups[group].as_ref()).collect();
    let names: BTreeSet<String> = groups.iter().map(|group| name(group)).collect();
    let names: Vec<String> = names.into_iter().collect();
    let by_value: Vec<_> = groups.iter().map(|group| view.by_value(&group.key)).collect();
    let there = by_value.iter().flat_map(|all| all.iter()).filter(|(_, with)| with.meets(open));
    let values: BTreeSet<&str> = there.filter_map(|(value, _)| value.as_deref()).collect();
    if values.is_empty() {
        return names.join(" and ");
    }
    let leaves = if names.len() == 1 { "leaves" } else { "leave" };
    format!("{} {leaves} only {}", names.join(" and "), listed(values.into_iter()))
}

/// Describes the constraints that each leave no domain. If no single constraint does, names all of them: together they
/// leave no domain, or none with room.
pub(crate) fn explain(context: &SolveContext<'_>, state: &State, shape: Id<PodShape>) -> String {
    let relevant = context.topology.relevant(shape);
    let tuples = context.tuples(shape);
    let none = |group: &Id<Group>| {
        let constraint = GroupConstraint::new(context, state, shape, *group, &tuples);
        !tuples.all.ids().any(|tuple| constraint.permits(tuple, false))
    };
    let mut parts: Vec<String> = relevant
        .iter()
        .filter(|group| none(group))
        .map(|group| {
            let values: BTreeSet<&str> = tuples
                .all
                .iter()
                .filter_map(|tuple| tuple.values.get(&context.topology.groups[*group].key))
                .map(String::as_str)
                .collect();
            domain_text(context, state, shape, *group, &values)
        })
        .collect();
    parts.extend(
        context
            .topology
            .host_affinities(shape)
            .filter(|group| state.counts.hosts[*group] == 0)
            .map(|_| format!("podAffinity over {}: no pod that it is about is on any node", label::HOSTNAME)),
    );
    if !parts.is_empty() {
        return parts.join("; ");
    }
    let mut names: BTreeSet<String> = relevant.iter().map(|group| name(&context.topology.groups[*group])).collect();
    let hosts = &context.topology.hosts[shape];
    let rules = hosts.owns.iter().chain(&hosts.matches).filter_map(|group| {
        let rule = match context.topology.host_rules.try_get(*group)? {
            HostRule::MaxMembers(_) => "topology spread",
            HostRule::Exclusive | HostRule::AvoidMembers => "podAntiAffinity",
            HostRule::NeedsMember => "podAffinity",
        };
        hosts.owns.contains(group).then(|| format!("{rule} over {}", label::HOSTNAME))
    });
    names.extend(rules);
    let names: Vec<String> = names.into_iter().collect();
    if names.is_empty() {
        return format!("running pods keep it away by podAntiAffinity over {}", label::HOSTNAME);
    }
    format!("{} leave{} no domain with room", names.join(" and "), if names.len() == 1 { "s" } else { "" })
}

fn name(group: &Group) -> String {
    let what = match group.kind {
        GroupKind::TopologySpread { .. } => "topology spread",
        GroupKind::PodAntiAffinity { .. } => "podAntiAffinity",
        GroupKind::PodAffinity => "podAffinity",
    };
    format!("{what} over {}", group.key)
}

/// Explains why the group alone leaves no domain.
fn domain_text(
    context: &SolveContext<'_>,
    state: &State,
    shape: Id<PodShape>,
    number: Id<Group>,
    values: &BTreeSet<&str>,
) -> String {
    let group = &context.topology.groups[number];
    let name = name(group);
    if values.is_empty() {
        return format!("{name}: no node that it could run on has that label");
    }
    let listed_values = listed(values.iter().copied());
    match &group.kind {
        GroupKind::TopologySpread { skew, min_domains, .. } => {
            let tuples = context.tuples(shape);
            let eligible = tuples.eligible.get(&number);
            let domains = eligible.map_or(0, |all| all.len());
            let counts =
                eligible.into_iter().flat_map(|all| all.iter()).map(|domain| state.counts.both(number, domain).0);
            let least = counts.min().unwrap_or(0);
            let few = if domains < *min_domains {
                format!("minDomains {min_domains} of which there are {domains}")
            } else {
                format!("the least is {least}")
            };
            let has = values.iter().map(|value| format!("{value} has {}", state.counts.both(number, value).0));
            format!("{name}: maxSkew {skew}, {few}, {}", listed(has))
        }
        GroupKind::PodAntiAffinity { .. } => {
            format!("{name}: every domain has a pod that it must keep away from ({listed_values})")
        }
        GroupKind::PodAffinity => format!("{name}: no pod that it is about is in {listed_values}"),
    }
}

/// The first domains, and the number of the others.
fn listed<Text: Borrow<str>>(domains: impl ExactSizeIterator<Item = Text>) -> String {
    let more = domains.len().saturating_sub(SHOWN);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more domains") };
    domains.take(SHOWN).collect::<Vec<Text>>().join(", ") + &rest
}

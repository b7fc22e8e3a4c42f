//! What of a shape's topology leaves no domain, in words.

use super::asked::Asked;
use super::groups::{Group, Kind};
use crate::hosts::Rule;
use crate::intern::Bits;
use crate::place::State;
use crate::world::World;
use plimsoll_model::names::label;
use std::collections::{BTreeMap, BTreeSet};

/// Domains that are listed before the rest is only counted.
const SHOWN: usize = 5;

/// Nodes in domains that one more pod of `shape` may go to; `None` if there is no such restriction.
pub(crate) fn open_nodes(world: &World<'_>, state: &State, shape: usize) -> Option<Bits> {
    let relevant = world.topology.relevant(shape);
    if relevant.is_empty() {
        return None;
    }
    let cells = world.cells(shape);
    let mut open = Bits::none(world.nodes.len());
    let asked: Vec<Asked<'_>> = relevant.iter().map(|group| Asked::new(world, state, shape, *group, &cells)).collect();
    for (index, cell) in cells.all.iter().enumerate() {
        if asked.iter().all(|one| one.permits(index, false)) {
            open.join(&cell.only.nodes);
        }
    }
    Some(open)
}

/// The constraints that each leave no domain; else all of them, which leave none together, or none with room.
pub(crate) fn explain(world: &World<'_>, state: &State, shape: usize) -> String {
    let relevant = world.topology.relevant(shape);
    let cells = world.cells(shape);
    let none = |group: &usize| {
        let asked = Asked::new(world, state, shape, *group, &cells);
        !(0..cells.all.len()).any(|cell| asked.permits(cell, false))
    };
    let mut parts: Vec<String> = relevant
        .iter()
        .filter(|group| none(group))
        .map(|group| {
            let values: BTreeSet<&str> = cells
                .all
                .iter()
                .filter_map(|cell| cell.values.get(&world.topology.groups[*group].key))
                .map(String::as_str)
                .collect();
            domain_text(world, state, shape, *group, &values)
        })
        .collect();
    parts.extend(
        world
            .topology
            .joins(shape)
            .filter(|group| state.counts.hosts[*group] == 0)
            .map(|_| format!("podAffinity over {}: no pod that it is about is on any node", label::HOSTNAME)),
    );
    if !parts.is_empty() {
        return parts.join("; ");
    }
    let mut names: BTreeSet<String> = relevant.iter().map(|group| name(&world.topology.groups[*group])).collect();
    let hosts = &world.topology.hosts[shape];
    let rules = hosts.owns.iter().chain(&hosts.matches).filter_map(|group| {
        let rule = match world.topology.host_rules.get(*group)? {
            Rule::Most(_) => "topology spread",
            Rule::Apart | Rule::Avoid => "podAntiAffinity",
            Rule::Together => "podAffinity",
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
        Kind::Spread { .. } => "topology spread",
        Kind::Apart { .. } => "podAntiAffinity",
        Kind::Together => "podAffinity",
    };
    format!("{what} over {}", group.key)
}

/// Why the group by itself leaves no domain.
fn domain_text(world: &World<'_>, state: &State, shape: usize, number: usize, values: &BTreeSet<&str>) -> String {
    let group = &world.topology.groups[number];
    let name = name(group);
    if values.is_empty() {
        return format!("{name}: no node that it could run on has that label");
    }
    let counts: BTreeMap<&str, i64> =
        values.iter().map(|value| (*value, state.counts.members(number, value))).collect();
    let shown: Vec<String> = counts.iter().take(SHOWN).map(|(value, count)| format!("{value} has {count}")).collect();
    let more = counts.len().saturating_sub(SHOWN);
    let rest = if more == 0 { String::new() } else { format!(" and {more} more domains") };
    match &group.kind {
        Kind::Spread { skew, min_domains, .. } => {
            let cells = world.cells(shape);
            let eligible = cells.eligible.get(&number);
            let domains = eligible.map_or(0, |all| all.len());
            let counts =
                eligible.into_iter().flat_map(|all| all.iter()).map(|domain| state.counts.members(number, domain));
            let least = counts.min().unwrap_or(0);
            let few = if domains < *min_domains {
                format!("minDomains {min_domains} of which there are {domains}")
            } else {
                format!("the least is {least}")
            };
            format!("{name}: maxSkew {skew}, {few}, {}{rest}", shown.join(", "))
        }
        Kind::Apart { .. } => {
            format!("{name}: every domain has a pod that it must keep away from ({}{rest})", listed(values))
        }
        Kind::Together => format!("{name}: no pod that it is about is in {}{rest}", listed(values)),
    }
}

fn listed(values: &BTreeSet<&str>) -> String {
    values.iter().take(SHOWN).copied().collect::<Vec<&str>>().join(", ")
}

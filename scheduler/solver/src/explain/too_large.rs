//! Describes what pods request in excess of each instance type.

use super::amounts::{at_least, at_most};
use crate::input::context::SolveContext;
use crate::input::intern::Bits;
use crate::input::offerings::PoolView;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::Id;
use plimsoll_model::resources::PODS;

/// Describes why `requests` fit on no offering in `among`.
pub(super) fn text(
    context: &SolveContext<'_>,
    view: &PoolView<'_>,
    among: &Bits<Offering>,
    requests: &[i64],
) -> String {
    if let Some(text) = by_daemon_sets(context, view, among) {
        return text;
    }
    let beside = if view.daemons.is_empty() { "" } else { " after DaemonSets" };
    let possible = || among.iter().filter(|offering| !view.offerings[*offering].is_overfull());
    let asked = || requests.iter().enumerate().filter(|(_, need)| **need > 0);
    let mut parts = Vec::new();
    for (resource, need) in asked() {
        let rooms = possible().filter_map(|offering| view.offerings[offering].room.get(resource));
        let most = rooms.copied().max().unwrap_or(0).max(0);
        let name = context.table.name(resource);
        let mut amounts = among.iter().filter_map(|offering| view.capacity(offering).get(resource));
        if most <= 0 && amounts.all(|amount| *amount <= 0) {
            parts.push(format!(
                "no instance type of the NodePool has {name}; {} {name} requested",
                at_least(name, *need)
            ));
        } else if most < *need {
            let (need, most) = (at_least(name, *need), at_most(name, most));
            parts.push(format!(
                "insufficient {name}: {need} requested, the largest instance type of the NodePool has {most}{beside}"
            ));
        }
    }
    if parts.is_empty() {
        let amount = |(resource, need): (usize, &i64)| {
            let name = context.table.name(resource);
            (name != PODS).then(|| format!("{} {name}", at_least(name, *need)))
        };
        let asked: Vec<String> = asked().filter_map(amount).collect();
        parts.push(format!("no instance type of the NodePool has {} together{beside}", asked.join(", ")));
    }
    parts.join("; ")
}

/// Describes what DaemonSets alone request in excess of each offering in `among`; `None` if some offering has enough
/// for them.
pub(super) fn by_daemon_sets(
    context: &SolveContext<'_>,
    view: &PoolView<'_>,
    among: &Bits<Offering>,
) -> Option<String> {
    if view.daemons.is_empty() || !among.iter().all(|offering| view.offerings[offering].is_overfull()) {
        return None;
    }
    let excess = |resource: usize| {
        let room = |offering: Id<Offering>| view.offerings[offering].room.get(resource).copied().unwrap_or(0);
        if among.iter().any(|offering| room(offering) >= 0) {
            return None;
        }
        let size = |offering: Id<Offering>| {
            let have = *view.types[view.offerings[offering].type_index].allocatable.get(resource)?;
            Some((have, have.saturating_sub(room(offering))))
        };
        let (most, used) = among.iter().filter_map(size).max()?;
        let name = context.table.name(resource);
        let (used, most) = (at_least(name, used), at_most(name, most));
        Some(format!("DaemonSets request {used} {name}, the largest instance type of the NodePool has {most}"))
    };
    let parts: Vec<String> = (0..context.table.len()).filter_map(excess).collect();
    if parts.is_empty() {
        return Some("DaemonSets request more than each instance type of the NodePool has".to_owned());
    }
    Some(parts.join("; "))
}

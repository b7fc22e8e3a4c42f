//! Pod groups that differ in nothing which packing looks at are one item; items of one class differ in what they request alone.

use super::Item;
use crate::input::context::SolveContext;
use crate::input::intern::Bits;
use crate::input::offerings::Alternative;
use crate::place::hostname_topology::{HostRule, Membership, Tally};
use plimsoll_model::snapshot::HostPort;
use std::collections::BTreeMap;

/// Pods per node where nothing but room limits them; far above what any node holds.
const UNLIMITED: usize = usize::MAX >> 16;

/// What pods need beside room.
pub(super) struct Class<'w> {
    /// Where they can run, room not looked at.
    pub(super) any: Bits,
    /// By demand on open labels.
    pub(super) alternatives: Vec<Alternative>,
    /// There is just one demand: none.
    pub(super) plain: bool,
    pub(super) hosts: &'w Membership,
    pub(super) ports: &'w [HostPort],
    /// They come only where others are.
    pub(super) joins: bool,
}

/// Pods of which any may stand for any other.
#[derive(Debug, Clone)]
pub(super) struct Entry {
    pub(super) class: usize,
    /// One that has these requests.
    pub(super) shape: usize,
    pub(super) count: usize,
    pub(super) whole: bool,
    /// The caller's numbers.
    pub(super) pod_groups: Vec<usize>,
    /// In parts of the largest room.
    pub(super) size: f64,
}

impl Class<'_> {
    /// How many pods of the class a node takes at most if it has no others.
    pub(super) fn most_alone(&self, rules: &[HostRule]) -> usize {
        let most = if self.ports.is_empty() { UNLIMITED } else { 1 };
        most.min(Tally::default().limit(rules, self.hosts, true)).max(1)
    }
}

/// What two classes may have in common before their offerings are compared.
type LikenessKey<'w> = (&'w [usize], &'w [usize], &'w [HostPort]);

/// Classes and items of those pod groups that can run in the pool at all.
pub(super) fn grouped<'w>(
    context: &'w SolveContext<'_>,
    pool: usize,
    items: &[Item<'_>],
) -> (Vec<Class<'w>>, Vec<Entry>) {
    let mut classes: Vec<Class<'w>> = Vec::new();
    let mut alike: BTreeMap<LikenessKey<'w>, Vec<usize>> = BTreeMap::new();
    let mut known: BTreeMap<(usize, &'w [i64]), usize> = BTreeMap::new();
    let mut entries: Vec<Entry> = Vec::new();
    for item in items {
        if context.narrowed(item.shape, pool, item.only).is_empty() {
            continue;
        }
        // Without a look at room, or else nearly each size would be a class of its own.
        let alternatives = context.without_capacity(item.shape, pool, item.only);
        let shape = &context.shapes[item.shape];
        let ports = shape.shape.host_ports.as_slice();
        let similar = alike.entry((&shape.hosts.owns, &shape.hosts.matches, ports)).or_default();
        let class = similar.iter().copied().find(|class| classes[*class].alternatives == alternatives);
        let class = class.unwrap_or_else(|| {
            similar.push(classes.len());
            classes.push(new_class(context, item.shape, alternatives));
            classes.len() - 1
        });
        let same = known.get(&(class, shape.requests.as_slice())).filter(|_| !item.whole);
        if let Some(entry) = same {
            entries[*entry].pod_groups.push(item.pod_group);
            entries[*entry].count += item.count;
            continue;
        }
        if !item.whole {
            known.insert((class, shape.requests), entries.len());
        }
        entries.push(Entry {
            class,
            shape: item.shape,
            count: item.count,
            whole: item.whole,
            pod_groups: vec![item.pod_group],
            size: 0.0,
        });
    }
    (classes, entries)
}

fn new_class<'w>(context: &'w SolveContext<'_>, shape: usize, alternatives: Vec<Alternative>) -> Class<'w> {
    let view = &context.shapes[shape];
    let mut any = alternatives[0].offerings.clone();
    alternatives.iter().skip(1).for_each(|one| any.join(&one.offerings));
    Class {
        any,
        plain: alternatives.iter().all(|one| one.custom.is_empty()),
        alternatives,
        hosts: view.hosts,
        ports: &view.shape.host_ports,
        joins: view
            .hosts
            .owns
            .iter()
            .any(|group| context.topology.host_rules.get(*group) == Some(&HostRule::NeedsMember)),
    }
}

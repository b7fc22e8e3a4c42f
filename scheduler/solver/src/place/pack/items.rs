//! Groups pods for packing. Pod groups with the same properties are one item. Items of one class differ only in their
//! requests.

use crate::input::context::SolveContext;
use crate::input::intern::Bits;
use crate::input::offerings::Alternative;
use crate::place::hostname_topology::{HostRule, Membership};
use crate::place::pod_groups::{PodGroup, PodGroupId};
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::{HostPort, NodePool, PodShape};
use std::collections::BTreeMap;

/// Requirements of pods other than resources.
pub(super) struct Class<'w> {
    /// Offerings that can run the pods, regardless of capacity.
    pub(super) any: Bits<Offering>,
    /// By requirements on custom labels.
    pub(super) alternatives: Vec<Alternative>,
    /// Whether no alternative has requirements on custom labels.
    pub(super) plain: bool,
    pub(super) hosts: &'w Membership<HostRule>,
    pub(super) ports: &'w [HostPort],
    /// Maximum number of the pods on an otherwise empty node.
    pub(super) most_alone: usize,
    /// Whether the pods need other pods on their host.
    pub(super) seeks_host: bool,
}

/// Items with their number of pods.
pub(crate) type Take = Vec<(Id<Entry>, usize)>;

/// Worth of these pods. `each` is the worth of a pod of each item.
#[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
pub(super) fn worth_of(take: &[(Id<Entry>, usize)], each: &IndexVec<Entry, f64>) -> f64 {
    take.iter().map(|(item, n)| each[*item] * *n as f64).sum()
}

pub(super) type ClassId = Id<Class<'static>>;

pub(super) type Classes<'w> = IndexVec<Class<'static>, Class<'w>>;

/// Interchangeable pods.
#[derive(Debug, Clone)]
pub(crate) struct Entry {
    pub(super) class: ClassId,
    /// A shape with these requests.
    pub(super) shape: Id<PodShape>,
    pub(super) count: usize,
    pub(super) on_one_node: bool,
    pub(super) pod_groups: Vec<PodGroupId>,
    /// As a fraction of the maximum capacity.
    pub(super) size: f64,
    /// Whether no ordinary offering can run the pods.
    pub(super) needs_exotic: bool,
}

/// Properties that must be equal before two classes' offerings are compared.
type ItemKey<'w> = (&'w [Id<HostRule>], &'w [Id<HostRule>], &'w [HostPort]);

/// Classes and items of the pod groups that can run in the pool.
pub(super) fn grouped<'w>(
    context: &'w SolveContext<'_>,
    pool: Id<NodePool>,
    pod_groups: &[(PodGroupId, &PodGroup<'_>)],
) -> (Classes<'w>, IndexVec<Entry, Entry>) {
    let mut classes: Classes<'w> = IndexVec::new();
    let mut classes_by_key: BTreeMap<ItemKey<'w>, Vec<ClassId>> = BTreeMap::new();
    let mut known: BTreeMap<(ClassId, &'w [i64]), Id<Entry>> = BTreeMap::new();
    let mut entries: IndexVec<Entry, Entry> = IndexVec::new();
    for (id, pod_group) in pod_groups {
        let (count, only) = (pod_group.pods.len(), pod_group.only.as_deref());
        if !context.can_run(pod_group.shape, pool, only) {
            continue;
        }
        // Regardless of capacity. Otherwise nearly each size would be a class of its own.
        let alternatives = context.without_capacity(pod_group.shape, pool, only);
        let shape = &context.shapes[pod_group.shape];
        let ports = shape.shape.host_ports.as_slice();
        let similar = classes_by_key.entry((&shape.hosts.owns, &shape.hosts.matches, ports)).or_default();
        let class = similar.iter().copied().find(|class| classes[*class].alternatives == alternatives);
        let class = class.unwrap_or_else(|| {
            let class = classes.push(new_class(context, pool, pod_group.shape, alternatives));
            similar.push(class);
            class
        });
        let same = known.get(&(class, shape.requests.as_slice())).filter(|_| !pod_group.on_one_node);
        if let Some(entry) = same {
            entries[*entry].pod_groups.push(*id);
            entries[*entry].count += count;
            continue;
        }
        let (shape_id, on_one_node) = (pod_group.shape, pod_group.on_one_node);
        let entry = entries.push(Entry {
            class,
            shape: shape_id,
            count,
            on_one_node,
            pod_groups: vec![*id],
            size: 0.0,
            needs_exotic: false,
        });
        if !on_one_node {
            known.insert((class, shape.requests), entry);
        }
    }
    (classes, entries)
}

fn new_class<'w>(
    context: &'w SolveContext<'_>,
    pool: Id<NodePool>,
    shape: Id<PodShape>,
    alternatives: Vec<Alternative>,
) -> Class<'w> {
    let view = &context.shapes[shape];
    Class {
        any: context.pools[pool].any_of(&alternatives),
        plain: alternatives.iter().all(|one| one.custom.is_empty()),
        alternatives,
        hosts: view.hosts,
        ports: &view.shape.host_ports,
        most_alone: view.most_alone,
        seeks_host: context.topology.seeks_host(shape),
    }
}

//! Resources and host ports that DaemonSets use on nodes.

use crate::input::context::tolerated;
use crate::input::custom_labels::{LabelValues, Narrowed, combine};
use crate::input::intern::{Amounts, add};
use crate::input::offerings::{Alternative, PoolData, PoolView, Terms};
use plimsoll_kubesched::ports_conflict;
use plimsoll_model::catalog::{Catalog, Offering};
use plimsoll_model::identity::ShapeId;
use plimsoll_model::index::Id;
use plimsoll_model::names::label;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{HostPort, NodePool, PodShape};
use std::collections::{BTreeMap, BTreeSet};

/// A DaemonSet that tolerates the taints of a pool.
#[derive(Debug)]
pub(crate) struct Daemon {
    shape: PodShape,
    /// Where its pods run.
    places: Vec<Alternative>,
}

impl Daemon {
    pub(crate) fn shape_id(&self) -> &ShapeId {
        &self.shape.id
    }

    /// The places that have the offering.
    fn on(&self, offering: Id<Offering>) -> impl Iterator<Item = &Alternative> {
        self.places.iter().filter(move |place| place.offerings.has(offering))
    }

    /// Whether its pods run on each node of the offering, whatever custom labels the node has.
    fn is_always_on(&self, offering: Id<Offering>) -> bool {
        self.on(offering).any(|place| place.custom.is_empty())
    }

    /// Whether its pods may run on a node without this label, although they have requirements on it.
    fn may_lack(&self, key: &str) -> bool {
        let mut expressions = self.shape.required_node_affinity.iter().flat_map(|term| &term.expressions);
        expressions.any(|one| {
            label::normalized(&one.key) == key && matches!(one.operator, Operator::NotIn | Operator::DoesNotExist)
        })
    }

    /// The host ports of `shape` that its pods take on a node of `alternatives`.
    pub(crate) fn taken_ports(&self, shape: &PodShape, alternatives: &[Alternative]) -> Vec<u16> {
        let meet = |one: &Alternative, place: &Alternative| {
            one.offerings.meets(&place.offerings) && combine(&one.custom, &place.custom).is_some()
        };
        if !alternatives.iter().any(|one| self.places.iter().any(|place| meet(one, place))) {
            return Vec::new();
        }
        let taken = |port: &&HostPort| self.shape.host_ports.iter().any(|other| other.conflicts(port));
        shape.host_ports.iter().filter(taken).map(|port| port.port).collect()
    }

    /// Removes offerings on which its pods and those of `shape` exclude each other. Host ports that its pods take on
    /// each node of an offering are part of the offering.
    pub(crate) fn remove_offerings(&self, pool: &PoolView<'_>, shape: &PodShape, from: &mut [Alternative]) {
        let excludes = |shape: &PodShape| shape.pod_affinity.iter().any(|term| term.anti && term.weight.is_none());
        let shares_port = ports_conflict(&shape.host_ports, &self.shape.host_ports);
        if !shares_port && !excludes(shape) && !excludes(&self.shape) {
            return;
        }
        for one in from {
            let beside = |place: &&Alternative| combine(&one.custom, &place.custom).is_some();
            let beside: Vec<&Alternative> = self.places.iter().filter(beside).collect();
            one.offerings.retain(|offering| {
                let is_there = beside.iter().any(|place| place.offerings.has(offering));
                let takes_port = shares_port && !self.is_always_on(offering);
                let is_excluded = is_there && (takes_port || avoids(pool, shape, &self.shape, offering));
                !is_excluded
            });
        }
    }
}

/// Subtracts the requests of DaemonSets from each offering of `data` on which they would run.
pub(crate) fn reserve(data: &mut PoolData, pool: &NodePool, catalog: &Catalog, terms: &Terms) {
    let view = PoolView::new(pool, catalog, data);
    let shapes = terms.daemons.iter().filter(|shape| tolerated(&pool.taints, &shape.tolerations, true));
    let daemons: Vec<Daemon> =
        shapes.map(|shape| Daemon { shape: shape.clone(), places: view.alternatives(shape) }).collect();
    let requests: Vec<Amounts> = daemons.iter().map(|daemon| terms.table.request(&daemon.shape)).collect();
    // Most offerings run the same DaemonSets.
    let mut known: BTreeMap<Vec<bool>, Amounts> = BTreeMap::new();
    for (offering, view) in data.offerings.iter_enumerated_mut() {
        let places = daemons.iter().flat_map(|daemon| &daemon.places);
        let there: Vec<bool> = places.map(|place| place.offerings.has(offering)).collect();
        let used = known.entry(there).or_insert_with(|| most_used(&daemons, &requests, offering));
        add(&mut view.room, used, -1);
        for daemon in daemons.iter().filter(|daemon| daemon.is_always_on(offering)) {
            view.ports.extend(daemon.shape.host_ports.iter().cloned());
        }
    }
    data.daemons = daemons;
}

/// The most of each resource that DaemonSets use on a node of the offering. DaemonSets that select different values of
/// a custom label do not run on the same node. A label that a launch does not narrow may be missing.
fn most_used(daemons: &[Daemon], requests: &[Amounts], offering: Id<Offering>) -> Amounts {
    let used_if = |runs: &dyn Fn(&Daemon, &Narrowed) -> bool| {
        let mut used: Amounts = vec![0; requests.first().map_or(0, Vec::len)];
        for (daemon, requests) in daemons.iter().zip(requests) {
            if daemon.on(offering).any(|place| runs(daemon, &place.custom)) {
                add(&mut used, requests, 1);
            }
        }
        used
    };
    let mut most = used_if(&|_, _| true);
    let custom = || daemons.iter().flat_map(move |daemon| daemon.on(offering)).map(|place| &place.custom);
    let keys: BTreeSet<&String> = custom().flat_map(BTreeMap::keys).collect();
    for key in keys {
        let named: BTreeSet<&String> =
            custom().filter_map(|custom| custom.get(key)).flat_map(LabelValues::named).collect();
        let with = |value: &String| used_if(&|_, custom| custom.get(key).is_none_or(|left| left.has(value)));
        let mut largest =
            used_if(&|daemon, custom| custom.get(key).is_none_or(LabelValues::is_open) || daemon.may_lack(key));
        for used in named.into_iter().map(with) {
            largest.iter_mut().zip(used).for_each(|(largest, used)| *largest = used.max(*largest));
        }
        most.iter_mut().zip(largest).for_each(|(most, largest)| *most = largest.min(*most));
    }
    most
}

/// Whether pods of `shape` and of the DaemonSet exclude each other from a domain, and the offering's node has the
/// topology label.
fn avoids(pool: &PoolView<'_>, shape: &PodShape, daemon: &PodShape, offering: Id<Offering>) -> bool {
    let labelled = |key: &str| {
        let key = label::normalized(key);
        key == label::HOSTNAME || pool.label(offering, key).is_some() || pool.custom.has(key)
    };
    let excludes = |one: &PodShape, other: &PodShape| {
        one.pod_affinity
            .iter()
            .any(|term| term.anti && term.weight.is_none() && term.selects(other) && labelled(&term.topology_key))
    };
    excludes(shape, daemon) || excludes(daemon, shape)
}

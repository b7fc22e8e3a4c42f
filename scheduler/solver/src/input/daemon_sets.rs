//! Resources that DaemonSets use on nodes.

use crate::input::context::tolerated;
use crate::input::intern::{Bits, add};
use crate::input::offerings::{PoolData, PoolView, Terms};
use plimsoll_model::catalog::{Catalog, Offering};
use plimsoll_model::index::Id;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{NodePool, PodShape};

/// Subtracts the requests of DaemonSets from each offering of `data` on which they would run.
pub(crate) fn reserve(data: &mut PoolData, pool: &NodePool, catalog: &Catalog, terms: &Terms) {
    for shape in terms.daemons.iter().filter(|shape| tolerated(&pool.taints, &shape.tolerations, true)) {
        let requests = terms.table.vector(&shape.requests);
        let places = PoolView::new(pool, catalog, data).alternatives(shape);
        let there = Bits::of(data.offerings.len(), |index| places.iter().any(|place| place.offerings.has(index)));
        for (_, view) in data.offerings.iter_enumerated_mut().filter(|(offering, _)| there.has(*offering)) {
            add(&mut view.room, &requests, -1);
            view.ports.extend(shape.host_ports.iter().cloned());
        }
        data.daemons.push((shape.clone(), there));
    }
}

/// Whether pods of `shape` and of the DaemonSet exclude each other from a domain, and the offering's node has the
/// topology label.
pub(crate) fn avoids(pool: &PoolView<'_>, shape: &PodShape, daemon: &PodShape, offering: Id<Offering>) -> bool {
    let labelled = |key: &str| {
        let key = label::normalized(key);
        key == label::HOSTNAME || pool.label(offering, key).is_some() || pool.custom.has(key)
    };
    let excludes = |one: &PodShape, other: &PodShape| {
        one.pod_affinity.iter().any(|term| {
            term.anti
                && term.weight.is_none()
                && term.namespaces.contains(&other.namespace)
                && term.selector.as_ref().is_some_and(|selector| selector.matches(&other.labels))
                && labelled(&term.topology_key)
        })
    };
    excludes(shape, daemon) || excludes(daemon, shape)
}

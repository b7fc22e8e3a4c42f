//! What DaemonSets take from nodes.

use crate::facts::holds;
use crate::intern::{Amounts, Bits, ResourceTable, add};
use crate::offerings::PoolView;
use crate::world::{World, tolerated};
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{LabelSelector, Node, PodShape, Snapshot};

/// Takes from each offering of `pool` what the DaemonSets that would run there request.
pub(crate) fn reserve<'a>(pool: &mut PoolView<'a>, snapshot: &'a Snapshot, table: &ResourceTable) {
    for daemon in &snapshot.daemon_sets {
        let Some(shape) = snapshot.shapes.iter().find(|shape| shape.id == daemon.shape) else { continue };
        if !tolerated(&pool.pool.taints, &shape.tolerations, true) {
            continue;
        }
        let requests = table.vector(&shape.requests);
        let places = pool.alternatives(shape);
        let there = Bits::of(pool.offerings.len(), |index| places.iter().any(|place| place.offerings.has(index)));
        for (_, view) in pool.offerings.iter_mut().enumerate().filter(|(index, _)| there.has(*index)) {
            add(&mut view.room, &requests, -1);
            view.ports.extend(shape.host_ports.iter().cloned());
        }
        pool.daemons.push((shape, there));
    }
}

/// Whether pods of `shape` may not share a domain with pods of the DaemonSet, nor a node that has the label in question.
pub(crate) fn avoids(pool: &PoolView<'_>, shape: &PodShape, daemon: &PodShape, offering: usize) -> bool {
    let labelled = |key: &str| {
        let key = label::normalized(key);
        key == label::HOSTNAME || pool.label(offering, key).is_some() || pool.custom.has(key)
    };
    shape.pod_affinity.iter().any(|term| {
        term.anti
            && term.weight.is_none()
            && term.namespaces.contains(&daemon.namespace)
            && term.selector.as_ref().is_some_and(|one| selects(one, daemon))
            && labelled(&term.topology_key)
    })
}

fn selects(selector: &LabelSelector, shape: &PodShape) -> bool {
    selector.match_labels.iter().all(|(key, value)| shape.labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(|one| holds(one, shape.labels.get(&one.key).map(String::as_str)))
}

/// What DaemonSets will still request on `node`, given what those there do.
pub(crate) fn missing(world: &World<'_>, node: &Node, there: &[i64]) -> Amounts {
    let mut due = vec![0; there.len()];
    for daemon in &world.snapshot.daemon_sets {
        let Some(view) = world.shape_number(&daemon.shape).and_then(|index| world.shapes.get(index)) else {
            continue;
        };
        if tolerated(&node.taints, &view.shape.tolerations, true)
            && crate::facts::selects(view.shape, node.name.as_str(), &node.labels)
        {
            add(&mut due, &view.requests, 1);
        }
    }
    due.iter().zip(there).map(|(wanted, have)| (wanted - have).max(0)).collect()
}

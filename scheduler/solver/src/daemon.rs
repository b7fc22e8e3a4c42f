//! What DaemonSets take from nodes.

use crate::intern::{Amounts, ResourceTable, add};
use crate::offerings::PoolView;
use crate::world::{World, tolerated};
use plimsoll_model::snapshot::{Node, Snapshot};

/// Takes from each offering of `pool` what the DaemonSets that would run there request.
pub(crate) fn reserve(pool: &mut PoolView<'_>, snapshot: &Snapshot, table: &ResourceTable) {
    for daemon in &snapshot.daemon_sets {
        let Some(shape) = snapshot.shapes.iter().find(|shape| shape.id == daemon.shape) else { continue };
        if !tolerated(&pool.pool.taints, &shape.tolerations, true) {
            continue;
        }
        let requests = table.vector(&shape.requests);
        let places = pool.alternatives(shape);
        for (index, view) in pool.offerings.iter_mut().enumerate() {
            if places.iter().any(|place| place.offerings.has(index)) {
                add(&mut view.room, &requests, -1);
                view.ports.extend(shape.host_ports.iter().cloned());
            }
        }
    }
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

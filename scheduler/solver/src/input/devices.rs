//! Devices of existing nodes: extended resources and huge pages. Pods that need none should leave them to others.

use crate::input::existing_nodes::NodeView;
use crate::input::intern::ResourceTable;
use plimsoll_model::index::IndexVec;
use plimsoll_model::snapshot::Node;

/// Devices that at most half of the open nodes have free. If most nodes have a device, sparing these would push other
/// pods on few nodes, and finding these takes long.
pub(crate) struct ScarceDevices {
    /// Indices of these devices.
    devices: Vec<usize>,
    /// Whether accelerators that no pod requests are as scarce.
    idle_accelerators: bool,
}

impl ScarceDevices {
    pub(crate) fn new(nodes: &IndexVec<Node, NodeView<'_>>, table: &ResourceTable) -> Self {
        let open: Vec<&NodeView<'_>> = nodes.iter().filter(|view| view.open).collect();
        let is_scarce = |has: &dyn Fn(&NodeView<'_>) -> bool| {
            let count = open.iter().filter(|view| has(view)).count();
            count > 0 && count <= open.len() / 2
        };
        let is_free_on_few = |device: usize| is_scarce(&|view| is_positive(&view.data.room.free, device));
        Self {
            devices: (0..table.len()).filter(|one| is_device(table.name(*one)) && is_free_on_few(*one)).collect(),
            idle_accelerators: is_scarce(&|view| view.data.has_idle_accelerator),
        }
    }

    /// Whether pods request one of the devices.
    pub(crate) fn are_requested(&self, requests: &[i64]) -> bool {
        self.devices.iter().any(|device| is_positive(requests, *device))
    }

    /// Whether a node, of which this is `free`, has a free device that pods do not request.
    pub(crate) fn are_idle(&self, view: &NodeView<'_>, free: &[i64], requests: &[i64]) -> bool {
        (self.idle_accelerators && view.data.has_idle_accelerator)
            || self.devices.iter().any(|device| is_positive(free, *device) && !is_positive(requests, *device))
    }
}

fn is_positive(amounts: &[i64], resource: usize) -> bool {
    amounts.get(resource).is_some_and(|amount| *amount > 0)
}

fn is_device(resource: &str) -> bool {
    resource.contains('/') || resource.starts_with("hugepages-")
}

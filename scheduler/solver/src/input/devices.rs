//! Devices of existing nodes: extended resources and huge pages. Pods that need none should leave them to others.

use crate::input::existing_nodes::NodeView;
use crate::input::intern::ResourceTable;
use plimsoll_model::catalog::is_accelerator;
use plimsoll_model::index::IndexVec;
use plimsoll_model::snapshot::Node;

/// The devices that open nodes have free.
pub(crate) struct FreeDevices {
    /// Those whose pods come first: scarce devices and accelerators. Of other devices, such as network interfaces for
    /// pods, most nodes have plenty.
    first: Vec<usize>,
    /// Those that at most half of the open nodes have free. If most nodes have a device, sparing these would push other
    /// pods on few nodes, and finding these takes long.
    scarce: Vec<usize>,
    /// Whether accelerators that no pod requests are as scarce.
    idle_accelerators: bool,
}

impl FreeDevices {
    pub(crate) fn new(nodes: &IndexVec<Node, NodeView<'_>>, table: &ResourceTable) -> Self {
        let open: Vec<&NodeView<'_>> = nodes.iter().filter(|view| view.open).collect();
        let count = |has: &dyn Fn(&NodeView<'_>) -> bool| open.iter().filter(|view| has(view)).count();
        let is_scarce = |count: usize| count > 0 && count <= open.len() / 2;
        let (mut first, mut scarce) = (Vec::new(), Vec::new());
        for device in (0..table.len()).filter(|one| is_device(table.name(*one))) {
            let nodes = count(&|view| is_positive(&view.data.room.free, device));
            let is_first = is_scarce(nodes) || (nodes > 0 && is_accelerator(table.name(device)));
            first.extend(is_first.then_some(device));
            scarce.extend(is_scarce(nodes).then_some(device));
        }
        Self { first, scarce, idle_accelerators: is_scarce(count(&|view| view.data.has_idle_accelerator)) }
    }

    /// Whether pods with these requests come first, since larger pods could take the cpu and memory beside the device
    /// that they need.
    pub(crate) fn come_first(&self, requests: &[i64]) -> bool {
        self.first.iter().any(|device| is_positive(requests, *device))
    }

    /// Whether a node, of which this is `free`, has a scarce device free that pods do not request.
    pub(crate) fn are_idle(&self, view: &NodeView<'_>, free: &[i64], requests: &[i64]) -> bool {
        (self.idle_accelerators && view.data.has_idle_accelerator)
            || self.scarce.iter().any(|device| is_positive(free, *device) && !is_positive(requests, *device))
    }
}

fn is_positive(amounts: &[i64], resource: usize) -> bool {
    amounts.get(resource).is_some_and(|amount| *amount > 0)
}

fn is_device(resource: &str) -> bool {
    resource.contains('/') || resource.starts_with("hugepages-")
}

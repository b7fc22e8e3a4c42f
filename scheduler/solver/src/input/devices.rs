//! Devices of existing nodes: extended resources and huge pages. Pods that need none should leave them to others.

use crate::input::existing_nodes::NodeView;
use crate::input::intern::ResourceTable;
use plimsoll_model::index::IndexVec;
use plimsoll_model::snapshot::Node;

/// Indices of devices that some open nodes have free and others do not.
pub(crate) struct ScarceDevices(Vec<usize>);

impl ScarceDevices {
    pub(crate) fn new(nodes: &IndexVec<Node, NodeView<'_>>, table: &ResourceTable) -> Self {
        let open = || nodes.iter().filter(|view| view.open);
        let has = |view: &NodeView<'_>, device: usize| is_positive(&view.data.room.free, device);
        let is_scarce = |device: &usize| {
            is_device(table.name(*device))
                && open().any(|view| has(view, *device))
                && !open().all(|view| has(view, *device))
        };
        Self((0..table.len()).filter(is_scarce).collect())
    }

    /// Whether pods request one of the devices.
    pub(crate) fn are_requested(&self, requests: &[i64]) -> bool {
        self.0.iter().any(|device| is_positive(requests, *device))
    }

    /// Whether a node, of which this is `free`, has a free device that pods do not request.
    pub(crate) fn are_idle(&self, view: &NodeView<'_>, free: &[i64], requests: &[i64]) -> bool {
        view.data.has_idle_accelerator
            || self.0.iter().any(|device| is_positive(free, *device) && !is_positive(requests, *device))
    }
}

fn is_positive(amounts: &[i64], resource: usize) -> bool {
    amounts.get(resource).is_some_and(|amount| *amount > 0)
}

fn is_device(resource: &str) -> bool {
    resource.contains('/') || resource.starts_with("hugepages-")
}

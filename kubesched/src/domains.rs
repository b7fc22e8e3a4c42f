//! Topology domains: the values of a node label, as numbers.

use plimsoll_model::names::label;
use plimsoll_model::snapshot::Node;
use std::collections::BTreeMap;
use std::rc::Rc;

/// The domains of one topology key.
#[derive(Debug, Clone)]
pub(crate) struct Domains {
    /// Domain by node; `None` if the node does not have the label.
    of_nodes: Rc<[Option<usize>]>,
    pub(crate) count: usize,
}

impl Domains {
    pub(crate) fn new(key: &str, nodes: &[Node]) -> Self {
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        let of_nodes = nodes
            .iter()
            .map(|node| {
                let next = numbers.len();
                domain(key, node).map(|domain| *numbers.entry(domain).or_insert(next))
            })
            .collect();
        Self { of_nodes, count: numbers.len() }
    }

    /// The domain of a node.
    pub(crate) fn at(&self, node: usize) -> Option<usize> {
        self.of_nodes.get(node).copied().flatten()
    }
}

/// Whether the flag of that index is set. An index outside the list is not.
pub(crate) fn is_set(flags: &[bool], index: usize) -> bool {
    flags.get(index).copied().unwrap_or(false)
}

/// The domain of a node. A planned node has no hostname yet, so the node's name is used as its hostname.
pub(crate) fn domain<'n>(key: &str, node: &'n Node) -> Option<&'n str> {
    let key = label::normalized(key);
    if key == label::HOSTNAME { Some(node.name.as_str()) } else { label::lookup(&node.labels, key) }
}

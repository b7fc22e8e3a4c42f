//! PodTopologySpread: counts pods in the domains of a constraint.

use crate::domains::{Domains, domain, is_set};
use plimsoll_model::snapshot::{Node, Pod, PodShape, PodState, Snapshot, SnapshotIndex, TopologySpread};
use plimsoll_model::taints::repelling;
use std::collections::BTreeMap;
use std::rc::Rc;

/// A topology spread constraint of one shape, with pod counts.
#[derive(Debug, Clone)]
pub(crate) struct Spread {
    pub(crate) max_skew: i64,
    min_domains: usize,
    domains: Domains,
    /// By node: whether its pods are counted, according to nodeAffinityPolicy, nodeTaintsPolicy, and the topology keys
    /// of the pod's other constraints.
    eligible: Rc<[bool]>,
    /// By shape: whether the selector matches its pods.
    pub(crate) selected: Rc<[bool]>,
    /// Whether running pods count. For an empty selector, kube-scheduler counts only nominated pods and the pod itself.
    counts_running: bool,
    /// Pod counts by domain.
    counts: Vec<i64>,
    /// By domain: whether any of its nodes is eligible.
    open: Rc<[bool]>,
    open_domains: usize,
    /// The minimum count of the open domains, and the number of domains with this count.
    least: (i64, usize),
    pub(crate) required: bool,
}

/// Pods that `constraint` of `owner` counts, by domain. Nodes that are being deleted are omitted. `index` is that of
/// the snapshot.
#[must_use]
pub fn counts(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    owner: &PodShape,
    constraint: &TopologySpread,
) -> BTreeMap<String, usize> {
    let stays = |node: usize| snapshot.nodes.get(node).is_some_and(|node| !node.deleting);
    let mut spread = Spread::new(owner, constraint, &snapshot.shapes, &snapshot.nodes);
    for (shape, node) in pods_on_nodes(snapshot, index, false).filter(|(_, node)| stays(*node)) {
        spread.add(shape, node);
    }
    let nodes = snapshot.nodes.iter().enumerate().filter(|(node, _)| stays(*node) && is_set(&spread.eligible, *node));
    let count = |number: usize| usize::try_from(spread.count_at(number).unwrap_or(0)).unwrap_or(0);
    nodes
        .filter_map(|(number, node)| Some((domain(&constraint.topology_key, node)?.to_owned(), count(number))))
        .collect()
}

/// Terminating pods on nodes if `terminating`, otherwise all others, as shape and node indices.
pub(crate) fn pods_on_nodes(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    terminating: bool,
) -> impl Iterator<Item = (usize, usize)> {
    let counts = move |pod: &Pod| pod.terminating == terminating && !pod.is_virtual() && pod.state != PodState::Pending;
    let pods = snapshot.pods.iter().enumerate().filter(move |(_, pod)| counts(pod));
    pods.filter_map(|(place, _)| Some((index.shape_of(place)?, index.node_of(place)?)))
}

/// Why a constraint rejects a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Refusal {
    MissingLabel,
    Skew,
}

impl Spread {
    pub(crate) fn new(owner: &PodShape, constraint: &TopologySpread, shapes: &[PodShape], nodes: &[Node]) -> Self {
        let domains = Domains::new(&constraint.topology_key, nodes);
        let selected = |shape: &PodShape| {
            let matches = constraint.selector.as_ref().is_some_and(|selector| selector.matches(&shape.labels));
            matches && shape.namespace == owner.namespace
        };
        let alike = owner.topology_spread.iter().filter(|other| other.required == constraint.required);
        let keys: Vec<&str> = alike.map(|other| other.topology_key.as_str()).collect();
        let counts = |node: &Node| {
            keys.iter().all(|key| domain(key, node).is_some())
                && (!constraint.honor_node_affinity || owner.selects_node(node.name.as_str(), &node.labels))
                && (!constraint.honor_node_taints || repelling(&node.taints, &owner.tolerations).is_none())
        };
        let eligible: Rc<[bool]> = nodes.iter().map(counts).collect();
        let mut open = vec![false; domains.count];
        for (node, eligible) in eligible.iter().enumerate() {
            if let (Some(open), true) = (domains.at(node).and_then(|domain| open.get_mut(domain)), eligible) {
                *open = true;
            }
        }
        let open_domains = open.iter().filter(|open| **open).count();
        Self {
            max_skew: i64::from(constraint.max_skew),
            min_domains: constraint.min_domains.and_then(|least| usize::try_from(least).ok()).unwrap_or(1),
            eligible,
            selected: shapes.iter().map(selected).collect(),
            counts_running: constraint.selector.as_ref().is_some_and(|selector| !selector.is_empty()),
            counts: vec![0; domains.count],
            domains,
            least: (0, open_domains),
            open: open.into(),
            open_domains,
            required: constraint.required,
        }
    }

    /// The domain that counts a running pod of `shape` on `node`; `None` if the pod is not counted.
    fn counted(&self, shape: usize, node: usize) -> Option<usize> {
        let counts = self.counts_running && is_set(&self.selected, shape) && is_set(&self.eligible, node);
        self.domains.at(node).filter(|_| counts)
    }

    pub(crate) fn add(&mut self, shape: usize, node: usize) {
        let Some(domain) = self.counted(shape, node) else { return };
        let Some(count) = self.counts.get_mut(domain) else { return };
        *count += 1;
        if *count == self.least.0 + 1 && is_set(&self.open, domain) {
            self.least.1 -= 1;
            if self.least.1 == 0 {
                self.least = self.least_with(domain, 0);
            }
        }
    }

    pub(crate) fn remove(&mut self, shape: usize, node: usize) {
        let Some(domain) = self.counted(shape, node) else { return };
        let Some(count) = self.counts.get_mut(domain) else { return };
        *count -= 1;
        let (count, is_open) = (*count, is_set(&self.open, domain));
        if is_open && count < self.least.0 {
            self.least = (count, 1);
        } else if is_open && count == self.least.0 {
            self.least.1 += 1;
        }
    }

    /// The minimum count of the open domains if `domain` had `more` pods, and the number of domains with this count.
    fn least_with(&self, domain: usize, more: i64) -> (i64, usize) {
        let open = || {
            let domains = self.counts.iter().zip(self.open.iter()).enumerate();
            let open = domains.filter(|(_, (_, open))| **open);
            open.map(move |(other, (count, _))| count + if other == domain { more } else { 0 })
        };
        let least = open().min().unwrap_or(0);
        (least, open().filter(|count| *count == least).count())
    }

    /// Whether the constraint can reject a node because of skew: more than one domain is eligible, or minDomains is
    /// greater than one.
    pub(crate) fn can_skew(&self) -> bool {
        self.min_domains > 1 || self.open_domains > 1
    }

    /// Whether a pod of `shape` may run on `node` if the constraint selects `nominated` pods that are nominated to the
    /// node.
    pub(crate) fn filter(&self, shape: usize, node: usize, nominated: i64) -> Result<(), Refusal> {
        let domain = self.domains.at(node).ok_or(Refusal::MissingLabel)?;
        let nominated = if is_set(&self.eligible, node) { nominated } else { 0 };
        let only_least = nominated > 0 && self.least == (self.count(domain), 1);
        let least = if only_least { self.least_with(domain, nominated).0 } else { self.least.0 };
        let more = nominated + i64::from(is_set(&self.selected, shape));
        if self.is_within_skew(domain, more, least) { Ok(()) } else { Err(Refusal::Skew) }
    }

    /// Whether the current pod counts of the domain of `node` satisfy the constraint.
    pub(crate) fn holds(&self, node: usize) -> bool {
        self.domains.at(node).is_some_and(|domain| self.is_within_skew(domain, 0, self.least.0))
    }

    /// Whether the domain with `more` additional pods is within maxSkew of the `least` count.
    fn is_within_skew(&self, domain: usize, more: i64, least: i64) -> bool {
        let least = if self.min_domains > 1 && self.open_domains < self.min_domains { 0 } else { least };
        self.count(domain) + more - least <= self.max_skew
    }

    fn count(&self, domain: usize) -> i64 {
        self.counts.get(domain).copied().unwrap_or(0)
    }

    /// Number of pods in the domain of `node`; `None` if the node does not have the topology key.
    pub(crate) fn count_at(&self, node: usize) -> Option<i64> {
        self.domains.at(node).map(|domain| self.count(domain))
    }
}

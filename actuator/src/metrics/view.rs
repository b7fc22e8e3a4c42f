//! The cluster as the gauges see it: all objects at one moment.

use crate::clock::Timestamped;
use crate::state::catalogs::{Catalogs, Entries};
use crate::state::insufficient_capacity::InsufficientCapacity;
use crate::state::zonal_shifts::ZonalShifts;
use crate::stores::Stores;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use parking_lot::Mutex;
use plimsoll_api::{EC2NodeClass, NodeClaim, NodePool, Pod};
use plimsoll_model::names::{USD_PER_HOUR_RESOURCE, label};
use plimsoll_model::resources::CPU;
use plimsoll_runtime::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Where the gauges come from. Clones share the stores.
#[derive(Clone)]
pub struct Sources {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Catalog of each node class.
    pub catalogs: Catalogs,
    /// Offerings known to lack capacity.
    pub insufficient_capacity: Arc<Mutex<InsufficientCapacity>>,
    /// Zones that the cluster is shifted away from.
    pub zonal_shifts: ZonalShifts,
    /// Time.
    pub clock: Clock,
}

/// All objects at one moment.
#[derive(Debug, Default)]
pub struct ClusterView {
    /// Nodes.
    pub nodes: Vec<Arc<Node>>,
    /// Pods.
    pub pods: Vec<Arc<Pod>>,
    /// NodeClaims.
    pub claims: Vec<Arc<NodeClaim>>,
    /// NodePools.
    pub pools: Vec<Arc<NodePool>>,
    /// EC2NodeClasses.
    pub classes: Vec<Arc<EC2NodeClass>>,
    /// Catalogs by node class.
    pub catalogs: Entries,
    /// Offerings known to lack capacity.
    pub unavailable: InsufficientCapacity,
    /// Ids of the zones that the cluster is shifted away from.
    pub shifted_zones: BTreeSet<String>,
    /// The time.
    pub now: Timestamp,
}

impl ClusterView {
    /// Copies references to all objects. The watch cache is locked only for that.
    #[must_use]
    pub fn of(sources: &Sources) -> Self {
        let Sources { stores, catalogs, insufficient_capacity, zonal_shifts, clock } = sources;
        Self {
            nodes: stores.nodes.state(),
            pods: stores.pods.state(),
            claims: stores.claims.state(),
            pools: stores.pools.state(),
            classes: stores.classes.state(),
            catalogs: catalogs.all(),
            unavailable: insufficient_capacity.lock().clone(),
            shifted_zones: zonal_shifts.ids(clock.timestamp()).into_keys().collect(),
            now: clock.now(),
        }
    }

    /// Claims by the providerID of their instance.
    #[must_use]
    pub fn claims_by_provider(&self) -> BTreeMap<&str, &NodeClaim> {
        self.claims.iter().filter_map(|claim| Some((claim.provider_id()?, &**claim))).collect()
    }

    /// Nodes by name.
    #[must_use]
    pub fn nodes_by_name(&self) -> BTreeMap<&str, &Node> {
        self.nodes.iter().filter_map(|node| Some((node.metadata.name.as_deref()?, &**node))).collect()
    }

    /// Bound pods by the name of their node.
    #[must_use]
    pub fn pods_by_node(&self) -> BTreeMap<&str, Vec<&Pod>> {
        let mut by_node: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for pod in &self.pods {
            if let Some(node) = pod.node_name.as_deref() {
                by_node.entry(node).or_default().push(pod);
            }
        }
        by_node
    }
}

/// A label of an object; empty if it has none.
pub(crate) fn label_of<'a>(labels: Option<&'a BTreeMap<String, String>>, key: &str) -> &'a str {
    labels.and_then(|labels| labels.get(key)).map_or("", String::as_str)
}

/// The NodePool of a claim or Node; empty if it has none.
pub(crate) fn pool_of(labels: Option<&BTreeMap<String, String>>) -> &str {
    label_of(labels, label::NODE_POOL)
}

/// Name of a resource as the value of the label `resource_type`.
pub(crate) fn resource_type(name: &str) -> String {
    name.to_lowercase().replace('-', "_")
}

/// Amount of a resource in cores for CPU, in dollars for prices, otherwise in base units.
pub(crate) fn units(name: &str, amount: i64) -> f64 {
    #[allow(clippy::cast_precision_loss, reason = "a double has 53 bits, like in any Prometheus client")]
    let amount = amount as f64;
    match name {
        CPU => amount / 1000.0,
        USD_PER_HOUR_RESOURCE => amount / 1_000_000.0,
        _ => amount,
    }
}

/// Seconds from `earlier` to `later`; never negative.
pub(crate) fn seconds_between(earlier: Timestamp, later: Timestamp) -> f64 {
    later.duration_since(earlier).as_secs_f64().max(0.0)
}

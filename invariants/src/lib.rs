//! Is this plan valid on these facts? Knows nothing of how plans are made.
//!
//! Resource claims are not checked, because no plan places pods that have them.

mod labels;
mod launches;
mod mix;
mod nodes;
mod pods;
mod removal;
#[cfg(test)]
mod tests;
mod topology;
mod violation;

use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::overlay;
use plimsoll_model::plan::{Launch, Plan, PodRef};
use plimsoll_model::snapshot::{Node, NodePool, Pod, PodShape, PodState, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
pub use violation::Violation;

/// The snapshot by key.
struct Facts<'a> {
    snapshot: &'a Snapshot,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    pods: BTreeMap<&'a str, &'a Pod>,
    shapes: BTreeMap<&'a str, &'a PodShape>,
    nodes: BTreeMap<&'a str, &'a Node>,
    pools: BTreeMap<&'a str, &'a NodePool>,
    /// Bound or reserved pods by node.
    there: BTreeMap<&'a str, Vec<&'a Pod>>,
    /// Nodes that are being deleted, or that the plan removes.
    leaving: BTreeSet<&'a str>,
}

impl<'a> Facts<'a> {
    fn new(snapshot: &'a Snapshot, catalogs: &'a BTreeMap<CatalogId, Catalog>, plan: &'a Plan) -> Self {
        let mut there: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        for pod in &snapshot.pods {
            if let PodState::Bound(node) | PodState::Reserved(node) = &pod.state {
                there.entry(node.as_str()).or_default().push(pod);
            }
        }
        let deleting = snapshot.nodes.iter().filter(|node| node.deleting).map(|node| node.name.as_str());
        Self {
            snapshot,
            catalogs,
            pods: snapshot.pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect(),
            shapes: snapshot.shapes.iter().map(|shape| (shape.id.as_str(), shape)).collect(),
            nodes: snapshot.nodes.iter().map(|node| (node.name.as_str(), node)).collect(),
            pools: snapshot.node_pools.iter().map(|pool| (pool.name.as_str(), pool)).collect(),
            there,
            leaving: deleting.chain(plan.terminations.iter().map(|one| one.node.as_str())).collect(),
        }
    }

    fn shape(&self, uid: &str) -> Option<&'a PodShape> {
        self.shapes.get(self.pods.get(uid)?.shape.as_str()).copied()
    }

    /// How many of `pods` have each shape, with the first of them.
    fn by_shape<'p>(&self, pods: impl IntoIterator<Item = &'p PodRef>) -> Vec<(&'a PodShape, i64, &'p PodRef)> {
        let mut found: BTreeMap<&str, (&PodShape, i64, &PodRef)> = BTreeMap::new();
        for pod in pods {
            if let Some(shape) = self.shape(pod.uid.as_str()) {
                found.entry(shape.id.as_str()).or_insert((shape, 0, pod)).1 += 1;
            }
        }
        found.into_values().collect()
    }
}

/// Everything that is wrong with `plan`, sorted; empty if it is valid.
#[must_use]
pub fn check(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, plan: &Plan) -> Vec<Violation> {
    let overlaid = overlay::applied(snapshot, catalogs);
    let (snapshot, catalogs) =
        overlaid.as_ref().map_or((snapshot, catalogs), |(snapshot, catalogs)| (snapshot, catalogs));
    let facts = Facts::new(snapshot, catalogs, plan);
    let mut found = Vec::new();
    pods::check(&facts, plan, &mut found);
    launches::check(&facts, plan, &mut found);
    nodes::check(&facts, plan, &mut found);
    removal::check(&facts, plan, &mut found);
    topology::check(&facts, plan, &mut found);
    mix::check(&facts, plan, &mut found);
    let hourly: MicroUsdPerHour = plan.launches.iter().map(Launch::price).sum();
    if hourly != plan.hourly {
        found.push(Violation::BadSum(format!("launches cost {hourly}, the plan says {}", plan.hourly)));
    }
    if plan.lower_bound > plan.hourly {
        found.push(Violation::BadSum(format!("lower bound {} is above {}", plan.lower_bound, plan.hourly)));
    }
    found.sort();
    found.dedup();
    found
}

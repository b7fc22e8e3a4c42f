//! Is this plan valid on these facts? Knows nothing of how plans are made.
//!
//! Required topology spread, pod affinity, volumes and resource claims are not checked yet, because no plan places pods that use them.

mod launches;
mod nodes;
mod pods;
mod removal;
mod violation;

use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::snapshot::{Pod, PodShape, Snapshot};
use std::collections::BTreeMap;
pub use violation::Violation;

/// The snapshot by key.
struct Facts<'a> {
    snapshot: &'a Snapshot,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    pods: BTreeMap<&'a str, &'a Pod>,
    shapes: BTreeMap<&'a str, &'a PodShape>,
}

impl<'a> Facts<'a> {
    fn shape(&self, uid: &str) -> Option<&'a PodShape> {
        self.shapes.get(self.pods.get(uid)?.shape.as_str()).copied()
    }
}

/// Everything that is wrong with `plan`, sorted; empty if it is valid.
#[must_use]
pub fn check(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, plan: &Plan) -> Vec<Violation> {
    let facts = Facts {
        snapshot,
        catalogs,
        pods: snapshot.pods.iter().map(|pod| (pod.uid.as_str(), pod)).collect(),
        shapes: snapshot.shapes.iter().map(|shape| (shape.id.as_str(), shape)).collect(),
    };
    let mut found = Vec::new();
    pods::check(&facts, plan, &mut found);
    launches::check(&facts, plan, &mut found);
    nodes::check(&facts, plan, &mut found);
    removal::check(&facts, plan, &mut found);
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

//! Is this plan valid on these facts? Knows nothing of how plans are made.
//!
//! Resource claims are not checked, because no plan places pods that have them.

mod facts;
mod labels;
mod launches;
mod mix;
mod nodes;
mod pods;
mod removal;
mod resolved;
mod shelf;
#[cfg(test)]
mod tests;
mod topology;
mod violation;

use facts::Facts;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::overlay::{self, Repriced};
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use std::collections::BTreeMap;
pub use violation::Violation;

/// Everything that is wrong with `plan`, sorted; empty if it is valid.
#[must_use]
pub fn check(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, plan: &Plan) -> Vec<Violation> {
    let sorted = snapshot.sorted();
    check_indexed(&sorted, &SnapshotIndex::new(&sorted), catalogs, plan)
}

/// As [`check`] for a snapshot in canonical order with its index.
#[must_use]
pub fn check_indexed(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: &Plan,
) -> Vec<Violation> {
    judged(snapshot, index, catalogs, plan, true)
}

/// The same for the first part of a plan, which does not account for all pods yet.
#[must_use]
pub fn check_part(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    part: &Plan,
) -> Vec<Violation> {
    judged(snapshot, index, catalogs, part, false)
}

fn judged(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: &Plan,
    whole: bool,
) -> Vec<Violation> {
    let mut found = Vec::new();
    let mut repriced = Repriced::new(snapshot, catalogs);
    for launch in plan.launches.iter().filter(|launch| launch.prioritized != repriced.has(launch)) {
        let problem = format!("prioritized is {}", launch.prioritized);
        found.push(Violation::BadLaunch { launch: launch.action_id.0.clone(), problem });
    }
    let overlaid = overlay::applied(snapshot, catalogs);
    let (snapshot, catalogs) =
        overlaid.as_ref().map_or((snapshot, catalogs), |(snapshot, catalogs)| (snapshot, catalogs));
    let facts = Facts::new(snapshot, index, catalogs, plan);
    pods::check(&facts, plan, &mut found);
    if whole {
        pods::check_complete(&facts, plan, &mut found);
    }
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

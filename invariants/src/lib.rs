//! Validates a plan against a snapshot and its catalogs, independently of how plans are made.
//!
//! Resource claims are not checked: no plan places pods that have them.

#![deny(clippy::indexing_slicing)]

mod capacity_quotas;
mod facts;
mod labels;
mod launches;
mod nodes;
mod offering_nodes;
mod on_demand;
mod pod_numbers;
mod pods;
mod removal;
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

/// Returns all violations of `plan`, sorted; empty if the plan is valid.
#[must_use]
pub fn check(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, plan: &Plan) -> Vec<Violation> {
    let sorted = snapshot.sorted();
    check_indexed(&sorted, &SnapshotIndex::new(&sorted), catalogs, plan)
}

/// Like [`check`], for a snapshot in canonical order with its index.
#[must_use]
pub fn check_indexed(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: &Plan,
) -> Vec<Violation> {
    check_plan(snapshot, index, catalogs, plan, true)
}

/// Like [`check_indexed`], for an early part of a plan, which does not account for all pods yet.
#[must_use]
pub fn check_part(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    part: &Plan,
) -> Vec<Violation> {
    check_plan(snapshot, index, catalogs, part, false)
}

fn check_plan(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: &Plan,
    complete: bool,
) -> Vec<Violation> {
    let mut violations = Vec::new();
    let mut repriced = Repriced::new(snapshot, catalogs);
    for launch in plan.launches.iter().filter(|launch| launch.prioritized != repriced.has(launch)) {
        let problem = format!("prioritized is {}", launch.prioritized);
        violations.push(Violation::BadLaunch { launch: launch.action_id.0.clone(), problem });
    }
    let with_overlays = overlay::applied(snapshot, catalogs);
    let (snapshot, catalogs) =
        with_overlays.as_ref().map_or((snapshot, catalogs), |(snapshot, catalogs)| (snapshot, catalogs));
    let facts = Facts::new(snapshot, index, catalogs, plan);
    pods::check(&facts, plan, &mut violations);
    if complete {
        pods::check_complete(&facts, plan, &mut violations);
    }
    launches::check(&facts, plan, &mut violations);
    nodes::check(&facts, plan, &mut violations);
    removal::check(&facts, plan, &mut violations);
    topology::check(&facts, plan, &mut violations);
    on_demand::check(&facts, plan, &mut violations);
    let hourly: MicroUsdPerHour = plan.launches.iter().map(Launch::price).sum();
    if hourly != plan.hourly {
        violations.push(Violation::BadSum(format!("launches cost {hourly}, the plan says {}", plan.hourly)));
    }
    if plan.lower_bound > plan.hourly {
        violations.push(Violation::BadSum(format!("lower bound {} is above {}", plan.lower_bound, plan.hourly)));
    }
    violations.sort();
    violations.dedup();
    violations
}

//! From a snapshot to a plan: which nodes to launch for pending pods, what existing ones take, which ones can go.
//!
//! Pure and deterministic: the order of the snapshot's lists does not matter, and no clock, environment or randomness
//! is read. Pods are handled by shape, offerings (type x zone x capacity type) as bit sets per pool.
//!
//! Not done yet: pods that have resource claims are reported as unschedulable; reserved capacity is bought like any
//! other offering.

mod bound;
mod cancel;
mod disrupt;
mod explain;
mod input;
mod pipeline;
mod place;
mod planner;
mod repair;
mod score;
#[cfg(test)]
mod tests;

pub use cancel::Cancel;
pub use planner::Planner;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
pub use repair::moves::{Move, UnknownMove};
pub use repair::replay::{ReplayReport, replay};
use std::collections::BTreeMap;

/// Plans for one snapshot. `catalogs` are those that its pools name; a pool whose catalog is missing launches nothing.
#[must_use]
pub fn solve(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, options: &PlanOptions) -> Plan {
    let sorted = snapshot.sorted();
    Planner::new().solve(&sorted, &SnapshotIndex::new(&sorted), catalogs, options)
}

/// The same without some of the repairs, to measure what they are worth.
#[must_use]
pub fn solve_without(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
    without: &[Move],
) -> Plan {
    let sorted = snapshot.sorted();
    Planner::without(without).solve(&sorted, &SnapshotIndex::new(&sorted), catalogs, options)
}

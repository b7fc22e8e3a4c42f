//! The planner: which nodes to launch for pending pods, which existing nodes take pods, and which nodes can be
//! removed.
//!
//! Pure and deterministic: it reads no clock, environment or randomness, and the order of the snapshot's lists does
//! not matter. Pods are grouped by shape, and offerings (type x zone x capacity type) are bit sets per pool.
//!
//! Resource claims are not supported yet: pods that have them are reported as unschedulable.

#![deny(clippy::indexing_slicing)]

mod bound;
mod cancel;
mod disrupt;
mod explain;
mod input;
mod pipeline;
mod place;
mod planner;
mod repair;
mod retries;
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
pub use repair::projection::launched;
pub use repair::replay::{ReplayReport, replay};
use std::collections::BTreeMap;

/// Computes a plan for one snapshot. `catalogs` are the catalogs that its pools name. A pool whose catalog is missing
/// launches nothing.
#[must_use]
pub fn solve(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, options: &PlanOptions) -> Plan {
    let sorted = snapshot.sorted();
    Planner::default().solve(&sorted, &SnapshotIndex::new(&sorted), catalogs, options)
}

/// Computes a plan without some of the repair moves, to measure their effect.
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

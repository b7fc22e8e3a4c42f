//! One solve, and the check that its plan may be given away.

use plimsoll_invariants::Violation;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Launch, Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use plimsoll_solver::{Cancel, Planner};
use std::collections::BTreeMap;

/// Violations named in an error; one mistake of the solver often breaks many things at once.
const SHOWN_VIOLATIONS: usize = 5;

/// The solver made a plan that is wrong on the very facts it was made from. It is not given to anybody.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the plan for snapshot {sequence} is not valid: {}", shown(violations))]
pub struct InvalidPlan {
    /// The snapshot's sequence.
    pub sequence: u64,
    /// What is wrong with it; never empty.
    pub violations: Vec<Violation>,
}

fn shown(violations: &[Violation]) -> String {
    let first: Vec<String> = violations.iter().take(SHOWN_VIOLATIONS).map(Violation::to_string).collect();
    let more = violations.len().saturating_sub(SHOWN_VIOLATIONS);
    if more == 0 { first.join("; ") } else { format!("{}; and {more} more", first.join("; ")) }
}

/// The plan for a snapshot: always the same for the same arguments, unless `cancel` ends the solve.
pub(crate) fn solve(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
    cancel: &Cancel,
) -> Result<Plan, InvalidPlan> {
    let sorted = snapshot.sorted();
    let mut planner = Planner::cancelled_by(cancel.clone());
    solve_indexed(&mut planner, &sorted, &SnapshotIndex::new(&sorted), catalogs, options, &mut |_| {})
}

/// The same plan for a snapshot in canonical order with its index, by a planner that has followed this cluster. `early` is told first launches
/// that stand already, if they are valid: a part of the plan.
pub(crate) fn solve_indexed(
    planner: &mut Planner,
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
    early: &mut dyn FnMut(Plan),
) -> Result<Plan, InvalidPlan> {
    let plan = planner.solve_early(snapshot, index, catalogs, options, &mut |launches| {
        let part = part(snapshot, launches);
        // If they are not, the whole plan is not either.
        if plimsoll_invariants::check_part(snapshot, index, catalogs, &part).is_empty() {
            early(part);
        }
    });
    checked(snapshot, index, catalogs, plan)
}

/// The plan, if it is valid on the facts it was made from.
pub(crate) fn checked(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: Plan,
) -> Result<Plan, InvalidPlan> {
    let violations = plimsoll_invariants::check_indexed(snapshot, index, catalogs, &plan);
    if violations.is_empty() { Ok(plan) } else { Err(InvalidPlan { sequence: snapshot.sequence, violations }) }
}

/// The part of a plan that has these launches.
fn part(snapshot: &Snapshot, launches: &[Launch]) -> Plan {
    Plan {
        snapshot_sequence: snapshot.sequence,
        ledger: snapshot.ledger,
        launches: launches.to_vec(),
        hourly: launches.iter().map(Launch::price).sum(),
        ..Plan::default()
    }
}

//! Solves and validates plans.

mod exclude;

use exclude::plan_without_offenders;
use plimsoll_invariants::Violation;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Launch, Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use plimsoll_solver::{Cancel, Planner};
use std::collections::BTreeMap;

/// Maximum violations in an error message. One solver bug often causes many violations.
const MAX_SHOWN_VIOLATIONS: usize = 5;

/// The solver made a plan that is invalid for its own input. The plan is withheld.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("the plan for snapshot {sequence} is not valid: {}", violations_text(violations))]
pub struct InvalidPlan {
    /// Sequence of the snapshot.
    pub sequence: u64,
    /// Violations; never empty.
    pub violations: Vec<Violation>,
}

fn violations_text(violations: &[Violation]) -> String {
    let first: Vec<String> = violations.iter().take(MAX_SHOWN_VIOLATIONS).map(Violation::to_string).collect();
    let more = violations.len().saturating_sub(MAX_SHOWN_VIOLATIONS);
    if more == 0 { first.join("; ") } else { format!("{}; and {more} more", first.join("; ")) }
}

/// Makes the plan for a snapshot. Deterministic.
pub(crate) fn solve(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
    cancel: &Cancel,
) -> Result<Plan, InvalidPlan> {
    let sorted = snapshot.sorted();
    let mut planner = Planner::cancelled_by(cancel.clone());
    solve_indexed(&mut planner, &sorted, &SnapshotIndex::new(&sorted), catalogs, options, &mut |_| {})
        .map(|solved| solved.plan)
}

/// A valid plan.
#[derive(Debug)]
pub(crate) struct Solved {
    pub(crate) plan: Plan,
    /// The violations of the first plan, if it was not valid and `plan` leaves out the pods that it was about.
    pub(crate) replaced: Option<InvalidPlan>,
}

/// Like `solve`, for a snapshot in canonical order with its index, with a planner that has followed this cluster.
/// `early` receives valid launches that are final before the plan is complete.
///
/// # Errors
/// The plan is not valid, nor is one without the pods that its violations name.
pub(crate) fn solve_indexed(
    planner: &mut Planner,
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
    early: &mut dyn FnMut(Plan),
) -> Result<Solved, InvalidPlan> {
    let plan = planner.solve_early(snapshot, index, catalogs, options, &mut |launches| {
        let part = partial_plan(snapshot, launches);
        // An invalid part is dropped: the complete plan will then fail validation too.
        if plimsoll_invariants::check_part(snapshot, index, catalogs, &part).is_empty() {
            early(part);
        }
    });
    let violations = plimsoll_invariants::check_indexed(snapshot, index, catalogs, &plan);
    if violations.is_empty() {
        return Ok(Solved { plan, replaced: None });
    }
    let invalid = InvalidPlan { sequence: snapshot.sequence, violations };
    // Removals can wait until the planner is right again.
    let options = PlanOptions { disruption: false, ..options.clone() };
    let mut again = |remaining: &Snapshot, index: &SnapshotIndex| {
        planner.fresh().solve_early(remaining, index, catalogs, &options, &mut |_| {})
    };
    let plan = plan_without_offenders((snapshot, index), catalogs, (&plan, &invalid), &mut again)?;
    Ok(Solved { plan, replaced: Some(invalid) })
}

/// Returns the plan if it is valid for its input.
pub(crate) fn validated(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: Plan,
) -> Result<Plan, InvalidPlan> {
    let violations = plimsoll_invariants::check_indexed(snapshot, index, catalogs, &plan);
    if violations.is_empty() { Ok(plan) } else { Err(InvalidPlan { sequence: snapshot.sequence, violations }) }
}

/// Returns a plan with only these launches.
fn partial_plan(snapshot: &Snapshot, launches: &[Launch]) -> Plan {
    Plan {
        snapshot_sequence: snapshot.sequence,
        ledger: snapshot.ledger,
        launches: launches.to_vec(),
        hourly: launches.iter().map(Launch::price).sum(),
        ..Plan::default()
    }
}

//! One solve, and the check that its plan may be given away.

use plimsoll_invariants::Violation;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::Snapshot;
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

/// The plan for a snapshot: always the same for the same arguments.
pub(crate) fn solve(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
) -> Result<Plan, InvalidPlan> {
    let plan = plimsoll_solver::solve(snapshot, catalogs, options);
    let violations = plimsoll_invariants::check(snapshot, catalogs, &plan);
    if violations.is_empty() { Ok(plan) } else { Err(InvalidPlan { sequence: snapshot.sequence, violations }) }
}

//! Solves and validates plans.

mod attempt;
mod exclude;
mod solver;

pub use attempt::PlanFailure;
pub(crate) use attempt::TimeLimits;
use plimsoll_invariants::Violation;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Launch, Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use plimsoll_solver::{Cancel, Planner};
pub(crate) use solver::{Solved, Solver};
use std::collections::BTreeMap;
use std::fmt;

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

/// Signature of [`Planner::solve_early`].
type PlanSignature = fn(
    &mut Planner,
    &Snapshot,
    &SnapshotIndex,
    &BTreeMap<CatalogId, Catalog>,
    &PlanOptions,
    &mut dyn FnMut(&[Launch]),
) -> Plan;

/// Makes plans: [`Planner::solve_early`], except in tests of what happens if the planner is faulty.
#[derive(Clone, Copy)]
pub struct PlanFn(pub PlanSignature);

impl PlanFn {
    pub(crate) fn call(
        self,
        planner: &mut Planner,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
        early: &mut dyn FnMut(&[Launch]),
    ) -> Plan {
        (self.0)(planner, snapshot, index, catalogs, options, early)
    }
}

impl Default for PlanFn {
    fn default() -> Self {
        Self(Planner::solve_early)
    }
}

impl fmt::Debug for PlanFn {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("PlanFn")
    }
}

impl PartialEq for PlanFn {
    fn eq(&self, other: &Self) -> bool {
        std::ptr::fn_addr_eq(self.0, other.0)
    }
}

impl Eq for PlanFn {}

/// Makes the plan for a snapshot of a caller without a session. Deterministic, unless it is cancelled.
pub(crate) fn solve(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
    cancel: &Cancel,
) -> Result<Plan, PlanFailure> {
    solve_with(PlanFn::default(), snapshot, catalogs, options, cancel)
}

/// [`solve`] with another planner.
pub(crate) fn solve_with(
    plan: PlanFn,
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
    cancel: &Cancel,
) -> Result<Plan, PlanFailure> {
    let sorted = snapshot.sorted();
    let mut solver = Solver::new(plan, None, cancel.clone());
    solver.solve((&sorted, &SnapshotIndex::new(&sorted)), catalogs, options, &mut |_| {}).map(|solved| solved.plan)
}

/// Checks whether the plan is valid for its input.
pub(crate) fn validate(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: &Plan,
) -> Result<(), InvalidPlan> {
    let violations = plimsoll_invariants::check_indexed(snapshot, index, catalogs, plan);
    if violations.is_empty() { Ok(()) } else { Err(InvalidPlan { sequence: snapshot.sequence, violations }) }
}

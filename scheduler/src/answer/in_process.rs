//! Plans for a caller in the same process that already has the snapshot. The plan and the errors are the same as for a
//! request, but no pod is copied into a message.

use super::AnswerError;
use super::solve_input::{assign_catalog, only_catalog};
use crate::solve::{PlanFn, solve_with, validate};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use plimsoll_proto::convert::{check_catalogs, check_snapshot};
use plimsoll_solver::{Cancel, Planner};
use std::borrow::Cow;
use std::collections::BTreeMap;
use tonic::Status;

/// A plan that has not been validated yet.
#[derive(Debug)]
pub struct Unchecked<'a> {
    snapshot: Cow<'a, Snapshot>,
    index: SnapshotIndex,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    options: PlanOptions,
    planner: PlanFn,
    plan: Plan,
}

/// Makes the plan for a snapshot. `catalogs` are those that the pools refer to.
///
/// # Errors
/// As [`super::plan`] for an invalid request.
pub fn solve<'a>(
    snapshot: &'a Snapshot,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
) -> Result<Unchecked<'a>, Status> {
    solve_by(PlanFn::default(), snapshot, catalogs, options)
}

fn solve_by<'a>(
    planner: PlanFn,
    snapshot: &'a Snapshot,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
) -> Result<Unchecked<'a>, Status> {
    check_snapshot(snapshot).map_err(AnswerError::from)?;
    let mut snapshot = snapshot.sorted();
    if let Some(only) = only_catalog(&snapshot, catalogs) {
        assign_catalog(snapshot.to_mut(), &only);
    }
    check_catalogs(&snapshot, &catalogs.keys().cloned().collect()).map_err(AnswerError::from)?;
    let index = SnapshotIndex::new(&snapshot);
    let plan = planner.call(&mut Planner::default(), &snapshot, &index, catalogs, options, &mut |_| {});
    Ok(Unchecked { snapshot, index, catalogs, options: options.clone(), planner, plan })
}

/// Makes the plan for a snapshot as the service makes it for a request: checked, and without pods that make a plan
/// invalid.
///
/// # Errors
/// As [`super::plan`], for an invalid snapshot or plan.
pub fn plan(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
    cancel: &Cancel,
) -> Result<Plan, AnswerError> {
    check_snapshot(snapshot)?;
    check_catalogs(snapshot, &catalogs.keys().cloned().collect())?;
    Ok(crate::solve::solve(snapshot, catalogs, options, cancel)?)
}

impl Unchecked<'_> {
    /// Returns the plan if it is valid, and otherwise, like the service, a plan without the pods that make it invalid.
    ///
    /// # Errors
    /// INTERNAL if plans are also invalid without any pod to place.
    pub fn check(self) -> Result<Plan, Status> {
        self.check_noting(|_| {})
    }

    /// Like [`Self::check`]; calls `note` with what is wrong with a plan that is replaced.
    ///
    /// # Errors
    /// As [`Self::check`].
    pub fn check_noting(self, note: impl FnOnce(&str)) -> Result<Plan, Status> {
        let Self { snapshot, index, catalogs, options, planner, plan } = self;
        let Err(error) = validate(&snapshot, &index, catalogs, &plan) else { return Ok(plan) };
        note(&error.to_string());
        let replacement = solve_with(planner, &snapshot, catalogs, &options, &Cancel::default());
        Ok(replacement.map_err(AnswerError::from)?)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{catalogs, is_cursed, waiting_with_cursed};

    #[test]
    fn an_invalid_plan_is_replaced_by_one_without_the_pods_that_cause_it() {
        let faulty = PlanFn(|planner, snapshot, index, catalogs, options, early| {
            let mut plan = planner.solve_early(snapshot, index, catalogs, options, early);
            plan.hourly.0 += i64::from(is_cursed(snapshot));
            plan
        });
        let (snapshot, catalogs, options) = (waiting_with_cursed(), catalogs(), PlanOptions::default());
        let mut noted = String::new();
        let unchecked = solve_by(faulty, &snapshot, &catalogs, &options).unwrap();
        let plan = unchecked.check_noting(|error| error.clone_into(&mut noted)).unwrap();
        assert!(noted.starts_with("the plan for snapshot 1 is not valid: "), "{noted}");
        assert_eq!(plan.launched_pods().count(), 3);
        let left_out: Vec<&str> = plan.unschedulable.iter().map(|it| it.pod.name.as_str()).collect();
        assert_eq!(left_out, ["default/c-0", "default/c-1"]);
        let valid = solve(&snapshot, &catalogs, &options).unwrap();
        let plan = valid.check_noting(|error| panic!("{error}")).unwrap();
        assert_eq!(plan.launched_pods().count(), 5);
    }
}

//! Plans for a caller in the same process that already has the snapshot. The plan and the errors are the same as for a
//! request, but no pod is copied into a message.

use super::AnswerError;
use super::solve_input::{assign_catalog, only_catalog};
use crate::solve::validate;
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
    check_snapshot(snapshot).map_err(AnswerError::from)?;
    let mut snapshot = snapshot.sorted();
    if let Some(only) = only_catalog(&snapshot, catalogs) {
        assign_catalog(snapshot.to_mut(), &only);
    }
    check_catalogs(&snapshot, &catalogs.keys().cloned().collect()).map_err(AnswerError::from)?;
    let index = SnapshotIndex::new(&snapshot);
    let plan = Planner::default().solve(&snapshot, &index, catalogs, options);
    Ok(Unchecked { snapshot, index, catalogs, options: options.clone(), plan })
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
    /// INTERNAL if plans are also invalid without any pending pod.
    pub fn check(self) -> Result<Plan, Status> {
        let Self { snapshot, index, catalogs, options, plan } = self;
        if validate(&snapshot, &index, catalogs, &plan).is_ok() {
            return Ok(plan);
        }
        Ok(crate::solve::solve(&snapshot, catalogs, &options, &Cancel::default()).map_err(AnswerError::from)?)
    }
}

//! Plans for a caller in the same process, who has the snapshot already: the same plan and the same errors as for a request,
//! without a copy of every pod for the wire.

use super::AnswerError;
use super::question::{buy_from, only_catalog};
use crate::solve::checked;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use plimsoll_proto::convert::{check_catalogs, check_snapshot};
use plimsoll_solver::Planner;
use std::borrow::Cow;
use std::collections::BTreeMap;
use tonic::Status;

/// A plan that nobody may see before it is checked.
#[derive(Debug)]
pub struct Unchecked<'a> {
    snapshot: Cow<'a, Snapshot>,
    index: SnapshotIndex,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    plan: Plan,
}

/// The plan for a snapshot; the catalogs are those that its pools name.
///
/// # Errors
/// As [`super::plan`] for a request that makes no sense.
pub fn solve<'a>(
    snapshot: &'a Snapshot,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    options: &PlanOptions,
) -> Result<Unchecked<'a>, Status> {
    check_snapshot(snapshot).map_err(AnswerError::from)?;
    let mut snapshot = snapshot.sorted();
    if let Some(only) = only_catalog(&snapshot, catalogs) {
        buy_from(snapshot.to_mut(), &only);
    }
    check_catalogs(&snapshot, &catalogs.keys().cloned().collect()).map_err(AnswerError::from)?;
    let index = SnapshotIndex::new(&snapshot);
    let plan = Planner::new().solve(&snapshot, &index, catalogs, options);
    Ok(Unchecked { snapshot, index, catalogs, plan })
}

impl Unchecked<'_> {
    /// The plan, if it is valid.
    ///
    /// # Errors
    /// INTERNAL if the plan fails its check.
    pub fn check(self) -> Result<Plan, Status> {
        let plan = checked(&self.snapshot, &self.index, self.catalogs, self.plan);
        Ok(plan.map_err(AnswerError::from)?)
    }
}

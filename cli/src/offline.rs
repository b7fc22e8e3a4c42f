//! From manifests to a plan without a command line: what `plimsoll plan` does, for tests and tools in one process.

pub use crate::input::catalog_file;
pub use plimsoll_manifests::Offers;

use crate::input::Question;
use crate::manifests::Manifests;
use crate::plan::{render, table};
use crate::{CommandError, ask, input};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use serde_json::Value;
use std::collections::BTreeMap;

/// A plan, and what it was made from.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The cluster that the manifests describe.
    pub snapshot: Snapshot,
    /// What can be bought.
    pub catalogs: BTreeMap<CatalogId, Catalog>,
    /// The plan.
    pub plan: Plan,
}

impl Answer {
    /// The plan as `plimsoll plan -o json` prints it.
    #[must_use]
    pub fn json(&self) -> Value {
        render::plan(&self.plan)
    }

    /// The plan as `plimsoll plan` prints it.
    #[must_use]
    pub fn table(&self) -> String {
        table::render(&self.plan, &table::Notes::default())
    }
}

/// The plan for manifests at a time, under options.
///
/// # Errors
///
/// Bad input, with its place; or a plan that fails its check.
pub fn plan(
    manifests: Manifests,
    offers: &Offers,
    now: Timestamp,
    options: PlanOptions,
) -> Result<Answer, CommandError> {
    let question = Question { options, ..input::from_manifests(manifests, offers, None, now)? };
    let (plan, _) = ask::plan(&question, &ask::ServerArguments::default())?;
    Ok(Answer { snapshot: question.snapshot, catalogs: question.catalogs, plan })
}

//! Plans manifests in this process, like `plimsoll plan`, for tests and tools.

pub use crate::input::catalog_file;
pub use plimsoll_manifests::Offers;

use crate::input::Question;
use crate::manifests::Manifests;
use crate::plan::{render, staying, table};
use crate::{CommandError, ask, input};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use plimsoll_scheduler::answer::place_waiting;
use serde_json::Value;
use std::collections::BTreeMap;

/// A plan with its input.
#[derive(Debug, Clone)]
pub struct Answer {
    /// The cluster that the manifests describe.
    pub snapshot: Snapshot,
    /// Catalogs by id.
    pub catalogs: BTreeMap<CatalogId, Catalog>,
    /// The plan.
    pub plan: Plan,
}

impl Answer {
    /// The plan in the format of `plimsoll plan -o json`.
    #[must_use]
    pub fn json(&self) -> Value {
        let mut plan = self.plan.clone();
        place_waiting(&self.snapshot, &mut plan);
        staying::take(&self.snapshot, &mut plan);
        render::plan(&plan)
    }

    /// The plan in the format of `plimsoll plan`.
    #[must_use]
    pub fn table(&self) -> String {
        let mut plan = self.plan.clone();
        place_waiting(&self.snapshot, &mut plan);
        let staying = staying::take(&self.snapshot, &mut plan);
        table::render(&plan, &table::Notes { staying, ..table::Notes::default() })
    }
}

/// Plans manifests at a time, with options.
///
/// # Errors
///
/// If the input is invalid, or the plan fails its check.
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

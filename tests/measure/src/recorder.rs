//! Records the plans of a simulation, as a watcher records its own.

use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::{Outcome, OutcomeStatus};
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::Snapshot;
use plimsoll_proto::delta::checksum;
use plimsoll_recording::{Limits, PlannedEntry, Writer};
use std::collections::BTreeMap;
use std::io;
use std::path::Path;
use std::sync::Arc;

/// The watcher's default for all files together, in bytes.
const BYTES: u64 = 200 << 20;

/// Writes plans and their outcomes. In a simulation, every action is accepted.
pub(crate) struct Recorder {
    writer: Writer,
    catalogs: Vec<Arc<plimsoll_proto::catalog::v1::Catalog>>,
    /// The first error.
    pub(crate) result: io::Result<()>,
}

impl Recorder {
    pub(crate) fn new(folder: &Path, catalogs: &BTreeMap<CatalogId, Catalog>) -> Self {
        let catalogs = catalogs.values().map(|catalog| Arc::new(catalog.into())).collect();
        let writer = Writer::new(folder.to_owned(), Limits::of(BYTES), env!("CARGO_PKG_VERSION"), "simulated");
        Self { writer, catalogs, result: Ok(()) }
    }

    pub(crate) fn planned(&mut self, snapshot: Snapshot, options: &PlanOptions, plan: &Plan) {
        if self.result.is_ok() {
            self.result = self.write(snapshot, options, plan);
        }
    }

    fn write(&mut self, snapshot: Snapshot, options: &PlanOptions, plan: &Plan) -> io::Result<()> {
        let snapshot = Arc::new(snapshot);
        let cycle_id = format!("1-{}", snapshot.sequence);
        let entry = PlannedEntry {
            at: snapshot.now,
            snapshot: &snapshot,
            checksum: checksum(&snapshot),
            delta: None,
            catalogs: &self.catalogs,
            cycle_id: &cycle_id,
            options,
            plan,
        };
        self.writer.planned(&entry)?;
        let launches = plan.launches.iter().map(|launch| &launch.action_id);
        for action in launches.chain(plan.terminations.iter().map(|removal| &removal.action_id)) {
            let outcome = Outcome {
                action_id: action.clone(),
                status: OutcomeStatus::Accepted,
                reason: None,
                message: String::new(),
                node_claim: None,
                ledger: snapshot.ledger,
            };
            self.writer.reported(snapshot.now, &cycle_id, &outcome)?;
        }
        Ok(())
    }
}

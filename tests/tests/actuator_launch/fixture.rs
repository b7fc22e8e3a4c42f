//! Test setup and plans of launches.

use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::execution::{Outcome, OutcomeStatus};
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_sim::apiserver::error::ApiError;
use plimsoll_sim::apiserver::faults::Effect;
use plimsoll_sim::world::WorldConfig;
use plimsoll_tests::Setup;
use plimsoll_tests::fake_watcher::{self, FakeWatcher, future_pod};
use serde_json::json;

/// One actuator, and a pool with a limit of 20 vCPU.
pub(crate) fn start() -> FakeWatcher {
    start_with_limit("20")
}

/// One actuator, and a pool with this limit of CPU.
pub(crate) fn start_with_limit(cpu: &str) -> FakeWatcher {
    let types = ["m6i.large", "m6i.xlarge", "c6i.large", "m6i.32xlarge"].map(str::to_owned).to_vec();
    let world = WorldConfig { types: Some(types), ..WorldConfig::default() };
    FakeWatcher::start(Setup { world, ..Setup::with_pool(json!({"limits": {"cpu": cpu}})) })
}

/// As [`start`], once an actuator leads: its catalog and the position of its ledger, too.
pub(crate) async fn begin() -> (FakeWatcher, Catalog, LedgerPosition) {
    let watcher = start();
    let catalog = watcher.catalog().await;
    let position = watcher.position().await;
    (watcher, catalog, position)
}

/// A launch for one pod on any of the named types, On-Demand in every zone.
pub(crate) fn launch(catalog: &Catalog, action: &str, names: &[&str], pod: &str) -> Launch {
    fake_watcher::launch(catalog, action, names, CapacityType::OnDemand, vec![future_pod(pod)])
}

pub(crate) fn plan(position: LedgerPosition, launches: Vec<Launch>) -> Plan {
    let hourly = launches.iter().map(Launch::price).sum();
    Plan { snapshot_sequence: 1, ledger: position, launches, hourly, ..Plan::default() }
}

pub(crate) fn statuses(outcomes: &[Outcome]) -> Vec<OutcomeStatus> {
    outcomes.iter().map(|outcome| outcome.status).collect()
}

/// A definite rejection by the API server: nothing was written.
pub(crate) fn forbidden() -> Effect {
    Effect::Refuse(ApiError::new(403, "Forbidden", "a policy denies it"))
}

pub(crate) fn wanted(catalog: &Catalog, count: usize) -> Vec<Launch> {
    (0..count).map(|i| launch(catalog, &format!("a-{i}"), &["m6i.large", "m6i.xlarge"], &format!("p-{i}"))).collect()
}

//! Clusters without the CRDs of kinds that a plan can do without.

use crate::fixture::Fixture;
use plimsoll_sim::apiserver::ApiError;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;

#[tokio::test(start_paused = true)]
async fn the_watcher_is_ready_without_the_optional_kinds() {
    for kind in ["capacitybuffers", "capacityquotas", "nodeoverlays"] {
        let fixture = Fixture::new();
        fixture.server.faults().always(Matcher::of(Verb::List, kind), Effect::Refuse(ApiError::no_such_path()));
        let watcher = fixture.watcher("watcher-0", &["actuator-0"]);
        fixture.until(&format!("it is ready without {kind}"), || watcher.readiness.is_ready()).await;
    }
}

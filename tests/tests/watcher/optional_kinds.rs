//! Kinds that a plan can do without: their CRDs are missing, or they are ignored by setting.

use crate::fixture::Fixture;
use plimsoll_sim::apiserver::ApiError;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_watcher::service::Settings;

#[tokio::test(start_paused = true)]
async fn the_watcher_is_ready_without_the_optional_kinds() {
    for kind in ["capacitybuffers", "capacityquotas", "nodeoverlays"] {
        let fixture = Fixture::new();
        fixture.server.faults().always(Matcher::of(Verb::List, kind), Effect::Refuse(ApiError::no_such_path()));
        let watcher = fixture.watcher("watcher-0", &["actuator-0"]);
        fixture.until(&format!("it is ready without {kind}"), || watcher.readiness.is_ready()).await;
    }
}

#[tokio::test(start_paused = true)]
async fn a_kind_that_is_ignored_is_not_read() {
    let fixture = Fixture::new();
    for kind in ["capacitybuffers", "nodeoverlays"] {
        fixture.server.faults().always(Matcher::of(Verb::List, kind), Effect::internal_error());
    }
    let settings = Settings { capacity_buffers: false, node_overlays: false, ..Settings::default() };
    let watcher = fixture.watcher_with("watcher-0", &["actuator-0"], settings);
    fixture.until("it is ready", || watcher.readiness.is_ready()).await;
}

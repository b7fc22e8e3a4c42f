//! Kinds that a plan can do without: their CRDs are missing, or they are ignored by setting.

use crate::fixture::Fixture;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ApiError, ResourceId};
use plimsoll_watcher::service::Settings;
use serde_json::json;
use std::time::Duration;

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

/// Creates a CapacityBuffer for one pod, which no scheduler places.
fn put_buffer(fixture: &Fixture) {
    for scheduler in &fixture.schedulers {
        scheduler.with(|state| state.impossible.push("capacity-buffer-spare-1".to_owned()));
    }
    fixture.replica_set("web", 1);
    let buffer = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
        "metadata": {"name": "spare"},
        "spec": {"scalableRef": {"apiGroup": "apps", "kind": "ReplicaSet", "name": "web"}, "replicas": 1}});
    fixture.put(ResourceId::CAPACITY_BUFFERS, "spare", buffer, &json!({}));
}

/// Number of virtual pods in the last snapshot that was planned for.
fn virtual_pods(fixture: &Fixture) -> usize {
    fixture.schedulers[0].with(|state| {
        let pods = state.planned.last().into_iter().flat_map(|snapshot| &snapshot.pods);
        pods.filter(|pod| pod.buffer.is_some()).count()
    })
}

#[tokio::test(start_paused = true)]
async fn a_kind_whose_crd_is_installed_later_is_read_within_half_a_minute() {
    let fixture = Fixture::new();
    let missing = Effect::Refuse(ApiError::no_such_path());
    let rule = fixture.server.faults().always(Matcher::of(Verb::List, "capacitybuffers"), missing);
    let watcher = fixture.watcher("watcher-0", &["actuator-0"]);
    fixture.until("it is ready", || watcher.readiness.is_ready()).await;
    fixture.server.faults().remove(rule);
    put_buffer(&fixture);
    let took = fixture.until("the buffer has a virtual pod", || virtual_pods(&fixture) == 1).await;
    assert!(took < Duration::from_secs(31), "{took:?}");
}

/// The watch sees no deletion, and the API server does not let it resume.
#[tokio::test(start_paused = true)]
async fn a_kind_that_was_deleted_while_its_watch_was_down_has_no_objects() {
    let (fixture, _watcher) = Fixture::with_watcher().await;
    put_buffer(&fixture);
    fixture.until("the buffer has a virtual pod", || virtual_pods(&fixture) == 1).await;
    for verb in [Verb::List, Verb::Watch] {
        let matcher = Matcher::of(verb, "capacitybuffers");
        fixture.server.faults().always(matcher, Effect::Refuse(ApiError::no_such_path()));
    }
    fixture.server.faults().cut_watches(["watcher-0"]);
    fixture.until("the virtual pod is gone", || virtual_pods(&fixture) == 0).await;
}

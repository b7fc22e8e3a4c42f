//! Tests of pod affinity, topology spread and volumes in the scheduler.

use super::{Fixture, is_running, node_of, workload};
use crate::apiserver::{ResourceId, object};
use crate::kube::NodeSpec;
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Two nodes with 8 CPUs in zone a, and one with 4 in zone b.
fn zones() -> Fixture {
    let fixture = Fixture::new();
    for (name, zone, cpu) in [("a1", "a", "8"), ("a2", "a", "8"), ("b1", "b", "4")] {
        let labels = [("topology.kubernetes.io/zone".to_owned(), zone.to_owned())].into();
        fixture.node_with(NodeSpec { name: name.to_owned(), labels, ..NodeSpec::default() }, cpu);
    }
    fixture
}

/// Number of pods of the app per node.
fn placed(fixture: &Fixture, app: &str) -> BTreeMap<String, usize> {
    let mut by_node = BTreeMap::new();
    for pod in fixture.pods().iter().filter(|pod| object::label(pod, "app") == Some(app)) {
        *by_node.entry(node_of(pod).to_owned()).or_default() += 1;
    }
    by_node
}

fn with_spec(name: &str, replicas: usize, spec: &Value) -> Value {
    workload(name, "1", &json!({"replicas": replicas, "template": {"spec": spec}}))
}

fn message_of_pending(fixture: &Fixture) -> String {
    let pods = fixture.pods();
    let pending = pods.iter().find(|pod| node_of(pod).is_empty());
    let condition = pending.and_then(|pod| object::condition(pod, "PodScheduled"));
    condition.map(|condition| object::text(condition, &["message"]).to_owned()).unwrap_or_default()
}

#[tokio::test(start_paused = true)]
async fn pods_are_spread_over_zones_and_wait_where_that_is_full() {
    let fixture = zones();
    let spread = json!({"topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "topology.kubernetes.io/zone",
        "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": "web"}}}]});
    // Zone b has capacity for four pods. A fifth in zone a makes a skew of one, which is the maximum.
    fixture.create(ResourceId::DEPLOYMENTS, with_spec("web", 10, &spread));
    fixture.until("nine run", |fixture| fixture.count(is_running) == 9).await;
    fixture
        .until("the tenth pod has the reason", |fixture| message_of_pending(fixture).contains("topology spread"))
        .await;
    let by_node = placed(&fixture, "web");
    assert_eq!(by_node["b1"], 4, "{by_node:?}");
    assert_eq!(by_node["a1"] + by_node["a2"], 5, "{by_node:?}");
    assert!(message_of_pending(&fixture).contains("2 node(s) didn't match pod topology spread constraints"));
}

#[tokio::test(start_paused = true)]
async fn anti_affinity_keeps_pods_apart_and_affinity_waits_for_the_other() {
    let fixture = zones();
    let term = |app: &str, key: &str| {
        json!({"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": key, "labelSelector": {"matchExpressions": [{"key": "app", "operator": "In", "values": [app]}]}}]})
    };
    let near = json!({"affinity": {"podAffinity": term("db", "topology.kubernetes.io/zone")}});
    fixture.create(ResourceId::DEPLOYMENTS, with_spec("web", 1, &near));
    fixture
        .until("web waits for db", |fixture| {
            message_of_pending(fixture).contains("3 node(s) didn't match pod affinity rules")
        })
        .await;
    let mut apart = json!({"affinity": {"podAntiAffinity": term("db", "kubernetes.io/hostname")}});
    apart["nodeSelector"] = json!({"topology.kubernetes.io/zone": "a"});
    fixture.create(ResourceId::DEPLOYMENTS, with_spec("db", 2, &apart));
    fixture.until("all run", |fixture| fixture.count(is_running) == 3).await;
    assert_eq!(placed(&fixture, "db"), BTreeMap::from([("a1".to_owned(), 1), ("a2".to_owned(), 1)]));
    assert!(!placed(&fixture, "web").contains_key("b1"));
}

#[tokio::test(start_paused = true)]
async fn a_pod_goes_where_its_volume_is() {
    let fixture = zones();
    let near = json!({"required": {"nodeSelectorTerms": [{"matchExpressions": [
        {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["b"]}]}]}});
    let csi = json!({"driver": "ebs.csi.aws.com", "volumeHandle": "vol-1"});
    let volume = json!({"metadata": {"name": "pv"}, "spec": {"csi": csi, "nodeAffinity": near}});
    fixture.create(ResourceId::PERSISTENT_VOLUMES, volume);
    let claim = json!({"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "pv"}});
    fixture.create(ResourceId::PERSISTENT_VOLUME_CLAIMS, claim);
    let volumes = json!({"volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]});
    fixture.create(ResourceId::DEPLOYMENTS, with_spec("db", 1, &volumes));
    fixture.until_running(1).await;
    // The other nodes have half the load.
    assert_eq!(placed(&fixture, "db"), BTreeMap::from([("b1".to_owned(), 1)]));
}

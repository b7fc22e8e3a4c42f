//! Calls that evict pods: how many are made at the same time, and which of them count.

use super::drain::{evictions, is_drained, run_pod};
use plimsoll_sim::apiserver::faults::{Effect, Gate};
use plimsoll_sim::apiserver::{ApiError, ResourceId};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, wanted};
use plimsoll_tests::{MINUTE, Setup};
use serde_json::json;
use std::time::Duration;

/// Pods of each node.
const PODS: usize = 17;

/// The API server has other clients, too.
#[tokio::test(start_paused = true)]
async fn sixteen_pods_of_a_node_and_sixty_four_in_all_are_evicted_at_the_same_time() {
    for (nodes, most) in [(1, 16), (5, 64)] {
        let watcher = FakeWatcher::begin(Setup::default()).await;
        let mut claims = Vec::new();
        for number in 0..nodes {
            let (claim, node) = watcher.node(&wanted(&format!("a-{number}"))).await;
            for pod in 0..PODS {
                let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": format!("{number}-{pod}")},
                    "spec": {"nodeName": node, "containers": [{"name": "main", "image": "example.com/app:1"}]}});
                watcher.world.apply_object(&pod).unwrap();
            }
            claims.push(claim);
        }
        watcher.until("the pods run", MINUTE, |world| world.running_pods() == nodes * PODS).await;
        // The watch shows them by then.
        tokio::time::sleep(Duration::from_secs(1)).await;
        let gate = Gate::default();
        watcher.world.server().faults().always(evictions(), Effect::HoldBefore(gate.clone()));
        for claim in &claims {
            watcher.world.delete(ResourceId::NODE_CLAIMS, claim).unwrap();
        }
        tokio::time::timeout(MINUTE, gate.reached(most)).await.unwrap();
        // Before the first calls time out.
        let more = tokio::time::timeout(Duration::from_secs(2), gate.reached(most + 1)).await;
        assert!(more.is_err(), "more than {most} of {nodes} nodes");
    }
}

#[tokio::test(start_paused = true)]
async fn a_pod_that_was_gone_before_its_eviction_does_not_count() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    run_pod(&watcher, "a", &node, &json!({}), 1).await;
    // The next try evicts the pod.
    let gone = Effect::Refuse(ApiError::new(404, "NotFound", "pods \"a\" not found"));
    watcher.world.server().faults().next(1, evictions(), gone);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.until("the node is drained", MINUTE, |world| is_drained(world, &claim)).await;
    let counted = |result: &str| watcher.counted("plimsoll_actuator_evictions_total", &[("result", result)]);
    assert_eq!((counted("evicted"), counted("refused")), (1, 0));
    assert_eq!(watcher.counted("karpenter_pods_drained_total", &[]), 1);
    assert_eq!(watcher.counted("karpenter_pods_eviction_requests_total", &[("code", "404")]), 1);
}

/// What the API server says, and nothing about the client.
#[tokio::test(start_paused = true)]
async fn an_eviction_that_a_webhook_refuses_is_reported_with_its_message() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    run_pod(&watcher, "a", &node, &json!({}), 1).await;
    let refused = Effect::Refuse(ApiError::new(403, "Forbidden", "a webhook refuses it"));
    watcher.world.server().faults().always(evictions(), refused);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let report = "FailedDraining: waiting for 1 pods: default/a: a webhook refuses it";
    let is_reported = |world: &World| world.events_of("Node", &node).iter().any(|event| event == report);
    watcher.until("the refusal is reported", MINUTE, is_reported).await;
}

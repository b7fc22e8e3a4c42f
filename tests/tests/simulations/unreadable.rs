//! Objects that the API server accepts and Plimsoll cannot read (rule 21). One of them must not stop anything else.

use crate::collection::stray;
use plimsoll_model::names::{TERMINATION_FINALIZER, label};
use plimsoll_sim::apiserver::store::{Part, Write};
use plimsoll_sim::apiserver::{Patch, ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, TestCluster, node_pool};
use serde_json::{Value, json};
use std::time::Duration;

/// Longer than Go can represent. The pattern of the CRD allows it.
const TOO_LONG: &str = "2562048h";

/// A claim that cannot be read.
fn claim(name: &str, group: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name},
        "spec": {
            "nodeClassRef": {"group": group, "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": label::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}],
            "expireAfter": TOO_LONG,
        },
    })
}

/// The actuator's standby takes over.
async fn change_leader(cluster: &mut TestCluster) {
    let old = cluster.plimsoll.leader(Role::Actuator).unwrap();
    cluster.plimsoll.kill(&old);
    let started = tokio::time::Instant::now();
    while cluster.plimsoll.leader(Role::Actuator).is_none() {
        assert!(started.elapsed() < 2 * MINUTE, "nobody leads");
        cluster.pass(Duration::from_millis(200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_get_nodes_although_some_objects_cannot_be_read() {
    let mut cluster = TestCluster::usual().await;
    let ours = cluster.world.apply_object(&claim("ours", "karpenter.k8s.aws")).unwrap();
    let foreign = cluster.world.apply_object(&claim("foreign", "example.com")).unwrap();
    cluster.world.apply_object(&node_pool("odd", &json!({"disruption": {"consolidateAfter": TOO_LONG}}))).unwrap();
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;

    change_leader(&mut cluster).await;
    cluster.deploy("more", 2, 3000);
    cluster.until_running(3, 5 * MINUTE).await;

    // Longer than a claim may take to launch.
    cluster.pass(10 * MINUTE).await;
    for (name, before) in [("ours", ours), ("foreign", foreign)] {
        assert_eq!(cluster.world.get(ResourceId::NODE_CLAIMS, name), Some(before), "{}", cluster.summary());
    }
    let of_odd = cluster.claims().into_iter().find(|it| object::label(it, label::NODE_POOL) == Some("odd"));
    assert_eq!(of_odd, None);
    assert_eq!(cluster.world.running_pods(), 3);
}

/// Without its claim, garbage collection would end the instance. Once the claim is deleted, it is terminated.
#[tokio::test(start_paused = true)]
async fn the_instance_of_an_unreadable_claim_is_kept_until_the_claim_is_deleted() {
    let mut cluster = TestCluster::usual().await;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    let instance = stray(&cluster, true);
    let mut unreadable = claim("ours", "karpenter.k8s.aws");
    unreadable["metadata"]["finalizers"] = json!([TERMINATION_FINALIZER]);
    cluster.world.apply_object(&unreadable).unwrap();
    let zone = cluster.world.living_instances()[&instance].zone.clone();
    let status = json!({"status": {"providerID": format!("aws:///{zone}/{instance}")}});
    let write = Write::new(cluster.world.server().now(), "test");
    let patched = cluster.world.server().write(|store| {
        store.patch(ResourceId::NODE_CLAIMS, "", "ours", Part::Status, &Patch::Merge(status), &write).map(drop)
    });
    patched.unwrap();

    change_leader(&mut cluster).await;
    cluster.pass(20 * MINUTE).await;
    assert!(cluster.world.living_instances().contains_key(&instance), "{}", cluster.summary());

    cluster.world.delete(ResourceId::NODE_CLAIMS, "ours").unwrap();
    let gone = move |world: &World| {
        world.get(ResourceId::NODE_CLAIMS, "ours").is_none() && !world.living_instances().contains_key(&instance)
    };
    cluster.until("claim and instance are gone", 10 * MINUTE, gone).await;
    assert_eq!(cluster.world.running_pods(), 1);
}

//! Objects that the API server accepts and Plimsoll cannot read (rule 21). One of them must not stop anything else.

use crate::collection::stray;
use plimsoll_model::names::{TERMINATION_FINALIZER, label};
use plimsoll_sim::apiserver::store::{Part, Write};
use plimsoll_sim::apiserver::{Patch, ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Scene, node_pool};
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
async fn change_leader(scene: &mut Scene) {
    let old = scene.plimsoll.leader(Role::Actuator).unwrap();
    scene.plimsoll.kill(&old);
    let started = tokio::time::Instant::now();
    while scene.plimsoll.leader(Role::Actuator).is_none() {
        assert!(started.elapsed() < 2 * MINUTE, "nobody leads");
        scene.pass(Duration::from_millis(200)).await;
    }
}

#[tokio::test(start_paused = true)]
async fn pods_get_nodes_although_some_objects_cannot_be_read() {
    let mut scene = Scene::usual().await;
    let ours = scene.world.apply_object(&claim("ours", "karpenter.k8s.aws")).unwrap();
    let foreign = scene.world.apply_object(&claim("foreign", "example.com")).unwrap();
    scene.world.apply_object(&node_pool("odd", &json!({"disruption": {"consolidateAfter": TOO_LONG}}))).unwrap();
    scene.deploy("web", 1, 500);
    scene.until_running(1, 3 * MINUTE).await;

    change_leader(&mut scene).await;
    scene.deploy("more", 2, 3000);
    scene.until_running(3, 5 * MINUTE).await;

    // Longer than a claim may take to launch.
    scene.pass(10 * MINUTE).await;
    for (name, before) in [("ours", ours), ("foreign", foreign)] {
        assert_eq!(scene.world.get(ResourceId::NODE_CLAIMS, name), Some(before), "{}", scene.summary());
    }
    let of_odd = scene.claims().into_iter().find(|it| object::label(it, label::NODE_POOL) == Some("odd"));
    assert_eq!(of_odd, None);
    assert_eq!(scene.world.running_pods(), 3);
}

/// Without its claim, garbage collection would end the instance. Once the claim is deleted, it is terminated.
#[tokio::test(start_paused = true)]
async fn the_instance_of_an_unreadable_claim_is_kept_until_the_claim_is_deleted() {
    let mut scene = Scene::usual().await;
    scene.deploy("web", 1, 500);
    scene.until_running(1, 3 * MINUTE).await;
    let instance = stray(&scene, true);
    let mut unreadable = claim("ours", "karpenter.k8s.aws");
    unreadable["metadata"]["finalizers"] = json!([TERMINATION_FINALIZER]);
    scene.world.apply_object(&unreadable).unwrap();
    let zone = scene.world.living_instances()[&instance].zone.clone();
    let status = json!({"status": {"providerID": format!("aws:///{zone}/{instance}")}});
    let write = Write::new(scene.world.server().now(), "test");
    let patched = scene.world.server().write(|store| {
        store.patch(ResourceId::NODE_CLAIMS, "", "ours", Part::Status, &Patch::Merge(status), &write).map(drop)
    });
    patched.unwrap();

    change_leader(&mut scene).await;
    scene.pass(20 * MINUTE).await;
    assert!(scene.world.living_instances().contains_key(&instance), "{}", scene.summary());

    scene.world.delete(ResourceId::NODE_CLAIMS, "ours").unwrap();
    let gone = move |world: &World| {
        world.get(ResourceId::NODE_CLAIMS, "ours").is_none() && !world.living_instances().contains_key(&instance)
    };
    scene.until("claim and instance are gone", 10 * MINUTE, gone).await;
    assert_eq!(scene.world.running_pods(), 1);
}

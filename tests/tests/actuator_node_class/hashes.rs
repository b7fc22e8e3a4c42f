//! Hashes of claims that an older version of the algorithm made.

use super::{LIMIT, class, fixture};
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::node_pool;
use serde_json::{Value, json};
use std::time::Duration;

const HASH: &str = "karpenter.k8s.aws/ec2nodeclass-hash";
/// Annotations with the versions of the hashes of class and pool, and these versions.
const OF_CLASS: (&str, &str) = ("karpenter.k8s.aws/ec2nodeclass-hash-version", "v6");
const OF_POOL: (&str, &str) = ("karpenter.sh/nodepool-hash-version", "v3");

/// A claim of the class `default` and the pool `web` with hashes of older versions.
fn old_claim(name: &str) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": name, "labels": {"karpenter.sh/nodepool": "web"},
            "annotations": {HASH: "1", OF_CLASS.0: "v5", "karpenter.sh/nodepool-hash": "1", OF_POOL.0: "v2"},
        },
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}],
            "expireAfter": "Never",
        },
    })
}

/// Whether the object has the annotations.
fn has(world: &World, resource: ResourceId, name: &str, annotations: &[(&str, &str)]) -> bool {
    let Some(object) = world.get(resource, name) else { return false };
    annotations.iter().all(|(key, value)| object::annotation(&object, key) == Some(*value))
}

/// A class that is created again, for example, has no hash, while its claims may have one of an older version.
#[tokio::test(start_paused = true)]
async fn claims_of_an_older_version_get_the_hash_of_a_class_that_had_none() {
    let fixture = fixture();
    fixture.world.apply_object(&old_claim("old")).unwrap();
    // The actuator sees the claim before the class.
    tokio::time::sleep(Duration::from_secs(5)).await;
    fixture.world.apply_object(&class(&json!({}))).unwrap();
    fixture.until("the class has a hash", |class| object::annotation(class, OF_CLASS.0) == Some(OF_CLASS.1)).await;
    let claim = fixture.world.get(ResourceId::NODE_CLAIMS, "old").unwrap();
    let of_class = fixture.class();
    assert_eq!(object::annotation(&claim, OF_CLASS.0), Some(OF_CLASS.1));
    assert_eq!(object::annotation(&claim, HASH), object::annotation(&of_class, HASH));
}

/// For example since a webhook refuses it. It is the first by name.
#[tokio::test(start_paused = true)]
async fn a_claim_that_cannot_be_written_keeps_no_other_from_its_hash_and_is_tried_again() {
    let fixture = fixture();
    let world = &fixture.world;
    let name = Some("blocked".to_owned());
    let matcher = Matcher { subresource: Some(""), name, ..Matcher::of(Verb::Patch, "nodeclaims") };
    let rule = world.server().faults().always(matcher, Effect::internal_error());
    for name in ["blocked", "other"] {
        world.apply_object(&old_claim(name)).unwrap();
    }
    tokio::time::sleep(Duration::from_secs(5)).await;
    world.apply_object(&class(&json!({}))).unwrap();
    world.apply_object(&node_pool("web", &json!({}))).unwrap();

    fixture.until_ready().await;
    let seen = |world: &World| {
        has(world, ResourceId::EC2_NODE_CLASSES, "default", &[OF_CLASS])
            && has(world, ResourceId::NODE_POOLS, "web", &[OF_POOL])
            && has(world, ResourceId::NODE_CLAIMS, "other", &[OF_CLASS, OF_POOL])
    };
    world.until("class, pool and the other claim have hashes", LIMIT, seen).await.unwrap();
    let is_ready = |world: &World| {
        world.get(ResourceId::NODE_POOLS, "web").is_some_and(|pool| object::condition_is_true(&pool, "NodeClassReady"))
    };
    world.until("the pool has a status", LIMIT, is_ready).await.unwrap();
    assert!(has(world, ResourceId::NODE_CLAIMS, "blocked", &[(OF_CLASS.0, "v5"), (OF_POOL.0, "v2")]));

    world.server().faults().remove(rule);
    let is_hashed = |world: &World| has(world, ResourceId::NODE_CLAIMS, "blocked", &[OF_CLASS, OF_POOL]);
    world.until("the claim has hashes", LIMIT, is_hashed).await.unwrap();
}

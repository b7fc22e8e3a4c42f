//! Tests of the world helpers in virtual time.

use super::{World, WorldConfig};
use crate::apiserver::{ResourceId, object};
use serde_json::json;
use std::time::Duration;

fn world() -> World {
    World::start(WorldConfig { types: Some(vec!["m6g.large".to_owned()]), ..WorldConfig::default() }).unwrap()
}

#[tokio::test(start_paused = true)]
async fn several_objects_are_applied_and_applied_again() {
    let world = world();
    let text = "apiVersion: v1\nkind: ConfigMap\nmetadata: {name: one}\ndata: {a: '1'}\n---\napiVersion: v1\nkind: ConfigMap\nmetadata: {name: two}\n";
    world.apply(text).unwrap();
    world.apply(&text.replace("'1'", "'2'")).unwrap();
    assert_eq!(world.all(ResourceId::CONFIG_MAPS).len(), 2);
    assert_eq!(object::text(&world.get(ResourceId::CONFIG_MAPS, "one").unwrap(), &["data", "a"]), "2");
    assert!(
        world
            .apply("kind: Unknown\napiVersion: v1\nmetadata: {name: x}\n")
            .unwrap_err()
            .to_string()
            .contains("Unknown")
    );
    assert!(world.apply("a: [").is_err());
}

#[tokio::test(start_paused = true)]
async fn a_deployment_waits_without_nodes_and_says_so_in_events() {
    let world = world();
    world.deploy("web", 2, &json!({"cpu": "1"}), &json!({})).unwrap();
    let minute = Duration::from_secs(60);
    world.until("two pods wait", minute, |world| world.pending_pods() == 2).await.unwrap();
    world.until("they say why", minute, |world| world.all(ResourceId::EVENTS).len() >= 2).await.unwrap();
    let pods = world.all(ResourceId::PODS);
    let events = world.events_of("Pod", object::name(&pods[0]));
    assert!(events[0].starts_with("FailedScheduling: no nodes available"), "{events:?}");
    world.scale("web", 0).unwrap();
    world.until("the pods are deleted", minute, |world| world.all(ResourceId::PODS).is_empty()).await.unwrap();
    let missing = world.until("a third", minute, |world| world.pending_pods() == 3).await.unwrap_err();
    assert_eq!(missing.to_string(), "not seen within 60s: a third");
}

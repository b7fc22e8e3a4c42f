//! Volumes that are still attached when a node is drained.

use super::{is_gone, with_booting_instance};
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::{Part, Store, Write};
use plimsoll_sim::apiserver::{ApiError, Patch, ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, wanted};
use plimsoll_tests::{MINUTE, Setup, running_on};
use serde_json::json;
use std::time::Duration;

fn attach(world: &World, volume: &str, node: &str) {
    let attachment = json!({"apiVersion": "storage.k8s.io/v1", "kind": "VolumeAttachment", "metadata": {"name": volume},
        "spec": {"attacher": "ebs.csi.aws.com", "nodeName": node, "source": {"persistentVolumeName": volume}}});
    world.apply_object(&attachment).unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_volume_that_is_never_detached_is_waited_for_until_the_nodes_time_is_over() {
    let spec = json!({"template": {"spec": {"terminationGracePeriod": "2m"}}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    attach(&watcher.world, "v", &node);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let has_given_up = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim).unwrap();
        let condition = object::condition(&claim, "VolumesDetached").cloned().unwrap_or_default();
        (&condition["status"], &condition["reason"]) == (&json!("False"), &json!("TerminationGracePeriodElapsed"))
    };
    let limit = 2 * MINUTE + Duration::from_secs(5);
    let took = watcher.until("the volume is given up", limit, has_given_up).await;
    // Times in Kubernetes have whole seconds.
    assert!(took >= 2 * MINUTE - Duration::from_secs(1), "{took:?}");
    watcher.until("claim, node and instance are deleted", MINUTE, is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn a_node_ends_in_time_although_attached_volumes_cannot_be_listed() {
    let spec = json!({"template": {"spec": {"terminationGracePeriod": "2m"}}});
    let watcher = FakeWatcher::begin(Setup::with_pool(spec)).await;
    let (claim, _) = watcher.node(&wanted("a-1")).await;
    let denied = Effect::Refuse(ApiError::new(403, "Forbidden", "a right is missing"));
    watcher.world.server().faults().always(Matcher::of(Verb::List, "volumeattachments"), denied);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    // The instance takes 30 s to end.
    let limit = 2 * MINUTE + Duration::from_secs(40);
    let took = watcher.until("claim, node and instance are deleted", limit, is_gone).await;
    assert!(took >= 2 * MINUTE - Duration::from_secs(1), "volumes may be attached, but it took {took:?}");
}

/// No volume is attached to an instance that has not become a Node.
#[tokio::test(start_paused = true)]
async fn a_claim_without_a_node_waits_for_no_volumes() {
    let (watcher, claim) = with_booting_instance().await;
    let denied = Effect::Refuse(ApiError::new(403, "Forbidden", "a right is missing"));
    watcher.world.server().faults().always(Matcher::of(Verb::List, "volumeattachments"), denied);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.until("claim and instance are deleted", MINUTE, is_gone).await;
}

#[tokio::test(start_paused = true)]
async fn nodes_share_lists_of_attached_volumes_that_take_long() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let actions: Vec<String> = (0..20).map(|number| format!("a-{number}")).collect();
    let launches: Vec<Wanted<'_>> = actions.iter().map(|action| wanted(action)).collect();
    watcher.send(watcher.plan(&launches, Vec::new()).await).await;
    let in_service = |world: &World| {
        world.count(ResourceId::NODE_CLAIMS, |claim| object::condition_is_true(claim, "Initialized")) == launches.len()
    };
    watcher.until("the nodes are in service", 5 * MINUTE, in_service).await;
    let lists = Matcher::of(Verb::List, "volumeattachments");
    watcher.world.server().faults().always(lists, Effect::Delay(Duration::from_secs(2)));
    for claim in watcher.world.all(ResourceId::NODE_CLAIMS) {
        watcher.world.delete(ResourceId::NODE_CLAIMS, object::name(&claim)).unwrap();
    }
    watcher.until("claims, nodes and instances are deleted", 2 * MINUTE, is_gone).await;
    let requests = watcher.world.server().audit();
    let lists = requests.iter().filter(|it| it.verb == Verb::List && it.resource == ResourceId::VOLUME_ATTACHMENTS);
    // The drains end within a few seconds, and each list serves at least those of the second before it.
    let count = lists.count();
    assert!((1..=4).contains(&count), "{count} lists");
}

/// In a large cluster, one call for all of them would never end in time.
#[tokio::test(start_paused = true)]
async fn attached_volumes_are_listed_in_pages() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    (0..1000).for_each(|number| attach(&watcher.world, &format!("a-{number}"), "elsewhere"));
    attach(&watcher.world, "v", &node);
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let waits = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim);
        let condition = claim.and_then(|claim| object::condition(&claim, "VolumesDetached").cloned());
        condition.is_some_and(|it| it["message"] == "volumes still attached: v")
    };
    watcher.until("the volume on the second page is waited for", MINUTE, waits).await;
    let requests = watcher.world.server().audit();
    let pages = requests.iter().filter(|it| it.verb == Verb::List && it.resource == ResourceId::VOLUME_ATTACHMENTS);
    assert!(pages.count() > 1);
}

/// Nothing on the node keeps the volume, so it is being detached.
#[tokio::test(start_paused = true)]
async fn a_volume_of_a_pod_that_has_ended_is_waited_for() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    let world = &watcher.world;
    let volume_claim = json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": "data"},
        "spec": {"accessModes": ["ReadWriteOnce"], "volumeName": "v"}});
    world.apply_object(&volume_claim).unwrap();
    attach(world, "v", &node);
    let job = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "job"}, "spec": {"nodeName": node,
        "containers": [{"name": "main", "image": "example.com/app:1"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]}});
    world.apply_object(&job).unwrap();
    watcher.until("the pod runs", MINUTE, |world| running_on(world, &node) == 1).await;
    let (ended, write) =
        (Patch::Merge(json!({"status": {"phase": "Succeeded"}})), Write::new(world.server().now(), "t"));
    let end =
        |store: &mut Store| store.patch(ResourceId::PODS, "default", "job", Part::Status, &ended, &write).map(drop);
    world.server().write(end).unwrap();
    world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    let waits = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim);
        let condition = claim.and_then(|claim| object::condition(&claim, "VolumesDetached").cloned());
        condition.is_some_and(|it| it["message"] == "volumes still attached: v")
    };
    watcher.until("the volume is waited for", MINUTE, waits).await;
    // The Event is written.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let events = world.events_of("Node", &node);
    assert!(events.contains(&"AwaitingVolumeDetachment: volumes still attached: v".to_owned()), "{events:?}");
    world.delete(ResourceId::VOLUME_ATTACHMENTS, "v").unwrap();
    let is_detached = |world: &World| {
        let claim = world.get(ResourceId::NODE_CLAIMS, &claim);
        claim.is_some_and(|claim| object::condition_is_true(&claim, "VolumesDetached"))
    };
    // The list of attached volumes is a second old at most.
    watcher.until("the volume is detached", Duration::from_secs(3), is_detached).await;
    watcher.until("claim, node and instance are deleted", 3 * MINUTE, is_gone).await;
}

/// The pod stays until the instance is terminated, and so do its volumes.
#[tokio::test(start_paused = true)]
async fn volumes_of_a_pod_that_is_not_drained_are_not_waited_for() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&wanted("a-1")).await;
    for (name, volume) in [("data", "v"), ("agent-scratch", "w")] {
        let spec = json!({"accessModes": ["ReadWriteOnce"], "volumeName": volume});
        let volume_claim =
            json!({"apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name}, "spec": spec});
        watcher.world.apply_object(&volume_claim).unwrap();
        attach(&watcher.world, volume, &node);
    }
    let template = json!({"spec": {"accessModes": ["ReadWriteOnce"]}});
    let agent = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "agent"}, "spec": {"nodeName": node,
        "tolerations": [{"operator": "Exists"}],
        "containers": [{"name": "main", "image": "example.com/app:1"}],
        "volumes": [{"name": "data", "persistentVolumeClaim": {"claimName": "data"}},
                    {"name": "scratch", "ephemeral": {"volumeClaimTemplate": template}}]}});
    watcher.world.apply_object(&agent).unwrap();
    watcher.until("the pod runs", MINUTE, |world| running_on(world, &node) == 1).await;
    watcher.world.delete(ResourceId::NODE_CLAIMS, &claim).unwrap();
    watcher.until("claim, node and instance are deleted", 3 * MINUTE, is_gone).await;
}

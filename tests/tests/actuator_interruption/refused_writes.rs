//! Interruptions while the API server refuses writes, for example since a webhook is down.

use super::{NOTICE, announce_maintenance, begin, interrupt, is_deleting, with_pods};
use plimsoll_model::identity::PodUid;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::pod_ref;
use std::collections::BTreeSet;
use std::time::Duration;

/// Otherwise the pods would end with the instance, without their grace period.
#[tokio::test(start_paused = true)]
async fn pods_are_evicted_before_the_instance_ends_although_a_write_is_refused() {
    let status = Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") };
    for refused in [Matcher::of(Verb::Patch, "nodes"), status] {
        let watcher = begin().await;
        let (_, node, instance) = with_pods(&watcher).await;
        let pods: BTreeSet<PodUid> = watcher.pods_on(&node).into_iter().map(|pod| pod.uid).collect();
        watcher.world.server().faults().always(refused, Effect::internal_error());
        interrupt(&watcher, &instance);
        let are_evicted = |world: &World| {
            let left = world.all(ResourceId::PODS);
            left.iter().all(|pod| object::is_deleting(pod) || !pods.contains(&pod_ref(pod).uid))
        };
        watcher.until("the pods are evicted", NOTICE - Duration::from_secs(30), are_evicted).await;
        assert!(watcher.world.living_instances().contains_key(&instance), "it has not ended yet");
    }
}

/// Without the taint, they could come back to the node again and again.
#[tokio::test(start_paused = true)]
async fn pods_stay_on_a_node_that_cannot_be_tainted_long_before_its_instance_ends() {
    let watcher = begin().await;
    let (claim, node, instance) = with_pods(&watcher).await;
    let uids = || watcher.pods_on(&node).into_iter().map(|pod| pod.uid).collect::<BTreeSet<PodUid>>();
    let before = uids();
    let taint = Matcher { name: Some(node.clone()), ..Matcher::of(Verb::Patch, "nodes") };
    watcher.world.server().faults().always(taint, Effect::internal_error());
    announce_maintenance(&watcher, &[&instance], Some("Thu, 31 Dec 2026 00:00:00 GMT"));
    let limit = Duration::from_secs(2);
    watcher.until("the claim is on its way out", limit, |world| is_deleting(world, &claim)).await;
    // A replacement would be in service by then.
    tokio::time::sleep(NOTICE + Duration::from_secs(60)).await;
    assert_eq!(before.len(), 2);
    assert_eq!(uids(), before);
}

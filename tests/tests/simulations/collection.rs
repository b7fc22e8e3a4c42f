//! Garbage collection: instances without claims, claims without instances (rule 14).

use plimsoll_model::names::{annotation, tag};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Scene};
use serde_json::json;

/// Launches an instance outside of Plimsoll, like the fleet call of a lost claim; returns its id.
pub(crate) fn stray(scene: &Scene, owner: bool) -> String {
    scene.world.ec2.with(|cloud, now| {
        let mut request = cloud.fleets()[0].request.clone();
        request.client_token = format!("stray-{owner}");
        request.total_target_capacity = 1;
        if owner {
            assert_eq!(request.tags.get(tag::OWNER).map(String::as_str), Some(annotation::OWNER_VALUE));
            request.tags.insert(tag::LAUNCH_GROUP.to_owned(), "lost".to_owned());
            request.tags.insert(tag::NODE_CLAIM.to_owned(), "lost".to_owned());
        } else {
            request.tags.remove(tag::OWNER);
        }
        cloud.create_fleet(&request, now).unwrap().instances[0].instance_id.clone()
    })
}

#[tokio::test(start_paused = true)]
async fn an_instance_of_ours_without_a_claim_goes_and_one_of_others_stays() {
    let scene = Scene::usual().await;
    scene.deploy("web", 1, 500);
    scene.until_running(1, 3 * MINUTE).await;
    let (ours, foreign) = (stray(&scene, true), stray(&scene, false));
    let gone = move |world: &World| !world.living_instances().contains_key(&ours);
    scene.until("the stray instance is terminated", 15 * MINUTE, gone).await;
    scene.pass(10 * MINUTE).await;
    assert!(scene.world.living_instances().contains_key(&foreign), "another's instance is not ours to end");
    assert_eq!(scene.world.running_pods(), 1);
}

#[tokio::test(start_paused = true)]
async fn a_claim_whose_instance_vanished_goes_and_its_pods_get_another() {
    let scene = Scene::usual().await;
    scene.deploy("web", 2, 500);
    scene.until_running(2, 3 * MINUTE).await;
    let before = scene.claims();
    let id = scene.world.living_instances().into_keys().next().unwrap();
    scene.world.ec2.with(|cloud, now| cloud.terminate_instances(&[id], now));
    let name = object::name(&before[0]).to_owned();
    let replaced =
        move |world: &World| world.get(ResourceId::NODE_CLAIMS, &name).is_none() && world.running_pods() == 2;
    scene.until("claim and node are deleted, the pods run elsewhere", 15 * MINUTE, replaced).await;
}

/// Claims from Karpenter have no owner annotation, and their instances no owner tag.
#[tokio::test(start_paused = true)]
async fn an_adopted_claim_goes_only_if_its_instance_has_vanished() {
    let scene = Scene::usual().await;
    scene.deploy("web", 2, 3000);
    scene.until_running(2, 3 * MINUTE).await;
    let [lost, kept] = scene.claims().try_into().unwrap();
    for claim in [&lost, &kept] {
        let patch = json!({"metadata": {"annotations": {annotation::OWNER: null}}});
        scene.world.patch(ResourceId::NODE_CLAIMS, object::name(claim), patch).unwrap();
    }
    let id = object::text(&lost, &["status", "providerID"]).rsplit('/').next().unwrap().to_owned();
    scene.world.ec2.with(|cloud, now| {
        cloud.remove_tag_of_all(tag::OWNER);
        cloud.terminate_instances(&[id], now)
    });
    let name = object::name(&lost).to_owned();
    let gone = move |world: &World| world.get(ResourceId::NODE_CLAIMS, &name).is_none();
    scene.until("the claim is deleted", 15 * MINUTE, gone).await;
    scene.pass(15 * MINUTE).await;
    assert!(scene.world.get(ResourceId::NODE_CLAIMS, object::name(&kept)).is_some(), "{}", scene.summary());
}

/// EC2 takes seconds for each page of 1,000 instances.
#[tokio::test(start_paused = true)]
async fn a_list_that_takes_a_minute_is_waited_for() {
    let scene = Scene::usual().await;
    scene.deploy("web", 1, 500);
    scene.until_running(1, 3 * MINUTE).await;
    let ours = stray(&scene, true);
    scene.world.ec2.faults(|faults| faults.inject(Action::DescribeInstances, Effect::Delay(MINUTE), u32::MAX));
    let gone = move |world: &World| !world.living_instances().contains_key(&ours);
    scene.until("the stray instance is terminated", 30 * MINUTE, gone).await;
    assert_eq!(scene.world.running_pods(), 1);
}

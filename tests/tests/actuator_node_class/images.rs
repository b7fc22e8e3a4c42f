//! Images of a class that AWS has not published for the version of the control plane.

use super::{CLASSES, with_class};
use plimsoll_sim::apiserver::object;
use serde_json::{Value, json};
use std::time::Duration;

/// A pinned version of an alias may be older than the Kubernetes version that the control plane is upgraded to. Nodes
/// of the version before can still join.
#[tokio::test(start_paused = true)]
async fn a_class_keeps_its_images_if_its_alias_has_none_for_an_upgraded_control_plane() {
    let fixture = with_class(&json!({})).await;
    let amis = |class: &Value| class["status"]["amis"].clone();
    let before = amis(&fixture.class());
    fixture.world.server().upgrade(37);
    let is_told = |class: &Value| {
        let message = object::condition(class, "AMIsReady").map(|condition| object::text(condition, &["message"]));
        message.is_some_and(|message| message.contains("no images of this alias for Kubernetes 1.37"))
    };
    fixture.until("AMIsReady names the version", is_told).await;
    tokio::time::sleep(Duration::from_secs(1800)).await;
    let after = fixture.class();
    assert!(object::condition_is_true(&after, "AMIsReady") && object::condition_is_true(&after, "Ready"), "{after:#}");
    assert_eq!(amis(&after), before);

    let other = json!({"spec": {"amiSelectorTerms": [{"alias": "al2023@v20250101"}]}});
    fixture.world.patch(CLASSES, "default", other).unwrap();
    let (reason, message) = fixture.refusal("AMIsReady").await;
    assert_eq!(reason, "AMINotFound", "the images of another alias do not count");
    assert_eq!(message, "spec.amiSelectorTerms: AWS publishes no images of this alias for Kubernetes 1.37");
    assert_eq!(fixture.refusal("Ready").await.0, "UnhealthyDependents");
}

/// AWS deprecates its images after some time, and deletes them later.
#[tokio::test(start_paused = true)]
async fn images_of_an_earlier_version_are_kept_as_long_as_ec2_has_them() {
    let fixture = with_class(&json!({})).await;
    fixture.world.server().upgrade(37);
    // The version is read every minute, and the images are looked up every five minutes.
    tokio::time::sleep(Duration::from_secs(180)).await;
    let deprecated = |class: &Value| {
        let amis = object::items(class, &["status", "amis"]);
        amis.iter().filter(|ami| ami["deprecated"] == true).count()
    };
    assert_eq!((object::items(&fixture.class(), &["status", "amis"]).len(), deprecated(&fixture.class())), (5, 0));
    fixture.world.ec2.with(|cloud, _| cloud.images.values_mut().for_each(|image| image.deprecated = true));
    tokio::time::sleep(Duration::from_secs(360)).await;
    assert_eq!(deprecated(&fixture.class()), 5);
    assert!(object::condition_is_true(&fixture.class(), "AMIsReady"));

    fixture.world.ec2.with(|cloud, _| cloud.images.clear());
    tokio::time::sleep(Duration::from_secs(360)).await;
    let class = fixture.class();
    assert_eq!(object::items(&class, &["status", "amis"]).len(), 0, "{class:#}");
    assert_eq!(fixture.refusal("AMIsReady").await.0, "AMINotFound");
}

//! Instance profiles of a class.

use super::{CLASSES, class, fixture, with_class};
use plimsoll_actuator::ports::{CloudError, Tags};
use plimsoll_sim::apiserver::object;
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_tests::HOUR;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// The user may delete an instance profile that no class names.
#[tokio::test(start_paused = true)]
async fn a_class_with_a_role_gets_a_profile_instead_of_the_one_that_it_named_before() {
    let fixture = fixture();
    let profile = |class: &Value| object::text(class, &["status", "instanceProfile"]).to_owned();
    fixture.world.apply_object(&class(&json!({}))).unwrap();
    fixture.until_ready().await;
    assert_eq!(profile(&fixture.class()), "karpenter-node");

    // The role of that profile.
    let by_role = json!({"spec": {"instanceProfile": null, "role": "karpenter-node"}});
    fixture.world.patch(CLASSES, "default", by_role).unwrap();
    fixture.until("it has another profile", |class| profile(class) != "karpenter-node").await;
    fixture.until_ready().await;
    let created = profile(&fixture.class());
    let found = fixture.world.ec2.read(|cloud, _| cloud.support.profile(&created)).unwrap();
    assert_eq!(found.role.as_deref(), Some("karpenter-node"));
    assert!(found.path.starts_with("/karpenter/"), "{}", found.path);

    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(profile(&fixture.class()), created, "the profile of the class is kept");
}

/// The right to delete a profile depends on its tags, which somebody may have changed.
#[tokio::test(start_paused = true)]
async fn a_profile_that_cannot_be_deleted_keeps_no_other() {
    let fixture = with_class(&json!({"instanceProfile": null, "role": "karpenter-node"})).await;
    let of_class = object::text(&fixture.class(), &["status", "instanceProfile"]).to_owned();
    let leave = |name: &str| {
        fixture.world.ec2.with(|cloud, _| {
            let path = cloud.support.profile(&of_class).unwrap().path;
            cloud.support.create_profile(name, &path, &Tags::new());
        });
    };
    let denied = Effect::Refuse(CloudError::Denied { message: "not allowed".to_owned() });
    fixture.world.ec2.faults(|faults| faults.inject(Action::DeleteInstanceProfile, denied, u32::MAX));
    let tried = || -> BTreeSet<String> {
        fixture.world.ec2.read(|cloud, _| {
            let deletions = cloud.log.iter().filter(|call| call.action == Action::DeleteInstanceProfile);
            deletions.map(|call| call.about.clone()).collect()
        })
    };
    ["left-1", "left-2"].into_iter().for_each(leave);
    // They are looked for every half hour, and kept for an hour.
    tokio::time::sleep(2 * HOUR).await;
    assert_eq!(tried(), ["left-1", "left-2"].map(str::to_owned).into());
    leave("left-3");
    tokio::time::sleep(2 * HOUR).await;
    assert!(tried().contains("left-3"), "nothing was deleted meanwhile");
    assert!(!tried().contains(&of_class), "it is in use");
}

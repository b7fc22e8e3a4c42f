//! Instance profiles of a class.

use super::{CLASSES, class, fixture};
use plimsoll_sim::apiserver::object;
use serde_json::{Value, json};
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

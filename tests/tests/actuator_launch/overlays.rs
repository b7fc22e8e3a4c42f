//! Resources of NodeOverlays.

use crate::fixture::{begin, launch, plan};
use plimsoll_model::execution::OutcomeReason;
use serde_json::json;
use std::time::Duration;

/// EC2 does not know the resource. The overlay says that m6i.large has it.
#[tokio::test(start_paused = true)]
async fn a_resource_of_a_node_overlay_is_requested_and_not_compared_with_the_instance_type() {
    let (watcher, catalog, position) = begin().await;
    let slots = |action: &str, pod: &str| {
        let mut launch = launch(&catalog, action, &["m6i.large"], pod);
        launch.requests.set("example.com/slot", 1);
        launch
    };
    let outcomes = watcher.execute(plan(position, vec![slots("a", "p")])).await.unwrap();
    assert_eq!(outcomes[0].reason, Some(OutcomeReason::Invalid), "{outcomes:?}");

    let overlay = json!({
        "apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "slots"},
        "spec": {"capacity": {"example.com/slot": "2"}, "requirements": [
            {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.large"]}]},
    });
    watcher.world.apply_object(&overlay).unwrap();
    tokio::time::sleep(Duration::from_secs(1)).await;
    let position = watcher.position().await;
    watcher.execute(plan(position, vec![slots("b", "q")])).await.unwrap();
    let claims = watcher.settled(1).await;
    let requests = &claims[0].spec.resources.as_ref().unwrap().requests;
    assert_eq!(requests["example.com/slot"].0, "1");
}

//! Kubelets that stop and resume.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_node_without_power_is_given_up_and_its_pods_are_replaced() {
    let scene = Scene::new();
    scene.node("a", "2");
    scene.create(ResourceId::DEPLOYMENTS, workload("web", "1", &json!({"replicas": 1})));
    scene.until_running(1).await;
    scene.cluster.kubelets.stop("a");
    let unknown = |scene: &Scene| {
        let node = scene.get(ResourceId::NODES, "a").unwrap();
        object::condition(&node, "Ready").is_some_and(|ready| ready["status"] == "Unknown")
    };
    let took = scene.until("the node is Unknown", unknown).await;
    assert_eq!(took.as_secs(), 50);
    scene.node("b", "2");
    let took =
        scene.until("it runs elsewhere", |scene| scene.count(|pod| is_running(pod) && node_of(pod) == "b") == 1).await;
    // The pods tolerate an unreachable node for 300 s.
    assert!((300..310).contains(&took.as_secs()), "{took:?}");
    let old = |pod: &Value| node_of(pod) == "a";
    assert_eq!(scene.count(old), 1, "no kubelet reports that the old pod has stopped");
    scene.delete(ResourceId::NODES, "a");
    let took = scene.until("it is collected", |scene| scene.count(old) == 0).await;
    assert_eq!(took.as_secs(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_resumes_reports_its_node_and_its_pods_ready() {
    let scene = Scene::new();
    scene.node("a", "2");
    scene.create(ResourceId::DEPLOYMENTS, workload("web", "1", &json!({"replicas": 1})));
    scene.until_running(1).await;
    let status = |status: &'static str| {
        move |scene: &Scene| {
            let node = scene.get(ResourceId::NODES, "a");
            node.is_some_and(|node| object::condition(&node, "Ready").is_some_and(|ready| ready["status"] == status))
        }
    };
    scene.until("the node is ready", status("True")).await;
    scene.cluster.kubelets.stop("a");
    scene.until("the node is Unknown", status("Unknown")).await;
    assert_eq!(scene.count(is_running), 0, "the node controller reports the pod as not ready");
    scene.cluster.kubelets.resume("a");
    scene.until("the node is ready again", status("True")).await;
    scene.until_running(1).await;
}

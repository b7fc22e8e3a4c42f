//! Kubelets that stop and resume.

use super::*;

#[tokio::test(start_paused = true)]
async fn a_node_without_power_is_given_up_and_its_pods_are_replaced() {
    let fixture = Fixture::new();
    fixture.node("a", "2");
    fixture.create(ResourceId::DEPLOYMENTS, workload("web", "1", &json!({"replicas": 1})));
    fixture.until_running(1).await;
    fixture.cluster.kubelets.stop("a");
    let unknown = |fixture: &Fixture| {
        let node = fixture.get(ResourceId::NODES, "a").unwrap();
        object::condition(&node, "Ready").is_some_and(|ready| ready["status"] == "Unknown")
    };
    let took = fixture.until("the node is Unknown", unknown).await;
    assert_eq!(took.as_secs(), 50);
    fixture.node("b", "2");
    let took = fixture
        .until("it runs elsewhere", |fixture| fixture.count(|pod| is_running(pod) && node_of(pod) == "b") == 1)
        .await;
    // The pods tolerate an unreachable node for 300 s.
    assert!((300..310).contains(&took.as_secs()), "{took:?}");
    let old = |pod: &Value| node_of(pod) == "a";
    assert_eq!(fixture.count(old), 1, "no kubelet reports that the old pod has stopped");
    fixture.delete(ResourceId::NODES, "a");
    let took = fixture.until("it is collected", |fixture| fixture.count(old) == 0).await;
    assert_eq!(took.as_secs(), 40);
}

#[tokio::test(start_paused = true)]
async fn a_kubelet_that_resumes_reports_its_node_and_its_pods_ready() {
    let fixture = Fixture::new();
    fixture.node("a", "2");
    fixture.create(ResourceId::DEPLOYMENTS, workload("web", "1", &json!({"replicas": 1})));
    fixture.until_running(1).await;
    let status = |status: &'static str| {
        move |fixture: &Fixture| {
            let node = fixture.get(ResourceId::NODES, "a");
            node.is_some_and(|node| object::condition(&node, "Ready").is_some_and(|ready| ready["status"] == status))
        }
    };
    fixture.until("the node is ready", status("True")).await;
    fixture.cluster.kubelets.stop("a");
    fixture.until("the node is Unknown", status("Unknown")).await;
    assert_eq!(fixture.count(is_running), 0, "the node controller reports the pod as not ready");
    fixture.cluster.kubelets.resume("a");
    fixture.until("the node is ready again", status("True")).await;
    fixture.until_running(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_machine_can_join_twice() {
    let fixture = Fixture::new();
    let provider_id = "aws:///us-west-2a/i-1".to_owned();
    fixture.node_with(NodeSpec { name: "a".to_owned(), provider_id, ..NodeSpec::default() }, "2");
    let is_ready = |name: &'static str| {
        move |fixture: &Fixture| {
            fixture.get(ResourceId::NODES, name).is_some_and(|node| object::condition_is_true(&node, "Ready"))
        }
    };
    fixture.until("the node is ready", is_ready("a")).await;
    fixture.cluster.kubelets.join_as("a", "b");
    fixture.until("it is there again", is_ready("b")).await;
    let provider_id = |name| fixture.get(ResourceId::NODES, name).unwrap()["spec"]["providerID"].clone();
    assert_eq!(provider_id("a"), provider_id("b"));
    assert_eq!(fixture.cluster.kubelets.running(), ["a", "b"]);
}

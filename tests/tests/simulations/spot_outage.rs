//! Downtime of pods when Spot instances are interrupted (rule 13): one node and fifty, nodes that boot in 30 s and in
//! 75 s, pods that take 30 s and 90 s to stop.

use plimsoll_model::names::label;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::kube::STOP_AFTER;
use plimsoll_sim::world::World;
use plimsoll_tests::{MINUTE, Setup, TestCluster, instance_of};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Notice period of EC2.
const NOTICE: Duration = Duration::from_secs(120);
/// Polling interval, which is the precision of the downtime.
const LOOK: Duration = Duration::from_millis(200);

struct Case {
    boot: u64,
    grace: u64,
    nodes: u32,
}

impl Case {
    /// Maximum seconds of downtime of a pod. A new node is in service at most 8 s after its boot (call, kubelet,
    /// initialization). If this is later than 110 s after the notice minus the grace period, the pod has to stop
    /// before. A pod takes 2 s to start, plus some polling.
    fn allowed(&self) -> f64 {
        let in_service = self.boot + 8;
        let must_stop = 110 - self.grace;
        in_service.saturating_sub(must_stop) as f64 + 3.0
    }
}

/// Interrupts all nodes at once. Returns the average seconds of downtime of a pod.
async fn play(case: &Case) -> f64 {
    let requirements = json!([{"key": label::CAPACITY_TYPE, "operator": "In", "values": ["spot"]},
                              {"key": label::INSTANCE_TYPE, "operator": "In", "values": ["m6i.large", "c6i.large"]}]);
    let mut setup = Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}}));
    setup.world.boot = Duration::from_secs(case.boot);
    let cluster = TestCluster::begin(setup).await;
    let pods = usize::try_from(case.nodes * 2).unwrap();
    let container = json!({"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": "800m", "memory": "400Mi"}}});
    let template = json!({
        // The pod uses the whole grace period.
        "metadata": {"labels": {"app": "web"}, "annotations": {STOP_AFTER: format!("{}s", case.grace)}},
        "spec": {"terminationGracePeriodSeconds": case.grace, "containers": [container]},
    });
    let deployment = json!({"apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": "web"},
        "spec": {"replicas": pods, "selector": {"matchLabels": {"app": "web"}}, "template": template}});
    cluster.world.apply_object(&deployment).unwrap();
    cluster.until_running(pods, 5 * MINUTE).await;
    let old: BTreeSet<String> = cluster.nodes_in_use().into_iter().collect();
    assert_eq!(old.len(), usize::try_from(case.nodes).unwrap());
    for node in &old {
        let instance = instance_of(&cluster.world, node);
        assert!(cluster.world.ec2.with(|cloud, now| cloud.interrupt_spot(&instance, now)));
    }
    let start = Instant::now();
    let mut outage = Duration::ZERO;
    let on_old =
        |world: &World| world.count(ResourceId::PODS, |pod| old.contains(object::text(pod, &["spec", "nodeName"])));
    loop {
        let missing = pods.saturating_sub(cluster.world.running_pods());
        if missing == 0 && start.elapsed() > NOTICE {
            break;
        }
        assert!(start.elapsed() < NOTICE + 2 * MINUTE, "{}", cluster.summary());
        outage += LOOK * u32::try_from(missing).unwrap();
        if start.elapsed() + LOOK >= NOTICE && start.elapsed() < NOTICE {
            assert_eq!(on_old(&cluster.world), 0, "pods still run when the instances terminate\n{}", cluster.summary());
        }
        cluster.pass(LOOK).await;
    }
    outage.as_secs_f64() / f64::from(case.nodes * 2)
}

#[tokio::test(start_paused = true)]
async fn pods_are_out_of_service_only_while_they_have_to_stop_before_their_new_node_is_there() {
    for nodes in [1, 50] {
        for (boot, grace) in [(30, 30), (30, 90), (75, 30), (75, 90)] {
            let case = Case { boot, grace, nodes };
            let outage = play(&case).await;
            println!("boot {boot} s, grace {grace} s, {nodes} nodes: {outage:.1} s out of service per pod");
            assert!(outage <= case.allowed(), "{outage} s, {} s allowed", case.allowed());
        }
    }
}

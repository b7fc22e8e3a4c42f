//! Tests of a whole cluster, in virtual time.

mod kubelets;
mod nominations;
mod scheduling;

use super::{Cluster, Delays, NodeSpec};
use crate::apiserver::object;
use crate::apiserver::store::{DeleteOptions, Eviction, Key, Object, Part, Store, Write};
use crate::apiserver::{ApiServer, Patch, ResourceId};
use crate::clock;
use crate::world::is_running;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::{Instant, sleep};

struct Fixture {
    cluster: Cluster,
}

impl Fixture {
    fn new() -> Self {
        Self { cluster: Cluster::start(ApiServer::new(3, clock::usual()), Delays::default()) }
    }

    fn node(&self, name: &str, cpu: &str) {
        self.node_with(NodeSpec { name: name.to_owned(), ..NodeSpec::default() }, cpu);
    }

    fn node_with(&self, spec: NodeSpec, cpu: &str) {
        let capacity: BTreeMap<_, _> = [("cpu", cpu), ("memory", "16Gi"), ("pods", "20")]
            .map(|(name, amount)| (name.to_owned(), amount.to_owned()))
            .into();
        self.cluster.kubelets.start(NodeSpec { capacity, ..spec });
    }

    fn write<T>(&self, act: impl FnOnce(&mut Store, &Write<'_>) -> T) -> T {
        let write = Write::new(self.cluster.server.now(), "test");
        self.cluster.server.write(|store| act(store, &write))
    }

    fn create(&self, kind: ResourceId, object: Value) -> Object {
        let namespace = if kind.get().namespaced { "default" } else { "" };
        self.write(|store, write| store.create(kind, namespace, object, write)).unwrap()
    }

    fn patch(&self, kind: ResourceId, name: &str, patch: Value) {
        let namespace = if kind.get().namespaced { "default" } else { "" };
        self.write(|store, write| store.patch(kind, namespace, name, Part::Main, &Patch::Merge(patch), write)).unwrap();
    }

    fn delete(&self, kind: ResourceId, name: &str) {
        let namespace = if kind.get().namespaced { "default" } else { "" };
        self.write(|store, write| store.delete(kind, namespace, name, &DeleteOptions::default(), write)).unwrap();
    }

    fn get(&self, kind: ResourceId, name: &str) -> Option<Object> {
        let namespace = if kind.get().namespaced { "default" } else { "" };
        self.cluster.server.read(|store| store.find(kind, &Key::new(namespace, name)))
    }

    fn pods(&self) -> Vec<Object> {
        self.cluster.server.read(|store| store.all(ResourceId::PODS).map(|(_, pod)| pod.clone()).collect())
    }

    /// Number of pods that satisfy a test.
    fn count(&self, test: impl Fn(&Value) -> bool) -> usize {
        self.pods().iter().filter(|pod| test(pod)).count()
    }

    /// Lets time pass until a condition holds; panics after ten minutes.
    async fn until(&self, what: &str, test: impl Fn(&Self) -> bool) -> Duration {
        let start = Instant::now();
        while !test(self) {
            assert!(start.elapsed() < Duration::from_secs(600), "not within ten minutes: {what}\n{:#?}", self.pods());
            sleep(Duration::from_millis(100)).await;
        }
        start.elapsed()
    }

    async fn until_running(&self, count: usize) -> Duration {
        self.until(&format!("{count} pods run"), |fixture| {
            fixture.count(is_running) == count && fixture.pods().len() == count
        })
        .await
    }
}

fn node_of(pod: &Value) -> &str {
    object::text(pod, &["spec", "nodeName"])
}

fn workload(name: &str, cpu: &str, spec: &Value) -> Value {
    let mut object = json!({"metadata": {"name": name}, "spec": {
        "selector": {"matchLabels": {"app": name}},
        "template": {"metadata": {"labels": {"app": name}},
                     "spec": {"containers": [{"name": "main", "image": "one", "resources": {"requests": {"cpu": cpu}}}]}},
    }});
    json_patch::merge(&mut object, &json!({ "spec": spec }));
    object
}

fn status(object: &Value, field: &str) -> i64 {
    object::integer(object, &["status", field]).unwrap_or(0)
}

#[tokio::test(start_paused = true)]
async fn a_deployment_runs_where_there_is_room_and_the_rest_says_why_not() {
    let fixture = Fixture::new();
    fixture.create(ResourceId::DEPLOYMENTS, workload("web", "1", &json!({"replicas": 3})));
    let no_node = |pod: &Value| {
        object::condition(pod, "PodScheduled").is_some_and(|condition| {
            object::text(condition, &["reason"]) == "Unschedulable"
                && object::text(condition, &["message"]) == "no nodes available to schedule pods"
        })
    };
    fixture.until("all are unschedulable", |fixture| fixture.count(no_node) == 3).await;
    fixture.node("a", "2");
    fixture.until("two run", |fixture| fixture.count(is_running) == 2).await;
    let waiting = fixture.pods().into_iter().find(|pod| node_of(pod).is_empty()).unwrap();
    let condition = object::condition(&waiting, "PodScheduled").unwrap();
    assert_eq!(
        condition["message"],
        "0/1 nodes are available: 1 Insufficient cpu. no new claims to deallocate, preemption: 0/1 nodes are available: \
         1 No preemption victims found for incoming pod."
    );
    fixture.node("b", "2");
    fixture.until_running(3).await;
    let deployment = fixture.until("the status follows", |fixture| {
        status(&fixture.get(ResourceId::DEPLOYMENTS, "web").unwrap(), "availableReplicas") == 3
    });
    deployment.await;
    fixture.patch(ResourceId::DEPLOYMENTS, "web", json!({"spec": {"replicas": 0}}));
    fixture.until("all pods are deleted", |fixture| fixture.pods().is_empty()).await;
    assert!(fixture.get(ResourceId::DEPLOYMENTS, "web").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_run_is_fixed_by_its_seed() {
    async fn run() -> String {
        let fixture = Fixture::new();
        fixture.create(ResourceId::DEPLOYMENTS, workload("web", "500m", &json!({"replicas": 7})));
        fixture.node("a", "2");
        fixture.node("b", "2");
        fixture.until_running(7).await;
        format!("{:?}", fixture.pods())
    }
    assert_eq!(run().await, run().await);
}

#[tokio::test(start_paused = true)]
async fn taints_selectors_ports_and_the_flag_are_respected() {
    let fixture = Fixture::new();
    let labels = |zone: &str| [("zone".to_owned(), zone.to_owned())].into();
    let taints = vec![json!({"key": "dedicated", "value": "x", "effect": "NoSchedule"})];
    fixture.node_with(NodeSpec { name: "tainted".into(), labels: labels("a"), taints, ..NodeSpec::default() }, "4");
    fixture.node_with(NodeSpec { name: "plain".into(), labels: labels("b"), ..NodeSpec::default() }, "4");
    let pod = |name: &str, spec: Value| {
        let mut pod = json!({"metadata": {"name": name}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        json_patch::merge(&mut pod, &json!({ "spec": spec }));
        fixture.create(ResourceId::PODS, pod);
    };
    let port = json!({"containers": [{"name": "c", "image": "i", "ports": [{"containerPort": 80, "hostPort": 80}]}]});
    pod(
        "tolerant",
        json!({"nodeSelector": {"zone": "a"}, "tolerations": [{"key": "dedicated", "operator": "Exists"}]}),
    );
    pod("intolerant", json!({"nodeSelector": {"zone": "a"}}));
    pod("port-one", port.clone());
    pod("port-two", port);
    pod("gated", json!({"schedulingGates": [{"name": "test/gate"}]}));
    fixture.until("two run", |fixture| fixture.count(is_running) == 2).await;
    let message = |name: &str| {
        let pod = fixture.get(ResourceId::PODS, name).unwrap();
        object::text(object::condition(&pod, "PodScheduled").unwrap(), &["message"]).to_owned()
    };
    fixture
        .until("both nodes were tried", |_| {
            message("intolerant").starts_with("0/2") && message("port-two").contains("free ports")
        })
        .await;
    assert_eq!(node_of(&fixture.get(ResourceId::PODS, "tolerant").unwrap()), "tainted");
    assert!(
        message("intolerant")
            .contains("1 node(s) didn't match Pod's node affinity/selector, 1 node(s) had untolerated taint(s)")
    );
    let gated = fixture.get(ResourceId::PODS, "gated").unwrap();
    assert_eq!(object::text(object::condition(&gated, "PodScheduled").unwrap(), &["reason"]), "SchedulingGated");
    // The flag blocks new pods and is visible as a taint. After the flag is removed, the pod is bound when its gate is
    // lifted.
    fixture.patch(ResourceId::NODES, "plain", json!({"spec": {"unschedulable": true}}));
    fixture.patch(ResourceId::PODS, "gated", json!({"spec": {"schedulingGates": []}}));
    fixture.until("the flag is seen", |_| message("gated").contains("node(s) were unschedulable")).await;
    let node = fixture.get(ResourceId::NODES, "plain").unwrap();
    assert!(
        object::items(&node, &["spec", "taints"])
            .iter()
            .any(|taint| taint["key"] == "node.kubernetes.io/unschedulable")
    );
    fixture.patch(ResourceId::NODES, "plain", json!({"spec": {"unschedulable": null}}));
    fixture.until("the pod runs", |fixture| is_running(&fixture.get(ResourceId::PODS, "gated").unwrap())).await;
}

#[tokio::test(start_paused = true)]
async fn a_new_template_replaces_pods_without_losing_service() {
    let fixture = Fixture::new();
    fixture.node("a", "8");
    fixture.create(ResourceId::DEPLOYMENTS, workload("web", "500m", &json!({"replicas": 4})));
    fixture.until_running(4).await;
    let template = json!({"spec": {"template": {"metadata": {"labels": {"version": "two"}}}}});
    fixture.patch(ResourceId::DEPLOYMENTS, "web", template);
    let is_new = |pod: &Value| object::label(pod, "version") == Some("two");
    fixture
        .until("all pods are new", |fixture| {
            let running = fixture.count(is_running);
            assert!(running >= 3, "only {running} of 4 run in the middle of a roll-out");
            fixture.count(|pod| is_running(pod) && is_new(pod)) == 4 && fixture.pods().len() == 4
        })
        .await;
}

#[tokio::test(start_paused = true)]
async fn a_stateful_set_goes_in_order_with_its_claims() {
    let fixture = Fixture::new();
    fixture.node("a", "8");
    let claims = json!([{"metadata": {"name": "data"}, "spec": {"accessModes": ["ReadWriteOnce"]}}]);
    fixture.create(
        ResourceId::STATEFUL_SETS,
        workload("db", "1", &json!({"replicas": 3, "volumeClaimTemplates": claims})),
    );
    fixture
        .until("all run", |fixture| {
            let present = |number| fixture.get(ResourceId::PODS, &format!("db-{number}"));
            let ready = |number| present(number).is_some_and(|pod| is_running(&pod));
            assert!(present(1).is_none() || ready(0), "the second pod does not wait for the first");
            ready(2)
        })
        .await;
    assert!(fixture.get(ResourceId::PERSISTENT_VOLUME_CLAIMS, "data-db-2").is_some());
    fixture.patch(ResourceId::STATEFUL_SETS, "db", json!({"spec": {"replicas": 1}}));
    fixture.until("two pods are deleted", |fixture| fixture.pods().len() == 1).await;
    assert!(fixture.get(ResourceId::PODS, "db-0").is_some());
}

#[tokio::test(start_paused = true)]
async fn a_job_runs_its_pods_and_completes() {
    let fixture = Fixture::new();
    fixture.node("a", "8");
    let template = json!({"metadata": {"annotations": {super::COMPLETE_AFTER: "20s"}},
                          "spec": {"restartPolicy": "Never", "containers": [{"name": "c", "image": "i"}]}});
    let job =
        json!({"metadata": {"name": "batch"}, "spec": {"parallelism": 2, "completions": 5, "template": template}});
    fixture.create(ResourceId::JOBS, job);
    let done =
        |fixture: &Fixture| object::condition_is_true(&fixture.get(ResourceId::JOBS, "batch").unwrap(), "Complete");
    let took = fixture.until("it completes", |fixture| {
        assert!(fixture.count(is_running) <= 2, "more than the parallelism run");
        done(fixture)
    });
    let took = took.await;
    // Three rounds of two pods, each with 2 s to start and 20 s to run.
    assert!((66..80).contains(&took.as_secs()), "{took:?}");
    assert_eq!(status(&fixture.get(ResourceId::JOBS, "batch").unwrap(), "succeeded"), 5);
    assert_eq!(fixture.pods().len(), 5, "finished pods stay");
}

#[tokio::test(start_paused = true)]
async fn daemons_follow_the_nodes() {
    let fixture = Fixture::new();
    fixture.node("a", "2");
    let taints = vec![json!({"key": "dedicated", "effect": "NoSchedule"})];
    fixture.node_with(NodeSpec { name: "tainted".into(), taints, ..NodeSpec::default() }, "2");
    fixture.create(ResourceId::DAEMON_SETS, workload("agent", "100m", &json!({})));
    fixture.until_running(1).await;
    fixture.node("b", "2");
    fixture.until_running(2).await;
    let set = fixture.get(ResourceId::DAEMON_SETS, "agent").unwrap();
    assert_eq!(status(&set, "desiredNumberScheduled"), 2);
    let nodes: Vec<_> = fixture.pods().iter().map(|pod| node_of(pod).to_owned()).collect();
    assert!(nodes.contains(&"a".to_owned()) && nodes.contains(&"b".to_owned()), "{nodes:?}");
}

#[tokio::test(start_paused = true)]
async fn a_deleted_pod_takes_its_time_to_stop_but_not_more_than_its_grace() {
    let fixture = Fixture::new();
    fixture.node("a", "2");
    for (name, stop, seconds) in [("quick", None, 1), ("slow", Some("8s"), 8), ("stuck", Some("5m"), 30)] {
        let annotations: BTreeMap<_, _> = stop.map(|stop| (super::STOP_AFTER, stop)).into_iter().collect();
        let pod = json!({"metadata": {"name": name, "annotations": annotations}, "spec": {"containers": [{"name": "c", "image": "i"}]}});
        fixture.create(ResourceId::PODS, pod);
        fixture.until_running(1).await;
        fixture.delete(ResourceId::PODS, name);
        let took = fixture.until("the pod is deleted", |fixture| fixture.pods().is_empty()).await;
        // Kubernetes stores times in whole seconds, so a stop may seem up to one second shorter.
        assert!((seconds - 1..=seconds).contains(&took.as_secs()), "{name}: {took:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_taint_that_executes_moves_pods_at_once() {
    let fixture = Fixture::new();
    fixture.node("a", "2");
    fixture.create(
        ResourceId::PODS,
        json!({"metadata": {"name": "p"}, "spec": {"containers": [{"name": "c", "image": "i"}]}}),
    );
    let stays = json!([{"key": "out", "operator": "Exists", "tolerationSeconds": 20}]);
    fixture.create(
        ResourceId::PODS,
        json!({"metadata": {"name": "q"}, "spec": {"tolerations": stays, "containers": [{"name": "c", "image": "i"}]}}),
    );
    fixture.until_running(2).await;
    fixture.patch(ResourceId::NODES, "a", json!({"spec": {"taints": [{"key": "out", "effect": "NoExecute"}]}}));
    let took = fixture.until("the first one is deleted", |fixture| fixture.pods().len() == 1).await;
    assert!(took.as_secs() <= 1, "{took:?}");
    let took = fixture.until("the second pod is deleted", |fixture| fixture.pods().is_empty()).await;
    assert!((19..=21).contains(&took.as_secs()), "{took:?}");
}

#[tokio::test(start_paused = true)]
async fn a_budget_lets_pods_go_one_by_one() {
    let fixture = Fixture::new();
    fixture.node("a", "4");
    fixture.create(ResourceId::DEPLOYMENTS, workload("web", "1", &json!({"replicas": 3})));
    let selector = json!({"matchLabels": {"app": "web"}});
    let budget = json!({"metadata": {"name": "web"}, "spec": {"maxUnavailable": "34%", "selector": selector}});
    fixture.create(ResourceId::POD_DISRUPTION_BUDGETS, budget);
    fixture.until_running(3).await;
    let allowed = |fixture: &Fixture| {
        status(&fixture.get(ResourceId::POD_DISRUPTION_BUDGETS, "web").unwrap(), "disruptionsAllowed")
    };
    // 34 % of 3, rounded up, is 2.
    fixture.until("two disruptions are allowed", |fixture| allowed(fixture) == 2).await;
    let names: Vec<_> = fixture.pods().iter().map(|pod| object::name(pod).to_owned()).collect();
    let evict = |name: &str| {
        let outcome = fixture.write(|store, write| store.evict("default", name, &Eviction::default(), write));
        outcome.map(drop).map_err(|error| error.code)
    };
    let outcomes: Vec<_> = names.iter().map(|name| evict(name)).collect();
    assert_eq!(outcomes, [Ok(()), Ok(()), Err(429)]);
    fixture.until("replaced", |fixture| fixture.count(is_running) == 3 && allowed(fixture) == 2).await;
    assert_eq!(evict(&names[2]), Ok(()));
}

#[tokio::test(start_paused = true)]
async fn five_hundred_pods_on_a_hundred_nodes_settle() {
    let fixture = Fixture::new();
    for number in 0..100 {
        fixture.node(&format!("node-{number}"), "4");
    }
    fixture.create(ResourceId::DEPLOYMENTS, workload("web", "800m", &json!({"replicas": 500})));
    fixture.until_running(500).await;
    let mut by_node: BTreeMap<String, usize> = BTreeMap::new();
    for pod in fixture.pods() {
        *by_node.entry(node_of(&pod).to_owned()).or_default() += 1;
    }
    assert!(by_node.values().all(|count| *count == 5), "{by_node:?}");
}

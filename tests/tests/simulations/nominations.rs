//! Nominations: kube-scheduler gets the planned node of a pod.

use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::label;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::{Object, Part, Write};
use plimsoll_sim::apiserver::{ApiError, Patch, ResourceId, object};
use plimsoll_sim::plimsoll::Options;
use plimsoll_sim::world::World;
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, pod_ref};
use plimsoll_tests::{MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::{Value, json};
use std::time::Duration;

/// Field manager of nominations.
const MANAGER: &str = "plimsoll-nomination";

fn nominated(world: &World, pod: &str) -> String {
    let pod = world.get(ResourceId::PODS, pod).unwrap();
    object::text(&pod, &["status", "nominatedNodeName"]).to_owned()
}

fn set_status(world: &World, pod: &str, status: &Value, manager: &str) {
    let patch = Patch::Merge(json!({ "status": status }));
    let write = Write::new(world.server().now(), manager);
    world
        .server()
        .write(|store| store.patch(ResourceId::PODS, "default", pod, Part::Status, &patch, &write).map(drop))
        .unwrap();
}

fn unschedulable() -> Value {
    json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]})
}

/// A pod that no scheduler binds, since the simulated one needs its name, but that does not belong to another scheduler
/// either. It is marked as unschedulable.
fn waits(world: &World, name: &str, cpu: &str) {
    let container = json!({"name": "main", "image": "example.com/app:1", "resources": {"requests": {"cpu": cpu}}});
    let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name},
                     "spec": {"schedulerName": "", "containers": [container]}});
    world.apply_object(&pod).unwrap();
    set_status(world, name, &unschedulable(), "test");
}

fn pod_of(world: &World, app: &str) -> Object {
    world.all(ResourceId::PODS).into_iter().find(|pod| object::label(pod, "app") == Some(app)).unwrap()
}

fn nodes(world: &World) -> Vec<Object> {
    world.all(ResourceId::NODES)
}

fn in_service(world: &World) -> usize {
    world.count(ResourceId::NODE_CLAIMS, |claim| object::condition_is_true(claim, "Initialized"))
}

/// Two pods and two nodes that fit them exactly. kube-scheduler handles the smaller pod first and prefers the emptier
/// node. Returns the instance type of the node of each pod, empty if the pod does not run.
async fn small_and_large(nominate_nodes: bool) -> (String, String) {
    let setup = Setup { options: Options { nominate_nodes, ..Options::default() }, ..Setup::default() };
    let watcher = FakeWatcher::begin(setup).await;
    let world = &watcher.world;
    for (name, cpu) in [("small", "1500m"), ("zlarge", "3500m")] {
        world.deploy(name, 1, &json!({"cpu": cpu}), &json!({})).unwrap();
    }
    let refused = |pod: &Value| {
        object::condition(pod, "PodScheduled").is_some_and(|it| object::text(it, &["reason"]) == "Unschedulable")
    };
    watcher.until("both wait for a node", MINUTE, |world| world.count(ResourceId::PODS, refused) == 2).await;
    let wanted = |action: &'static str, instance_type: &'static str, app: &str| Wanted {
        action,
        instance_type,
        capacity_type: CapacityType::OnDemand,
        pods: vec![pod_ref(&pod_of(world, app))],
    };
    let launches = [wanted("a-1", "m6i.xlarge", "zlarge"), wanted("a-2", "m6i.large", "small")];
    let plan = watcher.plan(&launches, Vec::new()).await;
    watcher.send(plan).await;
    watcher.until("both nodes are in service", 3 * MINUTE, |world| in_service(world) == 2).await;
    tokio::time::sleep(MINUTE).await;
    let type_of = |app: &str| {
        let node = object::text(&pod_of(world, app), &["spec", "nodeName"]).to_owned();
        let node = world.get(ResourceId::NODES, &node);
        node.and_then(|node| object::label(&node, label::INSTANCE_TYPE).map(str::to_owned)).unwrap_or_default()
    };
    (type_of("small"), type_of("zlarge"))
}

#[tokio::test(start_paused = true)]
async fn pods_go_where_the_plan_has_them_whatever_their_order() {
    let instance_types = small_and_large(true).await;
    assert_eq!(instance_types, ("m6i.large".to_owned(), "m6i.xlarge".to_owned()));
}

/// Shows that the previous test can fail: without nominations, kube-scheduler puts the smaller pod on the larger pod's
/// node.
#[tokio::test(start_paused = true)]
async fn without_nominations_one_pod_takes_the_room_of_another() {
    let untold = small_and_large(false).await;
    assert_eq!(untold, ("m6i.xlarge".to_owned(), String::new()));
}

#[tokio::test(start_paused = true)]
async fn a_nomination_is_there_before_the_node_is_ready_and_ends_with_it() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let world = &cluster.world;
    waits(world, "web", "3");
    cluster.until("its node exists", 2 * MINUTE, |world| !nodes(world).is_empty()).await;
    cluster.until("it is nominated", Duration::from_secs(1), |world| !nominated(world, "web").is_empty()).await;
    let node = nodes(world).remove(0);
    assert_eq!(nominated(world, "web"), object::name(&node));
    assert!(!object::condition_is_true(&node, "Ready"), "kube-scheduler cannot have looked at it yet: {node:#}");
    cluster.until("it is in service", MINUTE, |world| in_service(world) == 1).await;
    // The node is lost while the pod is pending: the nomination must not keep the pod from another node.
    let claim = cluster.claims().remove(0);
    world.delete(ResourceId::NODE_CLAIMS, object::name(&claim)).unwrap();
    let other = |world: &World| nodes(world).iter().any(|it| object::name(it) != object::name(&node));
    cluster.until("another node comes", 5 * MINUTE, other).await;
    let follows = |world: &World| {
        let nominated = nominated(world, "web");
        !nominated.is_empty() && nominated != object::name(&node)
    };
    cluster.until("the nomination follows", MINUTE, follows).await;
    assert_eq!(instances_ever_launched(world).len(), 2, "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn a_pod_is_nominated_to_room_that_is_there_for_a_while() {
    let cluster = TestCluster::usual().await;
    let world = &cluster.world;
    cluster.deploy("web", 1, 500);
    cluster.until_running(1, 3 * MINUTE).await;
    let node = object::name(&nodes(world)[0]).to_owned();
    waits(world, "beside", "100m");
    cluster.until("it is nominated", Duration::from_secs(5), |world| nominated(world, "beside") == node).await;
    cluster
        .until("the nomination is cleared", Duration::from_secs(45), |world| nominated(world, "beside").is_empty())
        .await;
    assert_eq!(instances_ever_launched(world).len(), 1, "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn what_kube_scheduler_nominated_itself_stands() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let world = &cluster.world;
    waits(world, "web", "3");
    cluster.until("its node is on the way", MINUTE, |world| !world.all(ResourceId::NODE_CLAIMS).is_empty()).await;
    set_status(world, "web", &json!({"nominatedNodeName": "elsewhere"}), "kube-scheduler");
    cluster.until("its node is in service", 2 * MINUTE, |world| in_service(world) == 1).await;
    cluster.pass(MINUTE).await;
    assert_eq!(nominated(world, "web"), "elsewhere");
    assert_eq!(writes(world), 0, "it was not even tried");
}

fn writes(world: &World) -> usize {
    let audit = world.server().audit();
    let about = |resource, subresource: &str| resource == ResourceId::PODS && subresource == "status";
    audit.iter().filter(|it| it.verb == Verb::Patch && about(it.resource, &it.subresource)).count()
}

fn nominations_of(pod: Option<&str>) -> Matcher {
    let name = pod.map(str::to_owned);
    Matcher { subresource: Some("status"), name, ..Matcher::of(Verb::Patch, "pods") }
}

#[tokio::test(start_paused = true)]
async fn without_the_right_to_it_everything_else_goes_on() {
    let cluster = TestCluster::usual().await;
    let forbidden = ApiError::new(403, "Forbidden", "pods \"web\" is forbidden: cannot patch resource \"pods/status\"");
    cluster.world.server().faults().always(nominations_of(None), Effect::Refuse(forbidden));
    cluster.deploy("web", 3, 500);
    cluster.until_running(3, 3 * MINUTE).await;
    // Three pods do not show that the right is missing. Each is tried ten times at most.
    let tried = writes(&cluster.world);
    assert!((1..=30).contains(&tried), "{tried}");
    cluster.deploy("more", 3, 1500);
    cluster.until_running(6, 3 * MINUTE).await;
    let tried = writes(&cluster.world);
    assert!(tried <= 60, "{tried}");
}

/// As a webhook does that denies the pod.
#[tokio::test(start_paused = true)]
async fn a_pod_whose_nomination_is_refused_does_not_end_those_of_others() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    let world = &cluster.world;
    let refusal = ApiError::new(403, "Forbidden", "admission webhook \"policy.example.com\" denied the request");
    world.server().faults().always(nominations_of(Some("denied")), Effect::Refuse(refusal));
    waits(world, "denied", "3");
    cluster.until("it is refused", 2 * MINUTE, |world| writes(world) > 0).await;
    waits(world, "web", "3");
    cluster.until("the other one is nominated", 2 * MINUTE, |world| !nominated(world, "web").is_empty()).await;
    assert_eq!(nominated(world, "denied"), "", "{}", cluster.summary());
}

#[tokio::test(start_paused = true)]
async fn ownership_is_by_the_servers_books() {
    let cluster = TestCluster::begin(Setup::one_to_a_node()).await;
    waits(&cluster.world, "web", "3");
    cluster.until("it is nominated", 2 * MINUTE, |world| !nominated(world, "web").is_empty()).await;
    let pod = cluster.world.get(ResourceId::PODS, "web").unwrap();
    let ours = object::items(&pod, &["metadata", "managedFields"]).iter().find(|it| it["manager"] == MANAGER).unwrap();
    assert_eq!(ours["fieldsV1"], json!({"f:status": {"f:nominatedNodeName": {}}}), "and nothing else");
}

fn node_of(world: &World, pod: &str) -> String {
    let pod = world.get(ResourceId::PODS, pod).unwrap();
    object::text(&pod, &["spec", "nodeName"]).to_owned()
}

/// The pods have no scheduler, so only the actuator can bind them.
#[tokio::test(start_paused = true)]
async fn pods_are_bound_to_their_planned_nodes_only_if_that_is_enabled() {
    for bind_pods in [true, false] {
        let mut setup = Setup::one_to_a_node();
        setup.options.bind_pods = bind_pods;
        let cluster = TestCluster::begin(setup).await;
        waits(&cluster.world, "a", "3");
        waits(&cluster.world, "b", "3");
        let ready = |world: &World| in_service(world) == 2;
        cluster.until("both nodes are in service", 3 * MINUTE, ready).await;
        // Less than the time for which the pods stay reserved.
        cluster.pass(Duration::from_secs(5)).await;
        let bound = ["a", "b"].map(|pod| node_of(&cluster.world, pod));
        if bind_pods {
            assert_ne!(bound[0], bound[1], "{}", cluster.summary());
            assert!(bound.iter().all(|node| !node.is_empty()), "{bound:?}\n{}", cluster.summary());
        } else {
            assert_eq!(bound, ["", ""], "{}", cluster.summary());
        }
    }
}

/// Messages of the Events `Nominated` of a pod.
fn told(world: &World, pod: &str) -> Vec<String> {
    let is_told = |event: &Object| {
        object::text(event, &["reason"]) == "Nominated" && object::text(event, &["involvedObject", "name"]) == pod
    };
    let events = world.all(ResourceId::EVENTS).into_iter().filter(is_told);
    events.map(|event| object::text(&event, &["message"]).to_owned()).collect()
}

#[tokio::test(start_paused = true)]
async fn a_pod_has_an_event_that_names_its_node() {
    let cluster = TestCluster::begin(Setup::default()).await;
    let world = &cluster.world;
    waits(world, "first", "1");
    cluster.until("its node is in service", 5 * MINUTE, |world| in_service(world) == 1).await;
    let claim = object::name(&world.all(ResourceId::NODE_CLAIMS)[0]).to_owned();
    assert_eq!(told(world, "first"), [format!("planned for nodeclaim/{claim}")]);
    // The node has room for a pod that comes later.
    waits(world, "second", "100m");
    cluster.until("it is planned", MINUTE, |world| !told(world, "second").is_empty()).await;
    let node = object::name(&nodes(world)[0]).to_owned();
    assert_eq!(told(world, "second"), [format!("planned for node/{node}")]);
    assert_eq!(instances_ever_launched(world).len(), 1, "{}", cluster.summary());
}

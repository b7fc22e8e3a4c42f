use super::*;
use serde_json::{Value, json};
use std::sync::Arc;

const START: i64 = 1_767_225_600_000; // 2026-01-01T00:00:00Z

/// The time this many seconds after the first drift.
fn at(seconds: i64) -> Timestamp {
    Timestamp(START + seconds * 1000)
}

fn rfc3339(seconds: i64) -> String {
    jiff::Timestamp::from_millisecond(at(seconds).0).unwrap().to_string()
}

pub(super) fn pool(annotations: &Value) -> NodePool {
    let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "default", "annotations": annotations},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}},
    }))
    .unwrap()
}

fn class(image: &str) -> EC2NodeClass {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default", "annotations": {annotation::EC2_NODE_CLASS_HASH: "1"}},
        "spec": {"subnetSelectorTerms": [], "securityGroupSelectorTerms": []},
        "status": {"amis": [{"id": image, "name": image, "requirements": []}]},
    }))
    .unwrap()
}

pub(super) fn condition(name: &str, status: &str, since: i64) -> Value {
    json!({"type": name, "status": status, "reason": name, "message": "", "lastTransitionTime": rfc3339(since)})
}

/// A claim of the pool; its Node has its name.
pub(super) fn claim(name: &str, created: i64, image: &str, conditions: &[Value]) -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": name, "creationTimestamp": rfc3339(created), "labels": {"karpenter.sh/nodepool": "default"},
            "annotations": {annotation::NODE_POOL_HASH: hash::node_pool(&pool(&json!({})).spec.template),
                annotation::EC2_NODE_CLASS_HASH: "1"}},
        "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "default"}},
        "status": {"nodeName": name, "imageID": image, "conditions": conditions},
    }))
    .unwrap()
}

pub(super) fn old(name: &str) -> NodeClaim {
    claim(name, -3600, "ami-old", &[condition("Initialized", "True", -3500), condition("Drifted", "True", 0)])
}

/// A claim of the new image that is in service since `since`.
pub(super) fn new(name: &str, since: i64) -> NodeClaim {
    claim(name, 10, "ami-new", &[condition("Registered", "True", since), condition("Initialized", "True", since)])
}

fn node(name: &str, ready: &str, since: i64) -> Node {
    serde_json::from_value(
        json!({"metadata": {"name": name}, "status": {"conditions": [condition("Ready", ready, since)]}}),
    )
    .unwrap()
}

fn pod(name: &str, node: &str, phase: &str) -> Pod {
    serde_json::from_value(
        json!({"metadata": {"name": name, "namespace": "d"}, "spec": {"nodeName": node, "containers": []},
        "status": {"phase": phase}}),
    )
    .unwrap()
}

pub(super) fn rollout(
    pool: &NodePool,
    claims: &[NodeClaim],
    nodes: &[Node],
    pods: &[Pod],
    now: i64,
) -> Option<Rollout> {
    let class = class("ami-new");
    let claims: Vec<&NodeClaim> = claims.iter().collect();
    let nodes = nodes.iter().map(|node| (node.metadata.name.as_deref().unwrap(), node)).collect();
    let objects = RolloutObjects { pool, class: Some(&class), claims: &claims, nodes: &nodes, now: at(now) };
    of(&objects, |node| pods.iter().filter(|pod| pod.node_name.as_deref() == Some(node)).collect::<Vec<&Pod>>())
}

fn limit(claims: &[NodeClaim], nodes: &[Node], pods: &[Pod], now: i64) -> Option<u32> {
    rollout(&pool(&json!({})), claims, nodes, pods, now).unwrap().limit()
}

/// A large pool has thousands of pods, which are looked at after each change.
#[test]
fn only_the_pods_of_canaries_that_decide_are_read() {
    let (pool, class) = (pool(&json!({})), class("ami-new"));
    let claims = [old("a"), new("b", 199), new("c", 60), new("d", 60)];
    let claims: Vec<&NodeClaim> = claims.iter().collect();
    let nodes = ["a", "b", "c", "d"].map(|name| node(name, "True", 60));
    let nodes = nodes.iter().map(|node| (node.metadata.name.as_deref().unwrap(), node)).collect();
    let objects = RolloutObjects { pool: &pool, class: Some(&class), claims: &claims, nodes: &nodes, now: at(200) };
    let read = std::cell::RefCell::new(Vec::new());
    let rollout = of(&objects, |node| {
        read.borrow_mut().push(node.to_owned());
        Vec::<&Pod>::new()
    });
    assert_eq!(rollout.unwrap().stage, Stage::Open);
    assert_eq!(read.into_inner(), ["c"]);
}

#[test]
fn a_pool_without_drift_has_no_rollout() {
    assert_eq!(rollout(&pool(&json!({})), &[new("a", 20)], &[], &[], 100), None);
}

#[test]
fn the_first_node_may_be_replaced_and_then_the_canary_is_awaited() {
    let mut claims = vec![old("a"), old("b")];
    assert_eq!(limit(&claims, &[], &[], 5), Some(1));
    claims.push(claim("c", 10, "ami-new", &[]));
    assert_eq!(limit(&claims, &[], &[], 20), Some(0), "it boots");
    claims[2] = new("c", 60);
    let nodes = [node("c", "True", 60)];
    assert_eq!(limit(&claims, &nodes, &[], 119), Some(0), "less than a minute in service");
    assert_eq!(limit(&claims, &nodes, &[], 120), None);
    let next = rollout(&pool(&json!({})), &claims, &nodes, &[], 119).unwrap().next_change;
    assert_eq!(next, Some(at(120)), "a plan is due then");
}

#[test]
fn the_pods_of_a_canary_must_run() {
    let (claims, nodes) = ([old("a"), new("c", 60)], [node("c", "True", 60)]);
    let pods = [pod("web", "c", "Pending"), pod("other", "a", "Pending"), pod("agent", "c", "Running")];
    let Stage::Canary(waiting) = rollout(&pool(&json!({})), &claims, &nodes, &pods, 200).unwrap().stage else {
        panic!("not waiting")
    };
    assert_eq!(waiting["c"], "pod d/web is not running");
    assert_eq!(limit(&claims, &nodes, &pods[1..], 200), None);
    // Which one is named does not depend on their order.
    let (api, web) = (pod("api", "c", "Pending"), pod("web", "c", "Pending"));
    for pods in [[api.clone(), web.clone()], [web.clone(), api]] {
        let stage = rollout(&pool(&json!({})), &claims, &nodes, &pods, 200).unwrap().stage;
        assert_eq!(stage, Stage::Canary([("c".to_owned(), "pod d/api is not running".to_owned())].into()));
    }
    let mut leaving = web;
    leaving.metadata.deletion_timestamp = claims[0].metadata.creation_timestamp.clone();
    let pods = [leaving, pod("done", "c", "Succeeded"), pod("failed", "c", "Failed")];
    assert_eq!(limit(&claims, &nodes, &pods, 200), None, "none of them is about to run");
}

#[test]
fn nodes_of_another_revision_prove_nothing() {
    let mut claims = [old("a"), new("c", 60)];
    let nodes = [node("c", "True", 60)];
    assert_eq!(limit(&claims, &nodes, &[], 200), None);
    claims[1].status.as_mut().unwrap().image_id = Some("ami-old".to_owned());
    assert_eq!(limit(&claims, &nodes, &[], 200), Some(1), "its condition Drifted is not written yet");
    claims[1] = new("c", 60);
    let annotations = claims[1].metadata.annotations.as_mut().unwrap();
    annotations.insert(annotation::NODE_POOL_HASH.to_owned(), "other".to_owned());
    assert_eq!(limit(&claims, &nodes, &[], 200), Some(1));
    claims[1] = claim("c", -1, "ami-new", &[condition("Initialized", "True", 60)]);
    assert_eq!(limit(&claims, &nodes, &[], 200), Some(1), "it is older than the drift");
    claims[1] = claim("c", 0, "ami-new", &[condition("Initialized", "True", 60)]);
    assert_eq!(limit(&claims, &nodes, &[], 200), None);
    claims[1].metadata.deletion_timestamp = claims[1].metadata.creation_timestamp.clone();
    assert_eq!(limit(&claims, &nodes, &[], 200), Some(1), "it is being removed");
    claims[1] = new("c", 60);
    let annotations = claims[1].metadata.annotations.as_mut().unwrap();
    annotations.insert(annotation::EC2_NODE_CLASS_HASH.to_owned(), "other".to_owned());
    assert_eq!(limit(&claims, &nodes, &[], 200), Some(1));
    claims[1] = new("c", 60);
    claims[1].status.as_mut().unwrap().image_id = None;
    assert_eq!(limit(&claims, &nodes, &[], 200), None, "an earlier version did not record it");
}

#[test]
fn as_many_canaries_as_the_pool_asks_for_must_prove_themselves() {
    let two = pool(&json!({annotation::ROLLOUT_CANARIES: "2"}));
    let claims = [old("a"), new("c", 60), new("d", 100)];
    let nodes = [node("c", "True", 60), node("d", "True", 100)];
    let of = |now| rollout(&two, &claims, &nodes, &[], now).unwrap();
    let (first, second, third) = (of(110), of(120), of(160));
    assert_eq!((first.limit(), first.next_change), (Some(0), Some(at(120))), "the earlier of two times");
    assert_eq!((second.limit(), second.next_change), (Some(0), Some(at(160))));
    assert_eq!((third.limit(), third.next_change), (None, None));
}

#[test]
fn only_nodes_that_are_removed_for_drift_count_as_being_replaced() {
    fn annotate(claim: &mut NodeClaim, key: &str, value: &str) {
        claim.metadata.annotations.get_or_insert_default().insert(key.to_owned(), value.to_owned());
    }
    fn remove(claim: &mut NodeClaim, command: &str) {
        annotate(claim, annotation::REMOVAL, command);
    }
    fn delete(claim: &mut NodeClaim) {
        claim.metadata.deletion_timestamp = claim.metadata.creation_timestamp.clone();
    }
    fn interrupt(claim: &mut NodeClaim) {
        annotate(claim, annotation::INTERRUPTED, "{}");
    }
    fn terminate(claim: &mut NodeClaim) {
        let terminating = serde_json::from_value(condition("InstanceTerminating", "True", 1)).unwrap();
        claim.status.as_mut().unwrap().conditions.push(terminating);
    }
    fn uninitialize(claim: &mut NodeClaim) {
        claim.status.as_mut().unwrap().conditions.retain(|condition| condition.type_ != "Initialized");
    }
    const DRIFTED: &str = r#"{"v":1,"reason":"Drifted"}"#;
    const EMPTY: &str = r#"{"v":1,"reason":"Empty"}"#;
    type Change = fn(&mut NodeClaim);
    let nothing: Change = |_| {};
    let cases: [(&str, Change, Change, u32); 9] = [
        ("nothing", nothing, nothing, 0),
        ("a removal for drift", |claim| remove(claim, DRIFTED), nothing, 1),
        ("the end of one", |claim| remove(claim, DRIFTED), terminate, 0),
        ("a removal for another reason", |claim| remove(claim, EMPTY), nothing, 0),
        ("a removal for an unknown reason", |claim| remove(claim, "{}"), nothing, 1),
        ("an interruption during one", |claim| remove(claim, "{}"), interrupt, 0),
        ("a deletion", delete, nothing, 1),
        ("a deletion after an interruption", interrupt, delete, 0),
        ("a deletion before it was in service", uninitialize, delete, 0),
    ];
    for (name, first, second, expected) in cases {
        let mut claim = old("a");
        first(&mut claim);
        second(&mut claim);
        let rollout = rollout(&pool(&json!({})), &[claim, old("b")], &[], &[], 5).unwrap();
        assert_eq!(rollout.replacing, expected, "{name}");
    }
}

#[test]
fn a_canary_that_does_not_come_into_service_or_is_not_ready_fails() {
    let stage = |claim: NodeClaim, nodes: &[Node], now| {
        rollout(&pool(&json!({})), &[old("a"), claim], nodes, &[], now).unwrap().stage
    };
    let failed = |cause: &str| Stage::Failed { claim: "c".to_owned(), cause: cause.to_owned() };
    let registered = || claim("c", 10, "ami-new", &[condition("Registered", "True", 30)]);
    assert!(matches!(stage(registered(), &[], 909), Stage::Canary(_)));
    assert_eq!(stage(registered(), &[], 910), failed("its Node is not initialized after 15 minutes"));
    let unready = [node("c", "False", 100)];
    assert!(matches!(stage(new("c", 60), &unready, 399), Stage::Canary(_)));
    assert_eq!(stage(new("c", 60), &unready, 400), failed("Node c is not Ready"));
    let silent: [Node; 1] = [serde_json::from_value(json!({"metadata": {"name": "c"}})).unwrap()];
    assert!(matches!(stage(new("c", 60), &silent, 359), Stage::Canary(_)));
    assert_eq!(stage(new("c", 60), &silent, 360), failed("Node c is not Ready"), "since it is in service");
    let gone = Stage::Canary([("c".to_owned(), "its Node is gone".to_owned())].into());
    assert_eq!(stage(new("c", 60), &[], 5000), gone);
    // A node that has proven itself keeps the rollout open whatever happens to a later one.
    let nodes = [node("c", "False", 100), node("d", "True", 60)];
    assert_eq!(limit(&[old("a"), new("c", 60), new("d", 60)], &nodes, &[], 400), None);
}

#[test]
fn annotations_pause_halt_and_size_the_rollout() {
    let claims = [old("a"), old("b"), new("c", 60)];
    let nodes = [node("c", "True", 60)];
    let of = |annotations: Value| rollout(&pool(&annotations), &claims, &nodes, &[], 200).unwrap();
    let paused = of(json!({annotation::ROLLOUT_PAUSED: "true"}));
    assert_eq!((&paused.stage, paused.limit()), (&Stage::Paused, Some(0)));
    assert_eq!(of(json!({annotation::ROLLOUT_PAUSED: "false"})).limit(), None);
    let revision = revision(&pool(&json!({})), Some(&class("ami-new")));
    assert_eq!(of(json!({annotation::ROLLOUT_HALTED: revision})).stage, Stage::Halted);
    assert_eq!(of(json!({annotation::ROLLOUT_HALTED: "of another image"})).limit(), None);
    assert_eq!(of(json!({annotation::ROLLOUT_CANARIES: "2"})).limit(), Some(2));
    let none = rollout(&pool(&json!({annotation::ROLLOUT_CANARIES: "0"})), &claims[..2], &[], &[], 1).unwrap();
    assert_eq!(none.limit(), None);
    for (key, value) in [(annotation::ROLLOUT_PAUSED, "yes"), (annotation::ROLLOUT_CANARIES, "10%")] {
        let invalid = of(json!({ key: value }));
        let Stage::Invalid(problem) = &invalid.stage else { panic!("{invalid:?}") };
        assert!(problem.contains(key) && problem.contains(value), "{problem}");
        assert_eq!(invalid.limit(), Some(0));
    }
}

#[test]
fn another_image_or_template_is_another_revision() {
    let of = |image: &str| revision(&pool(&json!({})), Some(&class(image)));
    assert_eq!(of("ami-new"), of("ami-new"));
    assert_ne!(of("ami-new"), of("ami-newer"));
    let mut other = pool(&json!({}));
    other.spec.template.spec.expire_after = "1h".parse().ok();
    assert_ne!(of("ami-new"), revision(&other, Some(&class("ami-new"))));
    let changes: [fn(&mut EC2NodeClass); 3] = [
        |class| {
            let annotations = class.metadata.annotations.get_or_insert_default();
            annotations.insert(annotation::EC2_NODE_CLASS_HASH.to_owned(), "2".to_owned());
        },
        |class| {
            let subnets = json!([{"id": "subnet-1", "zone": "a"}]);
            class.status.get_or_insert_default().subnets = serde_json::from_value(subnets).unwrap();
        },
        |class| {
            let groups = json!([{"id": "sg-1", "name": "nodes"}]);
            class.status.get_or_insert_default().security_groups = serde_json::from_value(groups).unwrap();
        },
    ];
    for change in changes {
        let mut other = class("ami-new");
        change(&mut other);
        assert_ne!(of("ami-new"), revision(&pool(&json!({})), Some(&other)), "{other:?}");
    }
}

#[test]
fn a_pod_that_never_starts_holds_a_canary_back_for_15_minutes_if_another_workload_runs_there() {
    let (claims, nodes) = ([old("a"), new("c", 60)], [node("c", "True", 60)]);
    let mut agent = pod("agent", "c", "Running");
    let owner = json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "u"}]);
    agent.owners = Arc::new(serde_json::from_value(owner).unwrap());
    let pods = [pod("broken", "c", "Pending"), agent, pod("web", "c", "Running")];
    let of = |pods: &[Pod], now| rollout(&pool(&json!({})), &claims, &nodes, pods, now).unwrap();
    let waits = of(&pods, 959);
    assert_eq!((waits.limit(), waits.next_change), (Some(0), Some(at(960))));
    assert_eq!(of(&pods, 960).limit(), None);
    let alone = of(&pods[..2], 960);
    assert_eq!((alone.limit(), alone.next_change), (Some(0), None), "the node may be what is broken");
    let Stage::Canary(waiting) = alone.stage else { panic!("not waiting") };
    assert_eq!(waiting["c"], "pod d/broken is not running");
}

#[test]
fn pools_without_a_drifted_node_need_no_claims_for_a_rollout() {
    let of = |pool: &str, mut claim: NodeClaim| {
        claim.metadata.labels = Some(BTreeMap::from([(label::NODE_POOL.to_owned(), pool.to_owned())]));
        claim
    };
    let claims = [of("a", old("x")), of("b", new("y", 20)), of("a", new("z", 20)), of("c", old("w"))];
    let by_pool = claims_of_drifted_pools(claims.iter());
    let counts: Vec<(&str, usize)> = by_pool.iter().map(|(pool, claims)| (*pool, claims.len())).collect();
    assert_eq!(counts, [("a", 2), ("c", 1)]);
}

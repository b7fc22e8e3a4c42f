use super::{Drain, times_to_stop};
use jiff::Timestamp;
use plimsoll_api::Pod;
use plimsoll_model::identity::PodUid;
use serde_json::{Value, json};
use std::collections::BTreeMap;
use std::sync::Arc;

fn at(seconds: i64) -> Timestamp {
    Timestamp::from_second(1_767_571_200 + seconds).unwrap()
}

fn pod(name: &str, metadata: &Value, spec: &Value, status: &Value) -> Arc<Pod> {
    let mut object = json!({"metadata": metadata, "spec": spec, "status": status});
    object["metadata"]["name"] = json!(name);
    object["metadata"]["namespace"] = json!("ns");
    object["spec"]["containers"] = json!([]);
    Arc::new(serde_json::from_value(object).unwrap())
}

fn plan(pods: &[Arc<Pod>], deadline: Option<Timestamp>, now: Timestamp) -> Drain {
    super::plan(pods, deadline, false, now)
}

fn plain(name: &str) -> Arc<Pod> {
    pod(name, &json!({}), &json!({}), &json!({}))
}

fn owned(name: &str, kind: &str, class: &str) -> Arc<Pod> {
    let owner = json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o"}]);
    pod(name, &json!({ "ownerReferences": owner }), &json!({ "priorityClassName": class }), &json!({}))
}

fn names(pods: &[Arc<Pod>]) -> Vec<&str> {
    pods.iter().filter_map(|pod| pod.metadata.name.as_deref()).collect()
}

fn forced(drain: &Drain) -> Vec<(&str, u32)> {
    drain.force.iter().filter_map(|(pod, grace)| Some((pod.metadata.name.as_deref()?, *grace))).collect()
}

#[test]
fn pods_are_evicted_in_four_tiers() {
    let mut pods = vec![
        owned("critical-daemon", "DaemonSet", "system-node-critical"),
        owned("critical", "ReplicaSet", "system-cluster-critical"),
        owned("daemon", "DaemonSet", ""),
        plain("usual"),
    ];
    for expected in ["usual", "daemon", "critical", "critical-daemon"] {
        let drain = plan(&pods, None, at(0));
        assert_eq!(names(&drain.evict), [expected]);
        assert_eq!(drain.waiting, pods.len());
        pods.pop();
    }
    assert_eq!(plan(&pods, None, at(0)).waiting, 0);
}

#[test]
fn the_next_tier_waits_until_the_one_before_is_gone() {
    let leaving = pod("leaving", &json!({"deletionTimestamp": at(20)}), &json!({}), &json!({}));
    let pods = [leaving, owned("daemon", "DaemonSet", "")];
    let drain = plan(&pods, None, at(0));
    assert!(drain.evict.is_empty());
    assert_eq!((drain.waiting, drain.stopping), (2, 1), "the daemon has not been asked to stop");
    let stuck = plan(&pods, None, at(81));
    assert_eq!(names(&stuck.evict), ["daemon"], "a minute after its time is over nobody waits for it");
    assert_eq!((stuck.waiting, stuck.stopping), (1, 0));
    assert_eq!(drain.look_again, Some(at(81)));
}

#[test]
fn some_pods_are_never_waited_for() {
    let tolerates = |toleration: Value| pod("t", &json!({}), &json!({ "tolerations": [toleration] }), &json!({}));
    let pods = [
        pod("done", &json!({}), &json!({}), &json!({"phase": "Succeeded"})),
        pod("mirror", &json!({"annotations": {"kubernetes.io/config.mirror": "x"}}), &json!({}), &json!({})),
        owned("static", "Node", ""),
        tolerates(json!({"operator": "Exists"})),
        tolerates(json!({"key": "karpenter.sh/disrupted", "operator": "Exists", "effect": "NoSchedule"})),
    ];
    assert_eq!(plan(&pods, Some(at(-1)), at(0)).waiting, 0);
    let other = tolerates(json!({"key": "karpenter.sh/disrupted", "operator": "Exists", "effect": "NoExecute"}));
    assert_eq!(plan(&[other], None, at(0)).waiting, 1);
}

#[test]
fn protected_pods_wait_until_the_deadline() {
    let protect = |value: &str, started: i64| {
        let annotations = json!({"annotations": {"karpenter.sh/do-not-disrupt": value}});
        pod("p", &annotations, &json!({"terminationGracePeriodSeconds": 10}), &json!({"startTime": at(started)}))
    };
    let drain = plan(&[protect("true", 0)], None, at(1000));
    assert!(drain.evict.is_empty() && drain.force.is_empty());
    assert_eq!((drain.protected.clone(), drain.waiting), (vec![("ns/p".to_owned(), "karpenter.sh/do-not-disrupt")], 1));
    assert_eq!(plan(&[protect("1m", 0)], None, at(59)).look_again, Some(at(60)));
    assert_eq!(names(&plan(&[protect("1m", 0)], None, at(60)).evict), ["p"]);
    assert_eq!(
        names(&plan(&[protect("perhaps", 0)], None, at(0)).evict),
        ["p"],
        "what cannot be read protects nothing"
    );
    let early = plan(&[protect("true", 0)], Some(at(100)), at(89));
    assert_eq!(early.look_again, Some(at(90)));
    assert!(early.force.is_empty());
    assert_eq!(forced(&plan(&[protect("true", 0)], Some(at(100)), at(90))), [("p", 10)]);
}

#[test]
fn a_pod_that_is_not_safe_to_evict_waits_until_the_deadline() {
    let key = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    let annotated = |value: &str| {
        let annotations = json!({"annotations": {key: value, "karpenter.sh/do-not-disrupt": "1m"}});
        pod("p", &annotations, &json!({"terminationGracePeriodSeconds": 10}), &json!({"startTime": at(0)}))
    };
    let waits = plan(&[annotated("false")], None, at(1000));
    assert_eq!((waits.protected, waits.look_again), (vec![("ns/p".to_owned(), key)], None), "for ever");
    assert_eq!(forced(&plan(&[annotated("false")], Some(at(100)), at(90))), [("p", 10)]);
    assert_eq!(names(&plan(&[annotated("true")], None, at(1000)).evict), ["p"]);
}

/// As where Cluster Autoscaler runs: the node termination handler ignores its annotation.
#[test]
fn a_forced_drain_evicts_pods_that_are_not_safe_to_evict() {
    let annotated = |annotations: &Value| {
        pod("p", &json!({ "annotations": annotations }), &json!({}), &json!({"startTime": at(0)}))
    };
    let key = "cluster-autoscaler.kubernetes.io/safe-to-evict";
    let forced = |pod: Arc<Pod>| super::plan(&[pod], None, true, at(10));
    for value in ["false", "on-completion"] {
        let drain = forced(annotated(&json!({ key: value })));
        assert_eq!((names(&drain.evict), drain.protected.len()), (vec!["p"], 0), "{value}");
    }
    let both = forced(annotated(&json!({ key: "false", "karpenter.sh/do-not-disrupt": "1m" })));
    assert_eq!(both.protected, [("ns/p".to_owned(), "karpenter.sh/do-not-disrupt")]);
    assert_eq!((both.evict.len(), both.look_again), (0, Some(at(60))));
}

#[test]
fn deadline_shortens_grace_periods_in_every_tier() {
    let slow = |name: &str, class: &str| {
        let spec = json!({"terminationGracePeriodSeconds": 600, "priorityClassName": class});
        pod(name, &json!({}), &spec, &json!({}))
    };
    let pods = [slow("usual", ""), slow("critical", "system-cluster-critical"), plain("quick")];
    let drain = plan(&pods, Some(at(100)), at(0));
    assert_eq!(forced(&drain), [("usual", 100), ("critical", 100)]);
    assert_eq!(names(&drain.evict), ["quick"]);
    assert_eq!(drain.look_again, Some(at(70)), "30 seconds of grace must fit");
    assert_eq!(forced(&plan(&[plain("quick")], Some(at(100)), at(200))), [("quick", 1)]);
}

#[test]
fn slowly_terminating_pod_is_deleted_again_once() {
    let leaving = |until: i64| pod("p", &json!({"deletionTimestamp": at(until)}), &json!({}), &json!({}));
    assert_eq!(forced(&plan(&[leaving(200)], Some(at(100)), at(0))), [("p", 100)]);
    assert!(plan(&[leaving(100)], Some(at(100)), at(0)).force.is_empty());
    assert!(plan(&[leaving(101)], Some(at(100)), at(100)).force.is_empty(), "a second is the least");
}

#[test]
fn delayed_pods_hold_the_later_tiers_and_wake_the_drain() {
    let named = |uid: &str| pod(uid, &json!({ "uid": uid }), &json!({}), &json!({}));
    let pods = [named("stays"), named("goes"), owned("daemon", "DaemonSet", "")];
    let until = BTreeMap::from([(PodUid::from("stays"), at(70)), (PodUid::from("elsewhere"), at(1))]);
    let mut drain = plan(&pods, None, at(0));
    drain.delay(&until);
    assert_eq!((names(&drain.evict), drain.waiting, drain.look_again), (vec!["goes"], 3, Some(at(70))));
    let mut forced = plan(&pods, Some(at(10)), at(0));
    forced.delay(&until);
    assert_eq!(forced.force.len(), 3, "the deadline of the node is not delayed");
}

#[test]
fn time_to_stop_counts_later_tiers_that_have_to_move() {
    let with_grace = |name: &str, kind: &str, class: &str, grace: i64| {
        let owner = json!([{"apiVersion": "apps/v1", "kind": kind, "name": "o", "uid": "o"}]);
        let spec = json!({ "priorityClassName": class, "terminationGracePeriodSeconds": grace });
        pod(name, &json!({ "uid": name, "ownerReferences": owner }), &spec, &json!({}))
    };
    let seconds =
        |pods: &[Arc<Pod>], name: &str| times_to_stop(pods, at(0)).get(&PodUid::from(name)).map(|it| it.as_secs());
    let mut pods = vec![with_grace("usual", "ReplicaSet", "", 30), with_grace("other", "ReplicaSet", "", 90)];
    assert_eq!(seconds(&pods, "usual"), Some(30), "pods of one tier stop at the same time");
    pods.push(with_grace("daemon", "DaemonSet", "", 7));
    assert_eq!(seconds(&pods, "usual"), Some(30), "a daemon pod ends with its node");
    assert_eq!(seconds(&pods, "daemon"), None, "it does not move");
    pods.push(with_grace("critical", "ReplicaSet", "system-cluster-critical", 20));
    pods.push(with_grace("critical-2", "ReplicaSet", "system-cluster-critical", 15));
    assert_eq!(seconds(&pods, "usual"), Some(30 + 7 + 20), "critical pods are evicted after the daemon pods");
    pods.push(with_grace("critical-daemon", "DaemonSet", "system-node-critical", 60));
    assert_eq!(seconds(&pods, "usual"), Some(57));
    assert_eq!(seconds(&pods, "critical"), Some(20), "a critical pod is the last");
}

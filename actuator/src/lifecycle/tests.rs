use super::{INITIALIZATION_TIMEOUT, LAUNCH_TIMEOUT, Observation, REGISTRATION_TIMEOUT, Step, TimedOut, next};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::condition::{self, node_claim};
use plimsoll_api::{NodeClaim, NodeClaimStatus};
use serde_json::{Value, json};

const CREATED: &str = "2026-01-01T00:00:00Z";

fn at(seconds: i64) -> Timestamp {
    CREATED.parse::<Timestamp>().unwrap() + jiff::SignedDuration::from_secs(seconds)
}

fn claim(launched: bool) -> NodeClaim {
    let mut claim: NodeClaim = serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "c", "uid": "claim-uid", "generation": 1, "creationTimestamp": CREATED,
            "labels": {"team": "blue", "karpenter.sh/nodepool": "default"},
            "annotations": {"note": "kept", "plimsoll.dev/pods": "[]",
                "karpenter.sh/nodeclaim-termination-timestamp": "2026-02-01T00:00:00Z"}},
        "spec": {
            "requirements": [], "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "x"},
            "taints": [{"key": "dedicated", "value": "yes", "effect": "NoSchedule"}],
            "startupTaints": [{"key": "cni", "effect": "NoExecute"}],
            "resources": {"requests": {"cpu": "1", "example.com/gpu": "1", "zero": "0"}},
        },
    }))
    .unwrap();
    let mut status = NodeClaimStatus { provider_id: Some("aws:///a/i-1".to_owned()), ..NodeClaimStatus::default() };
    if launched {
        let moment = condition::Moment::of(&claim.metadata, at(10));
        node_claim::CONDITIONS.set_true(&mut status.conditions, moment, node_claim::LAUNCHED);
    }
    claim.status = Some(status);
    claim
}

fn node(change: &Value) -> Node {
    let mut node = json!({
        "metadata": {"name": "n", "labels": {"team": "red", "kubernetes.io/hostname": "n"}},
        "spec": {"providerID": "aws:///a/i-1", "taints": [{"key": "karpenter.sh/unregistered", "effect": "NoExecute"}]},
        "status": {"conditions": [{"type": "Ready", "status": "True"}], "allocatable": {"cpu": "2", "example.com/gpu": "1"}},
    });
    merge(&mut node, change);
    serde_json::from_value(node).unwrap()
}

fn merge(to: &mut Value, from: &Value) {
    match (to, from) {
        (Value::Object(to), Value::Object(from)) => {
            for (key, value) in from {
                merge(to.entry(key).or_insert(Value::Null), value);
            }
        }
        (to, from) => *to = from.clone(),
    }
}

fn step(claim: &NodeClaim, nodes: &[&Node], seconds: i64) -> Step {
    next(&Observation { claim, nodes, has_pool: true, now: at(seconds) })
}

/// The step of a claim without a NodePool.
fn step_without_pool(claim: &NodeClaim, nodes: &[&Node], seconds: i64) -> Step {
    next(&Observation { claim, nodes, has_pool: false, now: at(seconds) })
}

/// Type, status and reason of a condition after a step.
fn after(step: &Step, name: &str) -> (String, String) {
    let status = step.status.as_ref().unwrap();
    let found = condition::get(&status.conditions, name).unwrap();
    (found.status.clone(), found.reason.clone())
}

fn pair(status: &str, reason: &str) -> (String, String) {
    (status.to_owned(), reason.to_owned())
}

#[test]
fn registration_copies_the_claims_metadata_and_removes_the_unregistered_taint() {
    let step = step(&claim(true), &[&node(&json!({}))], 30);
    let registered = step.node.clone().unwrap();
    let labels = registered.metadata.labels.unwrap();
    assert_eq!(labels["team"], "blue", "the claim wins");
    assert_eq!(labels["kubernetes.io/hostname"], "n", "its own labels stay");
    assert_eq!(labels["karpenter.sh/registered"], "true");
    assert!(!labels.contains_key("karpenter.sh/initialized"));
    let annotations = registered.metadata.annotations.unwrap();
    assert_eq!(annotations.keys().collect::<Vec<_>>(), ["note"], "what is ours alone stays on the claim");
    assert_eq!(registered.metadata.finalizers.unwrap(), ["karpenter.sh/termination"]);
    assert_eq!(registered.metadata.owner_references.unwrap()[0].uid, "claim-uid");
    let taints: Vec<String> =
        registered.spec.unwrap().taints.unwrap().into_iter().map(|it| format!("{}:{}", it.key, it.effect)).collect();
    assert_eq!(taints, ["dedicated:NoSchedule", "cni:NoExecute"]);
    assert_eq!(after(&step, "Registered"), pair("True", "Registered"));
    assert_eq!(after(&step, "Initialized"), pair("Unknown", "StartupTaintsExist"));
    assert_eq!(after(&step, "Ready"), pair("Unknown", "ReconcilingDependents"));
    assert_eq!(step.reached, ["Registered"]);
    assert_eq!(step.status.unwrap().node_name.as_deref(), Some("n"));
    assert!(!step.taint_was_missing);
}

/// A leader may stop when it has written the Node and not yet the claim. Finalizers and owners of others stay.
#[test]
fn a_registration_that_was_interrupted_does_not_change_the_node_again() {
    let others = json!({"metadata": {"finalizers": ["example.com/wait"],
        "ownerReferences": [{"apiVersion": "v1", "kind": "ConfigMap", "name": "o", "uid": "other"}]}});
    let written = step(&claim(true), &[&node(&others)], 30).node.unwrap();
    assert_eq!(written.metadata.finalizers.clone().unwrap(), ["example.com/wait", "karpenter.sh/termination"]);
    let owners = written.metadata.owner_references.iter().flatten();
    assert_eq!(owners.map(|owner| owner.uid.as_str()).collect::<Vec<_>>(), ["other", "claim-uid"]);
    let again = step(&claim(true), &[&written], 40);
    assert_eq!((again.node, again.taint_was_missing, again.reached), (None, false, vec!["Registered"]));
}

/// Somebody may remove the label, or the owner.
#[test]
fn a_node_is_new_if_it_has_neither_the_label_nor_the_owner_of_a_registration() {
    let registered = step(&claim(true), &[&node(&json!({}))], 30).node.unwrap();
    let is_new = |with_label: bool, with_owner: bool| {
        let mut node = registered.clone();
        node.metadata.labels.as_mut().unwrap().retain(|key, _| with_label || key != "karpenter.sh/registered");
        node.metadata.owner_references.as_mut().unwrap().retain(|_| with_owner);
        super::node::is_new(&node, &claim(true))
    };
    assert_eq!([(true, true), (false, true), (true, false)].map(|(label, owner)| is_new(label, owner)), [false; 3]);
    assert!(is_new(false, false));
}

#[test]
fn node_with_do_not_sync_taints_keeps_its_taints() {
    let own =
        node(&json!({"metadata": {"labels": {"karpenter.sh/do-not-sync-taints": "true"}}, "spec": {"taints": []}}));
    let step = step(&claim(true), &[&own], 30);
    assert_eq!(step.node.clone().unwrap().spec.unwrap().taints.unwrap(), []);
    assert!(step.taint_was_missing);
    assert_eq!(after(&step, "Initialized"), pair("True", "Initialized"), "in one step");
    assert_eq!(after(&step, "Ready"), pair("True", "Ready"));
    assert_eq!(step.node.unwrap().metadata.labels.unwrap()["karpenter.sh/initialized"], "true");
    assert_eq!(step.reached, ["Registered", "Initialized"]);
}

#[test]
fn missing_prerequisites_are_named() {
    let mut registered = claim(true);
    registered.status = step(&registered, &[&node(&json!({}))], 30).status;
    let clean = json!({"spec": {"taints": []}, "metadata": {"labels": {"karpenter.sh/registered": "true"}}});
    let missing_prerequisite = |change: &Value| {
        let mut merged = clean.clone();
        merge(&mut merged, change);
        let step = step(&registered, &[&node(&merged)], 40);
        // An unchanged status is not written again.
        let status = step.status.or_else(|| registered.status.clone()).unwrap();
        condition::get(&status.conditions, "Initialized").unwrap().reason.clone()
    };
    assert_eq!(
        missing_prerequisite(&json!({"status": {"conditions": [{"type": "Ready", "status": "Unknown"}]}})),
        "NodeNotReady"
    );
    assert_eq!(
        missing_prerequisite(&json!({"spec": {"taints": [{"key": "cni", "effect": "NoExecute"}]}})),
        "StartupTaintsExist"
    );
    let not_ready = json!({"spec": {"taints": [{"key": "node.kubernetes.io/not-ready", "effect": "NoSchedule"}]}});
    assert_eq!(missing_prerequisite(&not_ready), "KnownEphemeralTaintsExist");
    assert_eq!(
        missing_prerequisite(&json!({"status": {"allocatable": {"example.com/gpu": "0"}}})),
        "ResourceNotRegistered"
    );
    assert_eq!(missing_prerequisite(&json!({})), "Initialized");
    assert_eq!(after(&step(&registered, &[], 40), "Initialized").1, "NodeNotFound");
}

/// Users forget the taints of agents that start on the node.
#[test]
fn an_undeclared_taint_is_waited_for_until_five_minutes_after_the_node_is_ready() {
    let node = |key: &str, ready: &str| {
        node(&json!({
            "spec": {"taints": [{"key": key, "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": at(60)}]},
        }))
    };
    let mut registered = claim(true);
    registered.spec.startup_taints.clear();
    registered.status = step(&registered, &[&node("node.cilium.io/agent-not-ready", "False")], 30).status;
    let waits = step(&registered, &[&node("node.cilium.io/agent-not-ready", "True")], 70);
    assert_eq!(after(&waits, "Initialized"), pair("Unknown", "StartupTaintsExist"));
    let message = "taint node.cilium.io/agent-not-ready:NoSchedule is not declared; if it ends while nodes start, add it \
                   to spec.template.spec.startupTaints";
    assert_eq!((waits.undeclared_taint.as_deref(), waits.look_again), (Some(message), Some(at(360))));
    let later = |seconds: i64| step(&registered, &[&node("node.cilium.io/agent-not-ready", "True")], seconds);
    assert_eq!((later(359).reached, later(360).reached), (vec![], vec!["Initialized"]));
    for declared in ["dedicated", "node.kubernetes.io/unschedulable", "karpenter.sh/disrupted"] {
        assert_eq!(step(&registered, &[&node(declared, "True")], 70).reached, ["Initialized"], "{declared}");
    }
}

/// The initialization must not time out meanwhile, since another node would be launched.
#[test]
fn an_undeclared_taint_is_waited_for_until_ten_minutes_after_the_registration_at_most() {
    let mut registered = claim(true);
    registered.spec.startup_taints.clear();
    let node = |ready: &str, since: i64| {
        node(&json!({
            "spec": {"taints": [{"key": "node.cilium.io/agent-not-ready", "effect": "NoSchedule"}]},
            "status": {"conditions": [{"type": "Ready", "status": ready, "lastTransitionTime": at(since)}]},
        }))
    };
    registered.status = step(&registered, &[&node("False", 30)], 30).status;
    // Ready late, and by a clock that is ahead.
    for (ready_since, now, until) in [(420, 480, 630), (86_400, 60, 630), (-86_400, 60, 60), (750, 750, 750)] {
        let ready = node("True", ready_since);
        let waits = step(&registered, &[&ready], now);
        assert_eq!(waits.look_again, (now < until).then(|| at(until)), "Ready since {ready_since}");
        assert_eq!(waits.undeclared_taint.is_some(), now < until, "Ready since {ready_since}");
        assert_eq!(step(&registered, &[&ready], until).reached, ["Initialized"], "Ready since {ready_since}");
    }
}

#[test]
fn completed_steps_are_not_repeated() {
    let clean = json!({"spec": {"taints": []}});
    let mut claim = claim(true);
    claim.spec.startup_taints.clear();
    claim.spec.taints.clear();
    let first = step(&claim, &[&node(&clean)], 30);
    claim.status = first.status;
    let node = first.node.unwrap();
    assert_eq!(step(&claim, &[&node], 40), Step::default());
}

#[test]
fn two_nodes_of_one_instance_are_an_error() {
    let (one, two) = (node(&json!({})), node(&json!({"metadata": {"name": "m"}})));
    let step = step(&claim(true), &[&one, &two], 30);
    assert_eq!(after(&step, "Registered"), pair("False", "MultipleNodesFound"));
    assert_eq!(after(&step, "Ready"), pair("False", "UnhealthyDependents"));
    assert!(step.node.is_none());
}

#[test]
fn claims_time_out_after_their_timeout() {
    let new = claim(false);
    let early = step(&new, &[], LAUNCH_TIMEOUT.as_secs() - 1);
    assert_eq!(early.timed_out, None);
    assert_eq!(early.look_again, Some(at(LAUNCH_TIMEOUT.as_secs())));
    assert_eq!(step(&new, &[], LAUNCH_TIMEOUT.as_secs()).timed_out, Some(TimedOut::Launch));
    let mut of_group = new.clone();
    let annotations = of_group.metadata.annotations.get_or_insert_default();
    annotations.insert("plimsoll.dev/launch-group".to_owned(), r#"{"v":1,"id":"g","size":1}"#.to_owned());
    let waiting = step(&of_group, &[], REGISTRATION_TIMEOUT.as_secs());
    assert_eq!(waiting.timed_out, None, "its launch goes on, and there is no instance that could register");
    let annotations = of_group.metadata.annotations.get_or_insert_default();
    annotations.insert("plimsoll.dev/launch-group".to_owned(), "nonsense".to_owned());
    let unreadable = step(&of_group, &[], LAUNCH_TIMEOUT.as_secs());
    assert_eq!(unreadable.timed_out, Some(TimedOut::Launch), "nobody can go on with its launch");
    // The instance was launched after ten seconds.
    let launched = claim(true);
    let late = 10 + REGISTRATION_TIMEOUT.as_secs();
    assert_eq!(step(&launched, &[], late - 1).timed_out, None);
    assert_eq!(step(&launched, &[], late).timed_out, Some(TimedOut::Registration));
    assert_eq!(step(&launched, &[&node(&json!({}))], late).timed_out, None, "the Node came in the last moment");
}

#[test]
fn an_initialization_timeout_is_reported_once_and_ends_with_the_initialization() {
    let condition = |claim: &NodeClaim| claim.true_condition("InitializationTimedOut").cloned();
    let mut claim = claim(true);
    let registered = step(&claim, &[&node(&json!({}))], 30);
    let (node, late) = (registered.node.clone().unwrap(), 30 + INITIALIZATION_TIMEOUT.as_secs());
    assert_eq!((registered.look_again, registered.not_initialized), (Some(at(late)), None));
    claim.status = registered.status;
    assert_eq!(step(&claim, &[&node], late - 1).status, None);

    let over = step(&claim, &[&node], late);
    let missing = "startup taint cni:NoExecute is still on the Node";
    assert_eq!((over.not_initialized.as_deref(), over.timed_out), (Some(missing), None));
    claim.status = over.status;
    let shown = condition(&claim).unwrap();
    assert_eq!((shown.reason.as_str(), shown.message.as_str()), ("StartupTaintsExist", missing));
    assert_eq!(step(&claim, &[&node], late + 60), Step::default(), "nothing is new, and time changes nothing");

    let mut clean = node.clone();
    clean.spec.as_mut().unwrap().taints = None;
    let initialized = step(&claim, &[&clean], late + 60);
    assert_eq!(initialized.reached, ["Initialized"]);
    claim.status = initialized.status;
    assert_eq!((condition(&claim), claim.is_initialized()), (None, true));
}

#[test]
fn only_a_claim_without_a_pool_expires_here() {
    let mut claim = claim(true);
    claim.spec.expire_after = Some("1h".parse().unwrap());
    assert!(!step(&claim, &[], 3600).expired, "plans replace the nodes of pools");
    assert!(!step_without_pool(&claim, &[], 3599).expired);
    assert!(step_without_pool(&claim, &[], 3600).expired);
    claim.spec.expire_after = Some("Never".parse().unwrap());
    assert!(!step_without_pool(&claim, &[], 3600).expired);
}

#[test]
fn a_claim_without_a_pool_is_looked_at_again_when_it_expires() {
    let mut claim = claim(true);
    claim.spec.expire_after = Some("1h".parse().unwrap());
    // The registration times out earlier.
    assert_eq!(step_without_pool(&claim, &[], 30).look_again, Some(at(10 + 900)));
    // And the initialization, after a registration now.
    assert_eq!(step_without_pool(&claim, &[&node(&json!({}))], 30).look_again, Some(at(30 + 900)));
    claim.spec.startup_taints.clear();
    assert_eq!(step_without_pool(&claim, &[&node(&json!({}))], 30).look_again, Some(at(3600)));
}

#[test]
fn registration_waits_for_the_partition_that_ec2_has_chosen() {
    let key = "karpenter.k8s.aws/placement-group-partition";
    let mut waiting = claim(true);
    waiting.metadata.labels.as_mut().unwrap().insert(key.to_owned(), String::new());
    let ready = node(&json!({}));
    let without_node = step(&waiting, &[], 30);
    assert!(!without_node.needs_partition, "EC2 is asked once the instance runs");
    let waits = step(&waiting, &[&ready], 30);
    assert!(waits.needs_partition && waits.node.is_none());
    assert_eq!(after(&waits, "Registered"), pair("Unknown", "PlacementGroupPartitionUnknown"));
    let late = step(&waiting, &[&ready], 10 + 15 * 60);
    assert_eq!(late.timed_out, Some(TimedOut::Registration));
    waiting.metadata.labels.as_mut().unwrap().insert(key.to_owned(), "3".to_owned());
    let registered = step(&waiting, &[&ready], 60);
    assert!(!registered.needs_partition);
    assert_eq!(registered.node.unwrap().metadata.labels.unwrap()[key], "3");
}

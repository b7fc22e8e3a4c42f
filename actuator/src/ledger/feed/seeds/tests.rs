use super::*;
use crate::guarded::Guarded;
use crate::ledger::Ledger;
use serde_json::{Value, json};

fn claim(status: &Value) -> NodeClaim {
    let claim = json!({
        "metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": "default"}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "large"},
            "requirements": [
                {"key": "team", "operator": "In", "values": ["a"]},
                {"key": "topology.kubernetes.io/zone", "operator": "In", "values": ["zone-a", "zone-b"]},
            ],
        },
        "status": status,
    });
    serde_json::from_value(claim).unwrap()
}

fn node(labels: &Value) -> Node {
    serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).unwrap()
}

fn text(labels: &BTreeMap<String, String>) -> Vec<(&str, &str)> {
    labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect()
}

#[test]
fn labels_are_those_of_a_registered_node_or_certain_ones() {
    let certain = [("karpenter.k8s.aws/ec2nodeclass", "large"), ("karpenter.sh/nodepool", "default"), ("team", "a")];
    let claim = claim(&json!({}));
    assert_eq!(text(&labels(&claim)), certain);
    assert_eq!(text(&seed(&claim, Some(&node(&json!({"team": "b"})))).labels), certain, "not registered yet");
    let registered = node(&json!({"team": "b", "karpenter.sh/registered": "true"}));
    let own = [("karpenter.sh/registered", "true"), ("team", "b")];
    assert_eq!(text(&seed(&claim, Some(&registered)).labels), own);
}

#[test]
fn each_fact_of_a_claim_is_news_until_it_is_recorded() {
    let recorded = |claim: &NodeClaim, node: Option<&Node>| Ledger::from_claims(1, &[seed(claim, node)]).0;
    let news =
        |ledger: &Ledger, claim: &NodeClaim, node: Option<&Node>| has_changed(ledger.claim("c").unwrap(), claim, node);
    let launched = json!({"providerID": "aws:///zone-a/i-1", "capacity": {"cpu": "2"}});
    let initialized = json!({"conditions": [{
        "type": "Initialized", "status": "True", "reason": "", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    let overdue = json!({"conditions": [{
        "type": "InitializationTimedOut", "status": "True", "reason": "", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    let drifted = json!({"conditions": [{
        "type": "Drifted", "status": "True", "reason": "", "message": "", "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    let terminating = json!({"conditions": [{
        "type": "InstanceTerminating", "status": "True", "reason": "", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z",
    }]});
    let mut deleting = claim(&json!({}));
    deleting.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).unwrap();
    let changes = [
        claim(&launched),
        claim(&initialized),
        claim(&json!({"nodeName": "n"})),
        claim(&overdue),
        claim(&drifted),
        claim(&terminating),
        deleting,
    ];
    let before = recorded(&claim(&json!({})), None);
    assert!(!news(&before, &claim(&json!({"providerID": "", "nodeName": "", "capacity": {"cpu": "2"}})), None));
    assert!(news(&recorded(&claim(&drifted), None), &claim(&json!({})), None), "it has not drifted any more");
    let mut interrupted = claim(&drifted);
    interrupted.metadata.annotations = Some([(annotation::INTERRUPTED.to_owned(), "{}".to_owned())].into());
    assert!(seed(&claim(&drifted), None).drifted && !seed(&interrupted, None).drifted);
    for changed in changes {
        assert!(news(&before, &changed, None), "{changed:?}");
        assert!(!news(&recorded(&changed, None), &changed, None), "{changed:?}");
    }
    let registered = node(&json!({"karpenter.sh/registered": "true"}));
    let named = claim(&json!({"nodeName": "n"}));
    assert!(news(&recorded(&named, None), &named, Some(&registered)), "the node's labels");
    let mut priced = claim(&launched);
    let annotations = [("plimsoll.dev/usd-per-hour".to_owned(), "0.5".to_owned())];
    priced.metadata.annotations = Some(annotations.into());
    assert!(news(&recorded(&claim(&launched), None), &priced, None), "the price");
    assert!(!news(&recorded(&priced, None), &priced, None));
}

#[test]
fn an_unreadable_claim_counts_and_blocks_its_pool_only_if_nobody_knows_how_much() {
    let problems_of = |expire_after: &str, status: &Value, annotations: &Value| {
        let mut object = serde_json::to_value(claim(status)).unwrap();
        object["spec"]["expireAfter"] = json!(expire_after);
        object["metadata"]["annotations"] = annotations.clone();
        let read: Guarded<NodeClaim> = serde_json::from_value(object).unwrap();
        let (ledger, problems) = Ledger::from_claims(1, &[seed(&read.0.unwrap(), None)]);
        (ledger.used(&"default".into()).get("cpu"), problems.iter().map(ToString::to_string).collect::<Vec<_>>())
    };
    let problems = |status: &Value, annotations: &Value| problems_of("2562048h", status, annotations);
    let (launched, unknown) = (json!({"providerID": "i-1", "capacity": {"cpu": "2"}}), json!({"providerID": "i-1"}));
    let (reserved, group) = (json!({annotation::RESERVED: r#"{"cpu": "4"}"#}), json!({annotation::LAUNCH_GROUP: "g"}));
    let counts = |cpu: i64| (cpu, Vec::new());
    assert_eq!(problems(&launched, &json!({})), counts(2000));
    assert_eq!(problems(&unknown, &reserved), counts(4000));
    assert_eq!(problems(&json!({}), &json!({})), counts(0), "it has no instance, and gets none");
    let missing = "NodeClaim c: annotation plimsoll.dev/reserved: missing, and the NodeClaim's capacity cannot be read";
    assert_eq!(problems(&unknown, &json!({})), (0, vec![missing.to_owned()]));
    assert_eq!(problems(&json!({}), &group).1, [missing], "it may be launched");
    assert_eq!(problems_of("1h", &unknown, &json!({})), counts(0), "it can be read, and has no capacity yet");
}

/// Its node came late.
#[test]
fn an_initialized_claim_is_not_overdue() {
    let conditions = |kinds: &[&str]| {
        let is_true = |kind: &&str| {
            json!({"type": kind, "status": "True", "reason": "", "message": "",
                "lastTransitionTime": "2026-01-01T00:00:00Z"})
        };
        claim(&json!({"conditions": kinds.iter().map(is_true).collect::<Vec<_>>()}))
    };
    assert!(seed(&conditions(&["InitializationTimedOut"]), None).overdue);
    assert!(!seed(&conditions(&["Initialized", "InitializationTimedOut"]), None).overdue);
}

#[test]
fn a_negative_capacity_is_none() {
    let capacity = |cpu: &str| seed(&claim(&json!({"providerID": "i-1", "capacity": {"cpu": cpu}})), None).capacity;
    assert!(capacity("2").is_some());
    assert_eq!(capacity("-2"), None);
}

/// The catalog lacked its instance type at the launch.
#[test]
fn a_claim_in_service_without_capacity_counts_that_of_its_node() {
    let node = json!({"metadata": {"name": "n"}, "status": {"capacity": {"cpu": "2"}}});
    let node: Node = serde_json::from_value(node).unwrap();
    let starting = claim(&json!({"providerID": "aws:///zone-a/i-1", "nodeName": "n"}));
    assert_eq!(seed(&starting, Some(&node)).capacity, None, "the Node may lack resources of device plugins");
    let initialized = json!({"type": "Initialized", "status": "True", "reason": "", "message": "",
        "lastTransitionTime": "2026-01-01T00:00:00Z"});
    let status = json!({"providerID": "aws:///zone-a/i-1", "nodeName": "n", "conditions": [initialized]});
    let in_service = claim(&status);
    assert_eq!(seed(&in_service, Some(&node)).capacity, Some(Resources::from([("cpu", 2000), (NODES_RESOURCE, 1)])));
    let (ledger, _) = Ledger::from_claims(1, &[seed(&in_service, None)]);
    let record = ledger.claim("c").unwrap();
    assert!(!has_changed(record, &in_service, None), "nobody knows it");
    assert!(has_changed(record, &in_service, Some(&node)));
    let own = json!({"providerID": "aws:///zone-a/i-1", "capacity": {"cpu": "4"}});
    assert_eq!(seed(&claim(&own), Some(&node)).capacity.unwrap().get("cpu"), 4000);
}

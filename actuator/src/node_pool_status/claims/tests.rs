use super::{consolidatable, drift};
use jiff::Timestamp;
use plimsoll_api::condition::node_claim::{CONDITIONS, INITIALIZED};
use plimsoll_api::condition::{Moment, Status};
use plimsoll_api::{EC2NodeClass, NodeClaim, NodePool};
use serde_json::{Value, json};

fn pool(hash: &str, requirements: &Value, disruption: &Value) -> NodePool {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodePool",
        "metadata": {"name": "p", "annotations":
            {"karpenter.sh/nodepool-hash": hash, "karpenter.sh/nodepool-hash-version": "v3"}},
        "spec": {"disruption": disruption, "template": {"spec": {"requirements": requirements,
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}}}},
    }))
    .unwrap()
}

fn claim(annotations: &Value) -> NodeClaim {
    serde_json::from_value(json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "c", "annotations": annotations,
            "labels": {"topology.kubernetes.io/zone": "a", "kubernetes.io/arch": "arm64"}},
        "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "k", "name": "n"}},
    }))
    .unwrap()
}

fn class(hash: &str) -> EC2NodeClass {
    serde_json::from_value(json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "c", "annotations":
            {"karpenter.k8s.aws/ec2nodeclass-hash": hash, "karpenter.k8s.aws/ec2nodeclass-hash-version": "v6"}},
        "spec": {"amiFamily": "AL2023", "subnetSelectorTerms": [], "securityGroupSelectorTerms": []}}))
    .unwrap()
}

fn stamped(pool: &str, pool_version: &str, class: &str) -> NodeClaim {
    claim(&json!({"karpenter.sh/nodepool-hash": pool, "karpenter.sh/nodepool-hash-version": pool_version,
        "karpenter.k8s.aws/ec2nodeclass-hash": class, "karpenter.k8s.aws/ec2nodeclass-hash-version": "v6"}))
}

#[test]
fn claim_drifts_when_pool_requirements_or_class_change() {
    let zone = |zone: &str| json!([{"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]);
    let same = pool("1", &zone("a"), &json!({"consolidateAfter": "0s"}));
    let class_now = class("7");
    let of = |claim: &NodeClaim, pool: &NodePool| drift(claim, pool, Some(&class_now));
    assert_eq!(of(&stamped("1", "v3", "7"), &same), None);
    assert_eq!(of(&stamped("2", "v3", "7"), &same), Some("NodePoolDrifted"));
    assert_eq!(of(&stamped("2", "v2", "7"), &same), None, "hashes of another version say nothing");
    assert_eq!(of(&claim(&json!({})), &same), None, "nor does a claim without hash");
    let moved = pool("1", &zone("b"), &json!({"consolidateAfter": "0s"}));
    assert_eq!(of(&stamped("1", "v3", "7"), &moved), Some("RequirementsDrifted"));
    let unknown = json!([{"key": "team", "operator": "Exists"}]);
    let labelled = pool("1", &unknown, &json!({"consolidateAfter": "0s"}));
    assert_eq!(of(&stamped("1", "v3", "7"), &labelled), Some("RequirementsDrifted"));
    assert_eq!(of(&stamped("1", "v3", "8"), &same), Some("NodeClassDrift"));
}

#[test]
fn node_is_consolidatable_after_a_quiet_period() {
    let at = |seconds: i64| Timestamp::from_second(1_767_571_200 + seconds).unwrap();
    let mut conditions = Vec::new();
    let quiet = |after: &str| pool("1", &json!([]), &json!({"consolidateAfter": after}));
    let ask =
        |conditions: &Vec<_>, last, after: &str, now| consolidatable(conditions, last, Some(&quiet(after)), at(now));
    assert_eq!(ask(&conditions, None, "30s", 100), Err(None), "not in service yet");
    let moment = Moment { generation: 1, created: at(0), deleting: false, now: at(10) };
    CONDITIONS.set(&mut conditions, moment, INITIALIZED, Status::Unknown, "NodeNotReady", "");
    CONDITIONS.set_true(&mut conditions, moment, INITIALIZED);
    assert_eq!(ask(&conditions, None, "30s", 39), Err(Some(at(40))));
    assert_eq!(ask(&conditions, None, "30s", 40), Ok(()));
    assert_eq!(ask(&conditions, Some(at(35)), "30s", 64), Err(Some(at(65))), "a pod came or went");
    assert_eq!(ask(&conditions, Some(at(35)), "Never", 1_000_000), Err(None));
}

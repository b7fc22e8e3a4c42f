use super::consolidatable;
use jiff::Timestamp;
use plimsoll_api::NodePool;
use plimsoll_api::condition::node_claim::{CONDITIONS, INITIALIZED};
use plimsoll_api::condition::{Moment, Status};
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

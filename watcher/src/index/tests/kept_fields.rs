//! Fields that are kept, and those that are not.

use super::*;
use k8s_openapi::api::core::v1::ReplicationController;
use plimsoll_api::{CapacityBuffer, CapacityQuota, NodeOverlay};

/// Plimsoll itself writes some of them.
#[test]
fn a_status_that_plans_do_not_depend_on_is_no_change() {
    fn is_change<K: Indexed>(spec: &Value, status: Value) -> bool {
        let mut object = json!({"metadata": {"name": "a", "namespace": "shop"}, "spec": spec});
        let mut index = Index::default();
        assert!(index.apply(read::<K>(&object)));
        object["status"] = status;
        index.apply(read::<K>(&object))
    }
    let ready = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-01-05T00:00:00Z"}]});
    let overlay = json!({"price": "0.1", "requirements": [{"key": "team", "operator": "In", "values": ["a"]}]});
    assert!(!is_change::<NodeOverlay>(&overlay, ready.clone()));
    let buffer = json!({"podTemplateRef": {"name": "spare"}, "replicas": 1});
    assert!(!is_change::<CapacityBuffer>(&buffer, ready.clone()));
    let quota = json!({"selector": {}, "limits": {"resources": {"cpu": 10}}});
    assert!(!is_change::<CapacityQuota>(&quota, ready));
    assert!(!is_change::<ReplicationController>(&json!({"replicas": 2}), json!({"replicas": 1})));
}

#[test]
fn a_replication_controller_keeps_only_how_many_pods_it_wants() {
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app"}]}});
    let whole = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "w", "labels": {"app": "web"}},
        "spec": {"replicas": 2, "minReadySeconds": 5, "selector": {"app": "web"}, "template": template}});
    let expected = json!({"metadata": {"name": "web", "namespace": "shop", "uid": "w"}, "spec": {"replicas": 2}});
    assert_eq!(read::<ReplicationController>(&whole), serde_json::from_value(expected).unwrap());
}

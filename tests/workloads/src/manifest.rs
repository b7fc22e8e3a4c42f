//! Manifests as JSON values.

use serde_json::{Map, Value, json};
use std::collections::BTreeMap;

/// Labels in order.
pub(crate) type Labels = BTreeMap<String, String>;

/// The value at `path`; missing parents become objects.
pub(crate) fn at<'v>(value: &'v mut Value, path: &[&str]) -> &'v mut Value {
    let mut here = value;
    for key in path {
        if !here.is_object() {
            *here = Value::Object(Map::new());
        }
        here = &mut here[*key];
    }
    here
}

/// Appends to the list at `path`, which is created if it is missing.
pub(crate) fn push(value: &mut Value, path: &[&str], item: Value) {
    let slot = at(value, path);
    match slot {
        Value::Array(items) => items.push(item),
        _ => *slot = Value::Array(vec![item]),
    }
}

/// A label selector for one label.
pub(crate) fn selects(key: &str, value: &str) -> Value {
    json!({"matchLabels": {key: value}})
}

/// A requirement in the format of node affinity and pools.
pub(crate) fn requirement(key: &str, operator: &str, values: &[&str]) -> Value {
    if values.is_empty() {
        json!({"key": key, "operator": operator})
    } else {
        json!({"key": key, "operator": operator, "values": values})
    }
}

/// One container.
pub(crate) fn container(name: &str, cpu: &str, memory: &str) -> Value {
    let mut requests = Map::new();
    for (resource, amount) in [("cpu", cpu), ("memory", memory)] {
        if !amount.is_empty() {
            requests.insert(resource.to_owned(), amount.into());
        }
    }
    let image = "registry.example/app:1";
    if requests.is_empty() {
        return json!({"name": name, "image": image});
    }
    json!({"name": name, "image": image, "resources": {"requests": requests}})
}

/// The node class of all pools.
pub(crate) fn node_class() -> Value {
    json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "default"},
        "spec": {
            "amiFamily": "AL2023",
            "amiSelectorTerms": [{"alias": "al2023@latest"}],
            "role": "node-role",
            "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "test"}}],
            "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "test"}}],
        },
    })
}

/// A pool without disruption: cases are only about launches and placement.
pub(crate) fn node_pool(name: &str, requirements: &[Value]) -> Value {
    json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": name},
        "spec": {
            "template": {"spec": {
                "requirements": requirements,
                "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
                "expireAfter": "Never",
            }},
            "disruption": {
                "consolidationPolicy": "WhenEmpty",
                "consolidateAfter": "Never",
                "budgets": [{"nodes": "0"}],
            },
        },
    })
}

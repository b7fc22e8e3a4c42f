//! The admission plugin ExtendedResourceToleration, which all EKS clusters have.

use k8s_openapi::api::core::v1::{PodSpec, Toleration};
use std::collections::BTreeSet;

const EXISTS: &str = "Exists";
const NO_SCHEDULE: &str = "NoSchedule";
/// What the names of Kubernetes' own resources contain, if they have a domain.
const NATIVE_DOMAIN: &str = "kubernetes.io/";

/// Lets a pod tolerate the taint `NoSchedule` of each extended resource that it requests, as the plugin does when the
/// pod is created. The key of the taint is the name of the resource.
pub fn tolerate_extended_resources(spec: &mut PodSpec) {
    let containers = spec.containers.iter().chain(spec.init_containers.iter().flatten());
    let resources = containers.filter_map(|container| container.resources.as_ref());
    // A limit without a request is also the request.
    let lists = resources.flat_map(|resources| [&resources.requests, &resources.limits]).flatten();
    let names: BTreeSet<String> =
        lists.flat_map(|list| list.keys()).filter(|name| is_extended(name)).cloned().collect();
    for name in names {
        let tolerations = spec.tolerations.get_or_insert_default();
        if !tolerations.iter().any(|toleration| covers(toleration, &name)) {
            tolerations.push(Toleration {
                key: Some(name),
                operator: Some(EXISTS.to_owned()),
                effect: Some(NO_SCHEDULE.to_owned()),
                ..Toleration::default()
            });
        }
    }
}

fn is_extended(resource: &str) -> bool {
    resource.contains('/') && !resource.contains(NATIVE_DOMAIN) && !resource.starts_with("requests.")
}

/// Whether the toleration is one of all taints `NoSchedule` with this key.
fn covers(toleration: &Toleration, key: &str) -> bool {
    let is_any_or =
        |field: &Option<String>, wanted: &str| field.as_deref().is_none_or(|it| it.is_empty() || it == wanted);
    toleration.operator.as_deref() == Some(EXISTS)
        && is_any_or(&toleration.key, key)
        && is_any_or(&toleration.effect, NO_SCHEDULE)
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Key, operator and effect of the tolerations of a pod with this container and these tolerations.
    fn tolerated(container: &Value, own: &Value) -> Vec<[String; 3]> {
        let container = json!({"name": "app", "resources": container});
        let mut spec: PodSpec = serde_json::from_value(json!({"containers": [container], "tolerations": own})).unwrap();
        tolerate_extended_resources(&mut spec);
        let tolerations = spec.tolerations.into_iter().flatten();
        tolerations.map(|it| [it.key, it.operator, it.effect].map(Option::unwrap_or_default)).collect()
    }

    #[test]
    fn only_extended_resources_are_tolerated() {
        let device = ["example.com/device", "Exists", "NoSchedule"];
        assert_eq!(tolerated(&json!({"requests": {"example.com/device": "1", "cpu": "1"}}), &json!([])), [device]);
        assert_eq!(tolerated(&json!({"limits": {"example.com/device": "1"}}), &json!([])), [device]);
        let native = json!({"requests": {"cpu": "1", "hugepages-2Mi": "2Mi", "pod.alpha.kubernetes.io/x": "1"}});
        assert_eq!(tolerated(&native, &json!([])), [[""; 3]; 0]);
    }

    #[test]
    fn a_toleration_that_covers_the_resource_is_not_repeated() {
        let device = json!({"requests": {"example.com/device": "1"}});
        let (key, value) = ("example.com/device", "a");
        for (own, expected) in [
            (json!({"operator": "Exists"}), 1),
            (json!({"key": key, "operator": "Exists"}), 1),
            (json!({"key": key, "operator": "Exists", "effect": "NoExecute"}), 2),
            (json!({"key": key, "operator": "Equal", "value": value}), 2),
        ] {
            assert_eq!(tolerated(&device, &json!([own])).len(), expected, "{own}");
        }
    }
}

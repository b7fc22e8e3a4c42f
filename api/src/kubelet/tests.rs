use super::*;
use crate::AmiFamily;
use serde_json::json;

fn kubelet(value: Value) -> KubeletConfiguration {
    serde_json::from_value(value).unwrap()
}

/// Reason and path of each problem.
fn problems(family: AmiFamily, value: Value) -> Vec<(&'static str, String)> {
    let problems = kubelet(value).check(family);
    problems.into_iter().map(|problem| (problem.reason.as_str(), problem.error.path)).collect()
}

#[test]
fn unknown_fields_are_kept() {
    let value = json!({"maxPods": "vcpus * 8", "notYetInvented": {"deep": [1, null]}, "clusterDNS": "not a list"});
    assert_eq!(serde_json::to_value(kubelet(value.clone())).unwrap(), value);
}

#[test]
fn used_fields_are_parsed() {
    let settings = kubelet(json!({
        "maxPods": 40,
        "podsPerCore": 2,
        "clusterDNS": ["10.0.1.100"],
        "kubeReserved": {"cpu": "200m", "memory": "vcpus * 100", "pid": "-1"},
        "evictionHard": {"memory.available": "5%"},
        "cpuCFSQuota": false,
    }))
    .settings();
    assert_eq!((settings.max_pods, settings.pods_per_core, settings.cpu_cfs_quota), (Some(40), Some(2), Some(false)));
    assert_eq!(settings.kube_reserved, BTreeMap::from([("cpu".to_owned(), "200m".to_owned())]));
    assert_eq!(settings.eviction_hard.get("memory.available").map(String::as_str), Some("5%"));
    assert_eq!(settings.cluster_dns, ["10.0.1.100"]);
    assert_eq!(kubelet(json!({"maxPods": "vcpus * 8"})).settings().max_pods, None);
}

#[test]
fn valid_settings_are_accepted() {
    let good = json!({
        "maxPods": 110,
        "evictionHard": {"memory.available": "100Mi", "nodefs.available": "10%", "pid.available": "0.5%"},
        "evictionSoft": {"memory.available": "1Gi"},
        "evictionSoftGracePeriod": {"memory.available": "1m30s"},
        "systemReserved": {"cpu": "100m", "ephemeral-storage": "1Gi"},
        "imageGCHighThresholdPercent": 85,
        "imageGCLowThresholdPercent": 80,
        "featureGates": {"InPlacePodVerticalScaling": true},
        "shutdownGracePeriod": "45s",
        "memorySwap": {"swapBehavior": "LimitedSwap"},
        "maxOpenFiles": null,
    });
    assert_eq!(problems(AmiFamily::AL2023, good), []);
}

#[test]
fn invalid_settings_are_rejected() {
    let invalid = "InvalidKubeletConfiguration";
    let cases = [
        (json!({"maxPodz": 1}), "maxPodz"),
        (json!({"maxPods": -1}), "maxPods"),
        (json!({"maxPods": 1.5}), "maxPods"),
        (json!({"podsPerCore": "2"}), "podsPerCore"),
        (json!({"clusterDNS": "10.0.0.10"}), "clusterDNS"),
        (json!({"syncFrequency": "often"}), "syncFrequency"),
        (json!({"featureGates": {"A": "true"}}), "featureGates"),
        (json!({"registerWithTaints": []}), "registerWithTaints"),
        (json!({"evictionHard": {"memory": "1Gi"}}), "evictionHard[memory]"),
        (json!({"evictionHard": {"memory.available": "101%"}}), "evictionHard[memory.available]"),
        (json!({"evictionHard": {"memory.available": "-1Gi"}}), "evictionHard[memory.available]"),
        (json!({"evictionSoft": {"pid.available": "5"}}), "evictionSoft[pid.available]"),
        (json!({"evictionSoftGracePeriod": {"pid.available": "5m"}}), "evictionSoftGracePeriod[pid.available]"),
        (json!({"kubeReserved": {"nvidia.com/gpu": "1"}}), "kubeReserved[nvidia.com/gpu]"),
        (json!({"systemReserved": {"cpu": "-1"}}), "systemReserved[cpu]"),
        (json!({"imageGCHighThresholdPercent": 101}), "imageGCHighThresholdPercent"),
        (json!({"imageGCHighThresholdPercent": 80, "imageGCLowThresholdPercent": 80}), "imageGCHighThresholdPercent"),
    ];
    for (value, field) in cases {
        let expected = [(invalid, format!("spec.kubelet.{field}"))];
        assert_eq!(problems(AmiFamily::AL2023, value.clone()), expected, "{value}");
    }
}

#[test]
fn expressions_are_rejected_with_their_own_reason() {
    let disabled = "KubeletExpressionsDisabled";
    let value = json!({"maxPods": "max_pods + 1", "kubeReserved": {"cpu": "vcpus * 10"}});
    let expected =
        [(disabled, "spec.kubelet.kubeReserved[cpu]".to_owned()), (disabled, "spec.kubelet.maxPods".to_owned())];
    assert_eq!(problems(AmiFamily::AL2023, value), expected);
}

#[test]
fn fields_that_the_family_does_not_support_are_rejected() {
    let value = json!({"podsPerCore": 2, "podPidsLimit": 100, "clusterDNS": ["10.0.0.10", "10.0.0.11"]});
    let unsupported = |fields: &[&str]| -> Vec<(&'static str, String)> {
        fields.iter().map(|field| ("UnsupportedKubeletConfiguration", format!("spec.kubelet.{field}"))).collect()
    };
    for (family, fields) in [
        (AmiFamily::AL2023, &[][..]),
        (AmiFamily::Custom, &[]),
        (AmiFamily::AL2, &["podPidsLimit", "clusterDNS"]),
        (AmiFamily::Windows2022, &["podPidsLimit", "clusterDNS"]),
        (AmiFamily::Bottlerocket, &["podPidsLimit", "podsPerCore", "clusterDNS"]),
    ] {
        assert_eq!(problems(family, value.clone()), unsupported(fields), "{family}");
    }
}

#[test]
fn canonical_text_does_not_depend_on_the_order_of_keys() {
    let one = kubelet(json!({"b": {"d": 1, "c": [true, null]}, "a": "1 < 2 && 3"}));
    assert_eq!(one.canonical_json(), r#"{"a":"1 \u003c 2 \u0026\u0026 3","b":{"c":[true,null],"d":1}}"#);
    assert_eq!(kubelet(json!({})).canonical_json(), "null");
}

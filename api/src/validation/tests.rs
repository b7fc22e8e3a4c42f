use super::*;
use serde::de::DeserializeOwned;
use serde_json::json;

/// Cases that can also be tested with an API server; see the start of the file.
const VERDICTS: &str = include_str!("../../tests/fixtures/verdicts.yaml");

/// JSON merge patch (RFC 7396).
fn merge(target: &mut Value, change: &Value) {
    let Value::Object(change) = change else {
        *target = change.clone();
        return;
    };
    if !target.is_object() {
        *target = json!({});
    }
    let target = target.as_object_mut().unwrap();
    for (key, value) in change {
        if value.is_null() {
            target.remove(key);
        } else {
            merge(target.entry(key.clone()).or_insert(Value::Null), value);
        }
    }
}

fn typed<T: DeserializeOwned + Validate>(manifest: &Value) -> Vec<FieldError> {
    serde_json::from_value::<T>(manifest.clone()).unwrap().validate()
}

/// Validates a manifest like `plimsoll plan`: first the schema, then, if it can be deserialized, the rules.
fn verdict(kind: Kind, manifest: &Value) -> Vec<FieldError> {
    let mut errors = check_manifest(kind, manifest);
    if errors.is_empty() {
        errors = match kind {
            Kind::CapacityBuffer => typed::<CapacityBuffer>(manifest),
            Kind::CapacityQuota => typed::<CapacityQuota>(manifest),
            Kind::EC2NodeClass => typed::<EC2NodeClass>(manifest),
            Kind::NodeClaim => typed::<NodeClaim>(manifest),
            Kind::NodeOverlay => typed::<NodeOverlay>(manifest),
            Kind::NodePool => {
                let pool: NodePool = serde_json::from_value(manifest.clone()).unwrap();
                pool.validate().into_iter().chain(pool.unreadable_schedules()).collect()
            }
        };
    }
    errors
}

#[test]
fn every_case_has_the_expected_result() {
    let verdicts: Value = serde_saphyr::from_str(VERDICTS).unwrap();
    let mut count = 0;
    for kind in Kind::ALL {
        let name = kind.kind();
        for case in verdicts["cases"][name].as_array().unwrap() {
            let mut manifest = verdicts["bases"][name].clone();
            merge(&mut manifest, case.get("change").unwrap_or(&json!({})));
            let errors = verdict(kind, &manifest);
            let paths: Vec<&str> = errors.iter().map(|error| error.path.as_str()).collect();
            let expected: Vec<&str> =
                case["errors"].as_array().into_iter().flatten().map(|path| path.as_str().unwrap()).collect();
            assert_eq!(paths, expected, "{name}, {}: {errors:?}", case["name"]);
            count += 1;
        }
    }
    assert!(count > 150, "only {count} cases were found");
}

/// Objects created in code have not been validated by [`check_manifest`], but must satisfy the schema too.
#[test]
fn the_schema_is_checked_for_objects_without_a_manifest() {
    let mut pool = NodePool::new("default", crate::NodePoolSpec::default());
    pool.spec.weight = Some(0);
    pool.spec.template.spec.node_class_ref.kind = "EC2NodeClass".to_owned();
    pool.spec.template.spec.node_class_ref.group = "karpenter.k8s.aws".to_owned();
    let paths: Vec<String> = pool.validate().into_iter().map(|error| error.path).collect();
    assert_eq!(paths, ["spec.weight", "spec.template.spec.nodeClassRef.name"]);
    pool.metadata.name = None;
    assert_eq!(pool.validate()[0], FieldError::new("metadata.name", "is required"));
}

#[test]
fn an_error_names_the_field_and_the_expected_value() {
    let manifest = json!({
        "spec": {"template": {"spec": {
            "nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
            "requirements": [{"key": "a", "operator": "Is"}],
        }}},
    });
    let shown: Vec<String> = check_manifest(Kind::NodePool, &manifest).iter().map(ToString::to_string).collect();
    assert_eq!(
        shown,
        [concat!(
            r#"spec.template.spec.requirements[0].operator: "Is" is not one of "#,
            "In, NotIn, Exists, DoesNotExist, Gt, Lt, Gte, Lte"
        )]
    );
}

/// Controllers own the status, and the output of `kubectl get -o yaml` must be valid.
#[test]
fn a_wrong_quantity_or_duration_is_explained_without_its_pattern() {
    let manifest = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {
        "limits": {"cpu": "8GB"}, "disruption": {"consolidateAfter": "30sec"},
        "template": {"spec": {"requirements": [], "expireAfter": "1d", "terminationGracePeriod": "5min",
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"}}}}});
    let text = check_manifest(Kind::NodePool, &manifest).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for part in [
        "\"8GB\" is not a quantity: unknown suffix \"GB\"; did you mean G or Gi?",
        "\"30sec\" is neither a duration such as 30s, 10m or 1h30m nor Never",
        "\"1d\" is neither a duration such as 30s, 10m or 1h30m nor Never",
        "\"5min\" is not a duration such as 30s, 10m or 1h30m",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn a_text_that_does_not_match_is_explained_without_its_pattern() {
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {
        "disruption": {"consolidateAfter": "1m", "budgets": [{"nodes": "101%"}, {"nodes": "1", "schedule": "@dayly",
            "duration": "1h"}]},
        "template": {"spec": {"requirements": [{"key": "a b", "operator": "Exists"}],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"}}}}});
    let overlay = json!({"apiVersion": "karpenter.sh/v1alpha1", "kind": "NodeOverlay", "metadata": {"name": "a"},
        "spec": {"requirements": [], "price": "ten", "priceAdjustment": "5"}});
    let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "a"},
        "spec": {"blockDeviceMappings": [{"ebs": {"volumeSize": "100Ti"}}]}});
    let manifests = [(Kind::NodePool, pool), (Kind::NodeOverlay, overlay), (Kind::EC2NodeClass, class)];
    let errors = manifests.iter().flat_map(|(kind, manifest)| check_manifest(*kind, manifest));
    let text = errors.map(|error| error.to_string()).collect::<Vec<_>>().join("\n");
    for part in [
        "budgets[0].nodes: \"101%\" is neither a number of nodes nor a percentage up to 100%",
        "budgets[1].schedule: \"@dayly\" is not a schedule: five fields such as 0 9 * * 1-5, or a name such as @daily",
        "requirements[0].key: \"a b\" is not the key of a label",
        "spec.price: \"ten\" is not a price such as 0.25",
        "spec.priceAdjustment: \"5\" is neither a signed amount such as +0.1 nor a signed percentage such as -20%",
        "volumeSize: \"100Ti\" is not a volume size from 1Gi to 58Ti or from 1G to 64T",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn errors_say_what_to_write_instead() {
    let manifest = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {
        "weight": 1.5, "limits": {"cpu": 1.5},
        "disruption": {"consolidateAfter": "1m", "expireAfter": "720h", "consolidationPolicy": "WhenUnderutilized",
            "budgets": [{"nodes": 5, "schedule": "@daily", "duration": "1d"}]},
        "template": {"spec": {"requirements": [], "kubelet": {"maxPods": 20},
            "nodeClassRef": {"apiVersion": "karpenter.k8s.aws/v1beta1", "kind": "EC2NodeClass", "name": "a"}}}}});
    let text = check_manifest(Kind::NodePool, &manifest).iter().map(ToString::to_string).collect::<Vec<_>>().join("\n");
    for part in [
        "spec.weight: must be a whole number, not 1.5",
        "spec.limits[cpu]: must be a quantity such as 500m or 2Gi, not 1.5; quote it",
        "spec.disruption.budgets[0].nodes: must be a string, not 5; quote it",
        "spec.disruption.budgets[0].duration: \"1d\" is not a duration in hours and minutes, such as 8h, 30m or 1h30m",
        "spec.disruption.expireAfter: there is no such field; it is now spec.template.spec.expireAfter",
        "WhenEmptyOrUnderutilized, Balanced; it is now WhenEmptyOrUnderutilized",
        "spec.template.spec.kubelet: there is no such field; it is now spec.kubelet of the EC2NodeClass",
        "nodeClassRef.apiVersion: there is no such field; it is now spec.template.spec.nodeClassRef.group",
    ] {
        assert!(text.contains(part), "{part}\n{text}");
    }
}

#[test]
fn an_unreadable_schedule_does_not_make_a_pool_invalid() {
    let manifest = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "a"}, "spec": {
        "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"},
            {"nodes": "5", "schedule": "0 9 * * 7", "duration": "1h"}]},
        "template": {"spec": {"requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "a"}}}}});
    let pool: NodePool = serde_json::from_value(manifest).unwrap();
    assert_eq!(pool.validate(), []);
    let message = "\"7\" is no day of week, so that no node of the NodePool is disrupted";
    assert_eq!(pool.unreadable_schedules(), [FieldError::new("spec.disruption.budgets[1].schedule", message)]);
}

#[test]
fn the_status_is_not_validated() {
    let manifest = json!({
        "metadata": {"name": "n", "uid": "u", "managedFields": [{}]},
        "spec": {},
        "status": {"conditions": "none", "unknown": 1},
    });
    assert_eq!(check_manifest(Kind::CapacityBuffer, &manifest), []);
}

#[test]
fn every_pattern_compiles() {
    fn patterns(schema: &Value, patterns_found: &mut Vec<String>) {
        match schema {
            Value::Object(entries) => {
                patterns_found.extend(entries.get("pattern").and_then(Value::as_str).map(str::to_owned));
                entries.values().for_each(|value| patterns(value, patterns_found));
            }
            Value::Array(items) => items.iter().for_each(|value| patterns(value, patterns_found)),
            _ => {}
        }
    }
    let mut patterns_found = Vec::new();
    Kind::ALL.iter().for_each(|kind| patterns(&kind.schema(), &mut patterns_found));
    assert!(patterns_found.len() > 40, "only {} were found", patterns_found.len());
    for pattern in patterns_found {
        assert!(compile(&pattern).is_some(), "{pattern}");
    }
    assert!([&DNS_SUBDOMAIN, &QUANTITY, &LABEL_VALUE, &LABEL_KEY].iter().all(|pattern| pattern.is_some()));
}

#[test]
fn quantities_are_recognized() {
    for good in ["0", "1500m", "2Gi", "1e3", "1E-3", ".5", "5.", "+1k", "-1", "100n"] {
        assert!(is_quantity(good), "{good}");
    }
    for bad in ["", "ten", "1 Gi", "1KB", "1.2.3", "0x10", "Gi", "1gi"] {
        assert!(!is_quantity(bad), "{bad}");
    }
}

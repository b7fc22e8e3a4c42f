//! Manifests of real users, and what becomes of an object between reading and writing.
#![expect(clippy::unwrap_used, reason = "where reading fails, the test fails")]

use plimsoll_api::crd::Kind;
use plimsoll_api::{
    AmiFamily, CapacityBuffer, CapacityQuota, EC2NodeClass, NodeClaim, NodeOverlay, NodePool, Validate, validation,
};
use serde::{Serialize, de::DeserializeOwned};
use serde_json::{Value, json};
use std::fmt::Debug;

const SEEDS: [&str; 2] = [include_str!("fixtures/seed-000.yaml"), include_str!("fixtures/seed-001.yaml")];

fn documents(text: &str) -> Vec<Value> {
    serde_saphyr::from_multiple(text).unwrap()
}

fn read<T: DeserializeOwned>(manifest: &Value) -> T {
    serde_json::from_value(manifest.clone()).unwrap()
}

/// Reading and writing loses nothing and adds nothing.
fn assert_unchanged<T: DeserializeOwned + Serialize>(manifest: &Value) {
    assert_eq!(&serde_json::to_value(read::<T>(manifest)).unwrap(), manifest);
}

#[test]
fn users_manifests_are_valid_and_stay_as_they_are() {
    for seed in SEEDS {
        let [pool, class] = documents(seed).try_into().unwrap();
        assert_eq!(validation::check_manifest(Kind::NodePool, &pool), []);
        assert_eq!(validation::check_manifest(Kind::EC2NodeClass, &class), []);
        assert_eq!(read::<NodePool>(&pool).validate(), []);
        assert_eq!(read::<EC2NodeClass>(&class).validate(), []);
        assert_unchanged::<NodePool>(&pool);
        assert_unchanged::<EC2NodeClass>(&class);
    }
}

#[test]
fn the_newest_image_of_a_family_is_meant_where_none_is_selected() {
    let classes = SEEDS.map(|seed| read::<EC2NodeClass>(&documents(seed)[1]).spec);
    for spec in classes {
        assert_eq!(spec.effective_ami_family(), AmiFamily::AL2023);
        let terms = spec.effective_ami_selector_terms();
        assert_eq!(terms.iter().map(|term| term.alias.as_deref()).collect::<Vec<_>>(), [Some("al2023@latest")]);
    }
}

/// Fills in the defaults of `schema` as the API server does: from the outside in.
fn fill(schema: &Value, value: &mut Value) {
    for (name, property) in schema["properties"].as_object().into_iter().flatten() {
        let Some(fields) = value.as_object_mut() else { return };
        if let Some(default) = property.get("default") {
            fields.entry(name.clone()).or_insert_with(|| default.clone());
        }
        if let Some(field) = fields.get_mut(name) {
            fill(property, field);
        }
    }
    if let Some(items) = value.as_array_mut() {
        items.iter_mut().for_each(|item| fill(&schema["items"], item));
    }
}

/// An object as the API server stores it.
fn stored(kind: Kind, manifest: &Value) -> Value {
    let mut stored = manifest.clone();
    fill(&kind.schema(), &mut stored);
    stored
}

/// What is `used` of an object from a file is what is used of it once the API server has stored it.
fn assert_used_as_stored<T: DeserializeOwned, V: Debug + PartialEq>(
    kind: Kind,
    manifest: &Value,
    used: impl Fn(&T) -> V,
) {
    let (given, stored) = (read::<T>(manifest), read::<T>(&stored(kind, manifest)));
    assert_eq!(used(&given), used(&stored), "{manifest}");
}

fn object(version: &str, kind: &str, spec: &Value) -> Value {
    json!({"apiVersion": version, "kind": kind, "metadata": {"name": "n"}, "spec": spec})
}

#[test]
fn defaults_of_a_node_pool_are_those_of_the_schema() {
    let node_pool = |spec: &Value| object("karpenter.sh/v1", "NodePool", spec);
    let mut template = json!({"spec": {"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []}});
    let used = |pool: &NodePool| {
        let spec = &pool.spec;
        (spec.consolidate_after(), spec.consolidation_policy(), spec.budgets(), spec.template.spec.expire_after())
    };
    for disruption in [
        json!({"consolidateAfter": "Never"}),
        json!({"consolidateAfter": "5m", "budgets": [{"nodes": "10%", "reasons": ["Empty"]}]}),
        json!({"consolidateAfter": "5m", "consolidationPolicy": "WhenEmpty", "budgets": []}),
    ] {
        let pool = node_pool(&json!({"template": template, "disruption": disruption}));
        assert_used_as_stored(Kind::NodePool, &pool, used);
    }
    let pool = node_pool(&json!({"template": template}));
    assert_used_as_stored(Kind::NodePool, &pool, used);
    assert_used_as_stored(Kind::NodePool, &documents(SEEDS[0])[0], used);
    template["spec"]["expireAfter"] = json!("720h");
    let disruption = json!({
        "consolidateAfter": "0s",
        "consolidationPolicy": "WhenEmptyOrUnderutilized",
        "budgets": [{"nodes": "10%"}],
    });
    assert_eq!(stored(Kind::NodePool, &pool), node_pool(&json!({"template": template, "disruption": disruption})));
}

#[test]
fn defaults_of_a_node_class_are_those_of_the_schema() {
    let node_class = |more: &Value| {
        let mut spec = json!({"subnetSelectorTerms": [], "securityGroupSelectorTerms": []});
        spec.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        object("karpenter.k8s.aws/v1", "EC2NodeClass", &spec)
    };
    let used = |class: &EC2NodeClass| class.spec.metadata_options();
    let class = node_class(&json!({}));
    for class in [&class, &node_class(&json!({"metadataOptions": {"httpTokens": "optional"}}))] {
        assert_used_as_stored(Kind::EC2NodeClass, class, used);
    }
    let defaults = json!({
        "httpEndpoint": "enabled",
        "httpProtocolIPv6": "disabled",
        "httpPutResponseHopLimit": 1,
        "httpTokens": "required",
    });
    assert_eq!(stored(Kind::EC2NodeClass, &class), node_class(&json!({"metadataOptions": defaults})));
}

#[test]
fn defaults_of_other_kinds_are_those_of_the_schema() {
    let mut spec = json!({"nodeClassRef": {"group": "g", "kind": "K", "name": "n"}, "requirements": []});
    let claim = object("karpenter.sh/v1", "NodeClaim", &spec);
    assert_used_as_stored(Kind::NodeClaim, &claim, |claim: &NodeClaim| claim.spec.expire_after());
    spec["expireAfter"] = json!("720h");
    assert_eq!(stored(Kind::NodeClaim, &claim), object("karpenter.sh/v1", "NodeClaim", &spec));

    let buffer = |spec: &Value| object("autoscaling.x-k8s.io/v1beta1", "CapacityBuffer", spec);
    let used = |buffer: &CapacityBuffer| buffer.spec.strategy().to_owned();
    assert_used_as_stored(Kind::CapacityBuffer, &buffer(&json!({})), used);
    let defaults = json!({"provisioningStrategy": "buffer.x-k8s.io/active-capacity"});
    assert_eq!(stored(Kind::CapacityBuffer, &buffer(&json!({}))), buffer(&defaults));

    let overlay = object("karpenter.sh/v1alpha1", "NodeOverlay", &json!({"requirements": []}));
    assert_eq!(stored(Kind::NodeOverlay, &overlay), overlay, "it has no defaults");
    let limits = json!({"limits": {"resources": {}}});
    let quota = object("autoscaling.x-k8s.io/v1beta1", "CapacityQuota", &limits);
    assert_eq!(stored(Kind::CapacityQuota, &quota), quota, "it has no defaults");
}

/// Every field that there is, with names as Kubernetes spells them.
#[test]
fn every_field_of_a_node_class_survives() {
    assert_unchanged::<EC2NodeClass>(&json!({
        "apiVersion": "karpenter.k8s.aws/v1",
        "kind": "EC2NodeClass",
        "metadata": {"name": "all"},
        "spec": {
            "subnetSelectorTerms": [{"id": "subnet-1"}, {"tags": {"a": "b"}}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}, {"name": "nodes"}],
            "capacityReservationSelectorTerms": [{"ownerID": "123456789012", "instanceMatchCriteria": "targeted"}],
            "placementGroupSelector": {"id": "pg-1"},
            "associatePublicIPAddress": true,
            "ipPrefixCount": 1,
            "amiSelectorTerms": [{"alias": "a@b"}, {"ssmParameter": "p"}, {"name": "n", "owner": "self"}, {"id": "ami-1"}],
            "amiFamily": "Bottlerocket",
            "userData": "text",
            "role": "r",
            "instanceProfile": "p",
            "tags": {"a": "b"},
            "kubelet": {"maxPods": "vcpus * 8", "notKnown": {"deep": [1, 2.5, null]}},
            "blockDeviceMappings": [{
                "deviceName": "d",
                "rootVolume": true,
                "ebs": {
                    "deleteOnTermination": false, "encrypted": true, "iops": 1, "kmsKeyID": "k", "snapshotID": "s",
                    "throughput": 1, "volumeInitializationRate": 100, "volumeSize": "1Ti", "volumeType": "io2",
                },
            }],
            "instanceStorePolicy": "RAID0",
            "networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 1, "interfaceType": "efa-only"}],
            "detailedMonitoring": true,
            "metadataOptions": {"httpProtocolIPv6": "enabled", "httpPutResponseHopLimit": 2},
            "connectionTracking": {"tcpEstablishedTimeout": 60, "udpStreamTimeout": 60, "udpTimeout": 30},
            "context": "c",
            "cpuOptions": {"nestedVirtualization": "disabled"},
        },
        "status": {
            "subnets": [{"id": "subnet-1", "zone": "a", "zoneID": "use1-az1"}],
            "securityGroups": [{"id": "sg-1", "name": "n"}],
            "capacityReservations": [{
                "id": "cr-1", "availabilityZone": "a", "endTime": "2026-01-31T12:00:00Z", "instanceMatchCriteria": "open",
                "instanceType": "t", "ownerID": "123456789012", "reservationType": "capacity-block",
                "interruptible": false, "state": "expiring",
            }],
            "amis": [{
                "id": "ami-1", "name": "n", "deprecated": true,
                "requirements": [{"key": "kubernetes.io/arch", "operator": "In", "values": ["arm64"]}],
            }],
            "instanceProfile": "p",
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "Ready", "message": "", "observedGeneration": 1,
                "lastTransitionTime": "2026-01-31T12:00:00Z",
            }],
        },
    }));
}

#[test]
fn every_field_of_the_others_survives() {
    let requirements =
        json!([{"key": "k", "operator": "In", "values": ["v"], "minValues": 1}, {"key": "k", "operator": "Exists"}]);
    let class_ref = json!({"group": "g", "kind": "K", "name": "n"});
    let taints = json!([{"key": "k", "value": "v", "effect": "NoExecute", "timeAdded": "2026-01-31T12:00:00Z"}]);
    let conditions = json!([{
        "type": "Ready", "status": "Unknown", "reason": "R", "message": "m", "lastTransitionTime": "2026-01-31T12:00:00Z",
    }]);
    assert_unchanged::<NodePool>(&json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodePool",
        "metadata": {"name": "n"},
        "spec": {
            "template": {
                "metadata": {"labels": {"a": "b"}, "annotations": {"c": "d"}},
                "spec": {
                    "taints": taints, "startupTaints": taints, "requirements": requirements, "nodeClassRef": class_ref,
                    "terminationGracePeriod": "90m", "expireAfter": "Never",
                },
            },
            "disruption": {
                "consolidateAfter": "30s",
                "consolidationPolicy": "Balanced",
                "budgets": [{"nodes": "1", "reasons": ["Drifted"], "schedule": "@daily", "duration": "1h"}],
            },
            "limits": {"cpu": "1", "nodes": "2"},
            "weight": 1,
            "replicas": 2,
        },
        "status": {
            "resources": {"cpu": "0"}, "nodes": 0, "nodeClassObservedGeneration": 1, "conditions": conditions,
        },
    }));
    assert_unchanged::<NodeClaim>(&json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "n"},
        "spec": {
            "taints": taints, "startupTaints": taints, "requirements": requirements, "nodeClassRef": class_ref,
            "resources": {"requests": {"cpu": "1"}}, "terminationGracePeriod": "90m", "expireAfter": "720h",
        },
        "status": {
            "nodeName": "n", "providerID": "aws:///a/i-1", "imageID": "ami-1", "capacity": {"cpu": "2"},
            "allocatable": {"cpu": "1"}, "lastPodEventTime": "2026-01-31T12:00:00Z", "conditions": conditions,
        },
    }));
    assert_unchanged::<NodeOverlay>(&json!({
        "apiVersion": "karpenter.sh/v1alpha1",
        "kind": "NodeOverlay",
        "metadata": {"name": "n"},
        "spec": {
            "requirements": requirements, "priceAdjustment": "+1", "price": "1", "capacity": {"a/b": "1"}, "weight": 1,
        },
        "status": {"conditions": conditions},
    }));
    assert_unchanged::<CapacityBuffer>(&json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityBuffer",
        "metadata": {"name": "n", "namespace": "default"},
        "spec": {
            "provisioningStrategy": "s", "podTemplateRef": {"name": "t"}, "replicas": 1, "percentage": 2, "limits": {},
            "scalableRef": {"apiGroup": "apps", "kind": "Deployment", "name": "d"},
        },
        "status": {
            "podTemplateRef": {"name": "t"}, "replicas": 1, "podTemplateGeneration": 2, "provisioningStrategy": "s",
            "conditions": conditions,
        },
    }));
    assert_unchanged::<CapacityQuota>(&json!({
        "apiVersion": "autoscaling.x-k8s.io/v1beta1",
        "kind": "CapacityQuota",
        "metadata": {"name": "n"},
        "spec": {
            "selector": {
                "matchLabels": {"team": "a"},
                "matchExpressions": [{"key": "k", "operator": "In", "values": ["v"]}],
            },
            "limits": {"resources": {"cpu": "10", "nodes": "2"}},
        },
        "status": {"used": {"resources": {"cpu": "4"}}, "conditions": conditions, "observedGeneration": 1},
    }));
}

/// As YAML has them: keys without a value are null, and amounts are numbers as often as texts.
#[test]
fn loose_yaml_is_read() {
    let pool: NodePool = serde_saphyr::from_str(
        "{apiVersion: karpenter.sh/v1, kind: NodePool, metadata: {name: n}, spec: {limits: {cpu: 10}, disruption: , template: \
         {metadata: , spec: {taints: , requirements: [{key: a, operator: Exists, values: }], \
         nodeClassRef: {group: g, kind: K, name: n}}}}}",
    )
    .unwrap();
    assert_eq!(pool.spec.limits["cpu"].0, "10");
    assert!(pool.spec.template.spec.taints.is_empty());
    assert_eq!(pool.validate(), []);
}

/// A NodeClaim that another controller wrote may have conditions without reason and message.
#[test]
fn conditions_without_reason_are_read() {
    let claim: NodeClaim = read(&json!({
        "apiVersion": "karpenter.sh/v1",
        "kind": "NodeClaim",
        "metadata": {"name": "n"},
        "spec": {"requirements": [], "nodeClassRef": {"group": "g", "kind": "K", "name": "n"}},
        "status": {"conditions": [{"type": "Launched", "status": "True", "lastTransitionTime": "2026-01-31T12:00:00Z"}]},
    }));
    assert_eq!(claim.status.unwrap().conditions[0].reason, "");
}

//! The expected hashes were computed by Karpenter 1.14 and its AWS provider for the same objects.

use super::*;
use crate::NodePoolSpec;
use serde_json::{Value, json};

/// The base object of the AWS provider, with `change` merged into it; `null` removes a field.
fn class(change: &Value) -> EC2NodeClassSpec {
    let mut spec = json!({
        "subnetSelectorTerms": [{"id": "subnet-1"}],
        "securityGroupSelectorTerms": [{"id": "sg-1"}],
        "role": "role-1",
        "tags": {"keyTag-1": "valueTag-1", "keyTag-2": "valueTag-2"},
        "context": "fake-context",
        "detailedMonitoring": false,
        "associatePublicIPAddress": false,
        "metadataOptions": {
            "httpEndpoint": "disabled",
            "httpProtocolIPv6": "disabled",
            "httpPutResponseHopLimit": 1,
            "httpTokens": "optional",
        },
        "blockDeviceMappings": [
            {
                "deviceName": "map-device-1",
                "ebs": {
                    "deleteOnTermination": false,
                    "encrypted": false,
                    "iops": 0,
                    "kmsKeyID": "fakeKMSKeyID",
                    "snapshotID": "fakeSnapshot",
                    "throughput": 0,
                    "volumeSize": "2G",
                    "volumeType": "standard",
                },
            },
            {"deviceName": "map-device-2"},
        ],
        "userData": "userdata-test-1",
    });
    merge(&mut spec, change);
    serde_json::from_value(spec).unwrap()
}

fn merge(target: &mut Value, change: &Value) {
    match (target, change) {
        (Value::Object(target), Value::Object(change)) => {
            for (key, value) in change {
                merge(target.entry(key.clone()).or_insert(Value::Null), value);
            }
        }
        (target, change) => *target = change.clone(),
    }
}

fn hash(spec: &EC2NodeClassSpec) -> String {
    ec2_node_class(spec, "test-ca-bundle")
}

#[test]
fn node_class_hashes_match_the_aws_provider() {
    let mut big_volume = class(&json!({}));
    big_volume.block_device_mappings[0].ebs.as_mut().unwrap().volume_size =
        Some(k8s_openapi::apimachinery::pkg::api::resource::Quantity("10G".to_owned()));
    let profile = json!({"role": null, "instanceProfile": "test-instance-profile"});
    let cases = [
        (class(&json!({})), "11148166120438674859"),
        (class(&json!({"userData": "userdata-test-2"})), "11774429238106843388"),
        (class(&json!({"tags": {"keyTag-test-3": "valueTag-test-3"}})), "9327338697296909506"),
        (class(&json!({"context": "context-2"})), "2279761750428738028"),
        (class(&json!({"detailedMonitoring": true})), "1936848126751988570"),
        (class(&json!({"instanceStorePolicy": "RAID0"})), "16697988646989909967"),
        (class(&json!({"associatePublicIPAddress": true})), "16141801171825097963"),
        (class(&json!({"metadataOptions": {"httpEndpoint": "enabled"}})), "14969742554812447671"),
        (class(&json!({"metadataOptions": {"httpProtocolIPv6": "enabled"}})), "1581716956216772561"),
        (class(&json!({"metadataOptions": {"httpPutResponseHopLimit": 10}})), "14046948658064232764"),
        (class(&json!({"metadataOptions": {"httpTokens": "required"}})), "1346719102507290084"),
        (big_volume, "10372902467896351912"),
        (class(&profile), "10323991363677716244"),
        (class(&json!({"connectionTracking": {"tcpEstablishedTimeout": 300}})), "1619669030802245540"),
        (class(&json!({"cpuOptions": {"nestedVirtualization": "enabled"}})), "6157846767212910604"),
    ];
    for (spec, expected) in cases {
        assert_eq!(hash(&spec), expected, "{spec:?}");
    }
}

/// Kubernetes parses a quantity and prints it again, so the provider never sees the text of the manifest.
#[test]
fn volume_sizes_have_the_hash_of_their_canonical_form() {
    let of = |size: &str| {
        let mut class = class(&json!({}));
        let quantity = k8s_openapi::apimachinery::pkg::api::resource::Quantity(size.to_owned());
        class.block_device_mappings[0].ebs.as_mut().unwrap().volume_size = Some(quantity);
        hash(&class)
    };
    for (written, canonical) in [("1024Gi", "1Ti"), ("3072Gi", "3Ti"), ("2000G", "2T")] {
        assert_eq!(of(written), of(canonical), "{written}");
    }
    let others = ["1000Gi", "1024G", "1Ti", "1T", "1500G", "1536Gi"].map(of);
    assert_eq!(others.iter().collect::<std::collections::BTreeSet<_>>().len(), others.len());
}

#[test]
fn only_launch_settings_affect_the_node_class_hash() {
    let base = hash(&class(&json!({})));
    for same in [
        json!({"subnetSelectorTerms": [{"id": "subnet-2"}]}),
        json!({"securityGroupSelectorTerms": [{"id": "sg-2"}]}),
        json!({"capacityReservationSelectorTerms": [{"id": "cr-2"}]}),
        json!({"amiSelectorTerms": [{"id": "ami-2"}]}),
        json!({"amiFamily": "Custom"}),
        json!({"ipPrefixCount": 2}),
        json!({"kubelet": {}}),
    ] {
        assert_eq!(hash(&class(&same)), base, "{same}");
    }
    for other in [
        json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}),
        json!({"kubelet": {"maxPods": 10}}),
        json!({"placementGroupSelector": {"name": "group"}}),
        json!({"networkInterfaces": [{"networkCardIndex": 0, "deviceIndex": 0, "interfaceType": "interface"}]}),
        json!({"userData": ""}),
    ] {
        assert_ne!(hash(&class(&other)), base, "{other}");
    }
    assert_ne!(ec2_node_class(&class(&json!({})), ""), base);
    let named = class(&json!({"amiFamily": "AL2023"}));
    assert_eq!(hash(&named), hash(&class(&json!({"amiSelectorTerms": [{"alias": "al2023@latest"}]}))));
}

#[test]
fn the_order_of_lists_does_not_affect_the_hash() {
    let base = class(&json!({"kubelet": {"maxPods": 10, "podsPerCore": 2}}));
    let mut turned = class(&json!({"kubelet": {"podsPerCore": 2, "maxPods": 10}}));
    turned.block_device_mappings.reverse();
    assert_eq!(hash(&turned), hash(&base));
}

fn template(value: Value) -> NodeClaimTemplate {
    serde_json::from_value(value).unwrap()
}

#[test]
fn node_pool_hashes_match_karpenter() {
    let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let cases = [
        (
            json!({"spec": {"requirements": [], "nodeClassRef": reference, "expireAfter": "720h"}}),
            "6821555240594823858",
        ),
        (
            json!({
                "metadata": {"labels": {"eks-team": "my-team"}},
                "spec": {"requirements": [], "nodeClassRef": reference, "expireAfter": "Never"},
            }),
            "15113733483770374752",
        ),
        (
            json!({
                "metadata": {"labels": {"a": "b", "c": ""}, "annotations": {"x": "y"}},
                "spec": {
                    "taints": [
                        {"key": "k", "value": "v", "effect": "NoSchedule"},
                        {"key": "k2", "effect": "NoExecute"},
                    ],
                    "startupTaints": [{"key": "s", "effect": "NoSchedule"}],
                    "requirements": [{"key": "kubernetes.io/os", "operator": "In", "values": ["linux"]}],
                    "nodeClassRef": {"group": "g", "kind": "K", "name": "n"},
                    "terminationGracePeriod": "1h30m",
                    "expireAfter": "0s",
                },
            }),
            "12657965890891629505",
        ),
        (
            json!({"spec": {"requirements": [], "nodeClassRef": reference, "terminationGracePeriod": "0s"}}),
            "17858683486241353230",
        ),
    ];
    for (value, expected) in cases {
        assert_eq!(node_pool(&template(value.clone())), expected, "{value}");
    }
}

#[test]
fn the_notation_of_a_duration_does_not_affect_the_hash() {
    let of = |text: &str| {
        let mut spec = NodePoolSpec::default();
        spec.template.spec.expire_after = Some(text.parse().unwrap());
        node_pool(&spec.template)
    };
    assert_eq!(of("720h"), of("720h0m0s"));
    assert_ne!(of("720h"), of("721h"));
}

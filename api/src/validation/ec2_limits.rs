//! What EC2 refuses although the schema allows it. Launches would fail one after the other, so that the status of the
//! node class reports it instead. Only rules that EC2 documents and does not relax are checked: a limit that grows,
//! such as the largest volume, is left to EC2.

use super::FieldError;
use crate::EC2NodeClassSpec;
use crate::ec2_node_class::{BlockDevice, BlockDeviceMapping, VolumeType};
use plimsoll_model::quantity::Quantity;
use std::collections::BTreeMap;

/// Tags per resource: <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/Using_Tags.html#tag-restrictions>.
const TAGS_MAX: usize = 50;
/// Characters of a tag's key, same source.
const TAG_KEY_MAX: usize = 128;
/// Characters of a tag's value, same source.
const TAG_VALUE_MAX: usize = 256;
/// Prefix of tags that only AWS sets, in any case; same source.
const AWS_PREFIX: &str = "aws:";
/// Tags of an instance that the autoscaler adds: cluster (2), pool, node class, owner, claim (2), launch group,
/// attempt.
const ADDED_TAGS: usize = 9;
/// The tag that the autoscaler adds after the launch if the class does not set it.
const NAME_TAG: &str = "Name";

/// Fields and combinations of fields that EC2 refuses in any launch of the class.
pub(super) fn check(spec: &EC2NodeClassSpec) -> Vec<FieldError> {
    let mut errors = Vec::new();
    tags(&spec.tags, &mut errors);
    devices(&spec.block_device_mappings, &mut errors);
    // https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_InstanceNetworkInterfaceSpecification.html
    if spec.associate_public_ip_address == Some(true) && spec.network_interfaces.len() > 1 {
        let message = "EC2 gives no public address to an instance with several spec.networkInterfaces";
        errors.push(FieldError::new("spec.associatePublicIPAddress", message));
    }
    errors
}

fn tags(tags: &BTreeMap<String, String>, errors: &mut Vec<FieldError>) {
    let added = ADDED_TAGS + usize::from(!tags.contains_key(NAME_TAG));
    if tags.len() + added > TAGS_MAX {
        let message = format!(
            "{} tags and {added} of the autoscaler are too many: an EC2 resource has at most {TAGS_MAX}",
            tags.len()
        );
        errors.push(FieldError::new("spec.tags", message));
    }
    for (key, value) in tags {
        let message = if key.chars().count() > TAG_KEY_MAX {
            format!("the key has more than {TAG_KEY_MAX} characters")
        } else if value.chars().count() > TAG_VALUE_MAX {
            format!("the value has more than {TAG_VALUE_MAX} characters")
        } else if key.get(..AWS_PREFIX.len()).is_some_and(|start| start.eq_ignore_ascii_case(AWS_PREFIX)) {
            format!("tags that begin with {AWS_PREFIX} are reserved for AWS")
        } else {
            continue;
        };
        errors.push(FieldError::new(format!("spec.tags[{key}]"), message));
    }
}

fn devices(mappings: &[BlockDeviceMapping], errors: &mut Vec<FieldError>) {
    for (position, mapping) in mappings.iter().enumerate() {
        let path = format!("spec.blockDeviceMappings[{position}]");
        match mapping.device_name.as_deref().filter(|name| !name.is_empty()) {
            None => errors.push(FieldError::new(format!("{path}.deviceName"), "is needed")),
            Some(name) if mappings.iter().take(position).any(|before| before.device_name.as_deref() == Some(name)) => {
                errors.push(FieldError::new(format!("{path}.deviceName"), format!("{name} is mapped twice")));
            }
            Some(_) => {}
        }
        match &mapping.ebs {
            Some(ebs) => volume(ebs, &format!("{path}.ebs"), errors),
            None => errors
                .push(FieldError::new(format!("{path}.ebs"), "is needed: a mapping without a volume maps nothing")),
        }
    }
}

/// Rules of <https://docs.aws.amazon.com/AWSEC2/latest/APIReference/API_EbsBlockDevice.html>. A volume without a type
/// is of the image's type, which is not known here.
fn volume(ebs: &BlockDevice, path: &str, errors: &mut Vec<FieldError>) {
    let mut add = |field: &str, message: String| errors.push(FieldError::new(format!("{path}.{field}"), message));
    // 0 stands for "not set", as in Karpenter.
    let figure = |value: Option<i64>| value.filter(|value| *value != 0);
    for (field, value) in [("iops", ebs.iops), ("throughput", ebs.throughput)] {
        if value.is_some_and(|value| value < 0 || i32::try_from(value).is_err()) {
            add(field, format!("must be from 0 to {}", i32::MAX));
        }
    }
    if ebs.kms_key_id.is_some() && ebs.encrypted != Some(true) {
        add("encrypted", "must be true with a kmsKeyID".to_owned());
    }
    let Some(kind) = ebs.volume_type else { return };
    let limits = Limits::of(kind);
    match (figure(ebs.iops), limits.min_iops) {
        (Some(_), None) => add("iops", format!("volumes of type {} have no such setting", kind.as_str())),
        (Some(iops), Some(min)) if (0..min).contains(&iops) => {
            add("iops", format!("volumes of type {} have at least {min}", kind.as_str()));
        }
        (None, Some(_)) if kind != VolumeType::Gp3 => {
            add("iops", format!("is needed for volumes of type {}", kind.as_str()));
        }
        _ => {}
    }
    match (figure(ebs.throughput), limits.min_throughput) {
        (Some(_), None) => add("throughput", format!("volumes of type {} have no such setting", kind.as_str())),
        (Some(throughput), Some(min)) if (0..min).contains(&throughput) => {
            add("throughput", format!("volumes of type {} have at least {min}", kind.as_str()));
        }
        _ => {}
    }
    let size = ebs.volume_size.as_ref().and_then(|size| Quantity::parse(&size.0).ok()?.gib_ceil());
    if size.is_some_and(|size| size < limits.min_gib) {
        add("volumeSize", format!("volumes of type {} have at least {} GiB", kind.as_str(), limits.min_gib));
    }
}

/// What a volume type needs; `None` if it has no such setting.
struct Limits {
    min_gib: u64,
    min_iops: Option<i64>,
    min_throughput: Option<i64>,
}

impl Limits {
    fn of(kind: VolumeType) -> Self {
        let (min_gib, min_iops, min_throughput) = match kind {
            VolumeType::Gp3 => (1, Some(3_000), Some(125)),
            VolumeType::Io1 | VolumeType::Io2 => (4, Some(100), None),
            VolumeType::Gp2 | VolumeType::Standard => (1, None, None),
            VolumeType::Sc1 | VolumeType::St1 => (125, None, None),
        };
        Self { min_gib, min_iops, min_throughput }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    /// Paths of the errors of a class with these fields.
    fn paths(fields: &Value) -> Vec<String> {
        let mut spec = json!({"subnetSelectorTerms": [], "securityGroupSelectorTerms": []});
        spec.as_object_mut().unwrap().extend(fields.as_object().unwrap().clone());
        let spec: EC2NodeClassSpec = serde_json::from_value(spec).unwrap();
        check(&spec).into_iter().map(|error| error.path.trim_start_matches("spec.").to_owned()).collect()
    }

    /// Errors of a volume, without the path of its mapping.
    fn volume_paths(ebs: &Value) -> Vec<String> {
        let errors = paths(&json!({"blockDeviceMappings": [{"deviceName": "/dev/xvda", "ebs": ebs}]}));
        errors.into_iter().map(|path| path.replace("blockDeviceMappings[0].ebs.", "")).collect()
    }

    fn many_tags(count: usize) -> Value {
        let tags = (0..count).map(|number| (format!("k{number}"), json!("")));
        json!({"tags": tags.collect::<serde_json::Map<_, _>>()})
    }

    #[test]
    fn tags_of_the_class_and_of_the_autoscaler_are_at_most_fifty() {
        assert!(paths(&many_tags(40)).is_empty());
        assert_eq!(paths(&many_tags(41)), ["tags"]);
        let mut named = many_tags(40);
        named["tags"]["Name"] = json!("own");
        assert!(paths(&named).is_empty(), "the name is not added to a class that sets it");
    }

    #[test]
    fn tags_have_limits_of_their_own() {
        let long = "x".repeat(129);
        assert_eq!(paths(&json!({"tags": {long.clone(): ""}})), [format!("tags[{long}]")]);
        assert_eq!(paths(&json!({"tags": {"k": "é".repeat(257)}})), ["tags[k]"]);
        assert!(paths(&json!({"tags": {"k": "é".repeat(256)}})).is_empty(), "characters count, not bytes");
        assert_eq!(paths(&json!({"tags": {"AWS:a": ""}})), ["tags[AWS:a]"]);
    }

    #[test]
    fn each_mapping_needs_a_volume_and_a_device_of_its_own() {
        let volume = json!({"volumeSize": "1Gi"});
        let mappings = json!([
            {"deviceName": "/dev/xvda", "ebs": volume}, {"deviceName": "/dev/xvda", "ebs": volume},
            {"ebs": volume}, {"deviceName": "", "ebs": volume}, {"deviceName": "/dev/xvdb"},
        ]);
        let expected = ["[1].deviceName", "[2].deviceName", "[3].deviceName", "[4].ebs"];
        assert_eq!(
            paths(&json!({"blockDeviceMappings": mappings})),
            expected.map(|it| format!("blockDeviceMappings{it}"))
        );
    }

    #[test]
    fn volumes_have_only_the_settings_of_their_type() {
        let none: [&str; 0] = [];
        for (ebs, expected) in [
            (json!({"volumeSize": "1Gi", "volumeType": "gp3", "iops": 3000, "throughput": 125}), &none[..]),
            (
                json!({"volumeSize": "1Gi", "volumeType": "gp3", "iops": 2999, "throughput": 124}),
                &["iops", "throughput"],
            ),
            (json!({"volumeSize": "1Gi", "volumeType": "gp2", "iops": 0, "throughput": 0}), &[]),
            (json!({"volumeSize": "1Gi", "volumeType": "gp2", "iops": 100, "throughput": 1}), &["iops", "throughput"]),
            (json!({"volumeSize": "4Gi", "volumeType": "io2", "iops": 100}), &[]),
            (json!({"volumeSize": "4Gi", "volumeType": "io2"}), &["iops"]),
            (json!({"volumeSize": "3Gi", "volumeType": "io1", "iops": 99}), &["iops", "volumeSize"]),
            (json!({"volumeSize": "124Gi", "volumeType": "st1"}), &["volumeSize"]),
            (json!({"volumeSize": "1Gi", "iops": 5, "throughput": 5}), &[]),
            (json!({"volumeSize": "1Gi", "iops": -1, "throughput": 2_147_483_648_i64}), &["iops", "throughput"]),
            (json!({"volumeSize": "1Gi", "kmsKeyID": "k"}), &["encrypted"]),
            (json!({"volumeSize": "1Gi", "kmsKeyID": "k", "encrypted": false}), &["encrypted"]),
            (json!({"volumeSize": "1Gi", "kmsKeyID": "k", "encrypted": true}), &[]),
        ] {
            assert_eq!(volume_paths(&ebs), expected, "{ebs}");
        }
    }

    #[test]
    fn a_public_address_needs_a_single_interface() {
        let interface =
            |card: i32, kind: &str| json!({"networkCardIndex": card, "deviceIndex": 0, "interfaceType": kind});
        let one = json!([interface(0, "interface")]);
        let two = json!([interface(0, "interface"), interface(1, "efa-only")]);
        let public = |interfaces: &Value, on: bool| {
            paths(&json!({"associatePublicIPAddress": on, "networkInterfaces": interfaces}))
        };
        assert_eq!(public(&two, true), ["associatePublicIPAddress"]);
        assert!(public(&one, true).is_empty() && public(&two, false).is_empty());
    }
}

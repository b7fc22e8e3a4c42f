//! Block devices of an instance.

use crate::ports::BlockDevice;
use plimsoll_api::ec2_node_class::BlockDeviceMapping;
use plimsoll_api::{AmiFamily, EC2NodeClassSpec};
use plimsoll_model::quantity::Quantity;

/// The class's own devices, or else the defaults of the AMI family.
pub(super) fn block_devices(spec: &EC2NodeClassSpec, family: AmiFamily) -> Vec<BlockDevice> {
    if spec.block_device_mappings.is_empty() {
        return family.default_volumes().iter().map(|(device, size)| default(device, *size)).collect();
    }
    spec.block_device_mappings.iter().map(device).collect()
}

fn default(device: &str, size_gib: u64) -> BlockDevice {
    BlockDevice {
        size_gib: Some(size_gib),
        volume_type: Some("gp3".to_owned()),
        encrypted: Some(true),
        ..empty(device)
    }
}

fn empty(device: &str) -> BlockDevice {
    BlockDevice { device_name: device.to_owned(), ..BlockDevice::default() }
}

/// A mapping may have no volume; then the image's own volume is used.
fn device(mapping: &BlockDeviceMapping) -> BlockDevice {
    let mut device = empty(mapping.device_name.as_deref().unwrap_or_default());
    let Some(ebs) = &mapping.ebs else { return device };
    // EC2 does not accept 0 for "not set".
    let figure = |value: Option<i64>| value.and_then(|value| u64::try_from(value).ok()).filter(|value| *value > 0);
    device.size_gib = ebs.volume_size.as_ref().and_then(|size| Quantity::parse(&size.0).ok()?.gib_ceil());
    device.volume_type = ebs.volume_type.map(|kind| kind.as_str().to_owned());
    device.iops = figure(ebs.iops);
    device.throughput = figure(ebs.throughput);
    device.encrypted = ebs.encrypted;
    device.kms_key_id.clone_from(&ebs.kms_key_id);
    device.snapshot_id.clone_from(&ebs.snapshot_id);
    device.initialization_rate = figure(ebs.volume_initialization_rate.map(i64::from));
    device.delete_on_termination = ebs.delete_on_termination;
    device
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn class_mappings_replace_family_defaults() {
        let mapping = json!([{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100Gi", "volumeType": "io2", "iops": 0,
            "throughput": 250, "encrypted": false, "kmsKeyID": "key", "deleteOnTermination": true}}]);
        let spec = EC2NodeClassSpec {
            block_device_mappings: serde_json::from_value(mapping).unwrap(),
            ..EC2NodeClassSpec::default()
        };
        let expected = BlockDevice {
            size_gib: Some(100),
            volume_type: Some("io2".to_owned()),
            throughput: Some(250),
            encrypted: Some(false),
            kms_key_id: Some("key".to_owned()),
            delete_on_termination: Some(true),
            ..empty("/dev/xvda")
        };
        assert_eq!(block_devices(&spec, AmiFamily::Bottlerocket), [expected]);
        let sizes = |family| {
            let devices = block_devices(&EC2NodeClassSpec::default(), family);
            devices.into_iter().map(|it| (it.device_name, it.size_gib.unwrap_or(0))).collect::<Vec<_>>()
        };
        assert_eq!(sizes(AmiFamily::Bottlerocket), [("/dev/xvda".to_owned(), 4), ("/dev/xvdb".to_owned(), 20)]);
        assert_eq!(sizes(AmiFamily::Custom), []);
        let whole = |device: &str, size_gib| BlockDevice {
            size_gib: Some(size_gib),
            volume_type: Some("gp3".to_owned()),
            encrypted: Some(true),
            ..empty(device)
        };
        let default = block_devices(&EC2NodeClassSpec::default(), AmiFamily::Bottlerocket);
        assert_eq!(default, [whole("/dev/xvda", 4), whole("/dev/xvdb", 20)], "as in Karpenter");
    }

    #[test]
    fn figures_of_a_mapping_are_kept_and_a_mapping_may_have_no_volume() {
        let mapping = json!([{"deviceName": "/dev/xvda", "ebs": {"volumeSize": "100.5Gi", "iops": 3000,
            "snapshotID": "snap-1", "volumeInitializationRate": 200}}, {"deviceName": "/dev/xvdb"}]);
        let spec = EC2NodeClassSpec {
            block_device_mappings: serde_json::from_value(mapping).unwrap(),
            ..EC2NodeClassSpec::default()
        };
        let expected = BlockDevice {
            size_gib: Some(101),
            iops: Some(3000),
            snapshot_id: Some("snap-1".to_owned()),
            initialization_rate: Some(200),
            ..empty("/dev/xvda")
        };
        assert_eq!(block_devices(&spec, AmiFamily::AL2023), [expected, empty("/dev/xvdb")]);
    }
}

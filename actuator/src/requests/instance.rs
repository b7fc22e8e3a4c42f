//! RunInstances, only as a dry run.

use super::{LaunchTemplateSpecification, TagSpecification, tag_specification};
use crate::ports::InstanceRequest;
use serde::Serialize;

/// `RunInstances` for one instance of a launch template.
#[derive(Debug, Clone, PartialEq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct RunInstances {
    /// Always true.
    pub dry_run: bool,
    /// The template.
    pub launch_template: LaunchTemplateSpecification,
    /// Instance type.
    pub instance_type: String,
    /// Always 1.
    pub min_count: i32,
    /// Always 1.
    pub max_count: i32,
    /// The subnet is named here, since the template has network interfaces.
    pub network_interfaces: Vec<InstanceInterface>,
    /// Tags of the instance, its volumes and its network interfaces.
    pub tag_specifications: Vec<TagSpecification>,
}

/// An item of `NetworkInterfaces`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(rename_all = "PascalCase")]
pub struct InstanceInterface {
    /// Always 0.
    pub device_index: i32,
    /// Subnet.
    pub subnet_id: String,
    /// Security groups.
    pub groups: Vec<String>,
}

impl From<&InstanceRequest> for RunInstances {
    fn from(request: &InstanceRequest) -> Self {
        Self {
            dry_run: true,
            launch_template: LaunchTemplateSpecification {
                launch_template_name: request.launch_template_name.clone(),
                version: request.version.to_string(),
            },
            instance_type: request.instance_type.clone(),
            min_count: 1,
            max_count: 1,
            network_interfaces: vec![InstanceInterface {
                device_index: 0,
                subnet_id: request.subnet_id.clone(),
                groups: request.security_group_ids.clone(),
            }],
            tag_specifications: ["instance", "volume", "network-interface"]
                .map(|resource| tag_specification(resource, &request.tags))
                .into(),
        }
    }
}

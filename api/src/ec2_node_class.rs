//! EC2NodeClass: how to configure an EC2 instance as a node.

use crate::{kubelet::KubeletConfiguration, null_default, schema};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use kube::CustomResource;
use plimsoll_model::names::tag;
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};
use std::collections::BTreeMap;

mod device;
mod options;
mod selector;
mod status;

pub use device::{BlockDevice, BlockDeviceMapping, VolumeType};
pub use options::{
    ConnectionTracking, CpuOptions, EnabledOrDisabled, HttpTokens, InstanceStorePolicy, InterfaceType, MetadataOptions,
    NetworkInterface,
};
pub use selector::{
    AmiAlias, AmiSelectorTerm, CapacityReservationSelectorTerm, InstanceMatchCriteria, PlacementGroupSelector,
    SecurityGroupSelectorTerm, SubnetSelectorTerm,
};
pub use status::{
    Ami, CapacityReservation, EC2NodeClassStatus, PlacementGroup, PlacementStrategy, ReservationState, ReservationType,
    SecurityGroup, Subnet,
};

/// Specification of the node class: network, images, permissions and volumes of the instances.
#[derive(CustomResource, Clone, Debug, Default, PartialEq, Serialize, Deserialize, JsonSchema)]
#[kube(
    group = "karpenter.k8s.aws",
    version = "v1",
    kind = "EC2NodeClass",
    plural = "ec2nodeclasses",
    shortname = "ec2nc",
    shortname = "ec2ncs",
    category = "karpenter",
    status = "EC2NodeClassStatus",
    derive = "Default",
    derive = "PartialEq",
    schema = "disabled",
    printcolumn(
        name = "Ready",
        type_ = "string",
        json_path = ".status.conditions[?(@.type==\"Ready\")].status",
        description = "Whether instances can be launched"
    ),
    printcolumn(name = "Age", type_ = "date", json_path = ".metadata.creationTimestamp", description = "Age"),
    printcolumn(
        name = "Role",
        type_ = "string",
        json_path = ".spec.role",
        priority = 1,
        description = "IAM role of the instances"
    )
)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = spec_rules()))]
pub struct EC2NodeClassSpec {
    /// Subnets of the instances. A subnet is selected if it matches any term.
    #[schemars(length(max = 30), extend("x-kubernetes-validations" = selector::subnet_rules()))]
    pub subnet_selector_terms: Vec<SubnetSelectorTerm>,
    /// Security groups of the instances. A security group is selected if it matches any term.
    #[schemars(length(max = 30), extend("x-kubernetes-validations" = selector::security_group_rules()))]
    pub security_group_selector_terms: Vec<SecurityGroupSelectorTerm>,
    /// Capacity reservations that instances may use. A reservation is selected if it matches any term.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 30), extend("x-kubernetes-validations" = selector::capacity_reservation_rules()))]
    pub capacity_reservation_selector_terms: Vec<CapacityReservationSelectorTerm>,
    /// Placement group that instances are launched in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub placement_group_selector: Option<PlacementGroupSelector>,
    /// Whether instances get a public IP address. Unset: the subnet's setting.
    #[serde(rename = "associatePublicIPAddress", default, skip_serializing_if = "Option::is_none")]
    pub associate_public_ip_address: Option<bool>,
    /// Number of /28 IPv4 prefixes of the primary network interface.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(range(min = 0))]
    pub ip_prefix_count: Option<i32>,
    /// Images of the instances. An image is selected if it matches any term; newer images are preferred. Unset: the
    /// newest image of amiFamily.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1, max = 30), extend("x-kubernetes-validations" = selector::ami_rules()))]
    pub ami_selector_terms: Option<Vec<AmiSelectorTerm>>,
    /// AMI family: decides the format of the user data. Required unless amiSelectorTerms has an alias. Custom: userData
    /// is used unchanged.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ami_family: Option<AmiFamily>,
    /// User data, merged with the generated bootstrap configuration. The format depends on amiFamily.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub user_data: Option<String>,
    /// IAM role of the instances. The actuator creates an instance profile for it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = schema::not_empty("role")))]
    pub role: Option<String>,
    /// Existing IAM instance profile, instead of role.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("x-kubernetes-validations" = schema::not_empty("instanceProfile")))]
    pub instance_profile: Option<String>,
    /// Tags of the EC2 resources that are created for nodes.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(extend("x-kubernetes-validations" = tag_rules()))]
    pub tags: BTreeMap<String, String>,
    /// Settings of the kubelet, with the names of KubeletConfiguration. The condition ValidationSucceeded reports
    /// invalid settings.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kubelet: Option<KubeletConfiguration>,
    /// EBS volumes of the instances. Unset: the default volumes of the AMI family.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 50), extend("x-kubernetes-validations" = device::rules()))]
    pub block_device_mappings: Vec<BlockDeviceMapping>,
    /// How instance store volumes are used. Unset: they are not configured.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_store_policy: Option<InstanceStorePolicy>,
    /// Network interfaces of the instances. Unset: one primary interface.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "Vec::is_empty")]
    #[schemars(length(max = 150), extend("x-kubernetes-validations" = options::interface_rules()))]
    pub network_interfaces: Vec<NetworkInterface>,
    /// Enable detailed (one-minute) CloudWatch monitoring.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub detailed_monitoring: Option<bool>,
    /// Access to the instance metadata service. Default: IMDSv2 with a hop limit of 1, which excludes pods without host
    /// network.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(extend("default" = MetadataOptions::resolved_default()))]
    pub metadata_options: Option<MetadataOptions>,
    /// Idle timeouts of connection tracking.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub connection_tracking: Option<ConnectionTracking>,
    /// The parameter Context of CreateFleet; reserved by EC2.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub context: Option<String>,
    /// CPU options of the instances.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub cpu_options: Option<CpuOptions>,
}

/// AMI family.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum AmiFamily {
    /// Amazon Linux 2.
    AL2,
    /// Amazon Linux 2023.
    AL2023,
    /// Bottlerocket.
    Bottlerocket,
    /// Custom: user data is used unchanged.
    Custom,
    /// Windows Server 2019.
    Windows2019,
    /// Windows Server 2022.
    Windows2022,
    /// Windows Server 2025.
    Windows2025,
}

impl AmiFamily {
    /// All families, in the order of the schema.
    pub const ALL: [Self; 7] = [
        Self::AL2,
        Self::AL2023,
        Self::Bottlerocket,
        Self::Custom,
        Self::Windows2019,
        Self::Windows2022,
        Self::Windows2025,
    ];

    /// Default EBS volumes of instances, as in Karpenter: device and size in GiB.
    #[must_use]
    pub fn default_volumes(self) -> &'static [(&'static str, u64)] {
        match self {
            Self::AL2 | Self::AL2023 => &[("/dev/xvda", 20)],
            Self::Bottlerocket => &[("/dev/xvda", 4), ("/dev/xvdb", 20)],
            Self::Windows2019 | Self::Windows2022 | Self::Windows2025 => &[("/dev/sda1", 50)],
            Self::Custom => &[],
        }
    }

    /// Name in manifests.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::AL2 => "AL2",
            Self::AL2023 => "AL2023",
            Self::Bottlerocket => "Bottlerocket",
            Self::Custom => "Custom",
            Self::Windows2019 => "Windows2019",
            Self::Windows2022 => "Windows2022",
            Self::Windows2025 => "Windows2025",
        }
    }

    /// Returns the family of an alias such as `al2023`; there is none for [`AmiFamily::Custom`].
    #[must_use]
    pub fn of_alias(family: &str) -> Option<Self> {
        Self::ALL
            .into_iter()
            .filter(|family_candidate| *family_candidate != Self::Custom)
            .find(|family_candidate| family_candidate.as_str().to_ascii_lowercase() == family)
    }

    /// Whether the family is a Windows family.
    #[must_use]
    pub fn is_windows(self) -> bool {
        matches!(self, Self::Windows2019 | Self::Windows2022 | Self::Windows2025)
    }
}

impl std::fmt::Display for AmiFamily {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.as_str())
    }
}

/// Tag keys reserved by Karpenter.
pub(crate) const RESERVED_TAGS: [&str; 4] = [tag::EKS_CLUSTER, tag::NODE_POOL, tag::NODE_CLAIM, tag::EC2_NODE_CLASS];
/// Prefix of the tag key that identifies the cluster of a resource.
pub(crate) const RESERVED_TAG_PREFIX: &str = "kubernetes.io/cluster";

fn tag_rules() -> Value {
    let reserved =
        format!("self.all(k, !(k in ['{}']) && !k.startsWith('{RESERVED_TAG_PREFIX}'))", RESERVED_TAGS.join("', '"));
    let message = format!("{} and {RESERVED_TAG_PREFIX}... are set by the autoscaler", RESERVED_TAGS.join(", "));
    schema::cel(&[("self.all(k, k != '')", "a tag needs a key"), (&reserved, &message)])
}

fn spec_rules() -> Value {
    let family_fits_alias = "!has(self.amiFamily) || self.amiFamily == 'Custom' || !has(self.amiSelectorTerms) \
         || self.amiSelectorTerms.all(t, !has(t.alias) || t.alias.split('@')[0] == self.amiFamily.lowerAscii())";
    let family_is_known =
        "has(self.amiFamily) || (has(self.amiSelectorTerms) && self.amiSelectorTerms.exists(t, has(t.alias)))";
    schema::cel(&[
        ("has(self.role) != has(self.instanceProfile)", "one of role and instanceProfile is needed, not both"),
        (family_fits_alias, "amiFamily must be that of the alias, or Custom"),
        (family_is_known, "amiFamily is needed where amiSelectorTerms has no alias"),
        (
            "has(self.amiSelectorTerms) || !has(self.amiFamily) || self.amiFamily != 'Custom'",
            "amiFamily Custom needs amiSelectorTerms, since no image is known to be meant",
        ),
    ])
}

impl EC2NodeClass {
    /// The conditions of the status.
    #[must_use]
    pub fn conditions(&self) -> &[Condition] {
        self.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default()
    }

    /// The placement group that the class selects, if it was found. The status may still be that of another selector.
    #[must_use]
    pub fn placement_group(&self) -> Option<&PlacementGroup> {
        let PlacementGroupSelector { id, name } = self.spec.placement_group_selector.as_ref()?;
        let is_selected = |group: &&PlacementGroup| match id {
            Some(id) => *id == group.id,
            None => name.is_some() && *name == group.name,
        };
        self.status.as_ref()?.placement_group.as_ref().filter(is_selected)
    }
}

impl EC2NodeClassSpec {
    /// The alias in `amiSelectorTerms`, if there is a valid one.
    #[must_use]
    pub fn alias(&self) -> Option<AmiAlias> {
        self.ami_selector_terms.iter().flatten().find_map(|term| AmiAlias::parse(term.alias.as_deref()?).ok())
    }

    /// Returns the family of the class, otherwise that of its alias, otherwise Custom.
    #[must_use]
    pub fn effective_ami_family(&self) -> AmiFamily {
        self.ami_family.or_else(|| self.alias().map(|alias| alias.family)).unwrap_or(AmiFamily::Custom)
    }

    /// Image selector terms; the default is the newest image of the family.
    #[must_use]
    pub fn effective_ami_selector_terms(&self) -> Vec<AmiSelectorTerm> {
        match (&self.ami_selector_terms, self.ami_family) {
            (Some(terms), _) => terms.clone(),
            (None, Some(family)) if family != AmiFamily::Custom => {
                let alias = format!("{}@latest", family.as_str().to_ascii_lowercase());
                vec![AmiSelectorTerm { alias: Some(alias), ..AmiSelectorTerm::default() }]
            }
            (None, _) => Vec::new(),
        }
    }

    /// Metadata options with defaults applied.
    #[must_use]
    pub fn metadata_options(&self) -> MetadataOptions {
        self.metadata_options.clone().unwrap_or_default().resolved()
    }
}

/// Default of `metadataOptions` as JSON, for the schema.
impl MetadataOptions {
    fn resolved_default() -> Value {
        json!(Self::default().resolved())
    }
}

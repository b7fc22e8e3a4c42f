//! Selectors of subnets, security groups, images, capacity reservations and placement groups.

use crate::{ec2_node_class::AmiFamily, null_default, schema};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use std::collections::BTreeMap;

// Overspecified terms of subnets, security groups and reservations are rejected only if all terms are overspecified, as
// in Karpenter. In other lists the id or the name decides.

/// Selects subnets by tags, or one subnet by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SubnetSelectorTerm {
    /// Tags of the subnet, all of which must match. The value * matches any value.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::selector_tags")]
    pub tags: BTreeMap<String, String>,
    /// Id of the subnet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::SUBNET))]
    pub id: Option<String>,
}

pub(super) fn subnet_rules() -> Value {
    schema::cel(&[
        ("self.size() > 0", "a subnet selector is needed"),
        ("self.all(t, has(t.tags) || has(t.id))", "a subnet selector needs tags or id"),
        (
            "self.size() == 0 || !self.all(t, has(t.id) && has(t.tags))",
            "a subnet selector cannot have both id and tags",
        ),
    ])
}

/// Selects security groups by tags, or one security group by id or name.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct SecurityGroupSelectorTerm {
    /// Tags of the security group, all of which must match. The value * matches any value.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::selector_tags")]
    pub tags: BTreeMap<String, String>,
    /// Id of the security group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::SECURITY_GROUP))]
    pub id: Option<String>,
    /// Name of the security group (the attribute GroupName, not the tag Name).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
}

pub(super) fn security_group_rules() -> Value {
    schema::cel(&[
        ("self.size() > 0", "a security group selector is needed"),
        ("self.all(t, has(t.tags) || has(t.id) || has(t.name))", "a security group selector needs tags, id or name"),
        (
            "self.size() == 0 || !self.all(t, has(t.id) && (has(t.tags) || has(t.name)))",
            "a security group selector with id cannot have tags or name",
        ),
        (
            "self.size() == 0 || !self.all(t, has(t.name) && (has(t.tags) || has(t.id)))",
            "a security group selector with name cannot have tags or id",
        ),
    ])
}

/// Which instances use a reservation.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "lowercase")]
pub enum InstanceMatchCriteria {
    /// All instances that match the reservation.
    Open,
    /// Only instances that target the reservation.
    Targeted,
}

/// Selects capacity reservations by tags, owner and match criteria, or one reservation by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct CapacityReservationSelectorTerm {
    /// Tags of the reservation, all of which must match. The value * matches any value.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::selector_tags")]
    pub tags: BTreeMap<String, String>,
    /// Id of the capacity reservation.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::CAPACITY_RESERVATION))]
    pub id: Option<String>,
    /// AWS account that owns the reservation.
    #[serde(rename = "ownerID", default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::ACCOUNT))]
    pub owner_id: Option<String>,
    /// Match criteria of the reservation. open: all matching instances use it. targeted: only instances that target it
    /// use it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub instance_match_criteria: Option<InstanceMatchCriteria>,
}

pub(super) fn capacity_reservation_rules() -> Value {
    schema::cel(&[
        (
            "self.all(t, has(t.tags) || has(t.id) || has(t.instanceMatchCriteria))",
            "a capacity reservation selector needs tags, id or instanceMatchCriteria",
        ),
        (
            "self.size() == 0 || !self.all(t, has(t.id) && (has(t.tags) || has(t.ownerID) || has(t.instanceMatchCriteria)))",
            "a capacity reservation selector with id cannot have anything else",
        ),
    ])
}

/// Selects a placement group by name or id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("x-kubernetes-validations" = schema::cel(&[(
    "has(self.name) != has(self.id)",
    "one of name and id is needed, not both",
)])))]
pub struct PlacementGroupSelector {
    /// Name of the placement group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(min = 1))]
    pub name: Option<String>,
    /// Id of the placement group.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::PLACEMENT_GROUP))]
    pub id: Option<String>,
}

/// Selects images by alias, by tags, name and owner, by SSM parameter, or one image by id.
#[derive(Clone, Debug, Default, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
pub struct AmiSelectorTerm {
    /// Family and version of an EKS image, such as al2023@latest. An alias must be the only term.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 30), extend("x-kubernetes-validations" = alias_rules()))]
    pub alias: Option<String>,
    /// Tags of the image, all of which must match. The value * matches any value.
    #[serde(default, deserialize_with = "null_default", skip_serializing_if = "BTreeMap::is_empty")]
    #[schemars(schema_with = "schema::selector_tags")]
    pub tags: BTreeMap<String, String>,
    /// Id of the image.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::IMAGE))]
    pub id: Option<String>,
    /// Name of the image (the attribute Name, not the tag Name). Wildcards are allowed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub name: Option<String>,
    /// Owner of the image: an AWS account id, self, amazon or aws-marketplace. Unset: self and amazon.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub owner: Option<String>,
    /// Name or ARN of an SSM parameter whose value is an image id.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ssm_parameter: Option<String>,
}

/// Families that have aliases.
const ALIAS_FAMILIES: &str = "['al2', 'al2023', 'bottlerocket', 'windows2019', 'windows2022', 'windows2025']";

fn alias_rules() -> Value {
    let family = format!("self.split('@')[0] in {ALIAS_FAMILIES}");
    schema::cel(&[
        ("self.matches('^[a-zA-Z0-9]+@.+$')", "an alias has the form family@version"),
        (
            &family,
            "an alias needs one of the families al2, al2023, bottlerocket, windows2019, windows2022, windows2025",
        ),
        (
            "!self.startsWith('windows') || self.split('@')[1] == 'latest'",
            "of a Windows family only the version latest can be had",
        ),
    ])
}

pub(super) fn ami_rules() -> Value {
    schema::cel(&[
        (
            "self.all(t, has(t.tags) || has(t.id) || has(t.name) || has(t.alias) || has(t.ssmParameter))",
            "an image selector needs tags, id, name, alias or ssmParameter",
        ),
        (
            "self.all(t, !has(t.id) || !(has(t.alias) || has(t.tags) || has(t.name) || has(t.owner)))",
            "an image selector with id cannot have alias, tags, name or owner",
        ),
        (
            "self.all(t, !has(t.alias) || !(has(t.id) || has(t.tags) || has(t.name) || has(t.owner)))",
            "an image selector with alias cannot have id, tags, name or owner",
        ),
        ("self.size() == 1 || self.all(t, !has(t.alias))", "an image selector with alias must be the only one"),
    ])
}

/// A parsed image alias.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AmiAlias {
    /// Image family.
    pub family: AmiFamily,
    /// Version or `latest`.
    pub version: String,
}

/// Reason why a string is not an alias.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum AliasError {
    /// The text does not have the form family@version.
    #[error("an alias has the form family@version")]
    Form,
    /// The family is unknown.
    #[error("an alias needs one of the families al2, al2023, bottlerocket, windows2019, windows2022, windows2025")]
    Family,
    /// The version is not available.
    #[error("of a Windows family only the version latest can be had")]
    WindowsVersion,
}

impl AmiAlias {
    /// Parses an alias.
    pub fn parse(text: &str) -> Result<Self, AliasError> {
        let (family, version) = text.split_once('@').ok_or(AliasError::Form)?;
        // The schema's pattern does not match line breaks.
        let version_is_one_line = !version.is_empty() && !version.contains('\n');
        if family.is_empty() || !family.bytes().all(|byte| byte.is_ascii_alphanumeric()) || !version_is_one_line {
            return Err(AliasError::Form);
        }
        let family = AmiFamily::of_alias(family).ok_or(AliasError::Family)?;
        if family.is_windows() && version != "latest" {
            return Err(AliasError::WindowsVersion);
        }
        Ok(Self { family, version: version.to_owned() })
    }
}

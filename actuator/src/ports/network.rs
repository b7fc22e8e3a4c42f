//! Subnets, security groups and images, and how a node class selects them.

use super::Tags;
use plimsoll_model::time::Timestamp;

/// One selector term. All fields that are set must match; terms are alternatives.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct SelectorTerm {
    /// Id.
    pub id: Option<String>,
    /// Name.
    pub name: Option<String>,
    /// Tags; the value `*` means any value.
    pub tags: Tags,
    /// Owner, images only: an account, `self` or `amazon`.
    pub owner: Option<String>,
}

/// A subnet.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Subnet {
    /// `subnet-...`.
    pub id: String,
    /// Availability zone by name.
    pub zone: String,
    /// Availability zone by id.
    pub zone_id: String,
    /// Free IPv4 addresses.
    pub free_ipv4_addresses: u32,
    /// Tags.
    pub tags: Tags,
}

/// A security group.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct SecurityGroup {
    /// `sg-...`.
    pub id: String,
    /// Name.
    pub name: String,
    /// Tags.
    pub tags: Tags,
}

/// Which images to describe.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum ImageQuery {
    /// These ids.
    Ids(Vec<String>),
    /// Any of these terms.
    Terms(Vec<SelectorTerm>),
}

/// A machine image.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Image {
    /// `ami-...`.
    pub id: String,
    /// Name.
    pub name: String,
    /// `x86_64` or `arm64`.
    pub architecture: String,
    /// Creation time.
    pub created: Timestamp,
    /// Whether the image is deprecated.
    pub deprecated: bool,
    /// Tags.
    pub tags: Tags,
}

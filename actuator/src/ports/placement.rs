//! Placement groups, and how a node class selects one.

pub use plimsoll_api::ec2_node_class::PlacementStrategy;

/// How a placement group is selected.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum PlacementGroupTerm {
    /// `pg-...`.
    Id(String),
    /// By name, in the own account.
    Name(String),
}

/// A placement group, in any state.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct PlacementGroup {
    /// `pg-...`.
    pub id: String,
    /// Name.
    pub name: String,
    /// `available`, or else EC2 launches no instance in it.
    pub state: String,
    /// Strategy; `None` if EC2 names one that is not known.
    pub strategy: Option<PlacementStrategy>,
    /// Partitions per zone, of groups with partitions.
    pub partition_count: Option<i32>,
}

impl PlacementGroup {
    /// The state of a group that can be used.
    pub const AVAILABLE: &str = "available";
}

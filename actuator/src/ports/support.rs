//! The smaller services: SSM parameters, IAM instance profiles, price list, EKS.

use super::{CloudError, Tags};
use async_trait::async_trait;
use plimsoll_model::money::MicroUsdPerHour;
use std::fmt::Debug;

/// SSM's parameter store.
#[async_trait]
pub trait Parameters: Debug + Send + Sync {
    /// The value of a parameter; [`CloudError::NotFound`] if there is none.
    async fn get(&self, path: &str) -> Result<String, CloudError>;
}

/// An instance profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceProfile {
    /// Name.
    pub name: String,
    /// Path, such as `/` or `/karpenter/...`.
    pub path: String,
    /// The profile's role. IAM allows at most one.
    pub role: Option<String>,
    /// Tags.
    pub tags: Tags,
}

/// IAM instance profiles.
#[async_trait]
pub trait InstanceProfiles: Debug + Send + Sync {
    /// The profile; [`CloudError::NotFound`] if there is none.
    async fn get(&self, name: &str) -> Result<InstanceProfile, CloudError>;

    /// Creates a profile. An existing profile with that name is no error.
    async fn create(&self, name: &str, path: &str, tags: &Tags) -> Result<(), CloudError>;

    /// Sets the role of a profile, in place of any other role.
    async fn set_role(&self, name: &str, role: &str) -> Result<(), CloudError>;

    /// Removes the role from a profile and deletes the profile. A missing profile is no error.
    async fn delete(&self, name: &str) -> Result<(), CloudError>;

    /// Profiles under a path.
    async fn list(&self, path: &str) -> Result<Vec<InstanceProfile>, CloudError>;
}

/// The On-Demand price of a type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct OnDemandPrice {
    /// Instance type.
    pub instance_type: String,
    /// Price of a Linux instance with shared tenancy.
    pub price: MicroUsdPerHour,
}

/// The price list of one region.
#[async_trait]
pub trait PriceList: Debug + Send + Sync {
    /// On-Demand prices, sorted by type, each once.
    async fn on_demand_prices(&self) -> Result<Vec<OnDemandPrice>, CloudError>;
}

/// What EKS tells about a cluster; `None` where it tells nothing, as while a cluster is being created.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct ClusterDescription {
    /// ARN of the cluster.
    pub arn: Option<String>,
    /// URL of the API server.
    pub endpoint: Option<String>,
    /// Certificate authority of the API server, PEM in base64.
    pub certificate_authority: Option<String>,
    /// Minor version, such as `1.36`.
    pub kubernetes_version: Option<String>,
    /// Service CIDR, IPv6 in clusters of that family.
    pub service_cidr: Option<String>,
}

/// EKS.
#[async_trait]
pub trait ManagedControlPlane: Debug + Send + Sync {
    /// The cluster with that name; [`CloudError::NotFound`] if there is none.
    async fn describe_cluster(&self, name: &str) -> Result<ClusterDescription, CloudError>;
}

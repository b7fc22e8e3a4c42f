//! The smaller services: SSM parameters, IAM instance profiles, the price list.

use super::{CloudError, Tags};
use async_trait::async_trait;
use plimsoll_model::money::MicroUsdPerHour;
use std::fmt::Debug;

/// SSM's parameter store.
#[async_trait]
pub trait Parameters: Debug + Send + Sync {
    /// The value of a parameter by path; [`CloudError::NotFound`] if there is none.
    async fn get(&self, path: &str) -> Result<String, CloudError>;
}

/// An instance profile.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct InstanceProfile {
    /// Name.
    pub name: String,
    /// Path, `/` or `/karpenter/...`.
    pub path: String,
    /// Role in it; at most one is allowed by IAM.
    pub role: Option<String>,
    /// Tags.
    pub tags: Tags,
}

/// IAM instance profiles.
#[async_trait]
pub trait InstanceProfiles: Debug + Send + Sync {
    /// The profile; [`CloudError::NotFound`] if there is none.
    async fn get(&self, name: &str) -> Result<InstanceProfile, CloudError>;

    /// Makes a profile; one of that name that exists already is no error.
    async fn create(&self, name: &str, path: &str, tags: &Tags) -> Result<(), CloudError>;

    /// Puts a role into a profile in place of the one that is there.
    async fn set_role(&self, name: &str, role: &str) -> Result<(), CloudError>;

    /// Deletes a profile with its role's membership; a missing one is no error.
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

//! Zonal shifts of the cluster (AWS Application Recovery Controller).

use super::CloudError;
use async_trait::async_trait;
use plimsoll_model::time::Timestamp;
use std::fmt::Debug;

/// A zonal shift or zonal autoshift that is applied to the cluster.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct ZonalShift {
    /// Id of the zone that the cluster is shifted away from, such as `use1-az1`.
    pub zone_id: String,
    /// When the shift ends. `None` for an autoshift, which AWS ends.
    pub expires: Option<Timestamp>,
}

/// ARC's answers about one cluster.
#[async_trait]
pub trait ManagedResource: Debug + Send + Sync {
    /// The shifts that are applied now; [`CloudError::NotFound`] if ARC does not manage the cluster.
    async fn zonal_shifts(&self) -> Result<Vec<ZonalShift>, CloudError>;
}

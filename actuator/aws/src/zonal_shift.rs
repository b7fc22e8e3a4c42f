//! The adapter of ARC's zonal shifts.

use crate::error::classify;
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_sdk_arczonalshift::types::{AppliedStatus, AutoshiftAppliedStatus};
use plimsoll_actuator::ports::{CloudError, ManagedResource, ZonalShift};
use plimsoll_model::time::Timestamp;

/// The shifts of one cluster.
#[derive(Debug, Clone)]
pub struct ArcZonalShift {
    client: aws_sdk_arczonalshift::Client,
    cluster_arn: String,
}

impl ArcZonalShift {
    /// Creates the client for the cluster with that ARN.
    #[must_use]
    pub fn new(config: &SdkConfig, cluster_arn: &str) -> Self {
        Self { client: aws_sdk_arczonalshift::Client::new(config), cluster_arn: cluster_arn.to_owned() }
    }
}

#[async_trait]
impl ManagedResource for ArcZonalShift {
    async fn zonal_shifts(&self) -> Result<Vec<ZonalShift>, CloudError> {
        let call = self.client.get_managed_resource().resource_identifier(&self.cluster_arn);
        let answer = call.send().await.map_err(classify)?;
        let shifts = answer.zonal_shifts.iter().filter(|shift| shift.applied_status == AppliedStatus::Applied);
        let shifts = shifts.map(|shift| ZonalShift {
            zone_id: shift.away_from.clone(),
            // A time that cannot be represented is as far away as can be.
            expires: Some(shift.expiry_time.to_millis().map_or(Timestamp(i64::MAX), Timestamp)),
        });
        let autoshifts = answer.autoshifts().iter();
        let autoshifts = autoshifts.filter(|shift| shift.applied_status == AutoshiftAppliedStatus::Applied);
        let autoshifts = autoshifts.map(|shift| ZonalShift { zone_id: shift.away_from.clone(), expires: None });
        Ok(shifts.chain(autoshifts).collect())
    }
}

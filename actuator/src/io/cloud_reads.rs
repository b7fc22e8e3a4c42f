//! Reads of the cloud. They change nothing and need no leadership.

use super::{Action, RateLimiter};
use crate::fencing::CLOUD_CALL;
use crate::metrics::ActuatorMetrics;
use crate::metrics::cloud::CloudMethod;
use crate::ports::{
    CapacityReservation, Cloud, CloudError, Image, ImageQuery, Instance, InstanceFilter, InstanceProfile,
    InstanceStatus, InstanceTypeFacts, LaunchTemplate, LaunchTemplateFilter, OnDemandPrice, PlacementGroup,
    PlacementGroupTerm, QueueMessage, ReservationTerm, SecurityGroup, SelectorTerm, SpotPrice, Subnet, TypeOffering,
    ZonalShift,
};
use std::time::Duration;
use tokio::time::Instant;

/// Timeout of lists of all instances: some seconds for each page of 1,000 instances.
const LIST: Duration = Duration::from_secs(180);

/// Reads of the cloud. Clones share the ports.
#[derive(Debug, Clone)]
pub struct CloudReads {
    cloud: Cloud,
    rate_limiter: RateLimiter,
    metrics: ActuatorMetrics,
}

#[allow(clippy::missing_errors_doc, reason = "every method ends in a CloudError where the cloud does not answer")]
impl CloudReads {
    pub(super) fn new(cloud: Cloud, rate_limiter: RateLimiter, metrics: ActuatorMetrics) -> Self {
        Self { cloud, rate_limiter, metrics }
    }

    async fn measured<T>(
        &self,
        method: CloudMethod,
        action: &str,
        call: impl Future<Output = Result<T, CloudError>>,
    ) -> Result<T, CloudError> {
        let started = Instant::now();
        let result = call.await;
        self.metrics.cloud.call(method, action, started.elapsed(), &result);
        result
    }

    /// Instances, rate limited; [`CloudError::Unavailable`] on a timeout.
    pub async fn instances(&self, filter: &InstanceFilter) -> Result<Vec<Instance>, CloudError> {
        self.rate_limiter.take(Action::DescribeInstances).await;
        let call = within(CLOUD_CALL, self.cloud.compute.describe_instances(filter));
        self.measured(CloudMethod::List, "DescribeInstances", call).await
    }

    /// Like [`CloudReads::instances`], but with time for many pages: for listing all instances of a cluster.
    pub async fn all_instances(&self, filter: &InstanceFilter) -> Result<Vec<Instance>, CloudError> {
        self.rate_limiter.take(Action::DescribeInstances).await;
        let call = within(LIST, self.cloud.compute.describe_instances(filter));
        self.measured(CloudMethod::List, "DescribeInstances", call).await
    }

    /// The status of impaired instances of the region and of those with scheduled events.
    pub async fn instance_status(&self) -> Result<Vec<InstanceStatus>, CloudError> {
        within(LIST, self.cloud.compute.describe_instance_status()).await
    }

    /// Instance types of the region.
    pub async fn instance_types(&self) -> Result<Vec<InstanceTypeFacts>, CloudError> {
        self.measured(
            CloudMethod::GetInstanceTypes,
            "DescribeInstanceTypes",
            self.cloud.compute.describe_instance_types(),
        )
        .await
    }

    /// The zones in which each instance type is offered.
    pub async fn type_offerings(&self) -> Result<Vec<TypeOffering>, CloudError> {
        self.measured(
            CloudMethod::GetInstanceTypes,
            "DescribeInstanceTypeOfferings",
            self.cloud.compute.describe_type_offerings(),
        )
        .await
    }

    /// Spot prices.
    pub async fn spot_prices(&self) -> Result<Vec<SpotPrice>, CloudError> {
        self.measured(CloudMethod::GetInstanceTypes, "DescribeSpotPriceHistory", self.cloud.compute.spot_prices()).await
    }

    /// On-demand prices.
    pub async fn on_demand_prices(&self) -> Result<Vec<OnDemandPrice>, CloudError> {
        self.measured(CloudMethod::GetInstanceTypes, "GetProducts", self.cloud.prices.on_demand_prices()).await
    }

    /// Subnets.
    pub async fn subnets(&self, terms: &[SelectorTerm]) -> Result<Vec<Subnet>, CloudError> {
        self.cloud.compute.describe_subnets(terms).await
    }

    /// Security groups.
    pub async fn security_groups(&self, terms: &[SelectorTerm]) -> Result<Vec<SecurityGroup>, CloudError> {
        self.cloud.compute.describe_security_groups(terms).await
    }

    /// Capacity reservations.
    pub async fn capacity_reservations(
        &self,
        terms: &[ReservationTerm],
    ) -> Result<Vec<CapacityReservation>, CloudError> {
        self.cloud.compute.describe_capacity_reservations(terms).await
    }

    /// Placement groups.
    pub async fn placement_groups(&self, term: &PlacementGroupTerm) -> Result<Vec<PlacementGroup>, CloudError> {
        self.cloud.compute.describe_placement_groups(term).await
    }

    /// Images.
    pub async fn images(&self, query: &ImageQuery) -> Result<Vec<Image>, CloudError> {
        self.cloud.compute.describe_images(query).await
    }

    /// An SSM parameter.
    pub async fn parameter(&self, path: &str) -> Result<String, CloudError> {
        self.cloud.parameters.get(path).await
    }

    /// Launch templates.
    pub async fn launch_templates(&self, filter: &LaunchTemplateFilter) -> Result<Vec<LaunchTemplate>, CloudError> {
        self.cloud.compute.list_launch_templates(filter).await
    }

    /// The instance profile with that name.
    pub async fn profile(&self, name: &str) -> Result<InstanceProfile, CloudError> {
        self.cloud.profiles.get(name).await
    }

    /// Instance profiles under a path.
    pub async fn profiles(&self, path: &str) -> Result<Vec<InstanceProfile>, CloudError> {
        self.cloud.profiles.list(path).await
    }

    /// Whether an interruption queue is configured.
    #[must_use]
    pub fn has_queue(&self) -> bool {
        self.cloud.queue.is_some()
    }

    /// The next messages of the interruption queue, if one is configured.
    pub async fn receive(&self) -> Result<Vec<QueueMessage>, CloudError> {
        match &self.cloud.queue {
            Some(queue) => queue.receive().await,
            None => Ok(Vec::new()),
        }
    }

    /// The zonal shifts that are applied to the cluster, if they are followed; [`CloudError::Unavailable`] on a
    /// timeout.
    pub async fn zonal_shifts(&self) -> Result<Vec<ZonalShift>, CloudError> {
        match &self.cloud.managed_resource {
            Some(resource) => within(CLOUD_CALL, resource.zonal_shifts()).await,
            None => Ok(Vec::new()),
        }
    }

    /// Whether zonal shifts are followed.
    #[must_use]
    pub fn follows_zonal_shifts(&self) -> bool {
        self.cloud.managed_resource.is_some()
    }
}

/// Runs a read; [`CloudError::Unavailable`] on a timeout.
async fn within<T>(limit: Duration, call: impl Future<Output = Result<T, CloudError>>) -> Result<T, CloudError> {
    let no_answer = |_| CloudError::Unavailable { message: format!("no answer within {limit:?}") };
    tokio::time::timeout(limit, call).await.map_err(no_answer)?
}

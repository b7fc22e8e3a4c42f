//! Creates the clients of all services with a common configuration.

use crate::deadline::{ATTEMPT, CONNECT, change};
use crate::{ArcZonalShift, Ec2, Eks, Iam, Pricing, Sqs, Ssm};
use aws_config::retry::RetryConfig;
use aws_config::timeout::TimeoutConfig;
use aws_config::{AppName, BehaviorVersion, Region, SdkConfig};
use plimsoll_actuator::ports::{Cloud, InterruptionQueue, ManagedControlPlane};
use plimsoll_runtime::clock::Clock;
use std::sync::Arc;

/// Attempts of a retryable call. Some failures pass within a second; longer retries are up to the caller.
const ATTEMPTS: u32 = 3;
/// Application name in the user agent.
const APP_NAME: &str = concat!("plimsoll-", env!("CARGO_PKG_VERSION"));

/// Connection options.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Options {
    /// Region; `None` uses the environment's.
    pub region: Option<String>,
    /// Endpoint of all services; `None` uses AWS' own.
    pub endpoint_url: Option<String>,
    /// Name of the interruption queue, if there is one.
    pub interruption_queue: Option<String>,
}

/// Why the clients cannot be created.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ConnectError {
    /// No region is configured.
    #[error("no region: give --region or AWS_REGION, or run on an EC2 instance")]
    NoRegion,
}

/// The ports and their region.
#[derive(Debug, Clone)]
pub struct Connection {
    /// Adapters of all ports.
    pub cloud: Cloud,
    /// EKS, which is asked only at startup.
    pub control_plane: Arc<dyn ManagedControlPlane>,
    /// Region.
    pub region: String,
    config: SdkConfig,
}

impl Connection {
    /// Follows the zonal shifts of the cluster with this ARN.
    pub fn follow_zonal_shifts(&mut self, cluster_arn: &str) {
        self.cloud.managed_resource = Some(Arc::new(ArcZonalShift::new(&self.config, cluster_arn)));
    }
}

/// Creates all adapters. Makes no calls except to determine region and credentials.
///
/// # Errors
/// No region is configured.
pub async fn connect(options: &Options, clock: Clock) -> Result<Connection, ConnectError> {
    let mut loader = aws_config::defaults(BehaviorVersion::latest())
        .retry_config(RetryConfig::standard().with_max_attempts(ATTEMPTS))
        .timeout_config(timeouts());
    if let Some(region) = &options.region {
        loader = loader.region(Region::new(region.clone()));
    }
    if let Some(url) = &options.endpoint_url {
        loader = loader.endpoint_url(url);
    }
    if let Ok(name) = AppName::new(APP_NAME) {
        loader = loader.app_name(name);
    }
    let config = loader.load().await;
    let region = config.region().ok_or(ConnectError::NoRegion)?.to_string();
    let queue = options.interruption_queue.as_ref().filter(|name| !name.is_empty());
    let queue = queue.map(|name| Arc::new(Sqs::new(&config, name)) as Arc<dyn InterruptionQueue>);
    let cloud = Cloud {
        compute: Arc::new(Ec2::new(&config, clock)),
        parameters: Arc::new(Ssm::new(&config)),
        profiles: Arc::new(Iam::new(&config)),
        prices: Arc::new(Pricing::new(&with_region(&config, Pricing::region_for(&region)), &region)),
        queue,
        managed_resource: None,
    };
    Ok(Connection { cloud, control_plane: Arc::new(Eks::new(&config)), region, config })
}

/// Timeouts of mutating calls; lists set their own.
pub(crate) fn timeouts() -> TimeoutConfig {
    TimeoutConfig::builder()
        .connect_timeout(CONNECT)
        .operation_attempt_timeout(ATTEMPT)
        .operation_timeout(change())
        .build()
}

fn with_region(config: &SdkConfig, region: &'static str) -> SdkConfig {
    config.clone().into_builder().region(Region::from_static(region)).build()
}

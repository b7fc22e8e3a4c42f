//! The EKS adapter.

use crate::error::classify;
use async_trait::async_trait;
use aws_config::SdkConfig;
use plimsoll_actuator::ports::{CloudError, ClusterDescription, ManagedControlPlane};

/// EKS.
#[derive(Debug, Clone)]
pub struct Eks {
    client: aws_sdk_eks::Client,
}

impl Eks {
    /// Creates the client from an SDK configuration.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        Self { client: aws_sdk_eks::Client::new(config) }
    }
}

#[async_trait]
impl ManagedControlPlane for Eks {
    async fn describe_cluster(&self, name: &str) -> Result<ClusterDescription, CloudError> {
        let answer = self.client.describe_cluster().name(name).send().await.map_err(classify)?;
        let missing = || CloudError::NotFound { message: format!("cluster {name} is not described") };
        let cluster = answer.cluster.ok_or_else(missing)?;
        let network = cluster.kubernetes_network_config;
        let some = |text: Option<String>| text.filter(|text| !text.is_empty());
        Ok(ClusterDescription {
            arn: some(cluster.arn),
            endpoint: some(cluster.endpoint),
            certificate_authority: some(cluster.certificate_authority.and_then(|authority| authority.data)),
            kubernetes_version: some(cluster.version),
            service_cidr: network.and_then(|it| some(it.service_ipv4_cidr).or_else(|| some(it.service_ipv6_cidr))),
        })
    }
}

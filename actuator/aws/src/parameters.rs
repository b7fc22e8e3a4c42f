//! The SSM adapter.

use crate::error::classify;
use async_trait::async_trait;
use aws_config::SdkConfig;
use plimsoll_actuator::ports::{CloudError, Parameters};

/// SSM's parameter store.
#[derive(Debug, Clone)]
pub struct Ssm {
    client: aws_sdk_ssm::Client,
}

impl Ssm {
    /// Creates the client from an SDK configuration.
    #[must_use]
    pub fn new(config: &SdkConfig) -> Self {
        Self { client: aws_sdk_ssm::Client::new(config) }
    }
}

#[async_trait]
impl Parameters for Ssm {
    async fn get(&self, path: &str) -> Result<String, CloudError> {
        let answer = self.client.get_parameter().name(path).send().await.map_err(classify)?;
        let value = answer.parameter.and_then(|parameter| parameter.value);
        value.ok_or_else(|| CloudError::NotFound { message: format!("parameter {path} has no value") })
    }
}

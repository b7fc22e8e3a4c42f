//! The SQS adapter.

use crate::deadline::{CONNECT, LONG_POLL, RECEIVE};
use crate::error::classify;
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use plimsoll_actuator::ports::{CloudError, InterruptionQueue, QueueMessage};
use tokio::sync::OnceCell;

/// Maximum number of messages per receive call.
const MESSAGES: i32 = 10;
/// Visibility timeout in seconds, after which an undeleted message is delivered again, as the port specifies.
const VISIBILITY: i32 = 20;

/// One queue.
#[derive(Debug)]
pub struct Sqs {
    client: aws_sdk_sqs::Client,
    name: String,
    url: OnceCell<String>,
}

impl Sqs {
    /// Creates the client of the queue with that name.
    #[must_use]
    pub fn new(config: &SdkConfig, name: &str) -> Self {
        Self { client: aws_sdk_sqs::Client::new(config), name: name.to_owned(), url: OnceCell::new() }
    }

    async fn url(&self) -> Result<&str, CloudError> {
        let ask = || async {
            let answer = self.client.get_queue_url().queue_name(&self.name).send().await.map_err(classify)?;
            let missing = || CloudError::NotFound { message: format!("queue {} has no URL", self.name) };
            answer.queue_url.ok_or_else(missing)
        };
        self.url.get_or_try_init(ask).await.map(String::as_str)
    }
}

#[async_trait]
impl InterruptionQueue for Sqs {
    async fn receive(&self) -> Result<Vec<QueueMessage>, CloudError> {
        let timeouts = TimeoutConfig::builder()
            .connect_timeout(CONNECT)
            .operation_attempt_timeout(RECEIVE)
            .read_timeout(RECEIVE)
            .operation_timeout(RECEIVE)
            .build();
        let answer = self
            .client
            .receive_message()
            .queue_url(self.url().await?)
            .max_number_of_messages(MESSAGES)
            .wait_time_seconds(i32::try_from(LONG_POLL.as_secs()).unwrap_or(0))
            .visibility_timeout(VISIBILITY)
            .customize()
            .config_override(aws_sdk_sqs::Config::builder().timeout_config(timeouts))
            .send()
            .await
            .map_err(classify)?;
        let messages = answer.messages.unwrap_or_default().into_iter();
        Ok(messages
            .filter_map(|message| {
                Some(QueueMessage { receipt: message.receipt_handle?, body: message.body.unwrap_or_default() })
            })
            .collect())
    }

    async fn delete(&self, receipt: &str) -> Result<(), CloudError> {
        let call = self.client.delete_message().queue_url(self.url().await?).receipt_handle(receipt);
        call.send().await.map_err(classify)?;
        Ok(())
    }
}

//! The SQS adapter.

use crate::deadline::{CONNECT, LONG_POLL, RECEIVE};
use crate::error::classify;
use async_trait::async_trait;
use aws_config::SdkConfig;
use aws_config::timeout::TimeoutConfig;
use aws_sdk_sqs::types::DeleteMessageBatchRequestEntry;
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

    async fn delete(&self, receipts: &[String]) -> Result<(), CloudError> {
        let entry = |(number, receipt): (usize, &String)| {
            let entry =
                DeleteMessageBatchRequestEntry::builder().id(number.to_string()).receipt_handle(receipt).build();
            entry.map_err(|error| refused("IncompleteEntry", error.to_string()))
        };
        let entries = receipts.iter().enumerate().map(entry).collect::<Result<Vec<_>, _>>()?;
        let call = self.client.delete_message_batch().queue_url(self.url().await?).set_entries(Some(entries));
        let answer = call.send().await.map_err(classify)?;
        answer.failed.first().map_or(Ok(()), |failed| {
            let words = failed.message.as_deref().unwrap_or_default();
            let (failures, all) = (answer.failed.len(), receipts.len());
            Err(refused(&failed.code, format!("{failures} of {all} messages were not deleted: {words}")))
        })
    }
}

fn refused(code: &str, message: String) -> CloudError {
    CloudError::InvalidRequest { code: code.to_owned(), message }
}

//! The queue of interruption notices.

use super::CloudError;
use async_trait::async_trait;
use std::fmt::Debug;

/// A queue message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueMessage {
    /// Receipt handle for [`InterruptionQueue::delete`]; changes with each delivery.
    pub receipt: String,
    /// Body, as sent.
    pub body: String,
}

/// The interruption queue (SQS).
#[async_trait]
pub trait InterruptionQueue: Debug + Send + Sync {
    /// Waits up to 20 s for at most 10 messages. A message that is not deleted within 20 s is delivered again.
    async fn receive(&self) -> Result<Vec<QueueMessage>, CloudError>;

    /// Deletes at most 10 messages, by their receipts. Call this only once the claims are durably marked (safety rule
    /// 13). After an error, some of the messages may be deleted; the others are delivered again.
    async fn delete(&self, receipts: &[String]) -> Result<(), CloudError>;
}

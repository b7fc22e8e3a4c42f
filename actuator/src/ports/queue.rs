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

    /// Deletes a message. Call this only once the claim is durably marked (safety rule 13).
    async fn delete(&self, receipt: &str) -> Result<(), CloudError>;
}

//! The queue of interruption notices.

use super::CloudError;
use async_trait::async_trait;
use std::fmt::Debug;

/// A message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct QueueMessage {
    /// Handle for [`InterruptionQueue::delete`]; changes with each delivery.
    pub receipt: String,
    /// Body, as sent.
    pub body: String,
}

/// SQS.
#[async_trait]
pub trait InterruptionQueue: Debug + Send + Sync {
    /// Waits up to 20 s for at most 10 messages; they come again unless deleted within 20 s.
    async fn receive(&self) -> Result<Vec<QueueMessage>, CloudError>;

    /// Takes a message off the queue. To be called only once the claim is durably marked (safety rule 13).
    async fn delete(&self, receipt: &str) -> Result<(), CloudError>;
}

//! Follows the actuator's streams to keep the ledger and the catalogs current.

use crate::facts::Facts;
use crate::metrics::WatcherMetrics;
use plimsoll_model::execution::{CatalogUpdate, LedgerUpdate};
use plimsoll_model::time::Timestamp;
use plimsoll_proto::actuator::v1::actuator_service_client::ActuatorServiceClient;
use plimsoll_proto::actuator::v1::{
    WatchCatalogRequest, WatchCatalogResponse, WatchLedgerRequest, WatchLedgerResponse,
};
use plimsoll_runtime::admin::ReadinessHandle;
use plimsoll_runtime::client_pool::ClientPool;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::serve::MAX_DECODING_BYTES;
use std::sync::Arc;
use std::time::Duration;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

/// How long the actuator may take to open a stream before the watcher tries another replica.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause when no replica is known, or after a message that cannot be decoded. It bounds the rate of DNS lookups.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// Follows the leading actuator.
#[derive(Clone)]
pub(crate) struct ActuatorFollower {
    pub(crate) actuator: ClientPool,
    pub(crate) facts: Arc<Facts>,
    pub(crate) clock: Clock,
    pub(crate) metrics: WatcherMetrics,
}

/// Returns an actuator client with the decoding limit of the actuator's messages.
pub(crate) fn client(channel: Channel) -> ActuatorServiceClient<Channel> {
    ActuatorServiceClient::new(channel).max_decoding_message_size(MAX_DECODING_BYTES)
}

impl ActuatorFollower {
    fn now(&self) -> Timestamp {
        Timestamp(self.clock.now_millis())
    }

    /// Follows the ledger. Never returns.
    pub(crate) async fn ledger(self, handle: ReadinessHandle) {
        let mut handle = Some(handle);
        let open = |channel| async { client(channel).watch_ledger(WatchLedgerRequest {}).await };
        self.follow("ledger", open, |message: Option<WatchLedgerResponse>| {
            let Some(message) = message else {
                self.facts.change_ledger(|ledger| {
                    ledger.restart();
                    false
                });
                return Ok(());
            };
            let update = LedgerUpdate::try_from(message).map_err(|error| error.to_string())?;
            let now = self.now();
            if self.facts.change_ledger(|ledger| ledger.apply(update, now)) {
                handle.take().into_iter().for_each(ReadinessHandle::release);
            }
            Ok(())
        })
        .await;
    }

    /// Follows the catalogs. Never returns.
    pub(crate) async fn catalogs(self, handle: ReadinessHandle) {
        let mut handle = Some(handle);
        let facts = Arc::clone(&self.facts);
        let open = |channel| {
            let content_ids = facts.change_catalogs(|catalogs| (false, catalogs.restart()));
            let known_catalog_ids = content_ids.into_iter().map(|id| id.0).collect();
            async { client(channel).watch_catalog(WatchCatalogRequest { known_catalog_ids }).await }
        };
        self.follow("catalogs", open, |message: Option<WatchCatalogResponse>| {
            let Some(message) = message else { return Ok(()) };
            let update = CatalogUpdate::try_from(message).map_err(|error| error.to_string())?;
            let now = self.now();
            let complete = self.facts.change_catalogs(|catalogs| match catalogs.apply(update, now) {
                Ok(changed) => (changed, Ok(catalogs.is_complete())),
                Err(error) => (false, Err(error)),
            })?;
            if complete {
                handle.take().into_iter().for_each(ReadinessHandle::release);
            }
            Ok(())
        })
        .await;
    }

    /// Opens a stream and passes its messages to `handle`, with `None` for the start of the stream. Reopens the stream
    /// when it ends.
    async fn follow<M, Open, Opened>(
        &self,
        name: &'static str,
        mut open: Open,
        mut handle: impl FnMut(Option<M>) -> Result<(), String>,
    ) where
        Open: FnMut(Channel) -> Opened,
        Opened: Future<Output = Result<Response<Streaming<M>>, Status>>,
    {
        loop {
            let (replica, channel) = match self.actuator.channel().await {
                Ok(found) => found,
                Err(error) => {
                    tracing::warn!(stream = name, %error, "no actuator found");
                    tokio::time::sleep(RETRY_PAUSE).await;
                    continue;
                }
            };
            let opened = tokio::time::timeout(OPEN_TIMEOUT, open(channel)).await;
            let opened = opened.unwrap_or_else(|_| Err(Status::deadline_exceeded("the stream was not opened in time")));
            let status = match opened {
                Ok(response) => {
                    tracing::info!(stream = name, %replica, "following the actuator");
                    let mut stream = response.into_inner();
                    let mut handled = handle(None);
                    let status = loop {
                        if let Err(error) = &handled {
                            break Status::internal(error.as_str());
                        }
                        match stream.message().await {
                            Ok(Some(message)) => {
                                self.actuator.succeeded(&replica);
                                handled = handle(Some(message));
                            }
                            Ok(None) => break Status::unavailable("the stream ended"),
                            Err(status) => break status,
                        }
                    };
                    if let Err(error) = handled {
                        tracing::error!(stream = name, %replica, %error, "message cannot be used");
                        tokio::time::sleep(RETRY_PAUSE).await;
                    }
                    status
                }
                Err(status) => status,
            };
            self.metrics.stream_breaks.with_label_values(&[name]).inc();
            let hinted = self.actuator.refused(&replica, &status);
            tracing::debug!(stream = name, %replica, code = ?status.code(), message = status.message(), hinted, "stream broken");
        }
    }
}

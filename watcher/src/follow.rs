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
use plimsoll_runtime::client_pool::{ClientPool, ReplicaId};
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::serve::MAX_DECODING_BYTES;
use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::error::Error as _;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Response, Status, Streaming};

/// How long the actuator may take to open a stream before the watcher tries another replica.
const OPEN_TIMEOUT: Duration = Duration::from_secs(5);

/// Pause when no replica is known, or after a message that cannot be decoded. It bounds the rate of DNS lookups.
const RETRY_PAUSE: Duration = Duration::from_secs(1);

/// How long a warning about a broken stream is not repeated for the same reason. A replica is asked again after two
/// seconds at the latest.
const WARNING_INTERVAL: Duration = Duration::from_secs(60);

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
        let mut warnings = Warnings::default();
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
            let (status, has_messages) = match opened {
                Ok(response) => {
                    tracing::info!(stream = name, %replica, "following the actuator");
                    self.pass_on((name, &replica), response.into_inner(), &mut handle).await
                }
                Err(status) => (status, false),
            };
            self.metrics.stream_breaks.with_label_values(&[name]).inc();
            let hinted = self.actuator.refused(&replica, &status);
            let (code, reason) = (status.code(), described(&status));
            // A standby that names the leader is no problem, nor is the end of a connection that was long in use.
            if !hinted && !has_messages && warnings.is_due(&replica, &reason, Instant::now()) {
                tracing::warn!(stream = name, %replica, ?code, reason, "the actuator is not followed, trying again");
            } else {
                tracing::debug!(stream = name, %replica, ?code, reason, hinted, "stream broken");
            }
        }
    }

    /// Passes the messages of a stream to `handle`, with `None` for its start. Returns why the stream ended, and
    /// whether it had messages.
    async fn pass_on<M>(
        &self,
        (name, replica): (&'static str, &ReplicaId),
        mut stream: Streaming<M>,
        handle: &mut impl FnMut(Option<M>) -> Result<(), String>,
    ) -> (Status, bool) {
        let (mut handled, mut has_messages) = (handle(None), false);
        let status = loop {
            if let Err(error) = &handled {
                break Status::internal(error.as_str());
            }
            match stream.message().await {
                Ok(Some(message)) => {
                    self.actuator.succeeded(replica);
                    handled = handle(Some(message));
                    has_messages = true;
                }
                Ok(None) => break Status::unavailable("the stream ended"),
                Err(status) => break status,
            }
        };
        if let Err(error) = handled {
            tracing::error!(stream = name, %replica, %error, "message cannot be used");
            tokio::time::sleep(RETRY_PAUSE).await;
        }
        (status, has_messages)
    }
}

/// The message of the status, and its innermost cause: that of a handshake, for example.
fn described(status: &Status) -> String {
    let causes = std::iter::successors(status.source(), |&error| error.source());
    let message = status.message();
    match causes.last().map(ToString::to_string) {
        Some(cause) if !message.contains(&cause) => format!("{message}: {cause}"),
        _ => message.to_owned(),
    }
}

/// The latest warnings by replica and reason, and when they were logged.
#[derive(Debug, Default)]
struct Warnings(BTreeMap<(ReplicaId, String), Instant>);

impl Warnings {
    /// Whether to log a warning for this reason now: it was not logged within the last [`WARNING_INTERVAL`].
    fn is_due(&mut self, replica: &ReplicaId, reason: &str, now: Instant) -> bool {
        self.0.retain(|_, logged| *logged + WARNING_INTERVAL > now);
        match self.0.entry((replica.clone(), reason.to_owned())) {
            Entry::Vacant(entry) => {
                entry.insert(now);
                true
            }
            Entry::Occupied(_) => false,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_reason_that_stays_is_a_warning_once_a_minute() {
        let (mut warnings, start) = (Warnings::default(), Instant::now());
        let mut is_due = |replica: &str, reason: &str, seconds: u64| {
            warnings.is_due(&ReplicaId::from(replica), reason, start + Duration::from_secs(seconds))
        };
        assert!(is_due("10.0.0.7:9443", "certificate expired", 0));
        assert!(!is_due("10.0.0.7:9443", "certificate expired", 2));
        assert!(is_due("10.0.0.8:9443", "certificate expired", 2), "another replica");
        assert!(is_due("10.0.0.7:9443", "Connection refused", 4), "another reason");
        assert!(!is_due("10.0.0.7:9443", "certificate expired", 59));
        assert!(is_due("10.0.0.7:9443", "certificate expired", 60), "it is still so");
        assert!(!is_due("10.0.0.7:9443", "certificate expired", 61));
    }

    #[test]
    fn a_warning_names_the_innermost_cause() {
        assert_eq!(described(&Status::unavailable("this replica does not lead")), "this replica does not lead");
        let cause = std::io::Error::other("received fatal alert: CertificateExpired");
        let mut status = Status::unknown("transport error");
        status.set_source(Arc::new(cause));
        assert_eq!(described(&status), "transport error: received fatal alert: CertificateExpired");
        let mut status = Status::unavailable("Connection refused");
        status.set_source(Arc::new(std::io::Error::other("Connection refused")));
        assert_eq!(described(&status), "Connection refused");
    }
}

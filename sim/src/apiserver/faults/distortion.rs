//! Distorted watches: behaviour of watches while API servers lag, fail over or lose their history.

use std::time::Duration;

/// Selects watches.
#[derive(Debug, Clone, Default)]
pub struct WatchMatcher {
    /// Prefix of the names of the clients; empty for all clients.
    pub client: String,
    /// Plural name of the resource; `None` for all.
    pub resource: Option<&'static str>,
}

impl WatchMatcher {
    pub(super) fn matches(&self, client: &str, resource: &str) -> bool {
        client.starts_with(&self.client) && self.resource.is_none_or(|wanted| wanted == resource)
    }
}

/// Distortion of the events of a watch. The newest state of each object always arrives in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distortion {
    /// Events arrive late.
    Stale(Duration),
    /// Events within this time are lost: the history was compacted, and the watch ends with 410.
    Dropped(Duration),
    /// Events within this time arrive together, starting with those of the object that changed last. Events of one
    /// object keep their order.
    Reordered(Duration),
    /// Each event arrives twice.
    Duplicated,
}

impl Distortion {
    /// Time for which new events are delayed.
    pub(crate) fn holds(self) -> Duration {
        match self {
            Self::Stale(time) | Self::Dropped(time) | Self::Reordered(time) => time,
            Self::Duplicated => Duration::ZERO,
        }
    }
}

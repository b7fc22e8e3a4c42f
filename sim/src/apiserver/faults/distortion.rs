//! Distorted watches: what a client may see of changes where API servers lag, fail over and lose their history.

use std::time::Duration;

/// Selects watches.
#[derive(Debug, Clone, Default)]
pub struct WatchMatcher {
    /// How names of the clients begin; empty for all clients.
    pub client: String,
    /// Plural name of the resource; all if `None`.
    pub resource: Option<&'static str>,
}

impl WatchMatcher {
    pub(super) fn matches(&self, client: &str, resource: &str) -> bool {
        client.starts_with(&self.client) && self.resource.is_none_or(|wanted| wanted == resource)
    }
}

/// How events of a watch are distorted. The newest state of each object arrives in the end.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Distortion {
    /// Events arrive late.
    Stale(Duration),
    /// Events within this time are lost: the history has been compacted, and the watch ends with 410.
    Dropped(Duration),
    /// Events within this time arrive together, those of the object that changed last first. The order of events of one
    /// object stays.
    Reordered(Duration),
    /// Each event arrives twice.
    Duplicated,
}

impl Distortion {
    /// How long new events are held back.
    pub(crate) fn holds(self) -> Duration {
        match self {
            Self::Stale(time) | Self::Dropped(time) | Self::Reordered(time) => time,
            Self::Duplicated => Duration::ZERO,
        }
    }
}

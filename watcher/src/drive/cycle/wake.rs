//! When the loop wakes up although nothing has changed.

use crate::snapshots::{PublishedSnapshot, TIME_STEP_MS};
use plimsoll_model::time::Timestamp;
use std::time::Duration;
use tokio::time::Instant;

pub(super) fn earliest(a: Option<Instant>, b: Option<Instant>) -> Option<Instant> {
    match (a, b) {
        (Some(a), Some(b)) => Some(a.min(b)),
        (a, b) => a.or(b),
    }
}

/// Returns when a snapshot will have a time of at least `time`. Always at least one time step after `published`, to
/// avoid a loop on one step.
pub(super) fn wake(time: Timestamp, published: &PublishedSnapshot) -> Instant {
    let step = time.0.saturating_add(TIME_STEP_MS - 1).div_euclid(TIME_STEP_MS).saturating_mul(TIME_STEP_MS);
    let step = step.max(published.snapshot.now.0.saturating_add(TIME_STEP_MS));
    let wait = Duration::from_millis(step.saturating_sub(published.time.0).max(0).unsigned_abs());
    // An overflow means a time that never comes.
    published
        .started_at
        .checked_add(wait)
        .unwrap_or_else(|| published.started_at + Duration::from_secs(365 * 24 * 3600))
}

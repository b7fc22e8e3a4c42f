//! Conversion of Kubernetes times.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use plimsoll_model::time::{Millis, Timestamp};
use std::time::Duration;

/// Milliseconds since the epoch.
#[must_use]
pub fn timestamp(time: &Time) -> Timestamp {
    Timestamp(time.0.as_millisecond())
}

/// Milliseconds since the epoch of a moment in an annotation. The last moment means "never": it is the end of time.
pub(crate) fn moment(at: jiff::Timestamp) -> Timestamp {
    if at == jiff::Timestamp::MAX { Timestamp(i64::MAX) } else { timestamp(&Time(at)) }
}

/// Creation time of an object; the epoch if it is not set.
#[must_use]
pub fn created(metadata: &ObjectMeta) -> Timestamp {
    metadata.creation_timestamp.as_ref().map(timestamp).unwrap_or_default()
}

/// Converts a duration, saturating at the maximum.
pub(crate) fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

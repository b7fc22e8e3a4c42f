//! Times of Kubernetes objects.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use plimsoll_model::time::{Millis, Timestamp};
use std::time::Duration;

/// Milliseconds since the epoch.
pub(crate) fn timestamp(time: &Time) -> Timestamp {
    Timestamp(time.0.as_millisecond())
}

/// When the object was made; the epoch where it does not say.
pub(crate) fn created(metadata: &ObjectMeta) -> Timestamp {
    metadata.creation_timestamp.as_ref().map(timestamp).unwrap_or_default()
}

/// Milliseconds, as many as there is room for.
pub(crate) fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

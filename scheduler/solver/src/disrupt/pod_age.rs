//! Moving young pods costs more.

use plimsoll_model::snapshot::Pod;
use plimsoll_model::time::Timestamp;

/// Age from which on moving a pod has its ordinary cost. The cost is inversely proportional to the age, since a pod
/// that has just been created (also by moving it) is likely to end or to move again soon, and then the saving ends too.
const SETTLED_MILLIS: i64 = 48 * 3600 * 1000;
/// Maximum factor, at an age of three hours or less.
const MAX_FACTOR: i64 = 16;

/// Factor of the cost of moving the pod.
pub(crate) fn factor(pod: &Pod, now: Timestamp) -> i64 {
    let age = now.0.saturating_sub(pod.created.0).max(1);
    (SETTLED_MILLIS / age).clamp(1, MAX_FACTOR)
}

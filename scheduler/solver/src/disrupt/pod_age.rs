//! Moving young pods costs more.

use plimsoll_model::snapshot::Pod;
use plimsoll_model::time::Timestamp;

/// Age from which on moving a pod has its ordinary cost. The cost is inversely proportional to the age, since a pod
/// that has just been created (also by moving it) is likely to end or to move again soon, and then the saving ends too.
const SETTLED_MILLIS: i64 = 48 * 3600 * 1000;
/// Maximum factor, at an age of three hours or less.
const MAX_FACTOR: i64 = 16;

/// Changes by age are planned for at multiples of this time: in a large cluster, the factor of some pod falls each
/// second.
const STEP_MILLIS: i64 = 600 * 1000;

/// Factor of the cost of moving the pod.
pub(crate) fn factor(pod: &Pod, now: Timestamp) -> i64 {
    let age = now.0.saturating_sub(pod.created.0).max(1);
    (SETTLED_MILLIS / age).clamp(1, MAX_FACTOR)
}

/// When a lower factor is planned for. `None` if moving the pod has its ordinary cost.
pub(super) fn next_fall(pod: &Pod, now: Timestamp) -> Option<Timestamp> {
    let factor = factor(pod, now);
    if factor <= 1 {
        return None;
    }
    // From this age on, the factor is lower.
    let age = SETTLED_MILLIS / factor + 1;
    let latest = pod.created.0.saturating_add(age + STEP_MILLIS - 1);
    Some(Timestamp(latest - latest.rem_euclid(STEP_MILLIS)))
}

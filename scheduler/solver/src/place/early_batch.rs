//! The first nodes of a large burst. They are planned separately, so that they can be launched while the rest is being
//! planned.
//!
//! The early batch is a small part of each shape without constraints that involve other pods. Its launches are final,
//! and the rest is planned around them.

use crate::input::context::SolveContext;
use crate::place::pod_groups::{self, PodGroup};

/// Minimum number of pods for an early batch. A plan for fewer pods is complete before EC2 would have answered.
const BURST: usize = 20_000;

/// Maximum number of pods in the early batch: dozens of nodes, planned in a few milliseconds. Its last node may be less
/// full than possible, which is negligible in a large burst.
const AHEAD: usize = 2_000;
/// Work budget of the early batch, about 10 ms: the launches must be sent at once, and are few.
pub(crate) const WORK: u64 = 1_000_000;

/// Removes the early batch from `wanted` and returns it. Empty unless the burst is large.
pub(crate) fn split<'a>(context: &SolveContext<'a>, wanted: &mut [PodGroup<'a>]) -> Vec<PodGroup<'a>> {
    let limited =
        !context.quotas.is_empty() || context.pools.iter().any(|view| view.pool.limits.iter().next().is_some());
    if limited || pod_groups::count(wanted.iter()) < BURST {
        return Vec::new();
    }
    let plain: Vec<&mut PodGroup<'a>> = wanted.iter_mut().filter(|pod_group| is_plain(context, pod_group)).collect();
    let total: usize = plain.iter().map(|pod_group| pod_group.pods.len()).sum();
    // In proportion to all pods, so that the pods of the batch fit together as well as all pods do.
    let part = |pod_group: &mut PodGroup<'a>| {
        let count = pod_group.pods.len() * AHEAD.min(total) / total.max(1);
        PodGroup::plain(pod_group.shape, pod_group.pods.drain(..count).collect())
    };
    plain.into_iter().map(part).filter(|pod_group| !pod_group.pods.is_empty()).collect()
}

/// Whether the placement of these pods neither affects other pods nor depends on them.
fn is_plain(context: &SolveContext<'_>, pod_group: &PodGroup<'_>) -> bool {
    let (shape, rules) = (&context.shapes[pod_group.shape], &context.topology.shapes[pod_group.shape]);
    rules.owns.is_empty()
        && rules.matches.is_empty()
        && shape.hosts.is_free()
        && shape.shape.host_ports.is_empty()
        && shape.shape.volumes.is_empty()
        && context.relaxation.strictest(pod_group.shape) == pod_group.shape
}

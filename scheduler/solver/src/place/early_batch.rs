//! The first nodes of a large burst: planned by themselves, so that they can be launched while all others are still being planned.
//!
//! A small part of each shape that nothing binds to other pods goes ahead. What is planned for it stands: the rest is planned around it.

use crate::input::context::SolveContext;
use crate::place::pod_groups::PodGroup;

/// Pods to place from which on some go ahead: fewer are planned before a cloud would have answered.
const BURST: usize = 20_000;

/// Pods that go ahead at the most: dozens of nodes, planned in a few milliseconds. Their last node may be less full than it could be,
/// which in a burst of that size is nothing.
const AHEAD: usize = 2_000;
/// Work for these, about 10 ms: they are to leave at once, and few of all nodes are theirs.
pub(crate) const WORK: u64 = 1_000_000;

/// Takes from `wanted` what goes ahead; nothing unless it is a large burst.
pub(crate) fn split<'a>(context: &SolveContext<'a>, wanted: &mut [PodGroup<'a>]) -> Vec<PodGroup<'a>> {
    let limited = context.pools.iter().any(|view| view.pool.limits.iter().next().is_some());
    if limited || wanted.iter().map(|pod_group| pod_group.pods.len()).sum::<usize>() < BURST {
        return Vec::new();
    }
    let plain: Vec<&mut PodGroup<'a>> = wanted.iter_mut().filter(|pod_group| is_plain(context, pod_group)).collect();
    let total: usize = plain.iter().map(|pod_group| pod_group.pods.len()).sum();
    // In the proportions of the whole, so that they share nodes as well as all would.
    let part = |pod_group: &mut PodGroup<'a>| {
        let count = pod_group.pods.len() * AHEAD.min(total) / total.max(1);
        PodGroup::plain(pod_group.shape, pod_group.pods.drain(..count).collect())
    };
    plain.into_iter().map(part).filter(|pod_group| !pod_group.pods.is_empty()).collect()
}

/// Whether it matters to no other pod where these go, and to these where others do.
fn is_plain(context: &SolveContext<'_>, pod_group: &PodGroup<'_>) -> bool {
    let (shape, rules) = (&context.shapes[pod_group.shape], &context.topology.shapes[pod_group.shape]);
    rules.owns.is_empty()
        && rules.matches.is_empty()
        && shape.hosts.is_free()
        && shape.shape.host_ports.is_empty()
        && shape.shape.volumes.is_empty()
        && context.relaxation.strictest(pod_group.shape) == pod_group.shape
}

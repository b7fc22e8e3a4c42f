//! Limits how many pods of a burst run on one new node, so that the loss of a node does not affect all of them.

use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};

/// Number of pods up to which there is no limit: twice the kubelet's default of 110 pods per node. Small plans that
/// differ by a few pods therefore all have the same limit, none.
const FEW: usize = 220;

/// Maximum number of pods per new node in a plan for `snapshot`, if it is limited.
pub(crate) fn bound(snapshot: &Snapshot, index: &SnapshotIndex, options: &PlanOptions) -> Option<i64> {
    let pending = index.pending().iter().filter_map(|place| snapshot.pods.get(*place as usize));
    most_pods(pending.filter(|pod| !pod.is_virtual()).count(), options)
}

/// The limit for this number of pending pods. The number is rounded down to a power of two, or one and a half times a
/// power of two, because cached data depends on the limit.
fn most_pods(waiting: usize, options: &PlanOptions) -> Option<i64> {
    if waiting <= FEW || options.max_share_per_node >= 100 {
        return None;
    }
    let power = 1_usize << waiting.ilog2();
    let about = if waiting >= power + power / 2 { power + power / 2 } else { power };
    let share = usize::try_from(options.max_share_per_node).ok()?;
    i64::try_from((about / 100 * share + about % 100 * share / 100).max(FEW / 2)).ok()
}

/// Whether a plan might place more pods without the limit: pods are unplaced, and some node has as many pods as the
/// limit allows.
pub(crate) fn binds(plan: &Plan, most: i64) -> bool {
    let full = |pods: usize| i64::try_from(pods).is_ok_and(|pods| pods >= most);
    !plan.unschedulable.is_empty() && plan.launches.iter().any(|launch| full(launch.pods.len()))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_pods_a_node_takes_a_share_and_of_few_all() {
        let table = [
            (0, 50, None),
            (220, 50, None),
            (221, 50, Some(110)),
            (255, 50, Some(110)),
            (256, 50, Some(128)),
            (383, 50, Some(128)),
            (384, 50, Some(192)),
            (1_000, 50, Some(384)),
            (1_000, 20, Some(153)),
            (1_000, 99, Some(760)),
            (1_000, 100, None),
            (1_000, 0, Some(110)),
            (100_000, 50, Some(49_152)),
        ];
        for (waiting, share, most) in table {
            let options = PlanOptions { max_share_per_node: share, ..PlanOptions::default() };
            assert_eq!(most_pods(waiting, &options), most, "{share} % of {waiting}");
        }
    }
}

//! How many of a burst's pods one new node may take: when it dies, not all of them are to be lost with it.

use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};

/// Pods of a plan up to which one node may have all of them: twice what kubelet takes by default, so that they are few, and plans made while
/// some pods come and go have all the same bound: none.
const FEW: usize = 220;

/// The bound of a plan for `snapshot`, if there is one. Pods that wait are counted only then.
pub(crate) fn bound(snapshot: &Snapshot, index: &SnapshotIndex, options: &PlanOptions) -> Option<i64> {
    if options.max_share_per_node >= 100 {
        return None;
    }
    let pending = index.pending().iter().filter_map(|place| snapshot.pods.get(*place as usize));
    most_pods(pending.filter(|pod| !pod.is_virtual()).count(), options)
}

/// The bound of a plan for so many waiting pods. Their number is rounded down to one and a half times, or once, a power of two: what is kept
/// from one plan to the next holds for one bound.
fn most_pods(waiting: usize, options: &PlanOptions) -> Option<i64> {
    if waiting <= FEW || options.max_share_per_node >= 100 {
        return None;
    }
    let power = 1_usize << waiting.ilog2();
    let about = if waiting >= power + power / 2 { power + power / 2 } else { power };
    let share = usize::try_from(options.max_share_per_node).ok()?;
    i64::try_from((about / 100 * share + about % 100 * share / 100).max(FEW / 2)).ok()
}

/// Whether a plan might place more without its bound: pods are left, and some node is as full as the bound lets it be.
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

//! Bounds the actions of one plan.

use super::MAX_LAUNCHES;
use plimsoll_model::identity::PodUid;
use plimsoll_model::plan::{Plan, PodRef, Termination};
use std::collections::BTreeSet;

/// Actions considered of one plan: half as many as the ledger remembers. The rest comes with the next plan.
const MAX_ACTIONS: usize = 10_000;

/// The first actions of a plan with too many of them; the others get no outcome. A removal is kept only with all of its
/// replacements, and a launch that only replaces nodes only with one of their removals (safety rule 18).
pub(super) fn first_actions(mut plan: Plan, virtual_pods: &BTreeSet<PodUid>) -> Plan {
    if plan.launches.len().saturating_add(plan.terminations.len()) <= MAX_ACTIONS {
        return plan;
    }
    // More launches are never admitted from one plan.
    plan.launches.truncate(MAX_LAUNCHES);
    let room = MAX_ACTIONS.saturating_sub(plan.launches.len());
    let launches = plan.launches.len();
    let (mut kept, mut dropped): (Vec<Termination>, Vec<Termination>) = std::mem::take(&mut plan.terminations)
        .into_iter()
        .partition(|termination| termination.replaced_by.iter().all(|index| *index < launches));
    dropped.extend(kept.split_off(kept.len().min(room)));
    let served = |removals: &[Termination]| -> BTreeSet<usize> {
        removals.iter().flat_map(|termination| termination.replaced_by.iter().copied()).collect()
    };
    let (needed, unneeded) = (served(&kept), served(&dropped));
    let moved: BTreeSet<&PodUid> = dropped.iter().flat_map(|removal| &removal.pods).map(|pod| &pod.uid).collect();
    let only_moves = |pod: &PodRef| moved.contains(&pod.uid) || virtual_pods.contains(&pod.uid);
    // New index per launch; `None` if dropped.
    let (mut places, mut staying) = (Vec::with_capacity(launches), Vec::with_capacity(launches));
    for (index, launch) in plan.launches.into_iter().enumerate() {
        let is_needed = needed.contains(&index) || !unneeded.contains(&index) || !launch.pods.iter().all(only_moves);
        places.push(is_needed.then_some(staying.len()));
        staying.extend(is_needed.then_some(launch));
    }
    for termination in &mut kept {
        termination.replaced_by =
            termination.replaced_by.iter().filter_map(|index| places.get(*index).copied().flatten()).collect();
    }
    Plan { launches: staying, terminations: kept, ..plan }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::plan::Launch;
    use plimsoll_model::snapshot::DisruptionReason;

    fn pod(uid: &str) -> PodRef {
        PodRef { name: format!("shop/{uid}"), uid: uid.into() }
    }

    fn launch(id: &str) -> Launch {
        Launch {
            action_id: id.into(),
            node_pool: "default".into(),
            node_class: "default".to_owned(),
            pods: vec![pod(id)],
            ..Launch::default()
        }
    }

    fn removal(id: &str, replaced_by: &[usize], pods: &[&str]) -> Termination {
        Termination {
            action_id: id.into(),
            node: id.into(),
            reason: DisruptionReason::Drifted,
            pods: pods.iter().map(|uid| pod(uid)).collect(),
            replaced_by: replaced_by.to_vec(),
            ..Termination::default()
        }
    }

    fn ids(plan: &Plan) -> (Vec<&str>, Vec<&str>) {
        let launches = plan.launches.iter().map(|launch| launch.action_id.as_str());
        (launches.collect(), plan.terminations.iter().map(|removal| removal.action_id.as_str()).collect())
    }

    #[test]
    fn a_plan_within_the_bound_is_left_alone() {
        let plan = Plan {
            launches: vec![launch("a")],
            terminations: (1..MAX_ACTIONS).map(|n| removal(&n.to_string(), &[0], &[])).collect(),
            ..Plan::default()
        };
        assert_eq!(first_actions(plan.clone(), &BTreeSet::new()), plan);
    }

    #[test]
    fn the_first_actions_of_a_large_plan_are_kept() {
        let launches: Vec<Launch> = (0..MAX_ACTIONS + 1).map(|n| launch(&n.to_string())).collect();
        // The second removal waits for a launch that is not admitted. The first launch of it only serves this removal.
        let terminations = vec![
            removal("ready", &[2], &["2"]),
            removal("waits", &[0, MAX_LAUNCHES], &["0", "512"]),
            removal("empty", &[], &[]),
        ];
        let first = first_actions(Plan { launches, terminations, ..Plan::default() }, &BTreeSet::new());
        let (launches, removals) = ids(&first);
        assert_eq!((launches.len(), launches[0], launches[1]), (MAX_LAUNCHES - 1, "1", "2"));
        assert_eq!(removals, ["ready", "empty"]);
        assert_eq!(first.terminations[0].replaced_by, [1], "the index follows its launch");
    }

    #[test]
    fn a_replacement_of_a_removal_beyond_the_bound_is_not_launched() {
        let mut launches: Vec<Launch> = ["own", "replacement", "spare"].map(launch).into();
        launches[2].pods = vec![pod("virtual")];
        let mut terminations: Vec<Termination> = (3..MAX_ACTIONS).map(|n| removal(&n.to_string(), &[], &[])).collect();
        terminations.push(removal("late", &[0, 1, 2], &["replacement"]));
        let virtual_pods = ["virtual".into()].into();
        let first = first_actions(Plan { launches, terminations, ..Plan::default() }, &virtual_pods);
        let (launches, removals) = ids(&first);
        assert_eq!(launches, ["own"], "it has a pod that does not move");
        assert_eq!((removals.len(), removals.contains(&"late")), (MAX_ACTIONS - 3, false));
    }
}

//! A plan without some of its actions.

use plimsoll_model::identity::PodUid;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, Plan, Termination};
use std::collections::HashSet;

/// The plan without the unwanted actions and the actions that depend on them: a removal needs all of its replacements,
/// and a replacement needs a removal that it serves or pods of its own. No other part of a plan depends on an action,
/// so the rest is a valid plan. Virtual pods move with their nodes and are no reason to keep a replacement.
#[must_use]
pub fn subset(
    plan: &Plan,
    launch: impl Fn(&Launch) -> bool,
    termination: impl Fn(&Termination) -> bool,
    is_virtual: impl Fn(&PodUid) -> bool,
) -> Plan {
    let selection = Selection::new(plan, launch, termination, is_virtual);
    let mut places = Vec::with_capacity(plan.launches.len());
    let mut place = 0;
    for kept in &selection.launches {
        places.push(place);
        place += usize::from(*kept);
    }
    let moved = |one: &Termination| Termination {
        replaced_by: one.replaced_by.iter().filter_map(|index| places.get(*index).copied()).collect(),
        ..one.clone()
    };
    let whole = place == plan.launches.len();
    let launches: Vec<Launch> = chosen(&plan.launches, &selection.launches).cloned().collect();
    Plan {
        snapshot_sequence: plan.snapshot_sequence,
        ledger: plan.ledger,
        placements: plan.placements.clone(),
        terminations: chosen(&plan.terminations, &selection.terminations).map(moved).collect(),
        unschedulable: plan.unschedulable.clone(),
        ignored: plan.ignored.clone(),
        pool_problems: plan.pool_problems.clone(),
        postponed_removals: plan.postponed_removals.clone(),
        hourly: if whole { plan.hourly } else { launches.iter().map(Launch::price).sum() },
        // The bound applies to all pods of the plan. For a part, no bound is known.
        lower_bound: if whole { plan.lower_bound } else { MicroUsdPerHour(0) },
        next_time: plan.next_time,
        launches,
    }
}

fn chosen<'a, T>(list: &'a [T], kept: &'a [bool]) -> impl Iterator<Item = &'a T> {
    list.iter().zip(kept).filter(|(_, kept)| **kept).map(|(one, _)| one)
}

/// Actions that stay, by index in the plan.
struct Selection {
    launches: Vec<bool>,
    terminations: Vec<bool>,
}

impl Selection {
    fn new(
        plan: &Plan,
        launch: impl Fn(&Launch) -> bool,
        termination: impl Fn(&Termination) -> bool,
        is_virtual: impl Fn(&PodUid) -> bool,
    ) -> Self {
        let mut selection = Self {
            launches: plan.launches.iter().map(launch).collect(),
            terminations: plan.terminations.iter().map(termination).collect(),
        };
        // By launch: how many of the removals that it serves stay; `None` if it serves none.
        let mut needed: Vec<Option<usize>> = vec![None; plan.launches.len()];
        for (one, stays) in plan.terminations.iter().zip(&mut selection.terminations) {
            *stays &= one.replaced_by.iter().all(|index| selection.launches.get(*index).copied().unwrap_or(false));
            for index in &one.replaced_by {
                if let Some(needed) = needed.get_mut(*index) {
                    *needed = Some(needed.unwrap_or(0) + usize::from(*stays));
                }
            }
        }
        let moved: HashSet<&PodUid> = plan.terminations.iter().flat_map(|one| &one.pods).map(|pod| &pod.uid).collect();
        let has_own_pods =
            |launch: &Launch| launch.pods.iter().any(|pod| !moved.contains(&pod.uid) && !is_virtual(&pod.uid));
        // A removal that stays has and keeps all of its replacements, so one pass is enough.
        for ((launch, needed), stays) in plan.launches.iter().zip(needed).zip(&mut selection.launches) {
            *stays &= needed != Some(0) || has_own_pods(launch);
        }
        selection
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::CapacityType;
    use plimsoll_model::plan::{OfferingChoice, Placement, PodRef, Reason, ReasonCode, Unschedulable};
    use plimsoll_model::snapshot::{DisruptionReason, IgnoredPod, LedgerPosition};
    use plimsoll_model::time::Timestamp;

    fn pod(uid: &str) -> PodRef {
        PodRef { name: format!("default/{uid}"), uid: uid.into() }
    }

    fn launch(id: &str, price: i64, pods: &[&str]) -> Launch {
        let offering = OfferingChoice {
            instance_type: "c5.large".to_owned(),
            zone: "a".to_owned(),
            capacity_type: CapacityType::Spot,
            price: MicroUsdPerHour(price),
            reservation: None,
        };
        Launch {
            action_id: id.into(),
            node_pool: "default".into(),
            node_class: "default".to_owned(),
            offerings: std::sync::Arc::new(vec![offering]),
            pods: pods.iter().map(|uid| pod(uid)).collect(),
            ..Launch::default()
        }
    }

    fn termination(id: &str, replaced_by: &[usize], pods: &[&str]) -> Termination {
        Termination {
            action_id: id.into(),
            node: id.into(),
            reason: DisruptionReason::Underutilized,
            pods: pods.iter().map(|uid| pod(uid)).collect(),
            replaced_by: replaced_by.to_vec(),
            ..Termination::default()
        }
    }

    fn plan() -> Plan {
        let reasons = vec![Reason {
            node_pool: "default".to_owned(),
            code: ReasonCode::NodePoolNotReady,
            message: "its node class is not ready".to_owned(),
        }];
        Plan {
            snapshot_sequence: 7,
            ledger: LedgerPosition { epoch: 1, sequence: 2 },
            launches: vec![launch("l0", 10, &["a"]), launch("l1", 20, &["b"]), launch("l2", 30, &["m"])],
            placements: vec![Placement { node: "n".into(), pods: vec![pod("p")] }],
            terminations: vec![termination("t0", &[], &[]), termination("t1", &[2], &["m"])],
            postponed_removals: vec!["later".into()],
            unschedulable: vec![Unschedulable { pod: pod("u"), reasons: reasons.clone().into() }],
            ignored: vec![IgnoredPod { uid: "i".into(), pod: "shop/i".to_owned(), reason: "gated".to_owned() }],
            pool_problems: reasons,
            hourly: MicroUsdPerHour(60),
            lower_bound: MicroUsdPerHour(50),
            next_time: Some(Timestamp(9)),
        }
    }

    fn ids(plan: &Plan) -> Vec<&str> {
        let launches = plan.launches.iter().map(|one| one.action_id.as_str());
        launches.chain(plan.terminations.iter().map(|one| one.action_id.as_str())).collect()
    }

    #[test]
    fn all_of_it_is_the_plan_itself() {
        assert_eq!(subset(&plan(), |_| true, |_| true, |_| false), plan());
    }

    #[test]
    fn indices_follow_the_launches_that_stay() {
        let part = subset(&plan(), |one| one.action_id.as_str() != "l0", |_| true, |_| false);
        assert_eq!(ids(&part), ["l1", "l2", "t0", "t1"]);
        assert_eq!(part.terminations[1].replaced_by, [1]);
        assert_eq!((part.hourly, part.lower_bound), (MicroUsdPerHour(50), MicroUsdPerHour(0)));
        let mut dear = plan();
        dear.launches.push(launch("l3", i64::MAX, &["c"]));
        let part = subset(&dear, |one| one.action_id.as_str() != "l0", |_| true, |_| false);
        assert_eq!(part.hourly, MicroUsdPerHour(i64::MAX), "node costs can make any price");
    }

    #[test]
    fn a_replacement_stays_while_one_of_the_removals_that_it_serves_stays() {
        for unwanted in ["t1", "t2"] {
            let mut plan = plan();
            plan.terminations.push(termination("t2", &[2], &["m"]));
            let part = subset(&plan, |_| true, |one| one.action_id.as_str() != unwanted, |_| false);
            assert_eq!((part.launches.len(), part.terminations.len()), (3, 2), "without {unwanted}");
        }
    }

    #[test]
    fn a_removal_goes_with_its_replacement_and_the_other_way_round() {
        let part = subset(&plan(), |one| one.action_id.as_str() != "l2", |_| true, |_| false);
        assert_eq!(ids(&part), ["l0", "l1", "t0"]);
        let part = subset(&plan(), |_| true, |one| one.action_id.as_str() != "t1", |_| false);
        assert_eq!(ids(&part), ["l0", "l1", "t0"]);
        // Also if the removal would keep capacity for virtual pods.
        let mut plan = plan();
        plan.launches[2].pods.push(pod("v"));
        let without = |is_virtual: bool| {
            let part =
                subset(&plan, |_| true, |one| one.action_id.as_str() != "t1", |uid| is_virtual && uid.as_str() == "v");
            part.launches.len()
        };
        assert_eq!((without(true), without(false)), (2, 3));
    }
}

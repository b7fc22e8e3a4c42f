//! Reduces a plan to a subset of its actions.

use plimsoll_model::identity::PodUid;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, Plan, Termination};

/// Returns the plan without the actions that the filters reject, and without actions that depend on rejected actions.
/// Nothing else in a plan depends on actions, so the result is a valid plan. A replacement launch is not kept for
/// virtual pods alone, since their room moves with the removed node.
#[must_use]
pub fn subset(
    plan: &Plan,
    launch: impl Fn(&Launch) -> bool,
    termination: impl Fn(&Termination) -> bool,
    is_virtual: impl Fn(&PodUid) -> bool,
) -> Plan {
    let mut launches: Vec<bool> = plan.launches.iter().map(launch).collect();
    let mut terminations: Vec<bool> = plan.terminations.iter().map(termination).collect();
    // Each iteration drops at least one action, except the last.
    while drop_dependents(plan, &mut launches, &mut terminations, &is_virtual) {}
    // Index of each kept launch in the new list.
    let new_indices: Vec<usize> =
        (0..launches.len()).map(|end| launches.iter().take(end).filter(|kept| **kept).count()).collect();
    let reindexed = |termination: &Termination| Termination {
        replaced_by: termination.replaced_by.iter().filter_map(|index| new_indices.get(*index).copied()).collect(),
        ..termination.clone()
    };
    let complete = launches.iter().all(|kept| *kept);
    let launches: Vec<Launch> = filter_kept(&plan.launches, &launches).cloned().collect();
    Plan {
        terminations: filter_kept(&plan.terminations, &terminations).map(reindexed).collect(),
        hourly: if complete {
            plan.hourly
        } else {
            MicroUsdPerHour(launches.iter().map(|launch| launch.price().0).sum())
        },
        // The lower bound applies to all pods of the plan. No bound is known for a subset.
        lower_bound: if complete { plan.lower_bound } else { MicroUsdPerHour(0) },
        launches,
        ..plan.clone()
    }
}

fn filter_kept<'a, T>(list: &'a [T], kept: &'a [bool]) -> impl Iterator<Item = &'a T> {
    list.iter().zip(kept).filter(|(_, kept)| **kept).map(|(item, _)| item)
}

/// Drops removals without all of their replacements, and launches that only replace dropped removals. Returns whether
/// anything was dropped.
fn drop_dependents(
    plan: &Plan,
    launches: &mut [bool],
    terminations: &mut [bool],
    is_virtual: &impl Fn(&PodUid) -> bool,
) -> bool {
    let before = launches.iter().chain(&*terminations).filter(|kept| **kept).count();
    for (termination, kept) in plan.terminations.iter().zip(&mut *terminations) {
        *kept &= termination.replaced_by.iter().all(|index| launches.get(*index).copied().unwrap_or(false));
    }
    for (index, kept) in launches.iter_mut().enumerate() {
        let (mut serves, mut serves_kept) = (false, false);
        for (_, kept) in plan
            .terminations
            .iter()
            .zip(&*terminations)
            .filter(|(termination, _)| termination.replaced_by.contains(&index))
        {
            serves = true;
            serves_kept |= *kept;
        }
        if serves && !serves_kept {
            *kept &= plan.launches.get(index).is_some_and(|launch| has_other_pods(plan, launch, is_virtual));
        }
    }
    launches.iter().chain(&*terminations).filter(|kept| **kept).count() < before
}

/// Whether the launch serves pods that exist and that no removal moves.
fn has_other_pods(plan: &Plan, launch: &Launch, is_virtual: &impl Fn(&PodUid) -> bool) -> bool {
    let moves =
        |uid: &PodUid| plan.terminations.iter().any(|termination| termination.pods.iter().any(|pod| pod.uid == *uid));
    launch.pods.iter().any(|pod| !moves(&pod.uid) && !is_virtual(&pod.uid))
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::CapacityType;
    use plimsoll_model::plan::{OfferingChoice, PodRef};
    use plimsoll_model::snapshot::DisruptionReason;

    fn pod(uid: &str) -> PodRef {
        PodRef { name: format!("default/{uid}"), uid: uid.into() }
    }

    fn launch(id: &str, price: i64, pods: &[&str]) -> Launch {
        let offering = OfferingChoice {
            instance_type: "c5.large".to_owned(),
            zone: "a".to_owned(),
            capacity_type: CapacityType::Spot,
            price: MicroUsdPerHour(price),
        };
        Launch {
            action_id: id.into(),
            node_pool: "default".into(),
            node_class: "default".to_owned(),
            offerings: std::sync::Arc::new(vec![offering]),
            requirements: std::sync::Arc::default(),
            requests: Default::default(),
            taints: Vec::new(),
            labels: Default::default(),
            pods: pods.iter().map(|uid| pod(uid)).collect(),
            prioritized: false,
            why: String::new(),
        }
    }

    fn termination(id: &str, replaced_by: &[usize], pods: &[&str]) -> Termination {
        Termination {
            action_id: id.into(),
            node: id.into(),
            reason: DisruptionReason::Underutilized,
            pods: pods.iter().map(|uid| pod(uid)).collect(),
            replaced_by: replaced_by.to_vec(),
            moved_to: Vec::new(),
            saving: MicroUsdPerHour(0),
        }
    }

    fn plan() -> Plan {
        Plan {
            launches: vec![launch("l0", 10, &["a"]), launch("l1", 20, &["b"]), launch("l2", 30, &["m"])],
            terminations: vec![termination("t0", &[], &[]), termination("t1", &[2], &["m"])],
            hourly: MicroUsdPerHour(60),
            lower_bound: MicroUsdPerHour(50),
            ..Plan::default()
        }
    }

    fn ids(plan: &Plan) -> Vec<&str> {
        let launches = plan.launches.iter().map(|action| action.action_id.as_str());
        launches.chain(plan.terminations.iter().map(|action| action.action_id.as_str())).collect()
    }

    #[test]
    fn keeping_all_actions_returns_the_same_plan() {
        assert_eq!(subset(&plan(), |_| true, |_| true, |_| false), plan());
    }

    #[test]
    fn replacement_indices_refer_to_the_remaining_launches() {
        let part = subset(&plan(), |action| action.action_id.as_str() != "l0", |_| true, |_| false);
        assert_eq!(ids(&part), ["l1", "l2", "t0", "t1"]);
        assert_eq!(part.terminations[1].replaced_by, [1]);
        assert_eq!((part.hourly, part.lower_bound), (MicroUsdPerHour(50), MicroUsdPerHour(0)));
    }

    #[test]
    fn a_removal_and_its_replacement_are_dropped_together() {
        let part = subset(&plan(), |action| action.action_id.as_str() != "l2", |_| true, |_| false);
        assert_eq!(ids(&part), ["l0", "l1", "t0"]);
        let part = subset(&plan(), |_| true, |action| action.action_id.as_str() != "t1", |_| false);
        assert_eq!(ids(&part), ["l0", "l1", "t0"]);
        // Virtual pods do not keep the replacement of a dropped removal.
        let mut plan = plan();
        plan.launches[2].pods.push(pod("v"));
        let without = |is_virtual: bool| {
            let part = subset(
                &plan,
                |_| true,
                |action| action.action_id.as_str() != "t1",
                |uid| is_virtual && uid.as_str() == "v",
            );
            part.launches.len()
        };
        assert_eq!((without(true), without(false)), (2, 3));
    }
}

//! A plan without some of its actions.

use plimsoll_model::identity::PodUid;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, Plan, Termination};

/// The plan without the actions that are not wanted, and without those that rest on them. Actions do not depend on
/// anything else in a plan, so what is left is a plan. Room for virtual pods moves with nodes as well, and is no reason of its own for a launch
/// that replaces one.
#[must_use]
pub fn subset(
    plan: &Plan,
    launch: impl Fn(&Launch) -> bool,
    termination: impl Fn(&Termination) -> bool,
    is_virtual: impl Fn(&PodUid) -> bool,
) -> Plan {
    let mut launches: Vec<bool> = plan.launches.iter().map(launch).collect();
    let mut terminations: Vec<bool> = plan.terminations.iter().map(termination).collect();
    // Each round drops at least one action, or is the last.
    while drop_dependents(plan, &mut launches, &mut terminations, &is_virtual) {}
    // The new place of each launch that stays.
    let places: Vec<usize> =
        (0..launches.len()).map(|end| launches.iter().take(end).filter(|kept| **kept).count()).collect();
    let moved = |one: &Termination| Termination {
        replaced_by: one.replaced_by.iter().filter_map(|index| places.get(*index).copied()).collect(),
        ..one.clone()
    };
    let whole = launches.iter().all(|kept| *kept);
    let launches: Vec<Launch> = chosen(&plan.launches, &launches).cloned().collect();
    Plan {
        terminations: chosen(&plan.terminations, &terminations).map(moved).collect(),
        hourly: if whole { plan.hourly } else { MicroUsdPerHour(launches.iter().map(|one| one.price().0).sum()) },
        // The bound was for all of its pods; nothing is known of a part's.
        lower_bound: if whole { plan.lower_bound } else { MicroUsdPerHour(0) },
        launches,
        ..plan.clone()
    }
}

fn chosen<'a, T>(list: &'a [T], kept: &'a [bool]) -> impl Iterator<Item = &'a T> {
    list.iter().zip(kept).filter(|(_, kept)| **kept).map(|(one, _)| one)
}

/// Drops removals that lack a replacement, and replacements for nothing but dropped removals. Returns whether there were any.
fn drop_dependents(
    plan: &Plan,
    launches: &mut [bool],
    terminations: &mut [bool],
    is_virtual: &impl Fn(&PodUid) -> bool,
) -> bool {
    let before = launches.iter().chain(&*terminations).filter(|kept| **kept).count();
    for (one, kept) in plan.terminations.iter().zip(&mut *terminations) {
        *kept &= one.replaced_by.iter().all(|index| launches.get(*index).copied().unwrap_or(false));
    }
    for (index, kept) in launches.iter_mut().enumerate() {
        let (mut serves, mut serves_kept) = (false, false);
        for (_, kept) in
            plan.terminations.iter().zip(&*terminations).filter(|(one, _)| one.replaced_by.contains(&index))
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

/// Whether the launch is for pods that exist and that no removal moves.
fn has_other_pods(plan: &Plan, launch: &Launch, is_virtual: &impl Fn(&PodUid) -> bool) -> bool {
    let moves = |uid: &PodUid| plan.terminations.iter().any(|one| one.pods.iter().any(|pod| pod.uid == *uid));
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
    }

    #[test]
    fn a_removal_goes_with_its_replacement_and_the_other_way_round() {
        let part = subset(&plan(), |one| one.action_id.as_str() != "l2", |_| true, |_| false);
        assert_eq!(ids(&part), ["l0", "l1", "t0"]);
        let part = subset(&plan(), |_| true, |one| one.action_id.as_str() != "t1", |_| false);
        assert_eq!(ids(&part), ["l0", "l1", "t0"]);
        // Also where it would keep room for virtual pods.
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

//! Removals: only nodes that may go, with a place for each of their pods, within budgets.

use crate::Violation;
use crate::facts::Facts;
use plimsoll_model::plan::{Plan, Termination};
use plimsoll_model::snapshot::{DisruptionReason, Node, Pod};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let mut seen: BTreeSet<&str> = BTreeSet::new();
    let refused: BTreeSet<&str> = plan.unschedulable.iter().map(|one| one.pod.uid.as_str()).collect();
    for termination in &plan.terminations {
        let name = termination.node.as_str();
        let Some(node) = facts.node(name) else {
            found.push(Violation::UnknownNode(name.to_owned()));
            continue;
        };
        let twice = (!seen.insert(name)).then(|| "it is removed twice".to_owned());
        let problem = twice.or_else(|| of_node(facts, termination, node));
        if let Some(problem) = problem.or_else(|| of_pods(facts, plan, termination, node, &refused)) {
            found.push(Violation::BadTermination { node: name.to_owned(), problem });
        }
    }
    pools(facts, plan, found);
    budgets(facts, plan, found);
}

/// No pod and no budget holds an expired node; one that drifted does not wait for its pods if it has a terminationGracePeriod.
fn waits(termination: &Termination, node: &Node) -> bool {
    match termination.reason {
        reason if reason.is_forced() => false,
        DisruptionReason::Drifted => node.termination_grace_period.is_none(),
        _ => true,
    }
}

fn of_node(facts: &Facts<'_>, termination: &Termination, node: &Node) -> Option<String> {
    let now = facts.snapshot.now;
    if node.node_pool.is_none() {
        return Some("no pool made it".to_owned());
    }
    if node.deleting {
        return Some("it is being deleted already".to_owned());
    }
    let holds = match termination.reason {
        DisruptionReason::Expired => node.expires.is_some_and(|at| at <= now),
        DisruptionReason::Drifted => node.drifted.is_some(),
        DisruptionReason::Empty => termination.pods.is_empty(),
        DisruptionReason::Underutilized | DisruptionReason::Interrupted => true,
    };
    if !holds {
        return Some(format!("it is not {}", termination.reason.as_str()));
    }
    (node.do_not_disrupt && !termination.reason.is_forced()).then(|| "it is marked do-not-disrupt".to_owned())
}

fn of_pods(
    facts: &Facts<'_>,
    plan: &Plan,
    termination: &Termination,
    node: &Node,
    refused: &BTreeSet<&str>,
) -> Option<String> {
    if termination.replaced_by.iter().any(|index| *index >= plan.launches.len()) {
        return Some("it names a launch that the plan does not have".to_owned());
    }
    let launched = termination.replaced_by.iter().filter_map(|index| plan.launches.get(*index));
    let places: BTreeSet<&str> = launched
        .flat_map(|launch| &launch.pods)
        .chain(termination.moved_to.iter().flat_map(|one| &one.pods))
        .map(|pod| pod.uid.as_str())
        .collect();
    let forced = termination.reason.is_forced();
    let pods = facts.there(node.name.as_str());
    for pod in pods {
        let protected = !pod.terminating && pod.do_not_disrupt_until.is_some_and(|until| until > facts.snapshot.now);
        if protected && waits(termination, node) {
            return Some(format!("pod {} is marked do-not-disrupt", pod.full_name()));
        }
        if !pod.moves() || protected || is_blocked(facts, pod) {
            continue;
        }
        let accounted = places.contains(pod.uid.as_str()) || (forced && refused.contains(pod.uid.as_str()));
        if !accounted {
            return Some(format!("pod {} has no other place", pod.full_name()));
        }
    }
    None
}

fn is_blocked(facts: &Facts<'_>, pod: &Pod) -> bool {
    let budgets = facts.snapshot.pod_disruption_budgets.iter();
    let mut own = budgets.filter(|one| pod.pod_disruption_budgets.contains(&one.name));
    own.any(|one| one.fully_blocking)
}

/// Nodes on their way out at once, by pool: expired ones count first, then those whose reason allows fewest.
fn pools(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let mut by_pool: BTreeMap<&str, Vec<(bool, u32)>> = BTreeMap::new();
    for termination in &plan.terminations {
        let node = facts.node(termination.node.as_str());
        let Some(pool) = node.and_then(|node| facts.pool(node.node_pool.as_ref()?.as_str())) else { continue };
        let expired = termination.reason == DisruptionReason::Expired;
        let allowed = pool.disruption.allowed.get(&termination.reason).copied().unwrap_or(u32::MAX);
        by_pool.entry(pool.name.as_str()).or_default().push((!expired, if expired { u32::MAX } else { allowed }));
    }
    for (pool, mut removals) in by_pool {
        removals.sort_unstable();
        let over = removals.iter().enumerate().find(|(before, (_, allowed))| *before >= *allowed as usize);
        if let Some((before, (_, allowed))) = over {
            let problem = format!("pool {pool} allows {allowed} removals at once, this is one more after {before}");
            found.push(Violation::BadTermination { node: String::new(), problem });
        }
    }
}

/// Evictions by disruption budget: a node may be drained as long as there is room for one pod, but not beside others that use it up.
fn budgets(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let mut by_budget: BTreeMap<&str, Vec<(bool, i32)>> = BTreeMap::new();
    for termination in &plan.terminations {
        let Some(node) = facts.node(termination.node.as_str()) else { continue };
        let mut evictions: BTreeMap<&str, i32> = BTreeMap::new();
        let pods = facts.there(node.name.as_str());
        for pod in pods.filter(|pod| !pod.terminating && !pod.stays_with_node) {
            if pod.pod_disruption_budgets.len() > 1 && waits(termination, node) {
                let problem = format!("pod {} has two PodDisruptionBudgets", pod.full_name());
                found.push(Violation::BadTermination { node: node.name.0.clone(), problem });
            }
            for name in &pod.pod_disruption_budgets {
                *evictions.entry(name).or_default() += 1;
            }
        }
        for (name, count) in evictions {
            by_budget.entry(name).or_default().push((waits(termination, node), count));
        }
    }
    for (name, mut removals) in by_budget {
        let budget = facts.snapshot.pod_disruption_budgets.iter().find(|one| one.name == name);
        let allowed = budget.filter(|one| !one.fully_blocking).map_or(0, |one| one.disruptions_allowed);
        // Those that do not wait first, then the smallest: if this order does not hold, none does.
        removals.sort_unstable();
        let mut used = 0_i32;
        for (waits, count) in removals {
            if waits && used >= allowed {
                let problem = format!("PodDisruptionBudget {name} allows {allowed} evictions");
                found.push(Violation::BadTermination { node: String::new(), problem });
                break;
            }
            used = used.saturating_add(count);
        }
    }
}

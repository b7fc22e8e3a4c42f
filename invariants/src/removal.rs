//! Removals: only nodes that may go, with a place for each of their pods, within budgets.

use crate::{Facts, Violation};
use plimsoll_model::plan::{Plan, Termination};
use plimsoll_model::snapshot::{DisruptionReason, Node, PodState};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let mut used: BTreeMap<(&str, DisruptionReason), u32> = BTreeMap::new();
    for termination in &plan.terminations {
        let Some(node) = facts.snapshot.nodes.iter().find(|node| node.name == termination.node) else {
            found.push(Violation::UnknownNode(termination.node.0.clone()));
            continue;
        };
        if let Some(problem) = problem(facts, plan, termination, node) {
            found.push(Violation::BadTermination { node: node.name.0.clone(), problem });
        }
        if let Some(pool) = &node.node_pool {
            *used.entry((pool.as_str(), termination.reason)).or_default() += 1;
        }
    }
    for ((name, reason), count) in used {
        let pool = facts.snapshot.node_pools.iter().find(|pool| pool.name.as_str() == name);
        let allowed = pool.and_then(|pool| pool.disruption.allowed.get(&reason));
        if allowed.is_some_and(|allowed| count > *allowed) {
            let problem = format!("pool {name} allows fewer than {count} removals for {}", reason.as_str());
            found.push(Violation::BadTermination { node: String::new(), problem });
        }
    }
}

fn problem(facts: &Facts<'_>, plan: &Plan, termination: &Termination, node: &Node) -> Option<String> {
    if node.node_pool.is_none() {
        return Some("no pool made it".to_owned());
    }
    if node.do_not_disrupt {
        return Some("it is marked do-not-disrupt".to_owned());
    }
    if termination.replaced_by.iter().any(|index| *index >= plan.launches.len()) {
        return Some("it names a launch that the plan does not have".to_owned());
    }
    let launched = termination.replaced_by.iter().filter_map(|index| plan.launches.get(*index));
    let places: BTreeSet<&str> = launched
        .flat_map(|launch| &launch.pods)
        .chain(termination.moved_to.iter().flat_map(|one| &one.pods))
        .map(|pod| pod.uid.as_str())
        .collect();
    let pods = facts.snapshot.pods.iter().filter(|pod| pod.state == PodState::Bound(node.name.clone()));
    for pod in pods.filter(|pod| !pod.terminating) {
        if pod.do_not_disrupt_until.is_some_and(|until| until > facts.snapshot.now) {
            return Some(format!("pod {} is marked do-not-disrupt", pod.full_name()));
        }
        if pod.stays_with_node {
            continue;
        }
        if !places.contains(pod.uid.as_str()) {
            return Some(format!("pod {} has no other place", pod.full_name()));
        }
        let blocked = pod.pod_disruption_budgets.iter().any(|name| {
            let budget = facts.snapshot.pod_disruption_budgets.iter().find(|one| one.name == *name);
            budget.is_none_or(|one| one.fully_blocking || one.disruptions_allowed <= 0)
        });
        if blocked || pod.pod_disruption_budgets.len() > 1 {
            return Some(format!("a PodDisruptionBudget forbids the eviction of {}", pod.full_name()));
        }
    }
    None
}

//! Checks removals: the node may be removed, each of its pods has another place, and budgets hold.

use crate::Violation;
use crate::facts::Facts;
use crate::launches::{pool_usage, usage};
use plimsoll_model::plan::{Plan, Termination};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{DisruptionReason, Node, NodePool, NodeState, Pod, PodState};
use std::collections::{BTreeMap, BTreeSet};

/// What the nodes of pools count against their limits, as far as it was necessary.
type PoolUsages<'a> = BTreeMap<&'a str, Resources>;

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, violations: &mut Vec<Violation>) {
    let mut removed: BTreeSet<&str> = BTreeSet::new();
    let refused: BTreeSet<&str> =
        plan.unschedulable.iter().map(|unschedulable| unschedulable.pod.uid.as_str()).collect();
    let mut usages = PoolUsages::new();
    for termination in &plan.terminations {
        let name = termination.node.as_str();
        let Some(node) = facts.node(name) else {
            violations.push(Violation::UnknownNode(name.to_owned()));
            continue;
        };
        let twice = (!removed.insert(name)).then(|| "it is removed twice".to_owned());
        let problem = twice.or_else(|| node_problem(facts, termination, node));
        if let Some(problem) = problem.or_else(|| pods_problem(facts, plan, termination, node, &refused, &mut usages)) {
            violations.push(Violation::BadTermination { node: name.to_owned(), problem });
        }
    }
    check_pool_budgets(facts, plan, violations);
    check_rollout_limits(facts, plan, violations);
    check_pod_budgets(facts, plan, violations);
}

/// Whether the removal must respect protected pods and disruption budgets. The removal of an expired node does not, and
/// neither does the removal of a drifted node with a terminationGracePeriod.
fn respects_evictions(termination: &Termination, node: &Node) -> bool {
    match termination.reason {
        reason if reason.is_forced() => false,
        DisruptionReason::Drifted => node.termination_grace_period.is_none(),
        _ => true,
    }
}

fn node_problem(facts: &Facts<'_>, termination: &Termination, node: &Node) -> Option<String> {
    let now = facts.snapshot.now;
    if node.node_pool.is_none() {
        return Some("no pool made it".to_owned());
    }
    if node.deleting {
        return Some("it is being deleted already".to_owned());
    }
    let reason_applies = match termination.reason {
        DisruptionReason::Expired => node.expires.is_some_and(|at| at <= now),
        DisruptionReason::Drifted => node.drifted.is_some(),
        DisruptionReason::Empty => termination.pods.is_empty(),
        DisruptionReason::Underutilized => true,
        // The actuator removes interrupted nodes without a plan.
        DisruptionReason::Interrupted => false,
    };
    if !reason_applies {
        return Some(format!("it is not {}", termination.reason.as_str()));
    }
    (node.do_not_disrupt && !termination.reason.is_forced()).then(|| "it is marked do-not-disrupt".to_owned())
}

fn pods_problem<'a>(
    facts: &Facts<'a>,
    plan: &Plan,
    termination: &Termination,
    node: &Node,
    refused: &BTreeSet<&str>,
    usages: &mut PoolUsages<'a>,
) -> Option<String> {
    if termination.replaced_by.iter().any(|index| *index >= plan.launches.len()) {
        return Some("it names a launch that the plan does not have".to_owned());
    }
    let launched = termination.replaced_by.iter().filter_map(|index| plan.launches.get(*index));
    let placed: BTreeSet<&str> = launched
        .flat_map(|launch| &launch.pods)
        .chain(termination.moved_to.iter().flat_map(|placement| &placement.pods))
        .map(|pod| pod.uid.as_str())
        .collect();
    let forced = termination.reason.is_forced();
    let mut unplanned = None;
    let pods = facts.pods_on(node.name.as_str());
    for pod in pods {
        let protected = !pod.terminating && pod.do_not_disrupt_until.is_some_and(|until| until > facts.snapshot.now);
        if protected && respects_evictions(termination, node) {
            return Some(format!("pod {} is marked do-not-disrupt", pod.full_name()));
        }
        // Nothing keeps a pod on a node that it only waits for.
        let runs = matches!(pod.state, PodState::Bound(_));
        if !pod.moves() || (runs && (protected || is_blocked(facts, pod))) {
            continue;
        }
        let accounted = placed.contains(pod.uid.as_str())
            || (forced && refused.contains(pod.uid.as_str()))
            || *unplanned.get_or_insert_with(|| are_pods_unplanned(facts, plan, termination, node, usages));
        if !accounted {
            return Some(format!("pod {} has no other place", pod.full_name()));
        }
    }
    None
}

/// Whether the pods of a drifted or expired node need no other place: a static pool gets another node. That also holds
/// if the pool of a drifted node is so close to its limits that another node of the same size can only follow.
fn are_pods_unplanned<'a>(
    facts: &Facts<'a>,
    plan: &Plan,
    termination: &Termination,
    node: &Node,
    usages: &mut PoolUsages<'a>,
) -> bool {
    let pool = node.node_pool.as_ref().and_then(|pool| facts.pool(pool.as_str()));
    let is_drifted = termination.reason == DisruptionReason::Drifted;
    let is_replaced = is_drifted || termination.reason == DisruptionReason::Expired;
    let Some(pool) = pool.filter(|_| is_replaced) else { return false };
    let mut launched = termination.replaced_by.iter().filter_map(|index| plan.launches.get(*index));
    let has_successor = pool.replicas.is_some() && launched.any(|launch| launch.node_pool == pool.name);
    has_successor || (is_drifted && is_full(facts, pool, node, usages))
}

fn is_full<'a>(facts: &Facts<'a>, pool: &'a NodePool, node: &Node, usages: &mut PoolUsages<'a>) -> bool {
    let asked = usage(facts, pool, node);
    let used = usages.entry(pool.name.as_str()).or_insert_with(|| pool_usage(facts, pool));
    let exceeds =
        |name: &str, limit: i64| asked.get(name) > 0 && used.get(name).saturating_add(asked.get(name)) > limit;
    pool.limits.iter().any(|(name, limit)| exceeds(name, limit))
}

/// Whether a PodDisruptionBudget keeps the pod on its node. A terminating pod ends anyway.
fn is_blocked(facts: &Facts<'_>, pod: &Pod) -> bool {
    let budgets = facts.snapshot.pod_disruption_budgets.iter();
    let mut covering = budgets.filter(|budget| pod.pod_disruption_budgets.contains(&budget.name));
    !pod.terminating && covering.any(|budget| budget.fully_blocking)
}

/// Checks the disruption budgets of pools. Expired nodes count first, then reasons with the smallest budget.
fn check_pool_budgets(facts: &Facts<'_>, plan: &Plan, violations: &mut Vec<Violation>) {
    let mut by_pool: BTreeMap<&str, Vec<(bool, u32)>> = BTreeMap::new();
    for termination in &plan.terminations {
        let node = facts.node(termination.node.as_str());
        let Some(pool) = node.and_then(|node| facts.pool(node.node_pool.as_ref()?.as_str())) else { continue };
        let expired = termination.reason == DisruptionReason::Expired;
        // Budgets count only nodes in service.
        if !expired && pool.replicas.is_some() && node.is_some_and(|node| node.state == NodeState::Registered) {
            continue;
        }
        let allowed = pool.disruption.allowed.get(&termination.reason).copied().unwrap_or(u32::MAX);
        by_pool.entry(pool.name.as_str()).or_default().push((!expired, if expired { u32::MAX } else { allowed }));
    }
    for (pool, mut removals) in by_pool {
        removals.sort_unstable();
        let over = removals.iter().enumerate().find(|(before, (_, allowed))| *before >= *allowed as usize);
        if let Some((before, (_, allowed))) = over {
            let problem = format!("pool {pool} allows {allowed} removals at once, this is one more after {before}");
            violations.push(Violation::BadTermination { node: String::new(), problem });
        }
    }
}

/// Checks the limits of rollouts, which count only removals for drift.
fn check_rollout_limits(facts: &Facts<'_>, plan: &Plan, violations: &mut Vec<Violation>) {
    for pool in &facts.snapshot.node_pools {
        let Some(limit) = pool.disruption.rollout_limit else { continue };
        let is_own = |node: &Node| node.node_pool.as_ref() == Some(&pool.name);
        let drifted = plan.terminations.iter().filter(|one| one.reason == DisruptionReason::Drifted);
        let count = drifted.filter(|one| facts.node(one.node.as_str()).is_some_and(is_own)).count();
        if count > limit as usize {
            let problem = format!("the rollout of pool {} allows {limit} removals for drift, not {count}", pool.name);
            violations.push(Violation::BadTermination { node: String::new(), problem });
        }
    }
}

/// Checks PodDisruptionBudgets. A node may be drained while its budget allows at least one eviction, but not together
/// with other nodes that use up the budget.
fn check_pod_budgets(facts: &Facts<'_>, plan: &Plan, violations: &mut Vec<Violation>) {
    let mut by_budget: BTreeMap<&str, Vec<(bool, i32)>> = BTreeMap::new();
    for termination in &plan.terminations {
        let Some(node) = facts.node(termination.node.as_str()) else { continue };
        let mut evictions: BTreeMap<&str, i32> = BTreeMap::new();
        let pods = facts.pods_on(node.name.as_str());
        for pod in pods.filter(|pod| !pod.terminating) {
            if pod.pod_disruption_budgets.len() > 1 && respects_evictions(termination, node) {
                let problem = format!("pod {} has two PodDisruptionBudgets", pod.full_name());
                violations.push(Violation::BadTermination { node: node.name.0.clone(), problem });
            }
            for name in &pod.pod_disruption_budgets {
                *evictions.entry(name).or_default() += 1;
            }
        }
        for (name, count) in evictions {
            by_budget.entry(name).or_default().push((respects_evictions(termination, node), count));
        }
    }
    for (name, mut removals) in by_budget {
        let budget = facts.snapshot.pod_disruption_budgets.iter().find(|budget| budget.name == name);
        let allowed = budget.filter(|budget| !budget.fully_blocking).map_or(0, |budget| budget.disruptions_allowed);
        // Order that uses the budget as late as possible: removals that ignore budgets first, then by number of
        // evictions. If this order fails, every order fails.
        removals.sort_unstable();
        let mut used = 0_i32;
        for (respects_evictions, count) in removals {
            if respects_evictions && used >= allowed {
                let problem = format!("PodDisruptionBudget {name} allows {allowed} evictions");
                violations.push(Violation::BadTermination { node: String::new(), problem });
                break;
            }
            used = used.saturating_add(count);
        }
    }
}

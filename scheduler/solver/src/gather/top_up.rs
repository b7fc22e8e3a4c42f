//! Pods that the plan leaves, once its nodes are there.
//!
//! kube-scheduler counts the domains and hosts that there are. So the cluster is looked at as it will be, as if nothing more could be bought, and what
//! then finds room on a node of the plan, or on one that is there, goes there.

#[cfg(test)]
mod tests;

use super::{Best, carried, hosts::is_over_hosts, left, without};
use crate::facts::{equals, lookup, one_of};
use crate::in_order;
use plimsoll_model::identity::{ActionId, ContentHasher, NodeName, PodUid, ShapeId};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, Placement, Plan, PodRef};
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{Node, Snapshot};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// How often: of a spread over hosts each time brings as many more pods to a host as it bears.
const LEVELS: usize = 4;

/// Places some of those pods, as long as that works.
pub(super) fn top_up(best: &mut Best<'_>) {
    for _ in 0..LEVELS {
        if !waits_for_others(best.snapshot, &best.plan) {
            return;
        }
        let after = carried::out(best.snapshot, best.catalogs, &best.plan);
        let mut facts = after.clone();
        facts.node_pools.clear();
        for (shape, known) in facts.shapes.iter_mut().zip(&after.shapes) {
            for spread in shape.topology_spread.iter_mut().filter(|one| is_over_hosts(one)) {
                let least = carried::counted(&after, known, spread).into_values().min().unwrap_or(0);
                spread.max_skew = spread.max_skew.saturating_add(i32::try_from(least).unwrap_or(i32::MAX));
            }
        }
        let more = (best.again)(&facts);
        // Where it matters what the node of a launch will be, it is said.
        let fits = |sure: bool| with(best.snapshot, &best.plan, &more, &after, sure);
        let (open, sure) = (fits(false), fits(true));
        if !best.accept(open) && !best.accept(sure) {
            return;
        }
    }
}

/// Whether a pod without a place looks at where others are.
fn waits_for_others(snapshot: &Snapshot, plan: &Plan) -> bool {
    let without = without(snapshot, plan);
    snapshot.shapes.iter().any(|shape| {
        without.contains_key(&shape.id)
            && (shape.topology_spread.iter().any(|one| one.required)
                || shape.pod_affinity.iter().any(|one| !one.anti && one.weight.is_none()))
    })
}

/// `plan` with those of its pods without a place that `more` has on nodes, which are those of the cluster and the launches of `plan`; if `sure`, these launches
/// are narrowed to what they are in `after`.
fn with(snapshot: &Snapshot, plan: &Plan, more: &Plan, after: &Snapshot, sure: bool) -> Plan {
    let mut all = plan.clone();
    let waiting: BTreeSet<PodUid> = left(snapshot, plan).into_iter().cloned().collect();
    let shapes: BTreeMap<&PodUid, &ShapeId> = snapshot.pods.iter().map(|pod| (&pod.uid, &pod.shape)).collect();
    let requests: BTreeMap<&ShapeId, _> = snapshot.shapes.iter().map(|one| (&one.id, &one.requests)).collect();
    let mut placed: BTreeSet<&PodUid> = BTreeSet::new();
    let goes = |node: &NodeName| plan.terminations.iter().any(|one| one.node == *node);
    for to in more.placements.iter().filter(|to| !goes(&to.node)) {
        let pods: Vec<PodRef> = to.pods.iter().filter(|pod| waiting.contains(&pod.uid)).cloned().collect();
        if pods.is_empty() {
            continue;
        }
        placed.extend(to.pods.iter().map(|pod| &pod.uid));
        if let Some(launch) = all.launches.iter_mut().find(|one| one.action_id.0 == to.node.0) {
            if let Some(node) = after.nodes.iter().find(|node| sure && node.name == to.node) {
                narrow(launch, node);
            }
            let mut hasher = ContentHasher::new("launch with more pods");
            hasher.text(&launch.action_id.0);
            for pod in &pods {
                hasher.text(pod.uid.as_str());
                if let Some(requests) = shapes.get(&pod.uid).and_then(|shape| requests.get(shape)) {
                    launch.requests.add(requests);
                }
            }
            launch.action_id = ActionId(hasher.hex(16));
            launch.why.push_str(&format!("; {} more follow once it is there", pods.len()));
            launch.pods.extend(pods);
            launch.pods.sort();
        } else if let Some(known) = all.placements.iter_mut().find(|one| one.node == to.node) {
            known.pods.extend(pods);
            known.pods.sort();
        } else {
            all.placements.push(Placement { node: to.node.clone(), pods });
        }
    }
    all.unschedulable.retain(|one| !placed.contains(&one.pod.uid));
    all.placements.sort();
    reorder(&mut all);
    all
}

/// Puts launches in order again. Terminations name them by their places, and follow them.
pub(crate) fn reorder(plan: &mut Plan) {
    let mut launches: Vec<(usize, Launch)> = std::mem::take(&mut plan.launches).into_iter().enumerate().collect();
    launches.sort_by(|(_, a), (_, b)| in_order(a, b));
    let places: BTreeMap<usize, usize> = launches.iter().enumerate().map(|(now, (before, _))| (*before, now)).collect();
    for termination in &mut plan.terminations {
        let known = termination.replaced_by.iter().filter_map(|before| places.get(before).copied());
        termination.replaced_by = known.collect();
        termination.replaced_by.sort_unstable();
    }
    plan.launches = launches.into_iter().map(|(_, launch)| launch).collect();
}

/// Narrows a launch to zone, capacity type and open labels of `node`.
pub(crate) fn narrow(launch: &mut Launch, node: &Node) {
    let has = |key: &str, value: &str| lookup(&node.labels, key) == Some(value);
    let kept = launch
        .offerings
        .iter()
        .filter(|one| has(label::ZONE, &one.zone) && has(label::CAPACITY_TYPE, one.capacity_type.as_str()));
    launch.offerings = Arc::new(kept.cloned().collect());
    let types: BTreeSet<String> = launch.offerings.iter().map(|one| one.instance_type.clone()).collect();
    let chosen =
        |key: &String| [label::ZONE, label::CAPACITY_TYPE].contains(&key.as_str()) || !label::is_well_known(key);
    let asked = launch.requirements.iter().filter(|one| one.operator == Operator::In);
    let keys: BTreeSet<String> = asked.map(|one| label::normalized(&one.key).to_owned()).filter(chosen).collect();
    let requirements = Arc::make_mut(&mut launch.requirements);
    requirements.extend(keys.iter().filter_map(|key| Some(equals(key, lookup(&node.labels, key)?))));
    requirements.push(one_of(label::INSTANCE_TYPE, types.into_iter().collect()));
    requirements.sort();
    requirements.dedup();
}

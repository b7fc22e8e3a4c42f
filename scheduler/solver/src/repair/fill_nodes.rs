//! Plans unplaced pods again as if the nodes of the plan existed.
//!
//! kube-scheduler counts existing domains and hosts. The plan is projected onto the cluster, and unplaced pods are
//! planned for the result: first without launches, then with launches, as the next plan would do.

#[cfg(test)]
mod tests;

use super::edit::{self, Change};
use super::narrow::{keep_cheapest_type, narrow};
use super::projection::{CapacityAssumption, node_of};
use super::{Best, Inputs, Variant, host_skew::is_over_hosts};
use super::{depends_on_others, is_small, projection, unplaced_by_shape, unplaced_pods};
use crate::input::on_demand_ratio;
use crate::retries;
use plimsoll_kubesched::spread;
use plimsoll_model::identity::{NodeName, PodUid, ShapeId};
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::snapshot::{PodState, Snapshot, SnapshotIndex};
use std::collections::BTreeSet;

/// Repeats the move while it places pods. Applies if unplaced pods depend on other pods, or the cluster is small.
pub(super) fn fill(best: &mut Best<'_>) {
    // Each round, a spread over hosts permits `maxSkew` more pods per host.
    for _ in 0..retries::LEVELS {
        let any_unplaced = !unplaced_pods(best.inputs.snapshot, &best.plan).is_empty();
        let worth =
            any_unplaced && (is_small(best.inputs.snapshot) || waits_for_others(best.inputs.snapshot, &best.plan));
        if !worth || !STRATEGIES.into_iter().any(|strategy| add(best, strategy)) {
            return;
        }
    }
}

/// How pods are added to a plan: the assumed capacity of launched nodes, and whether the plan may launch further nodes.
const STRATEGIES: [(CapacityAssumption, bool); 5] = [
    (CapacityAssumption::Least, false),
    (CapacityAssumption::Cheapest, false),
    // With launches, as the next plan would do. First with the full charge of limits, then with the charge if launches
    // list no larger types.
    (CapacityAssumption::Least, true),
    (CapacityAssumption::Cheapest, true),
    // No further node can be launched for these pods. A launch may need one of its larger types for them.
    (CapacityAssumption::Dearest, false),
];

/// Whether the launch may become one of several types.
fn has_several_types(launch: &Launch) -> bool {
    let mut types = launch.offerings.iter().map(|offering| &offering.instance_type);
    let first = types.next();
    types.any(|other| Some(other) != first)
}

/// Places pods with this strategy. Returns whether pods were placed.
fn add(best: &mut Best<'_>, (capacity, may_launch): (CapacityAssumption, bool)) -> bool {
    if capacity != CapacityAssumption::Least && !best.plan.launches.iter().any(has_several_types) {
        // The assumption makes no difference.
        return false;
    }
    let inputs = best.inputs;
    let mut after = projection::project_with_capacity(inputs, &best.plan, capacity);
    projection::apply_removals(&best.plan, &mut after);
    let mut changed_snapshot = after.clone();
    share_volumes(&mut changed_snapshot);
    projection::count_limits(inputs, &best.plan, capacity, &mut changed_snapshot);
    if !may_launch {
        let index = SnapshotIndex::new(&after);
        for (shape, known) in changed_snapshot.shapes.iter_mut().zip(&after.shapes) {
            for spread in shape.topology_spread.iter_mut().filter(|one| is_over_hosts(one)) {
                let least = spread::counts(&after, &index, known, spread).into_values().min().unwrap_or(0);
                spread.max_skew = spread.max_skew.saturating_add(i32::try_from(least).unwrap_or(i32::MAX));
            }
        }
        remove_pools(inputs, &mut changed_snapshot);
    }
    let Some(added) = best.repair.plan_as(&changed_snapshot, Variant::Same) else { return false };
    if added.placements.is_empty() && added.launches.iter().all(|launch| launch.pods.is_empty()) {
        return false;
    }
    // Narrows the offerings of launches only as far as needed.
    let limited = may_launch && capacity == CapacityAssumption::Cheapest;
    let narrowings: &[Narrowing] = if limited {
        &[Narrowing::CheapestTypes]
    } else {
        &[Narrowing::None, Narrowing::FilledLaunches, Narrowing::AllLaunches]
    };
    narrowings.iter().any(|narrowing| {
        let mut other = merge_plans(inputs, &best.plan, &added, &after, *narrowing);
        edit::price(inputs, &mut other);
        best.accept(other)
    })
}

/// Removes the NodePools, so that no node is launched. Pods that must run On-Demand get this requirement before, since
/// the ratios of NodePools are not known afterwards. Launches count for their NodePools already: for their ratios, and
/// for their limits, so that a NodePool that the plan fills is not the first choice.
fn remove_pools(inputs: Inputs<'_>, changed_snapshot: &mut Snapshot) {
    let (node_pools, catalogs) = inputs.changed().unwrap_or((inputs.snapshot.node_pools.as_slice(), inputs.catalogs));
    changed_snapshot.node_pools = node_pools.to_vec();
    let index = SnapshotIndex::new(changed_snapshot);
    if let Some((mixed, _)) = on_demand_ratio::applied(changed_snapshot, &index, catalogs) {
        *changed_snapshot = mixed;
    }
    // Ratios of workloads are applied as well.
    changed_snapshot.shapes.iter_mut().for_each(|shape| shape.on_demand = None);
    changed_snapshot.node_pools.clear();
}

/// Ignores the attach limits of volumes that are attached already: a pod that shares a volume must run on its node.
fn share_volumes(snapshot: &mut Snapshot) {
    let bound = snapshot.pods.iter().filter(|pod| matches!(pod.state, PodState::Bound(_))).map(|pod| &pod.shape);
    let bound: BTreeSet<&ShapeId> = bound.collect();
    let shapes = snapshot.shapes.iter().filter(|shape| bound.contains(&shape.id));
    let claims = shapes.flat_map(|shape| shape.volumes.iter().map(|one| (shape.namespace.clone(), one.claim.clone())));
    let attached: BTreeSet<(String, String)> = claims.filter(|(_, claim)| !claim.is_empty()).collect();
    for shape in &mut snapshot.shapes {
        let namespace = shape.namespace.clone();
        let shared = shape.volumes.iter_mut().filter(|one| attached.contains(&(namespace.clone(), one.claim.clone())));
        shared.for_each(|volume| volume.driver.clear());
    }
}

/// Which launches are narrowed to the node that they are expected to become.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Narrowing {
    None,
    /// Launches that get more pods.
    FilledLaunches,
    /// All launches, since a domain that one of them might open would exclude the pods.
    AllLaunches,
    /// All launches, to their cheapest type: limits are charged with the largest listed type.
    CheapestTypes,
}

/// Whether an unplaced pod depends on the placement of other pods.
fn waits_for_others(snapshot: &Snapshot, plan: &Plan) -> bool {
    let unplaced_by_shape = unplaced_by_shape(snapshot, plan);
    snapshot.shapes.iter().any(|shape| unplaced_by_shape.contains_key(&shape.id) && depends_on_others(shape))
}

/// Adds the unplaced pods to `plan` that `added` puts on existing nodes and on launches of `plan`. `narrowing`
/// determines which launches are narrowed to their nodes in `after`.
fn merge_plans(inputs: Inputs<'_>, plan: &Plan, added: &Plan, after: &Snapshot, narrowing: Narrowing) -> Plan {
    let mut narrowed = plan.clone();
    if narrowing == Narrowing::AllLaunches || narrowing == Narrowing::CheapestTypes {
        for launch in narrowed.launches.iter_mut().filter(|launch| !launch.pods.is_empty()) {
            match node_of(&after.nodes, launch) {
                _ if narrowing == Narrowing::CheapestTypes => keep_cheapest_type(launch),
                Some(node) => narrow(launch, node),
                None => {}
            }
        }
    }
    let waiting: BTreeSet<PodUid> = unplaced_pods(inputs.snapshot, plan).into_iter().cloned().collect();
    let mut change = Change::default();
    let goes = |node: &NodeName| plan.terminations.iter().any(|one| one.node == *node);
    for to in added.placements.iter().filter(|to| !goes(&to.node)) {
        let pods = to.pods.iter().filter(|pod| waiting.contains(&pod.uid));
        change.targets.extend(pods.map(|pod| (pod.uid.clone(), to.node.clone())));
    }
    for launch in &added.launches {
        if !launch.pods.is_empty() && launch.pods.iter().all(|pod| waiting.contains(&pod.uid)) {
            let action_id = edit::anew(&launch.action_id, "launch for pods that were left");
            change.launch(Launch { action_id, ..launch.clone() });
        }
    }
    let mut all = edit::moved(inputs, &narrowed, &after.nodes, &change, narrowing == Narrowing::FilledLaunches);
    for launch in &mut all.launches {
        let known = plan.launches.iter().find(|known| known.action_id == launch.action_id);
        if known.is_some_and(|known| launch.offerings.len() < known.offerings.len()) {
            launch.action_id = edit::anew(&launch.action_id, "narrowed launch");
        }
    }
    all.sort_launches();
    all
}

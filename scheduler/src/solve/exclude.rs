//! Replaces an invalid plan by one without the pods that make it invalid, so that an error of the planner costs only
//! those pods and not every pod of the cluster.

use super::{InvalidPlan, validated};
use plimsoll_invariants::Violation;
use plimsoll_model::catalog::{Catalog, reservation_of_resource};
use plimsoll_model::identity::{CatalogId, ShapeId};
use plimsoll_model::plan::{Launch, OfferingChoice, Plan, PodRef, Reason, ReasonCode, Unschedulable};
use plimsoll_model::snapshot::{Pod, PodState, Snapshot, SnapshotIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum plans made in place of an invalid one. Each excludes at least one more shape. A planner that is wrong about
/// more shapes than this is not trusted with the rest.
const MAX_ROUNDS: usize = 3;

/// Plans again without the pending pods that violations name and all pods of their shapes, which would fail in the same
/// way. The excluded pods are unschedulable in the new plan, with the violation as their reason.
///
/// # Errors
/// The violations of the first plan, if no valid plan was found or if they name no pending pod.
pub(crate) fn plan_without_offenders(
    (snapshot, index): (&Snapshot, &SnapshotIndex),
    catalogs: &BTreeMap<CatalogId, Catalog>,
    (first, violations): (&Plan, &InvalidPlan),
    solve: &mut dyn FnMut(&Snapshot, &SnapshotIndex) -> Plan,
) -> Result<Plan, InvalidPlan> {
    let mut excluded: BTreeMap<&ShapeId, String> = BTreeMap::new();
    let (mut plan, mut latest) = (first.clone(), violations.clone());
    for _ in 0..MAX_ROUNDS {
        let before = excluded.len();
        for violation in &latest.violations {
            for shape in shapes_of(violation, &plan, snapshot) {
                excluded.entry(shape).or_insert_with(|| violation.to_string());
            }
        }
        if excluded.len() == before {
            break;
        }
        let is_excluded = |pod: &Pod| pod.state == PodState::Pending && excluded.contains_key(&pod.shape);
        let pods = snapshot.pods.iter().filter(|pod| !is_excluded(pod)).cloned().collect();
        let remaining = Snapshot { pods, ..snapshot.clone() };
        plan = solve(&remaining, &SnapshotIndex::new(&remaining));
        let left = snapshot.pods.iter().filter(|pod| is_excluded(pod));
        plan.unschedulable.extend(left.map(|pod| unschedulable(pod, excluded.get(&pod.shape))));
        plan.unschedulable.sort();
        match validated(snapshot, index, catalogs, plan.clone()) {
            Ok(plan) => return Ok(plan),
            Err(error) => latest = error,
        }
    }
    Err(violations.clone())
}

fn unschedulable(pod: &Pod, violation: Option<&String>) -> Unschedulable {
    let violation = violation.map(String::as_str).unwrap_or_default();
    let message = format!("left out, because the plan for pods like this one was not valid: {violation}");
    Unschedulable {
        pod: PodRef { name: pod.full_name(), uid: pod.uid.clone() },
        reasons: vec![Reason { node_pool: String::new(), code: ReasonCode::NotSupported, message }],
    }
}

/// Shapes of the pending pods that a violation is about.
fn shapes_of<'s>(violation: &Violation, plan: &Plan, snapshot: &'s Snapshot) -> BTreeSet<&'s ShapeId> {
    let launch_pods = |is_meant: &dyn Fn(&Launch) -> bool| -> BTreeSet<String> {
        let launches = plan.launches.iter().filter(|launch| is_meant(launch));
        launches.flat_map(|launch| &launch.pods).map(|pod| pod.name.clone()).collect()
    };
    let names: BTreeSet<String> = match violation {
        Violation::PodTwice(pod)
        | Violation::UnknownPod(pod)
        | Violation::PodForgotten(pod)
        | Violation::NoReason(pod)
        | Violation::PodDoesNotFit { pod, .. } => [pod.clone()].into(),
        Violation::EmptyLaunch(action)
        | Violation::BadLaunch { launch: action, .. }
        | Violation::BadOffering { launch: action, .. } => launch_pods(&|launch| launch.action_id.0 == *action),
        Violation::UnknownPool(pool) | Violation::LimitExceeded { pool, .. } => {
            launch_pods(&|launch| launch.node_pool.0 == *pool)
        }
        Violation::Overcommitted { place, .. } => {
            let placements = plan.placements.iter().filter(|placement| placement.node.0 == *place);
            let placed = placements.flat_map(|placement| &placement.pods).map(|pod| pod.name.clone());
            let is_place = |choice: &OfferingChoice| choice.to_string() == *place;
            let launched = launch_pods(&|launch| launch.offerings.iter().any(is_place));
            placed.chain(launched).collect()
        }
        Violation::UnknownNode(node) => {
            let placements = plan.placements.iter().filter(|placement| placement.node.0 == *node);
            placements.flat_map(|placement| &placement.pods).map(|pod| pod.name.clone()).collect()
        }
        Violation::ReservationExceeded { resource, .. } => {
            let id = reservation_of_resource(resource);
            launch_pods(&|launch| launch.offerings.iter().any(|choice| choice.reservation.as_deref() == id))
        }
        // Not about pending pods.
        Violation::BadTermination { .. } | Violation::OnDemandRatioNotMet { .. } | Violation::BadSum(_) => {
            BTreeSet::new()
        }
    };
    let pending = snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending);
    pending.filter(|pod| names.contains(&pod.full_name())).map(|pod| &pod.shape).collect()
}

#[cfg(test)]
mod tests;

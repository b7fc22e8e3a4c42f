//! Checks on-demand ratios: a plan must not put more pods of a workload on Spot than the ratio allows.

use crate::Violation;
use crate::facts::Facts;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{Node, OnDemandMix};
use std::collections::{BTreeMap, BTreeSet};

/// Namespace and workload.
type Workload<'a> = (&'a str, &'a str);

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, violations: &mut Vec<Violation>) {
    if facts.snapshot.shapes.iter().all(|shape| shape.on_demand.is_none()) {
        return;
    }
    let possible_spot = pods_on_possible_spot(facts, plan);
    // Per workload: ratio, number of pods, and number of pods that the plan puts on capacity that may be Spot.
    let mut workloads: BTreeMap<Workload<'_>, (OnDemandMix, usize, usize)> = BTreeMap::new();
    for pod in facts.snapshot.pods.iter().filter(|pod| !pod.stays_with_node && !pod.terminating) {
        let Some(shape) = facts.shape(pod.shape.as_str()) else { continue };
        let Some(ratio) = &shape.on_demand else { continue };
        let sums = workloads.entry((&shape.namespace, &ratio.workload)).or_insert((ratio.mix, 0, 0));
        *sums = (sums.0.max(ratio.mix), sums.1 + 1, sums.2 + usize::from(possible_spot.contains(pod.uid.as_str())));
    }
    for ((namespace, workload), (mix, pods, elsewhere)) in workloads {
        let required = mix.least(pods);
        if elsewhere > pods - required {
            let problem = format!("{elsewhere} of {pods} pods go where Spot may be, {required} have to run On-Demand");
            violations.push(Violation::OnDemandRatioNotMet { workload: format!("{namespace}/{workload}"), problem });
        }
    }
}

/// Pods that the plan puts on capacity that is not certainly On-Demand.
fn pods_on_possible_spot<'p>(facts: &Facts<'_>, plan: &'p Plan) -> BTreeSet<&'p str> {
    let is_on_demand = |bought: CapacityType| matches!(bought, CapacityType::OnDemand | CapacityType::Reserved);
    let on_demand = |node: &Node| {
        node.labels.get(label::CAPACITY_TYPE).and_then(|value| CapacityType::parse(value)).is_some_and(is_on_demand)
    };
    let possibly_spot = plan
        .launches
        .iter()
        .filter(|launch| !launch.offerings.iter().all(|offering| is_on_demand(offering.capacity_type)));
    let moved = plan.terminations.iter().flat_map(|termination| &termination.moved_to);
    let placed = plan.placements.iter().chain(moved);
    let placed = placed.filter(|placement| !facts.node(placement.node.as_str()).is_some_and(&on_demand));
    let pods = possibly_spot.flat_map(|launch| &launch.pods).chain(placed.flat_map(|placement| &placement.pods));
    pods.map(|pod| pod.uid.as_str()).collect()
}

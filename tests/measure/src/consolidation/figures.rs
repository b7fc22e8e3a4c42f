//! Cost of a cluster, and its lower bound.

use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::plan::PlanOptions;
use plimsoll_model::snapshot::{Node, PodState, Snapshot, SnapshotIndex};
use plimsoll_workloads::Question;
use serde_json::{Value, json};
use std::collections::BTreeSet;

/// Price of all nodes.
pub(super) fn hourly(question: &Question) -> MicroUsdPerHour {
    question.snapshot.nodes.iter().map(|node| price(question, node)).sum()
}

fn price(question: &Question, node: &Node) -> MicroUsdPerHour {
    let text = |key: &str| node.labels.get(key).map(String::as_str).unwrap_or_default();
    let types = question.catalogs.values().filter_map(|catalog| catalog.get(text(label::INSTANCE_TYPE)));
    let mut offerings = types.flat_map(|it| &it.offerings);
    let is_own = |offering: &&plimsoll_model::catalog::Offering| {
        offering.zone == text(label::ZONE) && offering.capacity_type.as_str() == text(label::CAPACITY_TYPE)
    };
    offerings.find(is_own).map_or(MicroUsdPerHour(0), |offering| offering.price)
}

/// What the cluster costs if all nodes that may be removed are removed and their pods are planned as pending pods, and
/// the lower bound of that plan. Nodes that must stay count with their prices.
pub(super) fn bounds(question: &Question) -> Value {
    let mut snapshot: Snapshot = question.snapshot.clone();
    let index = SnapshotIndex::new(&snapshot);
    let mut staying = BTreeSet::new();
    for (place, pod) in snapshot.pods.iter().enumerate() {
        if pod.do_not_disrupt_until.is_some() {
            staying
                .extend(index.node_of(place).and_then(|node| snapshot.nodes.get(node)).map(|node| node.name.clone()));
        }
    }
    for pod in &mut snapshot.pods {
        if let PodState::Bound(node) = &pod.state
            && !staying.contains(node)
        {
            pod.state = PodState::Pending;
        }
    }
    let fixed: MicroUsdPerHour =
        snapshot.nodes.iter().filter(|node| staying.contains(&node.name)).map(|node| price(question, node)).sum();
    snapshot.nodes.retain(|node| staying.contains(&node.name));
    snapshot.sort();
    let options = PlanOptions { disruption: false, ..PlanOptions::default() };
    let plan = plimsoll_solver::solve(&snapshot, &question.catalogs, &options);
    json!({
        "staying": staying.len(),
        "stayingHourly": fixed.usd(),
        "anew": fixed.usd() + plan.hourly.usd(),
        "anewUnplaced": plan.unschedulable.len(),
        "anewBound": fixed.usd() + plan.lower_bound.usd(),
    })
}

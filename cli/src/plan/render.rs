//! The plan as scripts know it.

use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, OfferingChoice, Plan, PodRef};
use plimsoll_model::quantity::format_amount;
use serde_json::{Number, Value, json};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn plan(plan: &Plan) -> Value {
    let terminations = plan.terminations.iter().map(|it| {
        json!({"node": it.node.as_str(), "reason": it.reason.as_str(), "pods": names(&it.pods),
            "replacedBy": it.replaced_by, "saving": price(it.saving)})
    });
    let reason = |it: &plimsoll_model::plan::Reason| json!({"nodePool": it.node_pool, "code": it.code.as_str(), "message": it.message});
    let mut unschedulable: Vec<Value> = Vec::new();
    for it in &plan.unschedulable {
        let mut reasons: Vec<_> = it.reasons.iter().collect();
        reasons.sort();
        unschedulable.push(json!({"pod": it.pod.name, "reasons": reasons.into_iter().map(reason).collect::<Vec<_>>()}));
    }
    let mut ignored: Vec<_> = plan.ignored.iter().map(|it| (&it.pod, &it.reason)).collect();
    ignored.sort();
    let mut value = json!({
        "launches": plan.launches.iter().map(launch).collect::<Vec<_>>(),
        "existing": existing(plan),
        "terminations": terminations.collect::<Vec<_>>(),
        "unschedulable": unschedulable,
        "ignored": ignored.iter().map(|(pod, reason)| json!({"pod": pod, "reason": reason})).collect::<Vec<_>>(),
        "cost": {"hourly": price(plan.hourly), "lowerBound": price(plan.lower_bound), "gap": gap(plan)},
    });
    if !plan.pool_problems.is_empty() {
        value["poolProblems"] = plan.pool_problems.iter().map(reason).collect();
    }
    value
}

fn launch(it: &Launch) -> Value {
    let mut types: Vec<&str> = Vec::new();
    for offering in it.offerings.iter() {
        if !types.contains(&offering.instance_type.as_str()) {
            types.push(&offering.instance_type);
        }
    }
    let zones: BTreeSet<&str> = it.offerings.iter().map(|offering| offering.zone.as_str()).collect();
    let capacity_types: BTreeSet<&str> = it.offerings.iter().map(|offering| offering.capacity_type.as_str()).collect();
    let mut requirements = it.requirements.to_vec();
    requirements.sort();
    let mut taints = it.taints.clone();
    taints.sort();
    let taint =
        |it: &plimsoll_model::taints::Taint| json!({"key": it.key, "value": it.value, "effect": it.effect.as_str()});
    let requests: BTreeMap<&str, String> =
        it.requests.iter().map(|(name, amount)| (name, format_amount(name, amount))).collect();
    json!({
        "nodePool": it.node_pool.as_str(),
        "instanceTypes": types,
        "zones": zones,
        "capacityTypes": capacity_types,
        "offering": it.offerings.first().map(offering),
        "requirements": requirements,
        "requests": requests,
        "taints": taints.iter().map(taint).collect::<Vec<_>>(),
        "labels": it.labels,
        "pods": names(&it.pods),
    })
}

fn offering(it: &OfferingChoice) -> Value {
    json!({"instanceType": it.instance_type, "zone": it.zone, "capacityType": it.capacity_type.as_str(),
        "price": price(it.price)})
}

/// Pending pods and those that move, by the node that takes them.
fn existing(plan: &Plan) -> Vec<Value> {
    by_node(plan).into_iter().map(|(node, pods)| json!({"node": node, "pods": pods})).collect()
}

/// Names of pods that existing nodes take, by node.
pub(super) fn by_node(plan: &Plan) -> BTreeMap<&str, BTreeSet<&str>> {
    let mut by_node: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
    let moved = plan.terminations.iter().flat_map(|it| &it.moved_to);
    for it in plan.placements.iter().chain(moved) {
        by_node.entry(it.node.as_str()).or_default().extend(it.pods.iter().map(|pod| pod.name.as_str()));
    }
    by_node
}

fn names(pods: &[PodRef]) -> Vec<String> {
    let mut names: Vec<String> = pods.iter().map(|pod| pod.name.clone()).collect();
    names.sort();
    names
}

/// USD per hour with at most six decimals.
fn price(price: MicroUsdPerHour) -> Value {
    Number::from_f64(price.usd()).map_or(Value::Null, Value::Number)
}

/// How far the cost may be from the optimum, as a fraction with at most six decimals.
fn gap(plan: &Plan) -> Value {
    json!((plan.gap() * 1e6).round() / 1e6)
}

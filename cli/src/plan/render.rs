//! The plan as JSON or YAML for scripts.

mod launches;

use launches::launches;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Plan, PodRef};
use serde::ser::{Serialize, SerializeMap};
use serde_json::{Map, Number, Serializer, Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::io::{self, Write};

/// The plan as a value.
pub(crate) fn plan(plan: &Plan) -> Value {
    let mut value = Map::new();
    value.insert("launches".to_owned(), json!(launches(plan).collect::<Vec<_>>()));
    value.extend(after_launches(plan));
    Value::Object(value)
}

/// Writes indented JSON without a value of all launches: a large plan has gigabytes of launches.
pub(crate) fn write_json(plan: &Plan, writer: &mut dyn Write) -> io::Result<()> {
    let mut serializer = Serializer::pretty(writer);
    let mut fields = serde::Serializer::serialize_map(&mut serializer, None)?;
    fields.serialize_entry("launches", &Each(plan))?;
    for (name, value) in &after_launches(plan) {
        fields.serialize_entry(name, value)?;
    }
    fields.end()?;
    serializer.into_inner().write_all(b"\n")
}

/// All launches as a sequence.
struct Each<'a>(&'a Plan);

impl Serialize for Each<'_> {
    fn serialize<S: serde::Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_seq(launches(self.0))
    }
}

/// All fields of a plan after its launches.
fn after_launches(plan: &Plan) -> Map<String, Value> {
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
    let mut fields = Map::new();
    let mut add = |name: &str, value: Value| fields.insert(name.to_owned(), value);
    add("existing", existing(plan).into());
    add("terminations", terminations.collect());
    add("unschedulable", unschedulable.into());
    add("ignored", ignored.iter().map(|(pod, reason)| json!({"pod": pod, "reason": reason})).collect());
    add("cost", json!({"hourly": price(plan.hourly), "lowerBound": price(plan.lower_bound), "gap": gap(plan)}));
    if !plan.pool_problems.is_empty() {
        add("poolProblems", plan.pool_problems.iter().map(reason).collect());
    }
    fields
}

/// Pending and moved pods, by destination node.
fn existing(plan: &Plan) -> Vec<Value> {
    by_node(plan).into_iter().map(|(node, pods)| json!({"node": node, "pods": pods})).collect()
}

/// Names of pods that are placed on existing nodes, by node.
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

/// Relative distance of the cost from the lower bound, with at most six decimals; null without a bound.
fn gap(plan: &Plan) -> Value {
    json!(plan.gap().map(|gap| (gap * 1e6).round() / 1e6))
}

//! Launches as JSON for scripts.

use super::price;
use plimsoll_model::plan::{Launch, OfferingChoice, Plan};
use plimsoll_model::quantity::format_amount;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::taints::Taint;
use serde::Serialize;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::rc::Rc;
use std::sync::Arc;

/// A launch. The order of the fields is that of the output.
#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
pub(super) struct LaunchView<'a> {
    node_pool: &'a str,
    instance_types: Rc<Vec<&'a str>>,
    zones: Rc<BTreeSet<&'a str>>,
    capacity_types: Rc<BTreeSet<&'a str>>,
    offering: Option<OfferingView<'a>>,
    requirements: Rc<Vec<NodeSelectorRequirement>>,
    requests: BTreeMap<&'a str, String>,
    taints: Vec<TaintView<'a>>,
    labels: &'a BTreeMap<String, String>,
    pods: Vec<&'a str>,
}

#[derive(Serialize)]
#[serde(rename_all = "camelCase")]
struct OfferingView<'a> {
    instance_type: &'a str,
    zone: &'a str,
    capacity_type: &'a str,
    price: Value,
    #[serde(skip_serializing_if = "Option::is_none")]
    reservation: Option<&'a str>,
}

#[derive(Serialize)]
struct TaintView<'a> {
    key: &'a str,
    value: &'a str,
    effect: &'a str,
}

/// Values that are derived from the offerings of a launch.
#[derive(Clone)]
struct Choices<'a> {
    instance_types: Rc<Vec<&'a str>>,
    zones: Rc<BTreeSet<&'a str>>,
    capacity_types: Rc<BTreeSet<&'a str>>,
}

/// The launches of a plan, in order. Values of shared lists are computed once.
pub(super) fn launches(plan: &Plan) -> impl Iterator<Item = LaunchView<'_>> {
    // By the addresses of the shared lists. Never iterated.
    let mut choices: HashMap<*const Vec<OfferingChoice>, Choices<'_>> = HashMap::new();
    let mut requirements: HashMap<*const Vec<NodeSelectorRequirement>, Rc<Vec<NodeSelectorRequirement>>> =
        HashMap::new();
    plan.launches.iter().map(move |launch| {
        let choices = choices.entry(Arc::as_ptr(&launch.offerings)).or_insert_with(|| choices_of(&launch.offerings));
        let requirements = requirements
            .entry(Arc::as_ptr(&launch.requirements))
            .or_insert_with(|| Rc::new(merged(&launch.requirements)));
        view(launch, choices.clone(), Rc::clone(requirements))
    })
}

/// Sorted requirements and values, with one `In` for each key: a launch has the requirements of its NodePool, and those
/// of its offerings, which are narrower.
fn merged(requirements: &[NodeSelectorRequirement]) -> Vec<NodeSelectorRequirement> {
    let mut all: Vec<NodeSelectorRequirement> = Vec::new();
    for requirement in requirements {
        let same = |known: &&mut NodeSelectorRequirement| {
            known.key == requirement.key && known.operator == Operator::In && requirement.operator == Operator::In
        };
        match all.iter_mut().find(same) {
            Some(known) => {
                known.values.retain(|value| requirement.values.contains(value));
                known.min_values = known.min_values.max(requirement.min_values);
            }
            None => all.push(requirement.clone()),
        }
    }
    for requirement in &mut all {
        requirement.values.sort();
        requirement.values.dedup();
    }
    all.sort();
    all
}

fn choices_of(offerings: &[OfferingChoice]) -> Choices<'_> {
    let mut seen = BTreeSet::new();
    let types = offerings.iter().map(|offering| offering.instance_type.as_str());
    Choices {
        instance_types: Rc::new(types.filter(|name| seen.insert(*name)).collect()),
        zones: Rc::new(offerings.iter().map(|offering| offering.zone.as_str()).collect()),
        capacity_types: Rc::new(offerings.iter().map(|offering| offering.capacity_type.as_str()).collect()),
    }
}

fn view<'a>(
    launch: &'a Launch,
    choices: Choices<'a>,
    requirements: Rc<Vec<NodeSelectorRequirement>>,
) -> LaunchView<'a> {
    let Choices { instance_types, zones, capacity_types } = choices;
    let mut taints: Vec<&Taint> = launch.taints.iter().collect();
    taints.sort();
    let taints = taints.into_iter();
    let mut pods: Vec<&str> = launch.pods.iter().map(|pod| pod.name.as_str()).collect();
    pods.sort_unstable();
    LaunchView {
        node_pool: launch.node_pool.as_str(),
        instance_types,
        zones,
        capacity_types,
        offering: launch.offerings.first().map(offering),
        requirements,
        requests: launch.requests.iter().map(|(name, amount)| (name, format_amount(name, amount))).collect(),
        taints: taints.map(|it| TaintView { key: &it.key, value: &it.value, effect: it.effect.as_str() }).collect(),
        labels: &launch.labels,
        pods,
    }
}

fn offering(choice: &OfferingChoice) -> OfferingView<'_> {
    OfferingView {
        instance_type: &choice.instance_type,
        zone: &choice.zone,
        capacity_type: choice.capacity_type.as_str(),
        price: price(choice.price),
        reservation: choice.reservation.as_deref(),
    }
}

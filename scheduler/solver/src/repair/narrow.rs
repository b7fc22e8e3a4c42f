//! Removes offerings from launches.

use super::{Inputs, projection};
use crate::input::pool_requirements::{equals, lookup, one_of};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{LaunchLabels, Node, PodShape};
use std::collections::BTreeSet;
use std::sync::Arc;

/// Narrows a launch to the zone, capacity type and custom labels of `node`.
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
    let chosen = keys.iter().filter_map(|key| Some(equals(key, lookup(&node.labels, key)?)));
    require(launch, chosen.chain([one_of(label::INSTANCE_TYPE, types.into_iter().collect())]));
}

fn require(launch: &mut Launch, more: impl IntoIterator<Item = NodeSelectorRequirement>) {
    let requirements = Arc::make_mut(&mut launch.requirements);
    requirements.extend(more);
    requirements.sort();
    requirements.dedup();
}

/// Keeps only offerings with the cheapest offering's instance type.
pub(super) fn keep_cheapest_type(launch: &mut Launch) {
    let Some(cheapest) = launch.offerings.first().map(|one| one.instance_type.clone()) else { return };
    let kept = launch.offerings.iter().filter(|one| one.instance_type == cheapest);
    launch.offerings = Arc::new(kept.cloned().collect());
    require(launch, [one_of(label::INSTANCE_TYPE, vec![cheapest])]);
}

/// Keeps offerings that have capacity for `load` beside the DaemonSets that run there, and that accept pods of these
/// shapes.
pub(crate) fn keep_fitting(
    inputs: Inputs<'_>,
    launch: &mut Launch,
    node: &Node,
    (load, wanted): (&Resources, &BTreeSet<&PodShape>),
) {
    let Some(catalog) = inputs.catalog_of(launch) else { return };
    let of_daemon = |shape: &&PodShape| inputs.snapshot.daemon_sets.iter().any(|daemon| daemon.shape == shape.id);
    let daemons: Vec<&PodShape> = inputs.snapshot.shapes.iter().filter(of_daemon).collect();
    let fits = |one: &&OfferingChoice| {
        let Some((kind, offering)) = catalog.find(one) else { return false };
        let mut labels = node.labels.clone();
        projection::label_as(&mut labels, &LaunchLabels { launch, catalog, kind, offering });
        let name = node.name.as_str();
        let mut requests = load.clone();
        let there = daemons.iter().filter(|shape| projection::runs_daemon(shape, node, &labels));
        there.for_each(|shape| requests.add(&shape.requests));
        requests.fits_in(&kind.allocatable())
            && wanted.iter().all(|shape| shape.selects_node(name, &labels) && shape.attaches_to_node(name, &labels))
    };
    let kept: Vec<OfferingChoice> = launch.offerings.iter().filter(fits).cloned().collect();
    if kept.len() == launch.offerings.len() {
        return;
    }
    let distinct = |value: fn(&OfferingChoice) -> String| -> Vec<String> {
        kept.iter().map(value).collect::<BTreeSet<String>>().into_iter().collect()
    };
    let left = [
        one_of(label::INSTANCE_TYPE, distinct(|one| one.instance_type.clone())),
        one_of(label::ZONE, distinct(|one| one.zone.clone())),
        one_of(label::CAPACITY_TYPE, distinct(|one| one.capacity_type.to_string())),
    ];
    require(launch, left);
    launch.offerings = Arc::new(kept);
}

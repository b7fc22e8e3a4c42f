//! Hints about pods that select another place than that of their volumes.

use super::misspelt::{MAX_HINTS, PLACES, some_pod};
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorTerm, Operator};
use plimsoll_model::snapshot::{PodShape, Snapshot, VolumeTopology};
use std::collections::BTreeSet;

/// Contradictions between the node selectors of pods and the topology of their volumes.
pub(crate) fn volume_conflicts(snapshot: &Snapshot) -> Vec<String> {
    snapshot.shapes.iter().filter_map(|shape| conflict(snapshot, shape)).take(MAX_HINTS).collect()
}

fn conflict(snapshot: &Snapshot, shape: &PodShape) -> Option<String> {
    let selected = shape.node_selector.iter().filter(|(key, _)| PLACES.contains(&label::normalized(key)));
    let mut pairs = selected.flat_map(|(key, value)| shape.volumes.iter().map(move |volume| (key, value, volume)));
    let (key, value, places) = pairs.find_map(|(key, value, volume)| {
        let places = places(volume, label::normalized(key))?;
        (!places.contains(value.as_str())).then_some((key, value, places))
    })?;
    let places = places.into_iter().collect::<Vec<_>>().join(", ");
    Some(format!(
        "Pod {}: its node selector asks for {key} {value}, but a volume of it can be attached only in {places}",
        some_pod(snapshot, &shape.id)?
    ))
}

/// Values of the label `key` where the volume can be attached; `None` if it can be attached elsewhere.
fn places<'v>(volume: &'v VolumeTopology, key: &str) -> Option<BTreeSet<&'v str>> {
    let values = |term: &'v NodeSelectorTerm| {
        let of_key = |it: &&_| is_in(it, key);
        term.expressions.iter().find(of_key).map(|it| it.values.iter().map(String::as_str))
    };
    let alternatives: Option<Vec<_>> = volume.alternatives.iter().map(values).collect();
    alternatives.map(|all| all.into_iter().flatten().collect()).filter(|places: &BTreeSet<_>| !places.is_empty())
}

fn is_in(requirement: &plimsoll_model::requirements::NodeSelectorRequirement, key: &str) -> bool {
    label::normalized(&requirement.key) == key && requirement.operator == Operator::In
}

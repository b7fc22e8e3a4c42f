//! Volumes: the nodes to which they can be attached.

pub(crate) use plimsoll_kubesched::volumes::{limited_drivers, usual_limit};
use plimsoll_model::names::label;
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::PodShape;
use std::collections::BTreeSet;

/// Describes where the volumes of the pod can be attached, for messages.
pub(crate) fn places(shape: &PodShape) -> String {
    let term = |term: &plimsoll_model::requirements::NodeSelectorTerm| {
        let all = term.expressions.iter().filter(|one| one.key != label::HOSTNAME || term.expressions.len() == 1);
        all.map(ToString::to_string).collect::<Vec<String>>().join(" and ")
    };
    let tied = shape.volumes.iter().filter(|volume| !volume.alternatives.is_empty());
    let places: BTreeSet<String> =
        tied.map(|volume| volume.alternatives.iter().map(term).collect::<Vec<String>>().join(" or ")).collect();
    places.into_iter().collect::<Vec<String>>().join("; ")
}

/// Zones of the pod's volumes; empty if the volumes have other requirements too.
pub(crate) fn zones(shape: &PodShape) -> BTreeSet<&str> {
    let mut zones = BTreeSet::new();
    for requirement in shape.volumes.iter().flat_map(|volume| &volume.alternatives).flat_map(|term| &term.expressions) {
        if label::normalized(&requirement.key) != label::ZONE || requirement.operator != Operator::In {
            return BTreeSet::new();
        }
        zones.extend(requirement.values.iter().map(String::as_str));
    }
    zones
}

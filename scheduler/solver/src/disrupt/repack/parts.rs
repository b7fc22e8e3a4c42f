//! The parts of a joint removal. Each part must pay on its own, so that the saving of one does not pay for another.

use super::Candidate;
use crate::place::draft::Draft;
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::Node;
use std::collections::{BTreeMap, BTreeSet};

/// Removed nodes whose pods share launches, and these launches.
pub(in crate::disrupt) struct Part<'s, 'a> {
    pub(in crate::disrupt) nodes: Vec<&'s Candidate<'a>>,
    pub(in crate::disrupt) launches: Vec<Draft<'a>>,
}

/// Divides the removal of `nodes` into parts that have no launch in common. `launches` have only pods of these nodes.
pub(in crate::disrupt) fn divide<'s, 'a>(nodes: &[&'s Candidate<'a>], launches: Vec<Draft<'a>>) -> Vec<Part<'s, 'a>> {
    let node_of: BTreeMap<&str, Id<Node>> =
        nodes.iter().flat_map(|one| one.pods.iter().map(move |pod| (pod.uid.as_str(), one.node))).collect();
    let mut part_of: BTreeMap<Id<Node>, usize> =
        nodes.iter().enumerate().map(|(number, one)| (one.node, number)).collect();
    let single = |one: &&'s Candidate<'a>| Part { nodes: vec![*one], launches: Vec::new() };
    let mut parts: BTreeMap<usize, Part<'s, 'a>> = nodes.iter().map(single).enumerate().collect();
    for launch in launches {
        let pods = launch.pod_groups.iter().flat_map(|pod_group| &pod_group.pods);
        let sources = pods.filter_map(|pod| node_of.get(pod.uid.as_str()));
        let shared: BTreeSet<usize> = sources.filter_map(|node| part_of.get(node).copied()).collect();
        // The others are merged into the largest part, so that nodes seldom change their part.
        let size = |number: &usize| parts.get(number).map_or(0, |part| part.nodes.len());
        let Some(target) = shared.iter().copied().max_by_key(size) else { continue };
        let Some(mut merged) = parts.remove(&target) else { continue };
        for part in shared.iter().filter_map(|number| parts.remove(number)) {
            part_of.extend(part.nodes.iter().map(|one| (one.node, target)));
            merged.nodes.extend(part.nodes);
            merged.launches.extend(part.launches);
        }
        merged.launches.push(launch);
        parts.insert(target, merged);
    }
    parts.into_values().collect()
}

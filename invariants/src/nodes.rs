//! Existing nodes: what the plan puts there fits beside what is there.

use crate::Violation;
use crate::facts::Facts;
use crate::labels::{aliased, label_problem, taint_problem};
use plimsoll_model::names::ATTACHABLE_VOLUMES_PREFIX;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{HostPort, Node, PodShape};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let mut coming: BTreeMap<&str, Vec<&PodRef>> = BTreeMap::new();
    let moved = plan.terminations.iter().flat_map(|one| &one.moved_to);
    for placement in plan.placements.iter().chain(moved) {
        coming.entry(placement.node.as_str()).or_default().extend(&placement.pods);
    }
    for (name, pods) in coming {
        let Some(node) = facts.node(name) else {
            found.push(Violation::UnknownNode(name.to_owned()));
            continue;
        };
        let (mut room, mut ports): (_, Vec<&HostPort>) = (node.allocatable.clone(), Vec::new());
        let there = facts.there(name);
        for shape in there.filter_map(|pod| facts.shape_of(pod.uid.as_str())) {
            room.subtract(&shape.requests);
            ports.extend(&shape.host_ports);
        }
        let closed = node.cordoned || facts.leaving.contains(name);
        let labels = aliased(&node.labels);
        let mut load = Resources::new();
        for (shape, count, pod) in facts.by_shape(pods.iter().copied()) {
            load.add_times(&shape.requests, count);
            let mut problem = taint_problem(shape, &node.taints)
                .or_else(|| label_problem(shape, name, |key| labels.get(key).copied()));
            let clash = shape.host_ports.iter().any(|port| ports.iter().any(|other| other.conflicts(port)));
            if clash || (count > 1 && !shape.host_ports.is_empty()) {
                problem = problem.or_else(|| Some("host port".to_owned()));
            }
            if closed {
                problem = problem.or_else(|| Some("the node takes no new pods".to_owned()));
            }
            if let Some(problem) = problem {
                found.push(Violation::PodDoesNotFit { pod: pod.name.clone(), place: name.to_owned(), problem });
            }
            ports.extend(&shape.host_ports);
        }
        let excess = load.first_excess(&room).map(str::to_owned).or_else(|| attached(facts, node, &pods));
        if let Some(resource) = excess {
            found.push(Violation::Overcommitted { place: name.to_owned(), resource });
        }
    }
}

/// The first CSI driver of which more volumes would be attached than the node takes.
fn attached(facts: &Facts<'_>, node: &Node, pods: &[&PodRef]) -> Option<String> {
    let there = facts.there(node.name.as_str()).map(|pod| pod.uid.as_str());
    let all: Vec<&PodShape> =
        there.chain(pods.iter().map(|pod| pod.uid.as_str())).filter_map(|uid| facts.shape_of(uid)).collect();
    // What was over before is not this plan's doing.
    let adds = |driver: &str| {
        let coming = pods.iter().filter_map(|pod| facts.shape_of(pod.uid.as_str()));
        coming.flat_map(|shape| &shape.volumes).any(|volume| volume.driver == driver)
    };
    for (name, limit) in node.allocatable.iter() {
        let Some(driver) = name.strip_prefix(ATTACHABLE_VOLUMES_PREFIX).filter(|driver| adds(driver)) else { continue };
        let (mut shared, mut count) = (BTreeSet::new(), 0_i64);
        for shape in &all {
            for volume in shape.volumes.iter().filter(|volume| volume.driver == driver) {
                let own = volume.claim.is_empty();
                count += i64::from(own || shared.insert((&shape.namespace, &volume.claim)));
            }
        }
        if count > limit {
            return Some(name.to_owned());
        }
    }
    None
}

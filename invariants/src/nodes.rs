//! Existing nodes: what the plan puts there fits beside what is there.

use crate::labels::{aliased, label_problem, taint_problem};
use crate::{Facts, Violation};
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::HostPort;
use std::collections::BTreeMap;

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let mut coming: BTreeMap<&str, Vec<&PodRef>> = BTreeMap::new();
    let moved = plan.terminations.iter().flat_map(|one| &one.moved_to);
    for placement in plan.placements.iter().chain(moved) {
        coming.entry(placement.node.as_str()).or_default().extend(&placement.pods);
    }
    for (name, pods) in coming {
        let Some(node) = facts.nodes.get(name) else {
            found.push(Violation::UnknownNode(name.to_owned()));
            continue;
        };
        let (mut room, mut ports): (_, Vec<&HostPort>) = (node.allocatable.clone(), Vec::new());
        let there = facts.there.get(name).into_iter().flatten();
        for shape in there.filter_map(|pod| facts.shape(pod.uid.as_str())) {
            room.subtract(&shape.requests);
            ports.extend(&shape.host_ports);
        }
        let closed = node.cordoned || facts.leaving.contains(name);
        let labels = aliased(&node.labels);
        let mut load = Resources::new();
        for pod in &pods {
            if let Some(shape) = facts.shape(pod.uid.as_str()) {
                load.add(&shape.requests);
            }
        }
        for (shape, count, pod) in facts.by_shape(pods.iter().copied()) {
            let mut problem = taint_problem(shape, &node.taints).or_else(|| label_problem(shape, name, &labels));
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
        if let Some(resource) = load.first_excess(&room) {
            found.push(Violation::Overcommitted { place: name.to_owned(), resource: resource.to_owned() });
        }
    }
}

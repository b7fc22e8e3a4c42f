//! Existing nodes: what the plan puts there fits beside what is there.

use crate::pods::{label_problem, taint_problem};
use crate::{Facts, Violation};
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::{HostPort, PodState};
use std::collections::BTreeMap;

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let mut coming: BTreeMap<&str, Vec<&PodRef>> = BTreeMap::new();
    let moved = plan.terminations.iter().flat_map(|one| &one.moved_to);
    for placement in plan.placements.iter().chain(moved) {
        coming.entry(placement.node.as_str()).or_default().extend(&placement.pods);
    }
    for (name, pods) in coming {
        let Some(node) = facts.snapshot.nodes.iter().find(|node| node.name.as_str() == name) else {
            found.push(Violation::UnknownNode(name.to_owned()));
            continue;
        };
        let there = facts.snapshot.pods.iter().filter(|pod| match &pod.state {
            PodState::Bound(at) | PodState::Reserved(at) => *at == node.name,
            PodState::Pending => false,
        });
        let there = there.filter_map(|pod| facts.shape(pod.uid.as_str()));
        let (mut room, mut ports): (_, Vec<&HostPort>) = (node.allocatable.clone(), Vec::new());
        for shape in there {
            room.subtract(&shape.requests);
            ports.extend(&shape.host_ports);
        }
        let closed = node.cordoned || node.deleting || plan.terminations.iter().any(|one| one.node == node.name);
        let mut load = plimsoll_model::resources::Resources::new();
        for pod in pods {
            let Some(shape) = facts.shape(pod.uid.as_str()) else { continue };
            let mut problem = taint_problem(shape, &node.taints).or_else(|| label_problem(shape, name, &node.labels));
            if shape.host_ports.iter().any(|port| ports.iter().any(|other| other.conflicts(port))) {
                problem = problem.or_else(|| Some("host port".to_owned()));
            }
            if closed {
                problem = problem.or_else(|| Some("the node takes no new pods".to_owned()));
            }
            if let Some(problem) = problem {
                found.push(Violation::PodDoesNotFit { pod: pod.name.clone(), place: name.to_owned(), problem });
            }
            load.add(&shape.requests);
            ports.extend(&shape.host_ports);
        }
        if let Some(resource) = load.first_excess(&room) {
            found.push(Violation::Overcommitted { place: name.to_owned(), resource: resource.to_owned() });
        }
    }
}

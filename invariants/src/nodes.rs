//! Checks existing nodes: the placed pods fit together with the existing pods.

use crate::Violation;
use crate::facts::Facts;
use crate::labels::{aliased, label_problem, taint_problem};
use plimsoll_model::names::ATTACHABLE_VOLUMES_PREFIX;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{HostPort, Node, PodShape};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, violations: &mut Vec<Violation>) {
    let mut arriving: BTreeMap<&str, Vec<&PodRef>> = BTreeMap::new();
    let moved = plan.terminations.iter().flat_map(|termination| &termination.moved_to);
    for placement in plan.placements.iter().chain(moved) {
        arriving.entry(placement.node.as_str()).or_default().extend(&placement.pods);
    }
    for (name, pods) in arriving {
        let Some(node) = facts.node(name) else {
            violations.push(Violation::UnknownNode(name.to_owned()));
            continue;
        };
        let (mut free, mut ports): (_, Vec<&HostPort>) = (node.allocatable.clone(), Vec::new());
        let existing = facts.pods_on(name);
        for shape in existing.filter_map(|pod| facts.shape_of(pod.uid.as_str())) {
            free.subtract(&shape.requests);
            ports.extend(&shape.host_ports);
        }
        let unavailable = node.cordoned || facts.leaving.contains(name);
        let labels = aliased(&node.labels);
        let mut load = Resources::new();
        for (shape, count, pod) in facts.by_shape(pods.iter().copied()) {
            load.add_times(&shape.requests, count);
            let mut problem = taint_problem(shape, &node.taints)
                .or_else(|| label_problem(shape, name, |key| labels.get(key).copied()));
            let port_conflict = shape.host_ports.iter().any(|port| ports.iter().any(|other| other.conflicts(port)));
            if port_conflict || (count > 1 && !shape.host_ports.is_empty()) {
                problem = problem.or_else(|| Some("host port".to_owned()));
            }
            if unavailable {
                problem = problem.or_else(|| Some("the node takes no new pods".to_owned()));
            }
            if let Some(problem) = problem {
                violations.push(Violation::PodDoesNotFit { pod: pod.name.clone(), place: name.to_owned(), problem });
            }
            ports.extend(&shape.host_ports);
        }
        let excess = load.first_excess(&free).map(str::to_owned).or_else(|| volume_excess(facts, node, &pods));
        if let Some(resource) = excess {
            violations.push(Violation::Overcommitted { place: name.to_owned(), resource });
        }
    }
}

/// Returns the first CSI driver whose attach limit the node would exceed.
fn volume_excess(facts: &Facts<'_>, node: &Node, pods: &[&PodRef]) -> Option<String> {
    let existing = facts.pods_on(node.name.as_str()).map(|pod| pod.uid.as_str());
    let shapes: Vec<&PodShape> =
        existing.chain(pods.iter().map(|pod| pod.uid.as_str())).filter_map(|uid| facts.shape_of(uid)).collect();
    // A limit that was exceeded before is only reported if the plan adds volumes of its driver.
    let adds = |driver: &str| {
        let arriving = pods.iter().filter_map(|pod| facts.shape_of(pod.uid.as_str()));
        arriving.flat_map(|shape| &shape.volumes).any(|volume| volume.driver == driver)
    };
    for (name, limit) in node.allocatable.iter() {
        let Some(driver) = name.strip_prefix(ATTACHABLE_VOLUMES_PREFIX).filter(|driver| adds(driver)) else { continue };
        let (mut shared, mut count) = (BTreeSet::new(), 0_i64);
        for shape in &shapes {
            for volume in shape.volumes.iter().filter(|volume| volume.driver == driver) {
                let unshared = volume.claim.is_empty();
                count += i64::from(unshared || shared.insert((&shape.namespace, &volume.claim)));
            }
        }
        if count > limit {
            return Some(name.to_owned());
        }
    }
    None
}

//! Virtual pods of CapacityBuffers in plans. Nodes are planned and launched for them, but placements and reasons for
//! them are not reported.

use crate::snapshots::PublishedSnapshot;
use plimsoll_model::execution::{BufferProvisioning, BufferReady, BufferReport};
use plimsoll_model::identity::PodUid;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::{NodeState, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Removes virtual pods from the plan's placements and unschedulable pods. Launches keep their virtual pods, so that
/// the actuator knows which pods have a claim.
#[must_use]
pub fn without_virtual_pods(mut plan: Plan, snapshot: &Snapshot) -> Plan {
    let virtual_pods = virtual_pods(snapshot);
    if virtual_pods.is_empty() {
        return plan;
    }
    let exists = |pod: &PodRef| !virtual_pods.contains(&pod.uid);
    plan.placements.iter_mut().for_each(|placement| placement.pods.retain(exists));
    plan.placements.retain(|placement| !placement.pods.is_empty());
    plan.unschedulable.retain(|unschedulable| exists(&unschedulable.pod));
    plan
}

/// Virtual pods of the plan's launches.
#[must_use]
pub fn launched_virtual_pods(plan: &Plan, snapshot: &Snapshot) -> BTreeSet<PodUid> {
    let virtual_pods = virtual_pods(snapshot);
    if virtual_pods.is_empty() {
        return BTreeSet::new();
    }
    let launched = plan.launched_pods().map(|pod| &pod.uid);
    launched.filter(|uid| virtual_pods.contains(uid)).cloned().collect()
}

fn virtual_pods(snapshot: &Snapshot) -> BTreeSet<&PodUid> {
    snapshot.pods.iter().filter(|pod| pod.is_virtual()).map(|pod| &pod.uid).collect()
}

/// Status of CapacityBuffers under `plan`, which must still contain virtual pods.
#[must_use]
pub fn buffer_reports(published: &PublishedSnapshot, plan: &Plan) -> Vec<BufferReport> {
    if published.buffers.is_empty() {
        return Vec::new();
    }
    let snapshot = &published.snapshot;
    let in_service = |name: &str| {
        let node = snapshot.nodes.iter().find(|node| node.name.as_str() == name);
        node.is_some_and(|node| node.state == NodeState::Initialized)
    };
    let placed = plan.placements.iter().filter(|placement| in_service(placement.node.as_str()));
    let placed: BTreeSet<&PodUid> = placed.flat_map(|placement| &placement.pods).map(|pod| &pod.uid).collect();
    let mut placed_by_buffer: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for pod in snapshot.pods.iter().filter(|pod| placed.contains(&pod.uid)) {
        if let Some(owner) = &pod.buffer {
            *placed_by_buffer.entry((&pod.namespace, &owner.buffer)).or_default() += 1;
        }
    }
    let report = |buffer: &BufferReport| {
        let fitting = placed_by_buffer.get(&(buffer.namespace.as_str(), buffer.name.as_str())).copied().unwrap_or(0);
        let (provisioning, room) = match (buffer.ready, buffer.replicas) {
            (BufferReady::Resolved, 0) => (BufferProvisioning::BufferEmpty, String::new()),
            (BufferReady::Resolved, wanted) => {
                let fits = BufferProvisioning::FitsExistingCapacity;
                let state = if fitting >= wanted { fits } else { BufferProvisioning::RequiresNewCapacity };
                (state, format!("nodes in service have room for {fitting} of {wanted} pods"))
            }
            _ => (BufferProvisioning::NotReadyForProvisioning, String::new()),
        };
        BufferReport { provisioning: Some(provisioning), room, ..buffer.clone() }
    };
    published.buffers.iter().map(report).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::{node, pod as existing_pod};
    use crate::snapshots::tests::published;
    use plimsoll_model::plan::{Launch, Placement, Unschedulable};
    use plimsoll_model::snapshot::{BufferPod, Pod};

    fn pod(uid: &str, buffer: Option<&str>) -> Pod {
        let buffer = buffer.map(|buffer| BufferPod { buffer: buffer.to_owned(), node: None });
        Pod { buffer, ..existing_pod(uid) }
    }

    fn pod_ref(uid: &str) -> PodRef {
        PodRef { name: format!("shop/{uid}"), uid: uid.into() }
    }

    fn on(node: &str, pods: &[&str]) -> Placement {
        Placement { node: node.into(), pods: pods.iter().map(|uid| pod_ref(uid)).collect() }
    }

    #[test]
    fn virtual_pods_are_removed_from_placements_and_unschedulable_pods() {
        let snapshot = Snapshot { pods: vec![pod("a", None), pod("v", Some("spare"))].into(), ..Snapshot::default() };
        let unschedulable = |uid: &str| Unschedulable { pod: pod_ref(uid), reasons: Default::default() };
        let plan = Plan {
            placements: vec![on("n1", &["a", "v"]), on("n2", &["v"])],
            unschedulable: vec![unschedulable("a"), unschedulable("v")],
            ..Plan::default()
        };
        let visible = without_virtual_pods(plan.clone(), &snapshot);
        assert_eq!((visible.placements, visible.unschedulable), (vec![on("n1", &["a"])], vec![unschedulable("a")]));
        let without = Snapshot { pods: vec![pod("a", None)].into(), ..Snapshot::default() };
        assert_eq!(without_virtual_pods(plan.clone(), &without), plan);
    }

    #[test]
    fn the_virtual_pods_of_launches_are_told_to_the_actuator() {
        let snapshot = Snapshot { pods: vec![pod("a", None), pod("v", Some("spare"))].into(), ..Snapshot::default() };
        let launch = Launch {
            action_id: "a".into(),
            node_pool: "default".into(),
            node_class: "default".to_owned(),
            pods: vec![pod_ref("a"), pod_ref("v")],
            ..Launch::default()
        };
        let plan = Plan { launches: vec![launch], placements: vec![on("n1", &["w"])], ..Plan::default() };
        assert_eq!(launched_virtual_pods(&plan, &snapshot), BTreeSet::from(["v".into()]));
    }

    #[test]
    fn the_capacity_of_a_buffer_exists_once_nodes_in_service_have_room_for_all_of_its_pods() {
        let buffer = |namespace: &str, name: &str, replicas: u32, ready: BufferReady| BufferReport {
            namespace: namespace.to_owned(),
            name: name.to_owned(),
            uid: format!("{namespace}-{name}"),
            replicas,
            ready,
            ..BufferReport::default()
        };
        let buffers = vec![
            buffer("shop", "spare", 2, BufferReady::Resolved),
            buffer("other", "spare", 1, BufferReady::Resolved),
            buffer("shop", "empty", 0, BufferReady::Resolved),
            buffer("shop", "broken", 0, BufferReady::PodTemplateNotFound),
        ];
        let other = Pod { namespace: "other".to_owned(), ..pod("o", Some("spare")) };
        let pods = vec![pod("a", Some("spare")), pod("b", Some("spare")), other, pod("p", None)].into();
        let nodes = [
            ("in-service", NodeState::Initialized),
            ("registered", NodeState::Registered),
            ("in-flight", NodeState::InFlight),
        ];
        let nodes = nodes.map(|(name, state)| plimsoll_model::snapshot::Node { state, ..node(name, "default") }).into();
        let mut published = published(Snapshot { pods, nodes, ..Snapshot::default() });
        published.buffers = buffers.clone();
        for (placements, spare, other) in [
            (vec![on("in-service", &["a", "b"])], 2, 0),
            (vec![on("in-service", &["a"]), on("registered", &["b"])], 1, 0),
            (vec![on("in-service", &["o", "p"]), on("in-flight", &["a", "b"])], 0, 1),
            (vec![on("gone", &["a", "b", "o"])], 0, 0),
        ] {
            let plan = Plan { placements, ..Plan::default() };
            let room = |fitting: u32, wanted: u32| {
                let is_there = fitting == wanted;
                let (fits, requires) =
                    (BufferProvisioning::FitsExistingCapacity, BufferProvisioning::RequiresNewCapacity);
                let text = format!("nodes in service have room for {fitting} of {wanted} pods");
                (if is_there { fits } else { requires }, text)
            };
            let expected = [
                room(spare, 2),
                room(other, 1),
                (BufferProvisioning::BufferEmpty, String::new()),
                (BufferProvisioning::NotReadyForProvisioning, String::new()),
            ];
            let expected: Vec<BufferReport> = std::iter::zip(&buffers, expected)
                .map(|(buffer, (state, room))| BufferReport { provisioning: Some(state), room, ..buffer.clone() })
                .collect();
            assert_eq!(buffer_reports(&published, &plan), expected, "{:?}", plan.placements);
        }
    }
}

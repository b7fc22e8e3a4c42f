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
    use plimsoll_model::plan::{Placement, Unschedulable};
    use plimsoll_model::snapshot::{BufferPod, Pod, PodState};
    use plimsoll_model::time::Timestamp;

    fn pod(uid: &str, buffer: Option<&str>) -> Pod {
        Pod {
            uid: uid.into(),
            namespace: "shop".to_owned(),
            name: uid.to_owned(),
            shape: "s".into(),
            state: PodState::Pending,
            created: Timestamp(0),
            stays_with_node: false,
            terminating: false,
            returns: false,
            do_not_disrupt_until: None,
            eviction_cost_milli: 0,
            pod_disruption_budgets: Vec::new(),
            buffer: buffer.map(|buffer| BufferPod { buffer: buffer.to_owned(), node: None }),
        }
    }

    #[test]
    fn virtual_pods_are_removed_from_placements_and_unschedulable_pods() {
        let snapshot = Snapshot { pods: vec![pod("a", None), pod("v", Some("spare"))], ..Snapshot::default() };
        let pod_ref = |uid: &str| PodRef { name: format!("shop/{uid}"), uid: uid.into() };
        let on = |node: &str, pods: &[&str]| Placement {
            node: node.into(),
            pods: pods.iter().map(|uid| pod_ref(uid)).collect(),
        };
        let unschedulable = |uid: &str| Unschedulable { pod: pod_ref(uid), reasons: Default::default() };
        let plan = Plan {
            placements: vec![on("n1", &["a", "v"]), on("n2", &["v"])],
            unschedulable: vec![unschedulable("a"), unschedulable("v")],
            ..Plan::default()
        };
        let visible = without_virtual_pods(plan.clone(), &snapshot);
        assert_eq!((visible.placements, visible.unschedulable), (vec![on("n1", &["a"])], vec![unschedulable("a")]));
        let without = Snapshot { pods: vec![pod("a", None)], ..Snapshot::default() };
        assert_eq!(without_virtual_pods(plan.clone(), &without), plan);
    }
}

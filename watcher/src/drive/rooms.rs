//! Virtual pods in plans: they are planned for, and launched for, but nobody is told of them.

use crate::snapshots::Published;
use plimsoll_model::execution::{BufferProvisioning, BufferReady, BufferReport};
use plimsoll_model::identity::PodUid;
use plimsoll_model::plan::{Plan, PodRef};
use plimsoll_model::snapshot::{NodeState, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// The plan without what it says of pods that do not exist. Launches for them stay, and name them: the actuator knows by it which claim they have.
#[must_use]
pub fn told(mut plan: Plan, snapshot: &Snapshot) -> Plan {
    let virtual_pods = virtual_pods(snapshot);
    if virtual_pods.is_empty() {
        return plan;
    }
    let exists = |pod: &PodRef| !virtual_pods.contains(&pod.uid);
    plan.placements.iter_mut().for_each(|placement| placement.pods.retain(exists));
    plan.placements.retain(|placement| !placement.pods.is_empty());
    plan.unschedulable.retain(|one| exists(&one.pod));
    plan
}

/// Which pods of the plan's launches do not exist.
#[must_use]
pub fn launched(plan: &Plan, snapshot: &Snapshot) -> BTreeSet<PodUid> {
    let virtual_pods = virtual_pods(snapshot);
    if virtual_pods.is_empty() {
        return BTreeSet::new();
    }
    let named = plan.launches.iter().flat_map(|launch| &launch.pods).map(|pod| &pod.uid);
    named.filter(|uid| virtual_pods.contains(uid)).cloned().collect()
}

fn virtual_pods(snapshot: &Snapshot) -> BTreeSet<&PodUid> {
    snapshot.pods.iter().filter(|pod| pod.is_virtual()).map(|pod| &pod.uid).collect()
}

/// What CapacityBuffers come to by that plan, which has not been cut to what is told.
#[must_use]
pub fn reports(published: &Published, plan: &Plan) -> Vec<BufferReport> {
    if published.buffers.is_empty() {
        return Vec::new();
    }
    let snapshot = &published.snapshot;
    let in_service = |name: &str| {
        let found = snapshot.nodes.iter().find(|node| node.name.as_str() == name);
        found.is_some_and(|node| node.state == NodeState::Initialized)
    };
    let there = plan.placements.iter().filter(|placement| in_service(placement.node.as_str()));
    let there: BTreeSet<&PodUid> = there.flat_map(|placement| &placement.pods).map(|pod| &pod.uid).collect();
    let mut roomy: BTreeMap<(&str, &str), u32> = BTreeMap::new();
    for pod in snapshot.pods.iter().filter(|pod| there.contains(&pod.uid)) {
        if let Some(of) = &pod.buffer {
            *roomy.entry((&pod.namespace, &of.buffer)).or_default() += 1;
        }
    }
    let report = |known: &BufferReport| {
        let have = roomy.get(&(known.namespace.as_str(), known.name.as_str())).copied().unwrap_or(0);
        let (provisioning, room) = match (known.ready, known.replicas) {
            (BufferReady::Resolved, 0) => (BufferProvisioning::BufferEmpty, String::new()),
            (BufferReady::Resolved, asked) => {
                let fits = BufferProvisioning::FitsExistingCapacity;
                let state = if have >= asked { fits } else { BufferProvisioning::RequiresNewCapacity };
                (state, format!("nodes in service have room for {have} of {asked} pods"))
            }
            _ => (BufferProvisioning::NotReadyForProvisioning, String::new()),
        };
        BufferReport { provisioning: Some(provisioning), room, ..known.clone() }
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
    fn nobody_is_told_of_pods_that_do_not_exist() {
        let snapshot = Snapshot { pods: vec![pod("a", None), pod("v", Some("spare"))], ..Snapshot::default() };
        let one = |uid: &str| PodRef { name: format!("shop/{uid}"), uid: uid.into() };
        let on = |node: &str, pods: &[&str]| Placement {
            node: node.into(),
            pods: pods.iter().map(|uid| one(uid)).collect(),
        };
        let left = |uid: &str| Unschedulable { pod: one(uid), reasons: Vec::new() };
        let plan = Plan {
            placements: vec![on("n1", &["a", "v"]), on("n2", &["v"])],
            unschedulable: vec![left("a"), left("v")],
            ..Plan::default()
        };
        let told = told(plan.clone(), &snapshot);
        assert_eq!((told.placements, told.unschedulable), (vec![on("n1", &["a"])], vec![left("a")]));
        let without = Snapshot { pods: vec![pod("a", None)], ..Snapshot::default() };
        assert_eq!(super::told(plan.clone(), &without), plan);
    }
}

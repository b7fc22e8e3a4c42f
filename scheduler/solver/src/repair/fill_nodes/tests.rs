//! Tests of pods that are added to launches of a plan.

use super::{Inputs, Narrowing, merge_plans};
use crate::repair::Overlaid;
use plimsoll_model::identity::{ActionId, NodeName, NodePoolName, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, Placement, Plan, PodRef, Termination, Unschedulable};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{DisruptionReason, Snapshot};
use std::collections::BTreeMap;
use std::sync::Arc;

fn pod(name: &str) -> PodRef {
    PodRef { name: name.into(), uid: PodUid::from(name) }
}

fn launch(id: &str, pods: &[&str]) -> Launch {
    Launch {
        action_id: ActionId(id.into()),
        node_pool: NodePoolName::from("default"),
        node_class: "default".into(),
        offerings: Arc::default(),
        requirements: Arc::default(),
        requests: Resources::new(),
        taints: Vec::new(),
        labels: BTreeMap::new(),
        pods: pods.iter().map(|name| pod(name)).collect(),
        prioritized: false,
        why: String::new(),
    }
}

fn termination(node: &str, pods: &[&str], replaced_by: &[usize]) -> Termination {
    Termination {
        action_id: ActionId(format!("remove-{node}")),
        node: NodeName::from(node),
        reason: DisruptionReason::Expired,
        pods: pods.iter().map(|name| pod(name)).collect(),
        replaced_by: replaced_by.to_vec(),
        moved_to: Vec::new(),
        saving: MicroUsdPerHour(0),
    }
}

#[test]
fn terminations_follow_their_launches_to_other_places() {
    let plan = Plan {
        launches: vec![launch("one", &["b", "x"]), launch("two", &["c"]), launch("three", &["d"])],
        terminations: vec![termination("n1", &["d"], &[2]), termination("n2", &["c", "x"], &[0, 1])],
        unschedulable: vec![Unschedulable { pod: pod("a"), reasons: Default::default() }],
        ..Plan::default()
    };
    let added =
        Plan { placements: vec![Placement { node: NodeName::from("two"), pods: vec![pod("a")] }], ..Plan::default() };
    let snapshot = Snapshot::default();
    let catalogs = BTreeMap::new();
    let inputs = Inputs { snapshot: &snapshot, catalogs: &catalogs, overlaid: &Overlaid::new() };
    let all = merge_plans(inputs, &plan, &added, &snapshot, Narrowing::None);
    let pods = |launch: &Launch| launch.pods.iter().map(|pod| pod.name.clone()).collect::<Vec<_>>().join(" ");
    assert_eq!(all.launches.iter().map(pods).collect::<Vec<_>>(), ["a c", "b x", "d"]);
    assert!(all.unschedulable.is_empty());
    // The launches with the pods of n2 are first and second now. The launch with the pod of n1 keeps its position.
    assert_eq!(all.terminations[0].replaced_by, [2]);
    assert_eq!(all.terminations[1].replaced_by, [0, 1]);
    // No pod is added to a node that is removed.
    let added_on_n1 =
        Plan { placements: vec![Placement { node: NodeName::from("n1"), pods: vec![pod("a")] }], ..added.clone() };
    assert_eq!(merge_plans(inputs, &plan, &added_on_n1, &snapshot, Narrowing::None), plan);
    let plan = Plan { terminations: vec![termination("n3", &["c"], &[1])], ..plan };
    assert_eq!(merge_plans(inputs, &plan, &added, &snapshot, Narrowing::None).terminations[0].replaced_by, [0]);
}

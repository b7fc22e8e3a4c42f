use super::*;
use plimsoll_model::identity::ActionId;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Placement, PodRef, Termination};
use plimsoll_model::snapshot::{DisruptionReason, Pod};
use plimsoll_model::time::Timestamp;

fn existing(name: &str) -> Node {
    Node {
        name: NodeName::from(name),
        node_claim: None,
        node_pool: None,
        state: NodeState::Initialized,
        labels: BTreeMap::new(),
        taints: Vec::new(),
        allocatable: Resources::new(),
        limit_usage: Resources::new(),
        ready: true,
        cordoned: false,
        deleting: false,
        do_not_disrupt: false,
        created: Timestamp(0),
        expires: None,
        idle_since: None,
        drifted: None,
        termination_grace_period: None,
    }
}

fn bound(name: &str, node: &str) -> Pod {
    Pod {
        uid: PodUid::from(name),
        namespace: "ns".into(),
        name: name.into(),
        shape: ShapeId::from("one"),
        state: PodState::Bound(NodeName::from(node)),
        created: Timestamp(0),
        stays_with_node: false,
        terminating: false,
        do_not_disrupt_until: None,
        eviction_cost_milli: 1000,
        pod_disruption_budgets: Vec::new(),
    }
}

#[test]
fn a_node_that_goes_is_gone_and_its_pods_are_where_they_move() {
    let snapshot = Snapshot {
        nodes: vec![existing("n1"), existing("n2")],
        pods: vec![bound("agent", "n1"), bound("moves", "n1"), bound("stays", "n2")],
        ..Snapshot::default()
    };
    let moves = vec![PodRef { name: "ns/moves".into(), uid: PodUid::from("moves") }];
    let plan = Plan {
        terminations: vec![Termination {
            action_id: ActionId("remove".into()),
            node: NodeName::from("n1"),
            reason: DisruptionReason::Underutilized,
            pods: moves.clone(),
            replaced_by: Vec::new(),
            moved_to: vec![Placement { node: NodeName::from("n2"), pods: moves }],
            saving: MicroUsdPerHour(0),
        }],
        ..Plan::default()
    };
    let after = out(&snapshot, &BTreeMap::new(), &plan);
    assert_eq!(after.nodes.iter().map(|node| node.name.as_str()).collect::<Vec<_>>(), ["n2"]);
    let there = |pod: &Pod| (pod.name.clone(), pod.state == PodState::Bound(NodeName::from("n2")));
    let expected = [("moves".to_owned(), true), ("stays".to_owned(), true)];
    assert_eq!(after.pods.iter().map(there).collect::<Vec<_>>(), expected);
}

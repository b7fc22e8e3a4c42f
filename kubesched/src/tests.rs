//! Tests of all rules together, and builders of clusters.

mod differential;
mod state;
mod topology;

use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{LabelSelector, Node, NodeState, Pod, PodShape, PodState, Snapshot};
use plimsoll_model::time::Timestamp;

fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    Node {
        name: NodeName::from(name),
        node_claim: None,
        node_pool: None,
        state: NodeState::Initialized,
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        taints: Vec::new(),
        allocatable: Resources::from([("cpu", 4000), ("pods", 10)]),
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

fn pod(name: &str, shape: &PodShape, state: PodState) -> Pod {
    Pod {
        uid: PodUid::from(name),
        namespace: shape.namespace.clone(),
        name: name.to_owned(),
        shape: shape.id.clone(),
        state,
        created: Timestamp(0),
        stays_with_node: false,
        terminating: false,
        returns: false,
        do_not_disrupt_until: None,
        eviction_cost_milli: 1000,
        pod_disruption_budgets: Vec::new(),
        buffer: None,
    }
}

/// A shape that requests `cpu` millicores, with this `app` label.
fn shape(app: &str, millis: i64) -> PodShape {
    PodShape {
        namespace: "default".into(),
        labels: [("app".to_owned(), app.to_owned())].into(),
        requests: Resources::from([("cpu", millis), ("pods", 1)]),
        ..PodShape::default()
    }
}

fn selector(app: &str) -> LabelSelector {
    LabelSelector { match_labels: [("app".to_owned(), app.to_owned())].into(), match_expressions: Vec::new() }
}

/// Names shapes by their content and sorts all lists.
fn snapshot(nodes: Vec<Node>, pods: Vec<(&str, PodShape, PodState)>) -> Snapshot {
    let mut snapshot = Snapshot { nodes, ..Snapshot::default() };
    for (name, mut shape, state) in pods {
        shape.id = shape.content_id();
        snapshot.pods.push(pod(name, &shape, state));
        if !snapshot.shapes.contains(&shape) {
            snapshot.shapes.push(shape);
        }
    }
    snapshot.sort();
    snapshot
}

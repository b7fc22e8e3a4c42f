//! Tests of all rules together, and builders of clusters.

mod differential;
mod state;
mod topology;

use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{LabelSelector, Node, NodeState, Pod, PodShape, PodState, Snapshot};

fn node(name: &str, labels: &[(&str, &str)]) -> Node {
    Node {
        name: NodeName::from(name),
        state: NodeState::Initialized,
        labels: labels.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        allocatable: Resources::from([("cpu", 4000), ("pods", 10)]),
        ready: true,
        ..Node::default()
    }
}

fn pod(name: &str, shape: &PodShape, state: PodState) -> Pod {
    Pod {
        uid: PodUid::from(name),
        namespace: shape.namespace.clone(),
        name: name.to_owned(),
        shape: shape.id.clone(),
        state,
        ..Pod::default()
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

//! Objects of snapshots for tests.

use plimsoll_model::snapshot::{Disruption, Node, NodePool, NodeState, Pod};
use plimsoll_model::time::Millis;

/// A pending pod in namespace `shop`.
pub(crate) fn pod(uid: &str) -> Pod {
    Pod { uid: uid.into(), namespace: "shop".to_owned(), name: uid.to_owned(), shape: "s".into(), ..Pod::default() }
}

/// A node in service.
pub(crate) fn node(name: &str, pool: &str) -> Node {
    Node {
        name: name.into(),
        node_claim: Some(name.to_owned()),
        node_pool: Some(pool.into()),
        state: NodeState::Initialized,
        ready: true,
        ..Node::default()
    }
}

/// A pool that consolidates at once.
pub(crate) fn pool(name: &str) -> NodePool {
    let disruption = Disruption { consolidate_after: Some(Millis(0)), ..Disruption::default() };
    NodePool { name: name.into(), node_class: "default".to_owned(), disruption, ..NodePool::default() }
}

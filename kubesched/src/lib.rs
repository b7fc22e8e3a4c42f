//! kube-scheduler's rules: filters, scores, the order of the scheduling queue, and which pods may be nominated to a
//! node at the same time.
//!
//! A [`ClusterState`] is built from a snapshot. It evaluates the snapshot's pending pods and is updated as they are
//! bound. Bindings can be rolled back. The rules are those of release 1.36 with its default plugins, without
//! preemption, dynamic resource allocation, storage capacity and features that nodes declare.
//!
//! ```
//! use plimsoll_kubesched::{ClusterState, Nominated, Rejection};
//! use plimsoll_model::resources::Resources;
//! use plimsoll_model::snapshot::{Node, NodeState, Pod, PodShape, Snapshot, SnapshotIndex};
//!
//! // A node with 4 CPUs, and a pending pod that requests 3 of them.
//! let allocatable = Resources::from([("cpu", 4000)]);
//! let node = Node { name: "n1".into(), state: NodeState::Initialized, ready: true, allocatable, ..Node::default() };
//! let pod = Pod { uid: "web".into(), name: "web".into(), shape: "web".into(), ..Pod::default() };
//! let requests = Resources::from([("cpu", 3000)]);
//! let shape = PodShape { id: "web".into(), requests, ..PodShape::default() };
//! let snapshot = Snapshot { shapes: vec![shape], pods: vec![pod].into(), nodes: vec![node], ..Snapshot::default() };
//!
//! let mut state = ClusterState::new(&snapshot, &SnapshotIndex::new(&snapshot));
//! let (web, n1) = (state.pods()[0].shape, 0);
//! assert_eq!(state.filter(web, n1, &Nominated::default()), Ok(()));
//!
//! let empty = state.checkpoint();
//! state.bind(web, n1);
//! assert_eq!(state.filter(web, n1, &Nominated::default()), Err(Rejection::Resources));
//! state.rollback(empty);
//! assert_eq!(state.filter(web, n1, &Nominated::default()), Ok(()));
//! ```

#![deny(clippy::indexing_slicing)]

mod affinity;
mod domains;
mod filter;
mod node;
pub mod nomination;
pub mod queue;
pub mod resources;
mod score;
pub mod spread;
mod state;
#[cfg(test)]
mod tests;
mod topology;
pub mod volumes;

pub use filter::{Nominated, Rejection, ports_conflict};
pub use node::{Machine, free_capacity};
pub use state::{Checkpoint, ClusterState, PodSlot};

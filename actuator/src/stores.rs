//! The actuator's own view of the cluster: one reflector per kind, and one signal when any of them changes.

use futures::StreamExt;
use k8s_openapi::api::core::v1::{Node, Pod};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::WatchStreamExt;
use kube::runtime::reflector::{self, Lookup, Store, store::Writer};
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client, Resource};
use plimsoll_api::{EC2NodeClass, NodeClaim, NodePool};
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::hash::Hash;
use std::sync::Arc;
use tokio::sync::watch;

/// A kind that is watched.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// NodeClaim.
    NodeClaim,
    /// Node.
    Node,
    /// Pod.
    Pod,
    /// NodePool.
    NodePool,
    /// EC2NodeClass.
    EC2NodeClass,
    /// PodDisruptionBudget.
    PodDisruptionBudget,
}

const KINDS: usize = 6;

/// What has been seen of each kind.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Seen {
    /// Changes so far.
    changes: [u64; KINDS],
    /// First lists that are complete.
    listed: [bool; KINDS],
}

/// The view. Clones share it.
#[derive(Clone)]
pub struct Stores {
    /// Claims.
    pub claims: Store<NodeClaim>,
    /// Nodes.
    pub nodes: Store<Node>,
    /// Pods.
    pub pods: Store<Pod>,
    /// Pools.
    pub pools: Store<NodePool>,
    /// Node classes.
    pub classes: Store<EC2NodeClass>,
    /// Disruption budgets of pods.
    pub budgets: Store<PodDisruptionBudget>,
    seen: watch::Receiver<Seen>,
}

impl Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stores").field("seen", &*self.seen.borrow()).finish_non_exhaustive()
    }
}

/// Tells of changes since it was asked last. Changes that come together are told together.
#[derive(Debug, Clone)]
pub struct Changes {
    seen: watch::Receiver<Seen>,
    kinds: Vec<Kind>,
    told: Seen,
}

impl Changes {
    /// Resolves once there is a change that was not told; never again when the view is gone.
    pub async fn next(&mut self) {
        loop {
            let now = *self.seen.borrow_and_update();
            let differs = |kind: &Kind| now.changes[*kind as usize] != self.told.changes[*kind as usize];
            if self.kinds.iter().any(differs) {
                self.told = now;
                return;
            }
            if self.seen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }
}

impl Stores {
    /// Starts to watch; the task runs until `stop` is dropped or the runtime ends. Nothing is in the stores until
    /// [`Stores::wait_ready`] is over.
    pub fn start(client: &Client, tasks: &mut tokio::task::JoinSet<()>) -> Self {
        let (sender, seen) = watch::channel(Seen::default());
        let sender = Arc::new(sender);
        let (claims, claim_writer) = reflector::store();
        let (nodes, node_writer) = reflector::store();
        let (pods, pod_writer) = reflector::store();
        let (pools, pool_writer) = reflector::store();
        let (classes, class_writer) = reflector::store();
        let (budgets, budget_writer) = reflector::store();
        // Nodes and claims before pods: skew must buy too little rather than too much.
        tasks.spawn(reflect(Api::all(client.clone()), node_writer, Kind::Node, Arc::clone(&sender)));
        tasks.spawn(reflect(Api::all(client.clone()), claim_writer, Kind::NodeClaim, Arc::clone(&sender)));
        tasks.spawn(reflect(Api::all(client.clone()), pool_writer, Kind::NodePool, Arc::clone(&sender)));
        tasks.spawn(reflect(Api::all(client.clone()), class_writer, Kind::EC2NodeClass, Arc::clone(&sender)));
        tasks.spawn(reflect(Api::all(client.clone()), budget_writer, Kind::PodDisruptionBudget, Arc::clone(&sender)));
        tasks.spawn(reflect(Api::all(client.clone()), pod_writer, Kind::Pod, sender));
        Self { claims, nodes, pods, pools, classes, budgets, seen }
    }

    /// Resolves once every kind has been listed.
    pub async fn wait_ready(&self) {
        let mut seen = self.seen.clone();
        while !seen.borrow_and_update().listed.iter().all(|listed| *listed) {
            if seen.changed().await.is_err() {
                std::future::pending::<()>().await;
            }
        }
    }

    /// Whether every kind has been listed.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.seen.borrow().listed.iter().all(|listed| *listed)
    }

    /// Changes of these kinds, from now on.
    #[must_use]
    pub fn changes(&self, kinds: &[Kind]) -> Changes {
        let seen = self.seen.clone();
        let told = *seen.borrow();
        Changes { seen, kinds: kinds.to_vec(), told }
    }
}

/// Keeps one store up to date for ever: the watcher lists again after errors, with back-off.
async fn reflect<K>(api: Api<K>, writer: Writer<K>, kind: Kind, seen: Arc<watch::Sender<Seen>>)
where
    K: Resource + Lookup + Clone + DeserializeOwned + Debug + Send + Sync + 'static,
    <K as Lookup>::DynamicType: Default + Eq + Hash + Clone,
    <K as Resource>::DynamicType: Default,
{
    let events = watcher(api, watcher::Config::default()).default_backoff();
    let mut events = std::pin::pin!(reflector::reflector(writer, events));
    while let Some(event) = events.next().await {
        match event {
            // A relist is one step: only its end shows in the store.
            Ok(Event::Init | Event::InitApply(_)) => {}
            Ok(event) => seen.send_modify(|seen| {
                seen.changes[kind as usize] += 1;
                seen.listed[kind as usize] |= matches!(event, Event::InitDone);
            }),
            Err(error) => tracing::warn!(?kind, %error, "watch failed, it is begun again"),
        }
    }
}

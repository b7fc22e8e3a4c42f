//! The watch cache: one watch per kind, and a signal that fires when any of them shows a change.

mod index;
mod trim;
mod unreadable;
mod view;

pub use view::{CachedObjects, Cursor, Delta};

use crate::guarded::Guarded;
use crate::nodes;
use futures::StreamExt;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::runtime::WatchStreamExt;
use kube::runtime::utils::Backoff;
use kube::runtime::watcher::{self, Event, watcher};
use kube::{Api, Client};
use parking_lot::Mutex;
use plimsoll_api::{CapacityQuota, EC2NodeClass, NodeClaim, NodeOverlay, NodePool, Pod, SharedParts};
use plimsoll_runtime::program::WATCH_SECONDS;
use plimsoll_runtime::signal;
use std::fmt::Debug;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinSet;
use trim::Trim;
use unreadable::{Change, UnreadableObjects};
use view::Writer;

/// Pause after a watch's first error. Doubles up to [`LAST_PAUSE`]. No jitter: simulations must be deterministic, and
/// these few watches cause no thundering herd.
const FIRST_PAUSE: Duration = Duration::from_millis(800);
const LAST_PAUSE: Duration = Duration::from_secs(30);

/// Back-off of a watch after errors.
#[derive(Debug, Clone, Copy)]
pub struct Pauses(Duration);

impl Default for Pauses {
    fn default() -> Self {
        Self(FIRST_PAUSE)
    }
}

impl Iterator for Pauses {
    type Item = Duration;

    fn next(&mut self) -> Option<Duration> {
        let pause = self.0;
        self.0 = pause.saturating_mul(2).min(LAST_PAUSE);
        Some(pause)
    }
}

impl Backoff for Pauses {
    fn reset(&mut self) {
        *self = Self::default();
    }
}

/// A watched kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum WatchedKind {
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
    /// CapacityQuota. A cluster may not have the kind.
    CapacityQuota,
    /// NodeOverlay. A cluster may not have the kind.
    NodeOverlay,
}

const KINDS: usize = 8;

impl WatchedKind {
    /// Whether a cluster may not have the kind.
    fn is_optional(self) -> bool {
        matches!(self, Self::CapacityQuota | Self::NodeOverlay)
    }
}

/// Progress of each watch.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct WatchProgress {
    /// Number of changes so far.
    changes: [u64; KINDS],
    /// Whether the initial list is complete.
    listed: [bool; KINDS],
}

/// Progress of the watches and its signal.
#[derive(Debug, Default)]
struct WatchState {
    progress: Mutex<WatchProgress>,
    changed: signal::Sender,
}

impl WatchState {
    /// Tells of a change, after which the kind may be listed.
    fn show(&self, kind: WatchedKind, listed: bool) {
        let mut progress = self.progress.lock();
        progress.changes[kind as usize] += 1;
        progress.listed[kind as usize] |= listed;
        drop(progress);
        self.changed.notify();
    }
}

/// Whether the API server does not know the kind.
fn is_unknown_kind(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// The watch cache. Clones share it.
#[derive(Clone)]
#[cfg_attr(test, derive(Default))]
pub struct Stores {
    /// NodeClaims.
    pub claims: CachedObjects<NodeClaim>,
    /// Nodes.
    pub nodes: CachedObjects<Node>,
    /// Pods.
    pub pods: CachedObjects<Pod>,
    /// NodePools.
    pub pools: CachedObjects<NodePool>,
    /// EC2NodeClasses.
    pub classes: CachedObjects<EC2NodeClass>,
    /// PodDisruptionBudgets.
    pub budgets: CachedObjects<PodDisruptionBudget>,
    /// CapacityQuotas.
    pub quotas: CachedObjects<CapacityQuota>,
    /// NodeOverlays.
    pub overlays: CachedObjects<NodeOverlay>,
    state: Arc<WatchState>,
}

impl Debug for Stores {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Stores").field("seen", &*self.state.progress.lock()).finish_non_exhaustive()
    }
}

/// Notifies of changes since the last call. Changes that arrive together are coalesced.
#[derive(Debug, Clone)]
pub struct ChangeSignal {
    state: Arc<WatchState>,
    changed: signal::Receiver,
    kinds: Vec<WatchedKind>,
    delivered: WatchProgress,
}

impl ChangeSignal {
    /// Resolves once there is an unseen change; never again once the watch cache is dropped.
    pub async fn next(&mut self) {
        loop {
            self.changed.mark_unchanged();
            let now = *self.state.progress.lock();
            let differs = |kind: &WatchedKind| now.changes[*kind as usize] != self.delivered.changes[*kind as usize];
            if self.kinds.iter().any(differs) {
                self.delivered = now;
                return;
            }
            self.changed.changed().await;
        }
    }
}

impl Stores {
    /// Starts the watches as tasks. They run until `tasks` is dropped. The views are empty until [`Stores::wait_ready`]
    /// resolves.
    pub fn start(client: &Client, tasks: &mut JoinSet<()>) -> Self {
        let state = Arc::new(WatchState::default());
        // Nodes and claims first, then pods: a skew between the watches must lead to too few launches rather than too
        // many.
        let nodes = start_watch(client, WatchedKind::Node, &state, tasks);
        let claims = start_watch(client, WatchedKind::NodeClaim, &state, tasks);
        let pools = start_watch(client, WatchedKind::NodePool, &state, tasks);
        let classes = start_watch(client, WatchedKind::EC2NodeClass, &state, tasks);
        let budgets = start_watch(client, WatchedKind::PodDisruptionBudget, &state, tasks);
        let quotas = start_watch(client, WatchedKind::CapacityQuota, &state, tasks);
        let overlays = start_watch(client, WatchedKind::NodeOverlay, &state, tasks);
        let pods = start_watch(client, WatchedKind::Pod, &state, tasks);
        Self { claims, nodes, pods, pools, classes, budgets, quotas, overlays, state }
    }

    /// Resolves once every kind has been listed.
    pub async fn wait_ready(&self) {
        let mut changed = self.state.changed.subscribe();
        while !self.is_ready() {
            changed.changed().await;
        }
    }

    /// Whether every kind has been listed.
    #[must_use]
    pub fn is_ready(&self) -> bool {
        self.state.progress.lock().listed.iter().all(|listed| *listed)
    }

    /// Subscribes to changes of these kinds.
    #[must_use]
    pub fn changes(&self, kinds: &[WatchedKind]) -> ChangeSignal {
        let (state, changed) = (Arc::clone(&self.state), self.state.changed.subscribe());
        let delivered = *state.progress.lock();
        ChangeSignal { state, changed, kinds: kinds.to_vec(), delivered }
    }
}

impl Stores {
    /// The Nodes of a claim's instance, by name. There may be two, as after a kubelet was renamed.
    pub(crate) fn nodes_of(&self, claim: &NodeClaim) -> Vec<Arc<Node>> {
        claim.provider_id().map(|id| self.nodes.with_provider_id(id)).unwrap_or_default()
    }

    /// The claims of a Node's instance, by name.
    pub(crate) fn claims_of(&self, node: &Node) -> Vec<Arc<NodeClaim>> {
        nodes::provider_id(node).map(|id| self.claims.with_provider_id(id)).unwrap_or_default()
    }

    /// The pods on the Node of a claim, which the claim's status names.
    pub(crate) fn pods_of(&self, claim: &NodeClaim) -> Vec<Arc<Pod>> {
        claim.node_name().map(|node| self.pods.on_node(node)).unwrap_or_default()
    }
}

/// Starts the watch of a kind as a task. Returns its view.
fn start_watch<K: Trim>(
    client: &Client,
    kind: WatchedKind,
    state: &Arc<WatchState>,
    tasks: &mut JoinSet<()>,
) -> CachedObjects<K> {
    let view = CachedObjects::default();
    tasks.spawn(reflect(Api::all(client.clone()), Writer::new(view.clone()), kind, Arc::clone(state)));
    view
}

/// Keeps one view up to date for ever. The watcher lists again after errors, with back-off. An unreadable object is no
/// error of the watch: the list would fail for ever.
async fn reflect<K: Trim>(api: Api<Guarded<K>>, mut writer: Writer<K>, kind: WatchedKind, state: Arc<WatchState>) {
    let config = watcher::Config::default().timeout(WATCH_SECONDS);
    let list_and_watch = move || {
        let mut parts = SharedParts::default();
        let events = watcher(api.clone(), config.clone()).backoff(Pauses::default()).modify(move |object| {
            if let Ok(object) = &mut object.0 {
                object.trim();
                object.share(&mut parts);
            }
        });
        events.boxed()
    };
    let mut events = list_and_watch();
    let mut unreadable = UnreadableObjects::default();
    while let Some(event) = events.next().await {
        match event {
            Ok(event) => {
                // A relist becomes visible in one step, at its end.
                let (shows, listed) =
                    (!matches!(event, Event::Init | Event::InitApply(_)), matches!(event, Event::InitDone));
                match unreadable.sort(&K::kind(&()), event) {
                    Change::Nothing => continue,
                    Change::Event(event) => writer.take(event),
                    Change::Forget(key) => writer.forget(key),
                }
                if shows {
                    state.show(kind, listed);
                }
            }
            // Clusters without the CRD of an optional kind have no such objects.
            Err(watcher::Error::InitialListFailed(error)) if kind.is_optional() && is_unknown_kind(&error) => {
                writer.take(Event::Init);
                writer.take(Event::InitDone);
                state.show(kind, true);
                tracing::debug!(?kind, "the API server does not know the kind");
            }
            Err(error) => {
                tracing::warn!(?kind, %error, "watch failed, restarting");
                // kube-runtime would only start the same watch again. A list tells whether the kind is gone. It costs
                // more than a watch, so the pause is the longest.
                if matches!(&error, watcher::Error::WatchStartFailed(cause) if kind.is_optional() && is_unknown_kind(cause))
                {
                    tokio::time::sleep(LAST_PAUSE).await;
                    events = list_and_watch();
                }
            }
        }
    }
}

#[cfg(test)]
impl Stores {
    /// A watch cache that shows only these claims, for ever.
    pub(crate) fn of_claims(claims: impl IntoIterator<Item = NodeClaim>) -> Self {
        let stores = Self::default();
        let mut writer = Writer::new(stores.claims.clone());
        claims.into_iter().for_each(|claim| writer.take(Event::Apply(claim)));
        stores
    }
}

#[cfg(test)]
impl<K: index::Indexed> CachedObjects<K> {
    /// Shows an object, as an event of the watch does.
    pub(crate) fn show(&self, object: K) {
        Writer::new(self.clone()).take(Event::Apply(object));
    }

    /// Shows that an object is gone, as an event of the watch does.
    pub(crate) fn show_gone(&self, object: K) {
        Writer::new(self.clone()).take(Event::Delete(object));
    }
}

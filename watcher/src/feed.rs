//! Kubernetes watches that keep the index current.

use crate::facts::Facts;
use crate::guarded::Guarded;
use crate::index::{self, Indexed, ObjectKind, PartialList};
use crate::metrics::WatcherMetrics;
use futures::{StreamExt, TryStreamExt, future::join_all};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, PodTemplate, ReplicationController,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::runtime::watcher::{self, Error as WatchError, Event};
use kube::{Api, Client};
use plimsoll_api::{CapacityBuffer, CapacityQuota, EC2NodeClass, NodeClaim, NodeOverlay, NodePool, Pod, SharedParts};
use plimsoll_runtime::admin::{Readiness, ReadinessHandle};
use plimsoll_runtime::backoff;
use plimsoll_runtime::program::WATCH_SECONDS;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;
use tokio::time::Instant;

/// Pause after the first failure of a watch, doubled by each further failure. A broken connection is reopened quickly,
/// while a failing API server is not overloaded.
const FIRST_PAUSE: Duration = Duration::from_millis(100);

/// Maximum pause after a failure. New pods get no plan for as long after the API server works again.
const LONGEST_PAUSE: Duration = Duration::from_secs(5);

/// How long a failure is remembered. A watch without events does not report that it works, so a later failure counts as
/// the first one.
const FAILURE_MEMORY: Duration = Duration::from_secs(120);

/// How often a kind is looked for whose CRD is not installed.
const CRD_INTERVAL: Duration = Duration::from_secs(30);

/// Kinds whose CRD a cluster may not have.
const OPTIONAL: [ObjectKind; 3] = [ObjectKind::CapacityBuffer, ObjectKind::CapacityQuota, ObjectKind::NodeOverlay];

/// Page size of list requests; the default of Kubernetes' own clients.
const PAGE_SIZE: u32 = 500;

/// Starts the watches and writes their events to the index.
#[derive(Clone)]
pub(crate) struct Feed {
    pub(crate) client: Client,
    pub(crate) facts: Arc<Facts>,
    pub(crate) metrics: WatcherMetrics,
    /// Kinds that are treated as listed and empty.
    pub(crate) unwatched: Vec<ObjectKind>,
}

impl Feed {
    /// Starts a watch for each kind. Pods are listed after all other kinds. The index of nodes and claims is then never
    /// newer than the index of pods, so errors lead to too few nodes rather than too many.
    pub(crate) fn start(&self, readiness: &Readiness, tasks: &mut JoinSet<()>) {
        let mut listed = Vec::new();
        macro_rules! list {
            ($($kind:ident),+) => {
                $(listed.push(self.spawn::<$kind>(readiness.handle($kind::KIND.as_str()), tasks, Vec::new()));)+
            };
        }
        list!(
            Node,
            NodeClaim,
            NodePool,
            EC2NodeClass,
            NodeOverlay,
            DaemonSet,
            PodDisruptionBudget,
            PriorityClass,
            Namespace,
            PersistentVolume,
            PersistentVolumeClaim,
            StorageClass,
            CSINode,
            CapacityBuffer,
            CapacityQuota,
            PodTemplate,
            Deployment,
            ReplicaSet,
            StatefulSet,
            Job,
            ReplicationController
        );
        self.spawn::<Pod>(readiness.handle(ObjectKind::Pod.as_str()), tasks, listed);
    }

    /// Watches a kind once all kinds of `after` have been listed. The returned receiver becomes true when the kind
    /// itself has been listed.
    fn spawn<K: Indexed>(
        &self,
        handle: ReadinessHandle,
        tasks: &mut JoinSet<()>,
        after: Vec<watch::Receiver<bool>>,
    ) -> watch::Receiver<bool> {
        let (listed_sender, listed) = watch::channel(false);
        let feed = self.clone();
        tasks.spawn(async move {
            let waits =
                after.into_iter().map(|mut other| async move { other.wait_for(|listed| *listed).await.is_ok() });
            if join_all(waits).await.into_iter().all(|listed| listed) {
                feed.follow::<K>(handle, &listed_sender).await;
            }
        });
        listed
    }

    async fn follow<K: Indexed>(&self, handle: ReadinessHandle, listed_sender: &watch::Sender<bool>) {
        if self.unwatched.contains(&K::KIND) {
            self.handle_event::<K>(Event::InitDone, &mut PartialList::default(), &mut SharedParts::default());
            handle.release();
            listed_sender.send_replace(true);
            // The watcher ends with any of its tasks.
            return std::future::pending().await;
        }
        let kind = K::KIND.as_str();
        let api: Api<Guarded<K>> = Api::all(self.client.clone());
        let config = watcher::Config::default().page_size(PAGE_SIZE).timeout(WATCH_SECONDS);
        let list_and_watch = || watcher::watcher(api.clone(), config.clone()).boxed();
        let mut events = list_and_watch();
        let (mut handle, mut pauses, mut list) = (Some(handle), Pauses::default(), PartialList::default());
        let mut parts = SharedParts::default();
        // The stream continues after an error and never ends.
        while let Some(event) = events.try_next().await.transpose() {
            match event {
                Ok(event) => {
                    // The watcher announces each list before it asks for it. A list that fails begins in the same way.
                    if !matches!(event, Event::Init | Event::InitApply(_)) {
                        pauses = Pauses::default();
                    }
                    if self.handle_event(event, &mut list, &mut parts) {
                        handle.take().into_iter().for_each(ReadinessHandle::release);
                        listed_sender.send_replace(true);
                    }
                }
                // Clusters without the CRD of an optional kind have no such objects: treat the kind as listed and
                // empty.
                Err(WatchError::InitialListFailed(error)) if OPTIONAL.contains(&K::KIND) && is_not_found(&error) => {
                    if self.handle_event::<K>(Event::InitDone, &mut list, &mut parts) {
                        handle.take().into_iter().for_each(ReadinessHandle::release);
                        listed_sender.send_replace(true);
                    }
                    tracing::debug!(kind, "the API server does not know the kind");
                    tokio::time::sleep(CRD_INTERVAL).await;
                }
                Err(error) => {
                    let mut pause = pauses.failed(Instant::now());
                    // The watcher would only start the same watch again. A list tells whether the kind is gone.
                    let is_gone = |cause| OPTIONAL.contains(&K::KIND) && is_not_found(cause);
                    if matches!(&error, WatchError::WatchStartFailed(cause) if is_gone(cause)) {
                        (events, pause) = (list_and_watch(), LONGEST_PAUSE);
                    }
                    self.metrics.watch_errors.with_label_values(&[kind]).inc();
                    tracing::warn!(kind, %error, ?pause, "watch failed, trying again");
                    tokio::time::sleep(pause).await;
                }
            }
        }
    }

    /// Applies an event. Returns true if the event completed a list.
    fn handle_event<K: Indexed>(
        &self,
        event: Event<Guarded<K>>,
        list: &mut PartialList<K>,
        parts: &mut SharedParts,
    ) -> bool {
        let kept = |object: Guarded<K>, parts: &mut SharedParts| {
            let mut object = index::simplified(self.parsed(object)?);
            object.share(parts);
            Some(object)
        };
        match event {
            Event::Init => *list = PartialList::default(),
            // Simplified at once: a list of whole pods takes several times the memory of the index.
            Event::InitApply(object) => {
                if let Some(object) = kept(object, parts) {
                    self.facts.index(|index| index.receive(object, list));
                }
            }
            Event::InitDone => {
                let received = std::mem::take(list);
                self.facts.change_index(|index| index.reset(received));
                self.count(K::KIND);
                return true;
            }
            Event::Apply(object) => match kept(object, parts) {
                Some(object) => self.facts.change_index(|index| index.apply(object)),
                None => self.count(K::KIND),
            },
            Event::Delete(object) => {
                let metadata = match &object.0 {
                    Ok(object) => object.meta(),
                    Err(invalid) => &invalid.metadata,
                };
                self.facts.change_index(|index| index.delete::<K>(metadata));
            }
        }
        self.count(K::KIND);
        false
    }

    /// Returns the object, or `None` if it cannot be deserialized. An unreadable object is removed from the index;
    /// other objects are not affected.
    fn parsed<K: Indexed>(&self, object: Guarded<K>) -> Option<K> {
        match object.0 {
            Ok(object) => Some(object),
            Err(invalid) => {
                let kind = K::KIND.as_str();
                let (namespace, name) = (&invalid.metadata.namespace, &invalid.metadata.name);
                tracing::warn!(kind, ?namespace, ?name, error = %invalid.error, "object cannot be read, left out");
                self.metrics.invalid_objects.with_label_values(&[kind]).inc();
                self.facts.change_index(|index| index.delete::<K>(&invalid.metadata));
                None
            }
        }
    }

    fn count(&self, kind: ObjectKind) {
        let count = self.facts.index(|index| index.count(kind));
        self.metrics.objects.with_label_values(&[kind.as_str()]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// Whether the API server does not serve the kind.
fn is_not_found(error: &kube::Error) -> bool {
    matches!(error, kube::Error::Api(status) if status.code == 404)
}

/// Growing pauses of a watch after failures in a row.
#[derive(Debug, Default)]
struct Pauses {
    failures: u32,
    last: Option<Instant>,
}

impl Pauses {
    /// Records a failure. Returns the pause after it.
    fn failed(&mut self, now: Instant) -> Duration {
        let failures = if self.last.is_some_and(|last| now < last + FAILURE_MEMORY) { self.failures } else { 0 };
        *self = Self { failures: failures.saturating_add(1), last: Some(now) };
        backoff::delay(FIRST_PAUSE, LONGEST_PAUSE, failures)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_grow_with_failures_in_a_row_and_a_late_failure_is_the_first_again() {
        let (mut pauses, mut now) = (Pauses::default(), Instant::now());
        let mut after = |passed: Duration| {
            now += passed;
            pauses.failed(now).as_millis()
        };
        let row = [(); 8].map(|()| after(LONGEST_PAUSE));
        assert_eq!(row, [100, 200, 400, 800, 1600, 3200, 5000, 5000]);
        assert_eq!(after(FAILURE_MEMORY - FIRST_PAUSE), 5000);
        assert_eq!([after(FAILURE_MEMORY), after(FIRST_PAUSE)], [100, 200]);
    }
}

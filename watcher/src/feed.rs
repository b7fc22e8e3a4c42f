//! Kubernetes watches feed the index.

use crate::facts::Facts;
use crate::index::{Indexed, Kind};
use crate::metrics::WatcherMetrics;
use futures::{StreamExt, TryStreamExt, future::join_all};
use k8s_openapi::api::apps::v1::{DaemonSet, Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{
    Namespace, Node, PersistentVolume, PersistentVolumeClaim, Pod, PodTemplate, ReplicationController,
};
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::core::DeserializeGuard;
use kube::runtime::watcher::{self, Error as WatchError, Event};
use kube::{Api, Client};
use plimsoll_api::{CapacityBuffer, EC2NodeClass, NodeClaim, NodeOverlay, NodePool};
use plimsoll_runtime::admin::{Readiness, ReadinessHandle};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::task::JoinSet;

/// Pause after a watch's first failure, doubled by each further one: a broken connection is mended at once, a broken API
/// server is not hammered.
const FIRST_PAUSE: Duration = Duration::from_millis(100);
const LONGEST_PAUSE: Duration = Duration::from_secs(30);

/// Objects asked for at a time; what the API server's own clients use.
const PAGE_SIZE: u32 = 500;

/// Where the watches lead.
#[derive(Clone)]
pub(crate) struct Feed {
    pub(crate) client: Client,
    pub(crate) facts: Arc<Facts>,
    pub(crate) metrics: WatcherMetrics,
}

impl Feed {
    /// Starts a watch for each kind. Pods are listed only once all others have been: what is seen of nodes and claims is
    /// then never newer than what is seen of pods, so that too little is bought rather than too much (rule 21).
    pub(crate) fn start(&self, readiness: &Readiness, tasks: &mut JoinSet<()>) {
        let mut listed = Vec::new();
        macro_rules! each {
            ($($kind:ident),+) => {
                $(listed.push(self.spawn::<$kind>(readiness.handle($kind::KIND.as_str()), tasks, Vec::new()));)+
            };
        }
        each!(
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
            PodTemplate,
            Deployment,
            ReplicaSet,
            StatefulSet,
            Job,
            ReplicationController
        );
        self.spawn::<Pod>(readiness.handle(Kind::Pod.as_str()), tasks, listed);
    }

    /// Watches a kind once all of `after` have been listed. Tells when it has been listed itself.
    fn spawn<K: Indexed>(
        &self,
        handle: ReadinessHandle,
        tasks: &mut JoinSet<()>,
        after: Vec<watch::Receiver<bool>>,
    ) -> watch::Receiver<bool> {
        let (done, listed) = watch::channel(false);
        let feed = self.clone();
        tasks.spawn(async move {
            let waits =
                after.into_iter().map(|mut other| async move { other.wait_for(|listed| *listed).await.is_ok() });
            if join_all(waits).await.into_iter().all(|listed| listed) {
                feed.follow::<K>(handle, &done).await;
            }
        });
        listed
    }

    async fn follow<K: Indexed>(&self, handle: ReadinessHandle, done: &watch::Sender<bool>) {
        let kind = K::KIND.as_str();
        let api: Api<DeserializeGuard<K>> = Api::all(self.client.clone());
        let mut events = watcher::watcher(api, watcher::Config::default().page_size(PAGE_SIZE)).boxed();
        let (mut handle, mut pause, mut list) = (Some(handle), FIRST_PAUSE, Vec::new());
        // The stream goes on after an error, and never ends.
        while let Some(event) = events.try_next().await.transpose() {
            match event {
                Ok(event) => {
                    pause = FIRST_PAUSE;
                    if self.take(event, &mut list) {
                        handle.take().into_iter().for_each(ReadinessHandle::release);
                        done.send_replace(true);
                    }
                }
                // Clusters from before have no such kind, and no such objects.
                Err(error) if K::KIND == Kind::CapacityBuffer && is_unknown(&error) => {
                    if self.take::<K>(Event::InitDone, &mut list) {
                        handle.take().into_iter().for_each(ReadinessHandle::release);
                        done.send_replace(true);
                    }
                    tracing::debug!(kind, "the API server does not know the kind");
                    tokio::time::sleep(LONGEST_PAUSE).await;
                }
                Err(error) => {
                    self.metrics.watch_errors.with_label_values(&[kind]).inc();
                    tracing::warn!(kind, %error, ?pause, "watch failed, trying again");
                    tokio::time::sleep(pause).await;
                    pause = pause.saturating_mul(2).min(LONGEST_PAUSE);
                }
            }
        }
    }

    /// Takes an event; true if it completed a list.
    fn take<K: Indexed>(&self, event: Event<DeserializeGuard<K>>, list: &mut Vec<K>) -> bool {
        match event {
            Event::Init => list.clear(),
            Event::InitApply(object) => list.extend(self.readable(object)),
            Event::InitDone => {
                let objects = std::mem::take(list);
                self.facts.change_index(|index| index.reset(objects));
                self.count(K::KIND);
                return true;
            }
            Event::Apply(object) => match self.readable(object) {
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

    /// The object, or `None` if it cannot be read: then what was known of it is forgotten, and the rest goes on.
    fn readable<K: Indexed>(&self, object: DeserializeGuard<K>) -> Option<K> {
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

    fn count(&self, kind: Kind) {
        let count = self.facts.index(|index| index.count(kind));
        self.metrics.objects.with_label_values(&[kind.as_str()]).set(i64::try_from(count).unwrap_or(i64::MAX));
    }
}

/// Whether the API server has no such kind.
fn is_unknown(error: &WatchError) -> bool {
    matches!(error, WatchError::InitialListFailed(kube::Error::Api(status)) if status.code == 404)
}

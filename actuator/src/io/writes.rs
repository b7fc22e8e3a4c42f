//! Writes to the cluster: each passes the fence, is a patch of what differs, and is made on the object's newest version.

use super::kinds::Written;
use super::patch::difference;
use super::{Action, RateLimiter};
use crate::fencing::{CLUSTER_CALL, Fence, NotAllowed};
use k8s_openapi::api::core::v1::{PersistentVolumeClaim, Pod};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::Api;
use kube::api::{DeleteParams, EvictParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use plimsoll_api::{CapacityBuffer, NodeClaim};
use serde_json::{Value, json};

/// Tries on an object that others write to as well (kubelets, other controllers). Each is made on a newer version.
const MAX_TRIES: u32 = 5;

/// Why a write did not happen, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The gate is shut, or there was no answer in time.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The API server refused.
    #[error(transparent)]
    Cluster(#[from] kube::Error),
    /// Others changed the object each time.
    #[error("{0} is changed by others all the time")]
    Contended(String),
    /// The object could not be written as JSON: a defect of ours.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The cloud refused.
    #[error(transparent)]
    Cloud(#[from] crate::ports::CloudError),
}

impl WriteError {
    /// Whether the write may have been carried out all the same, now or later: nothing was refused, but nothing was answered.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::NotAllowed(NotAllowed::TimedOut(_)) => true,
            Self::NotAllowed(_) | Self::Contended(_) | Self::Json(_) | Self::Cloud(_) => false,
            Self::Cluster(error) => may_have_happened(error),
        }
    }
}

/// Whether a write that came to `error` may have been carried out all the same, now or later.
pub(crate) fn may_have_happened(error: &kube::Error) -> bool {
    match error {
        // An API server that fails or times out may have written first.
        kube::Error::Api(status) => status.code >= 500,
        _ => true,
    }
}

/// What became of an update.
#[derive(Debug, Clone, PartialEq)]
pub enum Updated<K> {
    /// It is so already.
    AlreadySo,
    /// It is now.
    Written(Box<K>),
    /// The object is gone, or another one has its name.
    Gone,
}

impl<K> Updated<K> {
    /// Whether the object is there.
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self, Self::Gone)
    }
}

/// Which part of an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    /// The status, also while nothing else may be written: it says so.
    Notice,
}

/// Writes of one term of leadership. Clones share the client.
#[derive(Clone)]
pub struct Writes {
    client: kube::Client,
    fence: Fence,
    rate_limiter: RateLimiter,
}

impl Writes {
    pub(super) fn new(client: kube::Client, fence: Fence, rate_limiter: RateLimiter) -> Self {
        Self { client, fence, rate_limiter }
    }

    /// Changes an object, beginning with the version at hand. `change` is applied again to each newer version.
    pub(crate) async fn update<K: Written>(
        &self,
        object: &K,
        part: Part,
        change: impl Fn(&mut K),
    ) -> Result<Updated<K>, WriteError> {
        let name = object.meta().name.clone().unwrap_or_default();
        let api = self.api_of(object);
        let mut current = object.clone();
        for _ in 0..MAX_TRIES {
            let mut wanted = current.clone();
            change(&mut wanted);
            let Some(mut patch) = difference(&serde_json::to_value(&current)?, &serde_json::to_value(&wanted)?) else {
                return Ok(Updated::AlreadySo);
            };
            let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
            if let Value::Object(metadata) = metadata {
                metadata.insert("resourceVersion".to_owned(), json!(current.meta().resource_version));
                metadata.insert("uid".to_owned(), json!(current.meta().uid));
            }
            let (params, patch) = (PatchParams::default(), Patch::Merge(Value::Object(patch)));
            let call = async {
                match part {
                    Part::Main => api.patch(&name, &params, &patch).await,
                    Part::Status | Part::Notice => api.patch_status(&name, &params, &patch).await,
                }
            };
            match self.fenced(part, call).await? {
                Ok(written) => return Ok(Updated::Written(Box::new(written))),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Updated::Gone),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
            let read = self.fenced(part, api.get_opt(&name)).await??;
            match read.filter(|read| read.meta().uid == object.meta().uid) {
                Some(read) => current = read,
                None => return Ok(Updated::Gone),
            }
        }
        Err(WriteError::Contended(name))
    }

    /// Deletes an object if it is still the same one; one that is gone is no error.
    pub(crate) async fn delete<K: Written>(&self, object: &K, grace_seconds: Option<u32>) -> Result<(), WriteError> {
        let name = object.meta().name.clone().unwrap_or_default();
        let params = DeleteParams { grace_period_seconds: grace_seconds, ..only_this(object) };
        match self.fence.run(CLUSTER_CALL, self.api_of(object).delete(&name, &params)).await? {
            // 409: another object has the name by now.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            other => other.map(|_| ()).map_err(WriteError::from),
        }
    }

    /// Creates a NodeClaim: one try. The caller decides what an error means.
    pub(crate) async fn create_claim(&self, claim: &NodeClaim) -> Result<kube::Result<NodeClaim>, NotAllowed> {
        self.fence.run(CLUSTER_CALL, self.api_of(claim).create(&PostParams::default(), claim)).await
    }

    /// Asks for the eviction of a pod, if it is still the same one. The caller decides what an error means.
    pub(crate) async fn evict(&self, pod: &Pod) -> Result<kube::Result<()>, NotAllowed> {
        let params = EvictParams { delete_options: Some(only_this(pod)), post_options: PostParams::default() };
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let answer = self.fence.run(CLUSTER_CALL, self.api_of(pod).evict(name, &params)).await?;
        Ok(answer.map(|_| ()))
    }

    /// Applies a nomination to a pod's status as `manager`, within the rate limit. The caller decides what an error means.
    pub(crate) async fn nominate(
        &self,
        pod: &Pod,
        manager: &str,
        config: &Value,
    ) -> Result<kube::Result<Pod>, NotAllowed> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        self.rate_limiter.take(Action::Nominate).await;
        let (params, patch) = (PatchParams::apply(manager), Patch::Apply(config));
        self.fence.run(CLUSTER_CALL, self.api_of(pod).patch_status(name, &params, &patch)).await
    }

    /// The live NodeClaim of that name. Fenced, as all reads here: a write rests on them.
    pub(crate) async fn read_claim(&self, name: &str) -> Result<Option<NodeClaim>, WriteError> {
        self.read(&NodeClaim::api(&self.client, None), name).await
    }

    /// The live CapacityBuffer of that name.
    pub(crate) async fn read_buffer(&self, namespace: &str, name: &str) -> Result<Option<CapacityBuffer>, WriteError> {
        self.read(&CapacityBuffer::api(&self.client, Some(namespace)), name).await
    }

    /// The live PersistentVolumeClaim of that name.
    pub(crate) async fn read_volume_claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<PersistentVolumeClaim>, WriteError> {
        self.read(&Api::namespaced(self.client.clone(), namespace), name).await
    }

    /// All VolumeAttachments, live.
    pub(crate) async fn list_attachments(&self) -> Result<Vec<VolumeAttachment>, WriteError> {
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        Ok(self.fence.run(CLUSTER_CALL, api.list(&ListParams::default())).await??.items)
    }

    /// Pods bound to a node, live.
    pub(crate) async fn list_pods_on(&self, node: &str) -> Result<Vec<Pod>, WriteError> {
        let api: Api<Pod> = Api::all(self.client.clone());
        let params = ListParams::default().fields(&format!("spec.nodeName={node}"));
        Ok(self.fence.run(CLUSTER_CALL, api.list(&params)).await??.items)
    }

    async fn read<K: serde::de::DeserializeOwned + Clone + std::fmt::Debug>(
        &self,
        api: &Api<K>,
        name: &str,
    ) -> Result<Option<K>, WriteError> {
        Ok(self.fence.run(CLUSTER_CALL, api.get_opt(name)).await??)
    }

    fn api_of<K: Written>(&self, object: &K) -> Api<K> {
        K::api(&self.client, object.meta().namespace.as_deref())
    }

    /// A [`Part::Notice`] is written even while writes are paused.
    async fn fenced<T>(&self, part: Part, call: impl Future<Output = T>) -> Result<T, NotAllowed> {
        match part {
            Part::Notice => self.fence.run_while_paused(call).await,
            Part::Main | Part::Status => self.fence.run(CLUSTER_CALL, call).await,
        }
    }
}

/// Deletes nothing but this very object.
fn only_this<K: Written>(object: &K) -> DeleteParams {
    let preconditions = Preconditions { uid: object.meta().uid.clone(), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

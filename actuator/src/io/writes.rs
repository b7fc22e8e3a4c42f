//! Writes to the cluster. Each write passes the fence, patches only what differs, and is based on the latest version.

use super::kinds::WritableKind;
use super::patch::difference;
use super::{Action, RateLimiter};
use crate::fencing::{CLUSTER_CALL, Fence, NotAllowed};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{ConfigMap, Node, PersistentVolumeClaim};
use k8s_openapi::api::storage::v1::VolumeAttachment;
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, Preconditions};
use kube::core::error_boundary::InvalidObject;
use kube::{Api, Resource};
use plimsoll_api::{CapacityBuffer, NodeClaim, Pod};
use plimsoll_model::names::TERMINATION_FINALIZER;
use serde_json::{Value, json};
use std::borrow::Cow;

/// VolumeAttachments per page, of a few kilobytes each.
const PAGE_SIZE: u32 = 1000;
/// Attempts for an object that others write as well (kubelets, other controllers). Each is based on a newer version.
const MAX_TRIES: u32 = 5;

/// Why a write failed, or may have failed.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The fence refused, or the write timed out.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The API server returned an error.
    #[error(transparent)]
    Cluster(#[from] kube::Error),
    /// The present version of the object is unreadable. It may be the one that was written.
    #[error("object cannot be read: {0}")]
    Unreadable(#[from] Box<InvalidObject>),
    /// The object changed during each attempt.
    #[error("{0} is changed by others too often")]
    Contended(String),
    /// The object could not be serialized. This is a bug.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The cloud returned an error.
    #[error(transparent)]
    Cloud(#[from] crate::ports::CloudError),
}

impl WriteError {
    /// Whether the write may have taken effect anyway, now or later: it was not refused, but got no response.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::NotAllowed(NotAllowed::TimedOut(_)) | Self::Unreadable(_) => true,
            Self::NotAllowed(_) | Self::Contended(_) | Self::Json(_) | Self::Cloud(_) => false,
            Self::Cluster(error) => may_have_happened(error),
        }
    }

    /// Whether no other write is allowed now, either. The lease outlives a call that may start, so a timeout concerns
    /// only this write.
    #[must_use]
    pub fn concerns_all_writes(&self) -> bool {
        matches!(self, Self::NotAllowed(NotAllowed::NotLeader | NotAllowed::Paused(_) | NotAllowed::Quarantine))
    }
}

/// Whether a write that failed with `error` may have taken effect anyway, now or later.
pub(crate) fn may_have_happened(error: &kube::Error) -> bool {
    match error {
        // An API server that fails or times out may have performed the write first.
        kube::Error::Api(status) => status.code >= 500,
        _ => true,
    }
}

/// Result of an update.
#[derive(Debug, Clone, PartialEq)]
pub enum UpdateResult<K> {
    /// The object already has this state.
    Unchanged,
    /// The object was updated.
    Written(Box<K>),
    /// The object is gone, or was recreated under the same name.
    Gone,
}

impl<K> UpdateResult<K> {
    /// Whether the object exists.
    pub(crate) fn exists(&self) -> bool {
        !matches!(self, Self::Gone)
    }
}

/// The part of an object that is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum ObjectPart {
    Main,
    Status,
    /// The status, even while writes are paused, since it reports the pause.
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

    /// Updates an object, starting from the given version. `change` is applied again to each newer version.
    pub(crate) async fn update<K: WritableKind>(
        &self,
        object: &K,
        part: ObjectPart,
        change: impl Fn(&mut K),
    ) -> Result<UpdateResult<K>, WriteError> {
        let name = object.meta().name.clone().unwrap_or_default();
        let api = K::guarded_api(&self.client, object.meta().namespace.as_deref());
        let mut current = Cow::Borrowed(object);
        for _ in 0..MAX_TRIES {
            let mut desired = (*current).clone();
            change(&mut desired);
            // Most updates change nothing, and a comparison costs much less than two objects as JSON.
            if desired == *current {
                return Ok(UpdateResult::Unchanged);
            }
            let Some(mut patch) = difference(&serde_json::to_value(&current)?, &serde_json::to_value(&desired)?) else {
                return Ok(UpdateResult::Unchanged);
            };
            let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
            if let Value::Object(metadata) = metadata {
                metadata.insert("resourceVersion".to_owned(), json!(current.meta().resource_version));
                metadata.insert("uid".to_owned(), json!(current.meta().uid));
            }
            let (params, patch) = (PatchParams::default(), Patch::Merge(Value::Object(patch)));
            let call = async {
                match part {
                    ObjectPart::Main => api.patch(&name, &params, &patch).await,
                    ObjectPart::Status | ObjectPart::Notice => api.patch_status(&name, &params, &patch).await,
                }
            };
            match self.fenced(part, call).await? {
                Ok(updated) => return Ok(UpdateResult::Written(Box::new(updated.0?))),
                Err(kube::Error::Api(status)) if status.code == 404 => return Ok(UpdateResult::Gone),
                Err(kube::Error::Api(status)) if status.code == 409 => {}
                Err(error) => return Err(error.into()),
            }
            let read = self.fenced(part, api.get_opt(&name)).await??;
            match read.filter(|read| read.meta().uid == object.meta().uid) {
                Some(read) => current = Cow::Owned(read.0?),
                None => return Ok(UpdateResult::Gone),
            }
        }
        Err(WriteError::Contended(name))
    }

    /// Deletes an object unless it was recreated. An object that is gone is no error.
    pub(crate) async fn delete<K: WritableKind>(
        &self,
        object: &K,
        grace_seconds: Option<u32>,
    ) -> Result<(), WriteError> {
        let name = object.meta().name.clone().unwrap_or_default();
        let params = DeleteParams { grace_period_seconds: grace_seconds, ..only_this(object) };
        let api = K::guarded_api(&self.client, object.meta().namespace.as_deref());
        match self.fence.run(CLUSTER_CALL, api.delete(&name, &params)).await? {
            // 409: another object has the name now.
            Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
            other => other.map(|_| ()).map_err(WriteError::from),
        }
    }

    /// Deletes an object if it has not changed. Returns whether it is gone or being deleted. For deletions that a later
    /// write of the object revokes: a deletion that gets no response may take effect a minute later.
    pub(crate) async fn delete_unchanged<K: WritableKind>(&self, object: &K) -> Result<bool, WriteError> {
        let (name, metadata) = (object.meta().name.clone().unwrap_or_default(), object.meta());
        let (uid, resource_version) = (metadata.uid.clone(), metadata.resource_version.clone());
        let preconditions = Some(Preconditions { uid, resource_version });
        let params = DeleteParams { preconditions, ..DeleteParams::default() };
        let api = K::guarded_api(&self.client, metadata.namespace.as_deref());
        match self.fence.run(CLUSTER_CALL, api.delete(&name, &params)).await? {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(true),
            Err(kube::Error::Api(status)) if status.code == 409 => {
                let live = self.read(&api, &name).await?.filter(|live| live.meta().uid == metadata.uid);
                Ok(live.is_none_or(|live| live.meta().deletion_timestamp.is_some()))
            }
            other => other.map(|_| true).map_err(WriteError::from),
        }
    }

    /// Removes our finalizer from an object.
    pub(crate) async fn release<K: WritableKind>(&self, object: &K) -> Result<UpdateResult<K>, WriteError> {
        let change = |object: &mut K| {
            let finalizers = object.meta_mut().finalizers.iter_mut();
            finalizers.for_each(|all| all.retain(|finalizer| finalizer != TERMINATION_FINALIZER));
        };
        self.update(object, ObjectPart::Main, change).await
    }

    /// Creates a NodeClaim in a single attempt. The caller interprets the error.
    pub(crate) async fn create_claim(&self, claim: &NodeClaim) -> Result<kube::Result<NodeClaim>, NotAllowed> {
        let claims: Api<NodeClaim> = Api::all(self.client.clone());
        self.fence.run(CLUSTER_CALL, claims.create(&PostParams::default(), claim)).await
    }

    /// Creates a ConfigMap in a single attempt.
    pub(crate) async fn create_config_map(&self, map: &ConfigMap) -> Result<(), WriteError> {
        self.fence.run(CLUSTER_CALL, self.namespaced_api(map).create(&PostParams::default(), map)).await??;
        Ok(())
    }

    /// Evicts a pod unless it was recreated. The caller interprets the error.
    pub(crate) async fn evict(&self, pod: &Pod) -> Result<kube::Result<()>, NotAllowed> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        // kube's own method sends "delete_options", which the API server ignores: an eviction that takes effect late
        // would evict the next pod with the name.
        let eviction = json!({
            "apiVersion": "policy/v1", "kind": "Eviction",
            "metadata": {"name": name, "namespace": pod.metadata.namespace},
            "deleteOptions": {"preconditions": {"uid": pod.metadata.uid}},
        });
        let (api, params) = (self.namespaced_api(pod), PostParams::default());
        let call = api.create_subresource::<Value, Value>("eviction", name, &params, &eviction);
        Ok(self.fence.run(CLUSTER_CALL, call).await?.map(|_| ()))
    }

    /// Applies a nomination to a pod's status as `manager`, rate limited. The caller interprets the error.
    pub(crate) async fn nominate(
        &self,
        pod: &Pod,
        manager: &str,
        config: &Value,
    ) -> Result<kube::Result<Pod>, NotAllowed> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        self.rate_limiter.take(Action::Nominate).await;
        let (params, patch) = (PatchParams::apply(manager), Patch::Apply(config));
        self.fence.run(CLUSTER_CALL, self.namespaced_api(pod).patch_status(name, &params, &patch)).await
    }

    /// Binds a pod to a node unless the pod was recreated, rate limited. The caller interprets the error.
    pub(crate) async fn bind(&self, pod: &Pod, node: &str) -> Result<kube::Result<()>, NotAllowed> {
        let name = pod.metadata.name.as_deref().unwrap_or_default();
        let binding = json!({
            "apiVersion": "v1", "kind": "Binding",
            "metadata": {"name": name, "namespace": pod.metadata.namespace, "uid": pod.metadata.uid},
            "target": {"apiVersion": "v1", "kind": "Node", "name": node},
        });
        self.rate_limiter.take(Action::Bind).await;
        let (api, params) = (self.namespaced_api(pod), PostParams::default());
        let call = api.create_subresource::<Value, Value>("binding", name, &params, &binding);
        Ok(self.fence.run(CLUSTER_CALL, call).await?.map(|_| ()))
    }

    /// The live NodeClaim with that name. Like all reads here it is fenced, since a write depends on it.
    pub(crate) async fn read_claim(&self, name: &str) -> Result<Option<NodeClaim>, WriteError> {
        let read = self.read(&NodeClaim::guarded_api(&self.client, None), name).await?;
        Ok(read.map(|claim| claim.0).transpose()?)
    }

    /// The live Node with that name.
    pub(crate) async fn read_node(&self, name: &str) -> Result<Option<Node>, WriteError> {
        let read = self.read(&Node::guarded_api(&self.client, None), name).await?;
        Ok(read.map(|node| node.0).transpose()?)
    }

    /// The live CapacityBuffer with that name.
    pub(crate) async fn read_buffer(&self, namespace: &str, name: &str) -> Result<Option<CapacityBuffer>, WriteError> {
        self.read(&Api::namespaced(self.client.clone(), namespace), name).await
    }

    /// The live PersistentVolumeClaim with that name.
    pub(crate) async fn read_volume_claim(
        &self,
        namespace: &str,
        name: &str,
    ) -> Result<Option<PersistentVolumeClaim>, WriteError> {
        self.read(&Api::namespaced(self.client.clone(), namespace), name).await
    }

    /// The Node and the PersistentVolume of each VolumeAttachment, read live. In pages with a timeout each: a large
    /// cluster has tens of thousands.
    pub(crate) async fn list_attached_volumes(&self) -> Result<Vec<(String, String)>, WriteError> {
        let api: Api<VolumeAttachment> = Api::all(self.client.clone());
        let (mut attached, mut page) = (Vec::new(), ListParams::default().limit(PAGE_SIZE));
        loop {
            let list = self.fence.run(CLUSTER_CALL, api.list(&page)).await??;
            let specs = list.items.into_iter().map(|attachment| attachment.spec);
            attached.extend(specs.filter_map(|spec| Some((spec.node_name, spec.source.persistent_volume_name?))));
            match list.metadata.continue_.filter(|token| !token.is_empty()) {
                Some(token) => page = page.continue_token(&token),
                None => return Ok(attached),
            }
        }
    }

    /// The pods bound to a node, read live. Fails if one is unreadable: a removal must not take the node for empty.
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

    /// The API of the objects in the same namespace.
    fn namespaced_api<K: Resource<DynamicType = (), Scope = NamespaceResourceScope>>(&self, object: &K) -> Api<K> {
        Api::namespaced(self.client.clone(), object.meta().namespace.as_deref().unwrap_or("default"))
    }

    /// A [`ObjectPart::Notice`] is written even while writes are paused.
    async fn fenced<T>(&self, part: ObjectPart, call: impl Future<Output = T>) -> Result<T, NotAllowed> {
        match part {
            ObjectPart::Notice => self.fence.run_while_paused(call).await,
            ObjectPart::Main | ObjectPart::Status => self.fence.run(CLUSTER_CALL, call).await,
        }
    }
}

/// Whether an object has a finalizer.
pub(crate) fn has_finalizer(object: &impl Resource, finalizer: &str) -> bool {
    object.meta().finalizers.iter().flatten().any(|existing| existing == finalizer)
}

/// Puts a finalizer on an object, unless it is there.
pub(crate) fn add_finalizer(object: &mut impl Resource, finalizer: &str) {
    if !has_finalizer(object, finalizer) {
        object.meta_mut().finalizers.get_or_insert_default().push(finalizer.to_owned());
    }
}

/// Delete parameters whose preconditions match only this object.
fn only_this<K: WritableKind>(object: &K) -> DeleteParams {
    let preconditions = Preconditions { uid: object.meta().uid.clone(), resource_version: None };
    DeleteParams { preconditions: Some(preconditions), ..DeleteParams::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use kube::core::Status;

    /// Only a refusal is definite: nothing was done, and nothing will be.
    #[test]
    fn a_write_without_an_answer_may_have_happened() {
        let answer = |code: u16| {
            let status = Status { code, ..Status::default() };
            WriteError::Cluster(kube::Error::Api(Box::new(status)))
        };
        for (code, may_have_happened) in [(403, false), (409, false), (429, false), (500, true), (504, true)] {
            assert_eq!(answer(code).may_have_happened(), may_have_happened, "{code}");
        }
        let unreadable = InvalidObject { error: String::new(), metadata: Default::default() };
        assert!(WriteError::Unreadable(Box::new(unreadable)).may_have_happened(), "the object may have been written");
        assert!(WriteError::Cluster(kube::Error::Service("connection reset".into())).may_have_happened());
        assert!(WriteError::NotAllowed(NotAllowed::TimedOut(CLUSTER_CALL)).may_have_happened());
        for refused in [NotAllowed::NotLeader, NotAllowed::Paused(String::new()), NotAllowed::Quarantine] {
            assert!(!WriteError::NotAllowed(refused).may_have_happened());
        }
        assert!(!WriteError::Contended(String::new()).may_have_happened());
    }

    /// Another object may have the name by the time of the request.
    #[test]
    fn a_deletion_is_for_this_object_only() {
        let node: Node = serde_json::from_value(json!({"metadata": {"name": "n", "uid": "u"}})).unwrap();
        assert_eq!(only_this(&node).preconditions.and_then(|only| only.uid).as_deref(), Some("u"));
    }

    #[test]
    fn a_timeout_concerns_one_write_and_a_lost_lease_all() {
        assert!(!WriteError::NotAllowed(NotAllowed::TimedOut(CLUSTER_CALL)).concerns_all_writes());
        assert!(!WriteError::Contended(String::new()).concerns_all_writes());
        for error in [NotAllowed::NotLeader, NotAllowed::Paused(String::new()), NotAllowed::Quarantine] {
            assert!(WriteError::NotAllowed(error).concerns_all_writes());
        }
    }
}

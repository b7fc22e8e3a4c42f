//! Creates and removes the objects of a case.

use super::case_objects::CaseObjects;
use super::isolate::{CASE, Isolation};
use super::replan::Volumes;
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _, stream};
use k8s_openapi::NamespaceResourceScope;
use k8s_openapi::api::core::v1::{Node, PersistentVolume, PersistentVolumeClaim, Pod};
use k8s_openapi::api::scheduling::v1::PriorityClass;
use k8s_openapi::api::storage::v1::{CSINode, StorageClass};
use kube::api::{DeleteParams, ListParams, Patch, PatchParams, PostParams, PropagationPolicy};
use kube::{Api, Client, Resource, ResourceExt as _};
use serde::Serialize;
use serde::de::DeserializeOwned;
use std::fmt::Debug;
use std::future::Future;

/// Maximum number of concurrent requests of one case, because many cases run in parallel.
const AT_ONCE: usize = 8;

/// API client of one case.
#[derive(Clone)]
pub(super) struct CaseClient {
    client: Client,
    seed: u64,
}

impl CaseClient {
    pub(super) fn new(client: Client, seed: u64) -> CaseClient {
        CaseClient { client, seed }
    }

    pub(super) fn seed(&self) -> u64 {
        self.seed
    }

    /// Creates all objects except the pods to schedule.
    pub(super) async fn create_objects(&self, case_objects: &CaseObjects) -> Result<()> {
        self.all(&case_objects.namespaces).await?;
        self.all(&case_objects.priority_classes).await?;
        self.all(&case_objects.storage_classes).await?;
        self.all(&case_objects.volumes).await?;
        self.all_in_namespaces(&case_objects.claims).await?;
        self.all(&case_objects.drivers()).await?;
        self.all(&case_objects.node_objects()).await?;
        self.all_in_namespaces(&case_objects.running_pods).await
    }

    async fn all<K>(&self, objects: &[K]) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>,
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        let api = Api::<K>::all(self.client.clone());
        each(objects, |object| create(api.clone(), object)).await
    }

    async fn all_in_namespaces<K>(&self, objects: &[K]) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
        K: Clone + Debug + Serialize + DeserializeOwned,
    {
        each(objects, |object| create(self.in_namespace_of(object), object)).await
    }

    fn in_namespace_of<K>(&self, object: &K) -> Api<K>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope>,
    {
        Api::namespaced(self.client.clone(), object.meta().namespace.as_deref().unwrap_or_default())
    }

    /// Creates pods in this order, some of them concurrently.
    pub(super) async fn pods(&self, pods: &[Pod]) -> Result<()> {
        self.all_in_namespaces(pods).await
    }

    pub(super) async fn node(&self, node: &Node) -> Result<()> {
        create(Api::all(self.client.clone()), node).await
    }

    /// Creates the CSINode of a node.
    pub(super) async fn driver(&self, driver: &CSINode) -> Result<()> {
        create(Api::all(self.client.clone()), driver).await
    }

    /// Removes pods without a grace period: there is no kubelet.
    pub(super) async fn delete_pods(&self, pods: &[Pod]) -> Result<()> {
        each(pods, |pod| async {
            let done = self.in_namespace_of(pod).delete(&pod.name_any(), &at_once()).await;
            done.map(drop).or_else(if_there).with_context(|| format!("deleting pod {}", pod.name_any()))
        })
        .await
    }

    pub(super) async fn delete_node(&self, name: &str) -> Result<()> {
        let done = Api::<Node>::all(self.client.clone()).delete(name, &at_once()).await;
        done.map(drop).or_else(if_there).with_context(|| format!("deleting node {name}"))?;
        let done = Api::<CSINode>::all(self.client.clone()).delete(name, &at_once()).await;
        done.map(drop).or_else(if_there).with_context(|| format!("deleting the CSINode {name}"))
    }

    /// Creates pods with their nominated nodes, if any, as the actuator does before a new node is ready. The pods are
    /// gated until all are nominated. kube-scheduler then evaluates them in about this order.
    pub(super) async fn nominated(&self, pods: &[(&Pod, Option<String>)]) -> Result<()> {
        each(pods, |(pod, node)| self.gated(pod, node.as_deref())).await?;
        each(pods, |(pod, _)| self.open(pod)).await
    }

    /// Creates a gated pod, nominated if there is a node for it.
    async fn gated(&self, pod: &Pod, node: Option<&str>) -> Result<()> {
        use k8s_openapi::api::core::v1::PodSchedulingGate;
        const GATE: &str = "plimsoll.test/not-yet";
        let mut gated = pod.clone();
        if let Some(spec) = gated.spec.as_mut() {
            spec.scheduling_gates = Some(vec![PodSchedulingGate { name: GATE.to_owned() }]);
        }
        create(self.in_namespace_of(pod), &gated).await?;
        match node {
            Some(node) => self.nominate(pod, Some(node)).await,
            None => Ok(()),
        }
    }

    /// Current claims and volumes of the case.
    pub(super) async fn volumes(&self, case_objects: &CaseObjects) -> Result<Volumes> {
        let mut claims = Vec::new();
        for namespace in case_objects.namespaces.iter().filter_map(|it| it.metadata.name.as_deref()) {
            let api = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), namespace);
            let found = api.list(&ListParams::default()).await;
            claims.extend(found.with_context(|| format!("listing claims of {namespace}"))?.items);
        }
        let mine = ListParams::default().labels(&format!("{CASE}={}", self.seed));
        let volumes = Api::<PersistentVolume>::all(self.client.clone()).list(&mine).await.context("listing volumes")?;
        Ok(Volumes { claims, volumes: volumes.items })
    }

    /// Nominates a pod if it exists and is not bound; without a node, clears the nomination.
    pub(super) async fn nominate<K>(&self, pod: &K, node: Option<&str>) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = NamespaceResourceScope> + Clone + Debug + DeserializeOwned,
    {
        let name = pod.name_any();
        let nominated = Patch::Merge(serde_json::json!({"status": {"nominatedNodeName": node}}));
        let done = self.in_namespace_of(pod).patch_status(&name, &PatchParams::default(), &nominated).await;
        let overtaken = |error| match error {
            kube::Error::Api(status) if matches!(status.code, 404 | 422) => Ok(()),
            other => Err(other),
        };
        done.map(drop).or_else(overtaken).with_context(|| format!("nominating a node for {name}"))
    }

    async fn open(&self, pod: &Pod) -> Result<()> {
        let name = pod.name_any();
        let open = Patch::Merge(serde_json::json!({"spec": {"schedulingGates": null}}));
        let done = self.in_namespace_of(pod).patch(&name, &PatchParams::default(), &open).await;
        done.map(drop).with_context(|| format!("opening the gate of {name}"))
    }

    /// Removes all objects of the case except its namespaces, which cost nothing.
    pub(super) async fn delete_objects(&self, case_objects: &CaseObjects) -> Result<()> {
        let all = ListParams::default();
        for namespace in case_objects.namespaces.iter().filter_map(|it| it.metadata.name.as_deref()) {
            let pods = Api::<Pod>::namespaced(self.client.clone(), namespace);
            pods.delete_collection(&at_once(), &all).await.with_context(|| format!("deleting pods of {namespace}"))?;
            let claims = Api::<PersistentVolumeClaim>::namespaced(self.client.clone(), namespace);
            claims
                .delete_collection(&at_once(), &all)
                .await
                .with_context(|| format!("deleting claims of {namespace}"))?;
        }
        self.every::<Node>().await?;
        self.every::<CSINode>().await?;
        self.every::<PersistentVolume>().await?;
        self.every::<StorageClass>().await?;
        self.every::<PriorityClass>().await
    }

    async fn every<K>(&self) -> Result<()>
    where
        K: Resource<DynamicType = (), Scope = k8s_openapi::ClusterResourceScope>,
        K: Clone + Debug + DeserializeOwned,
    {
        let mine = ListParams::default().labels(&format!("{CASE}={}", self.seed));
        let api = Api::<K>::all(self.client.clone());
        let done = api.delete_collection(&at_once(), &mine).await;
        done.map(drop).with_context(|| format!("deleting {} of {}", K::kind(&()), Isolation::prefix(self.seed)))
    }
}

fn at_once() -> DeleteParams {
    DeleteParams {
        grace_period_seconds: Some(0),
        propagation_policy: Some(PropagationPolicy::Background),
        ..DeleteParams::default()
    }
}

fn if_there(error: kube::Error) -> kube::Result<()> {
    match error {
        kube::Error::Api(status) if status.code == 404 => Ok(()),
        other => Err(other),
    }
}

async fn create<K>(api: Api<K>, object: &K) -> Result<()>
where
    K: Resource<DynamicType = ()> + Clone + Debug + Serialize + DeserializeOwned,
{
    match api.create(&PostParams::default(), object).await {
        Ok(_) => Ok(()),
        // Left over from an interrupted run, for namespaces, which are never removed; for other objects, the conflict
        // is an error.
        Err(kube::Error::Api(status)) if status.code == 409 && K::kind(&()) == "Namespace" => Ok(()),
        Err(error) => Err(error).with_context(|| format!("creating {} {}", K::kind(&()), object.name_any())),
    }
}

async fn each<'a, T: 'a, F, Done>(items: &'a [T], operation: F) -> Result<()>
where
    F: Fn(&'a T) -> Done,
    Done: Future<Output = Result<()>>,
{
    stream::iter(items).map(operation).buffer_unordered(AT_ONCE).try_collect::<Vec<()>>().await.map(drop)
}

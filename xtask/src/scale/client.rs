//! Creates and deletes objects as fast as the API server allows.

use crate::harness::controlplane;
use anyhow::{Context as _, Result};
use futures::{StreamExt as _, TryStreamExt as _};
use kube::Client;
use kube::core::{Request, params::DeleteParams, params::PatchParams, params::PostParams};
use serde_json::Value;
use std::path::Path;

/// Number of concurrent requests: more only queue in the API server.
const TOGETHER: usize = 32;

/// Collections of the API.
pub(super) const NODES: &str = "/api/v1/nodes";
pub(super) const PODS: &str = "/api/v1/namespaces/default/pods";
pub(super) const DEPLOYMENTS: &str = "/apis/apps/v1/namespaces/default/deployments";
pub(super) const CLAIMS: &str = "/apis/karpenter.sh/v1/nodeclaims";

/// A client with all permissions.
#[derive(Clone)]
pub(super) struct ApiClient(Client);

impl ApiClient {
    pub(super) async fn connect(kubeconfig: &Path) -> Result<ApiClient> {
        Ok(ApiClient(controlplane::client(kubeconfig).await?))
    }

    /// Creates an object.
    pub(super) async fn create(&self, collection: &str, object: &Value) -> Result<Value> {
        let request = Request::new(collection).create(&PostParams::default(), serde_json::to_vec(object)?)?;
        self.0.request(request).await.with_context(|| format!("creating {}", object["metadata"]["name"]))
    }

    /// Creates objects concurrently, each with the status that it names.
    pub(super) async fn create_all(&self, collection: &str, objects: Vec<Value>) -> Result<()> {
        let create = |object: Value| async move {
            self.create(collection, &object).await?;
            if object["status"].is_object() {
                let name = object["metadata"]["name"].as_str().context("an object without a name")?;
                let patch = kube::core::params::Patch::Merge(serde_json::json!({ "status": object["status"] }));
                let patch =
                    Request::new(collection).patch_subresource("status", name, &PatchParams::default(), &patch)?;
                self.0.request::<Value>(patch).await.with_context(|| format!("status of {name}"))?;
            }
            Ok::<_, anyhow::Error>(())
        };
        futures::stream::iter(objects).map(create).buffer_unordered(TOGETHER).try_collect().await
    }

    /// Deletes an object at once, without a grace period. It may be gone already.
    pub(super) async fn delete(&self, collection: &str, name: &str) -> Result<()> {
        let request = Request::new(collection).delete(name, &DeleteParams::default().grace_period(0))?;
        match self.0.request::<Value>(request).await {
            Err(kube::Error::Api(status)) if status.code == 404 => Ok(()),
            result => result.map(drop).with_context(|| format!("deleting {name}")),
        }
    }

    /// Deletes objects concurrently.
    pub(super) async fn delete_all(&self, collection: &str, names: &[String]) -> Result<()> {
        let delete = |name: &String| {
            let name = name.clone();
            async move { self.delete(collection, &name).await }
        };
        futures::stream::iter(names.iter().map(delete)).buffer_unordered(TOGETHER).try_collect().await
    }

    /// The items of a collection that a label selector matches.
    pub(super) async fn list(&self, collection: &str, labels: &str) -> Result<Vec<Value>> {
        let params = kube::core::params::ListParams::default().labels(labels);
        let mut list: Value = self.0.request(Request::new(collection).list(&params)?).await?;
        match list["items"].take() {
            Value::Array(items) => Ok(items),
            _ => anyhow::bail!("{collection}: not a list"),
        }
    }
}

//! Objects that users of the cluster create and see.

use crate::harness::kubectl::condition;
use crate::harness::wait::until_true;
use crate::harness::world::World;
use anyhow::{Context as _, Result};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;

/// Instances and nodes are created within seconds; the rest of the time is for a busy machine.
pub(super) const SOON: Duration = Duration::from_secs(90);

fn pod_spec(millis: u32) -> Value {
    json!({
        "terminationGracePeriodSeconds": 1,
        "containers": [{"name": "main", "image": "registry.k8s.io/pause:3.10", "resources": {"requests": {"cpu": format!("{millis}m"), "memory": "64Mi"}}}],
    })
}

/// A Deployment of pods that request this many millicores.
pub(super) fn deployment(name: &str, replicas: usize, millis: u32) -> String {
    let labels = json!({ "app": name });
    json!({
        "apiVersion": "apps/v1", "kind": "Deployment", "metadata": {"name": name, "namespace": "default"},
        "spec": {"replicas": replicas, "selector": {"matchLabels": labels}, "template": {"metadata": {"labels": labels}, "spec": pod_spec(millis)}},
    })
    .to_string()
}

/// A pod without a controller: see [`World::keep_ready`].
pub(super) fn pod(name: &str, millis: u32) -> String {
    json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": "default", "labels": {"app": name}}, "spec": pod_spec(millis)}).to_string()
}

impl World {
    /// The pods of a Deployment that are not being deleted.
    pub(super) fn pods(&self, app: &str) -> Result<Vec<Value>> {
        let app_pods = self.cluster.kubectl.list(&["pods", "-n", "default", "-l", &format!("app={app}")])?;
        Ok(app_pods.into_iter().filter(|p| p["metadata"]["deletionTimestamp"].is_null()).collect())
    }

    /// Waits until this number of pods are ready, with slack. Returns the names of their nodes.
    pub(super) fn wait_ready(&self, app: &str, count: usize, limit: Duration) -> Result<BTreeSet<String>> {
        let mut nodes = BTreeSet::new();
        until_true(&format!("{count} pods of {app} are ready"), self.with_slack(limit), || {
            let ready: Vec<_> = self.pods(app)?.into_iter().filter(is_ready).collect();
            nodes = ready.iter().filter_map(|p| p["spec"]["nodeName"].as_str().map(str::to_owned)).collect();
            Ok((ready.len() == count, format!("{} are", ready.len())))
        })?;
        Ok(nodes)
    }

    /// Creates a pod without a controller, and waits until it is ready. If the pod is bound at the moment when the
    /// taint of an unregistered node is removed, the node controller may delete it, because its cache still has the
    /// taint. The pod is then created again, as a controller would. With slack.
    pub(super) fn keep_ready(&self, app: &str, pod: &str, limit: Duration) -> Result<()> {
        until_true(&format!("the pod {app} is ready"), self.with_slack(limit), || {
            let Some(pod) = self.pods(app)?.into_iter().next() else {
                self.cluster.kubectl.apply(pod)?;
                return Ok((false, "it is made".to_owned()));
            };
            Ok((is_ready(&pod), "it is not".to_owned()))
        })
    }

    /// The nodes of NodePools.
    pub(super) fn nodes(&self) -> Result<Vec<Value>> {
        self.cluster.kubectl.list(&["nodes", "-l", "karpenter.sh/nodepool"])
    }

    /// `kubectl scale`.
    pub(super) fn scale(&self, app: &str, replicas: usize) -> Result<()> {
        self.cluster
            .kubectl
            .run(&["scale", "deployment", app, "-n", "default", &format!("--replicas={replicas}")])
            .map(drop)
    }

    /// Applies manifests of the repository, as a user does.
    pub(super) fn apply_file(&self, path: &str) -> Result<()> {
        let path = self.root.join(path);
        self.cluster
            .kubectl
            .run(&["apply", "-f", path.to_str().context("the path of the repository is not UTF-8")?])
            .map(drop)
    }

    /// Waits until no claim, no node of a pool and no pending or running instance is left, with slack.
    pub(super) fn wait_all_gone(&self, limit: Duration) -> Result<()> {
        until_true("claims, nodes and instances are deleted", self.with_slack(limit), || {
            let claims = self.cluster.kubectl.list(&["nodeclaims"])?.len();
            let (nodes, instances) = (self.nodes()?.len(), self.cloud.living()?.len());
            Ok((claims + nodes + instances == 0, format!("{claims} claims, {nodes} nodes, {instances} instances")))
        })
    }
}

fn is_ready(pod: &Value) -> bool {
    condition(pod, "Ready")
}

/// A quantity of CPUs, in millicores.
pub(super) fn millis(quantity: &str) -> Option<u64> {
    match quantity.strip_suffix('m') {
        Some(millis) => millis.parse().ok(),
        None => quantity.parse::<u64>().ok().map(|whole| whole * 1000),
    }
}

/// Milliseconds for a figure.
pub(super) fn in_millis(seconds: f64) -> String {
    format!("{:.0} ms", seconds * 1000.0)
}

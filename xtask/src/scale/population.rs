//! The existing cluster: instances, NodeClaims, Nodes and running pods.

use super::client::{ApiClient, CLAIMS, NODES, PODS};
use super::instances::{self, Facts, Instance};
use crate::harness::cloud::Cloud;
use anyhow::Result;
use serde_json::{Value, json};

const INSTANCE_TYPE: &str = "m5.xlarge";
/// Allocatable of the nodes; 20 pods of 190 millicores leave less than one more pod.
const CPU_MILLIS: usize = 3920;
const HOSTNAME: &str = "kubernetes.io/hostname";
/// Objects prepared at a time.
const BATCH: usize = 5_000;

/// What exists.
#[derive(Debug)]
pub(super) struct Population {
    /// Names of the nodes.
    pub(super) nodes: Vec<String>,
    /// Names of the pods with the index of their node.
    pub(super) pods: Vec<(String, usize)>,
    /// CPU request of each pod.
    pub(super) millis: usize,
}

impl Population {
    /// Creates all of it.
    pub(super) async fn create(
        cluster: &ApiClient,
        cloud: &Cloud,
        facts: &Facts,
        nodes: usize,
        pods_per_node: usize,
    ) -> Result<Population> {
        let instances = instances::run(cloud, facts, INSTANCE_TYPE, nodes)?;
        cluster.create_all(CLAIMS, instances.iter().map(|instance| claim(instance, facts)).collect()).await?;
        cluster.create_all(NODES, instances.iter().map(node).collect()).await?;
        let millis = (CPU_MILLIS / pods_per_node.max(1)).saturating_sub(6);
        let nodes: Vec<String> = instances.iter().map(node_name).collect();
        let mut pods = Vec::with_capacity(nodes.len() * pods_per_node);
        for index in 0..nodes.len() {
            pods.extend((0..pods_per_node).map(|number| (format!("base-{index}-{number}"), index)));
        }
        for batch in pods.chunks(BATCH) {
            let objects = batch.iter().map(|(name, index)| pod(name, &nodes[*index], millis)).collect();
            cluster.create_all(PODS, objects).await?;
        }
        Ok(Population { nodes, pods, millis })
    }
}

/// A running pod on a node.
pub(super) fn pod(name: &str, node: &str, millis: usize) -> Value {
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": name, "namespace": "default", "labels": {"app": "base"}},
        "spec": {"nodeName": node, "containers": [container(millis)]},
    })
}

/// A container of a request in millicores.
pub(super) fn container(millis: usize) -> Value {
    json!({
        "name": "main", "image": "registry.k8s.io/pause:3.10",
        "resources": {"requests": {"cpu": format!("{millis}m"), "memory": "256Mi"}},
    })
}

fn node_name(instance: &Instance) -> String {
    format!("ip-{}.ec2.internal", instance.id.trim_start_matches("i-"))
}

fn claim_name(instance: &Instance) -> String {
    format!("base-{}", instance.id.trim_start_matches("i-"))
}

fn provider_id(instance: &Instance) -> String {
    format!("aws:///{}/{}", instance.zone, instance.id)
}

fn labels(instance: &Instance) -> Value {
    json!({
        "karpenter.sh/nodepool": "base",
        "karpenter.sh/capacity-type": "on-demand",
        "karpenter.k8s.aws/ec2nodeclass": "default",
        "node.kubernetes.io/instance-type": INSTANCE_TYPE,
        "topology.kubernetes.io/zone": instance.zone,
        "topology.kubernetes.io/region": super::REGION,
        "kubernetes.io/arch": "amd64",
        "kubernetes.io/os": "linux",
    })
}

fn resources() -> (Value, Value) {
    let allocatable =
        json!({"cpu": format!("{CPU_MILLIS}m"), "memory": "14Gi", "pods": "58", "ephemeral-storage": "17Gi"});
    (json!({"cpu": "4", "memory": "15Gi", "pods": "58", "ephemeral-storage": "20Gi"}), allocatable)
}

fn claim(instance: &Instance, facts: &Facts) -> Value {
    let now = jiff::Timestamp::now().to_string();
    let is_true =
        |kind: &str| json!({"type": kind, "status": "True", "reason": kind, "message": "", "lastTransitionTime": now});
    let (capacity, allocatable) = resources();
    json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {
            "name": claim_name(instance), "labels": labels(instance), "finalizers": ["karpenter.sh/termination"],
        },
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "expireAfter": "Never",
            "requirements": [
                {"key": "node.kubernetes.io/instance-type", "operator": "In", "values": [INSTANCE_TYPE]},
                {"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["on-demand"]},
            ],
        },
        "status": {
            "providerID": provider_id(instance), "nodeName": node_name(instance), "imageID": facts.image,
            "capacity": capacity, "allocatable": allocatable,
            "conditions": [is_true("Launched"), is_true("Registered"), is_true("Initialized"), is_true("Ready")],
        },
    })
}

fn node(instance: &Instance) -> Value {
    let mut labels = labels(instance);
    labels[HOSTNAME] = json!(node_name(instance));
    labels["karpenter.sh/registered"] = json!("true");
    labels["karpenter.sh/initialized"] = json!("true");
    let now = jiff::Timestamp::now().to_string();
    let (capacity, allocatable) = resources();
    json!({
        "apiVersion": "v1", "kind": "Node",
        "metadata": {"name": node_name(instance), "labels": labels, "finalizers": ["karpenter.sh/termination"]},
        "spec": {"providerID": provider_id(instance)},
        "status": {
            "capacity": capacity, "allocatable": allocatable,
            "conditions": [{
                "type": "Ready", "status": "True", "reason": "KubeletReady", "message": "",
                "lastHeartbeatTime": now, "lastTransitionTime": now,
            }],
        },
    })
}

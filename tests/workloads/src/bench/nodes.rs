//! Large clusters.

use super::mix::sized;
use super::{Types, deployment, one_pool, pod};
use crate::cluster::{own_labels, status};
use crate::manifest::{container, selects};
use crate::{Case, Rng};
use plimsoll_model::catalog::{CapacityType, InstanceType, Offering};
use plimsoll_model::resources::CPU;
use serde_json::{Value, json};

/// Number of Deployments of a large cluster.
const APPS: usize = 200;

/// Number of DaemonSets of a large cluster with controllers.
const DAEMON_SETS: usize = 6;

/// `nodes` nodes of the built-in catalog with `running` pods of 200 Deployments, evenly distributed. About half of each
/// node is free. `waiting` pods of Karpenter's sizes are pending.
#[must_use]
pub fn with_nodes(seed: u64, nodes: usize, running: usize, waiting: usize) -> Case {
    let mut rng = Rng::new(seed);
    let mut case = one_pool(seed, Types::BuiltIn);
    let catalog = Types::BuiltIn.choice().catalog();
    let usual = ["m5.2xlarge", "m6i.4xlarge", "c6i.4xlarge", "r6i.2xlarge"];
    let types: Vec<&InstanceType> = usual.iter().filter_map(|name| catalog.get(name)).collect();
    let each = if nodes == 0 { 0 } else { running.div_ceil(nodes) };
    let mut remaining = running;
    for number in 0..nodes {
        let Some(it) = rng.pick(&types) else { break };
        let name = format!("node-{number}");
        let offerings: Vec<_> = it.offerings.iter().filter(|it| it.capacity_type == CapacityType::OnDemand).collect();
        let Some(offering) = rng.pick(&offerings) else { break };
        case.objects.push(node(&name, "default", it, offering, &catalog.region));
        let count = each.min(remaining);
        remaining -= count;
        // Half to nine tenths of the cpu, in equal parts.
        let used = it.allocatable().get(CPU) / 100 * i64::try_from(rng.range(50, 90)).unwrap_or(50);
        for on_node in 0..count {
            let cpu = used / i64::try_from(count).unwrap_or(1);
            case.objects.push(running_pod(&mut rng, &format!("{name}-{on_node}"), &name, cpu));
        }
    }
    for number in 0..waiting {
        case.objects.push(pod(&format!("waiting-{number}"), &json!({"app": "new"}), &sized(&mut rng)));
    }
    case
}

/// [`with_nodes`], with what controllers add to pods: the running pods have the labels of a StatefulSet's pods, the
/// pending pods those of Jobs. Each node also runs a pod of each of six DaemonSets, with the node affinity of its
/// controller.
#[must_use]
pub fn with_controllers(seed: u64, nodes: usize, running: usize, waiting: usize) -> Case {
    let mut case = with_nodes(seed, nodes, running, waiting);
    for object in case.objects.iter_mut().filter(|object| object["kind"] == "Pod") {
        let name = object["metadata"]["name"].clone();
        let labels: &[&str] = match object["spec"]["nodeName"].is_string() {
            true => &["apps.kubernetes.io/pod-index", "statefulset.kubernetes.io/pod-name"],
            false => &["batch.kubernetes.io/controller-uid", "batch.kubernetes.io/job-name"],
        };
        labels.iter().for_each(|key| object["metadata"]["labels"][*key] = name.clone());
    }
    for number in 0..DAEMON_SETS {
        let set = format!("daemon-{number}");
        let spec = json!({"containers": [container("app", "20m", "64Mi")]});
        for node in 0..nodes {
            case.objects.push(daemon_pod(&set, &format!("node-{node}"), &spec));
        }
        case.objects.push(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": set, "namespace": "default"},
            "spec": {
                "selector": selects("app", &set),
                "template": {"metadata": {"labels": {"app": set}}, "spec": spec},
            },
        }));
    }
    case
}

fn daemon_pod(set: &str, node: &str, spec: &Value) -> Value {
    let mut pod = pod(&format!("{set}-{node}"), &json!({"app": set}), spec);
    let field = json!({"key": "metadata.name", "operator": "In", "values": [node]});
    pod["metadata"]["ownerReferences"] =
        json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": set, "uid": set, "controller": true}]);
    pod["spec"]["nodeName"] = node.into();
    pod["spec"]["affinity"] = json!({"nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
        "nodeSelectorTerms": [{"matchFields": [field]}]}}});
    pod["status"] = json!({"phase": "Running"});
    pod
}

/// The Node of a launched and initialized instance.
#[must_use]
pub fn node(name: &str, pool: &str, it: &InstanceType, offering: &Offering, region: &str) -> Value {
    let mut labels = it.labels.clone();
    labels.extend(own_labels(name, pool, it, offering, region));
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels},
        "spec": {"providerID": format!("aws:///{}/i-{name}", offering.zone)},
        "status": status(it),
    })
}

fn running_pod(rng: &mut Rng, name: &str, node: &str, cpu: i64) -> Value {
    let app = format!("app-{}", rng.range(0, APPS - 1));
    // Only a few different sizes, as in Deployments.
    let cpu = (cpu / 50 * 50).max(10);
    let mut spec = json!({"containers": [container("app", &format!("{cpu}m"), "256Mi")]});
    spec["nodeName"] = node.into();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {"name": format!("run-{name}"), "namespace": "default", "labels": {"app": app}},
        "spec": spec, "status": {"phase": "Running"},
    })
}

/// One additional pod, as a Deployment with one replica.
#[must_use]
pub fn one_more_pod(name: &str) -> Value {
    deployment(name, 1, &json!({"containers": [container("app", "500m", "512Mi")]}))
}

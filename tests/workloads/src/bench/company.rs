//! Typical workloads of a company.

use super::{Types, deployment, one_pool};
use crate::manifest::{at, container, node_pool, push, requirement, selects};
use crate::{Case, Rng};
use plimsoll_model::names::label;
use serde_json::{Value, json};

/// Number of Deployments.
const DEPLOYMENTS: usize = 40;

/// 40 Deployments with about `pods` pods in total on the built-in catalog: services spread over zones, batch on Spot,
/// some on arm64, some with GPUs, some in one zone with their volume, and a DaemonSet.
#[must_use]
pub fn company(seed: u64, pods: usize) -> Case {
    let mut rng = Rng::new(seed);
    let mut case = one_pool(seed, Types::BuiltIn);
    let arch = requirement(label::ARCH, "In", &["amd64", "arm64"]);
    let category = format!("{}/instance-category", label::AWS_DOMAIN);
    let general = requirement(&category, "In", &["c", "m", "r"]);
    let buy = |how: &str| requirement(label::CAPACITY_TYPE, "In", &[how]);
    let mut batch = node_pool("batch", &[arch, general, buy("spot")]);
    batch["spec"]["template"]["spec"]["taints"] = json!([{"key": "batch", "value": "true", "effect": "NoSchedule"}]);
    let mut gpu = node_pool("gpu", &[requirement(&category, "In", &["g"]), buy("on-demand")]);
    gpu["spec"]["template"]["spec"]["taints"] =
        json!([{"key": "nvidia.com/gpu", "value": "present", "effect": "NoSchedule"}]);
    case.objects.extend([batch, gpu]);
    case.objects.push(json!({
        "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": "agent", "namespace": "default"},
        "spec": {
            "selector": {"matchLabels": {"app": "agent"}},
            "template": {
                "metadata": {"labels": {"app": "agent"}},
                "spec": {"containers": [container("agent", "100m", "200Mi")], "tolerations": [{"operator": "Exists"}]},
            },
        },
    }));
    for number in 0..DEPLOYMENTS {
        let name = format!("service-{number}");
        let mut spec = size(&mut rng);
        // From one third to five thirds of an equal share.
        let share = pods.div_ceil(DEPLOYMENTS);
        let mut replicas = rng.range(share.div_ceil(3), share + share * 2 / 3);
        match number % 10 {
            0..=3 => service(&mut spec, &name),
            4 | 5 => {
                push(&mut spec, &["tolerations"], json!({"key": "batch", "operator": "Exists"}));
                *at(&mut spec, &["nodeSelector", label::CAPACITY_TYPE]) = "spot".into();
                if number % 10 == 5 {
                    *at(&mut spec, &["nodeSelector", label::ARCH]) = "arm64".into();
                }
            }
            6 => {
                push(&mut spec, &["tolerations"], json!({"key": "nvidia.com/gpu", "operator": "Exists"}));
                *at(&mut spec["containers"][0], &["resources", "requests", "nvidia.com/gpu"]) = "1".into();
                *at(&mut spec["containers"][0], &["resources", "limits", "nvidia.com/gpu"]) = "1".into();
                replicas = replicas.min(share.div_ceil(5));
            }
            7 => volume(&mut case, &mut spec, &name),
            _ => {}
        }
        case.objects.push(deployment(&name, replicas, &spec));
    }
    case
}

fn size(rng: &mut Rng) -> Value {
    let cpu = rng.text(&["100m", "250m", "500m", "1", "2", "4"]);
    let memory = rng.text(&["256Mi", "512Mi", "1Gi", "2Gi", "4Gi", "8Gi"]);
    json!({"containers": [container("app", cpu, memory)]})
}

fn service(spec: &mut Value, name: &str) {
    for (key, otherwise) in [(label::ZONE, "DoNotSchedule"), (label::HOSTNAME, "ScheduleAnyway")] {
        let constraint = json!({
            "maxSkew": 1, "topologyKey": key, "whenUnsatisfiable": otherwise, "labelSelector": selects("app", name),
        });
        push(spec, &["topologySpreadConstraints"], constraint);
    }
}

/// A volume in the first zone, which all pods of the Deployment share.
fn volume(case: &mut Case, spec: &mut Value, name: &str) {
    push(spec, &["volumes"], json!({"name": "data", "persistentVolumeClaim": {"claimName": name}}));
    case.objects.push(json!({
        "apiVersion": "v1", "kind": "PersistentVolume", "metadata": {"name": name},
        "spec": {
            "accessModes": ["ReadOnlyMany"], "capacity": {"storage": "10Gi"}, "storageClassName": "",
            "csi": {"driver": "ebs.csi.aws.com", "volumeHandle": format!("vol-{name}")},
            "claimRef": {"apiVersion": "v1", "kind": "PersistentVolumeClaim", "namespace": "default", "name": name},
            "nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                {"key": label::ZONE, "operator": "In", "values": ["us-east-1a"]},
            ]}]}},
        },
        "status": {"phase": "Bound"},
    }));
    case.objects.push(json!({
        "apiVersion": "v1", "kind": "PersistentVolumeClaim", "metadata": {"name": name, "namespace": "default"},
        "spec": {
            "accessModes": ["ReadOnlyMany"], "storageClassName": "", "volumeName": name,
            "resources": {"requests": {"storage": "10Gi"}},
        },
        "status": {"phase": "Bound"},
    }));
}

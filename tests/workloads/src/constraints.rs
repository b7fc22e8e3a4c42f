//! Requirements of pods: node selection, other pods, host ports.

use crate::Feature;
use crate::generate::Draft;
use crate::manifest::{at, container, push, requirement, selects};
use crate::pools::{DEDICATED, TEAM, TIER};
use plimsoll_model::names::label;
use serde_json::{Value, json};

pub(crate) const NODE_TERMS: &[&str] =
    &["affinity", "nodeAffinity", "requiredDuringSchedulingIgnoredDuringExecution", "nodeSelectorTerms"];
const POD_AFFINITY: &[&str] = &["affinity", "podAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
const POD_ANTI_AFFINITY: &[&str] = &["affinity", "podAntiAffinity", "requiredDuringSchedulingIgnoredDuringExecution"];
pub(crate) const SPREAD: &[&str] = &["topologySpreadConstraints"];

/// Applies a feature of this module to a workload.
pub(crate) fn apply(draft: &mut Draft, feature: Feature, index: usize) {
    match feature {
        Feature::NodeSelector => node_selector(draft, index),
        Feature::PoolLabels => pool_label(draft, index),
        Feature::NodeAffinity => node_affinity(draft, index),
        Feature::Taints => tolerate(draft, index),
        Feature::ZoneSpread => spread(draft, index, label::ZONE, "DoNotSchedule"),
        Feature::HostnameSpread => spread(draft, index, label::HOSTNAME, "DoNotSchedule"),
        Feature::ZoneAffinity => pods(draft, index, POD_AFFINITY, label::ZONE),
        Feature::HostnameAffinity => pods(draft, index, POD_AFFINITY, label::HOSTNAME),
        Feature::ZoneAntiAffinity => pods(draft, index, POD_ANTI_AFFINITY, label::ZONE),
        Feature::HostnameAntiAffinity => pods(draft, index, POD_ANTI_AFFINITY, label::HOSTNAME),
        Feature::HostPorts => host_port(draft, index),
        Feature::InitContainers => init_container(draft, index),
        _ => {}
    }
}

fn pod(draft: &mut Draft, index: usize) -> Option<&mut Value> {
    draft.workloads.get_mut(index).map(|it| &mut it.pod)
}

fn node_selector(draft: &mut Draft, index: usize) {
    let zones = draft.zones();
    let family = format!("{}/instance-family", label::AWS_DOMAIN);
    let families = draft.values(&family);
    let rng = &mut draft.rng;
    let (key, value) = match rng.range(1, 4) {
        1 => (label::ARCH, rng.text(&["amd64", "amd64", "arm64"]).to_owned()),
        2 => (label::CAPACITY_TYPE, rng.text(&["on-demand", "on-demand", "spot"]).to_owned()),
        3 => (family.as_str(), rng.pick(&families).cloned().unwrap_or_default()),
        _ => (label::ZONE, rng.pick(&zones).cloned().unwrap_or_default()),
    };
    if let Some(pod) = pod(draft, index) {
        *at(pod, &["nodeSelector", key]) = value.into();
    }
}

fn pool_label(draft: &mut Draft, index: usize) {
    let rng = &mut draft.rng;
    let (key, value) =
        if rng.chance(60) { (TEAM, rng.text(&["red", "blue"])) } else { (TIER, rng.text(&["gold", "silver"])) };
    let value = value.to_owned();
    if let Some(pod) = pod(draft, index) {
        *at(pod, &["nodeSelector", key]) = value.into();
    }
}

fn node_affinity(draft: &mut Draft, index: usize) {
    let term = node_term(draft);
    if let Some(pod) = pod(draft, index) {
        push(pod, NODE_TERMS, json!({"matchExpressions": [term]}));
    }
}

/// A random node requirement.
pub(crate) fn node_term(draft: &mut Draft) -> Value {
    let zones = draft.zones();
    let category = format!("{}/instance-category", label::AWS_DOMAIN);
    let categories = draft.values(&category);
    let rng = &mut draft.rng;
    let some = |values: Vec<String>, key: &str, operator: &str| {
        let values: Vec<&str> = values.iter().map(String::as_str).collect();
        requirement(key, operator, &values)
    };
    match rng.range(1, 7) {
        1 | 2 => some(rng.some(&zones, 1), label::ZONE, "In"),
        3 => some(rng.pick(&zones).cloned().into_iter().collect(), label::ZONE, "NotIn"),
        4 => some(rng.some(&categories, 1), &category, "In"),
        5 => some(rng.pick(&categories).cloned().into_iter().collect(), &category, "NotIn"),
        6 => requirement(label::CAPACITY_TYPE, "NotIn", &["spot"]),
        _ => requirement(TEAM, rng.text(&["Exists", "DoesNotExist"]), &[]),
    }
}

fn tolerate(draft: &mut Draft, index: usize) {
    let rng = &mut draft.rng;
    let toleration = match rng.range(1, 4) {
        1 => json!({"key": DEDICATED, "operator": "Exists"}),
        2 => json!({"operator": "Exists"}),
        _ => json!({"key": DEDICATED, "operator": "Equal", "value": rng.text(&["a", "b"])}),
    };
    if let Some(pod) = pod(draft, index) {
        push(pod, &["tolerations"], toleration);
    }
}

/// Spread of a workload over `key`, mostly over its own pods.
pub(crate) fn spread(draft: &mut Draft, index: usize, key: &str, otherwise: &str) {
    let own_name = draft.workloads.get(index).map(|it| it.name.clone()).unwrap_or_default();
    let other = draft.any_app();
    let rng = &mut draft.rng;
    let selector = match rng.range(1, 10) {
        1 => selects("tier", rng.text(&["front", "back"])),
        2 => selects("app", &other),
        _ => selects("app", &own_name),
    };
    let skew = if rng.chance(75) { 1 } else { rng.range(2, 3) };
    if let Some(pod) = pod(draft, index) {
        push(
            pod,
            SPREAD,
            json!({"maxSkew": skew, "topologyKey": key, "whenUnsatisfiable": otherwise, "labelSelector": selector}),
        );
    }
}

/// Affinity or anti-affinity of a workload to its own or other pods.
fn pods(draft: &mut Draft, index: usize, path: &[&str], key: &str) {
    let term = pod_term(draft, index, key);
    if let Some(pod) = pod(draft, index) {
        push(pod, path, term);
    }
}

/// A random pod affinity term.
pub(crate) fn pod_term(draft: &mut Draft, index: usize, key: &str) -> Value {
    let own_name = draft.workloads.get(index).map(|it| it.name.clone()).unwrap_or_default();
    let other = draft.any_app();
    let rng = &mut draft.rng;
    let selector = match rng.range(1, 10) {
        1 => selects("tier", rng.text(&["front", "back"])),
        2..=4 => selects("app", &other),
        _ => selects("app", &own_name),
    };
    json!({"topologyKey": key, "labelSelector": selector})
}

fn host_port(draft: &mut Draft, index: usize) {
    let rng = &mut draft.rng;
    let port = rng.range(8080, 8081);
    let mut it = json!({"containerPort": port, "hostPort": port});
    match rng.range(1, 5) {
        1 => it["protocol"] = "UDP".into(),
        2 => it["hostIP"] = "10.0.0.1".into(),
        _ => {}
    }
    let containers = pod(draft, index).map(|pod| &mut pod["containers"]);
    if let Some(first) = containers.and_then(|it| it.get_mut(0)) {
        push(first, &["ports"], it);
    }
}

fn init_container(draft: &mut Draft, index: usize) {
    let rng = &mut draft.rng;
    let init = container("init", rng.text(&["100m", "1", "3"]), rng.text(&["64Mi", "2Gi"]));
    if let Some(pod) = pod(draft, index) {
        push(pod, &["initContainers"], init);
    }
}

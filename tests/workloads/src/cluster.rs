//! Existing objects of a cluster: DaemonSets, nodes and the pods on them.

use crate::Feature;
use crate::generate::Draft;
use crate::manifest::{Labels, container, selects};
use crate::pools::Pool;
use plimsoll_model::catalog::{InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::{CPU, MEMORY, Resources};
use serde_json::{Map, Value, json};

/// Maximum part of the remaining capacity of its node that a running pod uses, in percent.
const SHARE_MAX: i64 = 60;

pub(crate) fn draw(draft: &mut Draft) {
    let daemons = if draft.has(Feature::DaemonSets) { daemon_sets(draft) } else { Vec::new() };
    if draft.has(Feature::ExistingNodes) {
        for number in 0..draft.rng.range(1, 4) {
            node(draft, &daemons, number);
        }
    }
}

/// Properties of a DaemonSet that its pods on nodes depend on.
struct Daemon {
    name: String,
    architecture: Option<&'static str>,
    tolerates: bool,
    pod: Value,
    cpu_millis: i64,
}

fn daemon_sets(draft: &mut Draft) -> Vec<Daemon> {
    let mut daemons = Vec::new();
    for number in 0..draft.rng.range(1, 2) {
        let rng = &mut draft.rng;
        let cpu_millis = i64::try_from(rng.range(1, 6)).unwrap_or(1) * 50;
        let mut pod =
            json!({"containers": [container("agent", &format!("{cpu_millis}m"), rng.text(&["64Mi", "300Mi"]))]});
        let architecture = rng.chance(20).then(|| rng.text(&["amd64", "arm64"])).map(|it| match it {
            "arm64" => "arm64",
            _ => "amd64",
        });
        if let Some(architecture) = architecture {
            pod["nodeSelector"] = json!({label::ARCH: architecture});
        }
        let tolerates = rng.chance(60);
        if tolerates {
            pod["tolerations"] = json!([{"operator": "Exists"}]);
        }
        let name = format!("agent-{number}");
        draft.objects.push(json!({
            "apiVersion": "apps/v1", "kind": "DaemonSet", "metadata": {"name": name, "namespace": "default"},
            "spec": {
                "selector": {"matchLabels": {"app": name}},
                "template": {"metadata": {"labels": {"app": name}}, "spec": pod},
            },
        }));
        daemons.push(Daemon { name, architecture, tolerates, pod, cpu_millis });
    }
    daemons
}

/// A node of a random pool, with a type that the pool allows.
fn node(draft: &mut Draft, daemons: &[Daemon], number: usize) {
    let Some(pool_index) = pick_index(draft) else { return };
    let choices = choices(draft, pool_index);
    let Some((type_index, offering)) = draft.rng.pick(&choices).cloned() else { return };
    let Some(instance_type) = draft.catalog.instance_types.get(type_index).cloned() else { return };
    let Some(pool) = draft.pools.get(pool_index) else { return };
    let name = format!("node-{number}");
    let free = instance_type.allocatable();
    draft.objects.push(manifest(&name, pool, &instance_type, &offering, draft.catalog.region.as_str()));
    let hard_taints = pool.taints.iter().any(|it| it["effect"] != "PreferNoSchedule");
    let mut cpu = free.get(CPU);
    for daemon in daemons {
        let wanted = daemon.architecture.is_none_or(|it| it == instance_type.architecture);
        if wanted && (daemon.tolerates || !hard_taints) {
            draft.objects.push(daemon_pod(daemon, &name));
            cpu -= daemon.cpu_millis;
        }
    }
    let mut memory = free.get(MEMORY) - i64::try_from(daemons.len()).unwrap_or(0) * (300 << 20);
    for pod in 0..draft.rng.range(0, 3) {
        let (used_cpu, used_memory) = (part(draft, cpu), part(draft, memory));
        if used_cpu < 10 || used_memory < (16 << 20) {
            break;
        }
        (cpu, memory) = (cpu - used_cpu, memory - used_memory);
        let running = running(draft, &format!("running-{number}-{pod}"), &name, used_cpu, used_memory);
        draft.objects.push(running);
    }
}

fn part(draft: &mut Draft, of: i64) -> i64 {
    let percent = draft.rng.range(0, usize::try_from(SHARE_MAX).unwrap_or(0));
    of.max(0) / 100 * i64::try_from(percent).unwrap_or(0)
}

fn pick_index(draft: &mut Draft) -> Option<usize> {
    let all: Vec<usize> = (0..draft.pools.len()).collect();
    draft.rng.pick(&all).copied()
}

/// Types and offerings that the pool allows, by its simple requirements. The types have up to 8 vCPU, so that they fill
/// up.
fn choices(draft: &Draft, pool: usize) -> Vec<(usize, Offering)> {
    const CPU_MILLIS_MAX: i64 = 8_000;
    let Some(pool) = draft.pools.get(pool) else { return Vec::new() };
    let category = format!("{}/instance-category", label::AWS_DOMAIN);
    let listed = |list: &[String], value: &str| list.is_empty() || list.iter().any(|it| it == value);
    let mut found = Vec::new();
    for (index, it) in draft.catalog.instance_types.iter().enumerate() {
        let fits = pool.architectures.contains(&it.architecture.as_str())
            && listed(&pool.categories, it.labels.get(&category).map_or("", String::as_str))
            && it.capacity.get(CPU) <= CPU_MILLIS_MAX;
        for offering in it.offerings.iter().filter(|_| fits) {
            let bought = pool.capacity_types.contains(&offering.capacity_type.as_str());
            if bought && offering.available && listed(&pool.zones, &offering.zone) {
                found.push((index, offering.clone()));
            }
        }
    }
    found
}

/// The Node as its kubelet and the actuator would create it.
pub(crate) fn manifest(name: &str, pool: &Pool, it: &InstanceType, offering: &Offering, region: &str) -> Value {
    let mut labels: Labels = it.labels.clone();
    labels.extend(pool.node_labels());
    labels.extend(own_labels(name, &pool.name, it, offering, region));
    let mut spec = json!({"providerID": format!("aws:///{}/i-{name}", offering.zone)});
    if !pool.taints.is_empty() {
        spec["taints"] = Value::Array(pool.taints.clone());
    }
    json!({
        "apiVersion": "v1", "kind": "Node", "metadata": {"name": name, "labels": labels}, "spec": spec,
        "status": status(it),
    })
}

pub(crate) fn own_labels(name: &str, pool: &str, it: &InstanceType, offering: &Offering, region: &str) -> Labels {
    let labels = [
        (label::HOSTNAME, name),
        (label::INSTANCE_TYPE, &it.name),
        (label::ARCH, &it.architecture),
        (label::OS, "linux"),
        (label::ZONE, &offering.zone),
        (label::REGION, region),
        (label::NODE_POOL, pool),
        (label::CAPACITY_TYPE, offering.capacity_type.as_str()),
        (label::EC2_NODE_CLASS, "default"),
        (label::REGISTERED, "true"),
        (label::INITIALIZED, "true"),
    ];
    let mut labels: Labels = labels.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    if !offering.zone_id.is_empty() {
        labels.insert(label::ZONE_ID.to_owned(), offering.zone_id.clone());
    }
    labels
}

pub(crate) fn status(it: &InstanceType) -> Value {
    json!({
        "capacity": amounts(&it.capacity),
        "allocatable": amounts(&it.allocatable()),
        "conditions": [{"type": "Ready", "status": "True", "reason": "KubeletReady"}],
    })
}

fn amounts(resources: &Resources) -> Value {
    let entries = resources.iter().map(|(name, amount)| (name.to_owned(), format_amount(name, amount).into()));
    Value::Object(entries.collect::<Map<_, _>>())
}

fn daemon_pod(daemon: &Daemon, node: &str) -> Value {
    let mut pod = daemon.pod.clone();
    pod["nodeName"] = node.into();
    json!({
        "apiVersion": "v1", "kind": "Pod",
        "metadata": {
            "name": format!("{}-{node}", daemon.name), "namespace": "default", "labels": {"app": daemon.name},
            "ownerReferences": [{
                "apiVersion": "apps/v1", "kind": "DaemonSet", "name": daemon.name, "controller": true,
                "uid": format!("00000000-0000-0000-0000-{:0>12}", daemon.cpu_millis),
            }],
        },
        "spec": pod,
        "status": {"phase": "Running"},
    })
}

/// A running pod. Spreads and anti-affinity of pending pods may count it, and its own anti-affinity may apply to them.
fn running(draft: &mut Draft, name: &str, node: &str, cpu: i64, memory: i64) -> Value {
    let app = draft.any_app();
    let keeps_away = draft.has(Feature::HostnameAntiAffinity) || draft.has(Feature::ZoneAntiAffinity);
    let namespace =
        draft.workloads.iter().find(|it| it.name == app).map_or("default".to_owned(), |it| it.namespace.clone());
    let rng = &mut draft.rng;
    let labels = if rng.chance(60) { json!({"app": app, "tier": "back"}) } else { json!({"app": "something-else"}) };
    let amounts = (format_amount(CPU, cpu), format_amount(MEMORY, memory));
    let mut spec = json!({
        "nodeName": node, "containers": [container("app", &amounts.0, &amounts.1)], "tolerations": [{"operator": "Exists"}],
    });
    if keeps_away && rng.chance(25) {
        let key = rng.text(&[label::HOSTNAME, label::HOSTNAME, label::ZONE]);
        spec["affinity"] = json!({"podAntiAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [
            {"topologyKey": key, "labelSelector": selects("app", &app)},
        ]}});
    }
    json!({
        "apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "namespace": namespace, "labels": labels},
        "spec": spec, "status": {"phase": "Running"},
    })
}

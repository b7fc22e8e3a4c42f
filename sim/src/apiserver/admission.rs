//! Mutating admission: defaults, and the fields that the built-in admission plugins set.

use super::error::ApiError;
use super::object;
use super::resources::ResourceId;
use super::store::{Key, Store};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::sync::Arc;

/// Context of an object that is about to be stored.
#[derive(Debug)]
pub struct Situation<'a> {
    /// The store before the write.
    pub store: &'a Store,
    /// Kind of the object.
    pub resource: ResourceId,
    /// The object before the write; `None` on creation.
    pub old: Option<&'a Value>,
    /// Current time.
    pub now: Timestamp,
}

/// An admission step that may complete or reject an object, such as the defaults and the validation of a custom
/// resource.
pub type Hook = Arc<dyn Fn(&Situation<'_>, &mut Value) -> Result<(), ApiError> + Send + Sync>;

/// All admission steps that run on an object before it is stored.
#[derive(Default, Clone)]
pub struct Admission {
    hooks: Vec<(ResourceId, Hook)>,
}

impl Admission {
    /// Adds a step for one kind. Steps run in the order in which they were added.
    pub fn add(&mut self, resource: ResourceId, hook: Hook) {
        self.hooks.push((resource, hook));
    }

    pub(crate) fn run(&self, situation: &Situation<'_>, object: &mut Value) -> Result<(), ApiError> {
        built_in(situation, object)?;
        for (_, hook) in self.hooks.iter().filter(|(resource, _)| *resource == situation.resource) {
            hook(situation, object)?;
        }
        Ok(())
    }
}

/// Taint of Nodes that are not Ready. The server adds it to every new Node.
pub const NOT_READY: &str = "node.kubernetes.io/not-ready";

/// Default time in seconds that pods stay on a Node that is not ready or not reachable.
const DEFAULT_TOLERATION_SECONDS: i64 = 300;

fn built_in(situation: &Situation<'_>, object: &mut Value) -> Result<(), ApiError> {
    let is_new = situation.old.is_none();
    match situation.resource {
        ResourceId::PODS if is_new => new_pod(situation.store, object)?,
        ResourceId::NODES if is_new => new_node(object),
        ResourceId::NAMESPACES if is_new => {
            let name = object::name(object).to_owned();
            object::set(object, &["metadata", "labels", "kubernetes.io/metadata.name"], Value::from(name));
            default(object, &["spec", "finalizers"], json!(["kubernetes"]));
            object::set(object, &["status", "phase"], json!("Active"));
        }
        ResourceId::DEPLOYMENTS => {
            default(object, &["spec", "replicas"], json!(1));
            default(object, &["spec", "strategy", "type"], json!("RollingUpdate"));
            if object::text(object, &["spec", "strategy", "type"]) == "RollingUpdate" {
                default(object, &["spec", "strategy", "rollingUpdate", "maxSurge"], json!("25%"));
                default(object, &["spec", "strategy", "rollingUpdate", "maxUnavailable"], json!("25%"));
            }
        }
        ResourceId::REPLICA_SETS => default(object, &["spec", "replicas"], json!(1)),
        ResourceId::STATEFUL_SETS => {
            default(object, &["spec", "replicas"], json!(1));
            default(object, &["spec", "podManagementPolicy"], json!("OrderedReady"));
        }
        ResourceId::JOBS => job(object, is_new),
        ResourceId::STORAGE_CLASSES => {
            default(object, &["volumeBindingMode"], json!("Immediate"));
            default(object, &["reclaimPolicy"], json!("Delete"));
        }
        ResourceId::PERSISTENT_VOLUME_CLAIMS => default(object, &["status", "phase"], json!("Pending")),
        ResourceId::PERSISTENT_VOLUMES => default(object, &["status", "phase"], json!("Available")),
        _ => {}
    }
    Ok(())
}

fn default(object: &mut Value, path: &[&str], value: Value) {
    if object::at(object, path).is_none() {
        object::set(object, path, value);
    }
}

fn new_node(node: &mut Value) {
    let mut taints = object::items(node, &["spec", "taints"]).to_vec();
    if !taints.iter().any(|taint| object::text(taint, &["key"]) == NOT_READY) {
        taints.push(json!({"key": NOT_READY, "effect": "NoSchedule"}));
    }
    object::set(node, &["spec", "taints"], Value::Array(taints));
}

fn job(job: &mut Value, is_new: bool) {
    let open_ended = object::at(job, &["spec", "parallelism"]).is_some();
    if !open_ended {
        default(job, &["spec", "completions"], json!(1));
    }
    default(job, &["spec", "parallelism"], json!(1));
    default(job, &["spec", "backoffLimit"], json!(6));
    if is_new && object::at(job, &["spec", "selector"]).is_none() {
        let uid = object::uid(job).to_owned();
        let key = "batch.kubernetes.io/controller-uid";
        object::set(job, &["spec", "selector", "matchLabels", key], Value::from(uid.clone()));
        object::set(job, &["spec", "template", "metadata", "labels", key], Value::from(uid));
    }
}

fn new_pod(store: &Store, pod: &mut Value) -> Result<(), ApiError> {
    for (field, value) in [
        ("terminationGracePeriodSeconds", json!(30)),
        ("restartPolicy", json!("Always")),
        ("dnsPolicy", json!("ClusterFirst")),
        ("schedulerName", json!("default-scheduler")),
        ("serviceAccountName", json!("default")),
        ("enableServiceLinks", json!(true)),
        ("securityContext", json!({})),
    ] {
        default(pod, &["spec", field], value);
    }
    requests_from_limits(pod);
    default_tolerations(pod);
    priority(store, pod)?;
    object::set(pod, &["status", "phase"], json!("Pending"));
    object::set(pod, &["status", "qosClass"], json!(quality_of_service(pod)));
    if !object::items(pod, &["spec", "schedulingGates"]).is_empty() {
        let gated = json!({"type": "PodScheduled", "status": "False", "reason": "SchedulingGated",
                           "message": "Scheduling is blocked due to non-empty scheduling gates"});
        object::set(pod, &["status", "conditions"], json!([gated]));
    }
    Ok(())
}

fn requests_from_limits(pod: &mut Value) {
    for list in ["containers", "initContainers"] {
        let Some(containers) = pod["spec"].get_mut(list).and_then(Value::as_array_mut) else { continue };
        for container in containers {
            let limits = object::at(container, &["resources", "limits"]).and_then(Value::as_object).cloned();
            for (name, quantity) in limits.into_iter().flatten() {
                default(container, &["resources", "requests", &name], quantity);
            }
        }
    }
}

fn default_tolerations(pod: &mut Value) {
    let mut tolerations = object::items(pod, &["spec", "tolerations"]).to_vec();
    for key in [NOT_READY, "node.kubernetes.io/unreachable"] {
        let covers = |toleration: &Value| {
            let (own, effect) = (object::text(toleration, &["key"]), object::text(toleration, &["effect"]));
            (own == key || own.is_empty()) && (effect == "NoExecute" || effect.is_empty())
        };
        if !tolerations.iter().any(covers) {
            tolerations.push(json!({"key": key, "operator": "Exists", "effect": "NoExecute",
                                    "tolerationSeconds": DEFAULT_TOLERATION_SECONDS}));
        }
    }
    object::set(pod, &["spec", "tolerations"], Value::Array(tolerations));
}

fn priority(store: &Store, pod: &mut Value) -> Result<(), ApiError> {
    let name = object::text(pod, &["spec", "priorityClassName"]).to_owned();
    let class = if name.is_empty() {
        let is_default = |class: &Value| class.get("globalDefault").and_then(Value::as_bool) == Some(true);
        store.all(ResourceId::PRIORITY_CLASSES).map(|(_, class)| class.clone()).find(|class| is_default(class))
    } else {
        let found = store.find(ResourceId::PRIORITY_CLASSES, &Key::new("", name.clone()));
        let refused = || {
            ApiError::forbidden(
                ResourceId::PODS.get(),
                object::name(pod),
                &format!("there is no PriorityClass {name:?}"),
            )
        };
        Some(found.ok_or_else(refused)?)
    };
    let value = class.as_ref().and_then(|class| object::integer(class, &["value"])).unwrap_or(0);
    let policy = class.as_ref().map_or("", |class| object::text(class, &["preemptionPolicy"])).to_owned();
    if let Some(class) = class {
        object::set(pod, &["spec", "priorityClassName"], json!(object::name(&class)));
    }
    object::set(pod, &["spec", "priority"], json!(value));
    default(
        pod,
        &["spec", "preemptionPolicy"],
        json!(if policy.is_empty() { "PreemptLowerPriority" } else { &policy }),
    );
    Ok(())
}

fn quality_of_service(pod: &Value) -> &'static str {
    let containers =
        || object::items(pod, &["spec", "containers"]).iter().chain(object::items(pod, &["spec", "initContainers"]));
    let has = |container: &Value, what| {
        object::at(container, &["resources", what]).and_then(Value::as_object).is_some_and(|map| !map.is_empty())
    };
    if !containers().any(|container| has(container, "requests") || has(container, "limits")) {
        return "BestEffort";
    }
    let guaranteed = containers().all(|container| {
        ["cpu", "memory"].iter().all(|resource| {
            let limit = object::at(container, &["resources", "limits", resource]);
            limit.is_some() && limit == object::at(container, &["resources", "requests", resource])
        })
    });
    if guaranteed { "Guaranteed" } else { "Burstable" }
}

/// Objects that exist in every cluster.
pub(crate) fn bootstrap() -> Vec<(ResourceId, Value)> {
    let namespaces = ["default", "kube-system", "kube-public", "kube-node-lease"];
    let mut objects: Vec<_> =
        namespaces.iter().map(|name| (ResourceId::NAMESPACES, json!({"metadata": {"name": name}}))).collect();
    for (name, value) in [("system-cluster-critical", 2_000_000_000), ("system-node-critical", 2_000_001_000)] {
        objects.push((ResourceId::PRIORITY_CLASSES, json!({"metadata": {"name": name}, "value": value})));
    }
    objects.push((
        ResourceId::SERVICE_CIDRS,
        json!({"metadata": {"name": "kubernetes"}, "spec": {"cidrs": ["10.100.0.0/16"]}}),
    ));
    objects
}

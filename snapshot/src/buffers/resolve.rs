//! Resolves a CapacityBuffer to a pod template and a replica count.

use super::required_only;
use crate::problems::Fault;
use crate::{Objects, requests, tolerate_extended_resources};
use k8s_openapi::Metadata;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplate, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_api::CapacityBuffer;
use plimsoll_api::capacity_buffer::{ACTIVE_CAPACITY, CapacityBufferSpec, ScalableRef};
use plimsoll_model::execution::BufferReady;
use plimsoll_model::resources::Resources;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum virtual pods per buffer. Every plan places all of them again; a thousand take a few milliseconds. Larger
/// buffers should use larger pods in the template or a static NodePool.
const MAX_PODS_PER_BUFFER: usize = 1_000;
/// Maximum virtual pods of all buffers, for the same reason. Namespaces share them fairly, so that one tenant cannot
/// use up the share of the others. Within a namespace, buffers are served in order of their names.
const MAX_TOTAL_PODS: usize = 5_000;

/// A buffer and its resolution.
#[derive(Debug, Clone)]
pub struct Buffer<'objects> {
    /// The object.
    pub object: &'objects CapacityBuffer,
    /// The reserved capacity, or the reason why the buffer reserves none.
    pub room: Result<BufferCapacity, Unresolved>,
}

/// Capacity for a number of pods.
#[derive(Debug, Clone, PartialEq)]
pub struct BufferCapacity {
    /// Field that refers to the template.
    pub field: &'static str,
    /// Name of the PodTemplate, if the buffer refers to one.
    pub pod_template: Option<String>,
    /// `metadata.generation` of the PodTemplate.
    pub generation: Option<i64>,
    /// Number of pods.
    pub replicas: usize,
    /// Reason why `replicas` is lower than requested, unless the buffer's own limits are the reason.
    pub bounded: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(crate) spec: PodSpec,
}

/// Error of a buffer that reserves no capacity.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// Condition reason of the buffer; `None` if its provisioning strategy belongs to another controller.
    pub reason: Option<BufferReady>,
    /// The invalid field.
    pub field: &'static str,
    /// Human-readable message.
    pub message: String,
}

const POD_TEMPLATE: &str = "spec.podTemplateRef";
const SCALABLE: &str = "spec.scalableRef";

/// Resolves all buffers that are not being deleted, ordered by namespace and name, within the maximum pod counts.
#[must_use]
pub fn resolve(objects: &Objects) -> Vec<Buffer<'_>> {
    let active = objects.capacity_buffers.iter().filter(|buffer| buffer.metadata.deletion_timestamp.is_none());
    let referenced = Referenced::new(objects, active.clone());
    let mut buffers: Vec<Buffer<'_>> =
        active.map(|object| Buffer { object, room: room(object, &referenced) }).collect();
    buffers.sort_by_key(|buffer| (&buffer.object.metadata.namespace, &buffer.object.metadata.name));
    let mut asked: BTreeMap<String, usize> = BTreeMap::new();
    for buffer in &mut buffers {
        if let Ok(room) = &mut buffer.room {
            bound(room, MAX_PODS_PER_BUFFER, "one CapacityBuffer keeps");
            *asked.entry(buffer.object.metadata.namespace.clone().unwrap_or_default()).or_default() += room.replicas;
        }
    }
    let mut remaining = shares(&asked, MAX_TOTAL_PODS);
    for buffer in &mut buffers {
        let namespace = buffer.object.metadata.namespace.as_deref().unwrap_or_default();
        if let (Ok(room), Some(remaining)) = (&mut buffer.room, remaining.get_mut(namespace)) {
            bound(room, *remaining, "its namespace's share of all CapacityBuffers leaves");
            *remaining -= room.replicas;
        }
    }
    buffers
}

/// The share of each namespace in `total` pods: equal shares, with unused shares distributed to the others.
fn shares(asked: &BTreeMap<String, usize>, total: usize) -> BTreeMap<&str, usize> {
    let mut by_need: Vec<(usize, &str)> = asked.iter().map(|(namespace, need)| (*need, namespace.as_str())).collect();
    by_need.sort_unstable();
    let (mut remaining, namespaces) = (total, by_need.len());
    let mut shares = BTreeMap::new();
    for (at, (need, namespace)) in by_need.into_iter().enumerate() {
        let share = need.min(remaining / (namespaces - at));
        remaining -= share;
        shares.insert(namespace, share);
    }
    shares
}

fn bound(room: &mut BufferCapacity, max: usize, who: &str) {
    if room.replicas > max {
        room.bounded = Some(format!("room for {} pods is asked for, {who} at most {max}", room.replicas));
        room.replicas = max;
    }
}

fn unresolved<T>(reason: BufferReady, field: &'static str, message: impl Into<String>) -> Result<T, Unresolved> {
    Err(Unresolved { reason: Some(reason), field, message: message.into() })
}

/// The object that a buffer refers to.
struct ReferencedTemplate<'objects> {
    field: &'static str,
    template: &'objects PodTemplateSpec,
    pod_template: Option<&'objects ObjectMeta>,
    /// Current number of replicas; `None` for a PodTemplate.
    current: Option<i32>,
}

/// Namespace and name.
type Key<'o> = (Option<&'o str>, &'o str);

/// The objects that buffers refer to. A cluster may have tens of thousands of workloads, so they are read once for all
/// buffers.
struct Referenced<'o> {
    pod_templates: BTreeMap<Key<'o>, &'o PodTemplate>,
    deployments: BTreeMap<Key<'o>, &'o Deployment>,
    stateful_sets: BTreeMap<Key<'o>, &'o StatefulSet>,
    replica_sets: BTreeMap<Key<'o>, &'o ReplicaSet>,
}

impl<'o> Referenced<'o> {
    fn new(objects: &'o Objects, buffers: impl Iterator<Item = &'o CapacityBuffer>) -> Self {
        let (mut templates, mut workloads) = (BTreeSet::new(), BTreeSet::new());
        for buffer in buffers {
            let (namespace, spec) = (buffer.metadata.namespace.as_deref(), &buffer.spec);
            templates.extend(spec.pod_template_ref.as_ref().map(|it| (namespace, it.name.as_str())));
            workloads.extend(spec.scalable_ref.as_ref().map(|it| (namespace, it.name.as_str())));
        }
        Self {
            pod_templates: named(&objects.pod_templates, &templates),
            deployments: named(&objects.deployments, &workloads),
            stateful_sets: named(&objects.stateful_sets, &workloads),
            replica_sets: named(&objects.replica_sets, &workloads),
        }
    }
}

/// The objects with one of the names; the first of several.
fn named<'o, T: Metadata<Ty = ObjectMeta>>(objects: &'o [T], names: &BTreeSet<Key<'o>>) -> BTreeMap<Key<'o>, &'o T> {
    let mut found = BTreeMap::new();
    for object in objects.iter().filter(|_| !names.is_empty()) {
        let metadata = object.metadata();
        let key = metadata.name.as_deref().map(|name| (metadata.namespace.as_deref(), name));
        if let Some(key) = key.filter(|key| names.contains(key)) {
            found.entry(key).or_insert(object);
        }
    }
    found
}

fn room(object: &CapacityBuffer, objects: &Referenced<'_>) -> Result<BufferCapacity, Unresolved> {
    let spec = &object.spec;
    if spec.strategy() != ACTIVE_CAPACITY {
        let message = format!("{:?} is not known, only {ACTIVE_CAPACITY:?} is: no room is kept", spec.strategy());
        return Err(Unresolved { reason: None, field: "spec.provisioningStrategy", message });
    }
    let namespace = object.metadata.namespace.as_deref();
    let referenced = match (&spec.pod_template_ref, &spec.scalable_ref) {
        (Some(template), None) => pod_template(objects, namespace, &template.name)?,
        (None, Some(scalable)) => scalable_ref(objects, namespace, scalable)?,
        (Some(_), Some(_)) => {
            return unresolved(
                BufferReady::ResolutionFailed,
                "spec",
                "podTemplateRef and scalableRef exclude each other",
            );
        }
        (None, None) => {
            return unresolved(
                BufferReady::ResolutionFailed,
                "spec",
                "there is neither podTemplateRef nor scalableRef",
            );
        }
    };
    let field = referenced.field;
    let Some(pod) = &referenced.template.spec else {
        return unresolved(BufferReady::ResolutionFailed, field, "its template has no pod");
    };
    let mut pod = required_only(pod);
    tolerate_extended_resources(&mut pod);
    let failed =
        |fault: Fault| Unresolved { reason: Some(BufferReady::ResolutionFailed), field, message: fault.to_string() };
    let requests = requests::effective_requests(&pod).map_err(|fault| failed(fault.below("template")))?;
    let replicas = replicas(spec, referenced.current, limit(spec, &requests)?)?;
    Ok(BufferCapacity {
        field,
        pod_template: referenced.pod_template.and_then(|metadata| metadata.name.clone()),
        generation: referenced.pod_template.and_then(|metadata| metadata.generation),
        replicas,
        bounded: None,
        labels: referenced.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default(),
        spec: pod,
    })
}

fn pod_template<'o>(
    objects: &Referenced<'o>,
    namespace: Option<&str>,
    name: &str,
) -> Result<ReferencedTemplate<'o>, Unresolved> {
    let Some(object) = objects.pod_templates.get(&(namespace, name)).copied() else {
        return unresolved(BufferReady::PodTemplateNotFound, POD_TEMPLATE, format!("there is no PodTemplate {name:?}"));
    };
    let Some(template) = &object.template else {
        let message = format!("PodTemplate {name:?} has no template");
        return unresolved(BufferReady::ResolutionFailed, POD_TEMPLATE, message);
    };
    Ok(ReferencedTemplate { field: POD_TEMPLATE, template, pod_template: Some(&object.metadata), current: None })
}

fn scalable_ref<'o>(
    objects: &Referenced<'o>,
    namespace: Option<&str>,
    scalable: &ScalableRef,
) -> Result<ReferencedTemplate<'o>, Unresolved> {
    let ScalableRef { api_group, kind, name } = scalable;
    let key = (namespace, name.as_str());
    let group = api_group.as_deref().filter(|group| !group.is_empty()).unwrap_or("apps");
    // Metadata (only for kinds whose template may be dropped because of an owner), template and replicas.
    type Scalable<'o> = (Option<&'o ObjectMeta>, Option<&'o PodTemplateSpec>, Option<i32>);
    let workload: Option<Scalable<'o>> = match (group, kind.as_str()) {
        ("apps", "Deployment") => objects.deployments.get(&key).copied().map(|object| {
            let spec = object.spec.as_ref();
            (None, spec.map(|spec| &spec.template), spec.and_then(|spec| spec.replicas))
        }),
        ("apps", "StatefulSet") => objects.stateful_sets.get(&key).copied().map(|object| {
            let spec = object.spec.as_ref();
            (None, spec.map(|spec| &spec.template), spec.and_then(|spec| spec.replicas))
        }),
        ("apps", "ReplicaSet") => objects.replica_sets.get(&key).copied().map(|object| {
            let spec = object.spec.as_ref();
            (Some(&object.metadata), spec.and_then(|spec| spec.template.as_ref()), spec.and_then(|spec| spec.replicas))
        }),
        _ => {
            let message =
                format!("{kind} of group {group:?} is none of Deployment, StatefulSet and ReplicaSet of apps");
            return unresolved(BufferReady::ResolutionFailed, SCALABLE, message);
        }
    };
    let Some((metadata, template, current)) = workload else {
        return unresolved(BufferReady::ScalableRefNotFound, SCALABLE, format!("there is no {kind} {name:?}"));
    };
    let Some(template) = template else {
        let owner = metadata.and_then(|metadata| metadata.owner_references.as_ref()?.first());
        let message = owner.map_or_else(
            || format!("{kind} {name:?} has no template"),
            |owner| format!("{kind} {name:?} belongs to {} {:?}: name that instead", owner.kind, owner.name),
        );
        return unresolved(BufferReady::ResolutionFailed, SCALABLE, message);
    };
    // Kubernetes defaults `replicas` to 1.
    Ok(ReferencedTemplate { field: SCALABLE, template, pod_template: None, current: Some(current.unwrap_or(1)) })
}

/// Number of pods that the limits allow; `None` if no limited resource is requested by the pod.
fn limit(spec: &CapacityBufferSpec, requests: &Resources) -> Result<Option<i64>, Unresolved> {
    let failed = |fault: Fault| Unresolved {
        reason: Some(BufferReady::ResolutionFailed),
        field: "spec.limits",
        message: fault.to_string(),
    };
    let limits = requests::amounts(spec.limits.as_ref(), "limits").map_err(failed)?;
    let limited = limits.iter().map(|(name, limit)| (limit, requests.get(name))).filter(|(_, request)| *request > 0);
    Ok(limited.map(|(limit, request)| limit / request).min())
}

/// Returns the larger of `replicas` and the percentage, capped by the limits. Without either, the limits alone decide.
/// As in Karpenter, the percentage does not count for a workload without replicas.
fn replicas(spec: &CapacityBufferSpec, current: Option<i32>, limit: Option<i64>) -> Result<usize, Unresolved> {
    let percentage = spec.percentage.zip(current);
    let share = percentage.filter(|(_, current)| *current > 0).map(|(percentage, current)| {
        let product = i64::from(percentage.max(0)) * i64::from(current);
        (product + 99) / 100
    });
    let requested = spec.replicas.map(|count| i64::from(count.max(0))).into_iter().chain(share).max();
    match (requested, limit) {
        (Some(requested), limit) => Ok(count(limit.map_or(requested, |limit| requested.min(limit)))),
        (None, Some(limit)) => Ok(count(limit)),
        (None, None) if percentage.is_some() => Ok(0),
        (None, None) => {
            let message =
                "there are neither replicas nor a percentage of a workload, and no limit on what the pod requests";
            unresolved(BufferReady::ResolutionFailed, "spec", message)
        }
    }
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

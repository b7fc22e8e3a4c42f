//! What a CapacityBuffer asks for: a pod, and how many of it.

use super::bare;
use crate::problems::Fault;
use crate::{Objects, requests};
use k8s_openapi::api::core::v1::{PodSpec, PodTemplateSpec};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_api::CapacityBuffer;
use plimsoll_api::capacity_buffer::{ACTIVE_CAPACITY, CapacityBufferSpec, ScalableRef};
use plimsoll_model::execution::BufferReady;
use plimsoll_model::resources::Resources;
use std::collections::BTreeMap;

/// Virtual pods of one buffer at most. Every plan places all of them anew, whatever it is for: a thousand take it some milliseconds. Who wants
/// more room than that wants larger pods in the template, or a static NodePool.
const MAX_PODS: usize = 1_000;
/// Virtual pods of all buffers at most, for the same reason. Buffers take their part by namespace and name.
const MAX_ALL: usize = 5_000;

/// A buffer and what it comes to.
#[derive(Debug, Clone)]
pub struct Buffer<'objects> {
    /// The object.
    pub object: &'objects CapacityBuffer,
    /// The room it keeps, or why it keeps none.
    pub room: Result<Room, Unresolved>,
}

/// Room for so many pods.
#[derive(Debug, Clone, PartialEq)]
pub struct Room {
    /// The field that names the template.
    pub field: &'static str,
    /// The PodTemplate, if there is one.
    pub pod_template: Option<String>,
    /// `metadata.generation` of the PodTemplate.
    pub generation: Option<i64>,
    /// How many.
    pub replicas: usize,
    /// Why they are fewer than were asked for, if it is not for the buffer's own limits.
    pub bounded: Option<String>,
    pub(super) labels: BTreeMap<String, String>,
    pub(super) spec: PodSpec,
}

/// Why a buffer keeps no room. Karpenter's words.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Reason {
    /// Its strategy is somebody else's.
    UnknownStrategy,
    /// There is no such PodTemplate.
    PodTemplateNotFound,
    /// There is no such workload.
    ScalableRefNotFound,
    /// It says too little, or what it names cannot be used.
    ResolutionFailed,
}

impl Reason {
    /// The word.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        self.known().map_or("UnknownStrategy", BufferReady::as_str)
    }

    /// What is told of it; nothing where the buffer is somebody else's.
    pub(super) fn known(self) -> Option<BufferReady> {
        match self {
            Self::UnknownStrategy => None,
            Self::PodTemplateNotFound => Some(BufferReady::PodTemplateNotFound),
            Self::ScalableRefNotFound => Some(BufferReady::ScalableRefNotFound),
            Self::ResolutionFailed => Some(BufferReady::ResolutionFailed),
        }
    }
}

/// A buffer that keeps no room.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Unresolved {
    /// What kind of cause.
    pub reason: Reason,
    /// The field.
    pub field: &'static str,
    /// What is wrong with it, for people.
    pub message: String,
}

const POD_TEMPLATE: &str = "spec.podTemplateRef";
const SCALABLE: &str = "spec.scalableRef";

/// All buffers that are not being deleted, by namespace and name, within the bounds.
#[must_use]
pub fn resolve(objects: &Objects) -> Vec<Buffer<'_>> {
    let staying = objects.capacity_buffers.iter().filter(|buffer| buffer.metadata.deletion_timestamp.is_none());
    let mut buffers: Vec<Buffer<'_>> = staying.map(|object| Buffer { object, room: room(object, objects) }).collect();
    buffers.sort_by_key(|buffer| (&buffer.object.metadata.namespace, &buffer.object.metadata.name));
    let mut left = MAX_ALL;
    for room in buffers.iter_mut().filter_map(|buffer| buffer.room.as_mut().ok()) {
        bound(room, MAX_PODS, "one CapacityBuffer keeps");
        bound(room, left, "all CapacityBuffers together keep");
        left -= room.replicas;
    }
    buffers
}

fn bound(room: &mut Room, most: usize, who: &str) {
    if room.replicas > most {
        room.bounded = Some(format!("room for {} pods is asked for, {who} at most {most}", room.replicas));
        room.replicas = most;
    }
}

fn unresolved<T>(reason: Reason, field: &'static str, message: impl Into<String>) -> Result<T, Unresolved> {
    Err(Unresolved { reason, field, message: message.into() })
}

/// What a reference leads to.
struct Found<'objects> {
    field: &'static str,
    template: &'objects PodTemplateSpec,
    pod_template: Option<&'objects ObjectMeta>,
    /// How many pods it has now; `None` if nobody counts.
    current: Option<i32>,
}

fn room(object: &CapacityBuffer, objects: &Objects) -> Result<Room, Unresolved> {
    let spec = &object.spec;
    if spec.strategy() != ACTIVE_CAPACITY {
        let message = format!("{:?} is not known, only {ACTIVE_CAPACITY:?} is: no room is kept", spec.strategy());
        return unresolved(Reason::UnknownStrategy, "spec.provisioningStrategy", message);
    }
    let namespace = object.metadata.namespace.as_deref();
    let found = match (&spec.pod_template_ref, &spec.scalable_ref) {
        (Some(template), None) => pod_template(objects, namespace, &template.name)?,
        (None, Some(scalable)) => scalable_ref(objects, namespace, scalable)?,
        (Some(_), Some(_)) => {
            return unresolved(Reason::ResolutionFailed, "spec", "podTemplateRef and scalableRef exclude each other");
        }
        (None, None) => {
            return unresolved(Reason::ResolutionFailed, "spec", "there is neither podTemplateRef nor scalableRef");
        }
    };
    let field = found.field;
    let Some(pod) = &found.template.spec else {
        return unresolved(Reason::ResolutionFailed, field, "its template has no pod");
    };
    let pod = bare(pod);
    let failed = |fault: Fault| Unresolved { reason: Reason::ResolutionFailed, field, message: fault.to_string() };
    let requests = requests::effective_requests(&pod).map_err(|fault| failed(fault.below("template")))?;
    let replicas = replicas(spec, found.current, limit(spec, &requests)?)?;
    Ok(Room {
        field,
        pod_template: found.pod_template.and_then(|metadata| metadata.name.clone()),
        generation: found.pod_template.and_then(|metadata| metadata.generation),
        replicas,
        bounded: None,
        labels: found.template.metadata.as_ref().and_then(|metadata| metadata.labels.clone()).unwrap_or_default(),
        spec: pod,
    })
}

fn is_named(metadata: &ObjectMeta, namespace: Option<&str>, name: &str) -> bool {
    metadata.namespace.as_deref() == namespace && metadata.name.as_deref() == Some(name)
}

fn pod_template<'o>(objects: &'o Objects, namespace: Option<&str>, name: &str) -> Result<Found<'o>, Unresolved> {
    let mut all = objects.pod_templates.iter();
    let Some(found) = all.find(|it| is_named(&it.metadata, namespace, name)) else {
        return unresolved(Reason::PodTemplateNotFound, POD_TEMPLATE, format!("there is no PodTemplate {name:?}"));
    };
    let Some(template) = &found.template else {
        let message = format!("PodTemplate {name:?} has no template");
        return unresolved(Reason::ResolutionFailed, POD_TEMPLATE, message);
    };
    Ok(Found { field: POD_TEMPLATE, template, pod_template: Some(&found.metadata), current: None })
}

fn scalable_ref<'o>(
    objects: &'o Objects,
    namespace: Option<&str>,
    scalable: &ScalableRef,
) -> Result<Found<'o>, Unresolved> {
    let ScalableRef { api_group, kind, name } = scalable;
    let is_it = |metadata: &ObjectMeta| is_named(metadata, namespace, name);
    let group = api_group.as_deref().filter(|group| !group.is_empty()).unwrap_or("apps");
    // Per kind: the owner that keeps a template to itself, the template, and how many pods there are.
    type Scalable<'o> = (Option<&'o ObjectMeta>, Option<&'o PodTemplateSpec>, Option<i32>);
    let found: Option<Scalable<'o>> = match (group, kind.as_str()) {
        ("apps", "Deployment") => objects.deployments.iter().find(|it| is_it(&it.metadata)).map(|it| {
            let spec = it.spec.as_ref();
            (None, spec.map(|spec| &spec.template), spec.and_then(|spec| spec.replicas))
        }),
        ("apps", "StatefulSet") => objects.stateful_sets.iter().find(|it| is_it(&it.metadata)).map(|it| {
            let spec = it.spec.as_ref();
            (None, spec.map(|spec| &spec.template), spec.and_then(|spec| spec.replicas))
        }),
        ("apps", "ReplicaSet") => objects.replica_sets.iter().find(|it| is_it(&it.metadata)).map(|it| {
            let spec = it.spec.as_ref();
            (Some(&it.metadata), spec.and_then(|spec| spec.template.as_ref()), spec.and_then(|spec| spec.replicas))
        }),
        _ => {
            let message =
                format!("{kind} of group {group:?} is none of Deployment, StatefulSet and ReplicaSet of apps");
            return unresolved(Reason::ResolutionFailed, SCALABLE, message);
        }
    };
    let Some((metadata, template, current)) = found else {
        return unresolved(Reason::ScalableRefNotFound, SCALABLE, format!("there is no {kind} {name:?}"));
    };
    let Some(template) = template else {
        let owner = metadata.and_then(|it| it.owner_references.as_ref()?.first());
        let message = owner.map_or_else(
            || format!("{kind} {name:?} has no template"),
            |owner| format!("{kind} {name:?} belongs to {} {:?}: name that instead", owner.kind, owner.name),
        );
        return unresolved(Reason::ResolutionFailed, SCALABLE, message);
    };
    // Kubernetes' default.
    Ok(Found { field: SCALABLE, template, pod_template: None, current: Some(current.unwrap_or(1)) })
}

/// How many pods the limits allow; `None` if they say nothing about what a pod requests.
fn limit(spec: &CapacityBufferSpec, requests: &Resources) -> Result<Option<i64>, Unresolved> {
    let failed = |fault: Fault| Unresolved {
        reason: Reason::ResolutionFailed,
        field: "spec.limits",
        message: fault.to_string(),
    };
    let limits = requests::amounts(spec.limits.as_ref(), "limits").map_err(failed)?;
    let asked = limits.iter().map(|(name, most)| (most, requests.get(name))).filter(|(_, request)| *request > 0);
    Ok(asked.map(|(most, request)| most / request).min())
}

/// The larger of number and share, and no more than the limits allow; with neither, all that they allow.
fn replicas(spec: &CapacityBufferSpec, current: Option<i32>, most: Option<i64>) -> Result<usize, Unresolved> {
    let share = spec.percentage.zip(current).map(|(percentage, current)| {
        let product = i64::from(percentage.max(0)) * i64::from(current.max(0));
        ((product + 99) / 100).max(1)
    });
    let asked = spec.replicas.map(|count| i64::from(count.max(0))).into_iter().chain(share).max();
    match (asked, most) {
        (Some(asked), most) => Ok(count(most.map_or(asked, |most| asked.min(most)))),
        (None, Some(most)) => Ok(count(most)),
        (None, None) => {
            let message =
                "there are neither replicas nor a percentage of a workload, and no limit on what the pod requests";
            unresolved(Reason::ResolutionFailed, "spec", message)
        }
    }
}

fn count(number: i64) -> usize {
    usize::try_from(number).unwrap_or(0)
}

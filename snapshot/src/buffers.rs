//! CapacityBuffers reserve capacity for pods that do not exist yet. Each buffer becomes virtual pods of the lowest
//! priority.

mod pod_nodes;
mod report;
mod resolve;

pub use report::reports;
pub(crate) use report::reports_of;
pub use resolve::{Buffer, BufferCapacity, Unresolved, resolve};

use crate::problems::Problem;
use crate::shapes::{NodeBinding, Shapes, Template};
use crate::{Extra, Objects, Source, kube_time, problems};
use k8s_openapi::api::core::v1::{Affinity, PodSpec};
use plimsoll_api::needs_claim;
use plimsoll_model::identity::PodUid;
use plimsoll_model::snapshot::{BufferPod, Node, Pod, PodState};
use pod_nodes::BufferPodNodes;

/// Lower than the priority of any existing pod.
const PRIORITY: i32 = i32::MIN;

/// Returns the virtual pods of `buffers`, which are those of `objects`.
pub(crate) fn pods(
    (objects, buffers): (&Objects, &[Buffer<'_>]),
    extra: &Extra,
    nodes: &[Node],
    shapes: &mut Shapes<'_>,
    problems: &mut Vec<Problem>,
) -> Vec<Pod> {
    if buffers.is_empty() {
        return Vec::new();
    }
    let pod_nodes = BufferPodNodes::new(objects, extra, nodes);
    let mut pods = Vec::new();
    for buffer in buffers {
        let metadata = &buffer.object.metadata;
        let problem = |field: &str, message: &str| Problem {
            kind: "CapacityBuffer".to_owned(),
            name: problems::full_name(metadata),
            field: field.to_owned(),
            message: message.to_owned(),
            left_out: true,
        };
        let room = match &buffer.room {
            Ok(room) => room,
            // Files may legitimately omit the objects that a buffer refers to.
            Err(unresolved) if extra.source == Source::Cluster => {
                problems.push(problem(unresolved.field, &unresolved.message));
                continue;
            }
            Err(_) => continue,
        };
        let namespace = metadata.namespace.as_deref().unwrap_or_default();
        let template = Template { namespace, name: "", labels: room.labels.clone(), spec: &room.spec, on_demand: None };
        let shape = match shapes.add(&template, NodeBinding::None) {
            Ok(shape) => shape,
            Err(fault) => {
                problems.push(problem(room.field, &format!("its template cannot be read: {fault}")));
                continue;
            }
        };
        let (name, uid) = (metadata.name.as_deref().unwrap_or_default(), uid(buffer));
        pods.extend((1..=room.replicas).map(|number| {
            let uid = PodUid(format!("{uid}-{number}"));
            Pod {
                buffer: Some(BufferPod { buffer: name.to_owned(), node: pod_nodes.of(&uid).cloned() }),
                uid,
                namespace: namespace.to_owned(),
                name: format!("capacity-buffer-{name}-{number}"),
                shape: shape.id.clone(),
                state: PodState::Pending,
                created: kube_time::created(metadata),
                stays_with_node: false,
                terminating: false,
                returns: false,
                do_not_disrupt_until: None,
                // A virtual pod is never evicted.
                eviction_cost_milli: 0,
                pod_disruption_budgets: Vec::new(),
            }
        }));
    }
    pods
}

/// UID of the buffer. A buffer from a file has none and gets a string that cannot collide with a pod's UID.
fn uid(buffer: &Buffer<'_>) -> String {
    let metadata = &buffer.object.metadata;
    metadata.uid.clone().unwrap_or_else(|| format!("CapacityBuffer/{}", problems::full_name(metadata)))
}

/// Drops volumes that would need a claim per pod, and all preferences. Virtual pods are placed again in every plan, so
/// preferences would cause a new purchase whenever a real pod takes the preferred capacity.
fn required_only(template: &PodSpec) -> PodSpec {
    let mut spec = template.clone();
    if let Some(volumes) = &mut spec.volumes {
        volumes.retain(|volume| !needs_claim(volume));
    }
    if let Some(spreads) = &mut spec.topology_spread_constraints {
        spreads.retain(|spread| spread.when_unsatisfiable != "ScheduleAnyway");
    }
    if let Some(Affinity { node_affinity, pod_affinity, pod_anti_affinity }) = &mut spec.affinity {
        node_affinity
            .iter_mut()
            .for_each(|affinity| affinity.preferred_during_scheduling_ignored_during_execution = None);
        pod_affinity
            .iter_mut()
            .for_each(|affinity| affinity.preferred_during_scheduling_ignored_during_execution = None);
        pod_anti_affinity
            .iter_mut()
            .for_each(|affinity| affinity.preferred_during_scheduling_ignored_during_execution = None);
    }
    (spec.priority, spec.priority_class_name, spec.node_name) = (Some(PRIORITY), None, None);
    spec
}

#[cfg(test)]
mod tests;

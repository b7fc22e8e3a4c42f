//! The status of a pod as the services keep it in memory.

use crate::condition::Status;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{
    ContainerStatus, PodCondition as KubeCondition, PodStatus as KubeStatus, ResourceRequirements,
};
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use std::collections::BTreeMap;

/// The condition that kube-scheduler sets.
const SCHEDULED: &str = "PodScheduled";
/// The condition that the kubelet sets when a pod can serve.
const READY: &str = "Ready";
/// The condition that the kubelet sets while it cannot resize a pod in place.
const RESIZE_PENDING: &str = "PodResizePending";
/// Its reason if the node can never grant the resize.
const INFEASIBLE: &str = "Infeasible";

/// What plans, explanations and metrics depend on in the status of a pod. A cluster has up to 100,000 pods, so the rest
/// of the status, which has 22 fields, is dropped when a pod is read.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct PodStatus {
    /// Phase; `None` if it is not set or unknown to this version.
    pub phase: Option<PodPhase>,
    /// Condition `PodScheduled`.
    pub scheduled: Option<Box<PodCondition>>,
    /// Condition `Ready`.
    pub ready: Option<Box<PodCondition>>,
    /// The node for which the pod has been nominated; `None` if it is empty.
    pub nominated_node_name: Option<String>,
    /// When the kubelet accepted the pod.
    pub start_time: Option<Timestamp>,
    /// What the kubelet has allocated to the pod and its containers.
    pub allocated: Box<[Allocation]>,
    /// Whether the kubelet has rejected a resize of the pod in place.
    pub resize_infeasible: bool,
}

/// Phase of a pod.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum PodPhase {
    /// Not all containers have started.
    Pending,
    /// A container runs, starts or restarts.
    Running,
    /// All containers have ended without error.
    Succeeded,
    /// All containers have ended, one of them with an error.
    Failed,
    /// The node cannot be reached.
    Unknown,
}

impl PodPhase {
    const ALL: [Self; 5] = [Self::Pending, Self::Running, Self::Succeeded, Self::Failed, Self::Unknown];

    /// Value in the object.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Pending => "Pending",
            Self::Running => "Running",
            Self::Succeeded => "Succeeded",
            Self::Failed => "Failed",
            Self::Unknown => "Unknown",
        }
    }

    fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|phase| phase.as_str() == text)
    }
}

/// A condition of a pod.
#[derive(Debug, Clone, PartialEq)]
pub struct PodCondition {
    /// Whether the condition holds.
    pub status: Status,
    /// Reason, such as `Unschedulable`.
    pub reason: Option<Box<str>>,
    /// Message.
    pub message: Option<Box<str>>,
    /// When `status` last changed.
    pub last_transition_time: Option<Timestamp>,
    /// When the condition was last checked.
    pub last_probe_time: Option<Timestamp>,
}

/// Resources that the kubelet has allocated to a container or to the whole pod, or that it has.
#[derive(Debug, Clone, PartialEq)]
pub struct Allocation {
    /// Name of the container; empty for the whole pod.
    pub container: String,
    /// Amounts by resource.
    pub amounts: BTreeMap<String, Quantity>,
}

impl PodStatus {
    /// When the pod was bound to its node, in whole seconds.
    #[must_use]
    pub fn bound_since(&self) -> Option<Timestamp> {
        self.scheduled.as_ref()?.true_since()
    }

    /// Whether the pod has a condition `Ready` that does not hold. Pods in files usually have no conditions.
    #[must_use]
    pub fn is_unready(&self) -> bool {
        self.ready.as_ref().is_some_and(|condition| condition.status != Status::True)
    }

    /// kube-scheduler's verdict, if it has found no node for the pod.
    #[must_use]
    pub fn unschedulable(&self) -> Option<&PodCondition> {
        let is_refusal = |condition: &&PodCondition| {
            condition.status == Status::False && condition.reason.as_deref() == Some("Unschedulable")
        };
        self.scheduled.as_deref().filter(is_refusal)
    }
}

impl PodCondition {
    /// When the condition became true. `None` if it is not true, or if the time is not known.
    #[must_use]
    pub fn true_since(&self) -> Option<Timestamp> {
        self.last_transition_time.filter(|_| self.status == Status::True)
    }
}

impl From<KubeStatus> for PodStatus {
    fn from(status: KubeStatus) -> Self {
        let conditions = status.conditions.unwrap_or_default();
        let condition =
            |name| conditions.iter().find(|condition| condition.type_ == name).map(|it| Box::new(it.into()));
        let (scheduled, ready) = (condition(SCHEDULED), condition(READY));
        let resize = conditions.iter().find(|condition| condition.type_ == RESIZE_PENDING);
        let of_pod = allocations(String::new(), status.allocated_resources, status.resources);
        let containers = status.container_statuses.into_iter().chain(status.init_container_statuses).flatten();
        let of_containers = containers.flat_map(|it| allocations(it.name, it.allocated_resources, it.resources));
        Self {
            phase: status.phase.as_deref().and_then(PodPhase::parse),
            scheduled,
            ready,
            nominated_node_name: status.nominated_node_name.filter(|name| !name.is_empty()),
            start_time: status.start_time.map(|time| time.0),
            allocated: of_pod.chain(of_containers).collect(),
            resize_infeasible: resize.is_some_and(|condition| condition.reason.as_deref() == Some(INFEASIBLE)),
        }
    }
}

/// What the kubelet has allocated to a container or to the whole pod for a resize, and what it has now.
fn allocations(
    container: String,
    allocated: Option<BTreeMap<String, Quantity>>,
    current: Option<ResourceRequirements>,
) -> impl Iterator<Item = Allocation> {
    let amounts = allocated.into_iter().chain(current.and_then(|resources| resources.requests));
    amounts.map(move |amounts| Allocation { container: container.clone(), amounts })
}

impl From<&KubeCondition> for PodCondition {
    fn from(condition: &KubeCondition) -> Self {
        let text = |text: &Option<String>| text.as_deref().filter(|text| !text.is_empty()).map(Box::from);
        Self {
            status: match condition.status.as_str() {
                "True" => Status::True,
                "False" => Status::False,
                _ => Status::Unknown,
            },
            reason: text(&condition.reason),
            message: text(&condition.message),
            last_transition_time: condition.last_transition_time.as_ref().map(|time| time.0),
            last_probe_time: condition.last_probe_time.as_ref().map(|time| time.0),
        }
    }
}

impl From<PodStatus> for KubeStatus {
    fn from(status: PodStatus) -> Self {
        let condition = |name: &str, condition: Option<Box<PodCondition>>| condition.map(|it| it.named(name));
        let resize = status.resize_infeasible.then(|| KubeCondition {
            type_: RESIZE_PENDING.to_owned(),
            status: Status::True.as_str().to_owned(),
            reason: Some(INFEASIBLE.to_owned()),
            ..KubeCondition::default()
        });
        let conditions = [condition(SCHEDULED, status.scheduled), condition(READY, status.ready), resize];
        let conditions: Vec<KubeCondition> = conditions.into_iter().flatten().collect();
        let (of_pod, of_containers): (Vec<Allocation>, Vec<Allocation>) =
            status.allocated.into_vec().into_iter().partition(|it| it.container.is_empty());
        let mut of_pod = of_pod.into_iter().map(|it| it.amounts);
        let containers: Vec<ContainerStatus> = of_containers.into_iter().map(Allocation::container_status).collect();
        Self {
            phase: status.phase.map(|phase| phase.as_str().to_owned()),
            conditions: Some(conditions).filter(|conditions| !conditions.is_empty()),
            nominated_node_name: status.nominated_node_name,
            start_time: status.start_time.map(Time),
            container_statuses: Some(containers).filter(|containers| !containers.is_empty()),
            allocated_resources: of_pod.next(),
            resources: of_pod.next().map(requests),
            ..Self::default()
        }
    }
}

impl PodCondition {
    fn named(self, name: &str) -> KubeCondition {
        KubeCondition {
            type_: name.to_owned(),
            status: self.status.as_str().to_owned(),
            reason: self.reason.map(String::from),
            message: self.message.map(String::from),
            last_transition_time: self.last_transition_time.map(Time),
            last_probe_time: self.last_probe_time.map(Time),
            observed_generation: None,
        }
    }
}

impl Allocation {
    fn container_status(self) -> ContainerStatus {
        ContainerStatus { name: self.container, resources: Some(requests(self.amounts)), ..ContainerStatus::default() }
    }
}

fn requests(amounts: BTreeMap<String, Quantity>) -> ResourceRequirements {
    ResourceRequirements { requests: Some(amounts), ..ResourceRequirements::default() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Pod;
    use serde_json::{Value, json};

    fn status(status: &Value) -> PodStatus {
        serde_json::from_value::<Pod>(json!({"metadata": {"name": "p"}, "status": status})).unwrap().status
    }

    #[test]
    fn only_the_conditions_of_the_scheduler_and_of_the_kubelet_are_kept() {
        let conditions = json!([
            {"type": "Initialized", "status": "True"},
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z", "message": ""},
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "app"},
        ]);
        let read = status(&json!({"phase": "Running", "hostIP": "10.0.0.1", "conditions": conditions}));
        assert_eq!(read.phase, Some(PodPhase::Running));
        assert_eq!(read.bound_since(), "2026-01-01T00:00:05Z".parse().ok());
        let ready = read.ready.as_ref().unwrap();
        assert_eq!((ready.status, ready.reason.as_deref()), (Status::False, Some("ContainersNotReady")));
        let kept = json!({"phase": "Running", "conditions": [
            {"type": "PodScheduled", "status": "True", "lastTransitionTime": "2026-01-01T00:00:05Z"},
            {"type": "Ready", "status": "False", "reason": "ContainersNotReady", "message": "app"},
        ]});
        assert_eq!(serde_json::to_value(KubeStatus::from(read)).unwrap(), kept);
    }

    #[test]
    fn a_pod_is_unschedulable_only_by_the_verdict_of_the_scheduler() {
        let scheduled = |holds: &str, reason: &str| {
            status(&json!({"conditions": [{"type": "PodScheduled", "status": holds, "reason": reason}]}))
        };
        assert!(scheduled("False", "Unschedulable").unschedulable().is_some());
        assert!(scheduled("False", "SchedulingGated").unschedulable().is_none());
        assert!(scheduled("True", "Unschedulable").unschedulable().is_none());
        assert!(PodStatus::default().unschedulable().is_none());
    }

    #[test]
    fn an_infeasible_resize_is_kept_and_a_deferred_one_is_not() {
        let pending = |reason: &str| {
            let condition = json!({"type": "PodResizePending", "status": "True", "reason": reason});
            status(&json!({"conditions": [condition]}))
        };
        let infeasible = pending("Infeasible");
        assert!(infeasible.resize_infeasible && PodStatus::from(KubeStatus::from(infeasible.clone())) == infeasible);
        assert_eq!(pending("Deferred"), PodStatus::default());
    }

    #[test]
    fn allocations_of_the_pod_and_of_all_containers_are_kept() {
        let container = |name: &str, allocated: &str, actual: &str| {
            json!({"name": name, "image": "i", "imageID": "i", "ready": true, "restartCount": 3,
                "allocatedResources": {"cpu": allocated}, "resources": {"requests": {"cpu": actual}}})
        };
        let read = status(&json!({"containerStatuses": [container("app", "2", "1")],
            "initContainerStatuses": [container("proxy", "4", "3")],
            "allocatedResources": {"cpu": "6"}, "resources": {"requests": {"cpu": "5"}}}));
        assert_eq!(PodStatus::from(KubeStatus::from(read.clone())), read);
        let kept: Vec<(&str, &str)> =
            read.allocated.iter().map(|it| (it.container.as_str(), it.amounts["cpu"].0.as_str())).collect();
        assert_eq!(kept, [("", "6"), ("", "5"), ("app", "2"), ("app", "1"), ("proxy", "4"), ("proxy", "3")]);
    }
}

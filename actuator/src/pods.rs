//! Predicates on pods that matter when a node is removed. Pure functions.

use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint as KubeTaint, Toleration as KubeToleration};
use plimsoll_api::Pod;
use plimsoll_api::duration::parse_go;
use plimsoll_model::names::{annotation, taint};
use plimsoll_model::taints::{Taint, TaintEffect, Toleration, TolerationOperator};

/// Field manager of our nominations. In `metadata.managedFields` it distinguishes them from kube-scheduler's own.
pub(crate) const NOMINATION_FIELD_MANAGER: &str = "plimsoll-nomination";

/// Annotation of static (mirror) pods.
const MIRROR: &str = "kubernetes.io/config.mirror";
/// Priority classes of critical pods.
const CRITICAL: [&str; 2] = ["system-cluster-critical", "system-node-critical"];
/// A pod that still exists this long after its grace period ended has an unresponsive kubelet.
const STUCK_AFTER: SignedDuration = SignedDuration::from_mins(1);

/// When the pod was bound to its node, in whole seconds.
pub(crate) fn bound_since(pod: &Pod) -> Option<Timestamp> {
    let conditions = pod.status.as_ref()?.conditions.as_ref()?;
    let scheduled =
        conditions.iter().find(|condition| condition.type_ == "PodScheduled" && condition.status == "True")?;
    scheduled.last_transition_time.as_ref().map(|time| time.0)
}

/// `namespace/name`.
pub(crate) fn full_name(pod: &Pod) -> String {
    let metadata = &pod.metadata;
    format!("{}/{}", metadata.namespace.as_deref().unwrap_or_default(), metadata.name.as_deref().unwrap_or_default())
}

pub(crate) fn uid(pod: &Pod) -> String {
    pod.metadata.uid.clone().unwrap_or_default()
}

/// Whether the pod has succeeded or failed.
pub(crate) fn is_terminal(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Whether the pod is being deleted.
pub(crate) fn is_terminating(pod: &Pod) -> bool {
    pod.metadata.deletion_timestamp.is_some()
}

fn owned_by(pod: &Pod, kind: &str) -> bool {
    pod.metadata.owner_references.iter().flatten().any(|owner| owner.kind == kind)
}

/// Whether the pod is a static pod, which goes away with the node and cannot be evicted.
pub(crate) fn is_static(pod: &Pod) -> bool {
    let annotations = pod.metadata.annotations.as_ref();
    annotations.is_some_and(|annotations| annotations.contains_key(MIRROR)) || owned_by(pod, "Node")
}

/// Whether a DaemonSet owns the pod.
pub(crate) fn is_daemon(pod: &Pod) -> bool {
    owned_by(pod, "DaemonSet")
}

/// Whether the pod has a system-critical priority class.
pub(crate) fn is_critical(pod: &Pod) -> bool {
    let class = pod.spec.as_ref().and_then(|spec| spec.priority_class_name.as_deref());
    class.is_some_and(|class| CRITICAL.contains(&class))
}

/// Whether the pod's grace period ended long ago.
pub(crate) fn is_stuck(pod: &Pod, now: Timestamp) -> bool {
    let Some(deleted) = &pod.metadata.deletion_timestamp else { return false };
    now.duration_since(deleted.0) > STUCK_AFTER
}

/// Whether the pod tolerates the disruption taint and stays on the node.
pub(crate) fn tolerates_disruption(pod: &Pod) -> bool {
    let disrupted = Taint { key: taint::DISRUPTED.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule };
    tolerates_taint(pod, &disrupted)
}

/// Whether the pod tolerates a taint of a Node. An unknown effect, which the API server would reject, is not tolerated.
pub(crate) fn tolerates(pod: &Pod, taint: &KubeTaint) -> bool {
    let Some(effect) = TaintEffect::parse(&taint.effect) else { return false };
    let (key, value) = (taint.key.clone(), taint.value.clone().unwrap_or_default());
    tolerates_taint(pod, &Taint { key, value, effect })
}

fn tolerates_taint(pod: &Pod, taint: &Taint) -> bool {
    let tolerations = pod.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
    tolerations.iter().any(|toleration| toleration_of(toleration).is_some_and(|it| it.tolerates(taint)))
}

/// `None` for a toleration that the API server would reject.
fn toleration_of(toleration: &KubeToleration) -> Option<Toleration> {
    let operator = match toleration.operator.as_deref() {
        None | Some("" | "Equal") => TolerationOperator::Equal,
        Some("Exists") => TolerationOperator::Exists,
        Some(_) => return None,
    };
    let effect = match toleration.effect.as_deref() {
        None | Some("") => None,
        Some(effect) => Some(TaintEffect::parse(effect)?),
    };
    let key = toleration.key.clone().unwrap_or_default();
    Some(Toleration { key, operator, value: toleration.value.clone().unwrap_or_default(), effect })
}

/// Until when the pod must not be disrupted: for ever with the value `true`, or for a duration since the pod's start.
pub(crate) fn protected_until(pod: &Pod) -> Option<Timestamp> {
    let value = pod.metadata.annotations.as_ref()?.get(annotation::DO_NOT_DISRUPT)?;
    if value == "true" {
        return Some(Timestamp::MAX);
    }
    let duration = parse_go(value).ok().filter(|duration| !duration.is_zero())?;
    let Some(started) = pod.status.as_ref().and_then(|status| status.start_time.as_ref()) else {
        return Some(Timestamp::MAX);
    };
    let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
    Some(started.0.saturating_add(duration).unwrap_or(Timestamp::MAX))
}

/// The value of the pod's do-not-disrupt annotation, if it is neither `true` nor a positive duration and thus protects
/// nothing.
pub(crate) fn invalid_protection(pod: &Pod) -> Option<&str> {
    let value = pod.metadata.annotations.as_ref()?.get(annotation::DO_NOT_DISRUPT)?;
    protected_until(pod).is_none().then_some(value)
}

/// Whether the pod must not be disrupted now.
pub(crate) fn is_protected(pod: &Pod, now: Timestamp) -> bool {
    !is_terminal(pod) && !is_terminating(pod) && protected_until(pod).is_some_and(|until| until > now)
}

/// Whether the pod must be rescheduled when its node is removed.
pub(crate) fn is_reschedulable(pod: &Pod) -> bool {
    !is_terminal(pod) && !is_terminating(pod) && !is_static(pod) && !is_daemon(pod)
}

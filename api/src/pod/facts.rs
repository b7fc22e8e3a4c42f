//! What a pod says about its own life and about the removal of its node. All crates ask here, so that they agree.

use crate::duration::parse_go;
use crate::{Pod, PodPhase};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Taint as KubeTaint, Toleration as KubeToleration};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use plimsoll_model::names::{annotation, taint};
use plimsoll_model::taints::{Taint, TaintEffect, Toleration, TolerationOperator};
use std::sync::LazyLock;

/// The taint of a node that is being removed.
static DISRUPTED: LazyLock<Taint> =
    LazyLock::new(|| Taint { key: taint::DISRUPTED.to_owned(), value: String::new(), effect: TaintEffect::NoSchedule });

impl Pod {
    /// Whether the pod has succeeded or failed, and uses no resources any more.
    #[must_use]
    pub fn is_terminal(&self) -> bool {
        matches!(self.status.phase, Some(PodPhase::Succeeded | PodPhase::Failed))
    }

    /// Whether the pod is being deleted.
    #[must_use]
    pub fn is_terminating(&self) -> bool {
        self.metadata.deletion_timestamp.is_some()
    }

    /// Whether the pod comes from a file on its node. Such a pod cannot be evicted.
    #[must_use]
    pub fn is_static(&self) -> bool {
        let annotations = self.metadata.annotations.as_ref();
        annotations.is_some_and(|annotations| annotations.contains_key(annotation::MIRROR)) || self.is_owned_by("Node")
    }

    /// Whether a DaemonSet owns the pod.
    #[must_use]
    pub fn is_daemon(&self) -> bool {
        self.is_owned_by("DaemonSet")
    }

    /// Whether a StatefulSet owns the pod. It creates the pod again under the same name once the pod is gone.
    #[must_use]
    pub fn returns(&self) -> bool {
        let is_stateful_set =
            |owner: &OwnerReference| owner.kind == "StatefulSet" && owner.api_version.starts_with("apps/");
        self.owners.iter().any(is_stateful_set)
    }

    fn is_owned_by(&self, kind: &str) -> bool {
        self.owners.iter().any(|owner| owner.kind == kind)
    }

    /// Whether draining a node evicts the pod: a static pod stays, and so does a pod that tolerates the taint of nodes
    /// that are being removed.
    #[must_use]
    pub fn is_drained(&self) -> bool {
        !self.is_static() && !self.tolerates_taint(&DISRUPTED)
    }

    /// Whether the pod tolerates a taint of a Node. An unknown effect, which the API server would reject, is not
    /// tolerated.
    #[must_use]
    pub fn tolerates(&self, taint: &KubeTaint) -> bool {
        let Some(effect) = TaintEffect::parse(&taint.effect) else { return false };
        let (key, value) = (taint.key.clone(), taint.value.clone().unwrap_or_default());
        self.tolerates_taint(&Taint { key, value, effect })
    }

    fn tolerates_taint(&self, taint: &Taint) -> bool {
        let tolerations = self.spec.as_ref().and_then(|spec| spec.tolerations.as_deref()).unwrap_or_default();
        tolerations.iter().any(|toleration| toleration_of(toleration).is_some_and(|it| it.tolerates(taint)))
    }

    /// Until when an annotation protects the pod. `None` without such an annotation.
    #[must_use]
    pub fn protected_until(&self) -> Option<Timestamp> {
        self.protection().map(|(until, _)| until)
    }

    /// Until when an annotation protects the pod, and its key. With two such annotations, the one that protects longer.
    #[must_use]
    pub fn protection(&self) -> Option<(Timestamp, &'static str)> {
        let not_safe = self.is_not_safe_to_evict().then_some((Timestamp::MAX, annotation::SAFE_TO_EVICT));
        not_safe.into_iter().chain(self.do_not_disrupt()).max_by_key(|(until, _)| *until)
    }

    /// Until when `karpenter.sh/do-not-disrupt` protects the pod, and that key.
    #[must_use]
    pub fn do_not_disrupt(&self) -> Option<(Timestamp, &'static str)> {
        self.do_not_disrupt_until().map(|until| (until, annotation::DO_NOT_DISRUPT))
    }

    /// Whether Cluster Autoscaler would keep the node because of the pod's annotation, until the pod is deleted or,
    /// with `on-completion`, has ended. It ignores the annotation on static pods and pods of DaemonSets.
    fn is_not_safe_to_evict(&self) -> bool {
        let value = self.metadata.annotations.as_ref().and_then(|all| all.get(annotation::SAFE_TO_EVICT));
        matches!(value.map(String::as_str), Some("false" | "on-completion")) && !self.is_daemon() && !self.is_static()
    }

    /// Until when `karpenter.sh/do-not-disrupt` protects the pod: for ever with the value `true`, or for a duration
    /// since the pod's start. `None` without the annotation, or with another value.
    fn do_not_disrupt_until(&self) -> Option<Timestamp> {
        let value = self.metadata.annotations.as_ref()?.get(annotation::DO_NOT_DISRUPT)?;
        if value == "true" {
            return Some(Timestamp::MAX);
        }
        let duration = parse_go(value).ok().filter(|duration| !duration.is_zero())?;
        let Some(started) = self.status.start_time else { return Some(Timestamp::MAX) };
        let duration = SignedDuration::try_from(duration).unwrap_or(SignedDuration::MAX);
        Some(started.saturating_add(duration).unwrap_or(Timestamp::MAX))
    }

    /// The value of `karpenter.sh/do-not-disrupt` if it is neither `true` nor a positive duration, and so protects
    /// nothing. `false` is not reported, since it is how users say that they want no protection.
    #[must_use]
    pub fn invalid_protection(&self) -> Option<&str> {
        let value = self.metadata.annotations.as_ref()?.get(annotation::DO_NOT_DISRUPT)?;
        (value != "false" && self.do_not_disrupt_until().is_none()).then_some(value)
    }
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

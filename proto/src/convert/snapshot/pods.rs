//! Conversion of pods, DaemonSets and PodDisruptionBudgets.

use crate::convert::{
    ConvertError, ConvertResult, WireEnum as _, enum_value, key, no_errors, not_negative, optional, optional_key,
};
use crate::snapshot::v1 as wire;
use plimsoll_model::identity::{NodeName, PodUid, ShapeId};
use plimsoll_model::snapshot::{
    BufferPod, DaemonSet, IgnoredPod, Pod, PodDisruptionBudget, PodState, ReservationCount, UnavailableOffering,
};
use plimsoll_model::time::{Millis, Timestamp};

impl From<&Pod> for wire::Pod {
    fn from(pod: &Pod) -> Self {
        Self {
            uid: pod.uid.0.clone(),
            namespace: pod.namespace.clone(),
            name: pod.name.clone(),
            shape: pod.shape.0.clone(),
            state: Some(match &pod.state {
                PodState::Pending => wire::pod::State::Pending(wire::PodPending {}),
                PodState::Reserved(node) => wire::pod::State::ReservedOn(node.0.clone()),
                PodState::Bound(node) => wire::pod::State::BoundTo(node.0.clone()),
            }),
            created_unix_ms: pod.created.0,
            stays_with_node: pod.stays_with_node,
            terminating: pod.terminating,
            returns: pod.returns,
            do_not_disrupt_until_unix_ms: pod.do_not_disrupt_until.map(|time| time.0),
            eviction_cost_milli: pod.eviction_cost_milli,
            pod_disruption_budgets: pod.pod_disruption_budgets.clone(),
            buffer: pod.buffer.as_ref().map(Into::into),
        }
    }
}

impl TryFrom<wire::Pod> for Pod {
    type Error = ConvertError;
    fn try_from(pod: wire::Pod) -> ConvertResult<Self> {
        let buffer: Option<BufferPod> = optional("buffer", pod.buffer)?;
        if buffer.is_some() && !matches!(pod.state, Some(wire::pod::State::Pending(_))) {
            return Err(ConvertError::new("buffer", "is set for a pod that is not pending"));
        }
        let (uid, shape) = (key("uid", pod.uid), key("shape", pod.shape));
        let state = match pod.state {
            Some(wire::pod::State::Pending(wire::PodPending {})) => Ok(PodState::Pending),
            Some(wire::pod::State::ReservedOn(node)) => key("reserved_on", node).map(NodeName).map(PodState::Reserved),
            Some(wire::pod::State::BoundTo(node)) => key("bound_to", node).map(NodeName).map(PodState::Bound),
            None => Err(ConvertError::new("state", "is not set")),
        };
        no_errors([uid.as_ref().err(), shape.as_ref().err(), state.as_ref().err()])?;
        Ok(Self {
            uid: PodUid(uid?),
            namespace: pod.namespace,
            name: pod.name,
            shape: ShapeId(shape?),
            state: state?,
            created: Timestamp(pod.created_unix_ms),
            stays_with_node: pod.stays_with_node,
            terminating: pod.terminating,
            returns: pod.returns,
            do_not_disrupt_until: pod.do_not_disrupt_until_unix_ms.map(Timestamp),
            eviction_cost_milli: pod.eviction_cost_milli,
            pod_disruption_budgets: pod.pod_disruption_budgets,
            buffer,
        })
    }
}

/// Whether the pod would be accepted by the conversion from the wire.
pub(super) fn is_convertible(pod: &Pod) -> bool {
    let has_keys = !pod.uid.0.is_empty() && !pod.shape.0.is_empty();
    let buffer_is_named =
        |buffer: &BufferPod| !buffer.buffer.is_empty() && buffer.node.as_ref().is_none_or(|node| !node.0.is_empty());
    has_keys
        && match &pod.state {
            PodState::Pending => pod.buffer.as_ref().is_none_or(buffer_is_named),
            PodState::Reserved(node) | PodState::Bound(node) => !node.0.is_empty() && pod.buffer.is_none(),
        }
}

impl From<&BufferPod> for wire::BufferPod {
    fn from(pod: &BufferPod) -> Self {
        Self { buffer: pod.buffer.clone(), node: pod.node.as_ref().map(|node| node.0.clone()) }
    }
}

impl TryFrom<wire::BufferPod> for BufferPod {
    type Error = ConvertError;
    fn try_from(pod: wire::BufferPod) -> ConvertResult<Self> {
        Ok(Self { buffer: key("buffer", pod.buffer)?, node: optional_key("node", pod.node)?.map(NodeName) })
    }
}

impl From<&DaemonSet> for wire::DaemonSet {
    fn from(daemon_set: &DaemonSet) -> Self {
        Self {
            uid: daemon_set.uid.clone(),
            namespace: daemon_set.namespace.clone(),
            name: daemon_set.name.clone(),
            shape: daemon_set.shape.0.clone(),
        }
    }
}

impl TryFrom<wire::DaemonSet> for DaemonSet {
    type Error = ConvertError;
    fn try_from(daemon_set: wire::DaemonSet) -> ConvertResult<Self> {
        Ok(Self {
            uid: key("uid", daemon_set.uid)?,
            namespace: daemon_set.namespace,
            name: daemon_set.name,
            shape: ShapeId(key("shape", daemon_set.shape)?),
        })
    }
}

impl From<&PodDisruptionBudget> for wire::PodDisruptionBudget {
    fn from(budget: &PodDisruptionBudget) -> Self {
        Self {
            name: budget.name.clone(),
            disruptions_allowed: budget.disruptions_allowed,
            fully_blocking: budget.fully_blocking,
        }
    }
}

impl TryFrom<wire::PodDisruptionBudget> for PodDisruptionBudget {
    type Error = ConvertError;
    fn try_from(budget: wire::PodDisruptionBudget) -> ConvertResult<Self> {
        Ok(Self {
            name: key("name", budget.name)?,
            disruptions_allowed: not_negative("disruptions_allowed", budget.disruptions_allowed)?,
            fully_blocking: budget.fully_blocking,
        })
    }
}

impl From<&UnavailableOffering> for wire::UnavailableOffering {
    fn from(offering: &UnavailableOffering) -> Self {
        Self {
            instance_type: offering.instance_type.clone(),
            zone: offering.zone.clone(),
            capacity_type: offering.capacity_type.to_wire(),
            remaining_ms: offering.remaining.0,
        }
    }
}

impl TryFrom<wire::UnavailableOffering> for UnavailableOffering {
    type Error = ConvertError;
    fn try_from(offering: wire::UnavailableOffering) -> ConvertResult<Self> {
        Ok(Self {
            instance_type: optional_key("instance_type", offering.instance_type)?,
            zone: optional_key("zone", offering.zone)?,
            capacity_type: enum_value("capacity_type", offering.capacity_type)?,
            remaining: Millis(offering.remaining_ms),
        })
    }
}

impl From<&ReservationCount> for wire::ReservationCount {
    fn from(count: &ReservationCount) -> Self {
        Self { id: count.id.clone(), free: count.free }
    }
}

impl TryFrom<wire::ReservationCount> for ReservationCount {
    type Error = ConvertError;
    fn try_from(count: wire::ReservationCount) -> ConvertResult<Self> {
        Ok(Self { id: key("id", count.id)?, free: count.free })
    }
}

impl From<&IgnoredPod> for wire::IgnoredPod {
    fn from(pod: &IgnoredPod) -> Self {
        Self { uid: pod.uid.0.clone(), pod: pod.pod.clone(), reason: pod.reason.clone() }
    }
}

impl TryFrom<wire::IgnoredPod> for IgnoredPod {
    type Error = ConvertError;
    fn try_from(pod: wire::IgnoredPod) -> ConvertResult<Self> {
        Ok(Self { uid: PodUid(key("uid", pod.uid)?), pod: pod.pod, reason: pod.reason })
    }
}

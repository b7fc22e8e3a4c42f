//! The write that is due for one pod. Pure functions.

use crate::pods;
use crate::pods::NOMINATION_FIELD_MANAGER;
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::Pod;
use plimsoll_model::identity::PodUid;
use plimsoll_snapshot::nominations::{self, NominationRequest};
use std::collections::BTreeMap;
use std::sync::Arc;

/// A write. Withdrawals are ordered before nominations.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// Withdraw a nomination of ours.
    TakeBack,
    /// Nominate this node.
    Nominate(String),
}

impl Step {
    /// The node to nominate.
    pub(super) fn node(&self) -> Option<&str> {
        match self {
            Self::TakeBack => None,
            Self::Nominate(node) => Some(node),
        }
    }
}

/// Whether the pod still waits for a node.
pub(super) fn is_waiting(pod: &Pod) -> bool {
    pod.node_name.is_none() && pods::is_reschedulable(pod)
}

/// The write that is due for a waiting pod, if any. Nominations by others are kept, whatever the plan says.
pub(super) fn of(pod: &Pod, wanted: Option<&str>) -> Option<Step> {
    match (pod.nominated_node(), wanted) {
        (None, Some(wanted)) => Some(Step::Nominate(wanted.to_owned())),
        (Some(present), wanted) if wanted != Some(present) && is_ours(pod) => {
            Some(wanted.map_or(Step::TakeBack, |wanted| Step::Nominate(wanted.to_owned())))
        }
        _ => None,
    }
}

/// Filters `wanted` so that no two pods exclude each other through their constraints: such pods are nominated one after
/// another, as the earlier ones are bound. Existing nominations take precedence, so that none is withdrawn for a later
/// pod.
pub(super) fn without_conflicts(
    waiting: &BTreeMap<PodUid, Arc<Pod>>,
    wanted: &BTreeMap<PodUid, String>,
    nodes: &[Arc<Node>],
) -> BTreeMap<PodUid, String> {
    let requests: Vec<(&PodUid, NominationRequest<'_>)> = wanted
        .iter()
        .filter_map(|(uid, node)| {
            let pod = waiting.get(uid)?;
            Some((uid, NominationRequest { pod, node, is_current: pod.nominated_node() == Some(node) }))
        })
        .collect();
    let plain: Vec<NominationRequest<'_>> = requests.iter().map(|(_, request)| *request).collect();
    let may = nominations::admissible(&plain, nodes.iter().map(|node| &**node));
    let admitted = requests.iter().zip(may).filter(|(_, may)| *may);
    admitted.map(|((uid, request), _)| ((*uid).clone(), request.node.to_owned())).collect()
}

/// Whether `managedFields` shows us as the owner: whoever changes the field owns it from then on.
fn is_ours(pod: &Pod) -> bool {
    pod.metadata.managed_fields.iter().flatten().any(|entry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:status"));
        entry.manager.as_deref() == Some(NOMINATION_FIELD_MANAGER)
            && fields.is_some_and(|status| status.get("f:nominatedNodeName").is_some())
    })
}

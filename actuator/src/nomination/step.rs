//! What is to be written about one pod. Pure.

use super::FIELD_MANAGER;
use crate::pods;
use k8s_openapi::api::core::v1::{Node, Pod};
use plimsoll_model::identity::PodUid;
use plimsoll_snapshot::nominations::{self, Wish};
use std::collections::BTreeMap;
use std::sync::Arc;

/// One write, what is taken back first.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Step {
    /// A nomination of ours is over.
    TakeBack,
    /// The pod is for this node.
    Nominate(String),
}

impl Step {
    /// The node that is nominated.
    pub(super) fn node(&self) -> Option<&str> {
        match self {
            Self::TakeBack => None,
            Self::Nominate(node) => Some(node),
        }
    }
}

/// Whether the pod is still to get a node.
pub(super) fn waits(pod: &Pod) -> bool {
    pods::node_name(pod).is_none() && pods::is_reschedulable(pod)
}

/// What is to be written about a pod that waits, if anything. A nomination by others stands, whatever the plan says.
pub(super) fn of(pod: &Pod, wanted: Option<&str>) -> Option<Step> {
    match (nominated(pod), wanted) {
        (None, Some(wanted)) => Some(Step::Nominate(wanted.to_owned())),
        (Some(present), wanted) if wanted != Some(present) && is_ours(pod) => {
            Some(wanted.map_or(Step::TakeBack, |wanted| Step::Nominate(wanted.to_owned())))
        }
        _ => None,
    }
}

/// `wanted` without pods that would keep each other out: they are nominated one after another, as those before them are bound. What stands comes first,
/// so that nothing is taken back for a pod that came later.
pub(super) fn sparing(
    waiting: &BTreeMap<PodUid, Arc<Pod>>,
    wanted: &BTreeMap<PodUid, String>,
    nodes: &[Arc<Node>],
) -> BTreeMap<PodUid, String> {
    let wishes: Vec<(&PodUid, Wish<'_>)> = wanted
        .iter()
        .filter_map(|(uid, node)| {
            let pod = waiting.get(uid)?;
            Some((uid, Wish { pod, node, stands: nominated(pod) == Some(node) }))
        })
        .collect();
    let plain: Vec<Wish<'_>> = wishes.iter().map(|(_, wish)| *wish).collect();
    let may = nominations::at_once(&plain, nodes.iter().map(|node| &**node));
    let kept = wishes.iter().zip(may).filter(|(_, may)| *may);
    kept.map(|((uid, wish), _)| ((*uid).clone(), wish.node.to_owned())).collect()
}

fn nominated(pod: &Pod) -> Option<&str> {
    pod.status.as_ref()?.nominated_node_name.as_deref().filter(|name| !name.is_empty())
}

/// Whether the nomination is ours by the API server's books: whoever changes the field owns it from then on.
fn is_ours(pod: &Pod) -> bool {
    pod.metadata.managed_fields.iter().flatten().any(|entry| {
        let fields = entry.fields_v1.as_ref().and_then(|fields| fields.0.get("f:status"));
        entry.manager.as_deref() == Some(FIELD_MANAGER)
            && fields.is_some_and(|status| status.get("f:nominatedNodeName").is_some())
    })
}

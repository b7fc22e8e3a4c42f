//! What is to be written about one pod. Pure.

use super::FIELD_MANAGER;
use crate::pods;
use k8s_openapi::api::core::v1::Pod;
use plimsoll_model::identity::PodUid;
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

/// `wanted` without pods that would keep each other out. kube-scheduler counts all pods that are nominated to a node when it tries one there, and
/// none that are nominated elsewhere: of pods that must spread over zones or hosts, more than `maxSkew` on one node would each find it too
/// full, for ever. They are nominated one after another, as those before them are bound.
pub(super) fn sparing(
    waiting: &BTreeMap<PodUid, Arc<Pod>>,
    wanted: BTreeMap<PodUid, String>,
) -> BTreeMap<PodUid, String> {
    let mut there: BTreeMap<(String, String), i32> = BTreeMap::new();
    let mut kept = BTreeMap::new();
    for (uid, node) in wanted {
        let spreads = waiting.get(&uid).map(|pod| spreads(pod)).unwrap_or_default();
        let is_full =
            |(name, most): &(String, i32)| there.get(&(node.clone(), name.clone())).is_some_and(|n| n >= most);
        if spreads.iter().any(is_full) {
            continue;
        }
        for (name, _) in spreads {
            *there.entry((node.clone(), name)).or_default() += 1;
        }
        kept.insert(uid, node);
    }
    kept
}

/// What the pod must spread by: constraints by what they count, with `maxSkew`.
fn spreads(pod: &Pod) -> Vec<(String, i32)> {
    let all = pod.spec.iter().flat_map(|spec| spec.topology_spread_constraints.iter().flatten());
    all.filter(|one| one.when_unsatisfiable == "DoNotSchedule")
        .map(|one| {
            let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
            let counted = serde_json::to_string(&one.label_selector).unwrap_or_default();
            (format!("{namespace} {} {counted}", one.topology_key), one.max_skew)
        })
        .collect()
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

//! Maps virtual pods to the nodes that were launched for them.
//!
//! Claims record the pods they were created for. Virtual pods are placed again in every plan. Without this mapping they
//! might not fit where the previous plan put them, and their capacity would be launched again.

use crate::{Extra, Objects, annotations, kube_time};
use plimsoll_model::execution::ClaimState;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::names::annotation;
use plimsoll_model::snapshot::Node;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Node by UID of the virtual pod; the youngest node if there are several.
pub(super) struct BufferPodNodes<'a>(BTreeMap<Cow<'a, str>, &'a NodeName>);

impl<'a> BufferPodNodes<'a> {
    pub(super) fn new(objects: &'a Objects, extra: &'a Extra, nodes: &'a [Node]) -> Self {
        let remaining_nodes = nodes.iter().filter(|node| !node.deleting);
        let by_claim: BTreeMap<&str, &NodeName> =
            remaining_nodes.filter_map(|node| Some((node.node_claim.as_deref()?, &node.name))).collect();
        let mut claims: Vec<_> = objects.node_claims.iter().map(|claim| &claim.metadata).collect();
        claims.sort_by_key(|metadata| (kube_time::created(metadata), metadata.name.as_deref()));
        let mut by_pod = BTreeMap::new();
        for metadata in &claims {
            let Some(node) = metadata.name.as_deref().and_then(|name| by_claim.get(name)).copied() else { continue };
            let annotation_text = annotations::text(metadata, annotation::PODS);
            // An unparsable annotation is treated as empty.
            let uids: Vec<Cow<'a, str>> =
                annotation_text.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            by_pod.extend(uids.into_iter().map(|uid| (uid, node)));
        }
        // Claims that only the ledger has are the youngest.
        let shown = |name: &str| claims.iter().any(|metadata| metadata.name.as_deref() == Some(name));
        for claim in extra.in_flight.iter().filter(|claim| claim.state != ClaimState::Terminating) {
            let Some(node) = by_claim.get(claim.name.as_str()).copied().filter(|_| !shown(&claim.name)) else {
                continue;
            };
            by_pod.extend(claim.pods.iter().map(|pod| (Cow::Borrowed(pod.uid.as_str()), node)));
        }
        Self(by_pod)
    }

    pub(super) fn of(&self, pod: &PodUid) -> Option<&'a NodeName> {
        self.0.get(pod.as_str()).copied()
    }
}

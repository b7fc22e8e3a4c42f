//! Which node was launched for a virtual pod.
//!
//! Claims name the pods that they were made for. Placed anew with every plan and without this, virtual pods might not fit where they were all
//! planned to fit, and room for one of them would be bought again.

use crate::{Extra, Objects, kube_time};
use plimsoll_model::execution::ClaimState;
use plimsoll_model::identity::{NodeName, PodUid};
use plimsoll_model::names::annotation;
use plimsoll_model::snapshot::Node;
use std::borrow::Cow;
use std::collections::BTreeMap;

/// Nodes by the pods that they were launched for, the youngest of several.
pub(super) struct Homes<'a>(BTreeMap<Cow<'a, str>, &'a NodeName>);

impl<'a> Homes<'a> {
    pub(super) fn new(objects: &'a Objects, extra: &'a Extra, nodes: &'a [Node]) -> Self {
        let staying = nodes.iter().filter(|node| !node.deleting);
        let by_claim: BTreeMap<&str, &NodeName> =
            staying.filter_map(|node| Some((node.node_claim.as_deref()?, &node.name))).collect();
        let mut claims: Vec<_> = objects.node_claims.iter().map(|claim| &claim.metadata).collect();
        claims.sort_by_key(|metadata| (kube_time::created(metadata), metadata.name.as_deref()));
        let mut homes = BTreeMap::new();
        for metadata in &claims {
            let Some(node) = metadata.name.as_deref().and_then(|name| by_claim.get(name)).copied() else { continue };
            let named = metadata.annotations.as_ref().and_then(|all| all.get(annotation::PODS));
            // What cannot be read says nothing of anybody.
            let uids: Vec<Cow<'a, str>> = named.and_then(|text| serde_json::from_str(text).ok()).unwrap_or_default();
            homes.extend(uids.into_iter().map(|uid| (uid, node)));
        }
        // Those that the cluster does not show yet are the youngest.
        let shown = |name: &str| claims.iter().any(|metadata| metadata.name.as_deref() == Some(name));
        for claim in extra.in_flight.iter().filter(|claim| claim.state != ClaimState::Terminating) {
            let Some(node) = by_claim.get(claim.name.as_str()).copied().filter(|_| !shown(&claim.name)) else {
                continue;
            };
            homes.extend(claim.pods.iter().map(|pod| (Cow::Borrowed(pod.uid.as_str()), node)));
        }
        Self(homes)
    }

    pub(super) fn of(&self, pod: &PodUid) -> Option<&'a NodeName> {
        self.0.get(pod.as_str()).copied()
    }
}

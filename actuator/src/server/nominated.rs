//! Events on pods that name the node which a plan has for them.

use super::Leader;
use crate::launch::Admitted;
use plimsoll_model::identity::NodeName;
use plimsoll_model::plan::PodRef;

/// Publishes the nodes of waiting pods: those of new placements and of admitted launches. Pods that move from a node to
/// be removed get no Event, and neither do virtual pods.
pub(super) fn publish(deps: &Leader, placed: &[(&PodRef, &NodeName)], admitted: &[Admitted]) {
    let is_waiting =
        |pod: &PodRef| deps.stores.pods.with_uid(pod.uid.as_str()).is_some_and(|cached| cached.node_name.is_none());
    let on_nodes = placed.iter().map(|(pod, node)| (*pod, target(deps, node)));
    let on_claims = admitted.iter().flat_map(|launch| {
        let target = format!("nodeclaim/{}", launch.claim);
        launch.launch.pods.iter().map(move |pod| (pod, target.clone()))
    });
    for (pod, target) in on_nodes.chain(on_claims).filter(|(pod, _)| is_waiting(pod)) {
        if !deps.events.nominated(pod, &target) {
            break;
        }
    }
}

/// A plan names a node by its NodeClaim until the Node exists.
fn target(deps: &Leader, node: &NodeName) -> String {
    let kind = if deps.stores.nodes.get(&node.0).is_some() { "node" } else { "nodeclaim" };
    format!("{kind}/{}", node.0)
}

//! Labels of nodes whose instance has left its capacity reservation: they are On-Demand nodes from then on. The reverse
//! never happens.

use crate::io::{ObjectPart, WriteError};
use crate::node_pool_status::NodePoolStatus;
use crate::pacing::interval_passed;
use kube::ResourceExt;
use plimsoll_api::NodeClaim;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::{annotation, label};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval between checks, as in Karpenter.
const INTERVAL: Duration = Duration::from_secs(60);

pub(super) async fn run(deps: &NodePoolStatus, stop: &CancellationToken) {
    while interval_passed(stop, INTERVAL).await {
        for claim in deps.stores.claims.state() {
            if !is_reserved(claim.labels()) || !has_left(deps, &claim) {
                continue;
            }
            match relabel(deps, &claim).await {
                Ok(()) => tracing::info!(node_claim = claim.name_any(), "instance has left its capacity reservation"),
                Err(error) => tracing::warn!(node_claim = claim.name_any(), %error, "labels not updated"),
            }
        }
    }
}

fn is_reserved(labels: &BTreeMap<String, String>) -> bool {
    labels.get(label::CAPACITY_TYPE).is_some_and(|value| value == CapacityType::Reserved.as_str())
}

/// Whether EC2 listed the claim's instance, and not as a reserved one.
fn has_left(deps: &NodePoolStatus, claim: &NodeClaim) -> bool {
    let listed = claim.instance_id().and_then(|id| deps.instances.get(id));
    listed.is_some_and(|instance| instance.capacity_type != CapacityType::Reserved)
}

/// Nodes first: the claim's label says that there is work left.
async fn relabel(deps: &NodePoolStatus, claim: &NodeClaim) -> Result<(), WriteError> {
    let nodes = deps.stores.nodes_of(claim);
    for node in nodes.iter().filter(|node| is_reserved(node.labels())) {
        deps.writes.update(&**node, ObjectPart::Main, |node| as_on_demand(node.labels_mut())).await?;
    }
    let update = |claim: &mut NodeClaim| {
        as_on_demand(claim.labels_mut());
        // The price was that of the reservation; `prices` records the one from now on.
        claim.annotations_mut().remove(annotation::USD_PER_HOUR);
    };
    deps.writes.update(claim, ObjectPart::Main, update).await?;
    Ok(())
}

fn as_on_demand(labels: &mut BTreeMap<String, String>) {
    labels.insert(label::CAPACITY_TYPE.to_owned(), CapacityType::OnDemand.as_str().to_owned());
    label::CAPACITY_RESERVATION.iter().for_each(|key| drop(labels.remove(*key)));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_left_its_reservation_is_an_on_demand_node() {
        let pair = |(key, value): (&str, &str)| (key.to_owned(), value.to_owned());
        let mut labels: BTreeMap<String, String> = [
            (label::CAPACITY_TYPE, "reserved"),
            (label::CAPACITY_RESERVATION_ID, "cr-1"),
            (label::CAPACITY_RESERVATION_TYPE, "default"),
            (label::CAPACITY_RESERVATION_INTERRUPTIBLE, "false"),
            (label::ZONE, "us-east-1a"),
        ]
        .map(pair)
        .into();
        assert!(is_reserved(&labels));
        as_on_demand(&mut labels);
        assert_eq!(labels, [(label::CAPACITY_TYPE, "on-demand"), (label::ZONE, "us-east-1a")].map(pair).into());
        assert!(!is_reserved(&labels));
    }
}

//! Drains nodes of Capacity Blocks before EC2 takes their instances.

use super::Interruptions;
use super::mark::{self, Urgency};
use crate::fencing::CLUSTER_CALL;
use crate::pacing::interval_passed;
use jiff::SignedDuration;
use kube::ResourceExt;
use plimsoll_api::EC2NodeClass;
use plimsoll_api::ec2_node_class::{ReservationState, ReservationType};
use plimsoll_model::names::label;
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval between checks, as in Karpenter.
const INTERVAL: Duration = Duration::from_secs(60);
/// How long before the end of a block EC2 begins to take its instances.
const TAKEN_BEFORE_END: SignedDuration = SignedDuration::from_mins(30);

pub(super) async fn run(deps: &Interruptions, stop: &CancellationToken) {
    while interval_passed(stop, INTERVAL).await {
        // In shadow mode, each claim would only log a warning.
        if deps.fence.check(CLUSTER_CALL).is_err() {
            continue;
        }
        let ending = ending(&deps.stores.classes.state());
        for claim in deps.stores.claims.state() {
            let block = claim.labels().get(label::CAPACITY_RESERVATION_ID).and_then(|id| ending.get(id));
            let Some(taken) = block else { continue };
            let kind = "capacity_block_expiring";
            if let Err(error) = mark::mark_and_delete(deps, &claim, kind, Some(*taken), Urgency::Drain).await {
                tracing::warn!(node_claim = claim.name_any(), %error, "NodeClaim of an expiring Capacity Block not deleted");
            }
        }
    }
}

/// Capacity Blocks that expire, with the time from which EC2 takes their instances.
fn ending(classes: &[Arc<EC2NodeClass>]) -> BTreeMap<String, Timestamp> {
    let statuses = classes.iter().filter_map(|class| class.status.as_ref());
    let reservations = statuses.flat_map(|status| &status.capacity_reservations);
    let expiring = reservations.filter(|one| {
        one.reservation_type == ReservationType::CapacityBlock && one.state == ReservationState::Expiring
    });
    let taken = expiring.filter_map(|one| {
        let taken = one.end_time.as_ref()?.0.checked_sub(TAKEN_BEFORE_END).ok()?;
        Some((one.id.clone(), Timestamp(taken.as_millisecond())))
    });
    taken.collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn only_expiring_capacity_blocks_are_drained() {
        let reservation = |id: &str, kind: &str, state: &str| {
            json!({"id": id, "availabilityZone": "us-east-1a", "endTime": "2026-01-02T04:00:00Z", "instanceType": "p5.48xlarge",
                "instanceMatchCriteria": "targeted", "ownerID": "123456789012", "reservationType": kind, "state": state})
        };
        let class: EC2NodeClass = serde_json::from_value(json!({
            "apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "gpu"},
            "spec": {"subnetSelectorTerms": [], "securityGroupSelectorTerms": [], "amiSelectorTerms": []},
            "status": {"capacityReservations": [
                reservation("cr-1", "capacity-block", "expiring"),
                reservation("cr-2", "capacity-block", "active"),
                reservation("cr-3", "default", "active"),
                reservation("cr-4", "default", "expiring"),
            ]},
        }))
        .unwrap();
        let taken: jiff::Timestamp = "2026-01-02T03:30:00Z".parse().unwrap();
        let expected = BTreeMap::from([("cr-1".to_owned(), Timestamp(taken.as_millisecond()))]);
        assert_eq!(ending(&[Arc::new(class)]), expected);
    }
}

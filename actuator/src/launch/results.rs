//! Publishes the result of a launch: to the cluster, the ledger, the outcomes, and the instance's tags.

use super::attempt::Failure;
use super::write::{self, LaunchedInstance};
use super::{LaunchGroup, record};
use crate::clock::Timestamped;
use crate::durable;
use crate::events::{Note, object, reason};
use crate::io::{TerminateResult, UpdateResult, WriteError};
use crate::launch::launcher::Launcher;
use crate::launch_template::EFA;
use crate::ledger::feed::seeds;
use crate::ports::{FleetInstance, FleetRequest, Override};
use crate::state::insufficient_capacity::Wanted;
use futures::StreamExt;
use plimsoll_api::{NodeClaim, Operator, Requirement};
use plimsoll_model::catalog::{CapacityReservation, CapacityType, InstanceType, Offering};
use plimsoll_model::execution::{Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::identity::ActionId;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::{USD_PER_HOUR_RESOURCE, annotation, label};
use plimsoll_model::resources::PODS;
use std::collections::BTreeMap;

/// Claims deleted concurrently.
const DELETES_AT_ONCE: usize = 16;
/// Maximum length of a failure's message in an outcome.
const MAX_MESSAGE: usize = 500;

/// Which side refused.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RefusedBy {
    /// EC2.
    Cloud,
    /// The API server.
    Cluster,
}

/// The cause under which failures are counted (safety rule 8).
#[must_use]
pub fn cause(failure: &Failure) -> &str {
    match failure {
        Failure::InsufficientCapacity { named: true, .. } => crate::ledger::failures::INSUFFICIENT_CAPACITY,
        Failure::InsufficientCapacity { named: false, .. } => crate::ledger::failures::UNNAMED_CAPACITY,
        Failure::Refused { code, .. } => code,
        Failure::Throttled => crate::ledger::failures::THROTTLED,
        Failure::NothingFound => "NothingFound",
        Failure::NotAccepted => "NotAccepted",
        Failure::Deleted => crate::ledger::failures::DELETED,
    }
}

fn message(failure: &Failure) -> String {
    let mut text = match failure {
        Failure::InsufficientCapacity { refusals, .. } if refusals.is_empty() => "no offering has capacity".to_owned(),
        Failure::InsufficientCapacity { refusals, .. } => format!("no offering has capacity: {refusals}"),
        Failure::Refused { code, message } => format!("{code}: {message}"),
        Failure::Throttled => "EC2 throttled the launch, since the account launches too many instances".to_owned(),
        Failure::NothingFound => "no instance found for the launch request, which may have been sent".to_owned(),
        Failure::NotAccepted => "EC2 did not accept the launch request within ten minutes".to_owned(),
        Failure::Deleted => "a NodeClaim of the launch group was deleted before its launch".to_owned(),
    };
    text.truncate(text.floor_char_boundary(MAX_MESSAGE));
    text
}

fn post_outcome(
    deps: &Launcher,
    action: Option<ActionId>,
    status: OutcomeStatus,
    reason: Option<OutcomeReason>,
    message: String,
    claim: &str,
) {
    let Some(action) = action else { return };
    deps.outcomes.post(Outcome {
        action_id: action,
        status,
        reason,
        message,
        node_claim: Some(claim.to_owned()),
        ledger: deps.ledger.position(),
    });
}

/// The capacity reservation of a reserved instance: of those that the claim lists, the one of its type and zone. A
/// claim without a NodePool may list none or several; its launch request has one.
fn reservation(claim: &NodeClaim, instance: &FleetInstance, kind: &InstanceType) -> Option<CapacityReservation> {
    if instance.capacity_type != CapacityType::Reserved {
        return None;
    }
    let is_list = |one: &&Requirement| one.key == label::CAPACITY_RESERVATION_ID && one.operator == Operator::In;
    let ids: Vec<&String> = claim.spec.requirements.iter().filter(is_list).flat_map(|one| &one.values).collect();
    let request = record::annotation(claim, annotation::LAUNCH_REQUEST);
    let request = request.and_then(|text| durable::read::<FleetRequest>(text).ok());
    let requested = request.as_ref().and_then(|it| it.reservation_of(&instance.instance_type, &instance.zone));
    let is_requested = |id: &String| requested == Some(id.as_str());
    let is_possible = |id: &String| if ids.is_empty() { is_requested(id) } else { ids.contains(&id) };
    let in_zone = kind.offerings.iter().filter(|offering| offering.zone == instance.zone);
    let reservations = in_zone.filter_map(|offering| offering.reservation.as_ref());
    reservations.filter(|one| is_possible(&one.id)).min_by_key(|one| !is_requested(&one.id)).cloned()
}

/// The price at which an instance counts against limits: at most the one at which its launch was admitted, so that a
/// price that rises between admission and purchase exceeds no limit.
fn price(
    claim: &NodeClaim,
    instance: &FleetInstance,
    kind: Option<&InstanceType>,
    reservation: Option<&CapacityReservation>,
) -> Option<MicroUsdPerHour> {
    let id = reservation.map(|reservation| reservation.id.as_str());
    let key = (instance.zone.as_str(), instance.capacity_type, id);
    let listed = kind.and_then(|kind| kind.offerings.iter().find(|offering| offering.key() == key));
    [listed.map(Offering::list_price), reserved_price(claim)].into_iter().flatten().min()
}

/// The price that is reserved for a claim. The ledger reports an unreadable annotation.
fn reserved_price(claim: &NodeClaim) -> Option<MicroUsdPerHour> {
    let text = claim.metadata.annotations.as_ref()?.get(annotation::RESERVED)?;
    let amounts: BTreeMap<String, String> = serde_json::from_str(text).ok()?;
    MicroUsdPerHour::parse_usd(amounts.get(USD_PER_HOUR_RESOURCE)?).ok()
}

/// Records a claim's instance in the cluster and the ledger. `None` if the claim is gone; then the instance is
/// terminated.
///
/// # Errors
/// The claim was not updated; the caller must retry.
pub async fn launched(
    deps: &Launcher,
    cycle_id: &str,
    claim: &NodeClaim,
    instance: &FleetInstance,
) -> Result<Option<NodeClaim>, WriteError> {
    let name = record::name(claim);
    let class_name = claim.spec.node_class_ref.name.as_str();
    let entry = deps.catalogs.get(class_name);
    let catalog = entry.as_ref().and_then(|entry| entry.catalog.as_ref()).map(|(_, catalog)| catalog);
    let instance_type = catalog.and_then(|catalog| catalog.get(&instance.instance_type));
    let class = deps.stores.classes.get(class_name);
    let status = class.as_ref().and_then(|class| class.status.as_ref());
    let zone_id = status.and_then(|status| {
        let subnet = status.subnets.iter().find(|subnet| subnet.zone == instance.zone)?;
        subnet.zone_id.clone()
    });
    let reservation = instance_type.and_then(|kind| reservation(claim, instance, kind));
    let launched = LaunchedInstance {
        price: price(claim, instance, instance_type, reservation.as_ref()),
        reservation,
        instance,
        instance_type,
        class: class.as_deref(),
        requests_efa: claim.spec.resources.as_ref().is_some_and(|resources| resources.requests.contains_key(EFA)),
        region: &deps.settings.region,
        zone_id: zone_id.unwrap_or_default(),
        instance_profile: status.and_then(|status| status.instance_profile.clone()).unwrap_or_default(),
    };
    let written = match write::mark_launched(deps, claim, &launched).await? {
        UpdateResult::Written(claim) => *claim,
        UpdateResult::Unchanged => claim.clone(),
        UpdateResult::Gone => {
            tracing::warn!(
                cycle_id,
                claim = name,
                instance = instance.instance_id,
                "NodeClaim is gone, terminating its instance"
            );
            deps.ledger.gone(name);
            surplus(deps, std::slice::from_ref(&instance.instance_id)).await;
            return Ok(None);
        }
    };
    tracing::info!(
        cycle_id, claim = name, instance = instance.instance_id, instance_type = instance.instance_type,
        zone = instance.zone, capacity_type = %instance.capacity_type, "launched"
    );
    record_launched(deps, &launched, claim, &written);
    post_outcome(deps, record::action(claim), OutcomeStatus::Launched, None, String::new(), name);
    Ok(Some(written))
}

/// Records in memory what a claim's instance uses and shows: in the ledger, of its subnet and of its offering.
fn record_launched(deps: &Launcher, launched: &LaunchedInstance<'_>, claim: &NodeClaim, written: &NodeClaim) {
    let (name, instance) = (record::name(claim), launched.instance);
    deps.ledger.with(|ledger| {
        if let Some(counted) = launched.counted() {
            ledger.launched(name, counted);
            ledger.labelled(name, seeds::labels(written));
        }
        if written.metadata.deletion_timestamp.is_none() {
            ledger.found(name);
        }
        if let Some(reservation) = &launched.reservation {
            ledger.reservation_used(&reservation.id);
        }
    });
    let addresses = launched.instance_type.map_or(1, |instance_type| instance_type.capacity.get(PODS));
    deps.subnet_addresses.launched(&instance.subnet_id, addresses);
    deps.insufficient_capacity.lock().succeeded(Wanted {
        instance_type: &instance.instance_type,
        zone: &instance.zone,
        capacity_type: instance.capacity_type,
        placement_group: record::placement_group(claim),
    });
}

/// Fails claims that will get no instance: deletes them, so that their pods are planned again.
pub async fn fail(
    deps: &Launcher,
    claims: impl Iterator<Item = NodeClaim>,
    failure: &Failure,
    cycle_id: &str,
    refused_by: RefusedBy,
) {
    let reason = match (failure, refused_by) {
        (Failure::InsufficientCapacity { .. }, _) => OutcomeReason::NoCapacity,
        (Failure::Deleted, _) | (_, RefusedBy::Cluster) => OutcomeReason::ClusterRefused,
        (_, RefusedBy::Cloud) => OutcomeReason::CloudRefused,
    };
    let cause = cause(failure);
    let deletes = claims.map(|claim| async move {
        // A claim that was never written need not be deleted.
        let result = write::abandon(deps, &claim).await;
        (claim, result)
    });
    let mut deletes = futures::stream::iter(deletes.collect::<Vec<_>>()).buffer_unordered(DELETES_AT_ONCE);
    while let Some((claim, result)) = deletes.next().await {
        let name = record::name(&claim);
        deps.metrics.claims_failed.with_label_values(&[claim.node_pool(), cause]).inc();
        if reason == OutcomeReason::NoCapacity {
            deps.metrics.cloud.no_capacity();
            deps.metrics.claims.disrupted(&claim, "insufficient_capacity", None, 0);
        }
        tracing::warn!(cycle_id, claim = name, cause, message = message(failure), "launch failed");
        if claim.metadata.uid.is_some() && *failure != Failure::Deleted {
            let reason = match reason {
                OutcomeReason::NoCapacity => reason::INSUFFICIENT_CAPACITY,
                _ => reason::LAUNCH_FAILED,
            };
            deps.events.publish(Note::warning(object(&claim), reason, message(failure)));
        }
        let now = deps.clock.timestamp();
        deps.ledger.with(|ledger| {
            ledger.failed(name, cause, now);
            match &result {
                Ok(()) => ledger.gone(name),
                // The claim counts until it is gone; the scan for unfinished groups deletes it.
                Err(error) => tracing::warn!(claim = name, %error, "failed NodeClaim not deleted"),
            }
        });
        deps.ledger.not_launching(name);
        let message = message(failure);
        post_outcome(deps, record::action(&claim), OutcomeStatus::Failed, Some(reason), message, name);
    }
}

/// Skips the offerings of a request that EC2 answered by internal errors. Otherwise the next plan asks for them again.
pub fn skip_offerings(deps: &Launcher, group: &LaunchGroup, request: &FleetRequest) {
    tracing::warn!(
        cycle_id = %group.cycle_id, group = group.id(), capacity_type = %request.capacity_type,
        overrides = request.overrides().count(), "EC2 responds by internal errors, skipping the requested offerings"
    );
    let (placement_group, now) = (group.primary().and_then(record::placement_group), deps.clock.timestamp());
    let mut unavailable = deps.insufficient_capacity.lock();
    for Override { instance_type, zone, .. } in request.overrides() {
        unavailable.skip(Wanted { instance_type, zone, capacity_type: request.capacity_type, placement_group }, now);
    }
    drop(unavailable);
    deps.ledger.wake();
}

/// Fails claims that were admitted but never written: only the ledger knows of these claims.
pub fn fail_unwritten<'a>(deps: &Launcher, claims: impl Iterator<Item = &'a NodeClaim>, failure: &Failure) {
    let now = deps.clock.timestamp();
    for claim in claims {
        let name = record::name(claim);
        deps.ledger.with(|ledger| {
            ledger.failed(name, cause(failure), now);
            ledger.gone(name);
        });
        deps.ledger.not_launching(name);
        deps.metrics.claims_failed.with_label_values(&[claim.node_pool(), cause(failure)]).inc();
        // The claim does not exist.
        if let Some(pool) = deps.stores.pools.get(claim.node_pool()) {
            deps.events.publish(Note::warning(object(&*pool), reason::LAUNCH_FAILED, message(failure)));
        }
        let (status, reason) = (OutcomeStatus::Failed, Some(OutcomeReason::PoolChanged));
        post_outcome(deps, record::action(claim), status, reason, message(failure), name);
    }
}

/// Terminates instances without a claim.
pub async fn surplus(deps: &Launcher, ids: &[String]) {
    if ids.is_empty() {
        return;
    }
    tracing::warn!(?ids, "terminating instances beyond the size of the launch group");
    deps.metrics.instances_collected.with_label_values(&["surplus"]).inc_by(ids.len() as u64);
    let report = |id: &str, answer: TerminateResult| {
        // Garbage collection will find the instance, since no claim names it.
        if let Err(error) = answer {
            tracing::warn!(instance = id, %error, "surplus instance not terminated");
        }
    };
    if let Err(error) = deps.cloud.terminate(ids, report).await {
        tracing::warn!(?ids, %error, "surplus instance not terminated");
    }
}

#[cfg(test)]
mod tests;

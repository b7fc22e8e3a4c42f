//! Conversion of executions, outcomes, ledger updates and catalog updates.

mod buffers;
#[cfg(test)]
mod tests;

use super::{
    ConvertError, ConvertResult, WireEnum as _, check_unique, enum_value, key, list, not_negative, optional_key,
    required, resources_from_wire, resources_to_wire, to_wire, wire_enum,
};
use crate::actuator::v1 as wire;
use crate::catalog::v1 as catalog_wire;
use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::execution::{
    CatalogUpdate, ClaimState, Driver, Execution, InFlightClaim, LedgerUpdate, Outcome, OutcomeReason, OutcomeStatus,
};
use plimsoll_model::identity::{ActionId, CatalogId, NodePoolName, PodUid};
use plimsoll_model::snapshot::{ReservationCount, UnavailableOffering};
use plimsoll_model::time::Timestamp;

wire_enum!(wire::OutcomeStatus, OutcomeStatus, [Accepted, Rejected, Launched, Failed, Removed]);
wire_enum!(wire::ClaimState, ClaimState, [Launching, Launched, Registered, Terminating]);
wire_enum!(
    wire::OutcomeReason,
    OutcomeReason,
    [
        StaleSnapshot,
        PodChanged,
        NodeChanged,
        PoolChanged,
        LimitReached,
        BudgetExhausted,
        Blocked,
        Dependency,
        NoCapacity,
        CloudRefused,
        ClusterRefused,
        Invalid
    ]
);

impl From<&Driver> for wire::Driver {
    fn from(driver: &Driver) -> Self {
        Self { identity: driver.identity.clone(), transitions: driver.transitions }
    }
}

impl TryFrom<wire::Driver> for Driver {
    type Error = ConvertError;
    fn try_from(driver: wire::Driver) -> ConvertResult<Self> {
        Ok(Self { identity: key("identity", driver.identity)?, transitions: driver.transitions })
    }
}

impl From<&Execution> for wire::ExecuteRequest {
    fn from(execution: &Execution) -> Self {
        Self {
            driver: Some((&execution.driver).into()),
            plan: Some(super::with_shared_lists(&execution.plan)),
            cycle_id: execution.cycle_id.clone(),
            virtual_pod_uids: execution.virtual_pods.iter().map(|uid| uid.0.clone()).collect(),
            buffers: to_wire(&execution.buffers),
        }
    }
}

impl TryFrom<wire::ExecuteRequest> for Execution {
    type Error = ConvertError;
    fn try_from(request: wire::ExecuteRequest) -> ConvertResult<Self> {
        let plan = request.plan.ok_or_else(|| ConvertError::new("plan", "is not set"))?;
        let virtual_pods = request.virtual_pod_uids.into_iter().map(|uid| key("virtual_pod_uids", uid).map(PodUid));
        Ok(Self {
            driver: required("driver", request.driver)?,
            // The errors already contain the prefix `plan`.
            plan: plan.try_into()?,
            cycle_id: key("cycle_id", request.cycle_id)?,
            virtual_pods: virtual_pods.collect::<ConvertResult<_>>()?,
            buffers: list("buffers", request.buffers)?,
        })
    }
}

impl From<&Outcome> for wire::Outcome {
    fn from(outcome: &Outcome) -> Self {
        Self {
            action_id: outcome.action_id.0.clone(),
            status: outcome.status.to_wire(),
            reason: outcome.reason.map_or(0, OutcomeReason::to_wire),
            message: outcome.message.clone(),
            node_claim: outcome.node_claim.clone(),
            ledger: Some(outcome.ledger.into()),
        }
    }
}

impl TryFrom<wire::Outcome> for Outcome {
    type Error = ConvertError;
    fn try_from(outcome: wire::Outcome) -> ConvertResult<Self> {
        Ok(Self {
            action_id: ActionId(key("action_id", outcome.action_id)?),
            status: enum_value("status", outcome.status)?,
            // The reason only explains the status. A reason of a later version must not hide the outcome.
            reason: OutcomeReason::from_wire(outcome.reason),
            message: outcome.message,
            node_claim: optional_key("node_claim", outcome.node_claim)?,
            ledger: outcome.ledger.ok_or_else(|| ConvertError::new("ledger", "is not set"))?.into(),
        })
    }
}

impl From<&Outcome> for wire::ExecuteResponse {
    fn from(outcome: &Outcome) -> Self {
        Self { outcome: Some(outcome.into()) }
    }
}

impl TryFrom<wire::ExecuteResponse> for Outcome {
    type Error = ConvertError;
    fn try_from(response: wire::ExecuteResponse) -> ConvertResult<Self> {
        required("outcome", response.outcome)
    }
}

/// Converts the outcome of a response. Returns `None` if its status is one of a later version: the other outcomes of
/// the stream are still needed.
///
/// # Errors
/// If the response is invalid.
pub fn known_outcome(response: wire::ExecuteResponse) -> ConvertResult<Option<Outcome>> {
    let status = response.outcome.as_ref().map_or(0, |outcome| outcome.status);
    if status != 0 && OutcomeStatus::from_wire(status).is_none() {
        return Ok(None);
    }
    Outcome::try_from(response).map(Some)
}

/// State of a claim. A state of a later version counts as launched: the claim exists, its capacity and cost count, and
/// nothing more is bought for its pods.
fn claim_state(state: i32) -> ConvertResult<ClaimState> {
    match ClaimState::from_wire(state) {
        None if state != 0 => Ok(ClaimState::Launched),
        _ => enum_value("state", state),
    }
}

impl From<&InFlightClaim> for wire::InFlightClaim {
    fn from(claim: &InFlightClaim) -> Self {
        Self {
            name: claim.name.clone(),
            uid: claim.uid.clone(),
            node_pool: claim.node_pool.0.clone(),
            action_id: claim.action_id.as_ref().map(|action| action.0.clone()).unwrap_or_default(),
            pods: to_wire(&claim.pods),
            limit_usage: resources_to_wire(&claim.limit_usage),
            labels: claim.labels.clone(),
            taints: to_wire(&claim.taints),
            allocatable: resources_to_wire(&claim.allocatable),
            state: claim.state.to_wire(),
            launched_unix_ms: claim.launched.map(|at| at.0),
        }
    }
}

impl TryFrom<wire::InFlightClaim> for InFlightClaim {
    type Error = ConvertError;
    fn try_from(claim: wire::InFlightClaim) -> ConvertResult<Self> {
        Ok(Self {
            name: key("name", claim.name)?,
            uid: claim.uid,
            node_pool: NodePoolName(key("node_pool", claim.node_pool)?),
            action_id: Some(claim.action_id).filter(|action| !action.is_empty()).map(ActionId),
            pods: list("pods", claim.pods)?,
            limit_usage: resources_from_wire("limit_usage", claim.limit_usage)?,
            labels: claim.labels,
            taints: list("taints", claim.taints)?,
            allocatable: resources_from_wire("allocatable", claim.allocatable)?,
            state: claim_state(claim.state)?,
            launched: claim.launched_unix_ms.map(Timestamp),
        })
    }
}

fn offerings_to_wire(offerings: Option<&Vec<UnavailableOffering>>) -> Option<wire::UnavailableOfferings> {
    offerings.map(|offerings| wire::UnavailableOfferings { offerings: to_wire(offerings) })
}

fn offerings_from_wire(wire: Option<wire::UnavailableOfferings>) -> ConvertResult<Option<Vec<UnavailableOffering>>> {
    let convert = |mut wire: wire::UnavailableOfferings| {
        // No plan uses an offering of a capacity type of a later version, so it need not be known as unavailable.
        wire.offerings.retain(|it| it.capacity_type == 0 || CapacityType::from_wire(it.capacity_type).is_some());
        let offerings: Vec<UnavailableOffering> = list("offerings", wire.offerings)?;
        check_unique(&offerings, "offerings", "", |offering| {
            (&offering.instance_type, &offering.zone, offering.capacity_type)
        })?;
        Ok(offerings)
    };
    wire.map(|wire| convert(wire).map_err(|error: ConvertError| error.within("unavailable_offerings"))).transpose()
}

fn counts_from_wire(wire: Option<wire::ReservationCounts>) -> ConvertResult<Option<Vec<ReservationCount>>> {
    let convert = |wire: wire::ReservationCounts| {
        let counts: Vec<ReservationCount> = list("counts", wire.counts)?;
        check_unique(&counts, "counts", ".id", |count| &count.id)?;
        Ok(counts)
    };
    wire.map(|wire| convert(wire).map_err(|error: ConvertError| error.within("reservations"))).transpose()
}

impl From<&LedgerUpdate> for wire::LedgerUpdate {
    fn from(update: &LedgerUpdate) -> Self {
        Self {
            position: Some(update.position.into()),
            upserted: to_wire(&update.upserted),
            removed: update.removed.clone(),
            unavailable_offerings: offerings_to_wire(update.unavailable_offerings.as_ref()),
            complete: update.complete,
            reservations: update
                .reservations
                .as_ref()
                .map(|counts| wire::ReservationCounts { counts: to_wire(counts) }),
        }
    }
}

impl TryFrom<wire::LedgerUpdate> for LedgerUpdate {
    type Error = ConvertError;
    fn try_from(update: wire::LedgerUpdate) -> ConvertResult<Self> {
        let upserted: Vec<InFlightClaim> = list("upserted", update.upserted)?;
        check_unique(&upserted, "upserted", ".name", |claim| &claim.name)?;
        Ok(Self {
            position: update.position.ok_or_else(|| ConvertError::new("position", "is not set"))?.into(),
            upserted,
            removed: update.removed,
            unavailable_offerings: offerings_from_wire(update.unavailable_offerings)?,
            reservations: counts_from_wire(update.reservations)?,
            complete: update.complete,
        })
    }
}

impl From<&LedgerUpdate> for wire::WatchLedgerResponse {
    fn from(update: &LedgerUpdate) -> Self {
        Self { update: Some(update.into()) }
    }
}

impl TryFrom<wire::WatchLedgerResponse> for LedgerUpdate {
    type Error = ConvertError;
    fn try_from(response: wire::WatchLedgerResponse) -> ConvertResult<Self> {
        required("update", response.update)
    }
}

impl From<&CatalogUpdate> for wire::CatalogUpdate {
    fn from(update: &CatalogUpdate) -> Self {
        Self {
            node_class: update.node_class.clone(),
            generation: update.generation,
            removed: update.removed,
            catalog_id: update.catalog_id.as_ref().map(|id| id.0.clone()),
            catalog: update.catalog.as_ref().map(Into::into),
            problem: update.problem.clone(),
            unavailable_offerings: offerings_to_wire(update.unavailable_offerings.as_ref()),
            complete: update.complete,
            shifted_zones: update
                .shifted_zones
                .as_ref()
                .map(|zones| wire::ShiftedZones { zones: zones.iter().cloned().collect() }),
        }
    }
}

impl TryFrom<wire::CatalogUpdate> for CatalogUpdate {
    type Error = ConvertError;
    fn try_from(update: wire::CatalogUpdate) -> ConvertResult<Self> {
        let catalog_id = optional_key("catalog_id", update.catalog_id)?.map(CatalogId);
        let own_id = update.catalog.as_ref().map(|catalog| catalog.id.clone()).filter(|id| !id.is_empty());
        // The id is the sender's, and not compared with the content: it covers fields that a later version may have
        // added. The errors already contain the prefix `catalog`.
        let content = update.catalog.map(|catalog| catalog_wire::Catalog { id: String::new(), ..catalog });
        let catalog: Option<Catalog> = content.map(TryInto::try_into).transpose()?;
        if catalog.is_some() && catalog_id.is_none() {
            return Err(ConvertError::new("catalog_id", "is not set, but the catalog is"));
        }
        if own_id.is_some() && own_id.as_deref() != catalog_id.as_ref().map(|id| id.0.as_str()) {
            return Err(ConvertError::new("catalog.id", "is not the catalog_id"));
        }
        if update.node_class.is_empty() && (update.removed || catalog_id.is_some()) {
            return Err(ConvertError::new("node_class", "is empty"));
        }
        Ok(Self {
            node_class: update.node_class,
            generation: not_negative("generation", update.generation)?,
            removed: update.removed,
            catalog_id,
            catalog,
            problem: update.problem,
            unavailable_offerings: offerings_from_wire(update.unavailable_offerings)?,
            complete: update.complete,
            shifted_zones: update.shifted_zones.map(|shifted| shifted.zones.into_iter().collect()),
        })
    }
}

impl From<&CatalogUpdate> for wire::WatchCatalogResponse {
    fn from(update: &CatalogUpdate) -> Self {
        Self { update: Some(update.into()) }
    }
}

impl TryFrom<wire::WatchCatalogResponse> for CatalogUpdate {
    type Error = ConvertError;
    fn try_from(response: wire::WatchCatalogResponse) -> ConvertResult<Self> {
        required("update", response.update)
    }
}

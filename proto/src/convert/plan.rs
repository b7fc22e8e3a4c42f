//! Conversion of plans.

use super::{
    ConvertError, ConvertResult, WireEnum as _, check_unique, enum_value, key, list, not_negative, required,
    resources_from_wire, resources_to_wire, to_wire, wire_enum,
};
use crate::plan::v1 as wire;
use plimsoll_model::identity::{ActionId, NodeName, NodePoolName, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{
    Launch, MinValuesPolicy, OfferingChoice, Placement, Plan, PlanOptions, PodRef, PreferencePolicy, Reason,
    ReasonCode, Termination, Unschedulable,
};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_model::time::Timestamp;
use std::sync::Arc;

mod shared;

pub use shared::{SharedLists, SharedReasons, unshared_sizes, with_shared_lists, with_shared_reasons};

wire_enum!(
    wire::ReasonCode,
    ReasonCode,
    [
        NoNodePool,
        NodeClassNotFound,
        NodePoolNotReady,
        TaintNotTolerated,
        RequirementsIncompatible,
        InsufficientResources,
        NoOffering,
        OutOfCapacity,
        LimitReached,
        NotSupported,
        VolumeProblem,
        HostPortConflict,
        InvalidPod,
        BudgetExhausted,
        TopologyUnsatisfiable,
        MinValuesNotMet,
        NoExistingNode
    ]
);
wire_enum!(wire::PreferencePolicy, PreferencePolicy, [Respect, Ignore]);
wire_enum!(wire::MinValuesPolicy, MinValuesPolicy, [Strict, BestEffort]);

/// Appends a fragment to the plan of the earlier fragments. Convert the plan only after the last fragment, since
/// terminations refer to launches of all fragments.
pub fn append_fragment(plan: &mut wire::Plan, part: wire::Plan) {
    let wire::Plan {
        mut launches,
        placements,
        terminations,
        mut unschedulable,
        ignored,
        pool_problems,
        postponed_removals,
        ..
    } = part;
    // `like` is an index within the fragment.
    shift(launches.iter_mut().filter_map(|launch| launch.like.as_mut()), plan.launches.len());
    shift(unschedulable.iter_mut().filter_map(|pod| pod.like.as_mut()), plan.unschedulable.len());
    plan.launches.extend(launches);
    plan.placements.extend(placements);
    plan.terminations.extend(terminations);
    plan.unschedulable.extend(unschedulable);
    plan.ignored.extend(ignored);
    plan.pool_problems.extend(pool_problems);
    plan.postponed_removals.extend(postponed_removals);
    plan.snapshot_sequence = part.snapshot_sequence;
    plan.ledger = part.ledger;
    plan.hourly_micro_usd = part.hourly_micro_usd;
    plan.lower_bound_micro_usd = part.lower_bound_micro_usd;
    plan.next_time_unix_ms = part.next_time_unix_ms;
}

/// Adds the number of objects in the fragments before. If there are too many, the receiver rejects the plan.
fn shift<'w>(likes: impl Iterator<Item = &'w mut u32>, before: usize) {
    let before = u32::try_from(before).unwrap_or(u32::MAX);
    likes.for_each(|like| *like = like.saturating_add(before));
}

impl From<&PlanOptions> for wire::PlanOptions {
    fn from(options: &PlanOptions) -> Self {
        Self {
            disruption: options.disruption,
            work_budget: options.work_budget,
            preference_policy: options.preference_policy.to_wire(),
            min_values_policy: options.min_values_policy.to_wire(),
            max_share_per_node_percent: options.max_share_per_node,
            min_saving_per_eviction_micro_usd: Some(options.min_saving_per_eviction.0),
            kept_nodes: options.kept_nodes.iter().map(|node| node.0.clone()).collect(),
            spot_to_spot: options.spot_to_spot,
        }
    }
}

impl From<wire::PlanOptions> for PlanOptions {
    fn from(options: wire::PlanOptions) -> Self {
        let usual = Self::default();
        let work_budget = if options.work_budget == 0 { usual.work_budget } else { options.work_budget };
        let share = options.max_share_per_node_percent;
        // Unknown enum values mean the default.
        Self {
            disruption: options.disruption,
            work_budget,
            preference_policy: PreferencePolicy::from_wire(options.preference_policy).unwrap_or_default(),
            min_values_policy: MinValuesPolicy::from_wire(options.min_values_policy).unwrap_or_default(),
            max_share_per_node: if share == 0 { usual.max_share_per_node } else { share },
            min_saving_per_eviction: options
                .min_saving_per_eviction_micro_usd
                .map_or(usual.min_saving_per_eviction, |micro| MicroUsdPerHour(micro.max(0))),
            spot_to_spot: options.spot_to_spot,
            kept_nodes: options.kept_nodes.into_iter().map(NodeName).collect(),
        }
    }
}

impl From<&Plan> for wire::Plan {
    fn from(plan: &Plan) -> Self {
        Self { launches: to_wire(&plan.launches), unschedulable: to_wire(&plan.unschedulable), ..without_sharers(plan) }
    }
}

/// Converts a plan without its launches and unschedulable pods, which may share lists.
#[must_use]
pub fn without_sharers(plan: &Plan) -> wire::Plan {
    wire::Plan {
        snapshot_sequence: plan.snapshot_sequence,
        ledger: Some(plan.ledger.into()),
        launches: Vec::new(),
        placements: to_wire(&plan.placements),
        terminations: to_wire(&plan.terminations),
        unschedulable: Vec::new(),
        ignored: to_wire(&plan.ignored),
        pool_problems: to_wire(&plan.pool_problems),
        postponed_removals: plan.postponed_removals.iter().map(|node| node.0.clone()).collect(),
        hourly_micro_usd: plan.hourly.0,
        lower_bound_micro_usd: plan.lower_bound.0,
        next_time_unix_ms: plan.next_time.map(|time| time.0),
    }
}

impl TryFrom<wire::Plan> for Plan {
    type Error = ConvertError;
    fn try_from(plan: wire::Plan) -> ConvertResult<Self> {
        convert(plan).map_err(|error| error.within("plan"))
    }
}

fn convert(plan: wire::Plan) -> ConvertResult<Plan> {
    let mut launches: Vec<Launch> = Vec::with_capacity(plan.launches.len());
    for (index, launch) in plan.launches.into_iter().enumerate() {
        let read = launch_after(launch, &launches).map_err(|error| error.within(&format!("launches[{index}]")))?;
        launches.push(read);
    }
    let mut unschedulable: Vec<Unschedulable> = Vec::with_capacity(plan.unschedulable.len());
    for (index, pod) in plan.unschedulable.into_iter().enumerate() {
        let read = unschedulable_after(pod, &unschedulable);
        unschedulable.push(read.map_err(|error| error.within(&format!("unschedulable[{index}]")))?);
    }
    let terminations: Vec<Termination> = list("terminations", plan.terminations)?;
    check_unique(&launches, "launches", ".action_id", |launch| &launch.action_id)?;
    check_unique(&terminations, "terminations", ".action_id", |termination| &termination.action_id)?;
    for (index, termination) in terminations.iter().enumerate() {
        if let Some(place) = termination.replaced_by.iter().position(|launch| *launch >= launches.len()) {
            let field = format!("terminations[{index}].replaced_by[{place}]");
            return Err(ConvertError::new(field, format!("there are only {} launches", launches.len())));
        }
    }
    Ok(Plan {
        snapshot_sequence: plan.snapshot_sequence,
        ledger: plan.ledger.unwrap_or_default().into(),
        launches,
        placements: list("placements", plan.placements)?,
        terminations,
        unschedulable,
        ignored: list("ignored", plan.ignored)?,
        pool_problems: list("pool_problems", plan.pool_problems)?,
        postponed_removals: plan.postponed_removals.into_iter().map(NodeName).collect(),
        hourly: MicroUsdPerHour(not_negative("hourly_micro_usd", plan.hourly_micro_usd)?),
        lower_bound: MicroUsdPerHour(not_negative("lower_bound_micro_usd", plan.lower_bound_micro_usd)?),
        next_time: plan.next_time_unix_ms.map(Timestamp),
    })
}

impl From<&PodRef> for wire::PodRef {
    fn from(pod: &PodRef) -> Self {
        Self { name: pod.name.clone(), uid: pod.uid.0.clone() }
    }
}

impl TryFrom<wire::PodRef> for PodRef {
    type Error = ConvertError;
    fn try_from(pod: wire::PodRef) -> ConvertResult<Self> {
        Ok(Self { name: pod.name, uid: PodUid(key("uid", pod.uid)?) })
    }
}

impl From<&OfferingChoice> for wire::OfferingChoice {
    fn from(choice: &OfferingChoice) -> Self {
        Self {
            instance_type: choice.instance_type.clone(),
            zone: choice.zone.clone(),
            capacity_type: choice.capacity_type.to_wire(),
            price_micro_usd_per_hour: choice.price.0,
            reservation: choice.reservation.clone(),
        }
    }
}

impl TryFrom<wire::OfferingChoice> for OfferingChoice {
    type Error = ConvertError;
    fn try_from(choice: wire::OfferingChoice) -> ConvertResult<Self> {
        Ok(Self {
            instance_type: key("instance_type", choice.instance_type)?,
            zone: key("zone", choice.zone)?,
            capacity_type: enum_value("capacity_type", choice.capacity_type)?,
            price: MicroUsdPerHour(not_negative("price_micro_usd_per_hour", choice.price_micro_usd_per_hour)?),
            reservation: choice.reservation.map(|id| key("reservation", id)).transpose()?,
        })
    }
}

impl From<&Launch> for wire::Launch {
    fn from(launch: &Launch) -> Self {
        let (offerings, requirements) = (to_wire(launch.offerings.as_slice()), to_wire(launch.requirements.as_slice()));
        Self { offerings, requirements, ..without_lists(launch) }
    }
}

/// Converts a launch without offerings and requirements.
fn without_lists(launch: &Launch) -> wire::Launch {
    wire::Launch {
        action_id: launch.action_id.0.clone(),
        node_pool: launch.node_pool.0.clone(),
        node_class: launch.node_class.clone(),
        offerings: Vec::new(),
        requirements: Vec::new(),
        requests: resources_to_wire(&launch.requests),
        taints: to_wire(&launch.taints),
        labels: launch.labels.clone(),
        pods: to_wire(&launch.pods),
        why: launch.why.clone(),
        like: None,
        prioritized: launch.prioritized,
    }
}

/// Converts a launch, which may refer to the lists of an earlier one.
fn launch_after(launch: wire::Launch, before: &[Launch]) -> ConvertResult<Launch> {
    let (offerings, requirements) = match launch.like {
        None if launch.offerings.is_empty() => return Err(ConvertError::new("offerings", "is empty")),
        None => (Arc::new(list("offerings", launch.offerings)?), Arc::new(list("requirements", launch.requirements)?)),
        Some(_) if !launch.offerings.is_empty() || !launch.requirements.is_empty() => {
            return Err(ConvertError::new("like", "is set beside offerings or requirements"));
        }
        Some(index) => {
            let earlier = earlier("launch", index, before)?;
            (Arc::clone(&earlier.offerings), Arc::clone(&earlier.requirements))
        }
    };
    Ok(Launch {
        action_id: ActionId(key("action_id", launch.action_id)?),
        node_pool: NodePoolName(key("node_pool", launch.node_pool)?),
        node_class: launch.node_class,
        offerings,
        requirements,
        requests: resources_from_wire("requests", launch.requests)?,
        taints: list("taints", launch.taints)?,
        labels: launch.labels,
        pods: list("pods", launch.pods)?,
        prioritized: launch.prioritized,
        why: launch.why,
    })
}

/// The object that `like` refers to.
fn earlier<'m, T>(kind: &str, like: u32, before: &'m [T]) -> ConvertResult<&'m T> {
    let found = usize::try_from(like).ok().and_then(|index| before.get(index));
    found.ok_or_else(|| ConvertError::new("like", format!("{kind} {like} is not an earlier one")))
}

impl From<&Placement> for wire::Placement {
    fn from(placement: &Placement) -> Self {
        Self { node: placement.node.0.clone(), pods: to_wire(&placement.pods) }
    }
}

impl TryFrom<wire::Placement> for Placement {
    type Error = ConvertError;
    fn try_from(placement: wire::Placement) -> ConvertResult<Self> {
        Ok(Self { node: NodeName(key("node", placement.node)?), pods: list("pods", placement.pods)? })
    }
}

impl From<&Termination> for wire::Termination {
    fn from(termination: &Termination) -> Self {
        Self {
            action_id: termination.action_id.0.clone(),
            node: termination.node.0.clone(),
            reason: termination.reason.to_wire(),
            pods: to_wire(&termination.pods),
            // An index that does not fit is invalid and rejected by the receiver.
            replaced_by: termination
                .replaced_by
                .iter()
                .map(|launch| u32::try_from(*launch).unwrap_or(u32::MAX))
                .collect(),
            moved_to: to_wire(&termination.moved_to),
            saving_micro_usd_per_hour: termination.saving.0,
        }
    }
}

impl TryFrom<wire::Termination> for Termination {
    type Error = ConvertError;
    fn try_from(termination: wire::Termination) -> ConvertResult<Self> {
        let reason: DisruptionReason = enum_value("reason", termination.reason)?;
        // The actuator removes interrupted nodes itself, and the reason would override all protection.
        if reason == DisruptionReason::Interrupted {
            return Err(ConvertError::new("reason", "is not a reason of plans: Interrupted"));
        }
        Ok(Self {
            action_id: ActionId(key("action_id", termination.action_id)?),
            node: NodeName(key("node", termination.node)?),
            reason,
            pods: list("pods", termination.pods)?,
            replaced_by: termination
                .replaced_by
                .into_iter()
                .map(|launch| usize::try_from(launch).unwrap_or(usize::MAX))
                .collect(),
            moved_to: list("moved_to", termination.moved_to)?,
            saving: MicroUsdPerHour(termination.saving_micro_usd_per_hour),
        })
    }
}

impl From<&Unschedulable> for wire::Unschedulable {
    fn from(unschedulable: &Unschedulable) -> Self {
        let reasons = to_wire(unschedulable.reasons.as_slice());
        Self { pod: Some((&unschedulable.pod).into()), reasons, like: None }
    }
}

/// Converts an unschedulable pod, which may refer to the reasons of an earlier one.
fn unschedulable_after(pod: wire::Unschedulable, before: &[Unschedulable]) -> ConvertResult<Unschedulable> {
    let reasons = match pod.like {
        None => Arc::new(list("reasons", pod.reasons)?),
        Some(_) if !pod.reasons.is_empty() => return Err(ConvertError::new("like", "is set beside reasons")),
        Some(index) => Arc::clone(&earlier("pod", index, before)?.reasons),
    };
    Ok(Unschedulable { pod: required("pod", pod.pod)?, reasons })
}

impl From<&Reason> for wire::Reason {
    fn from(reason: &Reason) -> Self {
        Self { node_pool: reason.node_pool.clone(), code: reason.code.to_wire(), message: reason.message.clone() }
    }
}

impl TryFrom<wire::Reason> for Reason {
    type Error = ConvertError;
    fn try_from(reason: wire::Reason) -> ConvertResult<Self> {
        Ok(Self { node_pool: reason.node_pool, code: enum_value("code", reason.code)?, message: reason.message })
    }
}

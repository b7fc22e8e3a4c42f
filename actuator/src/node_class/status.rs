//! The status of a node class. Each part is looked up periodically and keeps its value while EC2 does not answer, so
//! that launches continue.

use super::dry_run::{self, DryRunCache, Verdict};
use super::{look_up, placement, reservations, validation};
use crate::node_class::controller::NodeClasses;
use plimsoll_api::condition::ec2_node_class::{
    AMIS_READY, CAPACITY_RESERVATIONS_READY, CONDITIONS, CONDITIONS_WITH_RESERVATIONS, INSTANCE_PROFILE_READY,
    PLACEMENT_GROUP_READY, SECURITY_GROUPS_READY, SUBNETS_READY,
};
use plimsoll_api::condition::{self, ConditionSet, Moment, Status};
use plimsoll_api::ec2_node_class::EC2NodeClassStatus;
use plimsoll_api::{Condition, EC2NodeClass};
use std::fmt::Display;
use std::time::Duration;
use tokio::time::Instant;

/// Reason of a condition that is unknown because the cloud did not answer.
const RESOLUTION_FAILED: &str = "ResolutionFailed";

/// A part of the status with its own look-up.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum StatusPart {
    Images,
    Subnets,
    SecurityGroups,
    Profile,
    Reservations,
    PlacementGroup,
}

impl StatusPart {
    pub(super) const ALL: [Self; 6] =
        [Self::Images, Self::Subnets, Self::SecurityGroups, Self::Profile, Self::Reservations, Self::PlacementGroup];

    fn condition(self) -> &'static str {
        match self {
            Self::Images => AMIS_READY,
            Self::Subnets => SUBNETS_READY,
            Self::SecurityGroups => SECURITY_GROUPS_READY,
            Self::Profile => INSTANCE_PROFILE_READY,
            Self::Reservations => CAPACITY_RESERVATIONS_READY,
            Self::PlacementGroup => PLACEMENT_GROUP_READY,
        }
    }

    /// Reason of the condition if EC2 did not answer.
    fn failed(self) -> &'static str {
        if self == Self::PlacementGroup { placement::RESOLUTION_FAILED } else { RESOLUTION_FAILED }
    }

    /// How long a result is valid. Free addresses and instances change with every launch, the others only by user
    /// changes.
    fn period(self) -> Duration {
        match self {
            Self::Subnets | Self::Reservations | Self::PlacementGroup => Duration::from_secs(60),
            Self::Images | Self::SecurityGroups => Duration::from_secs(300),
            Self::Profile => Duration::from_secs(900),
        }
    }
}

/// Delay before a part that found nothing or failed is looked up again.
const RETRY: Duration = Duration::from_secs(30);
/// Minimum delay between passes over a class that has not changed: none of its parts may occupy the controller.
const MIN_DELAY: Duration = Duration::from_secs(1);

/// When the parts of a class were last looked up. In memory: a new leader looks everything up.
#[derive(Debug, Clone, Default)]
pub(super) struct LookUpCache {
    /// The generation that was looked up.
    generation: Option<i64>,
    /// The Kubernetes version that the images were looked up for.
    kubernetes_version: String,
    due: [Option<Instant>; StatusPart::ALL.len()],
    dry_run: DryRunCache,
    /// The status written last; the watch cache may lag behind it.
    status: Option<EC2NodeClassStatus>,
}

impl LookUpCache {
    fn due(&self, part: StatusPart) -> Option<Instant> {
        self.due[part as usize]
    }

    /// Time until the next part is due.
    pub(super) fn next(&self) -> Duration {
        let now = Instant::now();
        let next = self.due.iter().flatten().copied().chain(self.dry_run.due()).min();
        next.map_or(RETRY, |next| next.saturating_duration_since(now)).max(MIN_DELAY)
    }
}

/// The conditions that `Ready` depends on.
pub(super) fn conditions(reserved_capacity: bool) -> &'static ConditionSet {
    if reserved_capacity { &CONDITIONS_WITH_RESERVATIONS } else { &CONDITIONS }
}

/// Result of looking up one part.
pub(super) enum LookUpResult {
    /// Found.
    Yes,
    /// Definitely not found, but what was found before can be used: the message.
    Outdated(String),
    /// Definitely not found: reason and message.
    No(&'static str, String),
}

/// Computes the current status.
pub(super) async fn refresh(deps: &NodeClasses, class: &EC2NodeClass, cache: &mut LookUpCache) -> EC2NodeClassStatus {
    if cache.generation != class.metadata.generation {
        *cache = LookUpCache { generation: class.metadata.generation, ..LookUpCache::default() };
    }
    let version = &deps.current.get().kubernetes_version;
    if cache.kubernetes_version != *version {
        cache.kubernetes_version.clone_from(version);
        cache.due[StatusPart::Images as usize] = None;
    }
    let moment = Moment::of(&class.metadata, deps.clock.now());
    let mut status = cache.status.take().or_else(|| class.status.clone()).unwrap_or_default();
    let reserved_capacity = deps.settings.reserved_capacity;
    let set = conditions(reserved_capacity);
    set.initialize(&mut status.conditions, moment);
    let now = Instant::now();
    let is_due = |part: StatusPart| {
        (part != StatusPart::Reservations || reserved_capacity) && cache.due(part).is_none_or(|at| at <= now)
    };
    for (part, result) in look_up::all(deps, class, is_due, &mut status).await {
        if let Err(error) = &result {
            tracing::warn!(node_class = class.metadata.name, condition = part.condition(), %error, "lookup failed");
        }
        let is_usable = matches!(result, Ok(LookUpResult::Yes | LookUpResult::Outdated(_)));
        let mut holds = if is_usable { part.period() } else { RETRY };
        if part == StatusPart::Reservations {
            holds = holds.min(reservations::next_change(&status, deps.clock.now()).unwrap_or(holds));
        }
        cache.due[part as usize] = Some(Instant::now() + holds);
        record(set, &mut status.conditions, moment, part, result);
    }
    let settings = deps.current.get();
    if let Some(ignored) = validation::check(&settings, class, &mut status, moment) {
        let current = EC2NodeClass { status: Some(status.clone()), ..class.clone() };
        let verdict = match placement::tenancy_problem(&current, &deps.stores.pools.state()) {
            Some(message) => {
                cache.dry_run.is_not_needed();
                Verdict::Refused("SpecValidationFailed", message)
            }
            None => dry_run::verdict(deps, class, &status, &mut cache.dry_run).await,
        };
        validation::conclude(&settings, &mut status, moment, &ignored, verdict);
    } else {
        cache.dry_run.is_not_needed();
    }
    cache.status = Some(status.clone());
    status
}

/// Sets the condition of a part. If the cloud did not answer, a condition that is true for this generation is kept.
fn record(
    set: &ConditionSet,
    conditions: &mut Vec<Condition>,
    moment: Moment,
    part: StatusPart,
    result: Result<LookUpResult, impl Display>,
) {
    let name = part.condition();
    match result {
        Ok(LookUpResult::Yes) => {
            set.set_true(conditions, moment, name);
        }
        Ok(LookUpResult::Outdated(message)) => {
            set.set(conditions, moment, name, Status::True, name, &message);
        }
        Ok(LookUpResult::No(reason, message)) => {
            set.set(conditions, moment, name, Status::False, reason, &message);
        }
        Err(error) => {
            let still_true = condition::get(conditions, name).is_some_and(|condition| {
                condition.status != Status::Unknown.as_str() && condition.observed_generation == Some(moment.generation)
            });
            if !still_true {
                let message = error.to_string();
                set.set(conditions, moment, name, Status::Unknown, part.failed(), &message);
            }
        }
    }
}

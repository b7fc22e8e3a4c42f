//! The status of a node class. Each part is looked up periodically and keeps its value while EC2 does not answer, so
//! that launches continue (spec: AWS provider section 8.4).

use super::images::{self, ImagesError};
use super::{profile, reservations, selectors, validation};
use crate::io::WriteError;
use crate::node_class::controller::NodeClasses;
use plimsoll_api::condition::ec2_node_class::{
    AMIS_READY, CAPACITY_RESERVATIONS_READY, CONDITIONS, CONDITIONS_WITH_RESERVATIONS, INSTANCE_PROFILE_READY,
    PLACEMENT_GROUP_READY, SECURITY_GROUPS_READY, SUBNETS_READY,
};
use plimsoll_api::condition::{self, ConditionSet, Moment, Status};
use plimsoll_api::ec2_node_class::{EC2NodeClassStatus, SecurityGroup, Subnet};
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
}

impl StatusPart {
    const ALL: [Self; 5] = [Self::Images, Self::Subnets, Self::SecurityGroups, Self::Profile, Self::Reservations];

    fn condition(self) -> &'static str {
        match self {
            Self::Images => AMIS_READY,
            Self::Subnets => SUBNETS_READY,
            Self::SecurityGroups => SECURITY_GROUPS_READY,
            Self::Profile => INSTANCE_PROFILE_READY,
            Self::Reservations => CAPACITY_RESERVATIONS_READY,
        }
    }

    /// How long a result is valid. Free addresses and instances change with every launch, the others only by user
    /// changes.
    fn period(self) -> Duration {
        match self {
            Self::Subnets | Self::Reservations => Duration::from_secs(60),
            Self::Images | Self::SecurityGroups => Duration::from_secs(300),
            Self::Profile => Duration::from_secs(900),
        }
    }
}

/// Delay before a part that found nothing or failed is looked up again.
const RETRY: Duration = Duration::from_secs(30);

/// When the parts of a class were last looked up. In memory: a new leader looks everything up.
#[derive(Debug, Clone, Default)]
pub(super) struct LookUpCache {
    /// The generation that was looked up.
    generation: Option<i64>,
    /// The Kubernetes version that the images were looked up for.
    kubernetes_version: String,
    due: [Option<Instant>; StatusPart::ALL.len()],
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
        let next = self.due.iter().flatten().min();
        next.map_or(RETRY, |next| next.saturating_duration_since(now))
    }
}

/// The conditions that `Ready` depends on.
pub(super) fn conditions(reserved_capacity: bool) -> &'static ConditionSet {
    if reserved_capacity { &CONDITIONS_WITH_RESERVATIONS } else { &CONDITIONS }
}

/// Result of looking up one part.
enum LookUpResult {
    /// Found.
    Yes,
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
    for part in StatusPart::ALL.into_iter().filter(|part| *part != StatusPart::Reservations || reserved_capacity) {
        let now = Instant::now();
        if cache.due(part).is_some_and(|at| at > now) {
            continue;
        }
        let result = look_up(deps, class, part, &mut status).await;
        if let Err(error) = &result {
            tracing::warn!(node_class = class.metadata.name, condition = part.condition(), %error, "lookup failed");
        }
        let mut holds = if matches!(result, Ok(LookUpResult::Yes)) { part.period() } else { RETRY };
        if part == StatusPart::Reservations {
            holds = holds.min(reservations::next_change(&status, deps.clock.now()).unwrap_or(holds));
        }
        cache.due[part as usize] = Some(Instant::now() + holds);
        record(set, &mut status.conditions, moment, part.condition(), result);
    }
    placement_group(set, class, &mut status.conditions, moment);
    validation::check(&deps.current.get(), class, &mut status, moment);
    cache.status = Some(status.clone());
    status
}

/// Sets the condition of a part. If the cloud did not answer, a condition that is true for this generation is kept.
fn record(
    set: &ConditionSet,
    conditions: &mut Vec<Condition>,
    moment: Moment,
    name: &str,
    result: Result<LookUpResult, impl Display>,
) {
    match result {
        Ok(LookUpResult::Yes) => {
            set.set_true(conditions, moment, name);
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
                set.set(conditions, moment, name, Status::Unknown, RESOLUTION_FAILED, &message);
            }
        }
    }
}

async fn look_up(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    part: StatusPart,
    status: &mut EC2NodeClassStatus,
) -> Result<LookUpResult, WriteError> {
    match part {
        StatusPart::Images => images(deps, class, status).await,
        StatusPart::Subnets => subnets(deps, class, status).await,
        StatusPart::SecurityGroups => security_groups(deps, class, status).await,
        StatusPart::Profile => instance_profile(deps, class, status).await,
        StatusPart::Reservations => {
            reservations::resolve(deps, class, status).await?;
            Ok(LookUpResult::Yes)
        }
    }
}

async fn images(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    status: &mut EC2NodeClassStatus,
) -> Result<LookUpResult, WriteError> {
    let settings = deps.current.get();
    let version = &settings.kubernetes_version;
    match images::resolve(&deps.cloud_reads, &class.spec, version).await {
        Ok(amis) => {
            let any = !amis.is_empty();
            status.amis = amis;
            let message = || match class.spec.alias() {
                Some(_) => {
                    format!("spec.amiSelectorTerms: AWS publishes no images of this alias for Kubernetes {version}")
                }
                None => "spec.amiSelectorTerms select no image that can be a node".to_owned(),
            };
            Ok(if any { LookUpResult::Yes } else { LookUpResult::No("AMINotFound", message()) })
        }
        Err(ImagesError::UnsupportedAlias(message)) => {
            status.amis.clear();
            Ok(LookUpResult::No("UnsupportedAlias", format!("spec.amiSelectorTerms: {message}")))
        }
        Err(ImagesError::Cloud(error)) => Err(error.into()),
    }
}

async fn subnets(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    status: &mut EC2NodeClassStatus,
) -> Result<LookUpResult, WriteError> {
    let terms = selectors::subnets(&class.spec);
    let mut subnets = match terms.is_empty() {
        true => Vec::new(),
        false => deps.cloud_reads.subnets(&terms).await?,
    };
    subnets.sort_by(|left, right| (right.free_ipv4_addresses, &left.id).cmp(&(left.free_ipv4_addresses, &right.id)));
    let zone_id = |id: String| Some(id).filter(|id| !id.is_empty());
    status.subnets = subnets
        .into_iter()
        .map(|subnet| Subnet { id: subnet.id, zone: subnet.zone, zone_id: zone_id(subnet.zone_id) })
        .collect();
    let message = || "spec.subnetSelectorTerms select no subnet".to_owned();
    Ok(if status.subnets.is_empty() { LookUpResult::No("SubnetsNotFound", message()) } else { LookUpResult::Yes })
}

async fn security_groups(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    status: &mut EC2NodeClassStatus,
) -> Result<LookUpResult, WriteError> {
    let terms = selectors::security_groups(&class.spec);
    let mut groups = match terms.is_empty() {
        true => Vec::new(),
        false => deps.cloud_reads.security_groups(&terms).await?,
    };
    groups.sort_by(|left, right| left.id.cmp(&right.id));
    status.security_groups =
        groups.into_iter().map(|group| SecurityGroup { id: group.id, name: Some(group.name) }).collect();
    let message = || "spec.securityGroupSelectorTerms select no security group".to_owned();
    Ok(if status.security_groups.is_empty() {
        LookUpResult::No("SecurityGroupsNotFound", message())
    } else {
        LookUpResult::Yes
    })
}

async fn instance_profile(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    status: &mut EC2NodeClassStatus,
) -> Result<LookUpResult, WriteError> {
    if class.spec.role.is_none() && class.spec.instance_profile.is_none() {
        let message = "spec.role: one of role and instanceProfile is needed".to_owned();
        return Ok(LookUpResult::No("InstanceProfileNotFound", message));
    }
    status.instance_profile = Some(profile::resolve(deps, class).await?);
    Ok(LookUpResult::Yes)
}

fn placement_group(set: &ConditionSet, class: &EC2NodeClass, conditions: &mut Vec<Condition>, moment: Moment) {
    if class.spec.placement_group_selector.is_none() {
        set.set_true(conditions, moment, PLACEMENT_GROUP_READY);
        return;
    }
    let message = "spec.placementGroupSelector: Plimsoll does not use placement groups";
    let reason = "PlacementGroupResolutionFailed";
    set.set(conditions, moment, PLACEMENT_GROUP_READY, Status::False, reason, message);
}

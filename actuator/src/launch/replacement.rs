//! The like-for-like replacement of an interrupted node for which no plan arrives in time (safety rule 13).

use super::admit::{self, Admission, LaunchObjects, NotAdmitted};
use crate::clock::Timestamped;
use crate::guarded;
use crate::ledger::Rejection;
use crate::state::insufficient_capacity::Wanted;
use crate::state::launch_group::replacement_action;
use kube::ResourceExt;
use plimsoll_api::{EC2NodeClass, NodeClaim};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::identity::NodePoolName;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::quantity::parse_resources;
use plimsoll_model::requirements::{NodeSelectorRequirement, Requirements};
use plimsoll_model::resources::Resources;
use std::sync::Arc;
use tokio::time::Instant;

/// Result of a replacement request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum ReplacementResult {
    /// A claim is being launched.
    Launching {
        /// The claim's name.
        claim: String,
    },
    /// A replacement was requested before.
    AlreadyRequested,
}

/// Why there is no replacement.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum ReplacementError {
    /// The fence refuses.
    #[error(transparent)]
    NotAllowed(#[from] crate::fencing::NotAllowed),
    /// The claim lacks its pool or UID, or has an unreadable field.
    #[error("NodeClaim {0} cannot be replaced like for like: {1}")]
    Claim(String, String),
    /// Pool, node class or catalog do not allow the replacement now.
    #[error("{0}")]
    Refused(String),
    /// The ledger rejects the replacement.
    #[error(transparent)]
    Rejected(#[from] Rejection),
    /// The launch queue is full.
    #[error("launch queue is full")]
    Busy,
}

/// Launches a node with the old claim's requirements, except its offering, within the pool's limits. If pods with
/// volumes move (`moves_volumes`), the node is in the zone of the old one if possible. Idempotent.
///
/// # Errors
/// Why there is no replacement.
pub fn request_replacement(
    deps: &Admission,
    old: &NodeClaim,
    moves_volumes: bool,
) -> Result<ReplacementResult, ReplacementError> {
    deps.fence.check_admission()?;
    let name = old.metadata.name.clone().unwrap_or_default();
    let lacks = |what: &str| ReplacementError::Claim(name.clone(), what.to_owned());
    if let Some(error) = guarded::unreadable(old) {
        return Err(lacks(error));
    }
    let uid = old.metadata.uid.as_deref().ok_or_else(|| lacks("no UID"))?;
    let pool_name = NodePoolName(old.labels().get(label::NODE_POOL).cloned().ok_or_else(|| lacks("no pool"))?);
    let class_name = &old.spec.node_class_ref.name;
    let refused = |message: String| ReplacementError::Refused(message);
    let objects = admit::look_up(deps, &pool_name, class_name).map_err(|refusal| refused(refusal.message))?;
    let old_requirements: Vec<NodeSelectorRequirement> =
        old.spec.requirements.iter().map(NodeSelectorRequirement::from).collect();
    let requirements = Requirements::from_api(&old_requirements).map_err(|error| lacks(&error.to_string()))?;
    let requests = requests(old).map_err(|error| lacks(&error))?;
    let launch = Launch {
        action_id: replacement_action(uid),
        node_pool: pool_name,
        node_class: class_name.clone(),
        offerings: Arc::new(other_offerings(deps, old, (&requirements, &requests), &objects, moves_volumes)),
        requirements: Arc::new(old_requirements),
        requests,
        taints: objects.0.spec.template.spec.taints.iter().map(Into::into).collect(),
        labels: Default::default(),
        pods: Vec::new(),
        prioritized: false,
        why: format!("like-for-like replacement of interrupted NodeClaim {name}"),
    };
    let mut slots = deps.launches.reserve(1).ok_or(ReplacementError::Busy)?;
    let admitted = admit::admit(deps, &launch, objects, |ledger, launch, _, reserved| {
        ledger.admit_replacement(&launch.node_pool, &launch.action_id, reserved.clone())
    });
    let admitted = match admitted {
        Ok(admitted) => admitted,
        Err(NotAdmitted::Repeated(_)) => return Ok(ReplacementResult::AlreadyRequested),
        Err(NotAdmitted::Refused(refusal)) => return Err(refused(refusal.message)),
        Err(NotAdmitted::Rejected(rejection)) => return Err(rejection.into()),
    };
    let claim = admitted.claim.clone();
    let (groups, errors) = admit::group(deps, vec![admitted], &format!("replace-{uid}"));
    if let Some((_, error)) = errors.first() {
        deps.ledger.gone(&claim);
        return Err(refused(error.to_string()));
    }
    for (group, purchase) in groups {
        slots.launch(group, purchase, Instant::now());
    }
    Ok(ReplacementResult::Launching { claim })
}

/// The offerings that fit the old claim, except its own.
fn other_offerings(
    deps: &Admission,
    old: &NodeClaim,
    (requirements, requests): (&Requirements, &Resources),
    (_, class, catalog): &LaunchObjects,
    moves_volumes: bool,
) -> Vec<OfferingChoice> {
    let of = |key: &str| old.labels().get(key).map_or("", String::as_str);
    let former = (of(label::INSTANCE_TYPE), of(label::ZONE), CapacityType::parse(of(label::CAPACITY_TYPE)));
    let mut offerings = deps.offerings(catalog, requirements, requests);
    offerings.retain(|it| (it.instance_type.as_str(), it.zone.as_str(), Some(it.capacity_type)) != former);
    if moves_volumes {
        prefer_zone(deps, of(label::ZONE), class, &mut offerings);
    }
    offerings
}

/// Keeps only offerings in `zone`, if one is available there. PersistentVolumes are not watched here, and most can be
/// attached only in the zone that they are in.
fn prefer_zone(deps: &Admission, zone: &str, class: &EC2NodeClass, offerings: &mut Vec<OfferingChoice>) {
    let group = class.placement_group().map(|group| group.id.as_str());
    let now = deps.clock.timestamp();
    let is_free = |id: &str| deps.ledger.read(|ledger| ledger.free_in_reservation(id)) > 0;
    // Neither lock is held while the other one is taken.
    let is_near = |it: &OfferingChoice| {
        it.zone == zone
            && it.reservation.as_deref().is_none_or(is_free)
            && !deps.insufficient_capacity.lock().contains(Wanted::of(it, group), now)
    };
    // Each offering is judged once: capacity may become known to be missing in between, and nothing would be left.
    let near: Vec<_> = offerings.iter().filter(|it| is_near(it)).cloned().collect();
    if !near.is_empty() {
        *offerings = near;
    }
}

/// The resource requests of a claim.
///
/// # Errors
/// An amount is unreadable.
pub(super) fn requests(claim: &NodeClaim) -> Result<Resources, String> {
    let Some(resources) = &claim.spec.resources else { return Ok(Resources::new()) };
    let amounts = resources.requests.iter().map(|(name, amount)| (name.as_str(), amount.0.as_str()));
    parse_resources(amounts).map_err(|(name, error)| format!("spec.resources.requests.{name}: {error}"))
}

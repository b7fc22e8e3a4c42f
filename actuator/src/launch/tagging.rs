//! Tags instances with the names of their claims and Nodes, for users of EC2. Nothing reads these tags, so a launch
//! does not wait for them: EC2 takes ten calls a second.

use super::record::annotation;
use crate::clock::Timestamped;
use crate::controller_loop::{Candidate, ControllerLoop, Requeue};
use crate::fencing::Fence;
use crate::io::{CloudCalls, ObjectPart, WriteError, Writes};
use crate::metrics::ActuatorMetrics;
use crate::ports::Tags;
use crate::state::zonal_shifts::{ZonalShifts, shifted_zone};
use crate::stores::{Stores, WatchedKind};
use plimsoll_api::NodeClaim;
use plimsoll_model::names::{annotation as key, tag};
use plimsoll_runtime::clock::Clock;
use std::sync::Arc;
use tokio_util::sync::CancellationToken;

/// The tag that the EC2 console shows as an instance's name.
const NAME: &str = "Name";

/// Dependencies of the controller.
#[derive(Clone)]
pub struct Tagging {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Calls to the cloud.
    pub cloud: CloudCalls,
    /// Zones that the cluster is shifted away from. Instances there are tagged after the shift.
    pub zonal_shifts: ZonalShifts,
    /// Time.
    pub clock: Clock,
    /// Fence of the term.
    pub fence: Fence,
    /// Metrics.
    pub metrics: ActuatorMetrics,
}

/// Tags instances until `stop`.
pub async fn run(deps: Tagging, stop: CancellationToken) {
    let work = |claim: Arc<NodeClaim>| tag_instance(deps.clone(), claim);
    let controller = ControllerLoop::new("tagging", &deps.metrics, &deps.stores, &deps.fence);
    controller.run(&stop, &[WatchedKind::NodeClaim], || candidates(&deps), work).await;
}

fn candidates(deps: &Tagging) -> Vec<Candidate<Arc<NodeClaim>>> {
    let shifted = deps.zonal_shifts.zones(&deps.stores, deps.clock.timestamp());
    let wants = |claim: &Arc<NodeClaim>| {
        claim.metadata.deletion_timestamp.is_none()
            && annotation(claim, key::OWNER) == Some(key::OWNER_VALUE)
            && annotation(claim, key::TAGGED).is_none()
            && claim.node_name().is_some()
            && claim.provider_id().is_some()
            && shifted_zone(claim, &shifted).is_none()
    };
    let claims = deps.stores.claims.state().into_iter().filter(wants);
    claims
        .map(|claim| Candidate { key: claim.metadata.name.clone().unwrap_or_default(), version: None, input: claim })
        .collect()
}

async fn tag_instance(deps: Tagging, claim: Arc<NodeClaim>) -> Result<Requeue, WriteError> {
    let Some(node) = claim.node_name() else { return Ok(None) };
    let class = deps.stores.classes.get(&claim.spec.node_class_ref.name);
    let mut tags = Tags::new();
    let (name, uid) = (claim.metadata.name.clone(), claim.metadata.uid.clone());
    tags.extend(name.map(|name| (tag::NODE_CLAIM.to_owned(), name)));
    tags.extend(uid.map(|uid| (tag::NODE_CLAIM_UID.to_owned(), uid)));
    // A `Name` tag in the node class takes precedence.
    if !class.is_some_and(|class| class.spec.tags.contains_key(NAME)) {
        tags.insert(NAME.to_owned(), node.to_owned());
    }
    if let Some(id) = claim.instance_id() {
        deps.cloud.create_tags(&[id.to_owned()], &tags).await?;
    }
    deps.writes
        .update(claim.as_ref(), ObjectPart::Main, |claim| {
            claim.metadata.annotations.get_or_insert_default().insert(key::TAGGED.to_owned(), "true".to_owned());
        })
        .await?;
    Ok(None)
}

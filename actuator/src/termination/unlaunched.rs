//! Claims that go without a providerID (safety rule 14): one of a launch group may have an instance that nobody was told of,
//! and is kept until look-ups by tag have found nothing for long enough. The attempt itself is written on one claim of the
//! group only, so that its absence says nothing.

use crate::clock::Timestamped;
use crate::io::WriteError;
use crate::launch::record::group_of;
use crate::ports::InstanceFilter;
use crate::state::absence::{Absence, SETTLING};
use crate::stores::{instance_id, provider_id};
use crate::termination::Termination;
use kube::ResourceExt;
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::annotation;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Between look-ups of one claim.
const LOOK_UP_EVERY: Millis = Millis::from_seconds(10);

#[derive(Debug, Default)]
struct LookUp {
    absence: Absence,
    last: Timestamp,
}

/// Look-ups by the claim's UID.
#[derive(Debug, Default)]
pub(super) struct LookUps {
    all: Mutex<BTreeMap<String, LookUp>>,
}

impl LookUps {
    /// Whether the claim has no instance for certain.
    pub(super) async fn is_over(&self, deps: &Termination, claim: &NodeClaim) -> Result<bool, WriteError> {
        if !claim.annotations().contains_key(annotation::LAUNCH_GROUP) {
            return Ok(true);
        }
        let Some(group) = group_of(claim) else {
            // Which instances are its own cannot be known; the collection of instances by tag finds them.
            tracing::error!(
                node_claim = claim.name_any(),
                "its launch group cannot be read, it goes without a look-up"
            );
            return Ok(true);
        };
        let (uid, now) = (claim.uid().unwrap_or_default(), deps.clock.timestamp());
        {
            let mut all = self.all.lock();
            let look_up = all.entry(uid.clone()).or_default();
            if look_up.last != Timestamp::default() && now.since(look_up.last) < LOOK_UP_EVERY {
                return Ok(false);
            }
            look_up.last = now;
        }
        let filter =
            InstanceFilter::LaunchGroup { cluster: deps.settings.cluster_name.clone(), group: group.id.clone() };
        let found = deps.cloud_reads.instances(&filter).await?;
        let others = written(deps);
        // Which claim has which instance is settled by the launch, also for claims being deleted; this one waits for it.
        let gone = !found.iter().any(|instance| instance.state.is_alive() && !others.contains(&instance.id));
        let mut all = self.all.lock();
        let look_up = all.entry(uid.clone()).or_default();
        if !gone {
            look_up.absence.found();
            return Ok(false);
        }
        look_up.absence.missed(now);
        let over = look_up.absence.is_confirmed() && look_up.absence.lasted().is_some_and(|lasted| lasted >= SETTLING);
        if over {
            all.remove(&uid);
        }
        Ok(over)
    }
}

/// Instances that are written on some claim.
fn written(deps: &Termination) -> BTreeSet<String> {
    let claims = deps.stores.claims.state();
    claims.iter().filter_map(|claim| provider_id(claim).and_then(instance_id).map(str::to_owned)).collect()
}

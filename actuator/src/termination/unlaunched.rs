//! Deletion of claims without a providerID (safety rule 14). A claim of a launch group may have an instance whose id
//! was lost, so it is kept until the launcher has ended the group, and look-ups by tag have found nothing for long
//! enough. The attempt is recorded on only one claim of the group, so its absence on a claim proves nothing.

use crate::clock::Timestamped;
use crate::io::WriteError;
use crate::launch::record::group_of;
use crate::ports::InstanceFilter;
use crate::state::absence::{Absence, SETTLING};
use crate::termination::Termination;
use kube::ResourceExt;
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::annotation;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::{BTreeMap, BTreeSet};

/// Interval between look-ups of a claim.
const LOOK_UP_EVERY: Millis = Millis::from_seconds(10);

#[derive(Debug, Default)]
struct LookUp {
    absence: Absence,
    last: Timestamp,
}

/// Look-ups by claim UID.
#[derive(Debug, Default)]
pub(super) struct LookUps {
    all: Mutex<BTreeMap<String, LookUp>>,
}

impl LookUps {
    /// Whether it is certain that the claim has no instance.
    pub(super) async fn has_no_instance(&self, deps: &Termination, claim: &NodeClaim) -> Result<bool, WriteError> {
        if !claim.annotations().contains_key(annotation::LAUNCH_GROUP) {
            return Ok(true);
        }
        let Some(group) = group_of(claim) else {
            // The claim's instances cannot be determined; garbage collection finds them by tag.
            tracing::error!(
                node_claim = claim.name_any(),
                "launch group annotation is unreadable, deleting NodeClaim without a look-up"
            );
            return Ok(true);
        };
        let (uid, now) = (claim.uid().unwrap_or_default(), deps.clock.timestamp());
        // The request may still be sent: that nothing was found before says nothing.
        if deps.drain_delay.admission.launches.is_active(&group.id) {
            self.all.lock().remove(&uid);
            return Ok(false);
        }
        {
            let mut look_ups = self.all.lock();
            let look_up = look_ups.entry(uid.clone()).or_default();
            if now.since(look_up.last) < LOOK_UP_EVERY {
                return Ok(false);
            }
            look_up.last = now;
        }
        let filter =
            InstanceFilter::LaunchGroup { cluster: deps.settings.cluster_name.clone(), group: group.id.clone() };
        let instances = deps.cloud_reads.instances(&filter).await?;
        let recorded = written(deps);
        // The launcher matches instances with claims, even claims being deleted. This claim waits for its match.
        let gone = !instances.iter().any(|instance| instance.state.is_alive() && !recorded.contains(&instance.id));
        let mut look_ups = self.all.lock();
        let look_up = look_ups.entry(uid.clone()).or_default();
        if !gone {
            look_up.absence.found();
            return Ok(false);
        }
        look_up.absence.missed(now);
        let over = look_up.absence.duration().is_some_and(|duration| duration >= SETTLING);
        if over {
            look_ups.remove(&uid);
        }
        Ok(over)
    }
}

/// Instances recorded on any claim.
fn written(deps: &Termination) -> BTreeSet<String> {
    let claims = deps.stores.claims.state();
    claims.iter().filter_map(|claim| claim.instance_id().map(str::to_owned)).collect()
}

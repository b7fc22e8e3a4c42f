//! The garbage collection loop: unclaimed instances, and claims whose instance is gone or stopped (safety rule 14).

use super::{exceeds_brake, is_instance_gone, is_unclaimed};
use crate::clock::Timestamped;
use crate::fencing::{CLOUD_CALL, Fence};
use crate::io::{CloudCalls, CloudReads, Reads, Writes};
use crate::launch::record::{self, annotation, awaits_instance, group_of};
use crate::metrics::ActuatorMetrics;
use crate::nodes;
use crate::pacing::interval_passed;
use crate::ports::{Instance, InstanceFilter};
use crate::settings::Settings;
use crate::state::absence::Absence;
use crate::state::instances::ListedInstances;
use crate::state::zonal_shifts::{ZonalShifts, shifted_zone};
use crate::stores::Stores;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::{annotation as key, tag};
use plimsoll_runtime::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval between rounds. Two rounds confirm an absence; a delay costs a minute of an instance's price.
const INTERVAL: Duration = Duration::from_secs(60);

/// Dependencies of the garbage collector.
#[derive(Clone)]
pub struct GarbageCollector {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Live reads of the cluster.
    pub reads: Reads,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Calls to the cloud.
    pub cloud: CloudCalls,
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// Instances as EC2 listed them, for others.
    pub instances: ListedInstances,
    /// Zones that the cluster is shifted away from. Nothing there is concluded from EC2's answers.
    pub zonal_shifts: ZonalShifts,
    /// Settings of the installation.
    pub settings: Arc<Settings>,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Fence of the term.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

impl GarbageCollector {
    fn shifted_zones(&self) -> BTreeSet<String> {
        self.zonal_shifts.zones(&self.stores, self.clock.timestamp())
    }
}

#[derive(Default)]
struct AbsenceTracker {
    claims: BTreeMap<String, Absence>,
    instances: BTreeMap<String, Absence>,
}

/// Collects until `stop`.
pub async fn run(deps: GarbageCollector, stop: CancellationToken) {
    let mut tracker = AbsenceTracker::default();
    while interval_passed(&stop, INTERVAL).await {
        // Another autoscaler collects now. What was read before is outdated afterwards.
        if deps.fence.check(CLOUD_CALL).is_err() {
            tracker = AbsenceTracker::default();
            deps.instances.clear();
            continue;
        }
        if let Err(error) = round(&deps, &mut tracker).await {
            deps.instances.clear();
            tracing::warn!(error, "garbage collection failed, retrying");
        }
    }
}

async fn round(deps: &GarbageCollector, tracker: &mut AbsenceTracker) -> Result<(), String> {
    // List instances first: claims listed afterwards are at least as recent.
    let ours = InstanceFilter::Cluster { cluster: deps.settings.cluster_name.clone() };
    let mut instances = instances(deps, &ours).await?;
    let mut claims = claims(deps).await?;
    collect_instances(deps, tracker, &instances, &claims).await;
    // The instances of adopted claims do not have the owner's tag.
    let adopted: Vec<String> =
        claims.iter().filter(|claim| is_adopted(claim)).filter_map(record::instance).map(str::to_owned).collect();
    if !adopted.is_empty() {
        instances.extend(self::instances(deps, &InstanceFilter::Ids(adopted)).await?);
    }
    deps.instances.replace(&instances);
    let shifted = deps.shifted_zones();
    // An instance that EC2 does not list may run, one that it lists as terminated does not.
    let ended: BTreeSet<&str> =
        instances.iter().filter(|instance| !instance.state.is_alive()).map(|instance| instance.id.as_str()).collect();
    let is_ended = |claim: &NodeClaim| record::instance(claim).is_some_and(|id| ended.contains(id));
    claims.retain(|claim| shifted_zone(claim, &shifted).is_none() || is_ended(claim));
    collect_claims(deps, tracker, &instances, &claims).await;
    Ok(())
}

async fn instances(deps: &GarbageCollector, filter: &InstanceFilter) -> Result<Vec<Instance>, String> {
    deps.cloud_reads.all_instances(filter).await.map_err(|error| error.to_string())
}

/// Whether Karpenter made the claim, which has an EC2NodeClass as all listed claims.
fn is_adopted(claim: &NodeClaim) -> bool {
    annotation(claim, key::OWNER).is_none()
}

async fn claims(deps: &GarbageCollector) -> Result<Vec<NodeClaim>, String> {
    deps.reads.claims().await.map_err(|error| error.to_string())
}

async fn collect_instances(
    deps: &GarbageCollector,
    tracker: &mut AbsenceTracker,
    instances: &[Instance],
    claims: &[NodeClaim],
) {
    let claimed: BTreeSet<&str> = claims.iter().filter_map(record::instance).collect();
    // Instances of a launch group that still waits for some will be matched.
    let awaited: BTreeSet<String> =
        claims.iter().filter(|claim| awaits_instance(claim)).filter_map(group_of).map(|group| group.id).collect();
    let mut absences = BTreeMap::new();
    let mut unclaimed = Vec::new();
    let shifted = deps.shifted_zones();
    for instance in instances.iter().filter(|instance| !shifted.contains(&instance.zone)) {
        let of_group = instance.tags.get(tag::LAUNCH_GROUP).is_some_and(|group| awaited.contains(group));
        if claimed.contains(instance.id.as_str()) || of_group {
            continue;
        }
        let mut absence = tracker.instances.get(&instance.id).copied().unwrap_or_default();
        absence.missed(deps.clock.timestamp());
        absences.insert(instance.id.clone(), absence);
        if is_unclaimed(instance, &deps.settings.cluster_name, absence, deps.clock.timestamp()) {
            unclaimed.push(instance);
        }
    }
    tracker.instances = absences;
    let living = instances.iter().filter(|instance| instance.state.is_alive()).count();
    if exceeds_brake(unclaimed.len(), living) {
        let ids: Vec<&str> = unclaimed.iter().take(10).map(|instance| instance.id.as_str()).collect();
        tracing::error!(
            unclaimed = unclaimed.len(),
            living,
            ?ids,
            "too many instances without a NodeClaim, terminating none; terminate unused ones in EC2"
        );
        deps.metrics.instances_withheld.set(i64::try_from(unclaimed.len()).unwrap_or(i64::MAX));
        return;
    }
    deps.metrics.instances_withheld.set(0);
    for instance in unclaimed {
        terminate(deps, instance).await;
    }
}

async fn terminate(deps: &GarbageCollector, instance: &Instance) {
    tracing::warn!(instance = instance.id, "terminating instance without a NodeClaim");
    deps.metrics.instances_collected.with_label_values(&["unclaimed"]).inc();
    let mut answer = Ok(None);
    let ids = [instance.id.clone()];
    match deps.cloud.terminate(&ids, |_, result| answer = result).await.map(|()| answer) {
        Ok(Ok(_)) => {}
        Ok(Err(error)) => return tracing::warn!(instance = instance.id, %error, "instance not terminated"),
        Err(error) => return tracing::warn!(instance = instance.id, %error, "instance not terminated"),
    }
    let id = instance.provider_id();
    if let Some(node) = deps.stores.nodes.with_provider_id(&id).first()
        && let Err(error) = deps.writes.delete(node.as_ref(), None).await
    {
        tracing::warn!(node = node.metadata.name, %error, "Node not deleted");
    }
}

async fn collect_claims(
    deps: &GarbageCollector,
    tracker: &mut AbsenceTracker,
    instances: &[Instance],
    claims: &[NodeClaim],
) {
    // Pods of a StatefulSet stay bound to a node that is stopped. A notice of the queue would end it, too.
    let runs = |instance: &&Instance| instance.state.is_alive() && !instance.state.is_stopped();
    let running: BTreeSet<&str> = instances.iter().filter(runs).map(|instance| instance.id.as_str()).collect();
    let mut absences = BTreeMap::new();
    for claim in claims.iter().filter(|claim| claim.metadata.deletion_timestamp.is_none()) {
        // The launcher handles claims without an instance.
        let (Some(instance), Some(uid)) = (record::instance(claim), claim.metadata.uid.clone()) else { continue };
        let ours = annotation(claim, key::OWNER) == Some(key::OWNER_VALUE) || is_adopted(claim);
        if running.contains(instance) || !ours {
            continue;
        }
        let mut absence = tracker.claims.get(&uid).copied().unwrap_or_default();
        absence.missed(deps.clock.timestamp());
        absences.insert(uid, absence);
        let node_ready = deps.stores.nodes_of(claim).first().is_some_and(|node| nodes::is_ready(node));
        let created = plimsoll_snapshot::created(&claim.metadata);
        if is_instance_gone(absence, created, node_ready, deps.clock.timestamp()) {
            tracing::warn!(
                claim = claim.metadata.name,
                instance,
                "deleting NodeClaim, its instance is gone or stopped"
            );
            if let Err(error) = deps.writes.delete(claim, None).await {
                tracing::warn!(claim = claim.metadata.name, %error, "NodeClaim not deleted");
                continue;
            }
            deps.metrics.claims.disrupted(claim, "garbage_collected", None, 0);
            deps.metrics.claims_collected.with_label_values(&["instance_gone"]).inc();
        }
    }
    tracker.claims = absences;
}

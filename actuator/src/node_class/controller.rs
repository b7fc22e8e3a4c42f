//! The EC2NodeClass controller loop.

use super::status::{self, LookUpCache};
use super::{finalize, hash, profile};
use crate::cluster_facts::Current;
use crate::controller_loop::{Candidate, ControllerLoop, Requeue};
use crate::events::Recorder;
use crate::fencing::Fence;
use crate::io::{CloudCalls, CloudReads, ObjectPart, WriteError, Writes};
use crate::launch_template::LaunchTemplates;
use crate::ledger::handle::LedgerHandle;
use crate::metrics::ActuatorMetrics;
use crate::pacing::interval_passed;
use crate::settings::Settings;
use crate::state::catalogs::Catalogs;
use crate::state::subnet_addresses::SubnetAddresses;
use crate::stores::{Stores, WatchedKind};
use parking_lot::Mutex;
use plimsoll_api::EC2NodeClass;
use plimsoll_model::identity::ContentHasher;
use plimsoll_model::names::annotation;
use plimsoll_runtime::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Polling interval while another autoscaler is active and nothing may be written.
const PAUSED_POLL_INTERVAL: Duration = Duration::from_secs(10);
/// Interval between scans for unused instance profiles.
const PROFILES_PERIOD: Duration = Duration::from_secs(1800);
/// How long a profile is kept after its last use, since an instance may be about to launch with it.
const PROFILE_PROTECTED: Duration = Duration::from_secs(3600);

/// Dependencies of the controller.
#[derive(Clone)]
pub struct NodeClasses {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Calls to the cloud.
    pub cloud: CloudCalls,
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// Catalogs of the node classes.
    pub catalogs: Catalogs,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Launch templates.
    pub launch_templates: LaunchTemplates,
    /// Free addresses of subnets.
    pub subnet_addresses: SubnetAddresses,
    /// Settings with the facts of the cluster.
    pub current: Current,
    /// Settings of the installation.
    pub settings: Arc<Settings>,
    /// Events on objects.
    pub events: Recorder,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Fence of the term.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

type LookUpCaches = Arc<Mutex<BTreeMap<String, LookUpCache>>>;

/// Keeps the status of all node classes up to date, and finalizes deleted ones.
pub async fn run(deps: NodeClasses, stop: CancellationToken) {
    let caches_by_uid = LookUpCaches::default();
    let caches = Arc::clone(&caches_by_uid);
    let list_deps = deps.clone();
    let list = move || {
        let deps = &list_deps;
        let classes = deps.stores.classes.state();
        let uids: BTreeSet<&str> = classes.iter().filter_map(|class| class.metadata.uid.as_deref()).collect();
        caches.lock().retain(|uid, _| uids.contains(uid.as_str()));
        classes.iter().map(|class| candidate(deps, Arc::clone(class))).collect()
    };
    let work_context = deps.clone();
    let work = move |class: Arc<EC2NodeClass>| {
        let (deps, caches_by_uid) = (work_context.clone(), Arc::clone(&caches_by_uid));
        async move { reconcile(&deps, &class, &caches_by_uid).await }
    };
    let kinds = [WatchedKind::EC2NodeClass, WatchedKind::NodeClaim];
    let controller = ControllerLoop::new("node_class", &deps.metrics, &deps.stores, &deps.fence);
    tokio::join!(controller.run(&stop, &kinds, list, work), collect_profiles(&deps, &stop));
}

/// Candidate of a class. Its version covers what users write and, while the class is being deleted, the claims that use
/// it. The status is excluded, since this controller writes it.
fn candidate(deps: &NodeClasses, class: Arc<EC2NodeClass>) -> Candidate<Arc<EC2NodeClass>> {
    let metadata = &class.metadata;
    let mut hasher = ContentHasher::new("node class");
    hasher.text(metadata.uid.as_deref().unwrap_or_default());
    hasher.part(&metadata.generation.unwrap_or(0).to_le_bytes());
    hash::user_annotations(&class, &mut hasher);
    if metadata.deletion_timestamp.is_some() {
        hasher.part(&(finalize::claims_of(deps, &class).len() as u64).to_le_bytes());
    }
    let version = u64::from_str_radix(&hasher.hex(16), 16).ok();
    Candidate { key: metadata.name.clone().unwrap_or_default(), version, input: class }
}

async fn reconcile(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    caches_by_uid: &LookUpCaches,
) -> Result<Requeue, WriteError> {
    if deps.fence.paused().is_some() {
        return Ok(Some(PAUSED_POLL_INTERVAL));
    }
    // The watch cache may lag behind the last write. The next change triggers another pass.
    if class.metadata.deletion_timestamp.is_some() {
        let done = finalize::finalize(deps, class).await?;
        return Ok((!done).then_some(PAUSED_POLL_INTERVAL));
    }
    // A claim that cannot be written keeps the class from nothing else.
    let carried_over = hash::carry_over_claims(deps, class).await;
    // The status is written on the version that this returns.
    let Some(class) = &hash::mark(deps, class).await? else { return Ok(None) };
    let uid = class.metadata.uid.clone().unwrap_or_default();
    let mut cache = caches_by_uid.lock().get(&uid).cloned().unwrap_or_default();
    let refreshed = status::refresh(deps, class, &mut cache).await;
    let next = cache.next();
    let updated = deps
        .writes
        .update(class, ObjectPart::Status, |class| {
            class.status = Some(refreshed.clone());
        })
        .await?;
    // A part counts as looked up only if its result was written.
    if updated.exists() {
        caches_by_uid.lock().insert(uid, cache);
    }
    carried_over.map(|()| Some(next))
}

/// Periodically deletes instance profiles that no class and no claim uses any more.
async fn collect_profiles(deps: &NodeClasses, stop: &CancellationToken) {
    let mut last_used: BTreeMap<String, Instant> = BTreeMap::new();
    while interval_passed(stop, PROFILES_PERIOD).await {
        if let Err(error) = delete_unused_profiles(deps, &mut last_used).await {
            tracing::warn!(%error, "unused instance profiles not deleted, retrying");
        }
    }
}

/// Deletes the profiles whose last use is long ago.
async fn delete_unused_profiles(
    deps: &NodeClasses,
    last_used: &mut BTreeMap<String, Instant>,
) -> Result<(), WriteError> {
    let (used, now) = (used_profiles(deps), Instant::now());
    last_used.extend(used.iter().map(|name| (name.clone(), now)));
    let unused = profile::unused(deps, &used).await?;
    last_used.retain(|name, _| used.contains(name) || unused.contains(name));
    // A profile that was never seen in use may be a former leader's: its protection starts now.
    for name in &unused {
        last_used.entry(name.clone()).or_insert(now);
    }
    let is_over = |name: &&String| last_used.get(*name).is_some_and(|at| now.duration_since(*at) >= PROFILE_PROTECTED);
    let gone: Vec<String> = unused.iter().filter(is_over).cloned().collect();
    profile::delete(deps, &gone).await
}

/// Profiles of classes, and profiles that claims were launched with.
fn used_profiles(deps: &NodeClasses) -> BTreeSet<String> {
    let classes = deps.stores.classes.state();
    let claims = deps.stores.claims.state();
    let of_classes = classes.iter().filter_map(|class| class.status.as_ref()?.instance_profile.clone());
    let of_claims = claims
        .iter()
        .filter_map(|claim| claim.metadata.annotations.as_ref()?.get(annotation::INSTANCE_PROFILE_NAME).cloned());
    of_classes.chain(of_claims).collect()
}

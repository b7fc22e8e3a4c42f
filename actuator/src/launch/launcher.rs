//! Executes launch groups concurrently, and resumes unfinished ones.

use super::attempt::Attempt;
use super::purchase::Purchase;
use super::record::{self, Resumption};
use super::{LaunchGroup, run, stored, write};
use crate::clock::Timestamped;
use crate::events::Recorder;
use crate::fencing::Fence;
use crate::io::{CloudCalls, CloudReads, Reads, Writes};
use crate::launch_template::LaunchTemplates;
use crate::ledger::handle::LedgerHandle;
use crate::metrics::ActuatorMetrics;
use crate::settings::Settings;
use crate::state::catalogs::Catalogs;
use crate::state::insufficient_capacity::InsufficientCapacity;
use crate::state::outcomes::Outcomes;
use crate::state::subnet_addresses::SubnetAddresses;
use crate::state::zonal_shifts::ZonalShifts;
use crate::stores::Stores;
use futures::future::{BoxFuture, Fuse, FusedFuture, FutureExt};
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::annotation;
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::clock::Clock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Capacity of the queue of groups, and number of groups above which none is taken from it: most of them wait. When the
/// queue is full, plans are not admitted and the watcher asks again.
pub const QUEUE: usize = 1024;
/// Groups that write their claims or send their first request at the same time. The rate limiter would only delay more
/// of them.
const GROUPS_AT_ONCE: usize = 64;
/// Interval between scans for unfinished groups, which result only from errors and crashes.
const SCAN_INTERVAL: Duration = Duration::from_secs(30);
/// Minimum age of a claim of this term before the scan may pick it up: its object may appear before its group is
/// registered.
const MIN_AGE: Duration = Duration::from_secs(10);

/// Dependencies of the launcher.
#[derive(Clone)]
pub struct Launcher {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Catalog of each node class.
    pub catalogs: Catalogs,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Queue of admitted launch groups.
    pub launches: LaunchQueue,
    /// Live reads of the cluster.
    pub reads: Reads,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Calls to the cloud.
    pub cloud: CloudCalls,
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// Launch templates.
    pub launch_templates: LaunchTemplates,
    /// Offerings known to lack capacity.
    pub insufficient_capacity: Arc<Mutex<InsufficientCapacity>>,
    /// Free addresses of subnets.
    pub subnet_addresses: SubnetAddresses,
    /// Zones that the cluster is shifted away from.
    pub zonal_shifts: ZonalShifts,
    /// Outcomes of actions.
    pub outcomes: Outcomes,
    /// Events on objects.
    pub events: Recorder,
    /// Settings of the installation.
    pub settings: Arc<Settings>,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Fence of the term.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

/// A group in the queue.
#[derive(Debug)]
enum Queued {
    /// An admitted group, what it requests, and when its plan was received.
    Admitted(LaunchGroup, Purchase, Instant),
    /// A group whose claims and attempt are already in the cluster.
    Written(LaunchGroup, Box<Attempt>),
}

/// Receiver of the queue.
#[derive(Debug)]
pub struct Groups(mpsc::Receiver<Queued>);

/// Sender of admitted groups.
#[derive(Debug, Clone)]
pub struct LaunchQueue {
    queue: mpsc::Sender<Queued>,
    active: Arc<Mutex<BTreeSet<String>>>,
}

/// Reserved slots in the queue. They are taken before admission, since no step may fail between admission and queue.
#[derive(Debug)]
pub struct QueueSlots<'a> {
    permits: mpsc::PermitIterator<'a, Queued>,
    active: &'a Mutex<BTreeSet<String>>,
}

impl QueueSlots<'_> {
    /// Queues a group. Groups beyond the reserved slots are dropped, which no caller causes.
    pub fn launch(&mut self, group: LaunchGroup, purchase: Purchase, received: Instant) {
        self.active.lock().insert(group.id().to_owned());
        match self.permits.next() {
            Some(permit) => permit.send(Queued::Admitted(group, purchase, received)),
            None => tracing::error!(group = group.id(), "no slot was reserved for the launch group, it is dropped"),
        }
    }
}

/// Marks a group as active while its claims are written, so that the scan for unfinished groups skips it.
#[derive(Debug)]
pub struct ActiveGroup<'a> {
    queue: &'a LaunchQueue,
    id: String,
}

impl ActiveGroup<'_> {
    /// Queues the group, whose claims and attempt are in the cluster. If the queue is full, the scan finds it later.
    pub fn launch(mut self, group: LaunchGroup, attempt: Attempt) {
        if self.queue.queue.try_send(Queued::Written(group, Box::new(attempt))).is_ok() {
            // Stays active until the launcher has executed the group.
            self.id.clear();
        }
    }
}

impl Drop for ActiveGroup<'_> {
    fn drop(&mut self) {
        self.queue.active.lock().remove(&self.id);
    }
}

impl LaunchQueue {
    /// Creates a queue and its receiver for [`run`](fn@run).
    #[must_use]
    pub fn new() -> (Self, Groups) {
        let (queue, groups) = mpsc::channel(QUEUE);
        (Self { queue, active: Arc::default() }, Groups(groups))
    }

    /// Reserves slots for this many groups; `None` if the queue is too full.
    #[must_use]
    pub fn reserve(&self, groups: usize) -> Option<QueueSlots<'_>> {
        let permits = self.queue.try_reserve_many(groups).ok()?;
        Some(QueueSlots { permits, active: &self.active })
    }

    /// Marks a group as active; `None` if it is active already.
    #[must_use]
    pub fn activate(&self, group: &str) -> Option<ActiveGroup<'_>> {
        let id = group.to_owned();
        // The lock must be free again: dropping an `ActiveGroup` takes it.
        let is_new = self.active.lock().insert(id.clone());
        is_new.then(|| ActiveGroup { queue: self, id })
    }

    /// Whether a group is queued or being executed.
    #[must_use]
    pub fn is_active(&self, group: &str) -> bool {
        self.active.lock().contains(group)
    }
}

/// Executes groups until `stop`. Must be started only once a former leader's calls are over.
pub async fn run(deps: Launcher, mut groups: Groups, stop: CancellationToken) {
    let limit = Arc::new(Semaphore::new(GROUPS_AT_ONCE));
    let mut tasks = Tasks::default();
    let mut interval = tokio::time::interval(SCAN_INTERVAL);
    interval.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    // The list may take long, and nothing else waits for it.
    let mut scan: Fuse<BoxFuture<'_, Vec<NodeClaim>>> = Fuse::terminated();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = tasks.running.join_next_with_id() => finished(&deps, &mut tasks, ended),
            group = groups.0.recv(), if tasks.running.len() < QUEUE => match group {
                Some(Queued::Admitted(group, purchase, received)) => {
                    start_admitted(&deps, &mut tasks, &limit, group, purchase, received);
                }
                Some(Queued::Written(group, attempt)) => {
                    resume_group(&deps, &mut tasks, &limit, group, Resumption::Send(attempt));
                }
                None => break,
            },
            claims = &mut scan => {
                for (group, resumption) in unfinished(&deps, claims, &tasks.ended) {
                    resume_group(&deps, &mut tasks, &limit, group, resumption);
                }
            }
            _ = interval.tick(), if scan.is_terminated() => {
                tasks.ended.clear();
                scan = listed(&deps).boxed().fuse();
            }
        }
    }
    tasks.running.shutdown().await;
}

/// Running groups, by task.
#[derive(Default)]
struct Tasks {
    running: JoinSet<()>,
    groups: HashMap<Id, String>,
    /// Groups that ended since the last scan began: its list may show them as they were before.
    ended: BTreeSet<String>,
}

impl Tasks {
    fn spawn(&mut self, group: String, work: impl Future<Output = ()> + Send + 'static) {
        let id = self.running.spawn(work).id();
        self.groups.insert(id, group);
    }
}

/// However the group ended, the scan resumes claims that still wait.
fn finished(deps: &Launcher, tasks: &mut Tasks, ended: Result<(Id, ()), JoinError>) {
    let id = match &ended {
        Ok((id, ())) => *id,
        Err(error) => error.id(),
    };
    let Some(group) = tasks.groups.remove(&id) else { return };
    if let Err(error) = ended {
        tracing::error!(%group, %error, "launch task failed, looking up its instances");
    }
    deps.launches.active.lock().remove(&group);
    tasks.ended.insert(group);
}

fn start_admitted(
    deps: &Launcher,
    tasks: &mut Tasks,
    limit: &Arc<Semaphore>,
    group: LaunchGroup,
    purchase: Purchase,
    received: Instant,
) {
    let (deps, limit, id) = (deps.clone(), Arc::clone(limit), group.id().to_owned());
    tasks.spawn(id, async move {
        // Groups that wait for a launch template do not keep others from being launched.
        let Some(request) = run::request(&deps, &group, &purchase).await else { return };
        let permit = limit.acquire_owned().await.ok();
        run::start(&deps, group, purchase, request, permit, received).await;
    });
}

fn resume_group(
    deps: &Launcher,
    tasks: &mut Tasks,
    limit: &Arc<Semaphore>,
    group: LaunchGroup,
    resumption: Resumption,
) {
    deps.launches.active.lock().insert(group.id().to_owned());
    let (deps, limit, id) = (deps.clone(), Arc::clone(limit), group.id().to_owned());
    tasks.spawn(id, async move {
        // A group that is looked up mostly waits.
        let permit = match &resumption {
            Resumption::Send(_) | Resumption::Abandon => limit.acquire_owned().await.ok(),
            Resumption::LookUp { .. } => None,
        };
        match resumption {
            Resumption::Send(attempt) => run::resume(&deps, group, *attempt, permit).await,
            Resumption::Abandon => abandon_unsent(&deps, group).await,
            Resumption::LookUp { problem } => {
                tracing::warn!(
                    group = group.id(),
                    problem,
                    "launch request not resent, looking up its instances by tag"
                );
                run::look_up_only(&deps, group).await;
            }
        }
    });
}

/// Deletes the claims of a group that was never completely written: nothing was sent for it (safety rules 2 and 16).
async fn abandon_unsent(deps: &Launcher, group: LaunchGroup) {
    for (name, claim) in group.claims {
        tracing::warn!(claim = name, "deleting NodeClaim of a launch that was never sent");
        match write::abandon(deps, &claim).await {
            Ok(()) => deps.ledger.with(|ledger| ledger.gone(&name)),
            Err(error) => tracing::warn!(claim = name, %error, "NodeClaim not deleted"),
        }
    }
}

/// All claims, from a live list; none if no group seems to be unfinished.
async fn listed(deps: &Launcher) -> Vec<NodeClaim> {
    if !seems_unfinished(deps) {
        return Vec::new();
    }
    deps.reads.claims().await.unwrap_or_else(|error| {
        tracing::warn!(%error, "NodeClaims not listed");
        Vec::new()
    })
}

/// Groups with claims that wait for an instance but are not being executed. The next scan judges groups that `ended`
/// since the list began.
fn unfinished(deps: &Launcher, claims: Vec<NodeClaim>, ended: &BTreeSet<String>) -> Vec<(LaunchGroup, Resumption)> {
    let mut groups: BTreeMap<String, LaunchGroup> = BTreeMap::new();
    for claim in claims {
        let Some(key) = record::group_of(&claim) else { continue };
        let cycle_id = format!("recovery-{}", deps.fence.epoch());
        let new = |key| LaunchGroup { key, claims: BTreeMap::new(), held: BTreeMap::new(), cycle_id };
        let group = groups.entry(key.id.clone()).or_insert_with(|| new(key));
        group.claims.insert(record::name(&claim).to_owned(), claim);
    }
    groups.retain(|id, group| {
        let is_idle = !deps.launches.is_active(id) && !ended.contains(id);
        is_idle && group.claims.values().any(|claim| wants_instance(deps, claim))
    });
    let may_send_again = |claim: &str| deps.ledger.read(|ledger| ledger.may_send_again(claim));
    let resumption = |group: LaunchGroup| {
        let resumption = checked(deps, &group, record::read(&group, may_send_again));
        (group, resumption)
    };
    groups.into_values().map(resumption).collect()
}

/// A group whose request names what its node class does not select is only looked up.
fn checked(deps: &Launcher, group: &LaunchGroup, resumption: Resumption) -> Resumption {
    let Resumption::Send(attempt) = resumption else { return resumption };
    let class = group.claims.values().next().map(|claim| &claim.spec.node_class_ref.name);
    let class = class.and_then(|class| deps.stores.classes.get(class));
    match stored::check(group, &attempt.request, class.as_deref()) {
        Ok(()) => Resumption::Send(attempt),
        Err(problem) => Resumption::LookUp { problem },
    }
}

/// Whether the watch cache shows an unfinished claim. Usually there is none, which saves the live list.
fn seems_unfinished(deps: &Launcher) -> bool {
    deps.stores.claims.state().iter().any(|claim| {
        let inactive = record::group_of(claim).is_some_and(|group| !deps.launches.is_active(&group.id));
        inactive && wants_instance(deps, claim)
    })
}

/// Includes claims being deleted: their instances are adopted, and terminated with them.
fn wants_instance(deps: &Launcher, claim: &NodeClaim) -> bool {
    record::awaits_instance(claim) && !is_new(claim, deps.fence.epoch(), deps.clock.timestamp())
}

/// Whether the group of a claim of this term may not be registered yet.
fn is_new(claim: &NodeClaim, epoch: u64, now: Timestamp) -> bool {
    let age = now.since(plimsoll_snapshot::created(&claim.metadata));
    let is_recent = u128::from(age.0) < MIN_AGE.as_millis();
    let is_of_this_term = record::annotation(claim, annotation::EPOCH) == Some(epoch.to_string().as_str());
    is_recent && is_of_this_term
}

#[cfg(test)]
mod tests;

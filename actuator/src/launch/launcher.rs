//! Executes launch groups concurrently, and resumes unfinished ones.

use super::admit::PreparedGroup;
use super::record::{self, Group, GroupState, Member};
use super::{run, stored, write};
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
use crate::stores::Stores;
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use plimsoll_runtime::clock::Clock;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Capacity of the queue of groups. When it is full, plans are not admitted and the watcher asks again.
pub const QUEUE: usize = 1024;
/// Groups executed concurrently. The rate limiter would only delay more of them.
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

/// Receiver of admitted groups, each with the time at which its plan was received.
pub type Groups = mpsc::Receiver<(PreparedGroup, Instant)>;

/// Sender of admitted groups.
#[derive(Debug, Clone)]
pub struct LaunchQueue {
    queue: mpsc::Sender<(PreparedGroup, Instant)>,
    active: Arc<Mutex<BTreeSet<String>>>,
}

/// Reserved slots in the queue. They are taken before admission, since no step may fail between admission and queue.
#[derive(Debug)]
pub struct QueueSlots<'a> {
    permits: mpsc::PermitIterator<'a, (PreparedGroup, Instant)>,
    active: &'a Mutex<BTreeSet<String>>,
}

impl QueueSlots<'_> {
    /// Queues a group. Groups beyond the reserved slots are dropped, which no caller causes.
    pub fn launch(&mut self, group: PreparedGroup, received: Instant) {
        self.active.lock().insert(group.id().to_owned());
        if let Some(permit) = self.permits.next() {
            permit.send((group, received));
        }
    }
}

impl LaunchQueue {
    /// Creates a queue and its receiver for [`run`].
    #[must_use]
    pub fn new() -> (Self, Groups) {
        let (queue, groups) = mpsc::channel(QUEUE);
        (Self { queue, active: Arc::default() }, groups)
    }

    /// Reserves slots for this many groups; `None` if the queue is too full.
    #[must_use]
    pub fn reserve(&self, groups: usize) -> Option<QueueSlots<'_>> {
        let permits = self.queue.try_reserve_many(groups).ok()?;
        Some(QueueSlots { permits, active: &self.active })
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
    let mut scan = tokio::time::interval(SCAN_INTERVAL);
    scan.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = tasks.running.join_next_with_id() => finished(&deps, &mut tasks, ended),
            group = groups.recv() => match group {
                Some((group, received)) => start_admitted(&deps, &mut tasks, &limit, group, received),
                None => break,
            },
            _ = scan.tick() => {
                for (id, state) in unfinished(&deps).await {
                    resume_group(&deps, &mut tasks, &limit, id, state);
                }
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
        tracing::error!(%group, %error, "a launch broke, its instances are looked for");
    }
    deps.launches.active.lock().remove(&group);
}

fn start_admitted(deps: &Launcher, tasks: &mut Tasks, limit: &Arc<Semaphore>, group: PreparedGroup, received: Instant) {
    let (deps, limit, id) = (deps.clone(), Arc::clone(limit), group.id().to_owned());
    tasks.spawn(id, async move {
        let _permit = limit.acquire_owned().await;
        run::start(&deps, group, received).await;
    });
}

fn resume_group(deps: &Launcher, tasks: &mut Tasks, limit: &Arc<Semaphore>, id: String, state: GroupState) {
    deps.launches.active.lock().insert(id.clone());
    let (deps, limit) = (deps.clone(), Arc::clone(limit));
    tasks.spawn(id, async move {
        let _permit = limit.acquire_owned().await;
        match state {
            GroupState::Whole(group, attempt) => run::resume(&deps, *group, attempt).await,
            GroupState::Unsent(members) => abandon_unsent(&deps, members).await,
            GroupState::LookUp { group, members, problem } => {
                tracing::warn!(group = %group.id, problem, "the launch is not sent again, its instances are looked up by tag");
                let cycle_id = format!("recovery-{}", deps.fence.epoch());
                run::look_up_only(&deps, group, members, cycle_id).await;
            }
        }
    });
}

/// Deletes the claims of a group that was never completely written: nothing was sent for it (safety rules 2 and 16).
async fn abandon_unsent(deps: &Launcher, members: BTreeMap<String, Member>) {
    for member in members.into_values() {
        tracing::warn!(claim = member.name(), "a claim of a launch that was never sent is taken away");
        match write::abandon(deps, &member.claim).await {
            Ok(()) => deps.ledger.with(|ledger| ledger.gone(member.name())),
            Err(error) => tracing::warn!(claim = member.name(), %error, "it is still there"),
        }
    }
}

/// Groups with claims that wait for an instance but are not being executed, from a live list.
async fn unfinished(deps: &Launcher) -> Vec<(String, GroupState)> {
    if !seems_unfinished(deps) {
        return Vec::new();
    }
    let claims = match deps.reads.claims().await {
        Ok(claims) => claims,
        Err(error) => {
            tracing::warn!(%error, "NodeClaims not listed");
            return Vec::new();
        }
    };
    let mut groups: BTreeMap<String, Vec<NodeClaim>> = BTreeMap::new();
    for claim in claims {
        if let Some(group) = record::group_of(&claim) {
            groups.entry(group.id).or_default().push(claim);
        }
    }
    let cycle_id = format!("recovery-{}", deps.fence.epoch());
    let unfinished_groups = groups
        .into_iter()
        .filter(|(id, claims)| !deps.launches.is_active(id) && claims.iter().any(|claim| wants_instance(deps, claim)));
    unfinished_groups
        .filter_map(|(id, claims)| {
            let group = record::group_of(claims.first()?)?;
            let members = claims.into_iter().map(Member::of).map(|member| (member.name().to_owned(), member)).collect();
            let may_send_again = |claim: &str| deps.ledger.read(|ledger| ledger.may_send_again(claim));
            Some((id, checked(deps, record::read(group, members, &cycle_id, may_send_again))))
        })
        .collect()
}

/// A group whose request names what its node class does not select is only looked up.
fn checked(deps: &Launcher, state: GroupState) -> GroupState {
    let GroupState::Whole(group, attempt) = state else { return state };
    let class = group.members.values().next().map(|member| &member.claim.spec.node_class_ref.name);
    let class = class.and_then(|class| deps.stores.classes.get(class));
    match stored::check(&group, class.as_deref()) {
        Ok(()) => GroupState::Whole(group, attempt),
        Err(problem) => {
            let Group { group, members, .. } = *group;
            GroupState::LookUp { group, members, problem }
        }
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
    let created = claim.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
    let is_recent =
        u128::from(deps.clock.timestamp().since(plimsoll_model::time::Timestamp(created)).0) < MIN_AGE.as_millis();
    let epoch = record::annotation(claim, plimsoll_model::names::annotation::EPOCH);
    let is_of_this_term = epoch == Some(deps.fence.epoch().to_string().as_str());
    record::awaits_instance(claim) && !(is_recent && is_of_this_term)
}

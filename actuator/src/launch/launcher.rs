//! Carries out groups side by side, and goes on with those that somebody left unfinished.

use super::admit::Prepared;
use super::record::{self, Found, Member};
use super::{run, write};
use crate::context::Context;
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::future::Future;
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::{Semaphore, mpsc};
use tokio::task::{Id, JoinError, JoinSet};
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Groups that wait to be carried out. Beyond it no plan is admitted: the watcher asks again.
pub const QUEUE: usize = 1024;
/// Groups at once. EC2 is asked for them at the pace of its token bucket, so more would only wait there.
const GROUPS_AT_ONCE: usize = 64;
/// Unfinished groups are looked for so often. They come from errors and crashes alone.
const SWEEP: Duration = Duration::from_secs(30);
/// A claim of this term without a group at work is left alone for so long: its object may show before its group is noted.
const YOUNG: Duration = Duration::from_secs(10);

/// Where groups that were admitted go.
#[derive(Debug, Clone)]
pub struct Launches {
    queue: mpsc::Sender<(Prepared, Instant)>,
    active: Arc<Mutex<BTreeSet<String>>>,
}

/// Room for groups: taken before admission, since nothing may come between it and the queue.
#[derive(Debug)]
pub struct Room<'a> {
    permits: mpsc::PermitIterator<'a, (Prepared, Instant)>,
    active: &'a Mutex<BTreeSet<String>>,
}

impl Room<'_> {
    /// Hands a group over. More groups than room was taken for are dropped, which no caller does.
    pub fn launch(&mut self, group: Prepared, received: Instant) {
        self.active.lock().insert(group.id().to_owned());
        if let Some(permit) = self.permits.next() {
            permit.send((group, received));
        }
    }
}

impl Launches {
    /// A queue, and its end for [`run`].
    #[must_use]
    pub fn new() -> (Self, mpsc::Receiver<(Prepared, Instant)>) {
        let (queue, groups) = mpsc::channel(QUEUE);
        (Self { queue, active: Arc::default() }, groups)
    }

    /// Room for so many groups; `None` if too many wait already.
    #[must_use]
    pub fn room(&self, groups: usize) -> Option<Room<'_>> {
        let permits = self.queue.try_reserve_many(groups).ok()?;
        Some(Room { permits, active: &self.active })
    }

    /// Whether a group is at work or waits for it.
    #[must_use]
    pub fn is_active(&self, group: &str) -> bool {
        self.active.lock().contains(group)
    }
}

/// Carries groups out until `stop`. To be started once a former leader's calls are over.
pub async fn run(context: Context, mut groups: mpsc::Receiver<(Prepared, Instant)>, stop: CancellationToken) {
    let limit = Arc::new(Semaphore::new(GROUPS_AT_ONCE));
    let mut tasks = Tasks::default();
    let mut sweep = tokio::time::interval(SWEEP);
    sweep.set_missed_tick_behavior(tokio::time::MissedTickBehavior::Delay);
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => break,
            Some(ended) = tasks.running.join_next_with_id() => finished(&context, &mut tasks, ended),
            group = groups.recv() => match group {
                Some((group, received)) => start_fresh(&context, &mut tasks, &limit, group, received),
                None => break,
            },
            _ = sweep.tick() => {
                for (id, found) in unfinished(&context).await {
                    start_found(&context, &mut tasks, &limit, id, found);
                }
            }
        }
    }
    tasks.running.shutdown().await;
}

/// Groups that are carried out, by the task that does it.
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

/// However it ended, its claims are looked at again: the sweep goes on with those that still wait.
fn finished(context: &Context, tasks: &mut Tasks, ended: Result<(Id, ()), JoinError>) {
    let id = match &ended {
        Ok((id, ())) => *id,
        Err(error) => error.id(),
    };
    let Some(group) = tasks.groups.remove(&id) else { return };
    if let Err(error) = ended {
        tracing::error!(%group, %error, "a launch broke, its instances are looked for");
    }
    context.launches.active.lock().remove(&group);
}

fn start_fresh(context: &Context, tasks: &mut Tasks, limit: &Arc<Semaphore>, group: Prepared, received: Instant) {
    let (context, limit, id) = (context.clone(), Arc::clone(limit), group.id().to_owned());
    tasks.spawn(id, async move {
        let _permit = limit.acquire_owned().await;
        run::fresh(&context, group, received).await;
    });
}

fn start_found(context: &Context, tasks: &mut Tasks, limit: &Arc<Semaphore>, id: String, found: Found) {
    context.launches.active.lock().insert(id.clone());
    let (context, limit) = (context.clone(), Arc::clone(limit));
    tasks.spawn(id, async move {
        let _permit = limit.acquire_owned().await;
        match found {
            Found::Whole(group, attempt) => run::resumed(&context, *group, attempt).await,
            Found::Unsent(members) => abandon_unsent(&context, members).await,
            Found::LookUp { group, members, problem } => {
                tracing::warn!(group = %group.id, problem, "the launch is not sent again, its instances are looked up by tag");
                let cycle_id = format!("recovery-{}", context.fence.epoch());
                run::look_up_only(&context, group, members, cycle_id).await;
            }
        }
    });
}

/// Claims of a group that was never written whole: nothing was sent for them (safety rules 2 and 16).
async fn abandon_unsent(context: &Context, members: BTreeMap<String, Member>) {
    for member in members.into_values() {
        tracing::warn!(claim = member.name(), "a claim of a launch that was never sent is taken away");
        match write::abandon(context, &member.claim).await {
            Ok(()) => context.ledger.with(|ledger| ledger.gone(member.name())),
            Err(error) => tracing::warn!(claim = member.name(), %error, "it is still there"),
        }
    }
}

/// Groups with claims that wait for an instance while nobody works on them, from a live list.
async fn unfinished(context: &Context) -> Vec<(String, Found)> {
    if !seems_unfinished(context) {
        return Vec::new();
    }
    let claims = match context.reads.claims().await {
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
    let cycle_id = format!("recovery-{}", context.fence.epoch());
    let open = groups.into_iter().filter(|(id, claims)| {
        !context.launches.is_active(id) && claims.iter().any(|claim| wants_instance(context, claim))
    });
    open.filter_map(|(id, claims)| {
        let group = record::group_of(claims.first()?)?;
        let members = claims.into_iter().map(Member::of).map(|member| (member.name().to_owned(), member)).collect();
        let may_send_again = |claim: &str| context.ledger.read(|ledger| ledger.may_send_again(claim));
        Some((id, record::read(group, members, &cycle_id, may_send_again)))
    })
    .collect()
}

/// Whether our watch shows any such claim: mostly none, and then nothing is listed.
fn seems_unfinished(context: &Context) -> bool {
    context.stores.claims.state().iter().any(|claim| {
        let inactive = record::group_of(claim).is_some_and(|group| !context.launches.is_active(&group.id));
        inactive && wants_instance(context, claim)
    })
}

/// Also of those being deleted: what was bought for them is adopted, and ends with them.
fn wants_instance(context: &Context, claim: &NodeClaim) -> bool {
    let created = claim.metadata.creation_timestamp.as_ref().map_or(0, |time| time.0.as_millisecond());
    let young = u128::from(context.now().since(plimsoll_model::time::Timestamp(created)).0) < YOUNG.as_millis();
    let epoch = record::annotation(claim, plimsoll_model::names::annotation::EPOCH);
    let of_this_term = epoch == Some(context.fence.epoch().to_string().as_str());
    record::awaits_instance(claim) && !(young && of_this_term)
}

//! Feeds changes of the cluster to the ledger (safety rules 7, 10 and 18).

mod nodes;
mod preferences;
mod quotas;
pub mod seeds;
mod verdicts;

use crate::events::Recorder;
use crate::ledger::handle::LedgerHandle;
use crate::pacing::pause_after;
use crate::rollout;
use crate::stores::{Cursor, Delta, Stores, WatchedKind};
use plimsoll_runtime::clock::Clock;
pub use quotas::refresh as refresh_quotas;
pub use seeds::seed;

use super::{ClaimSeed, Ledger, PoolFacts, Subject};
use crate::clock::Timestamped;
use crate::nodes::is_ready;
use nodes::NodesSeen;
use plimsoll_api::{NodeClaim, NodePool};
use plimsoll_model::identity::{NodePoolName, PodUid};
use plimsoll_model::names::NODES_RESOURCE;
use plimsoll_model::resources::Resources;
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_snapshot::rollout::claims_of_drifted_pools;
use preferences::Preferences;
use quotas::InvalidQuotas;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;
use verdicts::SchedulingVerdict;

/// Delay that coalesces bursts of changes.
const COALESCE: Duration = Duration::from_millis(20);
/// Interval of a pass without a change, since reservations expire and budgets open by time alone.
const TICK: Duration = Duration::from_secs(10);
/// Interval at which all claims are read, so that a pass without a change reads all of them.
const FULL_READ: Millis = Millis::from_seconds(TICK.as_secs());

/// Bound on the lag of the watch cache behind the end of a claim. A claim that is still seen after this time was given
/// up by mistake: its write had succeeded, but the response was lost.
const LAG: Millis = Millis::from_seconds(60);

/// Dependencies of the feed.
#[derive(Clone)]
pub struct Sources {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Events on objects.
    pub events: Recorder,
    /// Time.
    pub clock: Clock,
}

/// State of the cluster at the last pass.
#[derive(Debug, Default)]
pub struct Feed {
    claims: BTreeSet<String>,
    /// Claims that are seen although the ledger knows that they are gone, and since when.
    unknown: BTreeMap<String, Timestamp>,
    /// Claims with unreadable annotations, as last read.
    unreadable: BTreeMap<String, ClaimSeed>,
    /// Reserved pods.
    pods: BTreeMap<PodUid, ReservedPod>,
    nodes: NodesSeen,
    /// How far changes of claims and Nodes are read.
    claims_read: Cursor,
    nodes_read: Cursor,
    /// When all claims were read.
    all_read: Option<Timestamp>,
    /// Claims by the name of their Node.
    by_node: BTreeMap<String, String>,
    pools: BTreeSet<NodePoolName>,
    preferences: Preferences,
    invalid_quotas: InvalidQuotas,
}

/// State of a reserved pod at the last pass.
#[derive(Debug, Clone, Copy)]
struct ReservedPod {
    /// The pod was bound when it was first seen as reserved: it is to move, so being bound does not end the
    /// reservation.
    to_move: bool,
    /// kube-scheduler's verdict before the claim's node was initialized. Any later verdict takes that node into
    /// account.
    verdict: Option<SchedulingVerdict>,
}

/// Feeds the ledger until `stop`.
pub async fn run(deps: Sources, stop: CancellationToken) {
    let mut feed = Feed::default();
    let kinds = [
        WatchedKind::NodeClaim,
        WatchedKind::Node,
        WatchedKind::Pod,
        WatchedKind::NodePool,
        WatchedKind::CapacityQuota,
    ];
    let mut changes = deps.stores.changes(&kinds);
    loop {
        let began = Instant::now();
        feed.pass(&deps);
        let pause = COALESCE.max(pause_after(began.elapsed()));
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = changes.next() => {}
            () = tokio::time::sleep(TICK) => {}
        }
        tokio::time::sleep(pause).await;
    }
}

impl Feed {
    /// Runs one pass over what changed in all sources.
    pub fn pass(&mut self, deps: &Sources) {
        // A pool that is known may launch, so its quotas must be known before.
        self.invalid_quotas.report(quotas::refresh(deps));
        refresh_pools(deps, &mut self.pools);
        self.claims(deps);
        self.pods(deps);
        self.nodes(deps);
        self.preferences.check(deps);
    }

    /// Records changed claims, and claims of changed Nodes. Reads all of them once per [`TICK`], because the ledger
    /// itself also changes: a claim that it gave up by mistake is adopted again.
    fn claims(&mut self, deps: &Sources) {
        let now = deps.clock.timestamp();
        let claims = deps.stores.claims.changes(&mut self.claims_read);
        let nodes = deps.stores.nodes.changes(&mut self.nodes_read);
        let is_due = self.all_read.is_none_or(|last| now.since(last) >= FULL_READ);
        let (Delta::Changed(claims), Delta::Changed(nodes), false) = (claims, nodes, is_due) else {
            self.all_read = Some(now);
            self.all_claims(deps, now);
            return;
        };
        let mut names: BTreeSet<String> = claims.into_iter().map(|(key, _)| key.1.clone()).collect();
        names.extend(nodes.iter().filter_map(|(key, _)| self.by_node.get(&key.1).cloned()));
        names.extend(self.unknown.keys().cloned());
        for name in names {
            match deps.stores.claims.get(&name) {
                Some(claim) => self.claim(deps, &name, &claim, now),
                None => self.gone(deps, &name),
            }
        }
        self.forget_resolved(deps);
    }

    fn all_claims(&mut self, deps: &Sources, now: Timestamp) {
        let claims = deps.stores.claims.state();
        let mut present = BTreeSet::new();
        for claim in &claims {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            present.insert(name.to_owned());
            self.claim(deps, name, claim, now);
        }
        let gone: Vec<String> = self.claims.difference(&present).cloned().collect();
        for name in gone {
            self.gone(deps, &name);
        }
        self.by_node.retain(|_, claim| present.contains(claim));
        self.forget_resolved(deps);
    }

    /// Adopts a claim that the ledger does not know or could not read, and records what has changed.
    fn claim(&mut self, deps: &Sources, name: &str, claim: &NodeClaim, now: Timestamp) {
        let node_name = claim.node_name();
        let node = node_name.and_then(|node| deps.stores.nodes.get(node));
        if let Some(node) = node_name
            && self.by_node.get(node).is_none_or(|known| known != name)
        {
            self.by_node.insert(node.to_owned(), name.to_owned());
        }
        let was_seen = self.claims.contains(name);
        let seed = || seed(claim, node.as_deref());
        let (is_recorded, unreadable) = deps.ledger.read(|ledger| (ledger.knows(name), ledger.is_unreadable(name)));
        if !is_recorded {
            // A claim that was seen before but is unknown to the ledger is gone. The watch cache lags, but not for
            // long.
            let since = *self.unknown.entry(name.to_owned()).or_insert(now);
            if was_seen && since.plus(LAG) > now {
                return;
            }
            adopt(deps, &seed());
        } else if unreadable {
            // The annotations may have been repaired.
            let seed = seed();
            if self.unreadable.get(name) != Some(&seed) {
                adopt(deps, &seed);
                self.unreadable.insert(name.to_owned(), seed);
            }
        }
        if !was_seen {
            self.claims.insert(name.to_owned());
        }
        let has_changed = deps
            .ledger
            .read(|ledger| ledger.claim(name).is_some_and(|record| seeds::has_changed(record, claim, node.as_deref())));
        if !has_changed {
            return;
        }
        let seed = seed();
        deps.ledger.with(|ledger| record(ledger, name, claim, seed, now));
    }

    /// Records that the watch cache no longer has a claim that it had.
    fn gone(&mut self, deps: &Sources, name: &str) {
        self.unknown.remove(name);
        if !self.claims.remove(name) {
            return;
        }
        deps.ledger.not_launching(name);
        if deps.ledger.read(|ledger| ledger.knows(name)) {
            deps.ledger.with(|ledger| ledger.gone(name));
        }
    }

    /// Forgets claims that the ledger knows and can read again.
    fn forget_resolved(&mut self, deps: &Sources) {
        self.unknown.retain(|claim, _| !deps.ledger.read(|ledger| ledger.knows(claim)));
        self.unreadable.retain(|claim, _| deps.ledger.read(|ledger| ledger.is_unreadable(claim)));
    }

    /// Ends the reservations of pods that were bound, are gone, or were refused by kube-scheduler again.
    fn pods(&mut self, deps: &Sources) {
        let reserved: BTreeMap<PodUid, bool> = deps.ledger.read(|ledger| {
            let in_service = |claim: &str| ledger.claim(claim).is_some_and(|claim| claim.initialized);
            ledger.reservations().map(|(pod, claim)| (pod.clone(), in_service(claim))).collect()
        });
        let (mut present, mut released, mut marked) = (BTreeMap::new(), Vec::new(), Vec::new());
        for (uid, in_service) in &reserved {
            let (Some(pod), in_service) = (deps.stores.pods.with_uid(uid.as_str()), *in_service) else { continue };
            let bound = pod.node_name.is_some();
            let verdict = verdicts::current(&pod);
            let before = self.pods.get(uid).copied().unwrap_or(ReservedPod { to_move: bound, verdict });
            if pod.is_terminal() || (bound && !before.to_move) {
                released.push(uid.clone());
            } else if in_service && verdict.is_some() && verdict != before.verdict {
                marked.push(uid.clone());
            }
            let verdict = if in_service { before.verdict } else { verdict };
            present.insert(uid.clone(), ReservedPod { verdict, ..before });
        }
        released
            .extend(self.pods.keys().filter(|uid| reserved.contains_key(uid) && !present.contains_key(uid)).cloned());
        if !released.is_empty() || !marked.is_empty() {
            deps.ledger.with(|ledger| {
                released.iter().for_each(|uid| ledger.release_pod(uid));
                marked.iter().for_each(|uid| ledger.marked_unschedulable(uid));
            });
        }
        self.pods = present;
    }

    /// Records nodes whose facts changed, which outdates plans that rest on them.
    fn nodes(&mut self, deps: &Sources) {
        let changed = self.nodes.changed(&deps.stores);
        if !changed.is_empty() {
            deps.ledger.with(|ledger| {
                for node in changed {
                    ledger.changed(Subject::Node(node));
                }
            });
        }
    }
}

fn adopt(deps: &Sources, seed: &ClaimSeed) {
    if let Err(problem) = deps.ledger.with(|ledger| ledger.adopt(seed)) {
        tracing::error!(%problem, "NodePool launches nothing until the annotation is fixed or the NodeClaim is deleted");
    }
}

/// Records what a claim and its Node show.
fn record(ledger: &mut Ledger, name: &str, claim: &NodeClaim, seed: ClaimSeed, now: Timestamp) {
    if let Some(node) = seed.node {
        ledger.node_of(name, node);
    }
    if let Some(capacity) = seed.capacity {
        ledger.launched(name, capacity);
    }
    ledger.labelled(name, seed.labels);
    if let Some(price) = claim.price() {
        ledger.priced(name, price);
    }
    if seed.initialized {
        ledger.initialized(name, now);
    }
    if seed.overdue {
        ledger.not_initialized(name, now);
    }
    if seed.deleting {
        ledger.deleting(name);
    }
    if seed.terminating {
        ledger.terminating(name);
    }
    ledger.drifted(name, seed.drifted);
}

/// Updates limits and budgets of all pools. Must run again before each admission, since budgets open and close with
/// time.
pub fn refresh_pools(deps: &Sources, previous: &mut BTreeSet<NodePoolName>) {
    let mut present = BTreeSet::new();
    let claims = deps.stores.claims.state();
    let drifted = claims_of_drifted_pools(claims.iter().map(Arc::as_ref));
    let (in_service, not_ready) = (in_service(&claims), not_ready(deps, &claims));
    for pool in deps.stores.pools.state() {
        let name = NodePoolName(pool.metadata.name.clone().unwrap_or_default());
        let of = |counts: &BTreeMap<&str, u32>| counts.get(name.as_str()).copied().unwrap_or_default();
        let of_drifted = drifted.get(name.as_str()).map(Vec::as_slice).unwrap_or_default();
        let facts = facts(deps, &pool, (of(&in_service), of(&not_ready)), of_drifted);
        if deps.ledger.read(|ledger| ledger.pool(&name) != Some(&facts)) {
            deps.ledger.with(|ledger| ledger.set_pool(&name, facts));
        }
        present.insert(name);
    }
    for gone in previous.difference(&present) {
        deps.ledger.with(|ledger| ledger.remove_pool(gone));
    }
    *previous = present;
}

/// The number of initialized nodes of each pool whose instance is not being terminated.
fn in_service(claims: &[Arc<NodeClaim>]) -> BTreeMap<&str, u32> {
    count_in_service(claims, |_| true)
}

/// The number of these nodes that are not Ready. Budgets count them like those that are being removed, which the ledger
/// itself knows.
fn not_ready<'a>(deps: &Sources, claims: &'a [Arc<NodeClaim>]) -> BTreeMap<&'a str, u32> {
    let nodes = deps.stores.nodes.state();
    let not_ready = nodes.iter().filter(|node| !is_ready(node)).filter_map(|node| node.metadata.name.as_deref());
    let not_ready: BTreeSet<&str> = not_ready.collect();
    if not_ready.is_empty() {
        return BTreeMap::new();
    }
    count_in_service(claims, |claim| {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        let is_removed =
            |ledger: &Ledger| ledger.removal(name).is_some() || ledger.claim(name).is_some_and(|claim| claim.deleting);
        claim.node_name().is_some_and(|node| not_ready.contains(node)) && !deps.ledger.read(is_removed)
    })
}

/// The number of initialized nodes of each pool whose instance is not being terminated, and that `counts` accepts.
fn count_in_service(claims: &[Arc<NodeClaim>], counts: impl Fn(&NodeClaim) -> bool) -> BTreeMap<&str, u32> {
    let mut in_service = BTreeMap::new();
    for claim in claims {
        let labels = claim.metadata.labels.as_ref();
        if let Some(pool) = labels.and_then(|labels| labels.get(plimsoll_model::names::label::NODE_POOL))
            && claim.is_initialized()
            && !claim.is_instance_terminating()
            && counts(claim)
        {
            *in_service.entry(pool.as_str()).or_default() += 1;
        }
    }
    in_service
}

/// `counts` has the number of nodes in service, and of those that are not Ready; `of_drifted` has the pool's claims if
/// a node of it has drifted.
fn facts(deps: &Sources, pool: &NodePool, counts: (u32, u32), of_drifted: &[&NodeClaim]) -> PoolFacts {
    // The condition `ValidationSucceeded` names an invalid limit. Such a pool launches nothing. Its nodes are still
    // removed.
    let limits = plimsoll_snapshot::limits(pool).unwrap_or_else(|_| Resources::from([(NODES_RESOURCE, 0)]));
    let now = deps.clock.timestamp();
    let allowed = plimsoll_snapshot::allowed_disruptions(pool, now, counts);
    let rollout = rollout::of(&deps.stores, pool, of_drifted, now);
    let rollout_limit = rollout.and_then(|rollout| rollout.limit());
    let replicas = pool.spec.replicas.and_then(|replicas| u64::try_from(replicas).ok());
    PoolFacts { limits, allowed, rollout_limit, replicas }
}

#[cfg(test)]
mod tests;

//! Feeds changes of the cluster to the ledger (safety rules 7, 10 and 18).

mod nodes;
mod preferences;
mod quotas;
pub mod seeds;
mod verdicts;

use crate::events::Recorder;
use crate::ledger::handle::LedgerHandle;
use crate::rollout;
use crate::stores::{Stores, WatchedKind};
use plimsoll_runtime::clock::Clock;
pub use quotas::refresh as refresh_quotas;
pub use seeds::seed;

use super::{ClaimSeed, PoolFacts, Subject};
use crate::clock::Timestamped;
use k8s_openapi::api::core::v1::Pod;
use nodes::NodeFacts;
use plimsoll_api::budget::DisruptionReason as BudgetReason;
use plimsoll_api::{NodeClaim, NodePool, condition};
use plimsoll_model::identity::{NodeName, NodePoolName, PodUid};
use plimsoll_model::quantity::parse_resources;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_model::time::{Millis, Timestamp};
use preferences::Preferences;
use quotas::InvalidQuotas;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;
use verdicts::SchedulingVerdict;

/// Delay that coalesces bursts of changes.
const COALESCE: Duration = Duration::from_millis(20);
/// Interval of a full pass, since reservations expire and budgets open by time alone.
const TICK: Duration = Duration::from_secs(10);

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
    nodes: BTreeMap<NodeName, NodeFacts>,
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
        feed.pass(&deps);
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = changes.next() => {}
            () = tokio::time::sleep(TICK) => {}
        }
        tokio::time::sleep(COALESCE).await;
    }
}

impl Feed {
    /// Runs one pass over all sources.
    pub fn pass(&mut self, deps: &Sources) {
        // A pool that is known may launch, so its quotas must be known before.
        self.invalid_quotas.report(quotas::refresh(deps));
        refresh_pools(deps, &mut self.pools);
        self.claims(deps);
        let pods = deps.stores.pods.state();
        self.pods(deps, &pods);
        self.nodes(deps, &pods);
        self.preferences.check(deps, &pods);
    }

    fn claims(&mut self, deps: &Sources) {
        let claims = deps.stores.claims.state();
        let now = deps.clock.timestamp();
        let mut present = BTreeSet::new();
        for claim in &claims {
            let name = claim.metadata.name.as_deref().unwrap_or_default();
            let node = seeds::node_name(claim).and_then(|node| deps.stores.nodes.get(node));
            let seed = || seed(claim, node.as_deref());
            present.insert(name.to_owned());
            let (is_recorded, unreadable) = deps.ledger.read(|ledger| (ledger.knows(name), ledger.is_unreadable(name)));
            if !is_recorded {
                // A claim that was seen before but is unknown to the ledger is gone. The watch cache lags, but not for
                // long.
                let since = *self.unknown.entry(name.to_owned()).or_insert(now);
                if self.claims.contains(name) && since.plus(LAG) > now {
                    continue;
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
            let has_changed = deps.ledger.read(|ledger| {
                ledger.claim(name).is_some_and(|view| seeds::has_changed(&view, claim, node.as_deref()))
            });
            if has_changed {
                let seed = seed();
                deps.ledger.with(|ledger| {
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
                    if seed.deleting {
                        ledger.deleting(name);
                    }
                    if seed.terminating {
                        ledger.terminating(name);
                    }
                });
            }
        }
        for gone in self.claims.difference(&present) {
            deps.ledger.not_launching(gone);
            if deps.ledger.read(|ledger| ledger.knows(gone)) {
                deps.ledger.with(|ledger| ledger.gone(gone));
            }
        }
        self.unknown.retain(|claim, _| present.contains(claim) && !deps.ledger.read(|ledger| ledger.knows(claim)));
        self.unreadable.retain(|claim, _| deps.ledger.read(|ledger| ledger.is_unreadable(claim)));
        self.claims = present;
    }

    /// Ends the reservations of pods that were bound, are gone, or were refused by kube-scheduler again.
    fn pods(&mut self, deps: &Sources, pods: &[Arc<Pod>]) {
        let reserved: BTreeMap<PodUid, bool> = deps.ledger.read(|ledger| {
            let in_service = |claim: &str| ledger.claim(claim).is_some_and(|view| view.initialized);
            ledger.reservations().map(|(pod, claim)| (pod.clone(), in_service(claim))).collect()
        });
        let (mut present, mut released, mut marked) = (BTreeMap::new(), Vec::new(), Vec::new());
        // Usually nothing is reserved, while there may be many pods.
        for pod in pods.iter().filter(|_| !reserved.is_empty()) {
            let Some(uid) = pod.metadata.uid.clone().map(PodUid) else { continue };
            let Some(in_service) = reserved.get(&uid).copied() else { continue };
            let bound = pod.spec.as_ref().is_some_and(|spec| spec.node_name.is_some());
            let verdict = verdicts::current(pod);
            let before = self.pods.get(&uid).copied().unwrap_or(ReservedPod { to_move: bound, verdict });
            if is_over(pod) || (bound && !before.to_move) {
                released.push(uid.clone());
            } else if in_service && verdict.is_some() && verdict != before.verdict {
                marked.push(uid.clone());
            }
            let verdict = if in_service { before.verdict } else { verdict };
            present.insert(uid, ReservedPod { verdict, ..before });
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
    fn nodes(&mut self, deps: &Sources, pods: &[Arc<Pod>]) {
        let now = nodes::facts(&deps.stores.nodes.state(), pods);
        let changed: Vec<NodeName> = now
            .iter()
            .filter(|(name, facts)| self.nodes.get(*name) != Some(*facts))
            .map(|(name, _)| name)
            .chain(self.nodes.keys().filter(|name| !now.contains_key(*name)))
            .cloned()
            .collect();
        if !changed.is_empty() {
            deps.ledger.with(|ledger| {
                for node in changed {
                    ledger.changed(Subject::Node(node));
                }
            });
        }
        self.nodes = now;
    }
}

fn adopt(deps: &Sources, seed: &ClaimSeed) {
    if let Err(problem) = deps.ledger.with(|ledger| ledger.adopt(seed)) {
        tracing::error!(%problem, "NodePool launches nothing until the annotation is fixed or the NodeClaim is deleted");
    }
}

fn is_over(pod: &Pod) -> bool {
    let phase = pod.status.as_ref().and_then(|status| status.phase.as_deref());
    matches!(phase, Some("Succeeded" | "Failed"))
}

/// Updates limits and budgets of all pools. Must run again before each admission, since budgets open and close with
/// time.
pub fn refresh_pools(deps: &Sources, previous: &mut BTreeSet<NodePoolName>) {
    let mut present = BTreeSet::new();
    let claims = deps.stores.claims.state();
    let drifted = plimsoll_snapshot::rollout::drifted_pools(&claims);
    for pool in deps.stores.pools.state() {
        let name = NodePoolName(pool.metadata.name.clone().unwrap_or_default());
        match facts(deps, &pool, &name, &claims, drifted.contains(&name.0)) {
            Ok(facts) => {
                if deps.ledger.read(|ledger| ledger.pool(&name) != Some(&facts)) {
                    deps.ledger.with(|ledger| ledger.set_pool(&name, facts));
                }
                present.insert(name);
            }
            Err(message) => tracing::warn!(pool = %name, message, "limits are unreadable, NodePool launches nothing"),
        }
    }
    for gone in previous.difference(&present) {
        deps.ledger.with(|ledger| ledger.remove_pool(gone));
    }
    *previous = present;
}

fn facts(
    deps: &Sources,
    pool: &NodePool,
    name: &NodePoolName,
    claims: &[Arc<NodeClaim>],
    is_drifted: bool,
) -> Result<PoolFacts, String> {
    let limits = pool.spec.limits.iter().map(|(resource, limit)| (resource.as_str(), limit.0.as_str()));
    let limits = parse_resources(limits).map_err(|(resource, error)| format!("spec.limits.{resource}: {error}"))?;
    let in_service = claims.iter().filter(|claim| {
        let labels = claim.metadata.labels.as_ref();
        let conditions = claim.status.as_ref().map(|status| status.conditions.as_slice()).unwrap_or_default();
        labels.and_then(|labels| labels.get(plimsoll_model::names::label::NODE_POOL)).is_some_and(|of| *of == name.0)
            && condition::is_true(conditions, condition::node_claim::INITIALIZED)
            && !claim.is_instance_terminating()
    });
    let total = u32::try_from(in_service.count()).unwrap_or(u32::MAX);
    let now = deps.clock.now();
    let mut allowed = BTreeMap::new();
    for (budget, reason) in [
        (BudgetReason::Empty, DisruptionReason::Empty),
        (BudgetReason::Underutilized, DisruptionReason::Underutilized),
        (BudgetReason::Drifted, DisruptionReason::Drifted),
    ] {
        let mut limit = pool.spec.allowed_disruptions(budget, now, total);
        if reason == DisruptionReason::Drifted && is_drifted {
            let rollout = rollout::of(&deps.stores, pool, deps.clock.timestamp());
            limit = limit.min(rollout.and_then(|rollout| rollout.limit()).unwrap_or(u32::MAX));
        }
        if limit != u32::MAX {
            allowed.insert(reason, limit);
        }
    }
    let replicas = pool.spec.replicas.and_then(|replicas| u64::try_from(replicas).ok());
    Ok(PoolFacts { limits, allowed, replicas })
}

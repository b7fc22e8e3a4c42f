//! Rollout of a NodePool: replacing its drifted nodes. A canary, a node of the current specification, must prove itself
//! before the rest follows within the pool's disruption budgets. If the canary fails, the rollout halts.
//!
//! Everything is derived from objects of the cluster, so that the watcher, which plans, and the actuator, which admits,
//! come to the same answer, also after a restart. A halt is an annotation of the pool with the revision that failed, so
//! that another template, node class or image ends it.

mod progress;

pub use progress::Progress;

use crate::pods::stays_with_node;
use crate::problems::full_name;
use crate::{annotations, kube_time};
use k8s_openapi::api::core::v1::Node;
use plimsoll_api::{EC2NodeClass, NodeClaim, NodePool, Pod, PodPhase, condition, hash};
use plimsoll_model::identity::ContentHasher;
use plimsoll_model::names::{annotation, label};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_model::time::{Millis, Timestamp};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;

/// Nodes that must prove themselves unless the pool says otherwise.
const DEFAULT_CANARIES: u32 = 1;
/// Largest number of canaries that a pool may ask for, so that a mistyped number is reported.
const MAX_CANARIES: u32 = 1000;
/// How long a canary must have been in service. Within this time its pods arrive and start.
const SOAK: Millis = Millis::from_seconds(60);
/// A canary that is not in service after this time has failed. An instance without a Node fails after the same time.
const IN_SERVICE_WITHIN: Millis = Millis::from_seconds(15 * 60);
/// A canary that is not Ready for this long has failed.
const NOT_READY_FOR: Millis = Millis::from_seconds(5 * 60);
/// A pod of a canary that is not running after this time is no longer waited for if pods of other workloads run there:
/// its own workload is probably broken, such as by an image that does not exist, and was so before the rollout.
const RUNNING_WITHIN: Millis = Millis::from_seconds(15 * 60);
/// Hexadecimal digits of a revision (64 bits).
const REVISION_DIGITS: usize = 16;

/// The objects that a rollout rests on.
#[derive(Debug, Clone, Copy)]
pub struct RolloutObjects<'a> {
    /// The pool.
    pub pool: &'a NodePool,
    /// Its node class, if it exists.
    pub class: Option<&'a EC2NodeClass>,
    /// Its claims.
    pub claims: &'a [&'a NodeClaim],
    /// Nodes by name; others may be among them.
    pub nodes: &'a BTreeMap<&'a str, &'a Node>,
    /// The current time.
    pub now: Timestamp,
}

/// Where a rollout stands.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Stage {
    /// An annotation holds it.
    Paused,
    /// An annotation is wrong, which holds it.
    Invalid(String),
    /// A canary of the current revision failed before.
    Halted,
    /// A canary has failed just now.
    Failed {
        /// The canary.
        claim: String,
        /// What is wrong with it.
        cause: String,
    },
    /// No canary has proven itself. Has the reason why each one has not; at first there is none.
    Canary(BTreeMap<String, String>),
    /// The disruption budgets alone decide.
    Open,
}

/// A rollout.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Rollout {
    /// Where it stands.
    pub stage: Stage,
    /// How far it is.
    pub progress: Progress,
    /// Number of canaries.
    pub canaries: u32,
    /// Nodes that are being replaced for drift. [`Rollout::limit`] limits their number.
    pub replacing: u32,
    /// When time alone may change the stage.
    pub next_change: Option<Timestamp>,
}

impl Rollout {
    /// How many nodes may be replaced for drift at the same time, beside what disruption budgets allow; `None`: any
    /// number.
    #[must_use]
    pub fn limit(&self) -> Option<u32> {
        match &self.stage {
            Stage::Open => None,
            Stage::Canary(waiting) if waiting.is_empty() => Some(self.canaries),
            Stage::Canary(_) | Stage::Paused | Stage::Invalid(_) | Stage::Halted | Stage::Failed { .. } => Some(0),
        }
    }
}

/// The claims of each pool with a drifted node. Usually there are none, which saves the rest. One pass over all claims
/// serves all pools.
#[must_use]
pub fn claims_of_drifted_pools<'a>(
    claims: impl Iterator<Item = &'a NodeClaim> + Clone,
) -> BTreeMap<&'a str, Vec<&'a NodeClaim>> {
    let pool_of = |claim: &'a NodeClaim| claim.metadata.labels.as_ref()?.get(label::NODE_POOL).map(String::as_str);
    let claims = claims.filter_map(|claim| Some((pool_of(claim)?, claim)));
    let has_drifted = |claim: &NodeClaim| claim.true_condition(condition::node_claim::DRIFTED).is_some();
    let drifted: BTreeSet<&str> =
        claims.clone().filter(|(_, claim)| has_drifted(claim)).map(|(pool, _)| pool).collect();
    let mut by_pool: BTreeMap<&str, Vec<&NodeClaim>> = BTreeMap::new();
    for (pool, claim) in claims.filter(|(pool, _)| drifted.contains(pool)) {
        by_pool.entry(pool).or_default().push(claim);
    }
    by_pool
}

/// The rollout of a pool; `None` if no node has drifted. `pods_on` returns the pods of a node. It is asked only about
/// canaries that nothing else holds, until enough canaries have proven themselves.
#[must_use]
pub fn of<P: Deref<Target = Pod>>(objects: &RolloutObjects<'_>, pods_on: impl Fn(&str) -> Vec<P>) -> Option<Rollout> {
    let pool = objects.pool;
    let drifted_since = |claim: &&NodeClaim| {
        let drifted = claim.true_condition(condition::node_claim::DRIFTED)?;
        Some(kube_time::timestamp(&drifted.last_transition_time))
    };
    let drifted: Vec<&NodeClaim> =
        objects.claims.iter().filter(|claim| drifted_since(claim).is_some()).copied().collect();
    let start = drifted.iter().filter_map(drifted_since).min()?;
    let of_revision = CurrentRevision::new(pool, objects.class);
    let is_canary = |claim: &&&NodeClaim| {
        drifted_since(claim).is_none()
            && claim.metadata.deletion_timestamp.is_none()
            && kube_time::created(&claim.metadata) >= start
            && of_revision.has(claim)
    };
    let candidates: Vec<&NodeClaim> = objects.claims.iter().filter(is_canary).copied().collect();
    let (stage, canaries, next_change) = match held(pool, &of_revision) {
        Err(stage) => (stage, DEFAULT_CANARIES, None),
        Ok(canaries) => {
            let (stage, next_change) = judge(objects, &candidates, canaries, &pods_on);
            (stage, canaries, next_change)
        }
    };
    let progress = Progress::of(&drifted, &candidates, stage == Stage::Open, objects.now);
    let replacing = objects.claims.iter().filter(|claim| is_replaced(claim)).count();
    let replacing = u32::try_from(replacing).unwrap_or(u32::MAX);
    Some(Rollout { stage, progress, canaries, replacing, next_change })
}

/// Whether the node of the claim has drifted, and is not being deleted because of an interruption. Other reasons are in
/// the command of its removal.
#[must_use]
pub fn is_drifted(claim: &NodeClaim) -> bool {
    let is_interrupted = annotations::text(&claim.metadata, annotation::INTERRUPTED).is_some();
    claim.true_condition(condition::node_claim::DRIFTED).is_some() && !is_interrupted
}

/// Whether the node of the claim is being replaced for drift. Where the reason is unknown, drift is assumed. As with
/// disruption budgets, a node whose instance is being terminated does not count any more.
fn is_replaced(claim: &NodeClaim) -> bool {
    if claim.is_instance_terminating() {
        return false;
    }
    if annotations::text(&claim.metadata, annotation::REMOVAL).is_none() {
        return claim.metadata.deletion_timestamp.is_some() && claim.is_initialized() && is_drifted(claim);
    }
    match removal_reason(claim) {
        Some(reason) => reason == DisruptionReason::Drifted.as_str(),
        None => is_drifted(claim),
    }
}

/// The reason of the removal in progress, if a plan removes the node of the claim.
pub(crate) fn removal_reason(claim: &NodeClaim) -> Option<String> {
    let command: Value = serde_json::from_str(annotations::text(&claim.metadata, annotation::REMOVAL)?).ok()?;
    Some(command.get("reason")?.as_str()?.to_owned())
}

/// The number of canaries, or what holds the rollout whatever they do.
fn held(pool: &NodePool, current: &CurrentRevision) -> Result<u32, Stage> {
    let value = |key: &str| annotations::text(&pool.metadata, key);
    let invalid = |key: &str, problem: String| Stage::Invalid(format!("annotation {key}: {problem}"));
    match value(annotation::ROLLOUT_PAUSED) {
        Some("true") => return Err(Stage::Paused),
        None | Some("false") => {}
        Some(other) => {
            return Err(invalid(annotation::ROLLOUT_PAUSED, format!("{other:?} is neither \"true\" nor \"false\"")));
        }
    }
    if value(annotation::ROLLOUT_HALTED) == Some(current.id.as_str()) {
        return Err(Stage::Halted);
    }
    let Some(text) = value(annotation::ROLLOUT_CANARIES) else { return Ok(DEFAULT_CANARIES) };
    let canaries = text.parse().ok().filter(|canaries| *canaries <= MAX_CANARIES);
    canaries.ok_or_else(|| {
        invalid(annotation::ROLLOUT_CANARIES, format!("{text:?} is not a whole number from 0 to {MAX_CANARIES}"))
    })
}

/// Judges the canaries.
fn judge<P: Deref<Target = Pod>>(
    objects: &RolloutObjects<'_>,
    candidates: &[&NodeClaim],
    canaries: u32,
    pods_on: &impl Fn(&str) -> Vec<P>,
) -> (Stage, Option<Timestamp>) {
    if canaries == 0 {
        return (Stage::Open, None);
    }
    let (mut proven, mut waiting, mut failed, mut next) = (0_u32, BTreeMap::new(), None, None);
    for claim in candidates {
        let name = claim.metadata.name.clone().unwrap_or_default();
        match verdict(objects, claim, pods_on) {
            Verdict::Proven => {
                proven = proven.saturating_add(1);
                if proven >= canaries {
                    return (Stage::Open, None);
                }
            }
            Verdict::Waiting { why, until } => {
                next = [next, until].into_iter().flatten().min();
                waiting.insert(name, why);
            }
            Verdict::Failed(cause) => failed = failed.or(Some(Stage::Failed { claim: name, cause })),
        }
    }
    (failed.unwrap_or(Stage::Canary(waiting)), next)
}

/// What is known about one canary.
enum Verdict {
    Proven,
    /// Why it has not proven itself, and when time alone may change that.
    Waiting {
        why: String,
        until: Option<Timestamp>,
    },
    Failed(String),
}

fn verdict<P: Deref<Target = Pod>>(
    objects: &RolloutObjects<'_>,
    claim: &NodeClaim,
    pods_on: &impl Fn(&str) -> Vec<P>,
) -> Verdict {
    let waiting = |why: &str, until| Verdict::Waiting { why: why.to_owned(), until };
    let Some(initialized) = claim.true_condition(condition::node_claim::INITIALIZED) else {
        let registered = claim.true_condition(condition::node_claim::REGISTERED).is_some();
        let until = kube_time::created(&claim.metadata).plus(IN_SERVICE_WITHIN);
        // An instance without a Node is deleted by then.
        return match registered {
            true if until <= objects.now => Verdict::Failed("its Node is not initialized after 15 minutes".to_owned()),
            true => waiting("its Node is not initialized yet", Some(until)),
            false => waiting("it has no Node yet", None),
        };
    };
    let node = claim.node_name().and_then(|name| objects.nodes.get(name).map(|node| (name, node)));
    let Some((name, node)) = node else { return waiting("its Node is gone", None) };
    let ready = node.status.iter().flat_map(|status| status.conditions.iter().flatten()).find(|it| it.type_ == "Ready");
    if ready.is_none_or(|ready| ready.status != "True") {
        let since = ready.and_then(|ready| ready.last_transition_time.as_ref()).map(kube_time::timestamp);
        let until =
            since.unwrap_or_else(|| kube_time::timestamp(&initialized.last_transition_time)).plus(NOT_READY_FOR);
        let is_over = until <= objects.now;
        return if is_over { Verdict::Failed(not_ready(name)) } else { waiting(&not_ready(name), Some(until)) };
    }
    let until = kube_time::timestamp(&initialized.last_transition_time).plus(SOAK);
    if until > objects.now {
        return waiting("it is in service for less than a minute", Some(until));
    }
    let CanaryPods { waiting: Some(pod), workload_runs } = CanaryPods::of(&pods_on(name)) else {
        return Verdict::Proven;
    };
    let until = kube_time::timestamp(&initialized.last_transition_time).plus(RUNNING_WITHIN);
    let is_over = until <= objects.now;
    // If no pod runs, the node may be broken: nothing tells that from broken workloads, so the rollout goes on waiting.
    if is_over && workload_runs {
        return Verdict::Proven;
    }
    waiting(&format!("pod {pod} is not running"), Some(until).filter(|_| !is_over))
}

fn not_ready(node: &str) -> String {
    format!("Node {node} is not Ready")
}

/// What a canary is judged by beside its Node.
#[derive(Default)]
struct CanaryPods {
    /// A pod that has not started, if there is one.
    waiting: Option<String>,
    /// Another pod than those that each node has, of a DaemonSet or of the node itself, runs.
    workload_runs: bool,
}

impl CanaryPods {
    /// The pods on the canary.
    fn of<P: Deref<Target = Pod>>(pods: &[P]) -> Self {
        let mut found = Self::default();
        for pod in pods.iter().filter(|pod| !pod.is_terminal() && !pod.is_terminating()) {
            if pod.status.phase == Some(PodPhase::Running) {
                found.workload_runs |= !stays_with_node(pod);
                continue;
            }
            let name = full_name(&pod.metadata);
            // The first by name, so that the order of the pods does not matter.
            if found.waiting.as_ref().is_none_or(|known| name < *known) {
                found.waiting = Some(name);
            }
        }
        found
    }
}

/// What the pool's new nodes are made of.
struct CurrentRevision {
    id: String,
    pool_hash: String,
    class_hash: Option<String>,
    images: BTreeSet<String>,
}

impl CurrentRevision {
    fn new(pool: &NodePool, class: Option<&EC2NodeClass>) -> Self {
        let class_hash = class.and_then(|class| annotations::text(&class.metadata, annotation::EC2_NODE_CLASS_HASH));
        let class_hash = class_hash.map(str::to_owned);
        let pool_hash = hash::node_pool(&pool.spec.template);
        let status = class.and_then(|class| class.status.clone()).unwrap_or_default();
        let images: BTreeSet<String> = status.amis.into_iter().map(|image| image.id).collect();
        let subnets: BTreeSet<String> = status.subnets.into_iter().map(|subnet| subnet.id).collect();
        let groups: BTreeSet<String> = status.security_groups.into_iter().map(|group| group.id).collect();
        let mut hasher = ContentHasher::new("rollout revision");
        hasher.text(&pool_hash);
        hasher.text(class_hash.as_deref().unwrap_or_default());
        for ids in [&images, &subnets, &groups] {
            hasher.part(&ids.len().to_le_bytes());
            ids.iter().for_each(|id| hasher.text(id));
        }
        Self { id: hasher.hex(REVISION_DIGITS), pool_hash, class_hash, images }
    }

    /// Whether the claim was launched with this revision. The condition `Drifted` of a claim comes a moment later.
    fn has(&self, claim: &NodeClaim) -> bool {
        let value = |key: &str| annotations::text(&claim.metadata, key);
        let image = claim.status.as_ref().and_then(|status| status.image_id.as_ref());
        value(annotation::NODE_POOL_HASH) == Some(self.pool_hash.as_str())
            && value(annotation::EC2_NODE_CLASS_HASH) == self.class_hash.as_deref()
            && image.is_none_or(|image| self.images.contains(image))
    }
}

/// The revision of the pool's new nodes, as [`annotation::ROLLOUT_HALTED`] names it.
#[must_use]
pub fn revision(pool: &NodePool, class: Option<&EC2NodeClass>) -> String {
    CurrentRevision::new(pool, class).id
}

#[cfg(test)]
mod tests;

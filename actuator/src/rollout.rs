//! Rollouts of drifted NodePools in the cluster: which stage they are in, and the halt after a failed canary. The rules
//! are in [`plimsoll_snapshot::rollout`], which the watcher uses for its plans, too.

use crate::clock::Timestamped;
use crate::events::{Note, Recorder, object, reason};
use crate::io::{ObjectPart, WriteError, Writes};
use crate::stores::Stores;
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::condition::node_pool::{CONDITIONS, ROLLOUT_PROGRESSING};
use plimsoll_api::condition::{self, Moment, Status};
use plimsoll_api::{EC2NodeClass, NodeClaim, NodePool};
use plimsoll_model::names::annotation;
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::clock::Clock;
use plimsoll_snapshot::rollout::{self, Rollout, RolloutObjects, Stage};
use std::collections::BTreeMap;
use std::sync::Arc;

/// Reason of the condition of a rollout whose canary has failed.
const CANARY_FAILED: &str = "CanaryFailed";

/// The rollout of a pool with these claims, from the watch cache; `None` if no node has drifted.
pub(crate) fn of(stores: &Stores, pool: &NodePool, claims: &[&NodeClaim], now: Timestamp) -> Option<Rollout> {
    let class = class_of(stores, pool);
    let canaries = claims.iter().filter(|claim| !rollout::is_drifted(claim));
    let nodes: Vec<Arc<Node>> = canaries.filter_map(|claim| stores.nodes.get(claim.node_name()?)).collect();
    let nodes: BTreeMap<&str, &Node> =
        nodes.iter().filter_map(|node| Some((node.metadata.name.as_deref()?, &**node))).collect();
    let objects = RolloutObjects { pool, class: class.as_deref(), claims, nodes: &nodes, now };
    rollout::of(&objects, |node| stores.pods.on_node(node))
}

fn class_of(stores: &Stores, pool: &NodePool) -> Option<Arc<EC2NodeClass>> {
    stores.classes.get(&pool.spec.template.spec.node_class_ref.name)
}

/// Where the halt of a rollout is written.
#[derive(Clone, Copy)]
pub(crate) struct Halt<'a> {
    pub(crate) stores: &'a Stores,
    pub(crate) writes: &'a Writes,
    pub(crate) events: &'a Recorder,
}

impl Halt<'_> {
    /// Halts the rollout of the current revision. Must be written before the canary is deleted, so that a crash does
    /// not hide its failure. Only why an instance has ended is read again after a crash.
    pub(crate) async fn write(self, clock: Clock, pool: &NodePool, claim: &str, cause: &str) -> Result<(), WriteError> {
        let revision = rollout::revision(pool, class_of(self.stores, pool).as_deref());
        let halt = |pool: &mut NodePool| {
            pool.annotations_mut().insert(annotation::ROLLOUT_HALTED.to_owned(), revision.clone());
        };
        self.writes.update(pool, ObjectPart::Main, halt).await?;
        let (message, now) = (failure(claim, cause), clock.now());
        let show = |pool: &mut NodePool| {
            let moment = Moment::of(&pool.metadata, now);
            let conditions = &mut pool.status.get_or_insert_default().conditions;
            CONDITIONS.set(conditions, moment, ROLLOUT_PROGRESSING, Status::False, CANARY_FAILED, &message);
        };
        self.writes.update(pool, ObjectPart::Status, show).await?;
        tracing::warn!(node_pool = pool.name_any(), node_claim = claim, cause, "rollout halted");
        self.events.publish(Note::warning(object(pool), reason::ROLLOUT_HALTED, message));
        Ok(())
    }

    /// Halts the rollout that `claim`, whose instance did not register, is a canary of.
    pub(crate) async fn not_registered(self, clock: Clock, claim: &NodeClaim, cause: &str) -> Result<(), WriteError> {
        let Some(pool) = self.stores.pools.get(claim.node_pool()) else { return Ok(()) };
        let name = claim.name_any();
        let claims = self.stores.claims.state();
        // One whose instance has ended is being deleted, and is a canary nevertheless.
        let mut canary = claim.clone();
        canary.metadata.deletion_timestamp = None;
        let mut drifted = rollout::claims_of_drifted_pools(claims.iter().map(Arc::as_ref));
        let mut of_pool = drifted.remove(pool.name_any().as_str()).unwrap_or_default();
        of_pool.retain(|other| other.name_any() != name);
        of_pool.push(&canary);
        match of(self.stores, &pool, &of_pool, clock.timestamp()).map(|rollout| rollout.stage) {
            Some(Stage::Canary(waiting)) if waiting.contains_key(&name) => self.write(clock, &pool, &name, cause).await,
            _ => Ok(()),
        }
    }
}

fn failure(claim: &str, cause: &str) -> String {
    format!("NodeClaim {claim} of the new revision failed: {cause}. {}", remedy())
}

fn remedy() -> String {
    let halted = annotation::ROLLOUT_HALTED;
    format!("Change the NodePool or its node class, or remove the annotation {halted} to try again")
}

/// Shows the rollout as a condition of its pool.
pub(crate) fn show(
    conditions: &mut Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>,
    moment: Moment,
    rollout: Option<&Rollout>,
) {
    let Some(rollout) = rollout else {
        // No other condition depends on it, so it can be cleared.
        let _cleared = CONDITIONS.clear(conditions, moment, ROLLOUT_PROGRESSING);
        return;
    };
    let progress = rollout.progress;
    let known = condition::get(conditions, ROLLOUT_PROGRESSING).filter(|known| known.reason == CANARY_FAILED);
    let (status, reason, message) = match &rollout.stage {
        Stage::Paused => {
            (Status::False, "Paused", format!("{progress}; annotation {} is set", annotation::ROLLOUT_PAUSED))
        }
        Stage::Invalid(problem) => (Status::False, "InvalidAnnotation", problem.clone()),
        // The condition has named the canary since it failed.
        Stage::Halted => match known {
            Some(known) => (Status::False, CANARY_FAILED, known.message.clone()),
            None => (Status::False, CANARY_FAILED, format!("a node of the new revision failed. {}", remedy())),
        },
        Stage::Failed { claim, cause } => (Status::False, CANARY_FAILED, failure(claim, cause)),
        Stage::Canary(waiting) => {
            let first = waiting.first_key_value().map(|(claim, why)| format!("; NodeClaim {claim}: {why}"));
            (Status::Unknown, "CanaryPending", format!("{progress}{}", first.unwrap_or_default()))
        }
        Stage::Open => (Status::True, ROLLOUT_PROGRESSING, progress.to_string()),
    };
    CONDITIONS.set(conditions, moment, ROLLOUT_PROGRESSING, status, reason, &message);
}

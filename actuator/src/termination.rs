//! Termination of nodes: taint, drain, detach volumes, terminate the instance, and only then remove the finalizers from
//! Node and claim. Deleting a claim deletes its Node, and vice versa.

mod delay;
pub mod drain;
mod drain_node;
mod early_end;
mod evict;
mod instances;
mod live_pods;
mod orphans;
mod registered;
mod taint;
mod unlaunched;
mod urgency;
mod volumes;

use taint::taint_and_exclude;
pub(crate) use taint::{is_disrupted, taint_disrupted};

use crate::clock::Timestamped;
use crate::controller_loop::{Candidate, ControllerLoop, Requeue};
use crate::events::{Note, Recorder, object, reason};
use crate::fencing::Fence;
use crate::interruption;
use crate::interruption::DrainDelay;
use crate::io::{CloudCalls, CloudReads, ObjectPart, UpdateResult, WriteError, Writes, has_finalizer};
use crate::ledger::handle::LedgerHandle;
use crate::metrics::ActuatorMetrics;
use crate::nodes;
use crate::settings::Settings;
use crate::state::registrations::Registrations;
use crate::state::zonal_shifts::ZonalShifts;
use crate::stores::{Stores, WatchedKind};
use instances::{InstancePhase, Instances};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use kube::ResourceExt;
use plimsoll_api::condition::node_claim::{INSTANCE_TERMINATING, VOLUMES_DETACHED};
use plimsoll_api::condition::{self, Status};
use plimsoll_api::{NodeClaim, Pod};
use plimsoll_model::names::{TERMINATION_FINALIZER, annotation, label};
use plimsoll_runtime::clock::Clock;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Polling interval for conditions that the watch cache does not show.
const POLL_INTERVAL: Duration = Duration::from_secs(1);

/// Dependencies of the controller.
#[derive(Clone)]
pub struct Termination {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Calls to the cloud.
    pub cloud: CloudCalls,
    /// Reads of the cloud.
    pub cloud_reads: CloudReads,
    /// Zones that the cluster is shifted away from. Instances there are terminated after the shift.
    pub zonal_shifts: ZonalShifts,
    /// Drain delays of interrupted nodes.
    pub drain_delay: DrainDelay,
    /// Recent registration results by pool.
    pub registrations: Registrations,
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

/// A claim that is being terminated, with its Nodes and their pods.
#[derive(Clone)]
struct TerminatingClaim {
    claim: Arc<NodeClaim>,
    nodes: Vec<Arc<Node>>,
    pods: Vec<Arc<Pod>>,
}

/// State shared by all terminations.
#[derive(Default)]
struct Shared {
    instances: Instances,
    evictions: evict::Evictions,
    volumes: volumes::Volumes,
    node_reads: registered::NodeReads,
    unlaunched: unlaunched::LookUps,
    pending_replacements: interruption::PendingReplacements,
}

/// Result of a termination stage.
enum Stage {
    Done,
    Wait(Duration),
}

/// Terminates deleted claims and nodes until `stop`.
pub async fn run(deps: Termination, stop: CancellationToken) {
    let shared = Arc::new(Shared::default());
    let kinds = [WatchedKind::NodeClaim, WatchedKind::Node, WatchedKind::Pod];
    let work = |subject: TerminatingClaim| reconcile(deps.clone(), Arc::clone(&shared), subject);
    let controller = ControllerLoop::new("termination", &deps.metrics, &deps.stores, &deps.fence);
    tokio::join!(
        controller.run(&stop, &kinds, || candidates(&deps), work),
        shared.instances.run(&deps, &stop),
        orphans::run(&deps, &shared, &stop),
    );
}

fn candidates(deps: &Termination) -> Vec<Candidate<TerminatingClaim>> {
    let is_ours = |node: &Node| has_finalizer(node, TERMINATION_FINALIZER);
    let nodes = deps.stores.nodes.state();
    let deleted = nodes.iter().filter(|node| node.metadata.deletion_timestamp.is_some() && is_ours(node));
    let deleted: BTreeSet<&str> = deleted.filter_map(|node| nodes::provider_id(node)).collect();
    let claims = deps.stores.claims.state().into_iter().filter(|claim| {
        let node_deleted = claim.provider_id().is_some_and(|id| deleted.contains(id));
        // Its pods are planned elsewhere: it must not stay if its deletion failed.
        let interrupted = claim.annotations().contains_key(annotation::INTERRUPTED);
        claim.metadata.deletion_timestamp.is_some() || node_deleted || interrupted
    });
    let candidate = |claim: Arc<NodeClaim>| {
        let nodes = deps.stores.nodes_of(&claim);
        let pods = nodes.iter().flat_map(|node| deps.stores.pods.on_node(&node.name_any())).collect();
        Candidate { key: claim.name_any(), version: None, input: TerminatingClaim { claim, nodes, pods } }
    };
    claims.map(candidate).collect()
}

async fn reconcile(deps: Termination, shared: Arc<Shared>, subject: TerminatingClaim) -> Result<Requeue, WriteError> {
    let claim = &*subject.claim;
    if claim.metadata.deletion_timestamp.is_none() {
        tracing::info!(node_claim = claim.name_any(), "Node is interrupted or being deleted, deleting its NodeClaim");
        deps.writes.delete(claim, None).await?;
        return Ok(Some(POLL_INTERVAL));
    }
    deps.ledger.with(|ledger| ledger.deleting(&claim.name_any()));
    if !has_finalizer(claim, TERMINATION_FINALIZER) {
        return Ok(None);
    }
    let flow = TerminationFlow { deps: &deps, shared: &shared, subject: &subject };
    match flow.run().await? {
        Stage::Done => Ok(None),
        Stage::Wait(after) => Ok(Some(after)),
    }
}

struct TerminationFlow<'a> {
    deps: &'a Termination,
    shared: &'a Shared,
    subject: &'a TerminatingClaim,
}

impl TerminationFlow<'_> {
    async fn run(&self) -> Result<Stage, WriteError> {
        let deadline = self.deadline();
        if let Err(error) = self.record_deadline(deadline).await.or_else(|error| self.go_on_if_over(error)) {
            return self.evict_if_urgent(error, deadline).await;
        }
        for node in &self.subject.nodes {
            let tainted = self.taint_and_delete(node, deadline).await;
            match tainted.or_else(|error| self.go_on_if_over(error).map(|()| true)) {
                Ok(true) => {}
                Ok(false) => return Ok(Stage::Wait(POLL_INTERVAL)),
                Err(error) => return self.evict_if_urgent(error, deadline).await,
            }
        }
        let is_dead = self.is_dead();
        if !is_dead {
            if self.has_hidden_node(deadline).await? {
                return Ok(Stage::Wait(POLL_INTERVAL));
            }
            if let Stage::Wait(after) = self.drain(deadline).await? {
                return Ok(Stage::Wait(after));
            }
        }
        // It does not wait for volumes and delays: a replacement is launched only soon after the notice.
        let is_pending = self.shared.pending_replacements.retry(&self.deps.drain_delay, &self.subject.claim);
        if !is_dead {
            // Only now: a volume may be attached until the last pod has stopped.
            if let Stage::Wait(after) = self.detach(deadline).await? {
                return Ok(Stage::Wait(after));
            }
            if let Stage::Wait(after) = self.outlive_drain(deadline).await? {
                return Ok(Stage::Wait(after));
            }
        }
        match self.terminate_instance().await? {
            Stage::Wait(after) => Ok(Stage::Wait(after)),
            // The claim is kept, since the replacement is derived from it.
            Stage::Done if is_pending => Ok(Stage::Wait(POLL_INTERVAL)),
            Stage::Done => self.finish().await,
        }
    }

    /// Whether there is nothing to drain: the kubelet is silent and the instance is gone.
    fn is_dead(&self) -> bool {
        let silent = |node: &Arc<Node>| !nodes::is_ready(node);
        let (Some(id), true) = (self.instance(), self.subject.nodes.iter().all(silent)) else { return false };
        self.shared.instances.observe(id, self.created(), self.deps.clock.timestamp()) == InstancePhase::Gone
    }

    fn instance(&self) -> Option<&str> {
        self.subject.claim.instance_id()
    }

    fn created(&self) -> plimsoll_model::time::Timestamp {
        plimsoll_snapshot::created(&self.subject.claim.metadata)
    }

    /// The deadline of the termination: the recorded one, or the end of the claim's grace period.
    fn deadline(&self) -> Option<Timestamp> {
        let claim = &*self.subject.claim;
        deadline(claim).or_else(|| {
            let period = claim.spec.termination_grace_period.as_ref()?;
            let period = SignedDuration::try_from(period.value()).unwrap_or(SignedDuration::MAX);
            let deleted = claim.metadata.deletion_timestamp.as_ref()?;
            Some(deleted.0.saturating_add(period).unwrap_or(Timestamp::MAX))
        })
    }

    async fn record_deadline(&self, at: Option<Timestamp>) -> Result<(), WriteError> {
        let claim = &*self.subject.claim;
        let Some(at) = at.filter(|_| deadline(claim).is_none()) else { return Ok(()) };
        let text = at.to_string();
        let change = |claim: &mut NodeClaim| {
            claim.annotations_mut().entry(annotation::TERMINATION_TIMESTAMP.to_owned()).or_insert_with(|| text.clone());
        };
        self.deps.writes.update(claim, ObjectPart::Main, change).await.map(|_| ())
    }

    /// Taints the node and deletes it; the finalizer keeps the object. Returns whether both are done.
    async fn taint_and_delete(&self, node: &Node, deadline: Option<Timestamp>) -> Result<bool, WriteError> {
        if let UpdateResult::Gone = self.deps.writes.update(node, ObjectPart::Main, taint_and_exclude).await? {
            return Ok(false);
        }
        if has_finalizer(node, TERMINATION_FINALIZER) && node.metadata.deletion_timestamp.is_none() {
            self.deps.writes.delete(node, None).await?;
        }
        if let Some(deadline) = deadline {
            let message =
                format!("all pods will be deleted before {deadline}, when the node's terminationGracePeriod ends");
            for object in [object(node), object(&*self.subject.claim)] {
                self.deps.events.publish(Note::warning(object, reason::GRACE_PERIOD_EXPIRING, message.as_str()));
            }
        }
        Ok(true)
    }

    async fn detach(&self, deadline: Option<Timestamp>) -> Result<Stage, WriteError> {
        let claim = &*self.subject.claim;
        let nodes = self.registered();
        let state = condition_of(claim, VOLUMES_DETACHED);
        if nodes.is_empty() || state.is_some_and(|(status, _)| status != "Unknown") {
            return Ok(Stage::Done);
        }
        let message = match self.shared.volumes.attached(self.deps, &nodes, &self.subject.pods).await {
            Ok(attached) if attached.is_empty() => {
                self.set(VOLUMES_DETACHED, Status::True, VOLUMES_DETACHED, "").await?;
                return Ok(Stage::Done);
            }
            Ok(attached) => format!("volumes still attached: {}", attached.join(", ")),
            Err(error) => format!("attached volumes are not known: {error}"),
        };
        if deadline.is_some_and(|deadline| deadline <= self.deps.clock.now()) {
            self.set(VOLUMES_DETACHED, Status::False, "TerminationGracePeriodElapsed", &message).await?;
            return Ok(Stage::Done);
        }
        self.set(VOLUMES_DETACHED, Status::Unknown, "AwaitingVolumeDetachment", &message).await?;
        for node in nodes {
            let note = Note::normal(object(&**node), reason::AWAITING_VOLUMES, message.as_str());
            self.deps.events.publish(note);
        }
        Ok(Stage::Wait(POLL_INTERVAL))
    }

    async fn terminate_instance(&self) -> Result<Stage, WriteError> {
        let Some(id) = self.instance() else {
            if self.subject.claim.provider_id().is_some() {
                tracing::error!(
                    node_claim = self.subject.claim.name_any(),
                    "providerID is not that of an EC2 instance"
                );
                return Ok(Stage::Done);
            }
            let over = self.shared.unlaunched.has_no_instance(self.deps, &self.subject.claim).await?;
            return Ok(if over { Stage::Done } else { Stage::Wait(POLL_INTERVAL) });
        };
        let (phase, problem) = self.shared.instances.end(self.deps, &self.subject.claim, id, self.created());
        self.tell_early_end(id, phase).await;
        match (phase, problem) {
            (InstancePhase::Gone, _) => Ok(Stage::Done),
            (InstancePhase::Running, Some((reason, message))) => {
                self.set(INSTANCE_TERMINATING, Status::False, reason, &message).await?;
                Ok(Stage::Wait(POLL_INTERVAL))
            }
            (InstancePhase::Running, None) => Ok(Stage::Wait(Duration::from_millis(200))),
            (InstancePhase::Terminating, _) => {
                self.set(INSTANCE_TERMINATING, Status::True, INSTANCE_TERMINATING, "").await?;
                Ok(Stage::Wait(POLL_INTERVAL))
            }
        }
    }

    /// Removes the finalizers of Node and claim.
    async fn finish(&self) -> Result<Stage, WriteError> {
        for node in &self.subject.nodes {
            if node.metadata.deletion_timestamp.is_none() {
                // The Node never registered, so it has no finalizer, or it was not deleted in time. No other controller
                // would delete it.
                self.deps.writes.delete(&**node, None).await?;
            }
            self.deps.writes.release(&**node).await?;
        }
        let claim = &*self.subject.claim;
        let is_released = self.release_claim().await?;
        self.shared.pending_replacements.forget(claim);
        let name = claim.name_any();
        self.deps.ledger.with(|ledger| {
            ledger.gone(&name);
            let reservation = claim.labels().get(label::CAPACITY_RESERVATION_ID).filter(|_| is_released);
            reservation.into_iter().for_each(|id| ledger.reservation_freed(id));
        });
        if !is_released {
            return Ok(Stage::Done);
        }
        let now = self.deps.clock.now();
        self.subject.nodes.iter().for_each(|node| self.deps.metrics.nodes.terminated(node, now));
        self.deps.metrics.claims.terminated(claim, now);
        tracing::info!(node_claim = name, "NodeClaim and instance are gone");
        Ok(Stage::Done)
    }

    /// Removes the finalizer of the claim. Returns whether this call has removed it: the watch cache may still show a
    /// claim that was released before, and it is counted once.
    async fn release_claim(&self) -> Result<bool, WriteError> {
        let claim = &*self.subject.claim;
        match self.deps.writes.release(claim).await {
            Ok(result) => Ok(matches!(result, UpdateResult::Written(_))),
            // If it is gone, the watch cache may drop it before the next try, and then nothing counts it.
            Err(error) if error.may_have_happened() => {
                let read = self.deps.writes.read_claim(&claim.name_any()).await?;
                let is_gone = read.is_none_or(|read| read.metadata.uid != claim.metadata.uid);
                if is_gone { Ok(true) } else { Err(error) }
            }
            Err(error) => Err(error),
        }
    }

    /// Sets a condition of the claim. Returns whether that succeeded; once the deadline is over, a failure is no error.
    async fn set(&self, name: &str, status: Status, reason: &str, message: &str) -> Result<bool, WriteError> {
        let now = self.deps.clock.now();
        let change = |claim: &mut NodeClaim| claim.set_condition(now, name, status, reason, message);
        let written = self.deps.writes.update(&*self.subject.claim, ObjectPart::Status, change).await;
        written.map(|_| true).or_else(|error| self.go_on_if_over(error).map(|()| false))
    }
}

/// The deadline by which the node must be terminated.
pub(crate) fn deadline(claim: &NodeClaim) -> Option<Timestamp> {
    claim.annotations().get(annotation::TERMINATION_TIMESTAMP)?.parse().ok()
}

fn condition_of(claim: &NodeClaim, name: &str) -> Option<(String, Timestamp)> {
    let found = condition::get(&claim.status.as_ref()?.conditions, name)?;
    Some((found.status.clone(), found.last_transition_time.0))
}

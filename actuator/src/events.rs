//! Kubernetes Events about objects. Each cause is published at most once per time window.

mod queue;

use crate::io::{Action, RateLimiter};
use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use plimsoll_api::NodePool;
use plimsoll_model::plan::{PodRef, Reason, ReasonCode};
use plimsoll_runtime::clock::Clock;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// The reporting component.
pub const COMPONENT: &str = "plimsoll-actuator";
/// Default window within which a repeated cause is not published again.
const DEFAULT_WINDOW: Duration = Duration::from_secs(120);
/// Window for unschedulable pods, which may wait for a long time.
const UNSCHEDULABLE_WINDOW: Duration = Duration::from_secs(300);
/// Window for conditions that block a node permanently.
const BLOCKED_WINDOW: Duration = Duration::from_secs(900);
/// Capacity of the queue. A burst beyond it drops the newest Events; no logic depends on them.
const QUEUE: usize = 4096;
/// Maximum message length in bytes, as the API server enforces it.
const MAX_MESSAGE: usize = 1024;
/// Bytes of a message in which NodePools are counted: enough for four reasons.
const COUNTS: usize = 200;

/// Event reasons; Karpenter's where it has one.
pub mod reason {
    /// A plan has a node for a pod.
    pub const NOMINATED: &str = "Nominated";
    /// A pod cannot be scheduled.
    pub const FAILED_SCHEDULING: &str = "FailedScheduling";
    /// An annotation cannot be read, and is ignored.
    pub const INVALID_ANNOTATION: &str = "InvalidAnnotation";
    /// The value of a pod's do-not-disrupt annotation cannot be read, and does not protect the pod.
    pub const INVALID_DO_NOT_DISRUPT: &str = "InvalidDoNotDisruptAnnotation";
    /// The schedule of a NodePool's budget cannot be read, so that no node of the pool is disrupted.
    pub const INVALID_BUDGET: &str = "InvalidBudget";
    /// A NodePool's own requirements leave it nothing to launch.
    pub const NO_COMPATIBLE_INSTANCE_TYPES: &str = "NoCompatibleInstanceTypes";
    /// What would have been done while another autoscaler runs.
    pub const SHADOW_REPORT: &str = "ShadowReport";
    /// A claim's instance was launched.
    pub const LAUNCHED: &str = "Launched";
    /// A claim's instance was not launched for lack of capacity, or lost its capacity before its Node registered.
    pub const INSUFFICIENT_CAPACITY: &str = "InsufficientCapacityError";
    /// A claim's instance was not launched for another reason, or ended before its Node registered.
    pub const LAUNCH_FAILED: &str = "LaunchFailed";
    /// A claim's Node registered.
    pub const REGISTERED: &str = "Registered";
    /// A claim's Node is initialized.
    pub const INITIALIZED: &str = "Initialized";
    /// A Node registered without the taint that keeps pods away until registration completes.
    pub const UNREGISTERED_TAINT_MISSING: &str = "UnregisteredTaintMissing";
    /// A Node has a taint that its claim does not declare, and waits for the end of the taint.
    pub const UNDECLARED_TAINT: &str = "UndeclaredTaint";
    /// A Node has less capacity than its claim expects.
    pub const FAILED_CONSISTENCY_CHECK: &str = "FailedConsistencyCheck";
    /// A claim did not launch or register in time, its Node was not initialized in time, or its Node is gone.
    pub const TIMED_OUT: &str = "NodeClaimTimedOut";
    /// A canary of a rollout has failed.
    pub const ROLLOUT_HALTED: &str = "RolloutHalted";
    /// A disruption was abandoned or is not possible.
    pub const DISRUPTION_BLOCKED: &str = "DisruptionBlocked";
    /// A node that may be disrupted is not consolidated because of its NodePool.
    pub const UNCONSOLIDATABLE: &str = "Unconsolidatable";
    /// A node is launched to replace one that is disrupted.
    pub const DISRUPTION_LAUNCHING: &str = "DisruptionLaunching";
    /// A disruption waits for its replacement nodes.
    pub const DISRUPTION_WAITING: &str = "DisruptionWaitingReadiness";
    /// A disruption deletes its node now.
    pub const DISRUPTION_TERMINATING: &str = "DisruptionTerminating";
    /// A pod was evicted.
    pub const EVICTED: &str = "Evicted";
    /// A pod was deleted because its node's grace period expired.
    pub const DISRUPTED: &str = "Disrupted";
    /// Pods prevent a node from draining.
    pub const FAILED_DRAINING: &str = "FailedDraining";
    /// A node has a deadline by which it will be terminated.
    pub const GRACE_PERIOD_EXPIRING: &str = "TerminationGracePeriodExpiring";
    /// Volume attachments delay a node's termination.
    pub const AWAITING_VOLUMES: &str = "AwaitingVolumeDetachment";
    /// EC2 reclaims a Spot instance.
    pub const SPOT_INTERRUPTED: &str = "SpotInterrupted";
    /// EC2 recommends to replace a Spot instance.
    pub const SPOT_REBALANCE: &str = "SpotRebalanceRecommendation";
    /// An instance is being stopped.
    pub const INSTANCE_STOPPING: &str = "InstanceStopping";
    /// An instance is being terminated.
    pub const INSTANCE_TERMINATING: &str = "InstanceTerminating";
    /// The owner of a capacity reservation takes an instance back.
    pub const RESERVATION_INTERRUPTED: &str = "CapacityReservationInstanceInterrupted";
    /// A node is terminated because of an interruption notice.
    pub const TERMINATING_ON_INTERRUPTION: &str = "TerminatingOnInterruption";
    /// EC2 reports an instance as impaired, or has scheduled an event for it.
    pub const INSTANCE_UNHEALTHY: &str = "InstanceUnhealthy";
    /// A condition of a Node has been bad for too long, and the Node will be replaced.
    pub const NODE_REPAIR: &str = "NodeRepair";
    /// Too many instances or Nodes are impaired at once to replace them.
    pub const NODE_REPAIR_BLOCKED: &str = "NodeRepairBlocked";
    /// A deleted node class still has NodeClaims.
    pub const WAITING_ON_NODE_CLAIMS: &str = "WaitingOnNodeClaimTermination";
    /// The cluster is shifted away from a zone.
    pub const ZONAL_SHIFT_ACTIVE: &str = "ZonalShiftActive";
    /// The shift away from a zone is over.
    pub const ZONAL_SHIFT_CLEARED: &str = "ZonalShiftCleared";
}

/// Event type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Nothing is wrong.
    Normal,
    /// Something may need attention.
    Warning,
}

/// An Event to publish.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// The object that the Event is about.
    pub object: ObjectReference,
    /// Reason, one of [`reason`].
    pub reason: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// Human-readable message.
    pub message: String,
    /// Deduplication key for messages with changing figures; by default the message itself.
    pub cause: Option<String>,
    /// The window within which the same cause is not published again.
    pub window: Duration,
}

impl Note {
    /// A Normal Event about `object`.
    pub fn normal(object: ObjectReference, reason: &'static str, message: impl Into<String>) -> Self {
        let (severity, message) = (Severity::Normal, message.into());
        Self { object, reason, severity, message, cause: None, window: DEFAULT_WINDOW }
    }

    /// A Warning Event about `object`.
    pub fn warning(object: ObjectReference, reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::normal(object, reason, message) }
    }

    /// Sets the deduplication key.
    #[must_use]
    pub fn with_cause(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Sets a long deduplication window.
    #[must_use]
    pub fn with_long_window(mut self) -> Self {
        self.window = BLOCKED_WINDOW;
        self
    }
}

/// Reference to an object of a known kind.
pub fn object<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    // With a resourceVersion, each version would be a different object to the deduplication.
    ObjectReference { resource_version: None, ..object.object_ref(&()) }
}

/// Queues Events and writes them to the cluster. Clones share one queue.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Note>,
    rate_limiter: RateLimiter,
}

impl Recorder {
    /// Starts the writer task; it ends when all clones are dropped.
    #[must_use]
    pub fn start(client: kube::Client, clock: Clock, tasks: &mut JoinSet<()>) -> Self {
        let (queue, notes) = mpsc::channel(QUEUE);
        tasks.spawn(queue::write(client, clock, notes));
        Self { queue, rate_limiter: RateLimiter::default() }
    }

    /// A recorder that discards everything, for use without a cluster.
    #[must_use]
    pub fn silent() -> Self {
        Self { queue: mpsc::channel(1).0, rate_limiter: RateLimiter::default() }
    }

    /// Publishes an Event unless the same cause was published within its window. Never blocks.
    pub fn publish(&self, note: Note) {
        if let Err(mpsc::error::TrySendError::Full(note)) = self.queue.try_send(note) {
            tracing::debug!(reason = note.reason, "event queue is full, event dropped");
        }
    }

    /// Publishes why a pod cannot be scheduled (safety rule 27).
    pub fn unschedulable(&self, pod: &PodRef, reasons: &[Reason]) {
        let codes: Vec<String> =
            reasons.iter().map(|reason| format!("{}={}", reason.node_pool, reason.code.as_str())).collect();
        let note = Note::warning(pod_object(pod), reason::FAILED_SCHEDULING, unschedulable_text(reasons));
        self.publish(Note { window: UNSCHEDULABLE_WINDOW, ..note.with_cause(codes.join(",")) });
    }

    /// Publishes for which node a pod is planned: `node/NAME`, or `nodeclaim/NAME` while there is no Node. Returns
    /// whether an Event is allowed now; a burst of pods exceeds the rate.
    #[must_use]
    pub fn nominated(&self, pod: &PodRef, target: &str) -> bool {
        let is_allowed = self.rate_limiter.try_take(Action::NominatedEvent);
        if is_allowed {
            self.publish(Note::normal(pod_object(pod), reason::NOMINATED, format!("planned for {target}")));
        }
        is_allowed
    }

    /// Publishes that a pool cannot launch anything at all.
    pub fn pool_problem(&self, pool: &NodePool, problem: &Reason) {
        let message = format!("{}: {}", problem.code.as_str(), problem.message);
        let note = Note::warning(object(pool), reason::NO_COMPATIBLE_INSTANCE_TYPES, message);
        self.publish(note.with_cause(problem.code.as_str()));
    }
}

fn pod_object(pod: &PodRef) -> ObjectReference {
    let (namespace, name) = pod.name.split_once('/').unwrap_or(("default", pod.name.as_str()));
    ObjectReference {
        api_version: Some("v1".to_owned()),
        kind: Some("Pod".to_owned()),
        namespace: Some(namespace.to_owned()),
        name: Some(name.to_owned()),
        uid: Some(pod.uid.0.clone()),
        ..ObjectReference::default()
    }
}

/// Why no node can be launched for a pod, in the order of [`rank`]. If the reasons do not fit into an Event, only the
/// first are shown, and further NodePools are counted.
fn unschedulable_text(reasons: &[Reason]) -> String {
    if reasons.is_empty() {
        return "no node can be launched for this pod".to_owned();
    }
    let text = |parts: &[String]| format!("no node can be launched for this pod: {}", parts.join("; "));
    let describe = |reason: &&Reason| match reason.node_pool.as_str() {
        "" => format!("{}: {}", reason.code.as_str(), reason.message),
        pool => format!("NodePool {pool:?}: {}: {}", reason.code.as_str(), reason.message),
    };
    let mut ranked: Vec<&Reason> = reasons.iter().collect();
    ranked.sort_by_key(|reason| rank(reason.code));
    let mut parts: Vec<String> = ranked.iter().map(describe).collect();
    let whole = text(&parts);
    if whole.len() <= MAX_MESSAGE {
        return whole;
    }
    let mut length = text(&[]).len() + COUNTS;
    let fits = |part: &&String| {
        length += part.len() + "; ".len();
        length <= MAX_MESSAGE
    };
    let shown = parts.iter().take_while(fits).count().max(1);
    parts.truncate(shown);
    // The first reason is shown even if it has to be cut.
    if let [only] = &mut *parts {
        only.truncate(only.floor_char_boundary(MAX_MESSAGE - text(&[]).len() - COUNTS));
    }
    let mut counts: BTreeMap<(u8, ReasonCode), usize> = BTreeMap::new();
    for reason in ranked.iter().skip(shown).filter(|reason| !reason.node_pool.is_empty()) {
        *counts.entry((rank(reason.code), reason.code)).or_default() += 1;
    }
    parts.extend(counts.iter().map(|((_, code), count)| {
        let pools = if *count == 1 { "NodePool" } else { "NodePools" };
        format!("{count} more {pools}: {}", code.as_str())
    }));
    text(&parts)
}

/// The order of reasons. What keeps a NodePool that is for such pods from a launch matters more than that another
/// NodePool is for other pods.
fn rank(code: ReasonCode) -> u8 {
    match code {
        ReasonCode::TaintNotTolerated => 3,
        ReasonCode::RequirementsIncompatible => 2,
        ReasonCode::NodeClassNotFound | ReasonCode::NodePoolNotReady => 1,
        _ => 0,
    }
}

#[cfg(test)]
mod tests;

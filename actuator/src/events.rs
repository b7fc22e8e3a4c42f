//! Events on objects, as `kubectl describe` shows them: each cause once per window, however often it is seen.

mod queue;

use k8s_openapi::api::core::v1::ObjectReference;
use kube::Resource;
use plimsoll_model::plan::{PodRef, Reason};
use plimsoll_runtime::clock::Clock;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::task::JoinSet;

/// Who says it.
pub const COMPONENT: &str = "plimsoll-actuator";
/// A cause that is seen again within it is not told again.
const USUAL_WINDOW: Duration = Duration::from_secs(120);
/// The same for pods that have no place: they may wait for long.
const UNSCHEDULABLE_WINDOW: Duration = Duration::from_secs(300);
/// The same for what holds a node for good.
const BLOCKED_WINDOW: Duration = Duration::from_secs(900);
/// Events that wait to be written. A burst beyond it loses the newest: they are help for people, nothing rests on them.
const QUEUE: usize = 4096;
/// The API server takes 1024 bytes of text.
const MAX_MESSAGE: usize = 1024;

/// Reasons, in Karpenter's words where it has them.
pub mod reason {
    /// A pod has no place.
    pub const FAILED_SCHEDULING: &str = "FailedScheduling";
    /// An annotation cannot be read, and is ignored.
    pub const INVALID_ANNOTATION: &str = "InvalidAnnotation";
    /// A NodePool's own requirements leave it nothing to launch.
    pub const NO_COMPATIBLE_INSTANCE_TYPES: &str = "NoCompatibleInstanceTypes";
    /// A claim's instance is there.
    pub const LAUNCHED: &str = "Launched";
    /// A claim's Node is there.
    pub const REGISTERED: &str = "Registered";
    /// A claim's Node is in service.
    pub const INITIALIZED: &str = "Initialized";
    /// A node came without the taint that keeps pods away until it is known.
    pub const UNREGISTERED_TAINT_MISSING: &str = "UnregisteredTaintMissing";
    /// A claim took too long.
    pub const TIMED_OUT: &str = "NodeClaimTimedOut";
    /// A removal was given up, or is not possible.
    pub const DISRUPTION_BLOCKED: &str = "DisruptionBlocked";
    /// A removal waits for its replacements.
    pub const DISRUPTION_WAITING: &str = "DisruptionWaitingReadiness";
    /// A removal takes its node now.
    pub const DISRUPTION_TERMINATING: &str = "DisruptionTerminating";
    /// A pod was evicted.
    pub const EVICTED: &str = "Evicted";
    /// A pod was deleted since its node's time was over.
    pub const DISRUPTED: &str = "Disrupted";
    /// Pods hold a node.
    pub const FAILED_DRAINING: &str = "FailedDraining";
    /// A node has a time by which it will be gone.
    pub const GRACE_PERIOD_EXPIRING: &str = "TerminationGracePeriodExpiring";
    /// Volumes hold a node.
    pub const AWAITING_VOLUMES: &str = "AwaitingVolumeDetachment";
    /// A notice takes a node.
    pub const TERMINATING_ON_INTERRUPTION: &str = "TerminatingOnInterruption";
    /// An instance is impaired.
    pub const NODE_REPAIR: &str = "NodeRepair";
}

/// How much it matters.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Severity {
    /// Nothing is wrong.
    Normal,
    /// Somebody may want to do something.
    Warning,
}

/// What is said about an object.
#[derive(Debug, Clone, PartialEq)]
pub struct Note {
    /// The object.
    pub object: ObjectReference,
    /// Reason, one of [`reason`].
    pub reason: &'static str,
    /// How much it matters.
    pub severity: Severity,
    /// Text for people.
    pub message: String,
    /// What tells one cause from another where the message has figures that change; else the message itself.
    pub cause: Option<String>,
    /// How long the same is not said again.
    pub window: Duration,
}

impl Note {
    /// That all is well with `object`.
    pub fn normal(object: ObjectReference, reason: &'static str, message: impl Into<String>) -> Self {
        let (severity, message) = (Severity::Normal, message.into());
        Self { object, reason, severity, message, cause: None, window: USUAL_WINDOW }
    }

    /// That something is wrong with `object`.
    pub fn warning(object: ObjectReference, reason: &'static str, message: impl Into<String>) -> Self {
        Self { severity: Severity::Warning, ..Self::normal(object, reason, message) }
    }

    /// The same cause, whatever the message.
    #[must_use]
    pub fn because(mut self, cause: impl Into<String>) -> Self {
        self.cause = Some(cause.into());
        self
    }

    /// Said again only after a long while.
    #[must_use]
    pub fn seldom(mut self) -> Self {
        self.window = BLOCKED_WINDOW;
        self
    }
}

/// Names an object of a known kind.
pub fn object<K: Resource<DynamicType = ()>>(object: &K) -> ObjectReference {
    // A resourceVersion would make each version another object.
    ObjectReference { resource_version: None, ..object.object_ref(&()) }
}

/// Takes notes and writes them as Events. Clones share one queue.
#[derive(Debug, Clone)]
pub struct Recorder {
    queue: mpsc::Sender<Note>,
}

impl Recorder {
    /// Starts to write; the task ends when all clones are gone.
    #[must_use]
    pub fn start(client: kube::Client, clock: Clock, tasks: &mut JoinSet<()>) -> Self {
        let (queue, notes) = mpsc::channel(QUEUE);
        tasks.spawn(queue::write(client, clock, notes));
        Self { queue }
    }

    /// One whose notes nobody reads: for what runs without a cluster.
    #[must_use]
    pub fn silent() -> Self {
        Self { queue: mpsc::channel(1).0 }
    }

    /// Says it, unless it was said of late. Never waits.
    pub fn publish(&self, note: Note) {
        if let Err(mpsc::error::TrySendError::Full(note)) = self.queue.try_send(note) {
            tracing::debug!(reason = note.reason, "too many events, one is not written");
        }
    }

    /// Says why a pod has no place (safety rule 27).
    pub fn unschedulable(&self, pod: &PodRef, reasons: &[Reason]) {
        let (namespace, name) = pod.name.split_once('/').unwrap_or(("default", pod.name.as_str()));
        let object = ObjectReference {
            api_version: Some("v1".to_owned()),
            kind: Some("Pod".to_owned()),
            namespace: Some(namespace.to_owned()),
            name: Some(name.to_owned()),
            uid: Some(pod.uid.0.clone()),
            ..ObjectReference::default()
        };
        let codes: Vec<String> =
            reasons.iter().map(|reason| format!("{}={}", reason.node_pool, reason.code.as_str())).collect();
        let note = Note::warning(object, reason::FAILED_SCHEDULING, unschedulable_text(reasons));
        self.publish(Note { window: UNSCHEDULABLE_WINDOW, ..note.because(codes.join(",")) });
    }
}

impl Recorder {
    /// Says that a pool can launch nothing, whatever is asked of it.
    pub fn pool_problem(&self, problem: &Reason) {
        let object = ObjectReference {
            api_version: Some("karpenter.sh/v1".to_owned()),
            kind: Some("NodePool".to_owned()),
            name: Some(problem.node_pool.clone()),
            ..ObjectReference::default()
        };
        let message = format!("{}: {}", problem.code.as_str(), problem.message);
        let note = Note::warning(object, reason::NO_COMPATIBLE_INSTANCE_TYPES, message);
        self.publish(note.because(problem.code.as_str()));
    }
}

fn unschedulable_text(reasons: &[Reason]) -> String {
    let one = |reason: &Reason| match reason.node_pool.as_str() {
        "" => format!("{}: {}", reason.code.as_str(), reason.message),
        pool => format!("NodePool {pool:?}: {}: {}", reason.code.as_str(), reason.message),
    };
    let all: Vec<String> = reasons.iter().map(one).collect();
    if all.is_empty() {
        return "no node can be made for this pod".to_owned();
    }
    format!("no node can be made for this pod: {}", all.join("; "))
}

#[cfg(test)]
mod tests;

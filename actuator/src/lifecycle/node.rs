//! Changes to a Node when it registers and when it is initialized. Pure functions.

use crate::io::add_finalizer;
use crate::nodes;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::{Node, NodeSpec, Taint};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::OwnerReference;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::{TERMINATION_FINALIZER, annotation, label, taint};
use plimsoll_model::quantity::Quantity;
use plimsoll_model::taints::{Taint as ModelTaint, TaintEffect};

/// How long a Node that is Ready waits for the end of a taint that its claim does not declare. Agents start within
/// minutes, and a taint that stays longer is meant to stay.
const UNDECLARED_TAINT_TIMEOUT: SignedDuration = SignedDuration::from_mins(5);
/// How long after its registration a Node waits for that at most, however often it becomes Ready and whatever its clock
/// says. The wait ends long before [`INITIALIZATION_TIMEOUT`](crate::ledger::failures::INITIALIZATION_TIMEOUT), after
/// which another node is launched.
const UNDECLARED_TAINT_LIMIT: SignedDuration = SignedDuration::from_mins(10);

/// Why a Node is not initialized yet.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub(super) enum MissingPrerequisite {
    /// The kubelet does not report Ready.
    #[error("Node is not ready")]
    NotReady,
    /// A startup taint is present.
    #[error("startup taint {0} is still on the Node")]
    StartupTaint(String),
    /// A taint of Kubernetes or a cloud controller is present.
    #[error("taint {0} is still on the Node")]
    EphemeralTaint(String),
    /// A taint is present that the claim does not declare, and that may be one of an agent which starts.
    #[error("taint {taint} is not declared; if it ends while nodes start, add it to spec.template.spec.startupTaints")]
    UndeclaredTaint {
        /// Key and effect.
        taint: String,
        /// When the taint is not waited for any more.
        until: Timestamp,
    },
    /// A requested resource is missing.
    #[error("Node does not report any {0} yet")]
    Resource(String),
}

impl MissingPrerequisite {
    /// The condition's reason, as in Karpenter.
    #[must_use]
    pub(super) fn reason(&self) -> &'static str {
        match self {
            Self::NotReady => "NodeNotReady",
            Self::StartupTaint(_) | Self::UndeclaredTaint { .. } => "StartupTaintsExist",
            Self::EphemeralTaint(_) => "KnownEphemeralTaintsExist",
            Self::Resource(_) => "ResourceNotRegistered",
        }
    }
}

fn has_label(node: &Node, key: &str) -> bool {
    node.metadata.labels.as_ref().and_then(|labels| labels.get(key)).is_some_and(|value| value == "true")
}

fn is(taint: &Taint, key: &str, effect: &str) -> bool {
    taint.key == key && taint.effect == effect
}

/// Whether an unregistered Node lacks the taint that keeps pods away.
pub(super) fn lacks_unregistered_taint(node: &Node) -> bool {
    !has_label(node, label::REGISTERED) && !nodes::taints(node).iter().any(|it| it.key == taint::UNREGISTERED)
}

/// Whether a kubelet created the Node after its claim registered. Nobody removes both the label and the owner that the
/// registration writes.
pub(super) fn is_new(node: &Node, claim: &NodeClaim) -> bool {
    let mut owners = node.metadata.owner_references.iter().flatten();
    !has_label(node, label::REGISTERED) && !owners.any(|owner| Some(&owner.uid) == claim.metadata.uid.as_ref())
}

/// The Node after registration.
pub(super) fn registered(node: &Node, claim: &NodeClaim) -> Node {
    let mut node = node.clone();
    add_finalizer(&mut node, TERMINATION_FINALIZER);
    let (name, uid) = (claim.metadata.name.clone().unwrap_or_default(), claim.metadata.uid.clone().unwrap_or_default());
    let owners = node.metadata.owner_references.get_or_insert_default();
    owners.retain(|owner| owner.uid != uid);
    owners.push(OwnerReference {
        api_version: "karpenter.sh/v1".to_owned(),
        kind: "NodeClaim".to_owned(),
        name,
        uid,
        block_owner_deletion: Some(true),
        controller: None,
    });
    let labels = node.metadata.labels.get_or_insert_default();
    labels.extend(claim.metadata.labels.clone().unwrap_or_default());
    labels.insert(label::REGISTERED.to_owned(), "true".to_owned());
    // Ours are internal to the actuator.
    let keep = |key: &str| !key.starts_with(annotation::PREFIX) && key != annotation::TERMINATION_TIMESTAMP;
    let copied = claim.metadata.annotations.iter().flatten().filter(|(key, _)| keep(key));
    node.metadata.annotations.get_or_insert_default().extend(copied.map(|(key, value)| (key.clone(), value.clone())));
    let by_itself = has_label(&node, label::DO_NOT_SYNC_TAINTS);
    let list = node.spec.get_or_insert_with(NodeSpec::default).taints.get_or_insert_default();
    if !by_itself {
        for taint in claim.spec.taints.iter().chain(&claim.spec.startup_taints) {
            let effect = TaintEffect::from(taint.effect).as_str();
            if !list.iter().any(|existing| is(existing, &taint.key, effect)) {
                list.push(Taint {
                    key: taint.key.clone(),
                    value: taint.value.clone(),
                    effect: effect.to_owned(),
                    time_added: None,
                });
            }
        }
    }
    list.retain(|existing| existing.key != taint::UNREGISTERED);
    node
}

/// The Node after initialization.
pub(super) fn initialized(node: &Node) -> Node {
    let mut node = node.clone();
    node.metadata.labels.get_or_insert_default().insert(label::INITIALIZED.to_owned(), "true".to_owned());
    node
}

/// When the status of the Node's condition Ready last changed.
fn ready_since(node: &Node) -> Option<Timestamp> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready")?.last_transition_time.as_ref().map(|time| time.0)
}

/// Why the Node, which `registered` at that time, is not initialized yet, if so.
pub(super) fn missing_prerequisite(
    node: &Node,
    claim: &NodeClaim,
    registered: Timestamp,
    now: Timestamp,
) -> Option<MissingPrerequisite> {
    if !nodes::is_ready(node) {
        return Some(MissingPrerequisite::NotReady);
    }
    let startup = |taint: &&Taint| {
        claim
            .spec
            .startup_taints
            .iter()
            .any(|startup_taint| is(taint, &startup_taint.key, TaintEffect::from(startup_taint.effect).as_str()))
    };
    if let Some(blocking) = nodes::taints(node).iter().find(startup) {
        return Some(MissingPrerequisite::StartupTaint(format!("{}:{}", blocking.key, blocking.effect)));
    }
    let parsed = |taint: &Taint| {
        let effect = TaintEffect::parse(&taint.effect)?;
        Some(ModelTaint { key: taint.key.clone(), value: String::new(), effect })
    };
    let ephemeral = |taint: &&Taint| parsed(taint).is_some_and(|taint| taint.is_ephemeral());
    if let Some(blocking) = nodes::taints(node).iter().find(ephemeral) {
        return Some(MissingPrerequisite::EphemeralTaint(format!("{}:{}", blocking.key, blocking.effect)));
    }
    let undeclared =
        |taint: &&Taint| parsed(taint).is_some_and(|taint| plimsoll_snapshot::is_undeclared(&taint, claim));
    let after = |since: Timestamp, limit: SignedDuration| since.saturating_add(limit).unwrap_or(Timestamp::MAX);
    let limit = after(registered, UNDECLARED_TAINT_LIMIT);
    let until = ready_since(node).map(|since| after(since, UNDECLARED_TAINT_TIMEOUT).min(limit));
    if let Some(until) = until.filter(|until| *until > now)
        && let Some(blocking) = nodes::taints(node).iter().find(undeclared)
    {
        let taint = format!("{}:{}", blocking.key, blocking.effect);
        return Some(MissingPrerequisite::UndeclaredTaint { taint, until });
    }
    let allocatable = node.status.as_ref().and_then(|status| status.allocatable.as_ref());
    let is_zero =
        |text: &str| Quantity::parse(text).ok().and_then(Quantity::value_ceil).is_none_or(|amount| amount == 0);
    let requested = claim.spec.resources.iter().flat_map(|resources| &resources.requests);
    let missing = requested.filter(|(_, amount)| !is_zero(&amount.0)).find(|(name, _)| {
        allocatable.and_then(|allocatable| allocatable.get(*name)).is_none_or(|amount| is_zero(&amount.0))
    });
    missing.map(|(name, _)| MissingPrerequisite::Resource(name.clone()))
}

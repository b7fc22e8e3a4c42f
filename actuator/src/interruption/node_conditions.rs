//! Replaces nodes whose conditions have been bad for too long, if node repair is enabled. Budgets, PodDisruptionBudgets
//! and do-not-disrupt do not protect the pods of a broken node.

use super::mark::{self, Urgency};
use super::repair_limit::RepairLimit;
use crate::clock::Timestamped;
use crate::events::{Note, object, reason};
use crate::fencing::CLUSTER_CALL;
use crate::interruption::Interruptions;
use crate::pacing::interval_passed;
use crate::stores::WatchedKind;
use k8s_openapi::api::core::v1::{Node, NodeCondition};
use kube::ResourceExt;
use plimsoll_api::NodeClaim;
use plimsoll_model::time::{Millis, Timestamp};
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Kind in the annotation and the metrics, as Karpenter's reason.
const KIND: &str = "unhealthy";

/// A bad status of a condition, and how long it is tolerated.
#[derive(Debug, Clone, Copy)]
struct Policy {
    condition: &'static str,
    bad: &'static str,
    tolerated: Millis,
}

const fn policy(condition: &'static str, bad: &'static str, minutes: u64) -> Policy {
    Policy { condition, bad, tolerated: Millis::from_seconds(minutes * 60) }
}

/// Karpenter's policies on AWS. The conditions other than `Ready` are those of EKS' node monitoring agent.
const POLICIES: [Policy; 7] = [
    policy("Ready", "False", 30),
    policy("Ready", "Unknown", 30),
    policy("AcceleratedHardwareReady", "False", 10),
    policy("StorageReady", "False", 30),
    policy("NetworkingReady", "False", 30),
    policy("KernelReady", "False", 30),
    policy("ContainerRuntimeReady", "False", 30),
];

/// Interval after which a write that failed, or was not allowed, is tried again.
const FAILED_RETRY: Duration = Duration::from_secs(30);
/// Interval of a pass without a change.
const RESYNC: Duration = Duration::from_secs(600);
/// Delay that coalesces changes: each kubelet updates its Node every five minutes, and repairs wait for minutes anyway.
const COALESCE: Duration = Duration::from_secs(5);

/// A bad condition of a node, and when it is no longer tolerated.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Fault {
    condition: String,
    status: String,
    due: Timestamp,
}

/// A node with a claim, and its fault, if it has one.
struct Examined {
    claim: Arc<NodeClaim>,
    node: Arc<Node>,
    fault: Option<Fault>,
}

pub(super) async fn run(deps: &Interruptions, stop: &CancellationToken) {
    if !deps.settings.node_repair {
        return;
    }
    let mut changes = deps.stores.changes(&[WatchedKind::Node, WatchedKind::NodeClaim]);
    loop {
        // While another autoscaler leads, only Events would be written, which would say that nodes are replaced.
        let is_allowed = deps.fence.check(CLUSTER_CALL).is_ok();
        let wait = if is_allowed { pass(deps).await } else { FAILED_RETRY };
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = changes.next() => {}
            () = tokio::time::sleep(wait) => continue,
        }
        if !interval_passed(stop, COALESCE).await {
            return;
        }
    }
}

/// Repairs the nodes that are due. Returns the time until the next one is.
async fn pass(deps: &Interruptions) -> Duration {
    let now = deps.clock.timestamp();
    let examine = |claim: Arc<NodeClaim>| {
        let node = deps.stores.nodes_of(&claim).into_iter().next()?;
        Some(Examined { fault: fault(&node), claim, node })
    };
    let nodes: Vec<Examined> = deps.stores.claims.state().into_iter().filter_map(examine).collect();
    let limit = RepairLimit::new(nodes.iter().map(|one| (&*one.claim, one.fault.is_some())));
    let mut wait = RESYNC;
    for Examined { claim, node, fault } in &nodes {
        let Some(fault) = fault else { continue };
        if fault.due > now {
            wait = wait.min(Duration::from_millis(fault.due.since(now).0));
        } else if let Some(again) = repair(deps, (claim, node), fault, &limit).await {
            wait = wait.min(again);
        }
    }
    wait
}

/// Deletes the claim of a broken node by force. Returns when to try again, if that is necessary.
async fn repair(
    deps: &Interruptions,
    (claim, node): (&NodeClaim, &Node),
    fault: &Fault,
    limit: &RepairLimit,
) -> Option<Duration> {
    let targets = || [object(node), object(claim)];
    if let Some(message) = limit.blocked(claim) {
        tracing::warn!(node = node.name_any(), message, "broken node not replaced");
        let pool = deps.stores.pools.get(claim.node_pool());
        for target in targets().into_iter().chain(pool.as_deref().map(object)) {
            deps.events.publish(Note::warning(target, reason::NODE_REPAIR_BLOCKED, message.clone()).with_long_window());
        }
        // The pass after a change of one of the nodes looks at it again.
        return None;
    }
    let is_first = claim.metadata.deletion_timestamp.is_none();
    if is_first {
        let message =
            format!("condition {} has been {} for too long, replacing the node", fault.condition, fault.status);
        for target in targets() {
            deps.events.publish(Note::warning(target, reason::NODE_REPAIR, message.clone()));
        }
    }
    match mark::mark_and_delete(deps, claim, KIND, None, Urgency::Force).await {
        Ok(()) => {
            if is_first {
                deps.metrics.claims.unhealthy_disrupted(claim, &fault.condition);
            }
            None
        }
        Err(error) => {
            tracing::warn!(node = node.name_any(), %error, "broken node not replaced");
            Some(FAILED_RETRY)
        }
    }
}

/// The fault of a node that is due first.
fn fault(node: &Node) -> Option<Fault> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref()).into_iter().flatten();
    conditions.filter_map(fault_of).min_by_key(|fault| fault.due)
}

fn fault_of(condition: &NodeCondition) -> Option<Fault> {
    let is_bad = |policy: &&Policy| policy.condition == condition.type_ && policy.bad == condition.status;
    let policy = POLICIES.iter().find(is_bad)?;
    let since = Timestamp(condition.last_transition_time.as_ref()?.0.as_millisecond());
    let due = since.plus(policy.tolerated);
    Some(Fault { condition: condition.type_.clone(), status: condition.status.clone(), due })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    /// Each condition has been as it is since a minute of 2026-01-01.
    fn node(conditions: &[(&str, &str, u32)]) -> Node {
        let condition = |(kind, status, minute): &(&str, &str, u32)| {
            let since = format!("2026-01-01T00:{minute:02}:00Z");
            json!({"type": kind, "status": status, "lastTransitionTime": since})
        };
        let conditions: Vec<_> = conditions.iter().map(condition).collect();
        serde_json::from_value(json!({"status": {"conditions": conditions}})).unwrap()
    }

    /// Condition, and minute of the day at which it is due.
    fn due(conditions: &[(&str, &str, u32)]) -> Option<(String, i64)> {
        let midnight: jiff::Timestamp = "2026-01-01T00:00:00Z".parse().unwrap();
        let fault = fault(&node(conditions))?;
        Some((fault.condition, (fault.due.0 - midnight.as_millisecond()) / 60_000))
    }

    #[test]
    fn a_bad_condition_is_tolerated_for_a_while() {
        assert_eq!(due(&[("Ready", "True", 5), ("MemoryPressure", "True", 5)]), None);
        assert_eq!(due(&[("Ready", "Unknown", 5)]), Some(("Ready".to_owned(), 35)));
        assert_eq!(due(&[("StorageReady", "Unknown", 5)]), None, "only False is bad");
    }

    #[test]
    fn each_bad_condition_is_tolerated_for_as_long_as_in_karpenter() {
        for (condition, status, tolerated) in [
            ("Ready", "False", Some(30)),
            ("Ready", "Unknown", Some(30)),
            ("AcceleratedHardwareReady", "False", Some(10)),
            ("AcceleratedHardwareReady", "Unknown", None),
            ("StorageReady", "False", Some(30)),
            ("NetworkingReady", "False", Some(30)),
            ("KernelReady", "False", Some(30)),
            ("ContainerRuntimeReady", "False", Some(30)),
            ("ContainerRuntimeReady", "True", None),
        ] {
            let expected = tolerated.map(|minutes| (condition.to_owned(), minutes));
            assert_eq!(due(&[(condition, status, 0)]), expected, "{condition} {status}");
        }
    }

    #[test]
    fn the_fault_that_is_due_first_counts() {
        let both = [("Ready", "False", 0), ("AcceleratedHardwareReady", "False", 15)];
        assert_eq!(due(&both), Some(("AcceleratedHardwareReady".to_owned(), 25)));
    }
}

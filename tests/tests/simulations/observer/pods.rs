//! How pods leave their nodes.

use super::{Observer, deadline, has_deadline};
use jiff::SignedDuration;
use plimsoll_model::names::{annotation, taint};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::{ChangeKind, Event};
use plimsoll_sim::apiserver::{Audit, object};
use serde_json::Value;

/// Kubernetes' default grace period of a pod.
const DEFAULT_GRACE_SECONDS: i64 = 30;

impl Observer {
    /// Pods leave only nodes that are being deleted. They leave by eviction, for which the API server enforces
    /// PodDisruptionBudgets, or are deleted shortly before their node's deadline. Pods with do-not-disrupt are not
    /// evicted, whatever the reason of the removal is.
    pub(super) fn check_pod(&mut self, event: &Event, by: Option<&Audit>) -> Result<(), String> {
        let pod = &event.object;
        let is_protected = object::annotation(pod, annotation::DO_NOT_DISRUPT) == Some("true");
        if event.kind == ChangeKind::Added && is_protected {
            self.protected.insert(object::uid(pod).to_owned());
        }
        self.keep_pod(event);
        let (Some(by), Some(before)) = (by, event.previous.as_deref()) else { return Ok(()) };
        let (is_evicted, is_deleted) = (by.subresource == "eviction", by.verb == Verb::Delete);
        let name = object::text(before, &["spec", "nodeName"]);
        if !(is_evicted || is_deleted) || object::is_deleting(before) || name.is_empty() {
            return Ok(());
        }
        let node = self.nodes.get(name);
        let id = node.map_or("", |node| object::text(node, &["spec", "providerID"]));
        // A NodeClaim may be deleted before it has the name of its Node.
        let is_of_node = |claim: &Value| {
            let (own_name, own_id) = (&["status", "nodeName"], &["status", "providerID"]);
            object::text(claim, own_name) == name || (!id.is_empty() && object::text(claim, own_id) == id)
        };
        let claims: Vec<&Value> =
            self.claims.values().map(|claim| &**claim).filter(|claim| is_of_node(claim)).collect();
        let is_leaving =
            claims.iter().any(|claim| object::is_deleting(claim)) || node.is_none_or(|node| object::is_deleting(node));
        if !is_leaving {
            return Err(format!("a pod was evicted or deleted although its node {name} stays: {by:?}"));
        }
        if is_evicted && self.protected.contains(object::uid(pod)) {
            return Err(format!("a pod with do-not-disrupt was evicted: {by:?}"));
        }
        if is_evicted || claims.is_empty() {
            return Ok(());
        }
        if !claims.iter().any(|claim| has_deadline(claim)) {
            return Err(format!("a pod was deleted on a node without a deadline: {by:?}"));
        }
        if !claims.iter().any(|claim| self.may_delete(claim, before, by)) {
            return Err(format!("a pod was deleted before its grace period had to begin: {by:?}"));
        }
        Ok(())
    }

    /// Whether the pod's grace period must begin by then, so that it ends before the deadline of the node. No
    /// PodDisruptionBudget counts any more.
    fn may_delete(&self, claim: &Value, pod: &Value, by: &Audit) -> bool {
        // It is not known, such as that of a NodeClaim whose Node is deleted first.
        let Some(deadline) = deadline(claim) else { return has_deadline(claim) };
        let grace = object::integer(pod, &["spec", "terminationGracePeriodSeconds"]).unwrap_or(DEFAULT_GRACE_SECONDS);
        let from = deadline.saturating_sub(SignedDuration::from_secs(grace.max(0)));
        let now = by.sent.saturating_add(self.clock_lead);
        from.ok() <= now.ok()
    }

    fn keep_pod(&mut self, event: &Event) {
        let pod = &event.object;
        if event.kind == ChangeKind::Deleted {
            self.pods.remove(object::uid(pod));
        } else if !object::text(pod, &["spec", "nodeName"]).is_empty() {
            self.pods.insert(object::uid(pod).to_owned(), pod.clone());
        }
    }

    /// Pods that run on a node and that its drain has to wait for.
    pub(super) fn pods_on<'a>(&'a self, node: &'a str) -> impl Iterator<Item = &'a Value> {
        let pods = self.pods.values().map(|pod| &**pod);
        pods.filter(move |pod| object::text(pod, &["spec", "nodeName"]) == node && is_drained(pod))
    }
}

/// Whether a pod runs, is not being deleted, and does not tolerate that its node is removed.
fn is_drained(pod: &Value) -> bool {
    let tolerates = |toleration: &Value| matches!(object::text(toleration, &["key"]), "" | taint::DISRUPTED);
    object::text(pod, &["status", "phase"]) == "Running"
        && !object::is_deleting(pod)
        && object::annotation(pod, annotation::MIRROR).is_none()
        && !object::items(pod, &["spec", "tolerations"]).iter().any(tolerates)
}

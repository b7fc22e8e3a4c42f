//! Why NodeClaims in service are deleted.

use super::{Observer, command, instance_id, is_forced};
use jiff::Timestamp;
use plimsoll_actuator::ports::InstanceState;
use plimsoll_model::names::{annotation, taint};
use plimsoll_model::time::Timestamp as CloudTime;
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::{Event, Object};
use plimsoll_sim::apiserver::{Audit, object};
use plimsoll_sim::world::World;
use serde_json::Value;
use std::time::Duration;

impl Observer {
    /// An actuator deletes the NodeClaim of a node in service only for a removal: the node is tainted, so that no pods
    /// come, the replacements are in service, and the nodes that the pods move to stay.
    pub(super) fn check_removal(&self, world: &World, event: &Event, by: &Audit) -> Result<(), String> {
        let Some(claim) = event.previous.as_deref() else { return Ok(()) };
        if by.verb != Verb::Delete || object::is_deleting(claim) {
            return Ok(());
        }
        let Some(node) = self.node_in_service(world, claim, by.at) else { return Ok(()) };
        // The taint of a removal that is undone may be taken away late, which the next leader need not know yet.
        let last = self.marked.get(object::uid(node));
        if !is_marked(node) && last.is_none_or(|last| self.is_known(*last, by.at)) {
            return Err(format!("a NodeClaim was deleted while its node was in service, without its taint: {by:?}"));
        }
        // A user may have damaged the command after its last check.
        let Some(command) = command(claim) else { return Ok(()) };
        self.check_destinations(&command, by)?;
        self.check_places(&command, node, by)?;
        self.check_pod_budgets(claim, &command, node, by)
    }

    /// The node of a claim that only a removal may delete. Other reasons are durable, or visible in the cluster or the
    /// cloud: the NodeClaim has not been in service, it is marked as interrupted or expired, somebody deletes its Node,
    /// the instance is gone. A Node that was not Ready, or that was not there, may count as lost for a while after it
    /// is back. Its condition tells both, since a Node that is created again becomes Ready anew.
    fn node_in_service(&self, world: &World, claim: &Value, at: Timestamp) -> Option<&Object> {
        let reason = object::condition(claim, "DisruptionReason").map_or("", |it| object::text(it, &["reason"]));
        let is_forced = command(claim).is_some_and(|command| is_forced(&command))
            || object::annotation(claim, annotation::INTERRUPTED).is_some()
            || matches!(reason, "Expired" | "Interrupted");
        if is_forced || !object::condition_is_true(claim, "Initialized") {
            return None;
        }
        let id = instance_id(claim, "status");
        let now = CloudTime(at.as_millisecond());
        let state = world.ec2.read(|cloud, _| cloud.machines().get(id).map(|machine| machine.state(now)));
        if !matches!(state, Some(InstanceState::Pending | InstanceState::Running)) {
            return None;
        }
        let node = self.nodes.get(object::text(claim, &["status", "nodeName"]))?;
        let ready = object::condition(node, "Ready")?;
        let since = object::time_at(ready, &["lastTransitionTime"])?;
        let is_settled = object::text(ready, &["status"]) == "True" && self.is_known(since, at);
        Some(node).filter(|node| is_settled && !object::is_deleting(node))
    }

    /// Notes that a node has the taint, or had it before a change. Changes are read late, at `now`.
    pub(super) fn note_mark(&mut self, event: &Event, now: Timestamp) {
        if is_marked(&event.object) || event.previous.as_deref().is_some_and(is_marked) {
            self.marked.insert(object::uid(&event.object).to_owned(), now);
        }
    }

    /// What the command says about the places of the pods. A replacement that was in service may be lost by now. A
    /// destination that somebody deletes is an obstacle once the actuator knows it.
    fn check_destinations(&self, command: &Value, by: &Audit) -> Result<(), String> {
        let replacements = object::items(command, &["replacements"]).iter().filter_map(Value::as_str);
        for action in replacements {
            if !self.in_service.contains(action) {
                return Err(format!("a node was removed before its replacement {action} was in service: {by:?}"));
            }
        }
        let rooms = object::at(command, &["rooms"]).and_then(Value::as_object);
        // No pods move to a node of which nothing is reserved: they had left before the removal was admitted.
        let is_used = |room: &Value| room.as_object().into_iter().flatten().any(|(_, it)| it.as_i64() != Some(0));
        for (name, _) in rooms.into_iter().flatten().filter(|(_, room)| is_used(room)) {
            let node = self.nodes.get(name);
            let deleted = node.and_then(|node| object::time_at(node, &["metadata", "deletionTimestamp"]));
            if deleted.is_some_and(|deleted| self.is_known(deleted, by.at)) {
                return Err(format!("a node was removed, and its pods were to move to {name}, which leaves: {by:?}"));
            }
        }
        Ok(())
    }

    /// Pods that another pod replaces have a place: on existing nodes or on the replacements. A drifted node of a pool
    /// at its limits is removed without a place. A pod that has just started may be unknown.
    fn check_places(&self, command: &Value, node: &Value, by: &Audit) -> Result<(), String> {
        let has_place = !object::items(command, &["replacements"]).is_empty()
            || object::at(command, &["rooms"]).and_then(Value::as_object).is_some_and(|rooms| !rooms.is_empty());
        if has_place || object::text(command, &["reason"]) == "Drifted" {
            return Ok(());
        }
        let is_replaced = |pod: &Value| {
            let owner = object::controller(pod).map_or("", |owner| object::text(owner, &["kind"]));
            matches!(owner, "ReplicaSet" | "StatefulSet")
        };
        let runs = |pod: &Value| {
            object::time_at(pod, &["status", "startTime"]).is_some_and(|start| self.is_known(start, by.sent))
        };
        match self.pods_on(object::name(node)).find(|pod| is_replaced(pod) && runs(pod)) {
            Some(pod) => Err(format!("a node was removed, and pod {} has no place: {by:?}", object::name(pod))),
            None => Ok(()),
        }
    }

    /// Whether actuators know at a time what has happened at another.
    pub(super) fn is_known(&self, since: Timestamp, at: Timestamp) -> bool {
        Duration::try_from(at.duration_since(since)).is_ok_and(|passed| passed >= self.settled)
    }
}

/// Whether a node has the taint of a removal.
fn is_marked(node: &Value) -> bool {
    object::items(node, &["spec", "taints"]).iter().any(|one| object::text(one, &["key"]) == taint::DISRUPTED)
}

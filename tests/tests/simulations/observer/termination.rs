//! Instances end only after their drain.

use super::{Observer, deadline, has_deadline, instance_id};
use jiff::Timestamp;
use plimsoll_model::names::label;
use plimsoll_sim::apiserver::object;
use plimsoll_sim::apiserver::store::{ChangeKind, Event};
use plimsoll_sim::cloud::{Action, Call, Outcome};
use plimsoll_sim::world::World;
use serde_json::Value;

impl Observer {
    /// When the Node of a deleted NodeClaim goes: the pods that ran when the NodeClaim was deleted had stopped, or were
    /// asked to, when an actuator terminated the instance. Pods that came later are not checked, since the taint may
    /// be taken away late. Nor is a Node that was not Ready before, which may count as lost, nor what EC2 had
    /// terminated by then.
    pub(super) fn check_end(&self, world: &World, event: &Event) -> Result<(), String> {
        let node = event.previous.as_deref().unwrap_or(&event.object);
        let id = instance_id(node, "spec");
        if event.kind != ChangeKind::Deleted || id.is_empty() || object::label(node, label::REGISTERED).is_none() {
            return Ok(());
        }
        let claim = self.claims.values().find(|claim| instance_id(claim, "status") == id);
        let deleted = claim.and_then(|claim| object::time_at(claim, &["metadata", "deletionTimestamp"]));
        let (Some(claim), Some(deleted), Some(asked)) = (claim, deleted, asked_to_terminate(world, id)) else {
            return Ok(());
        };
        let ready = object::condition(node, "Ready").filter(|ready| object::text(ready, &["status"]) == "True");
        let since = ready.and_then(|ready| object::time_at(ready, &["lastTransitionTime"]));
        if since.is_none_or(|since| !self.is_known(since, asked)) || self.is_over(claim, asked) {
            return Ok(());
        }
        let ran = |pod: &Value| object::time_at(pod, &["status", "startTime"]).is_some_and(|start| start <= deleted);
        match self.pods_on(object::name(node)).find(|pod| ran(pod)) {
            Some(pod) => {
                let (pod, node) = (object::name(pod), object::name(node));
                Err(format!("the instance of node {node} was terminated at {asked} while pod {pod} ran"))
            }
            None => Ok(()),
        }
    }

    /// Whether the deadline of a node may have been over, by an actuator's clock.
    fn is_over(&self, claim: &Value, at: Timestamp) -> bool {
        let now = at.saturating_add(self.clock_lead).unwrap_or(Timestamp::MAX);
        has_deadline(claim) && deadline(claim).is_none_or(|deadline| deadline <= now)
    }
}

/// When an actuator first asked EC2 to terminate an instance that had not ended by then.
fn asked_to_terminate(world: &World, id: &str) -> Option<Timestamp> {
    let is_request = |call: &&Call| {
        call.action == Action::TerminateInstances
            && matches!(call.outcome, Outcome::Served | Outcome::AnswerLost)
            && call.client.starts_with("actuator")
            && call.about.split(' ').any(|one| one == id)
    };
    world.ec2.read(|cloud, _| {
        let asked = cloud.log.iter().find(is_request)?.at;
        let ends = cloud.machines().get(id)?.ends_from?;
        Timestamp::from_millisecond(asked.0).ok().filter(|_| ends >= asked)
    })
}

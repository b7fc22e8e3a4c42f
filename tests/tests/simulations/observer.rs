//! Checks each change that actuators make, from the records of the API server and the cloud. No product code decides
//! what is right.
//!
//! An actuator acts on what it knew a moment ago, and its requests may take effect late. So the checks allow for what
//! may have changed in the meantime.

mod budget;
mod pod_budgets;
mod pods;
mod removal;
mod termination;
mod tests;

pub(super) use budget::Budget;

use jiff::{SignedDuration, Timestamp};
use plimsoll_model::names::{annotation, lease};
use plimsoll_sim::apiserver::store::{ChangeKind, Event, Object};
use plimsoll_sim::apiserver::{Audit, ResourceId, object};
use plimsoll_sim::world::World;
use plimsoll_tests::TestCluster;
use pod_budgets::PodBudget;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

/// A write that takes longer got no response in time.
const ANSWERED: Duration = Duration::from_secs(5);
/// Kinds whose changes are replayed.
const OBSERVED: [ResourceId; 4] =
    [ResourceId::NODE_CLAIMS, ResourceId::NODES, ResourceId::PODS, ResourceId::POD_DISRUPTION_BUDGETS];

/// State of the observed objects, replayed from their changes.
#[derive(Debug, Default)]
pub(super) struct Observer {
    /// Time after which an actuator knows of a change, and requests from before the change have taken effect.
    settled: Duration,
    /// By how much the clocks of actuators may be ahead.
    clock_lead: Duration,
    /// Disruption budget of the only pool, if it is checked.
    budget: Option<Budget>,
    /// Number of entries of the audit log, and revision, up to which changes were checked.
    requests: usize,
    revision: u64,
    /// By name.
    claims: BTreeMap<String, Object>,
    nodes: BTreeMap<String, Object>,
    /// Pods that are bound, by UID.
    pods: BTreeMap<String, Object>,
    /// By `namespace/name`.
    pod_budgets: BTreeMap<String, PodBudget>,
    /// When nodes had the taint of a removal last, or a little later, by UID.
    marked: BTreeMap<String, Timestamp>,
    /// UIDs of pods that were created with the annotation do-not-disrupt.
    protected: BTreeSet<String>,
    /// Ids of the actions whose NodeClaims have been in service.
    in_service: BTreeSet<String>,
    /// UIDs of NodeClaims that were created late, or whose removal command was written late: after the time-out of the
    /// request. The leader that follows need not know such a write.
    late: BTreeSet<String>,
    /// UIDs of NodeClaims whose instance was being terminated at some time. Their condition may be withdrawn.
    ended: BTreeSet<String>,
    /// Largest number of NodeClaims so far.
    most_claims: usize,
    /// A user has deleted the actuators' Lease: two of them may act for a while, and nothing is checked any more.
    unfenced: bool,
}

impl Observer {
    /// An observer that has seen nothing yet.
    pub(super) fn new(settled: Duration, budget: Option<Budget>) -> Self {
        Self { settled, budget, ..Self::default() }
    }

    /// The clocks of actuators may be ahead by this much.
    pub(super) fn with_clock_lead(self, clock_lead: Duration) -> Self {
        Self { clock_lead, ..self }
    }

    /// Checks all changes since the last call. It is called often enough that the history has them all, or at least
    /// those of NodeClaims and Nodes: pods and their budgets are unknown after changes that are forgotten.
    pub(super) fn look(&mut self, cluster: &TestCluster) {
        let server = cluster.world.server();
        let since = self.revision;
        self.unfenced |= server.read(|store| {
            let mut leases = store.events_after(ResourceId::LEASES, since).into_iter().flatten();
            leases.any(|event| event.kind == ChangeKind::Deleted && object::name(&event.object) == lease::ACTUATOR)
        });
        if self.unfenced {
            return;
        }
        let is_effect = |entry: &Audit| entry.revision.is_some() && entry.client.starts_with("actuator");
        let (requests, seen) = server.audit_since(self.requests, is_effect);
        self.requests = seen;
        let requests: BTreeMap<u64, Audit> =
            requests.into_iter().filter_map(|entry| Some((entry.revision?, entry))).collect();
        let (mut changes, revision) = server.read(|store| {
            let mut changes: Vec<(ResourceId, Arc<Event>)> = Vec::new();
            for resource in OBSERVED {
                match store.events_after(resource, since) {
                    Ok(events) => changes.extend(events.map(|event| (resource, Arc::clone(event)))),
                    Err(_) if resource == ResourceId::PODS => self.pods.clear(),
                    Err(_) if resource == ResourceId::POD_DISRUPTION_BUDGETS => self.pod_budgets.clear(),
                    Err(_) => {}
                }
            }
            (changes, store.revision())
        });
        self.revision = revision;
        changes.sort_by_key(|(_, event)| event.revision);
        for (resource, event) in &changes {
            let problem = self.check(&cluster.world, *resource, event, requests.get(&event.revision)).err();
            assert!(problem.is_none(), "{}\n{}", problem.unwrap_or_default(), cluster.summary());
        }
    }

    /// Checks a change, which `by` made if it was an actuator.
    fn check(&mut self, world: &World, resource: ResourceId, event: &Event, by: Option<&Audit>) -> Result<(), String> {
        let now = world.server().now();
        if resource == ResourceId::NODES {
            self.note_mark(event, now);
            keep(&mut self.nodes, event);
            return self.check_end(world, event);
        }
        if resource == ResourceId::PODS {
            return self.check_pod(event, by);
        }
        if resource == ResourceId::POD_DISRUPTION_BUDGETS {
            self.note_pod_budget(event, now);
            return Ok(());
        }
        if let Some(by) = by {
            self.check_epoch(event, by)?;
            self.check_removal(world, event, by)?;
        }
        keep(&mut self.claims, event);
        self.most_claims = self.most_claims.max(self.claims.len());
        if object::condition_is_true(&event.object, "InstanceTerminating") {
            self.ended.insert(object::uid(&event.object).to_owned());
        }
        if object::condition_is_true(&event.object, "Initialized") {
            self.in_service.extend(object::annotation(&event.object, annotation::ACTION_ID).map(str::to_owned));
        }
        by.map_or(Ok(()), |by| self.check_budget(event, by))
    }

    /// A NodeClaim is created under no older epoch than the others: the leader has read their epochs. A late write is
    /// that of a former leader.
    fn check_epoch(&mut self, event: &Event, by: &Audit) -> Result<(), String> {
        let claim = &event.object;
        if event.kind != ChangeKind::Added {
            return Ok(());
        }
        if is_late(by) {
            self.late.insert(object::uid(claim).to_owned());
            return Ok(());
        }
        let others = self.claims.values().filter(|other| !self.late.contains(object::uid(other)));
        let newest = others.filter_map(|other| epoch(other)).max();
        if epoch(claim).is_some_and(|own| newest.is_some_and(|newest| own < newest)) {
            return Err(format!("a NodeClaim was created under an older epoch than {newest:?}: {by:?}"));
        }
        Ok(())
    }
}

fn keep(objects: &mut BTreeMap<String, Object>, event: &Event) {
    let name = object::name(&event.object).to_owned();
    if event.kind == ChangeKind::Deleted {
        objects.remove(&name);
    } else {
        objects.insert(name, Arc::clone(&event.object));
    }
}

fn epoch(claim: &Value) -> Option<u64> {
    object::annotation(claim, annotation::EPOCH)?.parse().ok()
}

/// Whether the request took effect only after the client had given it up.
fn is_late(entry: &Audit) -> bool {
    Duration::try_from(entry.at.duration_since(entry.sent)).is_ok_and(|took| took > ANSWERED)
}

/// Whether the pods of the NodeClaim's node may be deleted at a certain time.
fn has_deadline(claim: &Value) -> bool {
    object::annotation(claim, annotation::TERMINATION_TIMESTAMP).is_some()
        || object::at(claim, &["spec", "terminationGracePeriod"]).is_some()
}

/// When all pods of the NodeClaim's node must have ended, if that is certain.
fn deadline(claim: &Value) -> Option<Timestamp> {
    if let Some(recorded) = object::annotation(claim, annotation::TERMINATION_TIMESTAMP) {
        return recorded.parse().ok();
    }
    let period: SignedDuration = object::text(claim, &["spec", "terminationGracePeriod"]).parse().ok()?;
    object::time_at(claim, &["metadata", "deletionTimestamp"])?.checked_add(period).ok()
}

/// Id of the instance of a NodeClaim (`status.providerID`) or of a Node (`spec.providerID`); empty if there is none.
fn instance_id<'a>(object: &'a Value, part: &str) -> &'a str {
    object::text(object, &[part, "providerID"]).rsplit('/').next().unwrap_or_default()
}

/// The command of a removal, if there is one that can be read.
fn command(claim: &Value) -> Option<Value> {
    let command: Value = serde_json::from_str(object::annotation(claim, annotation::REMOVAL)?).ok()?;
    object::integer(&command, &["admitted"]).map(|_| command)
}

/// Whether the removal ignores budgets and what protects pods.
fn is_forced(command: &Value) -> bool {
    matches!(object::text(command, &["reason"]), "Expired" | "Interrupted")
}

//! Events around a write.

use super::case::{Operation, WriteFault};
use jiff::Timestamp;
use plimsoll_model::names::{annotation, lease};
use plimsoll_sim::apiserver::faults::{Effect, Gate, Matcher, RuleId};
use plimsoll_sim::apiserver::store::{DeleteOptions, Write};
use plimsoll_sim::apiserver::{Audit, ResourceId, object};
use plimsoll_sim::plimsoll::Role;
use plimsoll_tests::{MINUTE, TestCluster};
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::time::Duration;
use tokio::time::Instant;

/// Time for which requests of one kind get no response: longer than all attempts of a write, while Leases are renewed.
const STALL: Duration = Duration::from_secs(40);
/// Time for which an annotation stays corrupted.
const DAMAGE: Duration = MINUTE;
/// Time for which pods are protected: longer than a late write.
const PROTECTED_PODS: Duration = MINUTE;
/// Time for which an instance is protected from termination.
const PROTECTION: Duration = Duration::from_secs(10 * 60);
/// Time limit for the termination of other instances meanwhile, from the deletion of their NodeClaims.
const OTHERS: Duration = Duration::from_secs(6 * 60);

/// An event that waits for a write, and its remaining effects.
pub(super) struct Incident {
    process: String,
    operation: Operation,
    fault: WriteFault,
    gate: Gate,
    /// Start of the flow.
    began: Timestamp,
    phase: Phase,
}

enum Phase {
    Waiting,
    Stalled { rule: RuleId, until: Instant },
    Damaged { claim: String, annotation: &'static str, mended: Value, until: Instant },
    Protected { instance: String, since: Instant },
    ProtectedPods { pods: Vec<String>, staying_claims: BTreeSet<String>, until: Instant },
    Over,
}

impl Incident {
    pub(super) fn new(process: &str, operation: Operation, fault: WriteFault, gate: Gate, began: Timestamp) -> Self {
        Self { process: process.to_owned(), operation, fault, gate, began, phase: Phase::Waiting }
    }

    /// Whether the event has no further effects.
    pub(super) fn is_over(&self) -> bool {
        matches!(self.phase, Phase::Over)
    }

    /// Lets time pass. The event is injected as soon as the write is made.
    pub(super) async fn pass(&mut self, cluster: &mut TestCluster, time: Duration) {
        match &self.phase {
            Phase::Waiting => tokio::select! {
                biased;
                () = self.gate.reached(1) => self.inject(cluster),
                () = cluster.pass(time) => {}
            },
            _ => cluster.pass(time).await,
        }
        self.go_on(cluster);
    }

    fn inject(&mut self, cluster: &mut TestCluster) {
        let now = Instant::now();
        self.phase = Phase::Over;
        match self.fault {
            WriteFault::CrashBefore | WriteFault::CrashAfter => drop(cluster.plimsoll.replace(&self.process)),
            WriteFault::CrashDeleted => {
                cluster.plimsoll.replace(&self.process);
                let waits = |claim: &Value| object::text(claim, &["status", "providerID"]).is_empty();
                for claim in cluster.claims().iter().filter(|claim| waits(claim)) {
                    drop(cluster.world.delete(ResourceId::NODE_CLAIMS, object::name(claim)));
                }
            }
            WriteFault::Stalled | WriteFault::ObjectStalled => {
                let Operation::Cluster { resource, .. } = self.operation else { return self.gate.open() };
                let client = Some(self.process.clone());
                let name = (self.fault == WriteFault::ObjectStalled).then(|| self.object(cluster));
                let requests = Matcher { client, resource: Some(resource), name, ..Matcher::default() };
                let rule = cluster.world.server().faults().always(requests, Effect::HoldBefore(self.gate.clone()));
                self.phase = Phase::Stalled { rule, until: now + STALL };
                return;
            }
            WriteFault::LeaseDeleted => {
                // Another watcher creates the Lease anew, with the count of transitions that the former one began with.
                if let Some(leader) = cluster.plimsoll.leader(Role::Watcher) {
                    cluster.plimsoll.replace(&leader);
                }
                delete_lease(cluster, lease::WATCHER);
            }
            WriteFault::ClaimDeleted => {
                let used: BTreeSet<String> = cluster.nodes_in_use().into_iter().collect();
                // A younger claim may be a replacement, which would have to be launched again. Creation times are in
                // whole seconds, so a claim of the second in which the flow began may be younger.
                let is_old = |claim: &Value| {
                    let created = object::text(claim, &["metadata", "creationTimestamp"]);
                    created.parse::<Timestamp>().is_ok_and(|created| created.as_second() < self.began.as_second())
                };
                let is_free = |claim: &Value| {
                    let node = object::text(claim, &["status", "nodeName"]);
                    !node.is_empty() && !used.contains(node) && !object::is_deleting(claim) && is_old(claim)
                };
                if let Some(claim) = cluster.claims().iter().find(|claim| is_free(claim)) {
                    drop(cluster.world.delete(ResourceId::NODE_CLAIMS, object::name(claim)));
                }
            }
            WriteFault::CrashDamaged => {
                cluster.plimsoll.replace(&self.process);
                let stays = |claim: &Value| {
                    !object::is_deleting(claim) && object::annotation(claim, annotation::REMOVAL).is_none()
                };
                if let Some(claim) = cluster.claims().iter().rev().find(|claim| stays(claim)) {
                    // The actuator takes away a command that it cannot read; the pods of a launch, only users mend.
                    let is_initialized = object::condition_is_true(claim, "Initialized");
                    let annotation = if is_initialized { annotation::REMOVAL } else { annotation::PODS };
                    let mended = object::annotation(claim, annotation).map_or(Value::Null, |text| json!(text));
                    let claim = object::name(claim).to_owned();
                    annotate(cluster, &claim, annotation, &json!("nonsense"));
                    self.phase = Phase::Damaged { claim, annotation, mended, until: now + DAMAGE };
                }
            }
            WriteFault::Protected => {
                let leaving = |claim: &Value| object::is_deleting(claim);
                if let Some(instance) =
                    cluster.claims().iter().filter(|claim| leaving(claim)).find_map(|claim| instance_of(claim))
                {
                    cluster.world.ec2.with(|cloud, _| cloud.protect(&instance, true));
                    self.phase = Phase::Protected { instance, since: now };
                }
            }
            WriteFault::LateProtected => {
                let (pods, staying_claims) = (pods_on_nodes_in_removal(cluster), consolidated_claims(cluster));
                pods.iter().for_each(|pod| protect(cluster, pod, &json!("true")));
                self.phase = Phase::ProtectedPods { pods, staying_claims, until: now + PROTECTED_PODS };
            }
            WriteFault::AnswerLost | WriteFault::Late => {}
        }
        // A crashed process gets no response.
        if matches!(
            self.fault,
            WriteFault::LeaseDeleted | WriteFault::ClaimDeleted | WriteFault::Protected | WriteFault::LateProtected
        ) {
            self.gate.open();
        }
    }

    /// Name of the object of the last write.
    fn object(&self, cluster: &TestCluster) -> String {
        let audit = cluster.world.server().audit();
        let is_write = |entry: &&Audit| {
            let operation = Operation::of_request(entry.verb, entry.resource, &entry.subresource);
            entry.client == self.process && operation == Some(self.operation)
        };
        audit.iter().rev().find(is_write).map(|entry| entry.name.clone()).unwrap_or_default()
    }

    /// Later effects of the event.
    fn go_on(&mut self, cluster: &TestCluster) {
        let now = Instant::now();
        let is_over = match &self.phase {
            Phase::Stalled { rule, until } if now >= *until => {
                cluster.world.server().faults().remove(*rule);
                self.gate.open();
                true
            }
            Phase::Damaged { claim, annotation, mended, until } if now >= *until => {
                annotate(cluster, claim, annotation, mended);
                true
            }
            Phase::ProtectedPods { pods, staying_claims, until } => {
                let is_deleted =
                    |claim: &Value| staying_claims.contains(object::name(claim)) && object::is_deleting(claim);
                let deleted = cluster.claims().iter().filter(|claim| is_deleted(claim)).count();
                assert_eq!(deleted, 0, "NodeClaims are deleted although the pods of their nodes are protected");
                let is_over = now >= *until;
                if is_over {
                    pods.iter().for_each(|pod| protect(cluster, pod, &Value::Null));
                }
                is_over
            }
            Phase::Protected { instance, since } => {
                // Others may be deleted later, such as a node that expires meanwhile.
                let clock = cluster.world.server().now();
                let is_late = |claim: &Value| {
                    let deleted = object::text(claim, &["metadata", "deletionTimestamp"]).parse::<Timestamp>();
                    let took = deleted.ok().and_then(|deleted| Duration::try_from(clock.duration_since(deleted)).ok());
                    took.is_some_and(|took| took >= OTHERS)
                };
                let claims = cluster.claims();
                let late = claims.iter().filter(|claim| is_late(claim));
                let held: Vec<String> = late.filter_map(|it| instance_of(it)).collect();
                let others = held.iter().filter(|id| *id != instance).count();
                assert!(
                    since.elapsed() < OTHERS || others == 0,
                    "{instance} blocks the termination of others: {held:?}"
                );
                let is_over = since.elapsed() >= PROTECTION;
                if is_over {
                    cluster.world.ec2.with(|cloud, _| cloud.protect(instance, false));
                }
                is_over
            }
            _ => false,
        };
        if is_over {
            self.phase = Phase::Over;
        }
    }
}

fn instance_of(claim: &Value) -> Option<String> {
    let id = object::text(claim, &["status", "providerID"]).rsplit('/').next().unwrap_or_default();
    (!id.is_empty()).then(|| id.to_owned())
}

/// Pods on nodes whose removal is in progress, and whose NodeClaims are not deleted yet.
fn pods_on_nodes_in_removal(cluster: &TestCluster) -> Vec<String> {
    let is_removed =
        |claim: &Value| !object::is_deleting(claim) && object::annotation(claim, annotation::REMOVAL).is_some();
    let claims = cluster.claims();
    let nodes: BTreeSet<&str> = claims
        .iter()
        .filter(|claim| is_removed(claim))
        .map(|claim| object::text(claim, &["status", "nodeName"]))
        .collect();
    let mut pods = cluster.world.all(ResourceId::PODS);
    pods.retain(|pod| nodes.contains(object::text(pod, &["spec", "nodeName"])));
    pods.iter().map(|pod| object::name(pod).to_owned()).collect()
}

/// NodeClaims that consolidation removes with pods, and that are not deleted yet.
fn consolidated_claims(cluster: &TestCluster) -> BTreeSet<String> {
    let is_consolidated = |claim: &Value| {
        let command: Option<Value> =
            object::annotation(claim, annotation::REMOVAL).and_then(|command| serde_json::from_str(command).ok());
        !object::is_deleting(claim) && command.is_some_and(|command| command["reason"] == "Underutilized")
    };
    let claims = cluster.claims();
    claims.iter().filter(|claim| is_consolidated(claim)).map(|claim| object::name(claim).to_owned()).collect()
}

fn protect(cluster: &TestCluster, pod: &str, value: &Value) {
    let patch = json!({"metadata": {"annotations": {annotation::DO_NOT_DISRUPT: value}}});
    drop(cluster.world.patch(ResourceId::PODS, pod, patch));
}

fn annotate(cluster: &TestCluster, claim: &str, annotation: &str, value: &Value) {
    let patch = json!({"metadata": {"annotations": {annotation: value}}});
    drop(cluster.world.patch(ResourceId::NODE_CLAIMS, claim, patch));
}

fn delete_lease(cluster: &TestCluster, name: &str) {
    let (server, options) = (cluster.world.server(), DeleteOptions::default());
    let write = Write::new(server.now(), "kubectl");
    drop(server.write(|store| store.delete(ResourceId::LEASES, "plimsoll-system", name, &options, &write)));
}

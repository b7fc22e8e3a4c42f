//! Invariants, checked on the history of the API server and the cloud without product code.

use jiff::Timestamp;
use plimsoll_model::names::{annotation, lease};
use plimsoll_sim::apiserver::store::ChangeKind;
use plimsoll_sim::apiserver::{Audit, ResourceId, object};
use plimsoll_sim::cloud::{Action, Call};
use plimsoll_sim::world::World;
use plimsoll_tests::{TestCluster, claims_ever_launched, instances_ever_launched, most_cpu_of_claims};
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum time that an instance may run without a claim: a look-up takes two minutes, garbage collection two rounds,
/// and a leader may have to be elected first.
const UNCLAIMED_SECONDS: i64 = 30 * 60;

/// Invariants at every moment: the limit holds, and no instance runs for long without a claim.
pub(super) fn always(cluster: &TestCluster) {
    let world = &cluster.world;
    let claims = world.all(ResourceId::NODE_CLAIMS);
    let claimed: BTreeSet<&str> = claims
        .iter()
        .filter_map(|claim| object::text(claim, &["status", "providerID"]).rsplit('/').next())
        .filter(|id| !id.is_empty())
        .collect();
    let now = world.server().now().as_millisecond();
    let old = world.ec2.read(|cloud, _| {
        let machines = cloud.machines().values();
        let old = machines.filter(|machine| now - machine.launched.0 > UNCLAIMED_SECONDS * 1000);
        old.map(|machine| machine.id.clone()).collect::<BTreeSet<_>>()
    });
    let living = world.living_instances();
    for id in old.iter().filter(|id| living.contains_key(*id)) {
        assert!(claimed.contains(id.as_str()), "instance {id} runs without a claim\n{}", cluster.summary());
    }
}

/// Checks that the limit of pool `default`, in millicores, held at all times.
pub(super) fn limits(cluster: &TestCluster, limit: i64) {
    let most = most_cpu_of_claims(&cluster.world, "default");
    assert!(most <= limit, "{most} of {limit}m cpu");
}

/// Checks after the workloads are deleted: nothing is left, and every launched instance belonged to exactly one claim,
/// except for `surplus`.
pub(super) fn at_the_end(cluster: &TestCluster, surplus: usize) {
    let claims = claims_ever_launched(&cluster.world);
    let claimed: BTreeSet<String> = claims.values().cloned().collect();
    assert_eq!(claimed.len(), claims.len(), "two claims had the same instance: {claims:?}\n{}", cluster.summary());
    let bought = instances_ever_launched(&cluster.world);
    assert!(claimed.is_subset(&bought), "a claim has an instance that was never launched");
    let unclaimed: Vec<&String> = bought.difference(&claimed).collect();
    assert!(unclaimed.len() <= surplus, "launched without a claim: {unclaimed:?}\n{}", cluster.summary());
    assert!(cluster.world.all(ResourceId::NODE_CLAIMS).is_empty(), "{}", cluster.summary());
    assert!(cluster.world.all(ResourceId::NODES).is_empty(), "{}", cluster.summary());
}

/// How long the deletion of a NodeClaim by a user may be unknown to the actuator.
const UNKNOWN_MS: i64 = 1000;

/// Maximum number of NodeClaims that were leaving when the removal of one was admitted, including that one. A budget
/// limits when removals begin: NodeClaims that users delete later do not count, nor those whose instance is being
/// terminated. As in Karpenter, a NodeClaim that was deleted before its node was in service never counts.
pub(super) fn most_leaving_at_admissions(world: &World) -> usize {
    // A user may have damaged the annotation.
    let admitted = |claim: &Value| {
        let command = serde_json::from_str::<Value>(object::annotation(claim, annotation::REMOVAL)?).ok()?;
        object::integer(&command, &["admitted"])
    };
    let deleted = |claim: &Value| {
        let at = object::text(claim, &["metadata", "deletionTimestamp"]).parse::<Timestamp>().ok()?;
        object::condition_is_true(claim, "Initialized").then(|| at.as_millisecond() + UNKNOWN_MS)
    };
    world.server().read(|store| {
        // Since when each NodeClaim counts, and whether it has a command.
        let (mut leaving, mut most) = (BTreeMap::<String, (i64, bool)>::new(), 0);
        for event in store.events_after(ResourceId::NODE_CLAIMS, 0).unwrap() {
            let (claim, uid) = (&event.object, object::uid(&event.object).to_owned());
            let is_over = event.kind == ChangeKind::Deleted || object::condition_is_true(claim, "InstanceTerminating");
            let since = admitted(claim).or_else(|| deleted(claim)).filter(|_| !is_over);
            let Some(since) = since else {
                leaving.remove(&uid);
                continue;
            };
            leaving.insert(uid, (since, admitted(claim).is_some()));
            // Commands may be written in another order than that of their admissions.
            let last = leaving.values().filter(|(_, is_commanded)| *is_commanded).map(|(since, _)| *since).max();
            let count = leaving.values().filter(|(since, _)| last.is_some_and(|last| *since <= last)).count();
            most = most.max(count);
        }
        most
    })
}

/// Number of removals that were undone because a replacement was lost.
pub(super) fn removals_without_replacement(world: &World) -> usize {
    let is_undone = |event: &Value| object::text(event, &["message"]).starts_with("removal undone: replacement");
    world.count(ResourceId::EVENTS, is_undone)
}

/// Number of NodeClaims that were deleted when they were at least this old.
pub(super) fn removed_after(world: &World, seconds: i64) -> usize {
    let time = |claim: &Value, field: &str| object::text(claim, &["metadata", field]).parse::<Timestamp>().ok();
    let is_old = |claim: &Value| {
        let times = time(claim, "creationTimestamp").zip(time(claim, "deletionTimestamp"));
        times.is_some_and(|(created, deleted)| deleted.duration_since(created).as_secs() >= seconds)
    };
    world.server().read(|store| {
        let events = store.events_after(ResourceId::NODE_CLAIMS, 0).unwrap();
        let old = events.filter(|event| is_old(&event.object)).map(|event| object::uid(&event.object).to_owned());
        old.collect::<BTreeSet<String>>().len()
    })
}

/// A budget limits when removals begin: no active removal was reverted because of it, which would waste its
/// replacements.
pub(super) fn no_removal_undone_by_budget(world: &World) {
    let is_undone = |event: &Value| object::text(event, &["message"]).starts_with("removal undone: disruption budget");
    let undone = world.count(ResourceId::EVENTS, is_undone);
    assert_eq!(undone, 0, "removals that had begun were undone because of a disruption budget");
}

/// Checks that only the holder of the actuator's Lease, according to the API server, made changes in the cluster or in
/// the cloud. What counts is when it sent them: faults may delay them.
pub(super) fn fenced(world: &World) {
    let is_lease = |lease: &Value| object::name(lease) == lease::ACTUATOR;
    let (is_deleted, seconds) = world.server().read(|store| {
        let events = || store.events_after(ResourceId::LEASES, 0).unwrap().filter(|event| is_lease(&event.object));
        let seconds = |lease: &Value| object::integer(lease, &["spec", "leaseDurationSeconds"]);
        (events().any(|event| event.kind == ChangeKind::Deleted), events().find_map(|event| seconds(&event.object)))
    });
    if is_deleted {
        return;
    }
    // Who wrote the Lease last, and when, according to the server: the clocks of processes may be wrong.
    let audit = world.server().audit();
    let is_term = |entry: &&Audit| {
        entry.resource == ResourceId::LEASES
            && entry.name == lease::ACTUATOR
            && entry.verb.is_write()
            && (200..300).contains(&entry.code)
    };
    let terms: Vec<(Timestamp, &str)> =
        audit.iter().filter(is_term).map(|entry| (entry.at, entry.client.as_str())).collect();
    let is_allowed = |client: &str, at: Timestamp| {
        let Some((since, holder)) = terms.iter().rev().find(|(renewed, _)| *renewed <= at) else { return false };
        *holder == client && at.duration_since(*since).as_secs() <= seconds.unwrap_or(0)
    };
    let is_effect = |entry: &Audit| {
        let is_own = [ResourceId::LEASES, ResourceId::EVENTS, ResourceId::EVENTS_K8S].contains(&entry.resource);
        entry.verb.is_write() && !is_own && entry.client.starts_with("actuator")
    };
    // The audit log of a long run begins later than the run.
    let began = terms.first().map_or(Timestamp::MAX, |(at, _)| *at);
    for entry in audit.iter().filter(|entry| is_effect(entry) && entry.sent >= began) {
        assert!(is_allowed(&entry.client, entry.sent), "without the Lease: {entry:?}");
    }
    let buys_or_ends = |call: &&Call| matches!(call.action, Action::CreateFleet | Action::TerminateInstances);
    for call in world.ec2.read(|cloud, _| cloud.log.clone()).iter().filter(buys_or_ends) {
        let at = Timestamp::from_millisecond(call.at.0).unwrap();
        if at < began {
            continue;
        }
        assert!(is_allowed(&call.client, at), "without the Lease: {call:?}");
    }
}

/// Checks that since a revision, each PodDisruptionBudget had its required number of healthy pods at every moment.
pub(super) fn pod_budgets(world: &World, since: u64) {
    world.server().read(|store| {
        for event in store.events_after(ResourceId::POD_DISRUPTION_BUDGETS, since).unwrap() {
            let count = |field| object::integer(&event.object, &["status", field]).unwrap_or(0);
            let (healthy, desired) = (count("currentHealthy"), count("desiredHealthy"));
            assert!(healthy >= desired, "{healthy} of {desired} pods were healthy: {}", event.object["status"]);
        }
    });
}

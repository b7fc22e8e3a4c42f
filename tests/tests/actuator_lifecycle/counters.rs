//! Counters and Events of what becomes of nodes.

use super::drain::evictions;
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::plan::Termination;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::apiserver::error::ApiError;
use plimsoll_sim::apiserver::faults::Effect;
use plimsoll_sim::cloud::{Capacity, Pool};
use plimsoll_tests::fake_watcher::{FakeWatcher, Wanted, of_node, wanted};
use plimsoll_tests::{MINUTE, Setup};
use std::time::Duration;

const POOL: (&str, &str) = ("nodepool", "default");

/// Name and labels of a series, and its value.
type Series<'s> = (&'s str, &'s [(&'s str, &'s str)], u64);

/// Checks the sums of series with these labels.
fn check(watcher: &FakeWatcher, expected: &[Series<'_>]) {
    for (name, labels, count) in expected {
        assert_eq!(watcher.counted(name, labels), *count, "{name} {labels:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_node_that_is_replaced_counts_and_is_reported_from_its_launch_to_its_end() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let (claim, node) = watcher.node(&Wanted { instance_type: "m6i.2xlarge", ..wanted("a-1") }).await;
    watcher.deploy("web", "1").await;
    let zone = watcher.world.living_instances().into_values().next().unwrap().zone;
    let refused = ApiError::new(429, "TooManyRequests", "a budget allows no disruption");
    watcher.world.server().faults().next(1, evictions(), Effect::Refuse(refused));
    let pods = watcher.pods_on(&node);
    let replacement = Wanted { pods: pods.clone(), ..wanted("a-2") };
    let removal = Termination { pods, replaced_by: vec![0], ..of_node("r-1", &node) };
    let plan = watcher.plan(&[replacement], vec![removal]).await;
    let outcomes = watcher.send(plan).await;
    assert!(outcomes.iter().all(|it| it.status == OutcomeStatus::Accepted), "{outcomes:?}");
    watcher
        .until("the old claim is gone", 5 * MINUTE, |world| world.get(ResourceId::NODE_CLAIMS, &claim).is_none())
        .await;
    // The actuator gets the response to its last write.
    tokio::time::sleep(Duration::from_secs(1)).await;
    let reported = |kind: &str, name: &str, reason: &str| {
        let events = watcher.world.events_of(kind, name);
        assert!(events.iter().any(|event| event.starts_with(reason)), "{kind} {reason}: {events:?}");
    };
    reported("NodeClaim", &claim, "DisruptionWaitingReadiness: waiting for replacements");
    reported("NodeClaim", &claim, "DisruptionTerminating: removing node: Underutilized");
    reported("Node", &node, "DisruptionTerminating: removing node: Underutilized");
    let (why, policy) = (("reason", "underutilized"), ("consolidation_policy", "when_empty_or_underutilized"));
    let (launch, termination, zone) = (("kind", "launch"), ("kind", "termination"), ("zone", zone.as_str()));
    check(
        &watcher,
        &[
            ("plimsoll_actuator_actions_total", &[launch, ("outcome", "accepted")], 2),
            ("plimsoll_actuator_actions_total", &[termination, ("outcome", "accepted")], 1),
            ("plimsoll_actuator_actions_total", &[termination, ("outcome", "removed")], 1),
            ("plimsoll_actuator_launch_seconds_count", &[("step", "claim")], 2),
            ("plimsoll_actuator_launch_seconds_count", &[("step", "fleet")], 2),
            ("plimsoll_actuator_launch_seconds_count", &[("step", "launched")], 2),
            ("karpenter_nodeclaims_created_total", &[POOL, ("reason", "provisioned")], 1),
            ("karpenter_nodeclaims_created_total", &[POOL, why], 1),
            ("karpenter_nodes_created_total", &[POOL], 2),
            ("plimsoll_actuator_node_registration_seconds_count", &[("instance_type", "m6i.2xlarge")], 1),
            ("karpenter_voluntary_disruption_decisions_total", &[("decision", "replace"), why], 1),
            ("karpenter_nodeclaims_disrupted_total", &[POOL, why, policy], 1),
            ("karpenter_pods_disruption_initiated_total", &[POOL, why, policy], 1),
            ("karpenter_pods_eviction_requests_total", &[("code", "429")], 1),
            ("karpenter_pods_eviction_requests_total", &[("code", "200")], 1),
            ("plimsoll_actuator_evictions_total", &[("result", "refused")], 1),
            ("plimsoll_actuator_evictions_total", &[("result", "evicted")], 1),
            ("karpenter_pods_drained_total", &[why], 1),
            ("karpenter_nodes_drained_total", &[POOL], 1),
            ("karpenter_nodes_terminated_total", &[POOL, zone], 1),
            ("karpenter_nodeclaims_terminated_total", &[POOL, zone], 1),
        ],
    );
}

#[tokio::test(start_paused = true)]
async fn a_launch_without_capacity_counts_as_a_failed_claim() {
    let watcher = FakeWatcher::begin(Setup::default()).await;
    let plan = watcher.plan(&[wanted("a-1")], Vec::new()).await;
    let offerings = plan.launches[0].offerings.clone();
    watcher.world.ec2.with(|cloud, _| {
        for choice in offerings.iter() {
            let pool = Pool::new(&choice.instance_type, &choice.zone, choice.capacity_type);
            cloud.limit(pool, Capacity::Instances(0));
        }
    });
    assert_eq!(watcher.final_outcome(plan).await.status, OutcomeStatus::Failed);
    check(
        &watcher,
        &[
            ("plimsoll_actuator_nodeclaims_failed_total", &[POOL, ("cause", "InsufficientCapacity")], 1),
            ("karpenter_nodeclaims_disrupted_total", &[POOL, ("reason", "insufficient_capacity")], 1),
            ("karpenter_cloudprovider_errors_total", &[("error", "InsufficientCapacityError")], 1),
        ],
    );
    let refused = "karpenter_cloudprovider_instance_launch_failures_total";
    for choice in offerings.iter() {
        let why = ("reason", "InsufficientInstanceCapacity");
        assert!(watcher.counted(refused, &[why, ("zone", &choice.zone)]) > 0, "{choice:?}");
    }
    assert_eq!(watcher.counted(refused, &[("zone_id", "")]), 0, "the ids of the zones are known");
}

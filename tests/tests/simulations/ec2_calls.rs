//! Calls of EC2 by action, beside the token buckets that EC2 documents for an account and region:
//! <https://docs.aws.amazon.com/ec2/latest/devguide/ec2-api-throttling.html>. docs/aws.md has the figures of
//! `PLIMSOLL_NODES=full cargo test --locked --test simulations -- ec2_calls --nocapture`, which takes minutes. Without
//! the variable, clusters have a tenth of the nodes.

use plimsoll_model::names::label;
use plimsoll_sim::cloud::Action;
use plimsoll_sim::world::World;
use plimsoll_tests::{HOUR, MINUTE, Setup, TestCluster};
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;

const BURST: u32 = 1000;
const QUIET: u32 = 500;

/// The number of nodes of this run.
fn nodes(full: u32) -> u32 {
    if std::env::var("PLIMSOLL_NODES").is_ok_and(|size| size == "full") { full } else { full / 10 }
}

/// Size and refill rate per second; `None` for actions of other services.
fn bucket(action: Action) -> Option<(f64, f64)> {
    match action {
        Action::DescribeCapacityReservations
        | Action::DescribeImages
        | Action::DescribeInstanceStatus
        | Action::DescribeInstanceTypeOfferings
        | Action::DescribeInstanceTypes
        | Action::DescribeInstances
        | Action::DescribeLaunchTemplates
        | Action::DescribePlacementGroups
        | Action::DescribeSecurityGroups
        | Action::DescribeSpotPriceHistory
        | Action::DescribeSubnets => Some((100.0, 20.0)),
        Action::CreateTags => Some((100.0, 10.0)),
        Action::DryRunRunInstances => Some((5.0, 2.0)),
        Action::CreateFleet
        | Action::CreateLaunchTemplate
        | Action::DeleteLaunchTemplates
        | Action::DryRunCreateFleet
        | Action::TerminateInstances => Some((50.0, 5.0)),
        _ => None,
    }
}

/// Times of the calls of each action after the first `skip` calls, in seconds.
fn calls(world: &World, skip: usize) -> BTreeMap<String, (Action, Vec<f64>)> {
    let log = world.ec2.with(|cloud, _| cloud.log.clone());
    let mut by_action: BTreeMap<String, (Action, Vec<f64>)> = BTreeMap::new();
    for call in log.iter().skip(skip) {
        let entry = by_action.entry(format!("{:?}", call.action)).or_insert((call.action, Vec::new()));
        entry.1.push(Duration::from_millis(call.at.0.unsigned_abs()).as_secs_f64());
    }
    by_action
}

/// The lowest level of a bucket; below zero, EC2 would have throttled a call.
fn lowest(times: &[f64], (size, rate): (f64, f64)) -> f64 {
    let (mut level, mut last, mut lowest) = (size, f64::MIN, size);
    for time in times {
        level = (level + (time - last).max(0.0) * rate).min(size) - 1.0;
        last = *time;
        lowest = lowest.min(level);
    }
    lowest
}

/// Prints the calls, and checks that no bucket would have been empty.
fn judge(what: &str, by_action: &BTreeMap<String, (Action, Vec<f64>)>) {
    println!("{what}");
    for (name, (action, times)) in by_action {
        let mut times = times.clone();
        times.sort_by(f64::total_cmp);
        let Some((size, rate)) = bucket(*action) else {
            println!("| {name} | {} | not EC2 | |", times.len());
            continue;
        };
        let lowest = lowest(&times, (size, rate));
        println!("| {name} | {} | {size} + {rate}/s | {lowest:.0} |", times.len());
        assert!(lowest >= 0.0, "{name}: EC2's bucket of {size} would have been {lowest} during {what}");
    }
}

async fn cluster(nodes: u32) -> TestCluster {
    let requirements = json!([{"key": label::INSTANCE_TYPE, "operator": "In", "values": ["m6i.large"]}]);
    let cluster =
        TestCluster::begin(Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}}))).await;
    // One pod per node.
    cluster.deploy("web", nodes, 1200);
    cluster.until_running(usize::try_from(nodes).unwrap(), 30 * MINUTE).await;
    cluster
}

#[tokio::test(start_paused = true)]
async fn a_burst_empties_no_bucket_of_ec2() {
    let nodes = nodes(BURST);
    let cluster = cluster(nodes).await;
    let by_action = calls(&cluster.world, 0);
    let fleets = by_action.get("CreateFleet").map_or(0, |(_, times)| times.len());
    assert!((1..=10).contains(&fleets), "{fleets} calls of CreateFleet");
    judge(&format!("a burst of {nodes} nodes"), &by_action);
}

#[tokio::test(start_paused = true)]
async fn a_quiet_hour_costs_few_calls_of_ec2() {
    let nodes = nodes(QUIET);
    let cluster = cluster(nodes).await;
    // Tags and launch templates of the burst are settled.
    cluster.pass(20 * MINUTE).await;
    let skip = cluster.world.ec2.with(|cloud, _| cloud.log.len());
    cluster.pass(HOUR).await;
    let by_action = calls(&cluster.world, skip);
    let of_ec2 = by_action.values().filter(|(action, _)| bucket(*action).is_some());
    let count: usize = of_ec2.map(|(_, times)| times.len()).sum();
    assert!(count <= 600, "{count} calls of EC2 in a quiet hour");
    judge(&format!("a quiet hour with {nodes} nodes"), &by_action);
    assert_eq!(cluster.world.living_instances().len(), usize::try_from(nodes).unwrap());
}

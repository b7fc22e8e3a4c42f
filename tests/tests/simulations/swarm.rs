//! Swarm: each seed selects its own cluster, workloads, faults and rates, because some faults mask others if all are
//! active. `cargo xtask sim` runs many seeds.

mod capacity;
mod config;
mod convergence;
mod events;
mod faults;
mod later_events;
mod ledger;
mod protection;
mod watches;
mod workloads;

use crate::faulty_planner;
use crate::observer::{Budget, Observer};
use crate::oracle;
use config::{Config, LIMIT};
use events::Events;
use later_events::LaterEvents;
use plimsoll_sim::seed::Rng;
use plimsoll_tests::{MINUTE, TestCluster};
use std::time::Duration;

/// Rounds of changes with faults.
const ROUNDS: u64 = 6;
/// Interval at which invariants are checked while time passes.
const LOOK_EVERY: Duration = Duration::from_secs(10);
/// Time after which actuators know of a change: events are up to 20 s late, and so are writes, and after a partition
/// watches are opened again after up to half a minute.
const SETTLED: Duration = Duration::from_secs(120);

/// Lets time pass and checks the invariants.
async fn pass(cluster: &TestCluster, observer: &mut Observer, time: Duration) {
    let mut remaining = time;
    while !remaining.is_zero() {
        let step = remaining.min(LOOK_EVERY);
        cluster.pass(step).await;
        oracle::always(cluster);
        observer.look(cluster);
        remaining -= step;
    }
}

async fn run(seed: u64) {
    let config = Config::of(seed);
    println!("config {config:?}");
    config.fault_names().for_each(|fault| println!("fault {fault}"));
    let mut cluster = TestCluster::begin(config.setup()).await;
    let mut rng = Rng::new(seed ^ 0x5eed);
    config.let_things_go_wrong(&cluster);
    let mut events = Events::default();
    let (mut later_events, mut third) = (LaterEvents::default(), Rng::new(seed ^ 0x7d1d));
    let observer = Observer::new(SETTLED, Budget::parse(config.budget));
    let mut observer = observer.with_clock_lead(config.clock_lead());
    config.deploy_faulty(&cluster);
    for round in 0..ROUNDS {
        config.workloads.deploy(&cluster, &mut rng, round);
        pass(&cluster, &mut observer, Duration::from_millis(rng.below(20_000))).await;
        if let Some(kind) = config.pick_event(&mut rng) {
            // `cargo xtask sim` reads this line. Lines of a cluster's summary start with `event`.
            println!("injected event {kind:?}");
            events.inject(kind, &mut cluster, &mut rng);
        }
        if let Some(kind) = config.pick_later_event(&mut third) {
            println!("injected event {kind:?}");
            later_events.inject(kind, &cluster, &mut third);
        }
        pass(&cluster, &mut observer, Duration::from_millis(rng.below(60_000))).await;
        if rng.chance(500) {
            events.end(&cluster);
            later_events.end(&cluster);
        }
    }
    events.end(&cluster);
    later_events.end(&cluster);
    faults::end(&cluster);
    let pods = config.workloads.deploy_final(&cluster);
    faulty_planner::until_others_run(&cluster, pods, 30 * MINUTE).await;
    faulty_planner::until_told(&cluster, 5 * MINUTE).await;
    convergence::check(&cluster, &mut observer, &config).await;
    ledger::check(&cluster).await;
    config.end_faulty(&cluster);
    oracle::limits(&cluster, LIMIT);
    config.workloads.scale_to_nothing(&cluster);
    cluster.until_empty(45 * MINUTE).await;
    observer.look(&cluster);
    oracle::at_the_end(&cluster, events.surplus());
    oracle::fenced(&cluster.world);
}

async fn runs(from: u64, to: u64) {
    for seed in from..to {
        println!("seed {seed}");
        run(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn seeds_0_to_9() {
    runs(0, 10).await;
}

#[tokio::test(start_paused = true)]
async fn seeds_10_to_19() {
    runs(10, 20).await;
}

/// Seed 53: the write of an Event failed, and the Event was suppressed as if it had been written. Seed 185: a pod is
/// nominated, its nomination is taken back, and it is nominated again.
#[tokio::test(start_paused = true)]
async fn seeds_that_failed_before() {
    runs(53, 54).await;
    runs(185, 186).await;
}

/// First seed and end of `PLIMSOLL_SEEDS=100..200`, if set.
fn asked_for() -> Option<(u64, u64)> {
    let seeds = std::env::var("PLIMSOLL_SEEDS").ok()?;
    assert!(seeds.contains(".."), "PLIMSOLL_SEEDS is of the form 100..200");
    let (from, to) = seeds.split_once("..").unwrap();
    Some((from.parse().unwrap(), to.parse().unwrap()))
}

/// Runs the seeds in `PLIMSOLL_SEEDS=100..200`.
#[tokio::test(start_paused = true)]
async fn seeds_asked_for() {
    if let Some((from, to)) = asked_for() {
        runs(from, to).await;
    }
}

//! Swarm: each seed selects its own cluster, workloads, faults and rates, because some faults mask others if all are
//! active. `cargo xtask sim` runs many seeds.

mod config;
mod convergence;
mod faults;
mod strikes;
mod workloads;

use crate::faulty_planner;
use crate::oracle;
use crate::random_faults::asked_for;
use config::{Config, LIMIT};
use plimsoll_sim::seed::Rng;
use plimsoll_tests::{MINUTE, Scene};
use std::time::Duration;
use strikes::Strikes;

/// Rounds of changes with faults.
const ROUNDS: u64 = 6;
/// Interval at which invariants are checked while time passes.
const LOOK_EVERY: Duration = Duration::from_secs(10);

/// Lets time pass and checks the invariants.
async fn pass(scene: &Scene, time: Duration) {
    let mut remaining = time;
    while !remaining.is_zero() {
        let step = remaining.min(LOOK_EVERY);
        scene.pass(step).await;
        oracle::always(scene);
        remaining -= step;
    }
}

async fn run(seed: u64) {
    let config = Config::of(seed);
    println!("config {config:?}");
    config.fault_names().for_each(|fault| println!("fault {fault}"));
    let mut scene = Scene::begin(config.setup()).await;
    let mut rng = Rng::new(seed ^ 0x5eed);
    config.let_things_go_wrong(&scene);
    let mut strikes = Strikes::default();
    config.deploy_faulty(&scene);
    for round in 0..ROUNDS {
        config.workloads.deploy(&scene, &mut rng, round);
        pass(&scene, Duration::from_millis(rng.below(20_000))).await;
        if let Some(kind) = config.strike(&mut rng) {
            println!("strike {kind:?}");
            strikes.strike(kind, &mut scene, &mut rng);
        }
        pass(&scene, Duration::from_millis(rng.below(60_000))).await;
        if rng.chance(500) {
            strikes.end(&scene);
        }
    }
    strikes.end(&scene);
    faults::end(&scene);
    let pods = config.workloads.deploy_final(&scene);
    faulty_planner::until_others_run(&scene, pods, 30 * MINUTE).await;
    faulty_planner::until_told(&scene, 5 * MINUTE).await;
    convergence::check(&scene, &config).await;
    config.end_faulty(&scene);
    oracle::limits(&scene, LIMIT);
    config.workloads.scale_to_nothing(&scene);
    scene.until_empty(45 * MINUTE).await;
    oracle::at_the_end(&scene, strikes.surplus());
    oracle::fenced(&scene.world);
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

/// Runs the seeds in `PLIMSOLL_SEEDS=100..200`.
#[tokio::test(start_paused = true)]
async fn seeds_asked_for() {
    if let Some((from, to)) = asked_for() {
        runs(from, to).await;
    }
}

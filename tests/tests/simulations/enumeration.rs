//! Enumeration: every write of each service, and every kind that a service watches, with each fault. The cases come
//! from runs without faults, and each case is a separate run. `cargo xtask sim --enumerate` runs all of them.

mod case;
mod flow;
mod incident;
mod play;
mod record;

use case::Case;
use flow::Flow;
use std::panic::{AssertUnwindSafe, catch_unwind};

/// Runs with its own virtual clock, so that a run does not depend on earlier runs.
fn alone<T>(run: impl Future<Output = T>) -> T {
    let mut builder = tokio::runtime::Builder::new_current_thread();
    builder.enable_all().start_paused(true).build().unwrap().block_on(run)
}

fn cases(flow: Flow) -> Vec<Case> {
    alone(record::cases(flow))
}

fn play(name: &str) {
    let case = Case::parse(name).ok_or_else(|| format!("{name} is no case")).unwrap();
    alone(play::play(&case));
}

/// Each test run includes one in this many cases of a flow.
const STRIDE: usize = 67;

/// Cases that found a fault, or a bound that was too strict, which is fixed by now (docs/simulation.md). The last one
/// is for a fault that reading found.
const FIXED: [&str; 13] = [
    "drain/watcher/watch/nodeclaims/stale",
    "buffer-status/watcher/watch/nodeclaims/stale",
    "buffer-status/actuator-0-1/patch-capacitybuffers.status/2/crash-before",
    "interruption/actuator-0-1/patch-nodeclaims.status/1/stalled",
    "removal/actuator-0-1/patch-nodeclaims/7/crash-before",
    "drift/actuator-0-1/patch-nodeclaims/1/crash-before",
    "drift/actuator/watch/pods/stale",
    "drift/actuator/watch/pods/dropped",
    "drift/actuator/watch/pods/reordered",
    "expiry/actuator-0-1/patch-nodeclaims/4/protected",
    "expiry/actuator-0-1/delete-nodeclaims/1/protected",
    "removal/actuator-0-1/patch-nodeclaims/1/answer-lost+watcher/watch/nodeclaims/stale+watcher/watch/nodes/stale",
    "removal/actuator-0-1/delete-nodeclaims/1/late-protected",
];

#[test]
fn cases_that_found_a_fault() {
    FIXED.into_iter().for_each(play);
}

fn some_cases(flow: Flow) {
    for case in cases(flow).iter().step_by(STRIDE) {
        println!("case {case}");
        alone(play::play(case));
    }
}

#[test]
fn launch() {
    some_cases(Flow::Launch);
}

#[test]
fn removal() {
    some_cases(Flow::Removal);
}

#[test]
fn drain() {
    some_cases(Flow::Drain);
}

#[test]
fn interruption() {
    some_cases(Flow::Interruption);
}

#[test]
fn collection() {
    some_cases(Flow::Collection);
}

#[test]
fn buffer_status() {
    some_cases(Flow::BufferStatus);
}

#[test]
fn drift() {
    some_cases(Flow::Drift);
}

#[test]
fn expiry() {
    some_cases(Flow::Expiry);
}

/// Prints the cases of the flows in `PLIMSOLL_FLOWS=launch,drain`, or of all flows, one per line.
#[test]
fn list() {
    if let Ok(asked) = std::env::var("PLIMSOLL_FLOWS") {
        let is_asked = |flow: &Flow| asked.is_empty() || asked.split(',').any(|name| name == flow.name());
        for flow in Flow::ALL.into_iter().filter(is_asked) {
            cases(flow).iter().for_each(|case| println!("case {case}"));
        }
    }
}

/// Runs the cases in the file `PLIMSOLL_CASES`, one per line.
#[test]
fn cases_asked_for() {
    let Ok(file) = std::env::var("PLIMSOLL_CASES") else { return };
    let names = std::fs::read_to_string(file).unwrap();
    let mut failed = 0;
    for name in names.lines() {
        println!("case {name}");
        let is_played = catch_unwind(AssertUnwindSafe(|| play(name))).is_ok();
        println!("{} {name}", if is_played { "passed" } else { "failed" });
        failed += usize::from(!is_played);
    }
    assert_eq!(failed, 0, "cases failed");
}

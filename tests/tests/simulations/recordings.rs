//! Watchers record their plans, which the solver makes again from the recording.

use plimsoll_model::time::Millis;
use plimsoll_replay::{Figures, files, same, simulate};
use plimsoll_sim::plimsoll::{Options, Role};
use plimsoll_tests::{MINUTE, Setup, TestCluster};
use std::ops::ControlFlow;
use std::path::Path;

/// A scale-up, a new leader of the watchers in the middle of another, and a scale-down with consolidation.
async fn recorded(folder: &Path) {
    let options = Options { record_to: Some(folder.to_owned()), ..Options::default() };
    let mut cluster = TestCluster::begin(Setup { options, ..Setup::default() }).await;
    cluster.deploy("web", 9, 900);
    cluster.until_running(9, 3 * MINUTE).await;
    cluster.deploy("api", 5, 2500);
    if let Some(leader) = cluster.plimsoll.leader(Role::Watcher) {
        cluster.plimsoll.stop(&leader).await;
    }
    cluster.until_running(14, 5 * MINUTE).await;
    cluster.scale("api", 1);
    cluster.pass(10 * MINUTE).await;
    if let Some(leader) = cluster.plimsoll.leader(Role::Watcher) {
        cluster.plimsoll.stop(&leader).await;
    }
}

#[tokio::test(start_paused = true)]
async fn each_recorded_plan_is_made_again() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path()).await;
    let files = files(folder.path()).unwrap();
    let summary = same::replay(&files, |_| ()).unwrap();
    assert_eq!(summary.difference, None);
    assert_eq!((summary.cluster.as_str(), summary.truncated.len()), ("demo", 0));
    assert!(files.len() >= 2, "each leader begins a file");
    assert!(summary.plans >= 10 && summary.launches > 0 && summary.removals > 0, "{summary:?}");
    assert!(summary.outcomes > summary.launches.min(4), "{summary:?}");
}

#[tokio::test(start_paused = true)]
async fn the_simulation_of_a_recording_costs_about_what_was_recorded() {
    let folder = tempfile::tempdir().unwrap();
    recorded(folder.path()).await;
    let boot = Millis::from_seconds(45);
    let files = files(folder.path()).unwrap();
    let on = |_: usize| ControlFlow::Continue(());
    let compared = simulate::compare(&files, &|recorded, _| recorded.node_pools.clone(), boot, on).unwrap();
    assert_eq!(compared.same_pools, compared.other_pools);
    let Figures { micro_usd, launched, .. } = compared.recorded;
    assert!(micro_usd > 0 && launched > 0, "{compared:?}");
    let ratio = compared.same_pools.micro_usd as f64 / micro_usd as f64;
    assert!((0.8..1.2).contains(&ratio), "{ratio}: {compared:#?}");
    // Consolidation may end in another way, since pods are bound at other moments.
    let ratio = compared.same_pools.hourly.usd() / compared.recorded.hourly.usd();
    assert!((0.8..1.2).contains(&ratio), "{ratio}: {compared:#?}");
    assert_eq!((compared.same_pools.waiting, compared.recorded.waiting), (0, 0));
}

//! Watches of one kind that are distorted.

use super::config::pick;
use plimsoll_sim::apiserver::faults::{Distortion, WatchMatcher};
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::seed::Rng;
use plimsoll_tests::TestCluster;
use std::time::Duration;

/// Delay of late events.
const LATE: Duration = Duration::from_secs(20);
/// Time for which events are collected to be dropped or reordered.
const COLLECTED: Duration = Duration::from_secs(3);
/// Kinds whose watches may be distorted.
const KINDS: [&str; 6] = ["nodeclaims", "nodes", "pods", "poddisruptionbudgets", "nodepools", "ec2nodeclasses"];
const DISTORTIONS: [Distortion; 4] =
    [Distortion::Stale(LATE), Distortion::Dropped(COLLECTED), Distortion::Reordered(COLLECTED), Distortion::Duplicated];

/// The events of one kind reach the replicas of one service late, not at all, in another order, or twice.
pub(super) fn distort(cluster: &TestCluster, rng: &mut Rng) {
    let client = pick(rng, &[Role::Watcher, Role::Actuator]).to_string();
    let resource = Some(pick(rng, &KINDS));
    let distortion = pick(rng, &DISTORTIONS);
    cluster.world.server().faults().distort_watches(WatchMatcher { client, resource }, distortion);
}

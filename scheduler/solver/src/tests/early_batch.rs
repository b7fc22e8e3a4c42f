//! In a large burst, some nodes are planned and reported before the others.

use super::builder::*;
use crate::Planner;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, Plan, PlanOptions};
use plimsoll_model::snapshot::SnapshotIndex;

/// Returns the plan, which is checked, and the launches that were reported early.
fn plan_with_early_batch(cluster: &Cluster) -> (Plan, Vec<Launch>) {
    let (mut early, snapshot) = (Vec::new(), cluster.snapshot.sorted());
    let (index, catalogs) = (SnapshotIndex::new(&snapshot), cluster.catalogs());
    let options = PlanOptions { disruption: false, ..PlanOptions::default() };
    let plan = Planner::default()
        .solve_early(&snapshot, &index, &catalogs, &options, &mut |launches| early.extend_from_slice(launches));
    assert!(plimsoll_invariants::check(&snapshot, &catalogs, &plan).is_empty());
    (plan, early)
}

/// Pods without constraints, and pods that are spread over zones.
fn burst(plain: usize) -> Cluster {
    let mut cluster = Cluster::new();
    let mut spread_out = shape(500, 1);
    spread_out.labels.insert("app".into(), "web".into());
    spread_out.topology_spread = vec![spread(label::ZONE, 1)];
    cluster.pending("plain", plain, &shape(250, 1)).pending("large", plain, &shape(1000, 2)).pending(
        "web",
        300,
        &spread_out,
    );
    cluster
}

#[test]
fn the_plan_of_a_burst_begins_with_its_early_batch() {
    let (plan, early) = plan_with_early_batch(&burst(10_000));
    assert!(!early.is_empty());
    assert_eq!(plan.launches[..early.len()], early);
    let early_batch: usize = early.iter().map(|launch| launch.pods.len()).sum();
    assert_eq!(early_batch, 2_000, "maximum size of the early batch");
    assert!(early.iter().flat_map(|launch| &launch.pods).all(|pod| !pod.name.contains("web")));
    let placed: usize = plan.launches.iter().map(|launch| launch.pods.len()).sum();
    assert_eq!((placed, plan.unschedulable.len()), (20_300, 0));
}

#[test]
fn nothing_goes_ahead_of_few_pods_or_towards_a_limit() {
    assert!(plan_with_early_batch(&burst(9_000)).1.is_empty());
    let mut cluster = burst(10_000);
    cluster.pool().limits.set("cpu", 1_000_000_000);
    assert!(plan_with_early_batch(&cluster).1.is_empty());
}

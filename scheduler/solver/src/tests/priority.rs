//! Pods of lower priority are left unplaced first.

use super::builder::*;
use plimsoll_model::plan::{Plan, ReasonCode};
use plimsoll_model::snapshot::PodShape;

fn important(priority: i32, milli: i64) -> PodShape {
    PodShape { priority, ..shape(milli, 1) }
}

/// Names of unschedulable pods, without namespace.
fn left(plan: &Plan) -> Vec<&str> {
    plan.unschedulable.iter().map(|one| one.pod.name.trim_start_matches("ns/")).collect()
}

#[test]
fn limits_leave_out_the_lower_priority() {
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 8000);
    // By size, the large pod would be first. The limit leaves only the four cores that the important pods need.
    cluster.pending("large", 1, &important(0, 7000)).pending("small", 4, &important(100, 1000));
    let plan = cluster.plan();
    assert_eq!((left(&plan), refused(&plan)), (vec!["large-0"], vec![ReasonCode::LimitReached]));
    for shape in &mut cluster.snapshot.shapes {
        shape.priority = -shape.priority;
    }
    assert!(left(&cluster.plan()).iter().all(|name| name.starts_with("small")), "with reversed priorities");
}

#[test]
fn room_that_is_there_goes_to_the_higher_priority() {
    let mut cluster = Cluster::with([]);
    cluster.node_of("n", "m5.large", "gone", plimsoll_model::catalog::CapacityType::OnDemand);
    cluster.pending("low", 1, &important(0, 1500)).pending("high", 2, &important(7, 1000));
    let plan = cluster.plan();
    assert_eq!((kept(&plan), left(&plan)), (vec![("n", 2)], vec!["low-0"]));
}

#[test]
fn lower_ones_still_take_what_higher_ones_cannot_use() {
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("nodes", 1);
    cluster.pending("huge", 1, &important(9, 64_000)).pending("mid", 3, &important(5, 3000)).pending(
        "low",
        2,
        &important(1, 500),
    );
    let plan = cluster.plan();
    // At most 8 cores: two pods of mid, and low in addition.
    assert_eq!(left(&plan), ["huge-0", "mid-2"]);
    assert_eq!(launched(&plan).iter().map(|(_, pods)| pods).sum::<usize>(), 4);
}

#[test]
fn without_shortage_priorities_change_nothing() {
    let mut cluster = Cluster::new();
    cluster.pending("a", 5, &important(3, 700)).pending("b", 5, &important(1, 1300));
    let plan = cluster.plan();
    cluster.snapshot.shapes.iter_mut().for_each(|shape| shape.priority = 0);
    assert_eq!((plan.hourly, left(&plan).len()), (cluster.plan().hourly, 0));
}

#[test]
fn some_of_a_low_priority_are_placed_beside_the_high_ones() {
    // The limit permits two nodes of four cores, or four of two. The pods of low priority must be on different nodes.
    let mut high = app("high", 3000);
    high.priority = 1000;
    let mut low = app("low", 100);
    low.pod_affinity = vec![affinity(plimsoll_model::names::label::HOSTNAME, true, "low")];
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 8000);
    let plan = cluster.pending("high", 2, &high).pending("low", 4, &low).plan();
    let left: Vec<&str> = plan.unschedulable.iter().map(|one| one.pod.name.as_str()).collect();
    assert!(left.len() <= 3 && left.iter().all(|name| name.starts_with("ns/low-")), "{left:?}");
}

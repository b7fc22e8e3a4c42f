//! No single node runs too large a share of a burst.

use super::builder::*;
use plimsoll_model::names::label;
use plimsoll_model::plan::PlanOptions;

/// Two sizes. The larger one is much cheaper per pod, and can run a thousand pods.
fn cluster() -> Cluster {
    let mut cluster = Cluster::new();
    let sizes = [instance("c5.24xlarge", 24, 48, 300_000), instance("c5.48xlarge", 48, 96, 480_000)];
    cluster.catalog.instance_types = sizes.into();
    cluster.catalog.instance_types.iter_mut().for_each(|kind| kind.capacity.set("pods", 1_000));
    cluster
}

/// A node runs at most half of the pods.
fn half() -> PlanOptions {
    PlanOptions { max_share_per_node: 50, ..PlanOptions::default() }
}

#[test]
fn no_node_takes_more_than_half_of_a_burst() {
    let mut cluster = cluster();
    cluster.pending("p", 300, &shape(100, 0));
    let most = |share| {
        let plan = cluster.plan_by(&PlanOptions { max_share_per_node: share, ..PlanOptions::default() });
        assert!(plan.unschedulable.is_empty());
        plan.launches.iter().map(|launch| launch.pods.len()).max()
    };
    assert_eq!(most(PlanOptions::default().max_share_per_node), Some(300), "the cheapest plan is one node");
    // 300 is rounded down to 256.
    assert!(most(50).is_some_and(|most| most <= 128));
    assert!(most(99).is_some_and(|most| most <= 253));
}

#[test]
fn few_pods_may_share_one_node() {
    let plan = cluster().pending("p", 200, &shape(100, 0)).plan_by(&half());
    assert_eq!(launched(&plan), [("c5.24xlarge".to_owned(), 200)]);
}

#[test]
fn daemon_sets_do_not_count_for_the_share() {
    let plan = cluster().daemon_set("agent", &shape(100, 0)).pending("p", 221, &shape(100, 0)).plan_by(&half());
    assert!(plan.unschedulable.is_empty());
    assert_eq!(plan.launches.iter().map(|launch| launch.pods.len()).max(), Some(110));
}

#[test]
fn the_bound_gives_way_where_pods_would_be_left() {
    let mut limited = cluster();
    // Two nodes of the smaller size could run 256 pods within the maximum share.
    limited.pool().limits.set("cpu", 48_000);
    let plan = limited.pending("p", 300, &shape(100, 0)).plan_by(&half());
    assert_eq!((launched(&plan), plan.unschedulable.len()), (vec![("c5.48xlarge".to_owned(), 300)], 0));

    let mut together = app("web", 100);
    together.requests.set("memory", GIB / 10);
    together.pod_affinity = vec![affinity(label::HOSTNAME, false, "web")];
    let plan = cluster().pending("p", 300, &together).plan_by(&half());
    assert_eq!((plan.launches.len(), plan.unschedulable.len()), (1, 0));
}

//! Buffer pods of CapacityBuffers.

use super::builder::*;
use super::properties::{any_cluster, any_shape, any_social_cluster, any_social_shape, carried_out, steady, turned};
use plimsoll_model::identity::PodUid;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Plan, PodRef, ReasonCode};
use plimsoll_model::snapshot::DisruptionReason::{Drifted, Empty, Underutilized};
use plimsoll_model::snapshot::{ConsolidationPolicy, NodeState, Pod, PodShape, PodState};
use proptest::prelude::*;
use std::collections::BTreeSet;

fn names(pods: &[PodRef]) -> Vec<&str> {
    pods.iter().map(|pod| pod.name.trim_start_matches("ns/")).collect()
}

/// Pods by node.
fn placed(plan: &Plan) -> Vec<(&str, Vec<&str>)> {
    plan.placements.iter().map(|one| (one.node.as_str(), names(&one.pods))).collect()
}

#[test]
fn room_is_launched_for_like_any_other_pod() {
    let mut cluster = Cluster::new();
    let plan = cluster.spare("v", 3, &shape(600, 1), None).plan();
    assert_eq!((launched(&plan), kept(&plan)), (vec![("c5.large".to_owned(), 3)], vec![]));
}

#[test]
fn pods_that_exist_come_first() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    // By size and by name, the virtual pod would be placed first.
    cluster.spare("a", 1, &shape(1500, 1), None).pending("p", 1, &shape(1000, 1));
    let plan = cluster.plan();
    assert_eq!(placed(&plan), [("n1", vec!["p-0"])], "existing capacity is used by pending pods");
    assert_eq!(names(&plan.launches[0].pods), ["a-1"]);
    cluster.pool().limits.set("nodes", 1);
    cluster.snapshot.nodes.clear();
    let plan = cluster.plan();
    let left: Vec<&str> = plan.unschedulable.iter().map(|one| one.pod.name.as_str()).collect();
    assert!(names(&plan.launches[0].pods).contains(&"p-0") && !left.contains(&"ns/p-0"), "{plan:#?}");
}

#[test]
fn small_launches_are_shared_by_pods_and_room() {
    let mut cluster = Cluster::new();
    cluster.pending("p", 1, &shape(1000, 1)).spare("v", 1, &shape(1000, 1), None);
    // One node of two cores costs half as much as one of four. Two separate nodes for one core each would cost twice as
    // much.
    assert_eq!(launched(&cluster.plan()), [("c5.large".to_owned(), 2)]);
}

#[test]
fn no_spread_of_a_pod_that_exists_counts_room() {
    let mut cluster = Cluster::new();
    let mut web = app("web", 1000);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    // Two pods and two virtual pods. Each kind must be even on its own, so that kube-scheduler can bind both pods.
    let plan = cluster.pending("p", 2, &web).spare("v", 2, &web, None).plan();
    let zones = |name: &str| {
        let of = plan.launches.iter().filter(|one| names(&one.pods).iter().any(|pod| pod.starts_with(name)));
        of.map(|one| one.offerings[0].zone.as_str()).collect::<BTreeSet<&str>>().len()
    };
    assert_eq!(zones("p"), 2);
    assert_eq!(plan.unschedulable, []);
}

#[test]
fn room_without_a_place_has_reasons_and_takes_nobodys() {
    let mut cluster = Cluster::new();
    cluster.pool().limits.set("cpu", 2000);
    let plan = cluster.pending("p", 1, &shape(1500, 1)).spare("v", 2, &shape(1500, 1), None).plan();
    assert_eq!(launched(&plan), [("c5.large".to_owned(), 1)]);
    let left: Vec<&str> = plan.unschedulable.iter().map(|one| one.pod.name.as_str()).collect();
    assert_eq!((left, refused(&plan)), (vec!["ns/v-1", "ns/v-2"], vec![ReasonCode::LimitReached]));
}

/// Starting nodes of 4 and 8 cores, for buffer pods of 2 + 2 and 3 + 3 + 2 cores. If they were placed again, the first
/// node would get 3 cores, and 2 would be left.
fn packed(homes: bool) -> Cluster {
    let mut cluster = Cluster::new();
    cluster.node("a", "c5.xlarge").state = NodeState::InFlight;
    cluster.node("b", "c5.2xlarge").state = NodeState::InFlight;
    let home = |node: &'static str| homes.then_some(node);
    cluster.spare("small", 2, &shape(2000, 1), home("a"));
    cluster.spare("large", 2, &shape(3000, 1), home("b")).spare("third", 1, &shape(2000, 1), home("b"));
    cluster
}

#[test]
fn room_stays_where_it_was_launched_so_that_it_is_not_bought_twice() {
    let plan = packed(true).plan();
    assert_eq!(launched(&plan), []);
    assert_eq!(placed(&plan), [("a", vec!["small-1", "small-2"]), ("b", vec!["large-1", "large-2", "third-1"])]);
    // Shows why this matters: otherwise a plan for the same cluster would launch again.
    assert_eq!(packed(false).plan().launches.len(), 1);
}

#[test]
fn room_that_a_pod_has_taken_is_bought_anew() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.bound("p", "n1", &shape(1000, 1));
    let plan = cluster.spare("v", 1, &shape(1500, 1), Some("n1")).plan();
    assert_eq!((launched(&plan), kept(&plan)), (vec![("c5.large".to_owned(), 1)], vec![]));
}

#[test]
fn a_node_that_keeps_room_is_not_empty() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.node("n2", "c5.large");
    cluster.pool().disruption.policy = ConsolidationPolicy::WhenEmpty;
    let plan = cluster.spare("v", 1, &shape(1500, 1), Some("n2")).plan();
    assert_eq!((kept(&plan), removed(&plan)), (vec![("n2", 1)], vec![("n1", Empty)]));
}

#[test]
fn room_that_fits_elsewhere_does_not_hold_its_node() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    cluster.node("n2", "c5.xlarge");
    cluster.bound("p", "n2", &shape(2100, 1));
    let plan = cluster.spare("v", 1, &shape(1500, 1), Some("n1")).plan();
    assert_eq!((removed(&plan), placed(&plan)), (vec![("n1", Underutilized)], vec![("n2", vec!["v-1"])]));
    assert_eq!((plan.terminations[0].pods.len(), plan.terminations[0].moved_to.len()), (0, 0), "no pod is evicted");
    // Without capacity elsewhere, the node stays.
    cluster.bound("q", "n2", &shape(1000, 1));
    let plan = cluster.plan();
    assert_eq!((removed(&plan), placed(&plan)), (vec![], vec![("n1", vec!["v-1"])]));
}

#[test]
fn pods_that_move_leave_room_alone() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.xlarge");
    cluster.node("n2", "c5.xlarge");
    cluster.bound("p", "n1", &shape(2100, 1));
    cluster.bound("q", "n2", &shape(1000, 1));
    assert_eq!(removed(&cluster.plan()).len(), 1, "all pods fit on one node");
    // A new node for the buffer pod alone would cost as much as its current node.
    let plan = cluster.spare("v", 1, &shape(2500, 1), Some("n2")).plan();
    assert_eq!(removed(&plan), [], "but not together with the buffer pod: {plan:#?}");
}

#[test]
fn a_drifted_node_is_replaced_with_its_room() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large").drifted = Some("NodePoolDrifted".to_owned());
    let plan = cluster.spare("v", 1, &shape(1500, 1), Some("n1")).plan();
    assert_eq!((removed(&plan), kept(&plan)), (vec![("n1", Drifted)], vec![]));
    assert_eq!((names(&plan.launches[0].pods), plan.terminations[0].replaced_by.clone()), (vec!["v-1"], vec![0]));
}

#[test]
fn a_node_that_is_as_cheap_as_any_is_not_replaced_for_its_room() {
    let mut cluster = Cluster::new();
    cluster.node("n1", "c5.large");
    let plan = cluster.spare("v", 1, &shape(1500, 1), Some("n1")).plan();
    assert_eq!((launched(&plan), removed(&plan), kept(&plan)), (vec![], vec![], vec![("n1", 1)]));
}

/// Shapes of buffer pods with the number of pods, and optionally the number of a node.
type BufferPods = Vec<(PodShape, usize, Option<usize>)>;

fn any_buffer_pods(shapes: impl Strategy<Value = PodShape>) -> impl Strategy<Value = BufferPods> {
    prop::collection::vec((shapes, 1..4_usize, prop::option::of(0..5_usize)), 1..4)
}

fn with_buffer_pods(cluster: &Cluster, buffer_pods: &BufferPods) -> Cluster {
    let mut cluster = cluster.clone();
    for (index, (shape, count, home)) in buffer_pods.iter().enumerate() {
        let home = home.map(|number| format!("node-{number}"));
        cluster.spare(&format!("v{index}"), *count, shape, home.as_deref());
    }
    cluster
}

/// Unplaced pods, without virtual pods.
fn waiting(plan: &Plan) -> Vec<&str> {
    let all = plan.unschedulable.iter().map(|one| one.pod.name.as_str());
    all.filter(|name| !name.starts_with("ns/v")).collect()
}

proptest! {
    #![proptest_config(steady())]

    /// [`Cluster::plan`] checks each plan.
    #[test]
    fn buffer_pods_displace_no_pod(cluster in any_cluster(), buffer_pods in any_buffer_pods(any_shape())) {
        let with = with_buffer_pods(&cluster, &buffer_pods);
        let (plan, before) = (with.plan_with(false), cluster.plan_with(false));
        prop_assert_eq!(waiting(&plan), waiting(&before));
        with.plan();
    }

    #[test]
    fn plans_with_buffer_pods_are_valid_whatever_the_order(
        cluster in any_social_cluster(),
        buffer_pods in any_buffer_pods(any_social_shape()),
        turn in 1..5_usize,
    ) {
        let cluster = with_buffer_pods(&cluster, &buffer_pods);
        let plan = cluster.plan();
        prop_assert_eq!(&plan, &turned(cluster, turn).plan());
    }

    #[test]
    fn launched_buffer_pods_are_not_launched_again(
        cluster in any_cluster(),
        buffer_pods in any_buffer_pods(any_shape()),
    ) {
        let mut cluster = with_buffer_pods(&cluster, &buffer_pods);
        cluster.snapshot.nodes.iter_mut().for_each(|node| node.expires = None);
        let plan = cluster.plan_with(false);
        let mut next = carried_out(&cluster, &plan);
        let launched: BTreeSet<&PodUid> = plan.launched_pods().map(|pod| &pod.uid).collect();
        for pod in &mut next.snapshot.pods {
            let pod: &mut Pod = pod;
            if let (Some(buffer), PodState::Bound(node)) = (&mut pod.buffer, pod.state.clone()) {
                // The node of a buffer pod is known only if it was launched for the pod.
                if launched.contains(&pod.uid) {
                    buffer.node = Some(node);
                }
                pod.state = PodState::Pending;
            }
        }
        let again = next.plan_with(false);
        let twice: Vec<&str> = again.launched_pods()
            .filter(|pod| launched.contains(&pod.uid)).map(|pod| pod.name.as_str()).collect();
        prop_assert_eq!(twice, Vec::<&str>::new());
    }
}

//! Capacity reservations are preferred and never used beyond their count. Other capacity is used once they are
//! exhausted.

use super::builder::*;
use super::properties::any_social_cluster;
use plimsoll_model::catalog::{CapacityReservation, CapacityType, Offering, reservation_resource};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, Plan, PlanOptions, ReasonCode};
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::{NodePool, ReservationCount};
use plimsoll_model::taints::TaintEffect;
use proptest::prelude::*;

/// Adds a reservation of a type in a zone with `free` instances.
fn reserve(cluster: &mut Cluster, id: &str, kind: &str, zone: &str, free: u32) {
    let kind = cluster.catalog.instance_types.iter_mut().find(|one| one.name == kind).unwrap();
    kind.offerings.push(Offering {
        zone: format!("zone-{zone}"),
        zone_id: String::new(),
        capacity_type: CapacityType::Reserved,
        price: MicroUsdPerHour(1),
        available: true,
        list_price: None,
        reservation: Some(CapacityReservation {
            id: id.to_owned(),
            capacity_block: false,
            interruptible: false,
            count: None,
        }),
    });
    kind.offerings.sort_by(|a, b| a.key().cmp(&b.key()));
    cluster.snapshot.reservations.push(ReservationCount { id: id.to_owned(), free });
}

/// A pool that permits all capacity types.
fn any_capacity(name: &str) -> NodePool {
    let mut pool = pool(name);
    pool.requirements[1] = requirement(label::CAPACITY_TYPE, Operator::In, &["reserved", "spot", "on-demand"]);
    pool
}

fn listed(launch: &Launch) -> Vec<&str> {
    let mut ids: Vec<&str> = launch.offerings.iter().filter_map(|one| one.reservation.as_deref()).collect();
    ids.sort_unstable();
    ids.dedup();
    ids
}

/// Reservations by launch, sorted; empty for a launch without reservations.
fn all_listed(plan: &Plan) -> Vec<Vec<&str>> {
    let mut all: Vec<Vec<&str>> = plan.launches.iter().map(listed).collect();
    all.sort();
    all
}

fn refused(plan: &Plan) -> Vec<ReasonCode> {
    plan.unschedulable.iter().flat_map(|one| one.reasons.iter().map(|reason| reason.code)).collect()
}

#[test]
fn reserved_instances_come_first_and_what_they_cannot_hold_goes_elsewhere() {
    let mut cluster = Cluster::with([any_capacity("default")]);
    reserve(&mut cluster, "cr-1", "m5.xlarge", "b", 2);
    // Two pods fill one m5.xlarge.
    cluster.pending("p", 8, &shape(1900, 7));
    let plan = cluster.plan();
    assert_eq!(refused(&plan), []);
    let reserved: Vec<&Launch> = plan.launches.iter().filter(|one| !listed(one).is_empty()).collect();
    let taken: Vec<(Vec<&str>, usize)> = reserved.iter().map(|one| (listed(one), one.pods.len())).collect();
    assert_eq!(taken, [(vec!["cr-1"], 2), (vec!["cr-1"], 2)]);
    let rest = plan.launches.iter().filter(|one| listed(one).is_empty());
    assert!(rest.flat_map(|one| one.offerings.first()).all(|one| one.capacity_type == CapacityType::Spot));
    assert!(plan.lower_bound.0 > 0, "four pods need a node that is not reserved: {plan:#?}");
}

#[test]
fn reservations_that_no_pod_can_use_leave_the_bound_as_it_is() {
    let tainted = NodePool { taints: vec![taint("dedicated", TaintEffect::NoSchedule)], ..any_capacity("reserved") };
    let mut cluster = Cluster::with([pool("default"), tainted]);
    reserve(&mut cluster, "cr-1", "c5.2xlarge", "a", 4);
    let mut elsewhere = shape(900, 1);
    elsewhere.tolerations = vec![tolerate("dedicated")];
    let plan = cluster.pending("p", 4, &shape(900, 1)).plan();
    assert_eq!((plan.hourly.0, plan.lower_bound.0), (160_000, 160_000));
    // The same for pods that are spread over zones: a node in each zone.
    let mut web = app("web", 1000);
    web.topology_spread = vec![spread(label::ZONE, 1)];
    let mut apart = cluster.clone();
    apart.snapshot.pods.clear();
    let plan = apart.pending("web", 3, &web).plan();
    assert_eq!((plan.hourly.0, plan.lower_bound.0), (240_000, 240_000));
    // Pods that tolerate the taint use the reservation, and cost almost nothing.
    let plan = cluster.pending("q", 4, &elsewhere).plan();
    assert!(plan.lower_bound <= plan.hourly && !all_listed(&plan).concat().is_empty(), "{plan:#?}");
}

#[test]
fn a_reservation_is_shared_by_all_pools() {
    for weight in [0, 1] {
        let mut other = any_capacity("other");
        other.weight = weight;
        other.labels.insert("team".into(), "blue".into());
        let mut cluster = Cluster::with([any_capacity("default"), other]);
        reserve(&mut cluster, "cr-1", "m5.xlarge", "b", 1);
        let mut blue = shape(3500, 7);
        blue.node_selector.insert("team".into(), "blue".into());
        let mut any = shape(3400, 7);
        any.node_selector.insert(label::NODE_POOL.into(), "default".into());
        cluster.pending("blue", 1, &blue).pending("any", 1, &any);
        assert_eq!(all_listed(&cluster.plan()), [Vec::new(), vec!["cr-1"]], "weight {weight}");
    }
}

#[test]
fn in_flight_launches_hold_their_instance() {
    let mut cluster = Cluster::with([any_capacity("default")]);
    reserve(&mut cluster, "cr-1", "m5.xlarge", "b", 1);
    cluster.pending("p", 1, &shape(3500, 7));
    assert_eq!(all_listed(&cluster.plan()), [vec!["cr-1"]]);
    let node = cluster.node("launching", "m5.xlarge");
    node.limit_usage.set(&reservation_resource("cr-1"), 1);
    node.cordoned = true;
    assert_eq!(all_listed(&cluster.plan_with(false)), [Vec::<&str>::new()]);
}

#[test]
fn pods_may_choose_reservations_by_label() {
    let mut cluster = Cluster::with([any_capacity("default")]);
    reserve(&mut cluster, "cr-1", "m5.xlarge", "a", 3);
    reserve(&mut cluster, "cr-2", "m5.xlarge", "a", 1);
    let mut one = shape(1000, 1);
    one.node_selector.insert(label::CAPACITY_RESERVATION_ID.into(), "cr-2".into());
    let plan = cluster.pending("p", 1, &one).plan();
    assert_eq!(all_listed(&plan), [vec!["cr-2"]]);
    assert!(plan.launches[0].offerings.iter().all(|one| one.capacity_type == CapacityType::Reserved));
    // Each pod needs a node of its own, and the reservation has one instance.
    one.node_selector.insert(label::CAPACITY_RESERVATION_TYPE.into(), "default".into());
    one.requests.set("cpu", 3500);
    let plan = cluster.pending("q", 2, &one).plan();
    assert_eq!((plan.launches.len(), refused(&plan)), (1, vec![ReasonCode::OutOfCapacity; 2]), "{plan:#?}");
    let message = &plan.unschedulable[0].reasons[0].message;
    assert!(message.contains("capacity reservation cr-2 has no free instance"), "{message}");
    // Other nodes do not have the label.
    let mut none = shape(1000, 1);
    let absent = requirement(label::CAPACITY_RESERVATION_ID, Operator::DoesNotExist, &[]);
    none.required_node_affinity = vec![term(&[absent])];
    let mut cluster = Cluster::with([any_capacity("default")]);
    reserve(&mut cluster, "cr-1", "m5.xlarge", "a", 3);
    assert_eq!(all_listed(&cluster.pending("p", 1, &none).plan()), [Vec::<&str>::new()]);
}

#[test]
fn a_reservation_without_a_count_is_not_used() {
    let mut cluster = Cluster::with([any_capacity("default")]);
    reserve(&mut cluster, "cr-1", "m5.xlarge", "a", 3);
    cluster.snapshot.reservations.clear();
    assert_eq!(all_listed(&cluster.pending("p", 1, &shape(1000, 1)).plan()), [Vec::<&str>::new()]);
}

#[test]
fn static_pools_share_reservations_with_others() {
    let mut fixed = any_capacity("fixed");
    fixed.replicas = Some(3);
    let mut cluster = Cluster::with([any_capacity("default"), fixed]);
    reserve(&mut cluster, "cr-1", "m5.xlarge", "a", 2);
    let plan = cluster.pending("p", 1, &shape(3500, 7)).plan();
    assert_eq!(all_listed(&plan), [Vec::new(), Vec::new(), vec!["cr-1"], vec!["cr-1"]]);
}

#[test]
fn an_on_demand_node_is_replaced_by_a_free_reserved_instance() {
    let mut cluster = Cluster::with([any_capacity("default")]);
    reserve(&mut cluster, "cr-1", "m5.xlarge", "a", 1);
    cluster.node("node", "m5.xlarge");
    cluster.bound("p", "node", &shape(3000, 7));
    let plan = cluster.plan();
    assert_eq!((removed(&plan).len(), all_listed(&plan)), (1, vec![vec!["cr-1"]]), "{plan:#?}");
    // The reserved node stays, because no offering is cheaper.
    let mut cluster = Cluster::with([any_capacity("default")]);
    reserve(&mut cluster, "cr-1", "m5.xlarge", "a", 1);
    let node = cluster.node_of("node", "m5.xlarge", "default", CapacityType::Reserved);
    node.labels.insert(label::CAPACITY_RESERVATION_ID.into(), "cr-1".into());
    cluster.bound("p", "node", &shape(3000, 7));
    assert_eq!(removed(&cluster.plan()), []);
}

#[test]
fn spot_nodes_are_replaced_by_a_free_reserved_instance() {
    let is_reserved = |plan: &Plan| {
        let mut offerings = plan.launches.iter().flat_map(|launch| launch.offerings.iter());
        plan.launches.len() == 1 && offerings.all(|one| one.capacity_type == CapacityType::Reserved)
    };
    let mut cluster = Cluster::with([any_capacity("default")]);
    reserve(&mut cluster, "cr-1", "m5.xlarge", "a", 1);
    cluster.node_of("node", "m5.xlarge", "default", CapacityType::Spot);
    cluster.bound("p", "node", &shape(3000, 7));
    for spot_to_spot in [false, true] {
        let plan = cluster.plan_by(&PlanOptions { spot_to_spot, ..PlanOptions::default() });
        assert!(removed(&plan).len() == 1 && is_reserved(&plan), "{plan:#?}");
    }
    // Several together.
    let mut cluster = Cluster::with([any_capacity("default")]);
    reserve(&mut cluster, "cr-1", "c5.2xlarge", "a", 1);
    for name in ["n1", "n2", "n3"] {
        cluster.node_of(name, "c5.large", "default", CapacityType::Spot);
        cluster.bound(&format!("p-{name}"), name, &shape(1900, 1));
    }
    let plan = cluster.plan();
    assert!(removed(&plan).len() == 3 && is_reserved(&plan), "{plan:#?}");
}

#[test]
fn spot_nodes_are_replaced_by_spot_if_reserved_instances_alone_do_not_meet_min_values() {
    let mut cluster = Cluster::with([any_capacity("default")]);
    cluster.pool().requirements.push(requirement(label::INSTANCE_TYPE, Operator::Exists, &[]));
    cluster.pool().requirements[2].min_values = Some(2);
    reserve(&mut cluster, "cr-1", "c5.2xlarge", "a", 1);
    for name in ["n1", "n2"] {
        cluster.node_of(name, "r5.xlarge", "default", CapacityType::Spot);
        cluster.bound(&format!("p-{name}"), name, &shape(3000, 1));
    }
    // As Spot, a c5.2xlarge and an m5.2xlarge cost less than both nodes.
    for (spot_to_spot, expected) in [(false, 0), (true, 2)] {
        let plan = cluster.plan_by(&PlanOptions { spot_to_spot, ..PlanOptions::default() });
        assert_eq!(removed(&plan).len(), expected, "{plan:#?}");
    }
}

#[test]
fn a_launch_that_lists_spot_beside_a_reservation_counts_as_spot() {
    let mut cluster = Cluster::with([any_capacity("default")]);
    reserve(&mut cluster, "cr-1", "r5.2xlarge", "a", 1);
    cluster.node("on-demand", "r5.2xlarge");
    cluster.bound("large", "on-demand", &shape(7000, 50));
    cluster.node_of("spot", "r5.xlarge", "default", CapacityType::Spot);
    cluster.bound("small", "spot", &shape(3000, 1));
    // A c5.xlarge would be cheaper for the small pod. The On-Demand node permits one launch that may become Spot.
    let plan = cluster.plan_by(&PlanOptions { spot_to_spot: false, ..PlanOptions::default() });
    let gone: Vec<&str> = removed(&plan).into_iter().map(|(node, _)| node).collect();
    assert_eq!(gone, ["on-demand"], "{plan:#?}");
}

#[test]
fn a_free_reserved_instance_does_not_pay_for_a_useless_replacement() {
    let mut cluster = Cluster::with([any_capacity("default")]);
    cluster.pool().requirements[1].values.retain(|one| one != "spot");
    reserve(&mut cluster, "cr-1", "c5.large", "a", 1);
    for name in ["n1", "n2", "n3"] {
        cluster.node(name, "c5.large");
        cluster.bound(&format!("p-{name}"), name, &shape(1500, 1));
    }
    // Two of the pods would fit on a c5.xlarge, which costs as much as their nodes.
    let plan = cluster.plan();
    assert_eq!((removed(&plan).len(), all_listed(&plan)), (1, vec![vec!["cr-1"]]), "{plan:#?}");
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(96))]

    /// `plan` checks that no reservation is listed by more launches than it has instances.
    #[test]
    fn no_reservation_is_used_beyond_its_count(
        cluster in any_social_cluster(),
        reservations in prop::collection::vec((0..3_usize, 0..3_usize, 0..4_u32), 1..4),
    ) {
        let mut cluster = cluster;
        for pool in &mut cluster.snapshot.node_pools {
            pool.requirements[1].values.push("reserved".into());
        }
        for (number, (kind, zone, free)) in reservations.into_iter().enumerate() {
            let (kind, zone) = (["c5.large", "m5.xlarge", "r5.2xlarge"][kind], ["a", "b", "c"][zone]);
            reserve(&mut cluster, &format!("cr-{number}"), kind, zone, free);
        }
        let plan = cluster.plan();
        prop_assert!(plan.lower_bound <= plan.hourly);
    }
}

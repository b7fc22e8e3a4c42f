use super::*;
use crate::state::catalogs::fixtures::{entries, instance_type};
use plimsoll_model::catalog::{CapacityType, InstanceType, Offering};
use plimsoll_model::identity::{ActionId, NodePoolName};
use plimsoll_model::plan::{OfferingChoice, PodRef, Termination};
use plimsoll_model::snapshot::DisruptionReason;
use std::sync::Arc;

const NODE_PRICE: MicroUsdPerHour = MicroUsdPerHour(100_000);

fn pod(uid: &str) -> PodRef {
    PodRef { name: format!("shop/{uid}"), uid: PodUid(uid.to_owned()) }
}

fn launch(pool: &str, price: i64, pods: &[&str]) -> Launch {
    let offering = OfferingChoice {
        instance_type: "m6i.large".to_owned(),
        zone: "a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        price: MicroUsdPerHour(price),
        reservation: None,
    };
    Launch {
        action_id: ActionId("x".to_owned()),
        node_pool: NodePoolName(pool.to_owned()),
        node_class: "default".to_owned(),
        offerings: Arc::new(vec![offering]),
        pods: pods.iter().map(|uid| pod(uid)).collect(),
        ..Launch::default()
    }
}

fn removal(node: &str) -> Termination {
    Termination {
        action_id: ActionId("y".to_owned()),
        node: NodeName(node.to_owned()),
        reason: DisruptionReason::Empty,
        saving: NODE_PRICE,
        ..Termination::default()
    }
}

fn plan(launches: &[Launch], removed: &[&str]) -> Plan {
    let terminations = removed.iter().map(|node| removal(node)).collect();
    Plan { launches: launches.to_vec(), terminations, ..Plan::default() }
}

/// All nodes belong to the pool `general`.
fn note(proposals: &mut Proposals, plan: &Plan) {
    proposals.note(plan, &Entries::default(), |_| Some("general".to_owned()));
}

fn report(proposals: &Proposals) -> PoolReport {
    let current = BTreeMap::from([("general".to_owned(), MicroUsdPerHour(500_000))]);
    let mut reports = proposals.report(["general".to_owned()], &current, |_| Some(("general".to_owned(), NODE_PRICE)));
    reports.remove(0)
}

#[test]
fn a_plan_that_is_repeated_counts_once() {
    let mut proposals = Proposals::default();
    for _ in 0..100 {
        note(&mut proposals, &plan(&[launch("general", 70_000, &["a", "b"])], &["n1", "n2"]));
    }
    let report = report(&proposals);
    assert_eq!((report.launches, report.removals, report.incomplete), (1, 2, false));
    assert_eq!((report.current, report.planned), (MicroUsdPerHour(500_000), Some(MicroUsdPerHour(370_000))));
}

#[test]
fn a_launch_counts_once_though_its_pods_are_planned_differently_later() {
    let mut proposals = Proposals::default();
    note(&mut proposals, &plan(&[launch("general", 70_000, &["a"])], &[]));
    note(&mut proposals, &plan(&[launch("general", 90_000, &["a", "b"]), launch("general", 70_000, &["c"])], &[]));
    note(&mut proposals, &plan(&[launch("general", 70_000, &["b"])], &["n1"]));
    let report = report(&proposals);
    assert_eq!((report.launches, report.removals), (2, 1));
    assert_eq!(report.planned, Some(MicroUsdPerHour(470_000)), "costs are those of the last plan");
}

#[test]
fn launches_without_pods_count_as_the_most_of_one_plan() {
    let mut proposals = Proposals::default();
    for count in [2, 3, 1] {
        note(&mut proposals, &plan(&vec![launch("general", 1, &[]); count], &[]));
    }
    assert_eq!(report(&proposals).launches, 3);
}

#[test]
fn pools_without_a_plan_report_their_cost_and_pools_are_kept_apart() {
    let mut proposals = Proposals::default();
    assert_eq!(report(&proposals).planned, None);
    note(&mut proposals, &plan(&[launch("other", 70_000, &["a"])], &[]));
    let report = report(&proposals);
    assert_eq!((report.launches, report.planned), (0, Some(MicroUsdPerHour(500_000))));
}

/// The catalog of the node class `default`: the offering of [`launch`] at this price.
fn catalogs(price: i64) -> Entries {
    let offering = Offering {
        zone: "a".to_owned(),
        zone_id: "id-a".to_owned(),
        capacity_type: CapacityType::OnDemand,
        price: MicroUsdPerHour(price),
        available: true,
        ..Offering::default()
    };
    entries(InstanceType { offerings: vec![offering], ..instance_type("m6i.large") })
}

#[test]
fn launches_count_list_prices_as_nodes_do() {
    let mut proposals = Proposals::default();
    // The plan counts node costs, too.
    let plan = plan(&[launch("general", 160_000, &["a"])], &["n1"]);
    proposals.note(&plan, &catalogs(100_000), |_| Some("general".to_owned()));
    assert_eq!(report(&proposals).planned, Some(MicroUsdPerHour(500_000)), "a node of the same price is replaced");
}

#[test]
fn memory_is_bounded_and_the_report_says_so() {
    let mut proposals = Proposals::default();
    let pods: Vec<String> = (0..=MAX_REMEMBERED).map(|number| number.to_string()).collect();
    let pods: Vec<&str> = pods.iter().map(String::as_str).collect();
    note(&mut proposals, &plan(&[launch("general", 1, &pods)], &[]));
    assert_eq!(proposals.pods.len(), MAX_REMEMBERED);
    note(&mut proposals, &plan(&[launch("general", 1, &["later"])], &[]));
    assert!(report(&proposals).incomplete);
}

#[test]
fn all_launches_of_the_last_plan_cost_something() {
    let mut proposals = Proposals::default();
    note(&mut proposals, &plan(&[launch("general", 70_000, &["a"]), launch("general", 50_000, &["b"])], &[]));
    assert_eq!(report(&proposals).planned, Some(MicroUsdPerHour(620_000)));
}

/// Its NodeClaim may be seen later.
#[test]
fn a_removal_counts_once_the_pool_of_its_node_is_known() {
    let mut proposals = Proposals::default();
    proposals.note(&plan(&[], &["n1"]), &Entries::default(), |_| None);
    assert_eq!(report(&proposals).removals, 0);
    note(&mut proposals, &plan(&[], &["n1"]));
    assert_eq!(report(&proposals).removals, 1);
}

#[test]
fn removals_beyond_the_bound_do_not_count_and_the_report_says_so() {
    let nodes = (0..MAX_REMEMBERED).map(|number| NodeName(number.to_string())).collect();
    let mut proposals = Proposals { nodes, ..Proposals::default() };
    note(&mut proposals, &plan(&[], &["0"]));
    assert_eq!((report(&proposals).removals, report(&proposals).incomplete), (0, false), "it is known");
    note(&mut proposals, &plan(&[], &["later"]));
    assert_eq!((report(&proposals).removals, report(&proposals).incomplete), (0, true));
}

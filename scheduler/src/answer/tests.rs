mod explanations;
mod static_pools;

use super::*;
use crate::samples::{NOW, catalog, catalogs, node, pod, pool, shape, snapshots, waiting};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{
    ConsolidationPolicy, DisruptionReason, NodeState, PodDisruptionBudget, PodState, Snapshot,
};
use plimsoll_model::taints::{Taint, TaintEffect};
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_proto::scheduler::v1::explain_request::Subject;
use plimsoll_proto::scheduler::v1::supposition::Change;
use plimsoll_proto::scheduler::v1::{MorePods, PriceChange, Supposition};
use plimsoll_proto::{catalog::v1 as catalog_wire, plan::v1 as plan_wire, snapshot::v1 as snapshot_wire};
use proptest::prelude::*;
use prost::Message as _;
use std::sync::Arc;

fn wire_catalogs() -> Vec<catalog_wire::Catalog> {
    catalogs().values().map(Into::into).collect()
}

fn plan_request(snapshot: &Snapshot) -> PlanRequest {
    PlanRequest { snapshot: Some(snapshot.into()), catalogs: wire_catalogs(), ..PlanRequest::default() }
}

fn lines(snapshot: &Snapshot, subject: Subject) -> Vec<String> {
    let mut snapshot = snapshot.clone();
    snapshot.sort();
    let request = ExplainRequest {
        snapshot: Some((&snapshot).into()),
        catalogs: wire_catalogs(),
        subject: Some(subject),
        options: None,
    };
    explain(&request).unwrap().lines
}

fn explain_pod(snapshot: &Snapshot, name: &str) -> Vec<String> {
    lines(snapshot, Subject::Pod(name.to_owned()))
}

fn explain_node(snapshot: &Snapshot, name: &str) -> Vec<String> {
    lines(snapshot, Subject::Node(name.to_owned()))
}

fn refusal<T: std::fmt::Debug>(answer: Result<T, Status>) -> String {
    let status = answer.unwrap_err();
    assert_eq!(status.code(), Code::InvalidArgument, "{status:?}");
    status.message().to_owned()
}

#[test]
fn a_pool_without_a_catalog_uses_the_only_catalog() {
    let mut snapshot = waiting(1);
    snapshot.node_pools[0].catalog = None;
    let launches = |request: &PlanRequest| plan(request).unwrap().plan.unwrap().launches.len();
    let mut request = plan_request(&snapshot);
    assert_eq!(launches(&request), 1);
    let other = Catalog { region: "other".into(), ..catalog() };
    request.catalogs.push((&other).into());
    assert_eq!(launches(&request), 0);
}

#[test]
fn invalid_plan_requests_are_rejected_with_the_path() {
    let request = plan_request(&waiting(1));
    let refused = |change: fn(&mut PlanRequest)| {
        let mut bad = request.clone();
        change(&mut bad);
        refusal(plan(&bad))
    };
    assert_eq!(refused(|it| it.snapshot = None), "snapshot: is not set");
    assert!(refused(|it| it.catalogs.clear()).starts_with("snapshot.node_pools[0].catalog: no catalog "));
    assert_eq!(
        refused(|it| it.catalogs[0].instance_types[1].offerings[0].price_micro_usd_per_hour = -5),
        "catalogs[0].instance_types[1].offerings[0].price_micro_usd_per_hour: is negative: -5"
    );
    let too_much = refused(|it| it.options.get_or_insert_default().work_budget = u64::MAX);
    assert!(too_much.starts_with("options.work_budget: is "), "{too_much}");
    let negative = refused(|it| it.snapshot.get_or_insert_default().shapes[0].requests[0].amount = -1);
    assert_eq!(negative, "snapshot.shapes[0].requests[0].amount: is negative: -1");
    let no_pods = refused(|it| {
        let shape = &mut it.snapshot.get_or_insert_default().shapes[0];
        shape.requests.retain(|amount| amount.name != "pods");
        shape.topology_spread =
            vec![snapshot_wire::TopologySpread { topology_key: "zone".into(), ..Default::default() }];
    });
    let expected = [
        "snapshot.shapes[0].requests: has no \"pods\", of which a pod takes 1",
        "snapshot.shapes[0].topology_spread[0].max_skew: is less than 1: 0",
    ];
    assert_eq!(no_pods, expected.join("; "));
    let several = refused(|it| {
        let snapshot = it.snapshot.get_or_insert_default();
        snapshot.shapes[0].requests[0].amount = -1;
        snapshot.pods[0].uid.clear();
        snapshot.pods[0].state = None;
        it.catalogs[0].instance_types[1].offerings[0].price_micro_usd_per_hour = -5;
    });
    let expected = [
        "snapshot.shapes[0].requests[0].amount: is negative: -1",
        "snapshot.pods[0].uid: is empty",
        "snapshot.pods[0].state: is not set",
        "catalogs[0].instance_types[1].offerings[0].price_micro_usd_per_hour: is negative: -5",
    ];
    assert_eq!(several, expected.join("; "), "all at once");
}

#[test]
fn lists_are_shared_if_the_request_asks_for_it() {
    let mut snapshot = waiting(0);
    // Each of three pods needs a node of its own, and three fit nowhere.
    snapshot.shapes = vec![shape("giant", 96_000), shape("large", 5_000)];
    snapshot.pods = (0..6)
        .map(|number| pod(&format!("pod-{number}"), if number < 3 { "giant" } else { "large" }, PodState::Pending))
        .collect();
    let request = |shared_lists| PlanRequest { shared_lists, ..plan_request(&snapshot) };
    let what_if = |shared_lists| {
        let PlanRequest { snapshot, catalogs, options, shared_lists } = request(shared_lists);
        let change = Change::PriceChange(PriceChange { node_pool: "default".into(), factor_milli: 1000 });
        let suppositions = vec![Supposition { change: Some(change) }];
        what_if(&WhatIfRequest { snapshot, catalogs, options, suppositions, shared_lists }).unwrap()
    };
    let likes = |plan: &plan_wire::Plan| {
        let launches: Vec<_> = plan.launches.iter().map(|launch| launch.like).collect();
        (launches, plan.unschedulable.iter().map(|pod| pod.like).collect::<Vec<_>>())
    };
    let (repeated, shared) =
        (plan(&request(false)).unwrap().plan.unwrap(), plan(&request(true)).unwrap().plan.unwrap());
    let one_list = vec![None, Some(0), Some(0)];
    assert_eq!(likes(&repeated), (vec![None; 3], vec![None; 3]));
    assert_eq!(likes(&shared), (one_list.clone(), one_list));
    assert_eq!(what_if(false).baseline, Some(repeated.clone()));
    let both = what_if(true);
    assert_eq!((both.baseline, both.supposed), (Some(shared.clone()), Some(shared.clone())));
    assert_eq!(Plan::try_from(shared), Plan::try_from(repeated));
}

#[test]
fn lists_that_make_a_response_too_large_are_not_repeated() {
    let mut planned: Plan = plan(&plan_request(&waiting(1))).unwrap().plan.unwrap().try_into().unwrap();
    let mut launch = planned.launches[0].clone();
    launch.offerings = Arc::new(vec![launch.offerings[0].clone(); 10_000]);
    planned.launches = vec![launch; 100];
    assert!(to_wire(&planned, true).is_ok());
    assert!(matches!(to_wire(&planned, false), Err(AnswerError::TooLarge(_))));
}

#[test]
fn an_invalid_plan_is_an_internal_error() {
    let violations = vec![plimsoll_invariants::Violation::PodTwice("default/a".into())];
    let status = Status::from(AnswerError::from(InvalidPlan { sequence: 3, violations }));
    assert_eq!(status.code(), Code::Internal);
    assert_eq!(status.message(), "the plan for snapshot 3 is not valid: pod default/a appears twice");
    assert!(status.metadata().contains_key(WITHHELD_HEADER));
}

#[test]
fn another_replica_is_asked_after_a_time_out() {
    for failure in [PlanFailure::TimedOut(std::time::Duration::from_secs(20)), PlanFailure::NoTimeLeft] {
        let status = Status::from(AnswerError::from(failure));
        assert_eq!((status.code(), status.metadata().contains_key(WITHHELD_HEADER)), (Code::Internal, false));
    }
}

#[test]
fn in_process_callers_get_the_same_errors() {
    let (mut twice, mut unknown) = (waiting(1), waiting(1));
    twice.pods.push(twice.pods[0].clone());
    unknown.node_pools[0].catalog = Some("x".into());
    let catalogs = catalogs();
    for snapshot in [twice, unknown] {
        let here = in_process::solve(&snapshot, &catalogs, &PlanOptions::default());
        assert_eq!(refusal(here.map(|_| ())), refusal(plan(&plan_request(&snapshot))));
    }
    let mut unnamed = waiting(1);
    unnamed.node_pools[0].catalog = None;
    let plan = in_process::solve(&unnamed, &catalogs, &PlanOptions::default()).unwrap().check().unwrap();
    assert_eq!(plan.launches.len(), 1, "a pool without a catalog buys from the only one");
}

/// Two nodes of 4 CPUs with one small pod each, of which one can be removed.
fn two_half_empty() -> Snapshot {
    let mut snapshot = waiting(0);
    snapshot.nodes = vec![node("n0", "default"), node("n1", "default")];
    snapshot.pods =
        vec![pod("a", "web", PodState::Bound("n0".into())), pod("b", "web", PodState::Bound("n1".into()))].into();
    snapshot
}

#[test]
fn unknown_objects_are_rejected_with_the_path() {
    let ask = |subject| {
        explain(&ExplainRequest {
            snapshot: Some((&waiting(1)).into()),
            catalogs: wire_catalogs(),
            subject,
            options: None,
        })
    };
    assert_eq!(refusal(ask(None)), "subject: is not set");
    assert_eq!(refusal(ask(Some(Subject::Pod("default/x".into())))), "pod: no pod \"default/x\" in the snapshot");
    assert_eq!(refusal(ask(Some(Subject::Node("n".into())))), "node: no node \"n\" in the snapshot");
}

fn what_if_plans(snapshot: &Snapshot, changes: Vec<Change>) -> Result<(Plan, Plan), Status> {
    let request = WhatIfRequest {
        snapshot: Some(snapshot.into()),
        catalogs: wire_catalogs(),
        options: Some(plan_wire::PlanOptions { disruption: false, work_budget: 0, ..Default::default() }),
        suppositions: changes.into_iter().map(|change| Supposition { change: Some(change) }).collect(),
        shared_lists: false,
    };
    let answer = what_if(&request)?;
    Ok((answer.baseline.unwrap().try_into().unwrap(), answer.supposed.unwrap().try_into().unwrap()))
}

#[test]
fn pods_of_a_supposedly_removed_node_are_pending() {
    let mut snapshot = two_half_empty();
    let mut daemon = pod("daemon", "web", PodState::Bound("n1".into()));
    daemon.stays_with_node = true;
    snapshot.pods.push(daemon);
    snapshot.sort();
    let (baseline, supposed) = what_if_plans(&snapshot, vec![Change::NodeGone("n1".into())]).unwrap();
    assert_eq!(baseline.placements, []);
    let placed: Vec<_> = supposed.placements.iter().map(|one| (one.node.as_str(), one.pods[0].name.as_str())).collect();
    assert_eq!((placed, supposed.launches.len()), (vec![("n0", "default/b")], 0));
    let (_, none_left) =
        what_if_plans(&snapshot, vec![Change::NodeGone("n1".into()), Change::NodeGone("n0".into())]).unwrap();
    assert_eq!(none_left.launches.iter().map(|one| one.pods.len()).sum::<usize>(), 2);
}

#[test]
fn a_supposed_price_change_applies_to_one_pool() {
    let change = |factor_milli| PriceChange { node_pool: "default".into(), factor_milli };
    let (baseline, supposed) = what_if_plans(&waiting(3), vec![Change::PriceChange(change(2000))]).unwrap();
    assert_eq!((baseline.hourly.0, supposed.hourly.0), (100_000, 200_000));
    let (_, most) = what_if_plans(&waiting(3), vec![Change::PriceChange(change(i64::MAX))]).unwrap();
    assert!(most.hourly.0 > 0);
}

#[test]
fn added_pods_are_copies_of_the_named_pod() {
    let like = |count| Change::MorePods(MorePods { like: "default/web-0".into(), count });
    // Four pods fill the two CPUs of the smallest instance type.
    let (baseline, supposed) = what_if_plans(&waiting(4), vec![like(1), like(2)]).unwrap();
    let pods = |plan: &Plan| plan.launches.iter().map(|one| one.pods.len()).sum::<usize>();
    assert_eq!((pods(&baseline), pods(&supposed)), (4, 7));
    assert_eq!((baseline.hourly.0, supposed.hourly.0), (100_000, 200_000));
    let names: Vec<_> = supposed.launched_pods().map(|pod| pod.name.as_str()).collect();
    assert!(names.contains(&"default/web-0:more-2"), "{names:?}");
}

#[test]
fn invalid_suppositions_are_rejected_with_the_path() {
    let refused = |changes| refusal(what_if_plans(&two_half_empty(), changes));
    assert_eq!(refused(vec![]), "suppositions: is empty");
    let gone = || Change::NodeGone("n0".into());
    assert_eq!(refused(vec![gone(), gone()]), "suppositions[1].node_gone: no node \"n0\" in the snapshot");
    let prices =
        |node_pool: &str, factor_milli| Change::PriceChange(PriceChange { node_pool: node_pool.into(), factor_milli });
    assert_eq!(
        refused(vec![prices("x", 1)]),
        "suppositions[0].price_change.node_pool: no NodePool \"x\" in the snapshot"
    );
    assert_eq!(refused(vec![prices("default", -1)]), "suppositions[0].price_change.factor_milli: is negative: -1");
    let more = |like: &str, count| Change::MorePods(MorePods { like: like.into(), count });
    assert_eq!(
        refused(vec![more("default/x", 1)]),
        "suppositions[0].more_pods.like: no pod \"default/x\" in the snapshot"
    );
    let too_many = refused(vec![more("default/a", 60_000), more("default/a", 60_000)]);
    assert!(too_many.starts_with("suppositions[1].more_pods.count: makes 120000 more pods"), "{too_many}");
}

#[test]
fn added_pods_are_bounded_in_bytes_too() {
    let mut snapshot = waiting(1);
    snapshot.pods[0].pod_disruption_budgets = vec!["default/".to_owned() + &"b".repeat(1 << 20)];
    let more = |count| Change::MorePods(MorePods { like: "default/web-0".into(), count });
    let refused = refusal(what_if_plans(&snapshot, vec![more(32), more(32)]));
    assert!(refused.starts_with("suppositions[1].more_pods.count: makes more pods of 671"), "{refused}");
}

#[test]
fn a_price_that_changes_again_leaves_no_catalog() {
    let snapshot = waiting(1);
    let mut input = SolveInput { snapshot, catalogs: catalogs(), options: PlanOptions::default() };
    for factor_milli in 1001..1004 {
        let change = PriceChange { node_pool: "default".into(), factor_milli };
        what_if::with_prices(&mut input, &change, "").unwrap();
        let ids: Vec<_> = input.catalogs.keys().cloned().map(Some).collect();
        assert_eq!(ids, [input.snapshot.node_pools[0].catalog.clone()]);
    }
}

#[test]
fn suppositions_are_left_once_nobody_waits() {
    let change = |count| Change::MorePods(MorePods { like: "default/web-0".into(), count });
    let request = WhatIfRequest {
        snapshot: Some((&waiting(1)).into()),
        catalogs: wire_catalogs(),
        // The second one is invalid.
        suppositions: [1, MAX_ADDED_PODS].map(|count| Supposition { change: Some(change(count)) }).into(),
        ..WhatIfRequest::default()
    };
    let cancel = Cancel::default();
    cancel.cancel();
    assert_eq!(what_if_of(request, &cancel), Err(AnswerError::Plan(PlanFailure::Cancelled)));
}

/// Reverses the lists of the request.
fn reversed(mut request: PlanRequest) -> PlanRequest {
    let snapshot = request.snapshot.get_or_insert_default();
    snapshot.shapes.reverse();
    snapshot.pods.reverse();
    snapshot.nodes.reverse();
    snapshot.node_pools.reverse();
    for catalog in &mut request.catalogs {
        catalog.instance_types.reverse();
        catalog.instance_types.iter_mut().for_each(|one| one.offerings.reverse());
    }
    request
}

fn extreme() -> impl Strategy<Value = i64> {
    prop_oneof![Just(0), Just(1), Just(i64::MAX / 2), Just(i64::MAX), 0..i64::MAX]
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]

    #[test]
    fn the_order_of_a_request_does_not_matter(snapshot in snapshots()) {
        let request = plan_request(&snapshot);
        let (one, other) = (plan(&request).unwrap(), plan(&reversed(request)).unwrap());
        prop_assert_eq!(one.encode_to_vec(), other.encode_to_vec());
    }

    #[test]
    fn in_process_callers_get_the_same_plan(snapshot in snapshots()) {
        let catalogs = catalogs();
        let here = in_process::solve(&snapshot, &catalogs, &PlanOptions::default()).and_then(|plan| plan.check());
        let mut request = plan_request(&snapshot);
        request.options = Some((&PlanOptions::default()).into());
        let sent = plan(&request).unwrap().plan.map(Plan::try_from);
        prop_assert_eq!(Some(Ok(here.unwrap())), sent);
    }

    /// Unrealistic numbers must not cause a failure: the answer is a valid plan or an error.
    #[test]
    fn extreme_numbers_get_a_plan_or_an_error(
        snapshot in snapshots(),
        amounts in proptest::collection::vec(extreme(), 6),
        time in prop_oneof![Just(i64::MIN), Just(i64::MAX), any::<i64>()],
    ) {
        let mut snapshot = snapshot;
        snapshot.now = Timestamp(time);
        for (shape, cpu) in snapshot.shapes.iter_mut().zip(&amounts) {
            shape.requests.set("cpu", *cpu);
            shape.requests.set("example.com/device", amounts[5]);
        }
        for (node, amount) in snapshot.nodes.iter_mut().zip(&amounts) {
            node.allocatable.set("cpu", *amount);
            node.limit_usage.set("cpu", *amount);
            node.idle_since = Some(Timestamp(time));
        }
        snapshot.node_pools.iter_mut().zip(&amounts).for_each(|(pool, amount)| pool.limits.set("cpu", *amount));
        let mut catalog = catalog();
        for (one, amount) in catalog.instance_types.iter_mut().zip(&amounts) {
            one.capacity.set("cpu", *amount);
            one.overhead.set("memory", amounts[4]);
            one.offerings.iter_mut().for_each(|offering| offering.price.0 = amounts[3]);
        }
        for pool in snapshot.node_pools.iter_mut().filter(|pool| pool.catalog.is_some()) {
            pool.catalog = Some(catalog.id());
        }
        let request = PlanRequest { catalogs: vec![(&catalog).into()], ..plan_request(&snapshot) };
        prop_assert_eq!(plan(&request).err().map(|status| status.message().to_owned()), None);
    }
}

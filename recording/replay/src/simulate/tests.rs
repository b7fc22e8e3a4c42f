use super::*;
use crate::samples::{START, catalog, node, pod, pool, record, snapshot};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::snapshot::{DisruptionReason, Pod};

const BOOT: Millis = Millis::from_seconds(60);
const HOUR: i64 = 3600;

/// A recording in which nothing was done: pods wait, and one node idles.
fn compared(snapshots: &[Snapshot], pools: Pools<'_>) -> Comparison {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), snapshots, |_, _| ());
    let mut counts = Vec::new();
    let count = |plans: usize| {
        counts.push(plans);
        ControlFlow::Continue(())
    };
    let comparison = compare(&crate::files(folder.path()).unwrap(), pools, BOOT, count).unwrap();
    assert_eq!(counts, (1..=snapshots.len()).collect::<Vec<_>>());
    comparison
}

fn same_pools(snapshot: &Snapshot, _: &BTreeMap<NodePoolName, PoolNodes>) -> Vec<NodePool> {
    snapshot.node_pools.clone()
}

/// The pool with types of 8 CPUs only.
fn large_nodes(_: &Snapshot, _: &BTreeMap<NodePoolName, PoolNodes>) -> Vec<NodePool> {
    let mut large = pool("large", 0);
    let key = "node.kubernetes.io/instance-type";
    large.requirements.push(NodeSelectorRequirement::new(key, Operator::In, ["t.8"]));
    vec![large]
}

fn pods(count: usize) -> Vec<Pod> {
    (0..count).map(|number| pod(&format!("web-{number}"), "web", None)).collect()
}

#[test]
fn pods_wait_for_the_boot_and_nodes_cost_from_their_launch() {
    // One pod of 1.5 CPUs on a node of 2 CPUs, at 0.1 USD/h, for two hours.
    let comparison = compared(&[snapshot(0, pods(1), vec![]), snapshot(2 * HOUR, pods(1), vec![])], &same_pools);
    let expected = Figures {
        micro_usd: 200_000,
        hourly: MicroUsdPerHour(100_000),
        nodes: 1,
        launched: 1,
        waited: BOOT,
        ..Figures::default()
    };
    assert_eq!(comparison.same_pools, expected);
    assert_eq!(comparison.other_pools, expected);
    // Nothing was launched in the recorded cluster, where the pod waits all the time.
    let recorded = Figures { waited: Millis::from_seconds(7200), waiting: 1, ..Figures::default() };
    assert_eq!((comparison.recorded, comparison.plans), (recorded, 2));
}

#[test]
fn the_caller_may_end_the_simulation() {
    let folder = tempfile::tempdir().unwrap();
    record(folder.path(), &[0, 1, 2].map(|hour| snapshot(hour * HOUR, pods(1), vec![])), |_, _| ());
    let files = crate::files(folder.path()).unwrap();
    let end = |plans: usize| if plans == 2 { ControlFlow::Break(()) } else { ControlFlow::Continue(()) };
    let comparison = compare(&files, &same_pools, BOOT, end).unwrap();
    assert_eq!((comparison.plans, comparison.recorded.waited), (2, Millis::from_seconds(3600)));
}

#[test]
fn other_pools_launch_other_nodes() {
    // Two pods of 1.5 CPUs fit on a node of 4 CPUs, at 0.2 USD/h; a node of 8 costs 0.4.
    let comparison = compared(&[snapshot(0, pods(2), vec![]), snapshot(HOUR, pods(2), vec![])], &large_nodes);
    let figures = |figures: Figures| (figures.micro_usd, figures.nodes, figures.launched, figures.waiting);
    assert_eq!(figures(comparison.same_pools), (200_000, 1, 1, 0));
    assert_eq!(figures(comparison.other_pools), (400_000, 1, 1, 0));
}

#[test]
fn pods_that_are_gone_leave_a_node_that_is_removed() {
    let steps = [snapshot(0, pods(1), vec![]), snapshot(HOUR, vec![], vec![]), snapshot(2 * HOUR, vec![], vec![])];
    let Figures { micro_usd, nodes, removed, evicted, .. } = compared(&steps, &same_pools).same_pools;
    // The node stays for three seconds after its last pod.
    assert_eq!((micro_usd, nodes, removed, evicted), (100_000 * 3603 / 3600, 0, 1, 0));
}

#[test]
fn nodes_cost_also_while_their_pool_has_no_catalog() {
    let at = |seconds| snapshot(seconds, vec![pod("web-0", "web", Some("n"))], vec![node("n", "default", 2)]);
    let mut not_ready = at(HOUR);
    not_ready.node_pools[0].catalog = None;
    let comparison = compared(&[at(0), not_ready, at(2 * HOUR)], &same_pools);
    // 0.1 USD/h in both hours.
    assert_eq!((comparison.recorded.micro_usd, comparison.same_pools.micro_usd), (200_000, 200_000));
}

#[test]
fn a_replacement_is_in_service_before_its_pods_move() {
    // A pod of 1.5 CPUs alone on a node of 8 CPUs: a node of 2 replaces it.
    let bound = || vec![pod("web-0", "web", Some("big"))];
    let big = || vec![node("big", "default", 8)];
    let steps = [snapshot(0, bound(), big()), snapshot(HOUR, bound(), big())];
    let figures = compared(&steps, &same_pools).same_pools;
    let expected = Figures {
        // Both for the minute of the boot, then the small one.
        micro_usd: (400_000 * 60 + 100_000 * 3600) / 3600,
        hourly: MicroUsdPerHour(100_000),
        nodes: 1,
        launched: 1,
        removed: 1,
        evicted: 1,
        waited: Millis(0),
        waiting: 0,
    };
    assert_eq!(figures, expected);
    let recorded = compared(&steps, &same_pools).recorded;
    assert_eq!((recorded.micro_usd, recorded.nodes, recorded.evicted), (400_000, 1, 0));
}

#[test]
fn new_pods_of_a_workload_are_no_evictions() {
    // The pod is replaced by one with another name: the same workload.
    let later = vec![pod("web-9", "web", None)];
    let steps = [snapshot(0, pods(1), vec![]), snapshot(HOUR, later, vec![])];
    let figures = compared(&steps, &same_pools).same_pools;
    assert_eq!((figures.launched, figures.evicted, figures.waited), (1, 0, BOOT));
}

#[test]
fn nodes_outside_of_pools_come_and_go_as_recorded() {
    let foreign = || {
        let mut node = node("foreign", "default", 8);
        (node.node_pool, node.node_claim) = (None, None);
        vec![node]
    };
    let steps = [snapshot(0, pods(1), foreign()), snapshot(HOUR, pods(1), vec![]), snapshot(2 * HOUR, pods(1), vec![])];
    let figures = compared(&steps, &same_pools).same_pools;
    // The pod runs on the foreign node for an hour, which costs nothing here, then on its own.
    assert_eq!((figures.launched, figures.nodes, figures.micro_usd), (1, 1, 100_000));
    assert_eq!((figures.evicted, figures.waited), (0, Millis(0)), "it had a node before");
}

#[test]
fn nodes_outside_of_pools_change_as_recorded() {
    let foreign = |cordoned| {
        let mut node = node("foreign", "default", 8);
        (node.node_pool, node.node_claim, node.cordoned) = (None, None, cordoned);
        vec![node]
    };
    let daemon = || Pod { stays_with_node: true, ..pod("daemon", "web", Some("foreign")) };
    // It is in service after an hour, with a pod of a DaemonSet. Five pods of 1.5 CPUs fit on it, so four beside that.
    let with_daemon = |count| [pods(count), vec![daemon()]].concat();
    let steps = [
        snapshot(0, vec![], foreign(true)),
        snapshot(HOUR, with_daemon(0), foreign(false)),
        snapshot(2 * HOUR, with_daemon(4), foreign(false)),
        snapshot(3 * HOUR, with_daemon(5), foreign(false)),
        snapshot(4 * HOUR, with_daemon(5), foreign(false)),
    ];
    let before = compared(&steps[..3], &same_pools).same_pools;
    assert_eq!((before.launched, before.waiting), (0, 0));
    assert_eq!(compared(&steps, &same_pools).same_pools.launched, 1);
}

#[test]
fn budgets_count_the_simulated_nodes_that_are_being_removed() {
    let mut recorded = snapshot(0, vec![], vec![node("a", "default", 2), node("b", "default", 2)]);
    recorded.nodes[0].deleting = true;
    recorded.node_pools[0].disruption.allowed = [(DisruptionReason::Empty, 2), (DisruptionReason::Drifted, 0)].into();
    let moment = Moment { now: START, recorded: &recorded, catalogs: &BTreeMap::new(), pools: &same_pools };
    let allowed = |leaving| {
        let nodes = BTreeMap::from([(NodePoolName::from("default"), PoolNodes { in_service: 5, leaving })]);
        let allowed = &moment.node_pools(&nodes)[0].disruption.allowed;
        (allowed[&DisruptionReason::Empty], allowed[&DisruptionReason::Drifted])
    };
    assert_eq!([0, 1, 2, 9].map(allowed), [(3, 0), (2, 0), (1, 0), (0, 0)]);
}

#[test]
fn simulated_nodes_hold_the_instances_of_reservations() {
    let reserved = |name: &str, is_launched: bool| {
        let mut node = node(name, "default", 2);
        node.labels.insert(label::CAPACITY_RESERVATION_ID.to_owned(), "cr-1".to_owned());
        node.limit_usage.set(&reservation_resource("cr-1"), i64::from(!is_launched));
        node
    };
    // Three instances: one is held, and two are free, one of them for a node that is not launched yet.
    let mut recorded = snapshot(0, vec![], vec![reserved("a", true), reserved("b", false)]);
    recorded.reservations = vec![ReservationCount { id: "cr-1".to_owned(), free: 2 }];
    let moment = Moment { now: START, recorded: &recorded, catalogs: &BTreeMap::new(), pools: &same_pools };
    let free = |nodes: &[Node]| moment.reservations(nodes.iter())[0].free;
    assert_eq!(free(&recorded.nodes), 2);
    assert_eq!(free(&[]), 3);
    assert_eq!(free(&["a", "b", "c"].map(|name| reserved(name, true))), 0);
    // Launches of the simulation count in `limit_usage`.
    assert_eq!(free(&["a", "b", "c"].map(|name| reserved(name, false))), 3);
}

#[test]
fn time_passes_between_recorded_plans() {
    // A node of 2 CPUs whose pods are gone, at 0.1 USD/h, is removed ten minutes later.
    let pools = |_: &Snapshot, _: &BTreeMap<NodePoolName, PoolNodes>| {
        let mut pool = pool("default", 0);
        pool.disruption.consolidate_after = Some(Millis::from_seconds(600));
        vec![pool]
    };
    let idle = || {
        let mut node = node("n", "default", 2);
        node.idle_since = Some(START);
        vec![node]
    };
    let figures = compared(&[snapshot(0, vec![], idle()), snapshot(12 * HOUR, vec![], idle())], &pools).other_pools;
    assert_eq!((figures.micro_usd, figures.nodes, figures.removed), (100_000 / 6, 0, 1));
}

#[test]
fn pools_between_recorded_plans_are_those_of_the_moment() {
    let seen = std::cell::RefCell::new(Vec::new());
    let pools = |snapshot: &Snapshot, _: &BTreeMap<NodePoolName, PoolNodes>| {
        seen.borrow_mut().push(snapshot.now.since(START).0 / 1000);
        vec![pool("default", 0)]
    };
    compared(&[snapshot(0, pods(1), vec![]), snapshot(HOUR, pods(1), vec![])], &pools);
    // The first plan, which launches, the plan after it, the boot of the node, when the node may be consolidated, and
    // the last plan.
    assert_eq!(seen.into_inner(), [0, 1, 60, 63, 3600], "once at each moment");
}

#[test]
fn a_plan_without_removals_leaves_them_to_the_next_one() {
    let idle = snapshot(0, vec![], vec![node("n", "default", 2)]);
    let catalogs = [(catalog().id(), catalog())].into();
    let mut simulation = Simulation::new(BOOT);
    for (disruption, nodes) in [(false, 1), (true, 0)] {
        let options = PlanOptions { disruption, ..PlanOptions::default() };
        simulation.follow(&idle, &catalogs, &same_pools, &options);
        assert_eq!(simulation.figures().nodes, nodes);
    }
}

#[test]
fn without_a_recorded_plan_with_removals_nodes_stay() {
    let catalogs = [(catalog().id(), catalog())].into();
    let mut simulation = Simulation::new(BOOT);
    let options = PlanOptions { disruption: false, ..PlanOptions::default() };
    for seconds in [0, HOUR] {
        let idle = snapshot(seconds, vec![], vec![node("n", "default", 2)]);
        simulation.follow(&idle, &catalogs, &same_pools, &options);
    }
    assert_eq!((simulation.figures().nodes, simulation.plans), (1, 1));
}

#[test]
fn nodes_of_pools_that_are_missing_are_replaced() {
    // A pod of 1.5 CPUs on a node of 2 CPUs, at 0.1 USD/h; a node of 8 costs 0.4.
    let bound = || vec![pod("web-0", "web", Some("n"))];
    let nodes = || vec![node("n", "default", 2)];
    let steps = [snapshot(0, bound(), nodes()), snapshot(HOUR, bound(), nodes())];
    let compared = compared(&steps, &large_nodes);
    assert_eq!((compared.same_pools.micro_usd, compared.same_pools.removed), (100_000, 0));
    let expected = Figures {
        // Both for the minute of the boot, then the large one.
        micro_usd: 400_000 + 100_000 / 60,
        hourly: MicroUsdPerHour(400_000),
        nodes: 1,
        launched: 1,
        removed: 1,
        evicted: 1,
        ..Figures::default()
    };
    assert_eq!(compared.other_pools, expected);
}

#[test]
fn pods_for_which_the_other_pools_have_no_node_wait() {
    let no_nodes = |_: &Snapshot, _: &BTreeMap<NodePoolName, PoolNodes>| {
        let mut none = pool("none", 0);
        none.requirements.push(NodeSelectorRequirement::new("kubernetes.io/arch", Operator::In, ["none"]));
        vec![none]
    };
    let bound = || vec![pod("web-0", "web", Some("n"))];
    let nodes = || vec![node("n", "default", 2)];
    let figures = compared(&[snapshot(0, bound(), nodes()), snapshot(HOUR, bound(), nodes())], &no_nodes).other_pools;
    let expected =
        Figures { removed: 1, evicted: 1, waiting: 1, waited: Millis::from_seconds(3600), ..Figures::default() };
    assert_eq!(figures, expected);
}

#[test]
fn pods_that_are_being_replaced_keep_their_node() {
    // The owner is a StatefulSet, which creates the pod again under the same name.
    let replaced = || {
        let mut pod = pod("db-0", "web", Some("n"));
        (pod.terminating, pod.returns) = (true, true);
        vec![pod]
    };
    let own = || vec![node("n", "default", 2)];
    let steps = [snapshot(0, replaced(), own()), snapshot(HOUR, replaced(), own())];
    let Figures { nodes, removed, waited, .. } = compared(&steps, &same_pools).same_pools;
    assert_eq!((nodes, removed, waited), (1, 0, Millis(0)));
    // It comes later, after a node was launched for it in the recording: it waits until its simulated node has booted.
    let later = |seconds| snapshot(seconds, replaced(), own());
    let steps = [snapshot(0, vec![], vec![]), later(HOUR), later(2 * HOUR)];
    let Figures { nodes, launched, waited, .. } = compared(&steps, &same_pools).same_pools;
    assert_eq!((nodes, launched, waited), (1, 1, BOOT));
}

#[test]
fn accepted_actions_of_the_recorded_plans_count_once() {
    let mut recorded = Recorded::default();
    let plan = crate::samples::planned(&snapshot(0, pods(1), vec![]));
    let action = plan.launches[0].action_id.clone();
    recorded.planned(START, &plan);
    recorded.planned(START, &plan);
    recorded.accepted(&action);
    recorded.accepted(&action);
    recorded.accepted(&"unknown".into());
    assert_eq!(recorded.meter.figures.launched, 1);
    let idle = snapshot(0, vec![pod("web-0", "web", Some("big"))], vec![node("big", "default", 8)]);
    let plan = crate::samples::planned(&idle);
    recorded.planned(START, &plan);
    recorded.accepted(&plan.terminations[0].action_id);
    assert_eq!((recorded.meter.figures.removed, recorded.meter.figures.evicted), (1, 1));
}

#[test]
fn actions_that_are_not_planned_again_are_forgotten() {
    let mut recorded = Recorded::default();
    let launch = crate::samples::planned(&snapshot(0, pods(1), vec![]));
    assert_eq!(launch.launches.len(), 1);
    let mut known = |seconds, plan: &Plan| {
        recorded.planned(START.plus(Millis::from_seconds(seconds)), plan);
        recorded.actions.len()
    };
    assert_eq!([known(0, &launch), known(3000, &launch)], [1, 1]);
    // An hour after the last plan with it.
    assert_eq!([known(6600, &Plan::default()), known(6601, &Plan::default())], [1, 0]);
}

#[test]
fn recorded_pods_that_were_bound_once_wait_no_more() {
    let mut recorded = Recorded::default();
    let mut waiting = |pods: &[(&str, Option<&str>)]| {
        let pods = pods.iter().map(|(name, node)| pod(name, "web", *node)).collect();
        recorded.observe(&snapshot(0, pods, vec![]), &BTreeMap::new());
        recorded.meter.figures.waiting
    };
    assert_eq!(waiting(&[("a", None), ("b", None), ("c", Some("n"))]), 2);
    assert_eq!(waiting(&[("a", Some("n")), ("b", None), ("c", None)]), 1);
    assert_eq!(waiting(&[("0", None), ("a", None), ("b", Some("n")), ("c", None), ("d", None)]), 2);
    assert_eq!(waiting(&[("b", None), ("d", Some("n"))]), 0);
    // Pods that are gone are forgotten.
    assert_eq!(waiting(&[("a", None), ("b", None), ("c", None), ("d", None)]), 2);
}

#[test]
fn pool_nodes_tell_what_budgets_need() {
    let seen = std::cell::RefCell::new(Vec::new());
    let pools = |snapshot: &Snapshot, nodes: &BTreeMap<NodePoolName, PoolNodes>| {
        let default = nodes.get(&"default".into()).copied().unwrap_or_default();
        seen.borrow_mut().push((default.in_service, default.leaving));
        snapshot.node_pools.clone()
    };
    let bound = || vec![pod("web-0", "web", Some("big"))];
    let big = || vec![node("big", "default", 8)];
    compared(&[snapshot(0, bound(), big()), snapshot(HOUR, bound(), big())], &pools);
    let mut seen = seen.into_inner();
    seen.dedup();
    // The large node, its removal begins, then the small one alone: what it replaces goes when it is in service.
    assert_eq!(seen, [(1, 0), (1, 1), (1, 0)]);
    assert_eq!(catalog().instance_types.len(), 3);
}

//! A planner that fails for the pods of one shape: only these pods have no node, and each has an Event with the reason.

use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{PodState, Snapshot};
use plimsoll_scheduler::PlanFn;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::{Options, Role};
use plimsoll_sim::world::{World, is_running};
use plimsoll_tests::{MINUTE, Setup, TestCluster};
use serde_json::{Value, json};
use std::time::Duration;

/// Node label that the pods require. No node has it, so that kube-scheduler binds none of them.
const LABEL: &str = "plimsoll.test/faulty";

/// Panics.
pub(crate) const PANICS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    assert!(!is_faulty(snapshot), "a bug for one shape");
    planner.solve_early(snapshot, index, catalogs, options, early)
});

/// Forgets the pods, so that the plan is withheld.
pub(crate) const FORGETS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    let plan = planner.solve_early(snapshot, index, catalogs, options, early);
    let unschedulable = plan.unschedulable.iter().filter(|pod| !pod.pod.name.contains("/faulty")).cloned().collect();
    if is_faulty(snapshot) { Plan { unschedulable, ..plan } } else { plan }
});

/// Makes an invalid plan without naming a pod.
pub(crate) const MISCOUNTS: PlanFn = PlanFn(|planner, snapshot, index, catalogs, options, early| {
    let mut plan = planner.solve_early(snapshot, index, catalogs, options, early);
    plan.hourly.0 += i64::from(is_faulty(snapshot));
    plan
});

fn is_faulty(snapshot: &Snapshot) -> bool {
    let faulty =
        |pod: &&plimsoll_model::snapshot::Pod| pod.state == PodState::Pending && pod.name.starts_with("faulty");
    snapshot.pods.iter().any(|pod| faulty(&pod))
}

/// Creates pods that the planner fails for.
pub(crate) fn deploy(cluster: &TestCluster, replicas: u32) {
    let requests = json!({"cpu": "500m", "memory": "250Mi"});
    cluster.world.deploy("faulty", replicas, &requests, &json!({"nodeSelector": {LABEL: "true"}})).unwrap();
}

fn is_named_faulty(pod: &Value) -> bool {
    object::name(pod).starts_with("faulty")
}

/// Waits until this number of pods run, and the only others are pods that the planner fails for.
pub(crate) async fn until_others_run(cluster: &TestCluster, count: usize, limit: Duration) {
    let is_over = |pod: &Value| matches!(object::text(pod, &["status", "phase"]), "Succeeded" | "Failed");
    let others = move |world: &World| world.count(ResourceId::PODS, |pod| !is_named_faulty(pod) && !is_over(pod));
    let test = move |world: &World| world.count(ResourceId::PODS, is_running) == count && others(world) == count;
    cluster.until(&format!("exactly {count} pods run beside those that the planner fails for"), limit, test).await;
}

/// Waits until each pod that the planner fails for has an Event that says so.
pub(crate) async fn until_told(cluster: &TestCluster, limit: Duration) {
    let is_told = |world: &World, pod: &Value| {
        world.events_of("Pod", object::name(pod)).iter().any(|event| event.contains("left out, because"))
    };
    let test = move |world: &World| {
        world.all(ResourceId::PODS).iter().filter(|pod| is_named_faulty(pod)).all(|pod| is_told(world, pod))
    };
    cluster.until("the pods that the planner fails for have an Event", limit, test).await;
}

async fn only_faulty_pods_wait(plan: PlanFn) {
    let setup = Setup { options: Options { plan, ..Options::default() }, ..Setup::default() };
    let mut cluster = TestCluster::begin(setup).await;
    deploy(&cluster, 2);
    cluster.deploy("web", 6, 900);
    until_others_run(&cluster, 6, 5 * MINUTE).await;
    until_told(&cluster, MINUTE).await;
    // A scheduler that knows nothing yet finds the pods again, and removals go on.
    cluster.plimsoll.replace_all(Role::Scheduler);
    cluster.scale("web", 9);
    until_others_run(&cluster, 9, 5 * MINUTE).await;
    cluster.scale("web", 0);
    cluster.until_empty(15 * MINUTE).await;
}

#[tokio::test(start_paused = true)]
async fn a_planner_that_panics() {
    only_faulty_pods_wait(PANICS).await;
}

#[tokio::test(start_paused = true)]
async fn a_planner_that_forgets_pods() {
    only_faulty_pods_wait(FORGETS).await;
}

#[tokio::test(start_paused = true)]
async fn a_planner_whose_plan_is_invalid_without_naming_pods() {
    only_faulty_pods_wait(MISCOUNTS).await;
}

//! Random faults, determined by a seed. In the end all pods run, and nothing is left after the workloads are deleted. A
//! seed that fails becomes a separate test.

use plimsoll_actuator::ports::CloudError;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::Effect as CloudEffect;
use plimsoll_sim::plimsoll::Role;
use plimsoll_sim::seed::Rng;
use plimsoll_tests::{MINUTE, Setup, TestCluster, claims_ever_launched, instances_ever_launched, most_cpu_of_claims};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::Duration;

/// Rounds of changes with faults.
const ROUNDS: u64 = 6;
/// CPU limit of the pool, in millicores, enough for the pods at the end.
const LIMIT: i64 = 64_000;

/// Fault rates in per mille: high enough that each run has some faults, low enough that it makes progress.
fn let_things_go_wrong(cluster: &TestCluster) {
    let faults = cluster.world.server().faults();
    faults.sometimes(15, Matcher::default(), Effect::LoseAnswer);
    faults.sometimes(15, Matcher::default(), Effect::Drop);
    faults.sometimes(15, Matcher::default(), Effect::internal_error());
    faults.sometimes(15, Matcher::default(), Effect::throttle(1));
    faults.sometimes(50, Matcher::default(), Effect::Delay(Duration::from_millis(300)));
    cluster.world.ec2.faults(|faults| {
        faults.sometimes(40, None, CloudEffect::LoseAnswer);
        faults.sometimes(20, None, CloudEffect::Late(Duration::from_secs(30)));
        faults.sometimes(40, None, CloudEffect::Refuse(CloudError::Throttled));
        faults.sometimes(20, None, CloudEffect::Drop);
        faults.sometimes(50, None, CloudEffect::Delay(Duration::from_secs(2)));
    });
}

pub(super) fn one_of<'a, T>(rng: &mut Rng, all: &'a [T]) -> Option<&'a T> {
    all.get(usize::try_from(rng.below(all.len() as u64)).unwrap_or(0))
}

/// One event that affects the services or the machines.
fn inject_event(cluster: &mut TestCluster, rng: &mut Rng) {
    match rng.below(6) {
        kind @ 0..=2 => {
            let role = [Role::Watcher, Role::Scheduler, Role::Actuator][usize::try_from(kind).unwrap_or(0)];
            let processes = cluster.plimsoll.processes(role);
            if let Some(process) = one_of(rng, &processes) {
                cluster.plimsoll.replace(process).unwrap();
            }
        }
        3 => cluster.world.server().faults().cut_watches([]),
        4 => {
            let living: Vec<String> = cluster.world.living_instances().into_keys().collect();
            if let Some(id) = one_of(rng, &living) {
                cluster.world.ec2.with(|cloud, now| cloud.interrupt_spot(id, now));
            }
        }
        _ => {
            let living: Vec<String> = cluster.world.living_instances().into_keys().collect();
            if let Some(id) = one_of(rng, &living) {
                cluster.world.ec2.with(|cloud, now| cloud.terminate_instances(std::slice::from_ref(id), now));
            }
        }
    }
}

async fn run(seed: u64) {
    let requirements = json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": ["spot", "on-demand"]},
                              {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]);
    let pool = json!({"limits": {"cpu": "64"}, "template": {"spec": {"requirements": requirements}}});
    let mut cluster = TestCluster::begin(Setup { pool, ..Setup::seeded(seed) }).await;
    let mut rng = Rng::new(seed);
    let_things_go_wrong(&cluster);
    for _ in 0..ROUNDS {
        let replicas = u32::try_from(rng.below(20)).unwrap_or(0);
        cluster.deploy("web", replicas, 900);
        cluster.pass(Duration::from_millis(rng.below(20_000))).await;
        inject_event(&mut cluster, &mut rng);
        cluster.pass(Duration::from_millis(rng.below(60_000))).await;
    }
    cluster.world.server().faults().clear_rules();
    cluster.world.ec2.faults(plimsoll_sim::cloud::Faults::clear);
    cluster.deploy("web", 12, 900);
    cluster.until_running(12, 20 * MINUTE).await;
    assert!(most_cpu_of_claims(&cluster.world, "default") <= LIMIT);
    cluster.scale("web", 0);
    cluster.until_empty(30 * MINUTE).await;
    let claimed: BTreeSet<String> = claims_ever_launched(&cluster.world).into_values().collect();
    let bought = instances_ever_launched(&cluster.world);
    assert!(claimed.is_subset(&bought), "a claim has an instance that was never launched");
    assert!(cluster.world.all(ResourceId::NODE_CLAIMS).is_empty());
}

/// Result of a run without connection faults, with which clients would retry after random delays.
#[derive(Debug, PartialEq, Eq)]
struct Outcome {
    bought: Vec<(i64, String, String)>,
    pods: Vec<(String, String)>,
}

async fn calm(seed: u64) -> Outcome {
    let cluster = TestCluster::begin(Setup::seeded(seed)).await;
    let mut rng = Rng::new(seed);
    for _ in 0..ROUNDS {
        cluster.deploy("web", u32::try_from(rng.below(20)).unwrap_or(0), 900);
        cluster.pass(Duration::from_millis(rng.below(90_000))).await;
    }
    cluster.deploy("web", 12, 900);
    cluster.until_running(12, 20 * MINUTE).await;
    let machine = |machine: &plimsoll_sim::cloud::Machine| {
        (machine.launched.0, machine.id.clone(), machine.instance_type.clone())
    };
    let bought = cluster.world.ec2.read(|cloud, _| cloud.machines().values().map(machine).collect());
    let place =
        |pod: &serde_json::Value| (object::name(pod).to_owned(), object::text(pod, &["spec", "nodeName"]).to_owned());
    let pods = cluster.world.all(ResourceId::PODS).iter().map(|pod| place(pod)).collect();
    Outcome { bought, pods }
}

/// Runs the seeds `from` to `to`.
async fn runs(from: u64, to: u64) {
    for seed in from..to {
        println!("seed {seed}");
        run(seed).await;
    }
}

#[tokio::test(start_paused = true)]
async fn seeds_0_to_3() {
    runs(0, 4).await;
}

#[tokio::test(start_paused = true)]
async fn seeds_4_to_7() {
    runs(4, 8).await;
}

#[tokio::test(start_paused = true)]
async fn seeds_8_to_11() {
    runs(8, 12).await;
}

#[tokio::test(start_paused = true)]
async fn seeds_12_to_15() {
    runs(12, 16).await;
}

#[tokio::test(start_paused = true)]
async fn seeds_16_to_19() {
    runs(16, 20).await;
}

#[tokio::test(start_paused = true)]
async fn a_seed_reproduces_a_run() {
    assert_eq!(calm(3).await, calm(3).await);
}

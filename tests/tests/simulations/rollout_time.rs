//! How long a rollout takes: nodes with pods, a budget of 10 %, machines that need five minutes to become Ready, and
//! each service killed during it.

use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::{Options, Role};
use plimsoll_sim::world::World;
use plimsoll_tests::{HOUR, MINUTE, Setup, TestCluster, instances_ever_launched};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;

/// Nodes of the pool in `cargo test`.
const NODES: u32 = 40;
/// Number of nodes of [`rollout_asked_for`].
const NODES_VARIABLE: &str = "PLIMSOLL_ROLLOUT_NODES";
/// Pods of each node.
const PODS_PER_NODE: u32 = 3;
/// Nodes whose pods belong to the same Deployment.
const NODES_PER_DEPLOYMENT: u32 = 20;
/// From the launch to the start of the kubelet. The Node is Ready 5 s later.
const BOOT: Duration = Duration::from_secs(295);
/// Interval between two looks at the cluster.
const LOOK_EVERY: Duration = Duration::from_secs(1);
/// Times after the start of the rollout at which all processes of a service are killed and replaced.
const KILLS: [(u64, Role); 4] = [(3, Role::Watcher), (8, Role::Scheduler), (14, Role::Actuator), (21, Role::Watcher)];

/// What the cluster looked like at one moment.
#[derive(Debug, Clone, Copy)]
struct Look {
    /// Nodes that drifted, including those whose instances are being terminated.
    old: usize,
    /// New nodes in service.
    new: usize,
    /// Nodes that are being drained.
    leaving: usize,
    running_pods: usize,
}

fn look(world: &World) -> Look {
    let is_new = |claim: &Value| object::label(claim, "revision") == Some("b");
    let count = |test: &dyn Fn(&Value) -> bool| world.count(ResourceId::NODE_CLAIMS, test);
    Look {
        old: count(&|claim| !is_new(claim)),
        new: count(&|claim| is_new(claim) && object::condition_is_true(claim, "Initialized")),
        leaving: count(&|claim| object::is_deleting(claim) && !object::condition_is_true(claim, "InstanceTerminating")),
        running_pods: world.running_pods(),
    }
}

/// A pool of this many nodes, all in use.
async fn pool_of(nodes: u32) -> TestCluster {
    let requirements = json!([{"key": "node.kubernetes.io/instance-type", "operator": "In", "values": ["m6i.xlarge"]}]);
    let disruption = json!({"consolidateAfter": "Never", "budgets": [{"nodes": "10%"}]});
    let mut setup =
        Setup::with_pool(json!({"template": {"spec": {"requirements": requirements}}, "disruption": disruption}));
    setup.world.boot = BOOT;
    // Standbys build snapshots, too, which takes most of the time of a large run.
    setup.options = Options { watchers: 1, schedulers: 1, actuators: 1, ..Options::default() };
    let cluster = TestCluster::begin(setup).await;
    for number in 0..nodes.div_ceil(NODES_PER_DEPLOYMENT) {
        let left = nodes - number * NODES_PER_DEPLOYMENT;
        cluster.deploy(&format!("web-{number}"), PODS_PER_NODE * left.min(NODES_PER_DEPLOYMENT), 1200);
    }
    let (pods, started) = ((PODS_PER_NODE * nodes) as usize, Instant::now());
    while cluster.world.running_pods() < pods {
        assert!(started.elapsed() < HOUR, "{} pods run", cluster.world.running_pods());
        cluster.pass(LOOK_EVERY).await;
    }
    assert_eq!(instances_ever_launched(&cluster.world).len(), nodes as usize);
    cluster
}

/// Rolls a pool of this many nodes and returns how long that takes.
async fn roll(nodes: u32, tell: bool) -> Duration {
    let (nodes, real) = (nodes as usize, std::time::Instant::now());
    let mut cluster = pool_of(nodes.try_into().unwrap()).await;
    let template = json!({"spec": {"template": {"metadata": {"labels": {"revision": "b"}}}}});
    cluster.world.patch(ResourceId::NODE_POOLS, "default", template).unwrap();
    let (started, mut kills, mut most_leaving, mut told) = (Instant::now(), KILLS.iter(), 0, Duration::ZERO);
    let mut kill = kills.next();
    loop {
        let now = look(&cluster.world);
        most_leaving = now.leaving.max(most_leaving);
        if tell && started.elapsed() >= told {
            let Look { old, new, leaving, running_pods } = now;
            let (seconds, real) = (started.elapsed().as_secs(), real.elapsed().as_secs());
            println!("{seconds} s ({real} s real): {old} old, {new} new, {leaving} drained, {running_pods} pods run");
            told += MINUTE / 4;
        }
        if now.old == 0 && now.new == nodes && now.running_pods == nodes * PODS_PER_NODE as usize {
            break;
        }
        assert!(started.elapsed() < 2 * HOUR, "{now:?}");
        if let Some((_, role)) =
            kill.filter(|(minute, _)| started.elapsed() >= MINUTE * u32::try_from(*minute).unwrap())
        {
            cluster.plimsoll.replace_all(*role);
            kill = kills.next();
        }
        cluster.pass(LOOK_EVERY).await;
    }
    assert_eq!(kill, None, "each service is killed during the rollout");
    // The budget is of the nodes in service, which are at most a tenth more while their replacements are, too.
    let budget = (nodes + nodes.div_ceil(10)).div_ceil(10);
    assert!(most_leaving <= budget, "{most_leaving} of {nodes} nodes left at the same time");
    assert_eq!(instances_ever_launched(&cluster.world).len(), 2 * nodes, "one replacement per node");
    started.elapsed()
}

#[tokio::test(start_paused = true)]
async fn a_pool_is_replaced_as_fast_as_its_budget_allows() {
    let took = roll(NODES, false).await;
    assert!(took <= HOUR, "{took:?}");
}

/// As many nodes as the variable says.
#[tokio::test(start_paused = true)]
async fn rollout_asked_for() {
    let Some(nodes) = std::env::var(NODES_VARIABLE).ok().map(|text| text.parse().unwrap()) else { return };
    let real = std::time::Instant::now();
    let took = roll(nodes, true).await;
    println!("{nodes} nodes are replaced in {} s; simulated in {} s", took.as_secs(), real.elapsed().as_secs());
    assert!(took <= HOUR, "{took:?}");
}

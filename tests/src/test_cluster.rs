//! A world with Plimsoll.

use plimsoll_model::names::label;
use plimsoll_sim::apiserver::store::Object;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::{Options, Plimsoll};
use plimsoll_sim::world::{World, WorldConfig, is_running};
use serde_json::{Value, json};
use std::time::Duration;
use tokio::time::Instant;
use tracing_subscriber::EnvFilter;

/// Polling interval for an empty cluster, which takes minutes and is the end of a test.
const LOOK_EVERY: Duration = Duration::from_secs(1);

/// One minute.
pub const MINUTE: Duration = Duration::from_secs(60);
/// One hour.
pub const HOUR: Duration = Duration::from_secs(3600);

/// Initial state of a test cluster.
#[derive(Debug, Clone)]
pub struct Setup {
    /// Settings of the world.
    pub world: WorldConfig,
    /// Settings of the services.
    pub options: Options,
    /// Merged into the spec of the pool `default`.
    pub pool: Value,
}

impl Default for Setup {
    fn default() -> Self {
        // A few types of two sizes and architectures: enough for a choice, and fast.
        let types = ["m6i.large", "m6i.xlarge", "m6i.2xlarge", "c6i.large", "c6i.xlarge", "m6g.large", "m6g.xlarge"];
        let world = WorldConfig { types: Some(types.map(str::to_owned).to_vec()), ..WorldConfig::default() };
        Self { world, options: Options::default(), pool: json!({}) }
    }
}

impl Setup {
    /// The default setup with another seed.
    #[must_use]
    pub fn seeded(seed: u64) -> Self {
        let mut setup = Self::default();
        setup.world.seed = seed;
        setup
    }

    /// The default setup with changes to the pool.
    #[must_use]
    pub fn with_pool(pool: Value) -> Self {
        Self { pool, ..Self::default() }
    }

    /// A pool whose nodes have expired by the time that they are in service.
    #[must_use]
    pub fn expired() -> Self {
        Self::with_pool(json!({"template": {"spec": {"expireAfter": "1s"}}}))
    }

    /// A pool of one type. A pod of 3 CPUs fills a node.
    #[must_use]
    pub fn one_to_a_node() -> Self {
        let requirements = json!([{"key": label::INSTANCE_TYPE, "operator": "In", "values": ["m6i.xlarge"]},
                                  {"key": label::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]}]);
        Self::with_pool(json!({"template": {"spec": {"requirements": requirements}}}))
    }
}

/// A cluster, a cloud, and Plimsoll with one pool.
#[derive(Debug)]
pub struct TestCluster {
    /// The cluster and the cloud.
    pub world: World,
    /// The services.
    pub plimsoll: Plimsoll,
}

/// The node class of the pools of the tests.
#[must_use]
pub fn node_class() -> Value {
    json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"}, "spec": {
        "amiSelectorTerms": [{"alias": "al2023@latest"}],
        "instanceProfile": "karpenter-node",
        "subnetSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
        "securityGroupSelectorTerms": [{"tags": {"karpenter.sh/discovery": "demo"}}],
    }})
}

/// A pool of On-Demand amd64 nodes with `consolidateAfter` of half a minute; `spec` is merged into its spec.
#[must_use]
pub fn node_pool(name: &str, spec: &Value) -> Value {
    let mut pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": name}, "spec": {
        "template": {"spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "expireAfter": "Never",
            "requirements": [
                {"key": label::CAPACITY_TYPE, "operator": "In", "values": ["on-demand"]},
                {"key": label::ARCH, "operator": "In", "values": ["amd64"]},
            ],
        }},
        "disruption": {"consolidationPolicy": "WhenEmptyOrUnderutilized", "consolidateAfter": "30s", "budgets": [{"nodes": "100%"}]},
    }});
    json_patch::merge(&mut pool, &json!({ "spec": spec }));
    pool
}

impl TestCluster {
    /// Starts two replicas of each service and a pool `default`, and waits until they are ready.
    ///
    /// # Panics
    /// If they do not become ready in time.
    pub async fn begin(setup: Setup) -> Self {
        // Shows logs of the services if RUST_LOG is set; another test may have installed the subscriber already.
        let filter = EnvFilter::from_default_env();
        let _ = tracing_subscriber::fmt().with_env_filter(filter).without_time().with_test_writer().try_init();
        let world = World::start(setup.world).unwrap();
        let plimsoll = Plimsoll::start(&world, setup.options);
        let cluster = Self { world, plimsoll };
        cluster.world.apply_object(&node_class()).unwrap();
        cluster.world.apply_object(&node_pool("default", &setup.pool)).unwrap();
        let ready = |world: &World| {
            world.get(ResourceId::NODE_POOLS, "default").is_some_and(|pool| object::condition_is_true(&pool, "Ready"))
        };
        cluster.until("the pool is Ready", 2 * MINUTE, ready).await;
        cluster
    }

    /// [`TestCluster::begin`] with the default setup.
    pub async fn usual() -> Self {
        Self::begin(Setup::default()).await
    }

    /// Lets time pass until a condition holds, at most `limit`; returns the elapsed time.
    ///
    /// # Panics
    /// If the condition does not hold in time. The message contains a summary of the world.
    pub async fn until(&self, what: &str, limit: Duration, test: impl Fn(&World) -> bool) -> Duration {
        match self.world.until(what, limit, test).await {
            Ok(took) => took,
            Err(missing) => panic!("{missing}\n{}", self.summary()),
        }
    }

    /// Creates a Deployment whose pods request this many millicores of CPU and half as many MiB of memory.
    ///
    /// # Panics
    /// If the server rejects it.
    pub fn deploy(&self, name: &str, replicas: u32, millicpu: u32) {
        let requests = json!({"cpu": format!("{millicpu}m"), "memory": format!("{}Mi", millicpu / 2)});
        self.world.deploy(name, replicas, &requests, &json!({})).unwrap();
    }

    /// Sets the replicas of a Deployment.
    ///
    /// # Panics
    /// If the Deployment does not exist.
    pub fn scale(&self, name: &str, replicas: u32) {
        self.world.scale(name, replicas).unwrap();
    }

    /// Waits until this number of pods run and no others exist.
    pub async fn until_running(&self, count: usize, limit: Duration) -> Duration {
        let test = move |world: &World| {
            world.running_pods() == count && world.count(ResourceId::PODS, |pod| !is_over(pod)) == count
        };
        self.until(&format!("exactly {count} pods run"), limit, test).await
    }

    /// Waits until no claim, no node and no instance is left.
    pub async fn until_empty(&self, limit: Duration) {
        let nothing = |world: &World| {
            world.all(ResourceId::NODE_CLAIMS).is_empty()
                && world.all(ResourceId::NODES).is_empty()
                && world.living_instances().is_empty()
        };
        let started = Instant::now();
        while !nothing(&self.world) {
            assert!(started.elapsed() < limit, "remaining claims, nodes or instances\n{}", self.summary());
            self.pass(LOOK_EVERY).await;
        }
    }

    /// Lets time pass.
    pub async fn pass(&self, time: Duration) {
        tokio::time::sleep(time).await;
    }

    /// All claims.
    #[must_use]
    pub fn claims(&self) -> Vec<Object> {
        self.world.all(ResourceId::NODE_CLAIMS)
    }

    /// Names of nodes on which pods run.
    #[must_use]
    pub fn nodes_in_use(&self) -> Vec<String> {
        let pods = self.world.all(ResourceId::PODS);
        let mut nodes: Vec<String> = pods
            .iter()
            .filter(|pod| is_running(pod))
            .map(|pod| object::text(pod, &["spec", "nodeName"]).to_owned())
            .collect();
        nodes.sort();
        nodes.dedup();
        nodes
    }

    /// Summary of the world for messages.
    #[must_use]
    pub fn summary(&self) -> String {
        summary(&self.world)
    }
}

/// Id of the instance of a node.
///
/// # Panics
/// If the node does not exist.
#[must_use]
pub fn instance_of(world: &World, node: &str) -> String {
    let node = world.get(ResourceId::NODES, node).unwrap();
    object::text(&node, &["spec", "providerID"]).rsplit('/').next().unwrap_or_default().to_owned()
}

/// Applies a PodDisruptionBudget `web` for the pods of the Deployment `web`. `field` is `minAvailable` or
/// `maxUnavailable`.
///
/// # Panics
/// If the server rejects it.
pub fn limit_disruptions(world: &World, field: &str, pods: usize) {
    let budget = json!({"apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": "web"},
        "spec": {field: pods, "selector": {"matchLabels": {"app": "web"}}}});
    world.apply_object(&budget).unwrap();
}

/// Number of running pods on a node.
#[must_use]
pub fn running_on(world: &World, node: &str) -> usize {
    world.count(ResourceId::PODS, |pod| is_running(pod) && object::text(pod, &["spec", "nodeName"]) == node)
}

/// Summary of a world for messages.
pub(crate) fn summary(world: &World) -> String {
    let mut lines = vec![format!("at {}", world.server().now())];
    for pod in world.all(ResourceId::PODS) {
        lines.push(format!(
            "pod {} {} on {:?}{}",
            object::name(&pod),
            object::text(&pod, &["status", "phase"]),
            object::text(&pod, &["spec", "nodeName"]),
            if object::is_deleting(&pod) { ", deleting" } else { "" }
        ));
    }
    for kind in [ResourceId::NODE_CLAIMS, ResourceId::NODES, ResourceId::NODE_POOLS, ResourceId::EC2_NODE_CLASSES] {
        for item in world.all(kind) {
            let conditions: Vec<String> = object::items(&item, &["status", "conditions"])
                .iter()
                .map(|condition| {
                    let text = |field| object::text(condition, &[field]);
                    let message = if text("status") == "True" { "" } else { text("message") };
                    format!("{}={} {message}", text("type"), text("status"))
                })
                .collect();
            let deleting = if object::is_deleting(&item) { ", deleting" } else { "" };
            lines.push(format!("{} {}{deleting}: {}", kind.get().kind, object::name(&item), conditions.join(", ")));
        }
    }
    for (id, machine) in world.living_instances() {
        lines.push(format!("instance {id} {} {}", machine.instance_type, machine.private_dns_name));
    }
    for event in world.all(ResourceId::EVENTS).iter().rev().take(EVENTS_SHOWN) {
        let about = object::text(event, &["involvedObject", "name"]);
        lines.push(format!(
            "event {about} {}: {}",
            object::text(event, &["reason"]),
            object::text(event, &["message"])
        ));
    }
    lines.extend(world.problems.all());
    lines.join("\n")
}

/// Maximum number of events in a summary, enough to see a cause.
const EVENTS_SHOWN: usize = 20;

fn is_over(pod: &Value) -> bool {
    matches!(object::text(pod, &["status", "phase"]), "Succeeded" | "Failed")
}

//! A world with an actuator but no watcher or scheduler: the test acts as the watcher and decides what to launch and
//! remove.

mod calls;
mod launches;

pub use calls::statuses_of;
pub use launches::launch;

use crate::test_cluster::{MINUTE, Setup, node_class, node_pool};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::{Outcome, OutcomeStatus};
use plimsoll_model::identity::PodUid;
use plimsoll_model::names::lease;
use plimsoll_model::plan::{Placement, PodRef, Termination};
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_runtime::client_pool::ClientPool;
use plimsoll_sim::apiserver::faults::{Distortion, WatchMatcher};
use plimsoll_sim::apiserver::store::Object;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::machines::NAMESPACE;
use plimsoll_sim::plimsoll::{Options, Plimsoll, Role};
use plimsoll_sim::world::World;
use serde_json::{Value, json};
use std::time::Duration;

/// Name of the test as a watcher, and transitions of its Lease.
const WATCHER: (&str, u64) = ("fake-watcher", 1);

/// Drives the actuator.
#[derive(Debug)]
pub struct FakeWatcher {
    /// The cluster and the cloud.
    pub world: World,
    /// One actuator, and no other service.
    pub plimsoll: Plimsoll,
    pool: ClientPool,
}

/// A node to launch.
#[derive(Debug, Clone)]
pub struct Wanted<'a> {
    /// Name of the action.
    pub action: &'a str,
    /// The instance type.
    pub instance_type: &'a str,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Pods that the node is for: at least one, by UID. They need not exist.
    pub pods: Vec<PodRef>,
}

impl FakeWatcher {
    /// Starts one actuator with a pool `default`.
    ///
    /// # Panics
    /// If the world does not start.
    #[must_use]
    pub fn start(setup: Setup) -> Self {
        let options = Options { watchers: 0, schedulers: 0, actuators: 1, ..setup.options };
        let world = World::start(setup.world).unwrap();
        for object in [watcher_lease(WATCHER), node_class(), node_pool("default", &setup.pool)] {
            world.apply_object(&object).unwrap();
        }
        let plimsoll = Plimsoll::start(&world, options);
        let pool = plimsoll.network().pool(WATCHER.0, &["actuator-0".to_owned()]);
        Self { world, plimsoll, pool }
    }

    /// As [`FakeWatcher::start`], and waits until the pool is Ready.
    ///
    /// # Panics
    /// If the world does not start.
    pub async fn begin(setup: Setup) -> Self {
        let watcher = Self::start(setup);
        let ready = |world: &World| {
            world.get(ResourceId::NODE_POOLS, "default").is_some_and(|pool| object::condition_is_true(&pool, "Ready"))
        };
        watcher.until("the pool is Ready", 2 * MINUTE, ready).await;
        watcher
    }

    /// Gives the watcher's Lease to another watcher.
    ///
    /// # Panics
    /// If the API server rejects it.
    pub fn give_lease_to(&self, driver: (&str, u64)) {
        self.world.apply_object(&watcher_lease(driver)).unwrap();
    }

    /// Lets time pass until a condition holds, at most `limit`; returns the elapsed time.
    ///
    /// # Panics
    /// If the condition does not hold in time.
    pub async fn until(&self, what: &str, limit: Duration, test: impl Fn(&World) -> bool) -> Duration {
        match self.world.until(what, limit, test).await {
            Ok(took) => took,
            Err(missing) => panic!("{missing}\n{}", crate::test_cluster::summary(&self.world)),
        }
    }

    /// Name of the process of the actuator.
    ///
    /// # Panics
    /// If there is no actuator.
    #[must_use]
    pub fn actuator(&self) -> String {
        self.plimsoll.processes(Role::Actuator).pop().unwrap()
    }

    /// Kills the actuator as `kill -9` does.
    ///
    /// # Panics
    /// If there is no actuator.
    pub fn kill_actuator(&mut self) {
        let process = self.actuator();
        self.plimsoll.kill(&process);
    }

    /// Starts another actuator after the first was killed.
    ///
    /// # Panics
    /// If the first actuator runs.
    pub fn start_actuator(&mut self) {
        self.plimsoll.start_another(Role::Actuator).unwrap();
    }

    /// Kills the actuator as `kill -9` does, and starts a replacement.
    ///
    /// # Panics
    /// If there is no actuator.
    pub fn replace_actuator(&mut self) {
        self.kill_actuator();
        self.start_actuator();
    }

    /// Launches a node and waits until it is in service. Returns the names of claim and Node.
    ///
    /// # Panics
    /// If the node is not in service in time.
    pub async fn node(&self, wanted: &Wanted<'_>) -> (String, String) {
        let plan = self.plan(std::slice::from_ref(wanted), Vec::new()).await;
        let outcomes = self.send(plan).await;
        assert_eq!(outcomes[0].status, OutcomeStatus::Accepted, "{outcomes:?}");
        let claim = outcomes[0].node_claim.clone().unwrap();
        let node = self.in_service(&claim).await;
        (claim, node)
    }

    /// Waits until the node of a claim is in service. Returns the name of the Node.
    ///
    /// # Panics
    /// If the node is not in service in time.
    pub async fn in_service(&self, claim: &str) -> String {
        let in_service = |world: &World| {
            world.get(ResourceId::NODE_CLAIMS, claim).is_some_and(|it| object::condition_is_true(&it, "Initialized"))
        };
        self.until("the node is in service", 3 * MINUTE, in_service).await;
        self.claim(claim).map(|it| object::text(&it, &["status", "nodeName"]).to_owned()).unwrap()
    }

    /// Creates a Deployment of one pod that requests this CPU, and waits until the pod runs.
    ///
    /// # Panics
    /// If the server rejects it, or the pod does not run in time.
    pub async fn deploy(&self, name: &str, cpu: &str) {
        let running = self.world.running_pods() + 1;
        self.world.deploy(name, 1, &json!({"cpu": cpu}), &json!({})).unwrap();
        self.until("the pod runs", MINUTE, |world| world.running_pods() == running).await;
    }

    /// Binds a pod to the node that the API server accepts and the services cannot read.
    ///
    /// # Panics
    /// If the pod is not accepted, or is readable.
    pub fn unreadable_pod(&self, node: &str) {
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": "odd"},
            "spec": {"nodeName": node,
                "containers": [{"name": "main", "image": "example.com/app:1",
                    "ports": [{"containerPort": 3_000_000_000_u32}]}]}});
        self.world.apply_object(&pod).unwrap();
        let stored = self.world.get(ResourceId::PODS, "odd").unwrap();
        assert!(serde_json::from_value::<plimsoll_api::Pod>((*stored).clone()).is_err(), "it is unreadable");
    }

    /// Sum of the series of a counter of the actuator that have these labels.
    ///
    /// # Panics
    /// If there is no actuator.
    #[must_use]
    pub fn counted(&self, name: &str, labels: &[(&str, &str)]) -> u64 {
        let text = self.plimsoll.metrics(&self.actuator()).unwrap().encode().unwrap();
        let labels: Vec<String> = labels.iter().map(|(key, value)| format!("{key}=\"{value}\"")).collect();
        let is_its = |line: &&str| line.strip_prefix(name).is_some_and(|rest| rest.starts_with(['{', ' ']));
        let has_labels = |line: &&str| labels.iter().all(|label| line.contains(label.as_str()));
        let series = text.lines().filter(is_its).filter(has_labels);
        series.filter_map(|line| line.rsplit(' ').next()?.parse::<u64>().ok()).sum()
    }

    /// Delays what the actuator's watch of a resource, given by its plural name, shows from now on.
    ///
    /// # Panics
    /// If there is no actuator.
    pub fn delay_watch(&self, resource: &'static str, time: Duration) {
        let watches = WatchMatcher { client: self.actuator(), resource: Some(resource) };
        self.world.server().faults().distort_watches(watches, Distortion::Stale(time));
    }

    /// Returns a claim by name.
    #[must_use]
    pub fn claim(&self, name: &str) -> Option<Object> {
        self.world.get(ResourceId::NODE_CLAIMS, name)
    }

    /// Whether a claim exists and is not being deleted.
    #[must_use]
    pub fn is_kept(&self, claim: &str) -> bool {
        self.claim(claim).is_some_and(|claim| !object::is_deleting(&claim))
    }

    /// Pods bound to a node that move when it is removed.
    #[must_use]
    pub fn pods_on(&self, node: &str) -> Vec<PodRef> {
        let on = |pod: &Object| object::text(pod, &["spec", "nodeName"]) == node && !object::is_deleting(pod);
        self.world.all(ResourceId::PODS).iter().filter(|pod| on(pod)).map(|pod| pod_ref(pod)).collect()
    }

    /// Removes a node whose pods move to `to`, if there are any.
    ///
    /// # Panics
    /// If the plan is not accepted.
    pub async fn remove(&self, action: &str, node: &str, reason: DisruptionReason, to: Option<&str>) -> Outcome {
        let pods = self.pods_on(node);
        let moved_to = to.map(|to| Placement { node: to.into(), pods: pods.clone() }).into_iter().collect();
        let plan = self.plan(&[], vec![Termination { reason, pods, moved_to, ..of_node(action, node) }]).await;
        self.send(plan).await.remove(0)
    }
}

/// An On-Demand node for a pod that has the name of the action and does not exist (yet).
#[must_use]
pub fn wanted(action: &str) -> Wanted<'_> {
    let pods = vec![future_pod(action)];
    Wanted { action, instance_type: "m6i.large", capacity_type: CapacityType::OnDemand, pods }
}

/// The removal of an underutilized node, with no pods.
#[must_use]
pub fn of_node(action: &str, node: &str) -> Termination {
    Termination {
        action_id: action.into(),
        node: node.into(),
        reason: DisruptionReason::Underutilized,
        ..Termination::default()
    }
}

/// The watcher's Lease with this holder and these transitions.
fn watcher_lease((identity, transitions): (&str, u64)) -> Value {
    json!({"apiVersion": "coordination.k8s.io/v1", "kind": "Lease",
        "metadata": {"name": lease::WATCHER, "namespace": NAMESPACE},
        "spec": {"holderIdentity": identity, "leaseTransitions": transitions}})
}

/// Reference to a pod with its name and UID.
#[must_use]
pub fn pod_ref(pod: &Value) -> PodRef {
    let name = format!("{}/{}", object::namespace(pod), object::name(pod));
    PodRef { name, uid: PodUid(object::uid(pod).to_owned()) }
}

/// Reference to a pod that does not exist (yet).
#[must_use]
pub fn future_pod(name: &str) -> PodRef {
    PodRef { name: format!("default/{name}"), uid: PodUid(name.to_owned()) }
}

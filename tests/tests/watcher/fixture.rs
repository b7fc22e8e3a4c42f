//! Test setup: an API server, replicas of the watcher, schedulers and actuators.

use crate::actuator::FakeActuator;
use crate::scheduler::FakeScheduler;
use plimsoll_model::names::lease;
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::lease::LeaseConfig;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_runtime::serve::Listener;
use plimsoll_runtime::shutdown::Shutdown;
use plimsoll_sim::apiserver::store::{DeleteOptions, Part, Store, Write};
use plimsoll_sim::apiserver::{ApiServer, Patch, ResourceId};
use plimsoll_sim::clock;
use plimsoll_sim::network::Network;
use plimsoll_watcher::service::{self, Parts, ServiceError, Settings};
use serde_json::{Value, json};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Namespace of the Lease and of the pods.
pub(crate) const NAMESPACE: &str = "default";

/// Time limit of every wait.
const LONGEST: Duration = Duration::from_secs(120);

/// A replica of the watcher.
pub(crate) struct Watcher {
    pub(crate) name: String,
    pub(crate) readiness: Readiness,
    pub(crate) metrics: Metrics,
    pub(crate) shutdown: Shutdown,
    pub(crate) task: JoinHandle<Result<(), ServiceError>>,
}

/// The test setup.
pub(crate) struct Fixture {
    pub(crate) server: ApiServer,
    pub(crate) network: Network,
    pub(crate) schedulers: Vec<FakeScheduler>,
    pub(crate) actuator: FakeActuator,
}

impl Fixture {
    /// Two schedulers, one actuator, a pool and its class, without a watcher.
    pub(crate) fn new() -> Self {
        let server = ApiServer::new(1, clock::usual());
        let network = Network::default();
        let (names, asked) = (["scheduler-0", "scheduler-1"], Arc::default());
        let schedulers = names.map(|name| FakeScheduler::start(&network, name, &asked)).into();
        let actuator = FakeActuator::start(&network, "actuator-0");
        let fixture = Self { server, network, schedulers, actuator };
        let ready = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
            "lastTransitionTime": "2026-01-05T00:00:00Z"}]});
        let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass", "metadata": {"name": "default"},
            "spec": {"amiFamily": "AL2023", "role": "node", "subnetSelectorTerms": [{"id": "subnet-1"}],
                "securityGroupSelectorTerms": [{"id": "sg-1"}]}});
        fixture.put(ResourceId::EC2_NODE_CLASSES, "default", class, &ready);
        let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
            "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}}});
        fixture.put(ResourceId::NODE_POOLS, "default", pool, &ready);
        fixture
    }

    /// Adds a watcher that leads and has all state.
    pub(crate) async fn with_watcher() -> (Self, Watcher) {
        let fixture = Self::new();
        let watcher = fixture.watcher("watcher-0", &["actuator-0"]);
        fixture.until("it is ready", || watcher.readiness.is_ready()).await;
        fixture.until("it leads", || watcher.metrics_say("plimsoll_watcher_leading 1\n")).await;
        (fixture, watcher)
    }

    /// Starts a watcher.
    pub(crate) fn watcher(&self, name: &str, actuators: &[&str]) -> Watcher {
        self.watcher_with(name, actuators, Settings::default())
    }

    pub(crate) fn watcher_with(&self, name: &str, actuators: &[&str], settings: Settings) -> Watcher {
        self.watcher_with_lease(LeaseConfig::new(NAMESPACE, lease::WATCHER, name), actuators, settings)
    }

    /// Starts a watcher with the name of the holder in `lease`.
    pub(crate) fn watcher_with_lease(&self, lease: LeaseConfig, actuators: &[&str], settings: Settings) -> Watcher {
        let name = lease.holder.clone();
        let name = name.as_str();
        let (readiness, metrics, shutdown) = (Readiness::default(), Metrics::new("watcher"), Shutdown::default());
        let names = |list: &[&str]| list.iter().map(|name| (*name).to_owned()).collect::<Vec<_>>();
        let parts = Parts {
            client: self.server.client(name),
            clock: self.server.clock(),
            settings,
            scheduler: self.network.pool(name, &names(&["scheduler-0", "scheduler-1"])),
            actuator: self.network.pool(name, &names(actuators)),
            lease,
            listener: Listener::Memory(self.network.listen(name, name)),
            metrics: metrics.clone(),
            readiness: readiness.clone(),
        };
        let task = tokio::spawn(service::run(parts, shutdown.clone()));
        Watcher { name: name.to_owned(), readiness, metrics, shutdown, task }
    }

    fn write<T>(&self, act: impl FnOnce(&mut Store, &Write<'_>) -> T) -> T {
        let write = Write::new(self.server.now(), "test");
        self.server.write(|store| act(store, &write))
    }

    /// Creates an object and sets its status.
    pub(crate) fn put(&self, kind: ResourceId, name: &str, object: Value, status: &Value) {
        let namespace = if kind.get().namespaced { NAMESPACE } else { "" };
        self.write(|store, write| store.create(kind, namespace, object, write)).unwrap();
        let patch = Patch::Merge(json!({ "status": status }));
        self.write(|store, write| store.patch(kind, namespace, name, Part::Status, &patch, write)).unwrap();
    }

    /// Changes an object.
    pub(crate) fn patch(&self, kind: ResourceId, name: &str, patch: Value) {
        let namespace = if kind.get().namespaced { NAMESPACE } else { "" };
        let patch = Patch::Merge(patch);
        self.write(|store, write| store.patch(kind, namespace, name, Part::Main, &patch, write)).unwrap();
    }

    /// A pod that kube-scheduler could not place, of the given ReplicaSet if any.
    pub(crate) fn pending_pod(&self, name: &str, owner: Option<&str>) {
        self.pod(name, owner);
        self.mark_unschedulable(name);
    }

    /// A pod without a scheduling condition.
    pub(crate) fn pod(&self, name: &str, owner: Option<&str>) {
        let owners: Vec<_> = owner.map(|owner| self.reference(owner)).into_iter().collect();
        let pod = json!({"apiVersion": "v1", "kind": "Pod", "metadata": {"name": name, "ownerReferences": owners},
            "spec": {"containers": [{"name": "app", "image": "app", "resources": {"requests": {"cpu": "1"}}}]}});
        self.write(|store, write| store.create(ResourceId::PODS, NAMESPACE, pod, write)).unwrap();
    }

    /// Sets the condition that kube-scheduler writes for an unschedulable pod.
    pub(crate) fn mark_unschedulable(&self, name: &str) {
        let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
        let patch = Patch::Merge(json!({"status": {"conditions": [condition]}}));
        self.write(|store, write| store.patch(ResourceId::PODS, NAMESPACE, name, Part::Status, &patch, write)).unwrap();
    }

    /// A ReplicaSet with this number of replicas, whose pods only the test creates.
    pub(crate) fn replica_set(&self, name: &str, replicas: u32) {
        let labels = json!({"app": name});
        let set = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "metadata": {"name": name}, "spec": {
            "replicas": replicas, "selector": {"matchLabels": labels},
            "template": {"metadata": {"labels": labels}, "spec": {"containers": [{"name": "app", "image": "app"}]}}}});
        self.write(|store, write| store.create(ResourceId::REPLICA_SETS, NAMESPACE, set, write)).unwrap();
    }

    fn reference(&self, name: &str) -> Value {
        use plimsoll_sim::apiserver::store::Key;
        let set = self.server.read(|store| store.find(ResourceId::REPLICA_SETS, &Key::new(NAMESPACE, name))).unwrap();
        json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": name, "uid": set["metadata"]["uid"], "controller": true})
    }

    /// Deletes a pod immediately.
    pub(crate) fn delete_pod(&self, name: &str) {
        let options = DeleteOptions { grace_seconds: Some(0), ..DeleteOptions::default() };
        self.write(|store, write| store.delete(ResourceId::PODS, NAMESPACE, name, &options, write)).unwrap();
    }

    /// Lets time pass until a condition holds; returns the elapsed time.
    pub(crate) async fn until(&self, what: &str, test: impl Fn() -> bool) -> Duration {
        let began = Instant::now();
        while !test() {
            assert!(began.elapsed() < LONGEST, "never: {what}");
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        began.elapsed()
    }

    /// Creates a pending pod and waits until the actuator has this number of executions. Returns the elapsed time.
    pub(crate) async fn launch_for(&self, pod: &str, executions: usize) -> Duration {
        self.pending_pod(pod, None);
        self.until("a launch was requested", || self.actuator.executions() == executions).await
    }

    /// Lets time pass.
    pub(crate) async fn pass(&self, seconds: u64) {
        tokio::time::sleep(Duration::from_secs(seconds)).await;
    }

    /// Number of plans of all schedulers.
    pub(crate) fn plans(&self) -> usize {
        self.schedulers.iter().map(FakeScheduler::plans).sum()
    }
}

impl Watcher {
    /// Whether the metrics of the watcher contain a line.
    pub(crate) fn metrics_say(&self, line: &str) -> bool {
        self.metrics.encode().unwrap().contains(line)
    }

    /// Kills the watcher as `kill -9` does.
    pub(crate) fn kill(&self, network: &Network) {
        self.task.abort();
        network.kill(&self.name);
    }
}

//! A world with an actuator but no watcher or scheduler: the test acts as the watcher and decides what to launch and
//! remove.

use crate::test_cluster::{MINUTE, Setup, node_class, node_pool};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::{ObjectMeta, PostParams};
use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::execution::{Driver, Execution, LedgerUpdate, Outcome, OutcomeStatus};
use plimsoll_model::identity::PodUid;
use plimsoll_model::names::{label, lease};
use plimsoll_model::plan::{Launch, OfferingChoice, Placement, Plan, PodRef, Termination};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{DisruptionReason, LedgerPosition};
use plimsoll_model::taints::{Taint, TaintEffect};
use plimsoll_proto::actuator::v1::actuator_service_client::ActuatorServiceClient;
use plimsoll_proto::actuator::v1::{ExecuteRequest, ExecuteResponse, WatchCatalogRequest, WatchLedgerRequest};
use plimsoll_runtime::client_pool::ClientPool;
use plimsoll_runtime::serve::MAX_DECODING_BYTES;
use plimsoll_sim::apiserver::store::Object;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::machines::NAMESPACE;
use plimsoll_sim::plimsoll::{Options, Plimsoll};
use plimsoll_sim::world::World;
use serde_json::{Value, json};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

/// Name of the test as a watcher, and transitions of its Lease.
const WATCHER: (&str, u64) = ("fake-watcher", 1);
/// A new leader waits for the lease and the last call of its predecessor.
const WAIT_LIMIT: Duration = Duration::from_secs(180);

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
    /// Starts one actuator with a ready pool `default`.
    ///
    /// # Panics
    /// If the world does not start.
    pub async fn begin(setup: Setup) -> Self {
        let options = Options { watchers: 0, schedulers: 0, actuators: 1, ..setup.options };
        let world = World::start(setup.world).unwrap();
        let leases: Api<Lease> = Api::namespaced(world.server().client("fake-watcher"), NAMESPACE);
        let spec = LeaseSpec {
            holder_identity: Some(WATCHER.0.to_owned()),
            lease_transitions: i32::try_from(WATCHER.1).ok(),
            ..LeaseSpec::default()
        };
        let metadata = ObjectMeta { name: Some(lease::WATCHER.to_owned()), ..ObjectMeta::default() };
        leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await.unwrap();
        let plimsoll = Plimsoll::start(&world, options);
        let pool = plimsoll.network().pool("fake-watcher", &["actuator-0".to_owned()]);
        let watcher = Self { world, plimsoll, pool };
        watcher.world.apply_object(&node_class()).unwrap();
        watcher.world.apply_object(&node_pool("default", &setup.pool)).unwrap();
        let ready = |world: &World| {
            world.get(ResourceId::NODE_POOLS, "default").is_some_and(|pool| object::condition_is_true(&pool, "Ready"))
        };
        watcher.until("the pool is Ready", 2 * MINUTE, ready).await;
        watcher
    }

    async fn client(&self) -> ActuatorServiceClient<Channel> {
        let (_, channel) = self.pool.channel().await.unwrap();
        ActuatorServiceClient::new(channel).max_decoding_message_size(MAX_DECODING_BYTES)
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

    /// Kills the actuator as `kill -9` does, and starts a replacement.
    ///
    /// # Panics
    /// If there is no actuator.
    pub fn replace_actuator(&mut self) {
        let process = self.plimsoll.processes(plimsoll_sim::plimsoll::Role::Actuator).pop().unwrap();
        self.plimsoll.replace(&process).unwrap();
    }

    async fn catalog(&self) -> Result<Catalog, Status> {
        let mut updates = self.client().await.watch_catalog(WatchCatalogRequest::default()).await?.into_inner();
        while let Some(response) = updates.message().await? {
            if let Some(catalog) = response.update.and_then(|update| update.catalog) {
                return Ok(catalog.try_into().unwrap());
            }
        }
        Err(Status::unavailable("ended"))
    }

    async fn position(&self) -> Result<LedgerPosition, Status> {
        self.ledger().await.map(|update| update.position)
    }

    /// The last message of the full ledger, with unavailable offerings and capacity reservations.
    ///
    /// # Errors
    /// No actuator leads.
    ///
    /// # Panics
    /// If the message cannot be read.
    pub async fn ledger(&self) -> Result<LedgerUpdate, Status> {
        let mut updates = self.client().await.watch_ledger(WatchLedgerRequest {}).await?.into_inner();
        loop {
            let update = updates.message().await?.ok_or_else(|| Status::unavailable("ended"))?;
            let update = LedgerUpdate::try_from(update).unwrap();
            if update.complete {
                return Ok(update);
            }
        }
    }

    /// A plan at the current ledger position, after there is a leader.
    ///
    /// # Panics
    /// If no actuator leads in time.
    pub async fn plan(&self, launches: &[Wanted<'_>], terminations: Vec<Termination>) -> Plan {
        let start = Instant::now();
        loop {
            match (self.catalog().await, self.position().await) {
                (Ok(catalog), Ok(ledger)) => {
                    let launches: Vec<Launch> = launches.iter().map(|wanted| self.launch(&catalog, wanted)).collect();
                    let hourly = launches.iter().map(Launch::price).sum();
                    let sequence = u64::try_from(start.elapsed().as_millis()).unwrap_or(0);
                    return Plan {
                        snapshot_sequence: sequence,
                        ledger,
                        launches,
                        terminations,
                        hourly,
                        ..Plan::default()
                    };
                }
                (Err(status), _) | (_, Err(status)) => {
                    assert!(start.elapsed() < WAIT_LIMIT, "no leader: {status}");
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
            }
        }
    }

    /// Sends a plan until it is accepted. Returns the outcomes of its actions as they come.
    async fn execute(&self, plan: Plan) -> Streaming<ExecuteResponse> {
        let driver = Driver { identity: WATCHER.0.to_owned(), transitions: WATCHER.1 };
        let request =
            Execution { driver, plan, cycle_id: "test".to_owned(), virtual_pods: BTreeSet::new(), buffers: Vec::new() };
        let start = Instant::now();
        loop {
            match self.client().await.execute(ExecuteRequest::from(&request)).await {
                Ok(answers) => return answers.into_inner(),
                // Cancelled: the connection broke because the actuator was replaced.
                Err(status)
                    if matches!(status.code(), Code::Unavailable | Code::Cancelled) && start.elapsed() < WAIT_LIMIT =>
                {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Err(status) => panic!("{status}"),
            }
        }
    }

    /// Sends a plan until it is accepted, and returns the first outcome of each action.
    ///
    /// # Panics
    /// If the plan is not accepted in time.
    pub async fn send(&self, plan: Plan) -> Vec<Outcome> {
        let count = plan.launches.len() + plan.terminations.len();
        let mut answers = self.execute(plan).await;
        let mut first: BTreeMap<String, Outcome> = BTreeMap::new();
        while first.len() < count {
            let outcome = next(&mut answers).await;
            first.entry(outcome.action_id.0.clone()).or_insert(outcome);
        }
        first.into_values().collect()
    }

    /// Sends a plan of one action until it is accepted, and returns the final outcome of the action.
    ///
    /// # Panics
    /// If the plan is not accepted in time, or the action does not end.
    pub async fn final_outcome(&self, plan: Plan) -> Outcome {
        let mut answers = self.execute(plan).await;
        loop {
            let outcome = next(&mut answers).await;
            if outcome.status.is_final() {
                return outcome;
            }
        }
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
        let name = claim.clone();
        let in_service = move |world: &World| {
            world.get(ResourceId::NODE_CLAIMS, &name).is_some_and(|it| object::condition_is_true(&it, "Initialized"))
        };
        self.until("the node is in service", 3 * MINUTE, in_service).await;
        let node = self.claim(&claim).map(|it| object::text(&it, &["status", "nodeName"]).to_owned()).unwrap();
        (claim, node)
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

    /// Returns a claim by name.
    #[must_use]
    pub fn claim(&self, name: &str) -> Option<Object> {
        self.world.get(ResourceId::NODE_CLAIMS, name)
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
        let termination = Termination {
            action_id: action.into(),
            node: node.into(),
            reason,
            pods,
            replaced_by: Vec::new(),
            moved_to,
            saving: plimsoll_model::money::MicroUsdPerHour(0),
        };
        let plan = self.plan(&[], vec![termination]).await;
        self.send(plan).await.remove(0)
    }

    /// A launch of one instance type with the requirements of the pool.
    fn launch(&self, catalog: &Catalog, wanted: &Wanted<'_>) -> Launch {
        let pool = self.world.get(ResourceId::NODE_POOLS, "default").unwrap();
        let taint = |taint: &Value| Taint {
            key: object::text(taint, &["key"]).to_owned(),
            value: object::text(taint, &["value"]).to_owned(),
            effect: TaintEffect::parse(object::text(taint, &["effect"])).unwrap(),
        };
        let labels = pool.pointer("/spec/template/metadata/labels").cloned().unwrap_or_default();
        let kind = catalog.get(wanted.instance_type).unwrap();
        let on_offer = kind.offerings.iter().filter(|it| it.capacity_type == wanted.capacity_type && it.available);
        let mut offerings: Vec<OfferingChoice> = on_offer
            .map(|it| OfferingChoice {
                instance_type: wanted.instance_type.to_owned(),
                zone: it.zone.clone(),
                capacity_type: it.capacity_type,
                price: it.price,
                reservation: it.reservation.as_ref().map(|reservation| reservation.id.clone()),
            })
            .collect();
        offerings.sort_by(|a, b| (a.price, &a.zone).cmp(&(b.price, &b.zone)));
        let requirement = NodeSelectorRequirement::new(label::INSTANCE_TYPE, Operator::In, vec![wanted.instance_type]);
        Launch {
            action_id: wanted.action.into(),
            node_pool: "default".into(),
            node_class: "default".to_owned(),
            offerings: Arc::new(offerings),
            requirements: Arc::new(vec![requirement]),
            requests: Resources::from([("cpu", 1000), ("memory", 1 << 30), ("pods", 1)]),
            taints: object::items(&pool, &["spec", "template", "spec", "taints"]).iter().map(taint).collect(),
            labels: serde_json::from_value(labels).unwrap_or_default(),
            pods: wanted.pods.clone(),
            prioritized: false,
            why: "a test".to_owned(),
        }
    }
}

async fn next(answers: &mut Streaming<ExecuteResponse>) -> Outcome {
    Outcome::try_from(answers.message().await.unwrap().unwrap()).unwrap()
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

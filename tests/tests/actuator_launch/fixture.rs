//! Test setup: a world with one actuator. The test acts as the watcher.

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};
use plimsoll_actuator::args::lease_config;
use plimsoll_actuator::leadership::holder;
use plimsoll_actuator::ports::Cloud;
use plimsoll_actuator::service::{Parts, run};
use plimsoll_actuator::settings::{ObjectName, Settings};
use plimsoll_api::{NodeClaim, condition};
use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::execution::{Driver, Execution, LedgerUpdate, Outcome, OutcomeStatus};
use plimsoll_model::names::lease;
use plimsoll_model::plan::{Launch, OfferingChoice, Plan, PodRef};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_proto::actuator::v1::actuator_service_client::ActuatorServiceClient;
use plimsoll_proto::actuator::v1::{ExecuteRequest, ExecuteResponse, WatchCatalogRequest, WatchLedgerRequest};
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_runtime::serve::{Listener, MAX_DECODING_BYTES};
use plimsoll_runtime::shutdown::Shutdown;
use plimsoll_sim::apiserver::error::ApiError;
use plimsoll_sim::apiserver::faults::Effect;
use plimsoll_sim::cloud::{Action, Cut};
use plimsoll_sim::machines::NAMESPACE;
use plimsoll_sim::network::Network;
use plimsoll_sim::world::{World, WorldConfig};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status, Streaming};

const LIMIT: Duration = Duration::from_secs(300);

pub(crate) struct Fixture {
    pub(crate) world: World,
    network: Network,
}

pub(crate) struct Process {
    name: String,
    pub(crate) metrics: Metrics,
    task: JoinHandle<()>,
}

fn types() -> Vec<String> {
    ["m6i.large", "m6i.xlarge", "c6i.large", "m6i.32xlarge"].map(str::to_owned).to_vec()
}

impl Fixture {
    pub(crate) async fn begin() -> Self {
        let world = World::start(WorldConfig { types: Some(types()), ..WorldConfig::default() }).unwrap();
        let fixture = Self { world, network: Network::default() };
        fixture.drive("watcher-1", 1).await;
        fixture.world.apply_object(&plimsoll_tests::node_class()).unwrap();
        let pool = plimsoll_tests::node_pool("default", &serde_json::json!({"limits": {"cpu": "20"}}));
        fixture.world.apply_object(&pool).unwrap();
        fixture
    }

    /// Gives the watcher's Lease to another holder.
    pub(crate) async fn drive(&self, holder: &str, transitions: i32) {
        let leases: Api<Lease> = Api::namespaced(self.world.server().client("test"), NAMESPACE);
        let spec = LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_transitions: Some(transitions),
            ..LeaseSpec::default()
        };
        let metadata = ObjectMeta { name: Some(lease::WATCHER.to_owned()), ..ObjectMeta::default() };
        match leases.get_opt(lease::WATCHER).await.unwrap() {
            None => leases.create(&PostParams::default(), &Lease { metadata, spec: Some(spec) }).await.unwrap(),
            Some(old) => leases
                .replace(lease::WATCHER, &PostParams::default(), &Lease { spec: Some(spec), ..old })
                .await
                .unwrap(),
        };
    }

    pub(crate) fn start(&self, name: &str) -> Process {
        let ec2 = Arc::new(self.world.ec2.as_client(name));
        let cloud = Cloud {
            compute: ec2.clone(),
            parameters: ec2.clone(),
            profiles: ec2.clone(),
            prices: ec2.clone(),
            queue: Some(ec2),
            managed_resource: None,
        };
        let settings = Settings {
            cluster_name: "demo".to_owned(),
            cluster_endpoint: "https://api.cluster.invalid".to_owned(),
            cluster_ca_bundle: "Y2VydGlmaWNhdGUgYXV0aG9yaXR5".to_owned(),
            service_cidr: Some("10.100.0.0/16".to_owned()),
            cluster_dns: Some("10.100.0.10".to_owned()),
            region: self.world.config.region.clone(),
            watcher_lease: ObjectName::new(NAMESPACE, lease::WATCHER),
            ..Settings::default()
        };
        let metrics = Metrics::new("actuator");
        let parts = Parts {
            client: self.world.server().client(name),
            cloud,
            clock: self.world.server().clock(),
            settings,
            lease: lease_config(NAMESPACE, holder(name, "actuator", "1")),
            listener: Listener::Memory(self.network.listen("actuator", name)),
            metrics: metrics.clone(),
            readiness: Readiness::default(),
        };
        let task = tokio::spawn(async move { run(parts, Shutdown::default()).await.unwrap() });
        Process { name: name.to_owned(), metrics, task }
    }

    /// As `kill -9`: messages that were sent arrive, and nothing else happens.
    pub(crate) fn kill(&self, process: &Process) {
        self.network.kill(&process.name);
        self.world.server().faults().partition(&process.name, plimsoll_sim::apiserver::faults::Partition::Silent);
        self.world.ec2.faults(|faults| faults.cut(process.name.as_str(), Cut::Dead));
        process.task.abort();
    }

    pub(crate) async fn client(&self) -> ActuatorServiceClient<Channel> {
        let pool = self.network.pool("test", &["actuator".to_owned()]);
        let (_, channel) = pool.channel().await.unwrap();
        ActuatorServiceClient::new(channel).max_decoding_message_size(MAX_DECODING_BYTES)
    }

    /// The catalog of the node class, after the actuator leads and has computed it.
    pub(crate) async fn catalog(&self) -> Catalog {
        let start = tokio::time::Instant::now();
        loop {
            if let Ok(found) = tokio::time::timeout(Duration::from_secs(20), self.try_catalog()).await
                && let Ok(catalog) = found
            {
                return catalog;
            }
            assert!(start.elapsed() < LIMIT, "no catalog");
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }

    async fn try_catalog(&self) -> Result<Catalog, Status> {
        let mut updates = self.client().await.watch_catalog(WatchCatalogRequest::default()).await?.into_inner();
        while let Some(response) = updates.message().await? {
            let update = response.update.unwrap();
            // The first catalog may arrive before subnets and prices are known.
            let catalog: Option<Catalog> = update.catalog.map(|catalog| catalog.try_into().unwrap());
            let is_sold = |catalog: &Catalog| {
                types()
                    .iter()
                    .all(|name| catalog.get(name).is_some_and(|kind| kind.offerings.iter().any(|it| it.available)))
            };
            if let Some(catalog) = catalog.filter(is_sold) {
                return Ok(catalog);
            }
        }
        Err(Status::unavailable("ended"))
    }

    pub(crate) async fn ledger(&self) -> LedgerUpdate {
        let mut updates = self.client().await.watch_ledger(WatchLedgerRequest {}).await.unwrap().into_inner();
        let mut all = LedgerUpdate::default();
        loop {
            let update = LedgerUpdate::try_from(updates.message().await.unwrap().unwrap()).unwrap();
            all.upserted.extend(update.upserted);
            if update.complete {
                return LedgerUpdate { position: update.position, ..all };
            }
        }
    }

    /// Sends a plan until it is accepted, and receives all outcomes.
    pub(crate) async fn execute(&self, driver: (&str, u64), plan: Plan) -> Result<Vec<Outcome>, Status> {
        let mut answers = self.send(driver, plan).await?;
        let mut outcomes = Vec::new();
        while let Some(response) = answers.message().await? {
            outcomes.push(Outcome::try_from(response).unwrap());
        }
        Ok(outcomes)
    }

    /// Sends a plan until it is accepted: a new leader waits for its predecessor's last call.
    pub(crate) async fn send(&self, driver: (&str, u64), plan: Plan) -> Result<Streaming<ExecuteResponse>, Status> {
        let driver = Driver { identity: driver.0.to_owned(), transitions: driver.1 };
        let request =
            Execution { driver, plan, cycle_id: "c-1".to_owned(), virtual_pods: BTreeSet::new(), buffers: Vec::new() };
        let start = tokio::time::Instant::now();
        loop {
            match self.client().await.execute(ExecuteRequest::from(&request)).await {
                Ok(answers) => return Ok(answers.into_inner()),
                Err(status) if status.code() == Code::Unavailable && start.elapsed() < LIMIT => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Err(status) => return Err(status),
            }
        }
    }

    pub(crate) async fn claims(&self) -> Vec<NodeClaim> {
        let api: Api<NodeClaim> = Api::all(self.world.server().client("test"));
        api.list(&ListParams::default()).await.unwrap().items
    }

    pub(crate) fn bought(&self) -> usize {
        self.world.ec2.read(|cloud, _| cloud.ever_launched().len())
    }

    /// Waits until EC2 was asked for fleets this often.
    pub(crate) async fn until_fleet_calls(&self, count: usize) {
        let called = |_: &World| fleet_calls(self) >= count;
        self.world.until("fleets are requested", LIMIT, called).await.unwrap();
    }

    /// Waits until every claim has its own instance, and checks that no other instance was ever launched.
    pub(crate) async fn settled(&self, count: usize) -> Vec<NodeClaim> {
        let start = tokio::time::Instant::now();
        loop {
            let claims = self.claims().await;
            let launched = |claim: &NodeClaim| {
                let status = claim.status.clone().unwrap_or_default();
                condition::is_true(&status.conditions, condition::node_claim::LAUNCHED) && status.provider_id.is_some()
            };
            if claims.len() == count && claims.iter().all(launched) {
                let ids: BTreeSet<_> = claims.iter().map(|claim| claim.status.clone().unwrap().provider_id).collect();
                assert_eq!((ids.len(), self.bought()), (count, count), "one instance each, and no others");
                return claims;
            }
            let seen: Vec<_> = claims.iter().map(|claim| (&claim.metadata.name, &claim.status)).collect();
            assert!(start.elapsed() < LIMIT, "not settled: {seen:#?}, launched {}", self.bought());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// A launch for one pod on any of the named types, On-Demand in every zone.
pub(crate) fn launch(catalog: &Catalog, action: &str, names: &[&str], pod: &str) -> Launch {
    let mut offerings: Vec<OfferingChoice> = Vec::new();
    for name in names {
        let kind = catalog.get(name).unwrap();
        let on_demand = kind.offerings.iter().filter(|it| it.capacity_type == CapacityType::OnDemand && it.available);
        offerings.extend(on_demand.map(|it| OfferingChoice {
            instance_type: (*name).to_owned(),
            zone: it.zone.clone(),
            capacity_type: it.capacity_type,
            price: it.price,
            reservation: None,
        }));
    }
    offerings.sort_by(|a, b| (a.price, &a.instance_type, &a.zone).cmp(&(b.price, &b.instance_type, &b.zone)));
    Launch {
        action_id: action.into(),
        node_pool: "default".into(),
        node_class: "default".to_owned(),
        offerings: Arc::new(offerings),
        requirements: Arc::new(vec![NodeSelectorRequirement::new(
            "node.kubernetes.io/instance-type",
            Operator::In,
            names.to_vec(),
        )]),
        requests: Resources::from([("cpu", 1000), ("memory", 1 << 30), ("pods", 1)]),
        taints: Vec::new(),
        labels: BTreeMap::new(),
        pods: vec![PodRef { name: format!("default/{pod}"), uid: pod.into() }],
        prioritized: false,
        why: "a test".to_owned(),
    }
}

pub(crate) fn plan(position: LedgerPosition, launches: Vec<Launch>) -> Plan {
    let hourly = launches.iter().map(Launch::price).sum();
    Plan { snapshot_sequence: 1, ledger: position, launches, hourly, ..Plan::default() }
}

pub(crate) fn statuses(outcomes: &[Outcome]) -> Vec<OutcomeStatus> {
    outcomes.iter().map(|outcome| outcome.status).collect()
}

/// A definite rejection by the API server: nothing was written.
pub(crate) fn forbidden() -> Effect {
    Effect::Refuse(ApiError::new(403, "Forbidden", "a policy denies it"))
}

pub(crate) const WATCHER: (&str, u64) = ("watcher-1", 1);

pub(crate) fn wanted(catalog: &Catalog, count: usize) -> Vec<Launch> {
    (0..count).map(|i| launch(catalog, &format!("a-{i}"), &["m6i.large", "m6i.xlarge"], &format!("p-{i}"))).collect()
}

pub(crate) fn fleet_calls(fixture: &Fixture) -> usize {
    fixture.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::CreateFleet).count())
}

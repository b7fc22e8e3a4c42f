//! The launch path of the actuator alone: a plan over gRPC in, an instance and a launched claim out, exactly one each,
//! whatever happens in between. The watcher is the test itself; the scheduler's part is written by hand.
#![expect(clippy::unwrap_used, reason = "helpers of tests: what cannot be had ends the test")]

use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::Api;
use kube::api::{ListParams, ObjectMeta, PostParams};
use plimsoll_actuator::args::lease_config;
use plimsoll_actuator::context::Cloud;
use plimsoll_actuator::leadership::holder;
use plimsoll_actuator::service::{Parts, run};
use plimsoll_actuator::settings::{ObjectName, Settings};
use plimsoll_api::{NodeClaim, condition};
use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::execution::{Driver, Execution, LedgerUpdate, Outcome, OutcomeReason, OutcomeStatus};
use plimsoll_model::names::{annotation, lease, tag};
use plimsoll_model::plan::{Launch, OfferingChoice, Plan, PodRef};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_proto::actuator::v1::actuator_service_client::ActuatorServiceClient;
use plimsoll_proto::actuator::v1::{WatchCatalogRequest, WatchLedgerRequest};
use plimsoll_runtime::admin::Readiness;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::metrics::Metrics;
use plimsoll_runtime::serve::{Listener, MAX_DECODING_BYTES};
use plimsoll_runtime::shutdown::Shutdown;
use plimsoll_sim::apiserver::faults::{Effect as ClusterEffect, Gate, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::cloud::{Action, Capacity, Cut, Effect, Pool};
use plimsoll_sim::machines::NAMESPACE;
use plimsoll_sim::network::Network;
use plimsoll_sim::world::{Scenery, World};
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::task::JoinHandle;
use tonic::transport::Channel;
use tonic::{Code, Status};

const LIMIT: Duration = Duration::from_secs(300);

struct Stage {
    world: World,
    network: Network,
    clock: Clock,
}

struct Process {
    name: String,
    task: JoinHandle<()>,
}

fn types() -> Vec<String> {
    ["m6i.large", "m6i.xlarge", "c6i.large"].map(str::to_owned).to_vec()
}

impl Stage {
    async fn begin() -> Self {
        let world = World::start(Scenery { types: Some(types()), ..Scenery::default() }).unwrap();
        let clock = Clock::starting_at(world.server().now());
        let stage = Self { world, network: Network::default(), clock };
        stage.drive("watcher-1", 1).await;
        stage.world.apply_object(&plimsoll_tests::node_class()).unwrap();
        let pool = plimsoll_tests::node_pool("default", &serde_json::json!({"limits": {"cpu": "20"}}));
        stage.world.apply_object(&pool).unwrap();
        stage
    }

    /// The watcher's Lease changes hands.
    async fn drive(&self, holder: &str, transitions: i32) {
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

    fn start(&self, name: &str) -> Process {
        let ec2 = Arc::new(self.world.ec2.as_client(name));
        let cloud = Cloud {
            compute: ec2.clone(),
            parameters: ec2.clone(),
            profiles: ec2.clone(),
            prices: ec2.clone(),
            queue: Some(ec2),
        };
        let settings = Settings {
            cluster_name: "demo".to_owned(),
            cluster_endpoint: "https://api.cluster.invalid".to_owned(),
            cluster_ca_bundle: "Y2VydGlmaWNhdGUgYXV0aG9yaXR5".to_owned(),
            service_cidr: Some("10.100.0.0/16".to_owned()),
            cluster_dns: Some("10.100.0.10".to_owned()),
            region: self.world.scenery.region.clone(),
            watcher_lease: ObjectName::new(NAMESPACE, lease::WATCHER),
            ..Settings::default()
        };
        let parts = Parts {
            client: self.world.server().client(name),
            cloud,
            clock: self.clock,
            settings,
            lease: lease_config(NAMESPACE, holder(name, "actuator", "1")),
            listener: Listener::Memory(self.network.listen("actuator", name)),
            metrics: Metrics::new("actuator"),
            readiness: Readiness::new(),
        };
        let task = tokio::spawn(async move { run(parts, Shutdown::new()).await.unwrap() });
        Process { name: name.to_owned(), task }
    }

    /// As `kill -9`: what was sent arrives, nothing else does.
    fn kill(&self, process: &Process) {
        self.network.kill(&process.name);
        self.world.server().faults().partition(&process.name, plimsoll_sim::apiserver::faults::Partition::Silent);
        self.world.ec2.faults(|faults| faults.cut(process.name.as_str(), Cut::Dead));
        process.task.abort();
    }

    async fn client(&self) -> ActuatorServiceClient<Channel> {
        let pool = self.network.pool("test", &["actuator".to_owned()]);
        let (_, channel) = pool.channel().await.unwrap();
        ActuatorServiceClient::new(channel).max_decoding_message_size(MAX_DECODING_BYTES)
    }

    /// The catalog of the node class, once the actuator leads and has it.
    async fn catalog(&self) -> Catalog {
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
            // The first may come before subnets and prices are known.
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

    async fn ledger(&self) -> LedgerUpdate {
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

    /// Sends a plan until it is taken (a new leader waits for its predecessor's last call), and hears it to the end.
    async fn execute(&self, driver: (&str, u64), plan: Plan) -> Result<Vec<Outcome>, Status> {
        let driver = Driver { identity: driver.0.to_owned(), transitions: driver.1 };
        let request = Execution { driver, plan, cycle_id: "c-1".to_owned() };
        let start = tokio::time::Instant::now();
        let mut answers = loop {
            match self.client().await.execute(plimsoll_proto::actuator::v1::ExecuteRequest::from(&request)).await {
                Ok(answers) => break answers.into_inner(),
                Err(status) if status.code() == Code::Unavailable && start.elapsed() < LIMIT => {
                    tokio::time::sleep(Duration::from_millis(500)).await;
                }
                Err(status) => return Err(status),
            }
        };
        let mut outcomes = Vec::new();
        while let Some(response) = answers.message().await? {
            outcomes.push(Outcome::try_from(response).unwrap());
        }
        Ok(outcomes)
    }

    async fn claims(&self) -> Vec<NodeClaim> {
        let api: Api<NodeClaim> = Api::all(self.world.server().client("test"));
        api.list(&ListParams::default()).await.unwrap().items
    }

    fn bought(&self) -> usize {
        self.world.ec2.read(|cloud, _| cloud.ever_launched().len())
    }

    /// Waits until every claim has its own instance, and checks that no other instance was ever bought.
    async fn settled(&self, count: usize) -> Vec<NodeClaim> {
        let start = tokio::time::Instant::now();
        loop {
            let claims = self.claims().await;
            let launched = |claim: &NodeClaim| {
                let status = claim.status.clone().unwrap_or_default();
                condition::is_true(&status.conditions, condition::node_claim::LAUNCHED) && status.provider_id.is_some()
            };
            if claims.len() == count && claims.iter().all(launched) {
                let ids: std::collections::BTreeSet<_> =
                    claims.iter().map(|claim| claim.status.clone().unwrap().provider_id).collect();
                assert_eq!((ids.len(), self.bought()), (count, count), "one instance each, and none besides");
                return claims;
            }
            let seen: Vec<_> = claims.iter().map(|claim| (&claim.metadata.name, &claim.status)).collect();
            assert!(start.elapsed() < LIMIT, "not settled: {seen:#?}, bought {}", self.bought());
            tokio::time::sleep(Duration::from_millis(500)).await;
        }
    }
}

/// A launch for one pod on any of the named types, On-Demand in every zone.
fn launch(catalog: &Catalog, action: &str, names: &[&str], pod: &str) -> Launch {
    let mut offerings: Vec<OfferingChoice> = Vec::new();
    for name in names {
        let kind = catalog.get(name).unwrap();
        let on_demand = kind.offerings.iter().filter(|it| it.capacity_type == CapacityType::OnDemand && it.available);
        offerings.extend(on_demand.map(|it| OfferingChoice {
            instance_type: (*name).to_owned(),
            zone: it.zone.clone(),
            capacity_type: it.capacity_type,
            price: it.price,
        }));
    }
    offerings.sort_by(|a, b| (a.price, &a.instance_type, &a.zone).cmp(&(b.price, &b.instance_type, &b.zone)));
    Launch {
        action_id: action.into(),
        node_pool: "default".into(),
        node_class: "default".to_owned(),
        offerings,
        requirements: vec![NodeSelectorRequirement::new(
            "node.kubernetes.io/instance-type",
            Operator::In,
            names.to_vec(),
        )],
        requests: Resources::from([("cpu", 1000), ("memory", 1 << 30), ("pods", 1)]),
        taints: Vec::new(),
        labels: BTreeMap::new(),
        pods: vec![PodRef { name: format!("default/{pod}"), uid: pod.into() }],
        why: "a test".to_owned(),
    }
}

fn plan(position: LedgerPosition, launches: Vec<Launch>) -> Plan {
    let hourly = launches.iter().map(Launch::price).sum();
    Plan { snapshot_sequence: 1, ledger: position, launches, hourly, ..Plan::default() }
}

fn statuses(outcomes: &[Outcome]) -> Vec<OutcomeStatus> {
    outcomes.iter().map(|outcome| outcome.status).collect()
}

const WATCHER: (&str, u64) = ("watcher-1", 1);

#[tokio::test(start_paused = true)]
async fn one_launch_becomes_one_instance_and_one_claim() {
    use OutcomeStatus::{Accepted, Launched};
    let stage = Stage::begin().await;
    let _actuator = stage.start("actuator-1");
    let catalog = stage.catalog().await;
    let position = stage.ledger().await.position;
    let wanted = plan(position, vec![launch(&catalog, "a-1", &["m6i.large", "m6i.xlarge"], "p-1")]);
    let outcomes = stage.execute(WATCHER, wanted.clone()).await.unwrap();
    assert_eq!(statuses(&outcomes), [Accepted, Launched], "{outcomes:?}");

    let claims = stage.settled(1).await;
    let claim = &claims[0];
    assert_eq!(outcomes[1].node_claim, claim.metadata.name);
    let labels = claim.metadata.labels.clone().unwrap();
    assert_eq!(labels["node.kubernetes.io/instance-type"], "m6i.large", "the cheapest");
    assert_eq!(
        (labels["karpenter.sh/nodepool"].as_str(), labels["karpenter.sh/capacity-type"].as_str()),
        ("default", "on-demand")
    );
    assert_eq!(claim.metadata.finalizers.as_deref(), Some(["karpenter.sh/termination".to_owned()].as_slice()));
    assert_eq!(claim.metadata.annotations.as_ref().unwrap()[annotation::ACTION_ID], "a-1");
    assert_eq!(claim.status.as_ref().unwrap().capacity["cpu"].0, "2");
    let tags = stage.world.ec2.read(|cloud, _| cloud.machines().values().next().unwrap().tags.clone());
    assert_eq!((tags[tag::OWNER].as_str(), tags["kubernetes.io/cluster/demo"].as_str()), ("plimsoll", "owned"));
    assert_eq!(Some(&tags[tag::NODE_CLAIM]), claim.metadata.name.as_ref());

    // The same plan again asks for the outcomes again.
    let again = stage.execute(WATCHER, wanted).await.unwrap();
    assert_eq!(statuses(&again), [Accepted, Launched]);
    assert_eq!(stage.bought(), 1);
}

fn wanted(catalog: &Catalog, count: usize) -> Vec<Launch> {
    (0..count).map(|i| launch(catalog, &format!("a-{i}"), &["m6i.large", "m6i.xlarge"], &format!("p-{i}"))).collect()
}

fn fleet_calls(stage: &Stage) -> usize {
    stage.world.ec2.read(|cloud, _| cloud.log.iter().filter(|call| call.action == Action::CreateFleet).count())
}

#[tokio::test(start_paused = true)]
async fn launches_that_buy_the_same_are_bought_by_one_call() {
    let stage = Stage::begin().await;
    let _actuator = stage.start("actuator-1");
    let catalog = stage.catalog().await;
    let position = stage.ledger().await.position;
    let mut launches = wanted(&catalog, 3);
    launches.push(launch(&catalog, "b", &["c6i.large"], "q"));
    stage.execute(WATCHER, plan(position, launches)).await.unwrap();
    stage.settled(4).await;
    assert_eq!(fleet_calls(&stage), 2, "one for each request");
}

#[tokio::test(start_paused = true)]
async fn a_lost_answer_is_asked_for_again_under_the_same_token() {
    let stage = Stage::begin().await;
    let _actuator = stage.start("actuator-1");
    let catalog = stage.catalog().await;
    let position = stage.ledger().await.position;
    stage.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::LoseAnswer, 2));
    let outcomes = stage.execute(WATCHER, plan(position, wanted(&catalog, 2))).await.unwrap();
    assert!(outcomes.iter().filter(|it| it.status == OutcomeStatus::Launched).count() == 2, "{outcomes:?}");
    stage.settled(2).await;
    let tokens = stage.world.ec2.read(|cloud, _| {
        let calls = cloud.log.iter().filter(|call| call.action == Action::CreateFleet);
        calls.map(|call| call.about.clone()).collect::<Vec<_>>()
    });
    assert_eq!(tokens.len(), 3);
    assert!(tokens.windows(2).all(|pair| pair[0] == pair[1]), "{tokens:?}");
}

/// Kills the actuator while a call of it is held, lets the call go, and starts another.
async fn dies_while_held(launches: usize, hold: impl FnOnce(&Stage) -> Gate) {
    let stage = Stage::begin().await;
    let first = stage.start("actuator-1");
    let catalog = stage.catalog().await;
    let position = stage.ledger().await.position;
    let wanted = plan(position, wanted(&catalog, launches));
    let gate = hold(&stage);
    let asked = stage.execute(WATCHER, wanted.clone());
    tokio::select! {
        answer = asked => panic!("it ended: {answer:?}"),
        () = gate.reached(1) => {}
    }
    stage.kill(&first);
    stage.world.server().faults().clear_rules();
    gate.open();
    let _second = stage.start("actuator-2");
    stage.catalog().await;
    // The watcher asks again for what has no claim, on what the new leader knows, as long as something is missing.
    for sequence in 2..20 {
        let there = stage.claims().await;
        let has_claim = |launch: &Launch| {
            let action =
                |claim: &NodeClaim| claim.metadata.annotations.as_ref().map(|it| it[annotation::ACTION_ID].clone());
            there.iter().any(|claim| action(claim) == Some(launch.action_id.0.clone()))
        };
        let mut again = Plan { snapshot_sequence: sequence, ledger: stage.ledger().await.position, ..wanted.clone() };
        again.launches.retain(|launch| !has_claim(launch));
        if !again.launches.is_empty() {
            stage.execute(WATCHER, again).await.unwrap();
        }
        tokio::time::sleep(Duration::from_secs(5)).await;
    }
    stage.settled(launches).await;
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_dies_when_the_first_claim_is_written_leaves_one_instance_per_claim() {
    dies_while_held(3, |stage| {
        let gate = Gate::default();
        stage.world.server().faults().next(
            1,
            Matcher::of(Verb::Create, "nodeclaims"),
            ClusterEffect::HoldAfter(gate.clone()),
        );
        gate
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_dies_before_the_fleet_is_called_leaves_one_instance_per_claim() {
    dies_while_held(3, |stage| {
        let gate = Gate::default();
        stage.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::HoldBefore(gate.clone()), 1));
        gate
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_dies_before_the_answer_comes_leaves_one_instance_per_claim() {
    dies_while_held(3, |stage| {
        let gate = Gate::default();
        stage.world.ec2.faults(|faults| faults.inject(Action::CreateFleet, Effect::HoldAfter(gate.clone()), 1));
        gate
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn an_actuator_that_dies_while_it_writes_the_match_leaves_one_instance_per_claim() {
    dies_while_held(3, |stage| {
        let gate = Gate::default();
        stage.world.server().faults().next(
            1,
            Matcher { subresource: Some("status"), ..Matcher::of(Verb::Patch, "nodeclaims") },
            ClusterEffect::HoldBefore(gate.clone()),
        );
        gate
    })
    .await;
}

#[tokio::test(start_paused = true)]
async fn without_capacity_the_claim_goes_and_the_next_plan_takes_another_offering_within_a_second() {
    let stage = Stage::begin().await;
    let _actuator = stage.start("actuator-1");
    let catalog = stage.catalog().await;
    let position = stage.ledger().await.position;
    let first = launch(&catalog, "a", &["m6i.large"], "p");
    stage.world.ec2.with(|cloud, _| {
        for choice in &first.offerings {
            cloud.limit(Pool::new(&choice.instance_type, &choice.zone, choice.capacity_type), Capacity::Instances(0));
        }
    });
    let outcomes = stage.execute(WATCHER, plan(position, vec![first.clone()])).await.unwrap();
    let last = outcomes.last().unwrap();
    assert_eq!((last.status, last.reason), (OutcomeStatus::Failed, Some(OutcomeReason::NoCapacity)), "{outcomes:?}");
    assert!(stage.claims().await.is_empty(), "the claim is taken away at once");

    let failed_at = tokio::time::Instant::now();
    let mut next = launch(&catalog, "b", &["m6i.large", "c6i.large"], "p");
    next.offerings.sort_by_key(|choice| choice.price);
    loop {
        let position = stage.ledger().await.position;
        let outcomes = stage.execute(WATCHER, plan(position, vec![next.clone()])).await.unwrap();
        if outcomes.last().unwrap().status == OutcomeStatus::Launched {
            break;
        }
        assert!(failed_at.elapsed() < Duration::from_secs(1), "{outcomes:?}");
        next.action_id = format!("{}x", next.action_id).as_str().into();
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    let claims = stage.settled(1).await;
    assert_eq!(claims[0].metadata.labels.as_ref().unwrap()["node.kubernetes.io/instance-type"], "c6i.large");
    // The refused type was not asked for again.
    let overrides = stage.world.ec2.read(|cloud, _| cloud.machines().len());
    assert_eq!(overrides, 1);
}

#[tokio::test(start_paused = true)]
async fn limits_hold_exactly_and_the_rest_of_the_plan_goes_on() {
    let stage = Stage::begin().await;
    let _actuator = stage.start("actuator-1");
    let catalog = stage.catalog().await;
    let position = stage.ledger().await.position;
    // The most that each may become is 4 vCPU; the pool's limit is 20.
    let outcomes = stage.execute(WATCHER, plan(position, wanted(&catalog, 7))).await.unwrap();
    let rejected: Vec<_> =
        outcomes.iter().filter(|it| it.status == OutcomeStatus::Rejected).map(|it| it.reason).collect();
    assert_eq!(rejected, [Some(OutcomeReason::LimitReached); 2]);
    stage.settled(5).await;
}

#[tokio::test(start_paused = true)]
async fn a_plan_may_not_add_to_what_the_pool_allows() {
    let stage = Stage::begin().await;
    let _actuator = stage.start("actuator-1");
    let catalog = stage.catalog().await;
    let position = stage.ledger().await.position;
    let usual = launch(&catalog, "a", &["m6i.large"], "p");
    let mut label = usual.clone();
    label.labels.insert("team".to_owned(), "other".to_owned());
    let mut class = usual.clone();
    class.node_class = "other".to_owned();
    let mut spot = usual.clone();
    spot.offerings.iter_mut().for_each(|choice| choice.capacity_type = CapacityType::Spot);
    let mut open = usual.clone();
    open.requirements.push(NodeSelectorRequirement::new("example.com/new", Operator::In, ["x"]));
    let mut action = 0;
    let launches = [label, class, spot, open].map(|launch| {
        action += 1;
        let pod = PodRef { name: format!("default/{action}"), uid: format!("p-{action}").as_str().into() };
        Launch { action_id: format!("a-{action}").as_str().into(), pods: vec![pod], ..launch }
    });
    let outcomes = stage.execute(WATCHER, plan(position, launches.to_vec())).await.unwrap();
    let reasons: Vec<_> = outcomes.iter().map(|it| (it.status, it.reason)).collect();
    assert_eq!(reasons, [(OutcomeStatus::Rejected, Some(OutcomeReason::PoolChanged)); 4], "{outcomes:?}");
    assert_eq!(stage.bought(), 0);
}

#[tokio::test(start_paused = true)]
async fn only_the_watcher_that_leads_is_heard() {
    let stage = Stage::begin().await;
    let _actuator = stage.start("actuator-1");
    let catalog = stage.catalog().await;
    let position = stage.ledger().await.position;
    let refused = stage.execute(("watcher-0", 0), plan(position, wanted(&catalog, 1))).await.unwrap_err();
    assert_eq!(refused.code(), Code::FailedPrecondition, "{refused:?}");
    stage.drive("watcher-2", 2).await;
    let position = stage.ledger().await.position;
    stage.execute(("watcher-2", 2), plan(position, wanted(&catalog, 1))).await.unwrap();
    let late = stage.execute(WATCHER, plan(position, wanted(&catalog, 2))).await.unwrap_err();
    assert_eq!(late.code(), Code::FailedPrecondition, "{late:?}");
    stage.settled(1).await;
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_the_api_server_refuses_is_not_bought() {
    let stage = Stage::begin().await;
    let _actuator = stage.start("actuator-1");
    let catalog = stage.catalog().await;
    let position = stage.ledger().await.position;
    stage.world.server().faults().next(3, Matcher::of(Verb::Create, "nodeclaims"), ClusterEffect::internal_error());
    let outcomes = stage.execute(WATCHER, plan(position, wanted(&catalog, 1))).await.unwrap();
    let last = outcomes.last().unwrap();
    assert_eq!(
        (last.status, last.reason),
        (OutcomeStatus::Failed, Some(OutcomeReason::ClusterRefused)),
        "{outcomes:?}"
    );
    assert_eq!((stage.bought(), fleet_calls(&stage)), (0, 0));
}

#[tokio::test(start_paused = true)]
async fn a_claim_of_others_with_the_same_name_is_left_alone() {
    let stage = Stage::begin().await;
    let _actuator = stage.start("actuator-1");
    let catalog = stage.catalog().await;
    let position = stage.ledger().await.position;
    // The actuator does not see it yet.
    stage.world.server().faults().lag_watches("actuator-1", Duration::from_secs(60));
    let name = plimsoll_actuator::launch::group::claim_name(&"default".into(), &"a-0".into());
    stage
        .world
        .apply_object(&serde_json::json!({
            "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim", "metadata": {"name": name},
            "spec": {"nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}, "requirements": []},
        }))
        .unwrap();
    let outcomes = stage.execute(WATCHER, plan(position, wanted(&catalog, 1))).await.unwrap();
    let last = outcomes.last().unwrap();
    assert_eq!(
        (last.status, last.reason),
        (OutcomeStatus::Failed, Some(OutcomeReason::ClusterRefused)),
        "{outcomes:?}"
    );
    let claims = stage.claims().await;
    assert_eq!((claims.len(), stage.bought()), (1, 0));
    assert!(claims[0].metadata.deletion_timestamp.is_none());
}

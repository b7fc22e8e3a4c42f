//! Node classes and their catalogs: the actuator on an in-memory cluster and cloud.
#![expect(clippy::unwrap_used, clippy::panic, reason = "tests")]

mod dry_run;
mod hashes;
mod images;
mod prices;
mod profiles;

use plimsoll_actuator::cluster_facts::Current;
use plimsoll_actuator::ports::CloudError;
use plimsoll_actuator::settings::Settings;
use plimsoll_api::{EC2NodeClass, EC2NodeClassSpec, hash};
use plimsoll_model::catalog::Catalog;
use plimsoll_proto::actuator::v1::WatchCatalogRequest;
use plimsoll_proto::actuator::v1::actuator_service_client::ActuatorServiceClient;
use plimsoll_runtime::serve::MAX_DECODING_BYTES;
use plimsoll_sim::apiserver::faults::{Effect as Fault, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Effect};
use plimsoll_sim::plimsoll::{Options, Plimsoll};
use plimsoll_sim::world::{World, WorldConfig};
use plimsoll_tests::node_class;
use serde_json::{Value, json};
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

const LIMIT: Duration = Duration::from_secs(180);
const CLASSES: ResourceId = ResourceId::EC2_NODE_CLASSES;

struct Fixture {
    world: World,
    plimsoll: Plimsoll,
}

/// One actuator without a driver.
fn fixture() -> Fixture {
    let types = ["m6i.large", "m6g.large", "g5.xlarge"].map(str::to_owned).to_vec();
    let world = World::start(WorldConfig { types: Some(types), ..WorldConfig::default() }).unwrap();
    let options = Options { watchers: 0, schedulers: 0, actuators: 1, ..Options::default() };
    let plimsoll = Plimsoll::start(&world, options);
    Fixture { world, plimsoll }
}

/// As [`fixture`], with the class of [`class`], which is Ready.
async fn with_class(change: &Value) -> Fixture {
    let fixture = fixture();
    fixture.world.apply_object(&class(change)).unwrap();
    fixture.until_ready().await;
    fixture
}

/// A valid class with changes to its spec.
fn class(change: &Value) -> Value {
    let mut class = node_class();
    json_patch::merge(&mut class, &json!({ "spec": change }));
    class
}

impl Fixture {
    fn class(&self) -> Value {
        Value::clone(&self.world.get(CLASSES, "default").unwrap())
    }

    async fn until(&self, what: &str, test: impl Fn(&Value) -> bool) {
        let seen = |world: &World| world.get(CLASSES, "default").is_some_and(|class| test(&class));
        if let Err(missing) = self.world.until(what, LIMIT, seen).await {
            panic!("{missing}\n{:#}", self.class());
        }
    }

    async fn until_ready(&self) {
        self.until("the class is Ready", |class| object::condition_is_true(class, "Ready")).await;
    }

    /// Reason and message of a condition, after it is false.
    async fn refusal(&self, condition: &str) -> (String, String) {
        self.until(&format!("{condition} is False"), |class| {
            object::condition(class, condition).is_some_and(|it| it["status"] == "False")
        })
        .await;
        let class = self.class();
        let condition = object::condition(&class, condition).unwrap();
        (object::text(condition, &["reason"]).to_owned(), object::text(condition, &["message"]).to_owned())
    }

    /// The catalog of the class according to the actuator, and the problem with it.
    async fn catalog(&self) -> (Catalog, Option<String>) {
        let pool = self.plimsoll.network().pool("test", &["actuator-0".to_owned()]);
        let (_, channel) = pool.channel().await.unwrap();
        let mut client = ActuatorServiceClient::new(channel).max_decoding_message_size(MAX_DECODING_BYTES);
        let mut updates = client.watch_catalog(WatchCatalogRequest::default()).await.unwrap().into_inner();
        loop {
            let update = updates.message().await.unwrap().unwrap().update.unwrap();
            if let Some(catalog) = update.catalog {
                return (catalog.try_into().unwrap(), update.problem);
            }
        }
    }
}

/// The offerings as `type zone`.
fn on_offer(catalog: &Catalog) -> BTreeSet<String> {
    let types = catalog.instance_types.iter();
    types
        .flat_map(|kind| {
            let offerings = kind.offerings.iter().filter(|offering| offering.available);
            offerings.map(|offering| format!("{} {}", kind.name, offering.zone))
        })
        .collect()
}

#[tokio::test(start_paused = true)]
async fn a_class_comes_to_what_its_selectors_find() {
    let fixture = with_class(&json!({"instanceProfile": null, "role": "path/node"})).await;
    let class: EC2NodeClass = serde_json::from_value(fixture.class()).unwrap();
    let status = class.status.clone().unwrap();

    let subnets = fixture.world.ec2.read(|cloud, _| cloud.subnets.clone());
    let found: BTreeSet<&String> = status.subnets.iter().map(|subnet| &subnet.id).collect();
    assert_eq!(found, subnets.keys().collect());
    let zone_ids: Vec<Option<String>> = status.subnets.iter().map(|subnet| subnet.zone_id.clone()).collect();
    assert!(zone_ids.iter().all(Option::is_some), "{zone_ids:?}");
    assert_eq!(status.security_groups.len(), 1);
    // Two architectures, and the variants for accelerators.
    assert_eq!(status.amis.len(), 5);
    let names: Vec<&str> = status.amis.iter().filter_map(|ami| ami.name.as_deref()).collect();
    assert!(names.iter().any(|name| name.contains("arm64-nvidia")), "{names:?}");

    let profile = status.instance_profile.unwrap();
    let made = fixture.world.ec2.read(|cloud, _| cloud.support.profile(&profile)).unwrap();
    assert_eq!(made.role.as_deref(), Some("node"), "without the role's path");
    let uid = class.metadata.uid.unwrap();
    assert!(made.path.starts_with("/karpenter/") && made.path.ends_with(&format!("/{uid}/")), "{}", made.path);
    assert_eq!(made.tags["kubernetes.io/cluster/demo"], "owned");

    let annotations = class.metadata.annotations.unwrap();
    let spec: EC2NodeClassSpec = class.spec;
    let expected = hash::ec2_node_class(&spec, "Y2VydGlmaWNhdGUgYXV0aG9yaXR5");
    assert_eq!(annotations["karpenter.k8s.aws/ec2nodeclass-hash"], expected);
    assert_eq!(annotations["karpenter.k8s.aws/ec2nodeclass-hash-version"], "v6");
    assert_eq!(class.metadata.finalizers.unwrap(), ["karpenter.k8s.aws/termination"]);
}

#[tokio::test(start_paused = true)]
async fn a_family_alone_means_its_newest_image() {
    let fixture = with_class(&json!({"amiSelectorTerms": null, "amiFamily": "Bottlerocket"})).await;
    let class = fixture.class();
    let names: BTreeSet<&str> =
        object::items(&class, &["status", "amis"]).iter().map(|ami| object::text(ami, &["name"])).collect();
    assert!(!names.is_empty() && names.iter().all(|name| name.starts_with("bottlerocket-aws-k8s-")), "{names:?}");
}

#[tokio::test(start_paused = true)]
async fn what_is_wrong_with_a_class_is_told_and_mended_at_once() {
    let fixture = fixture();
    fixture.world.apply_object(&class(&json!({"subnetSelectorTerms": [{"tags": {}}]}))).unwrap();
    let (reason, message) = fixture.refusal("SubnetsReady").await;
    assert_eq!(reason, "SubnetsNotFound", "tags without any select nothing, not everything");
    assert!(message.contains("spec.subnetSelectorTerms"), "{message}");
    assert_eq!(fixture.refusal("Ready").await.0, "UnhealthyDependents");
    let (reason, message) = fixture.refusal("ValidationSucceeded").await;
    assert_eq!(reason, "SpecValidationFailed");
    assert!(message.starts_with("spec.subnetSelectorTerms"), "{message}");

    let unknown = json!([{"tags": {"karpenter.sh/discovery": "nobody"}}]);
    fixture.world.patch(CLASSES, "default", json!({"spec": {"subnetSelectorTerms": unknown}})).unwrap();
    fixture
        .until("it waits for subnets", |class| {
            let validation = object::condition(class, "ValidationSucceeded").unwrap();
            validation["reason"] == "DependenciesNotReady" && validation["message"] == "waits for SubnetsReady"
        })
        .await;

    fixture.world.patch(CLASSES, "default", class(&json!({}))).unwrap();
    fixture.until_ready().await;
    fixture.world.patch(CLASSES, "default", json!({"spec": {"kubelet": {"noSuchField": true}}})).unwrap();
    let (reason, message) = fixture.refusal("ValidationSucceeded").await;
    assert_eq!(reason, "InvalidKubeletConfiguration");
    assert!(message.contains("spec.kubelet"), "{message}");
}

#[tokio::test(start_paused = true)]
async fn a_class_stays_ready_while_ec2_does_not_answer() {
    let fixture = with_class(&json!({})).await;
    let before = fixture.class()["status"].clone();
    for action in [Action::DescribeSubnets, Action::DescribeImages, Action::GetParameter] {
        let refusal = Effect::Refuse(CloudError::Throttled);
        fixture.world.ec2.faults(|faults| faults.sometimes(1000, action, refusal));
    }
    tokio::time::sleep(Duration::from_secs(1800)).await;
    assert_eq!(fixture.class()["status"], before);
}

/// The profile that Karpenter before 1.7 made for the class.
fn legacy_profile(world: &World) -> String {
    let region = world.config.region.as_str();
    let name = format!("demo_{}", hash::instance_profile_suffix(&[region, "default"]));
    let tags = [
        ("kubernetes.io/cluster/demo", "owned"),
        ("karpenter.k8s.aws/ec2nodeclass", "default"),
        ("topology.kubernetes.io/region", region),
    ];
    let tags = tags.into_iter().map(|(key, value)| (key.to_owned(), value.to_owned())).collect();
    world.ec2.with(|cloud, _| cloud.support.create_profile(&name, "/", &tags));
    name
}

#[tokio::test(start_paused = true)]
async fn a_class_goes_when_its_claims_have_gone_and_what_was_made_for_it_goes_too() {
    let fixture = with_class(&json!({"instanceProfile": null, "role": "node"})).await;
    let profile = object::text(&fixture.class(), &["status", "instanceProfile"]).to_owned();
    let legacy = legacy_profile(&fixture.world);
    // The claim has another creator: it is not touched, and it blocks the deletion of the class.
    let claim = json!({
        "apiVersion": "karpenter.sh/v1", "kind": "NodeClaim",
        "metadata": {"name": "holder", "finalizers": ["test/hold"]},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        },
    });
    fixture.world.apply_object(&claim).unwrap();
    tokio::time::sleep(Duration::from_secs(5)).await;
    fixture.world.delete(CLASSES, "default").unwrap();
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert!(object::is_deleting(&fixture.class()), "the claim holds it");
    let events = fixture.world.events_of("EC2NodeClass", "default");
    let waits = |event: &String| event.starts_with("WaitingOnNodeClaimTermination: ") && event.contains("holder");
    assert_eq!(events.iter().filter(|event| waits(event)).count(), 1, "{events:?}");

    fixture.world.delete(ResourceId::NODE_CLAIMS, "holder").unwrap();
    let claim = json!({"metadata": {"finalizers": null}});
    fixture.world.patch(ResourceId::NODE_CLAIMS, "holder", claim).unwrap();
    fixture.world.until("the class is deleted", LIMIT, |world| world.get(CLASSES, "default").is_none()).await.unwrap();
    for name in [&profile, &legacy] {
        assert!(fixture.world.ec2.read(|cloud, _| cloud.support.profile(name)).is_err(), "{name} is deleted");
    }
    let others = fixture.world.ec2.read(|cloud, _| cloud.support.profiles.len());
    assert_eq!(others, 1, "the user's own profile remains");
}

/// A VPC without access to IAM: a class with the user's own profile does not need IAM.
#[tokio::test(start_paused = true)]
async fn a_class_with_its_own_profile_goes_without_an_answer_of_iam() {
    let fixture = with_class(&json!({})).await;
    let refusal = CloudError::Unavailable { message: "no route to IAM".to_owned() };
    fixture.world.ec2.faults(|faults| faults.sometimes(1000, Action::ListInstanceProfiles, Effect::Refuse(refusal)));
    fixture.world.delete(CLASSES, "default").unwrap();
    fixture.world.until("the class is deleted", LIMIT, |world| world.get(CLASSES, "default").is_none()).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_catalog_follows_its_class() {
    let fixture = with_class(&json!({})).await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (whole, problem) = fixture.catalog().await;
    assert_eq!(problem, None);
    let zones = fixture
        .world
        .ec2
        .read(|cloud, _| cloud.subnets.values().map(|subnet| subnet.zone.clone()).collect::<BTreeSet<_>>());
    let of = |catalog: &Catalog, kind: &str| {
        let all = on_offer(catalog).into_iter();
        all.filter_map(|offer| Some(offer.strip_prefix(&format!("{kind} "))?.to_owned())).collect::<BTreeSet<_>>()
    };
    assert_eq!(of(&whole, "m6i.large"), zones);
    assert!(!of(&whole, "m6g.large").is_empty() && !of(&whole, "g5.xlarge").is_empty());
    let kind = whole.get("m6i.large").unwrap();
    // 3 interfaces with 10 addresses each: 3 * 9 + 2.
    assert_eq!(kind.capacity.get("pods"), 29);

    let subnet = fixture.world.ec2.read(|cloud, _| cloud.subnets.values().next().cloned()).unwrap();
    let zone = &subnet.zone;
    let image = fixture.world.ec2.read(|cloud, _| {
        let standard = cloud.images.values().find(|image| image.name.contains("x86_64-standard"));
        standard.map(|image| image.id.clone()).unwrap()
    });
    let change = json!({"spec": {
        "subnetSelectorTerms": [{"id": subnet.id}],
        "amiSelectorTerms": [{"id": image}],
        "amiFamily": "AL2023",
        "kubelet": {"maxPods": 20},
    }});
    fixture.world.patch(CLASSES, "default", change).unwrap();
    fixture
        .until("the new generation is Ready", |class| {
            let ready = object::condition(class, "Ready").unwrap();
            ready["status"] == "True" && ready["observedGeneration"] == class["metadata"]["generation"]
        })
        .await;
    tokio::time::sleep(Duration::from_secs(5)).await;
    let (narrow, problem) = fixture.catalog().await;
    assert_eq!(problem, None);
    assert_ne!(narrow.id(), whole.id());
    assert_eq!(of(&narrow, "m6i.large"), [zone.clone()].into());
    assert_eq!(of(&narrow, "m6g.large"), BTreeSet::new(), "no image runs on it");
    assert_eq!(narrow.get("m6i.large").unwrap().capacity.get("pods"), 20);
}

/// The actuator detects an upgrade of the control plane while it runs, and selects images of the new version.
#[tokio::test(start_paused = true)]
async fn images_follow_an_upgrade_of_the_control_plane() {
    let fixture = with_class(&json!({})).await;
    let amis = |class: &Value| -> BTreeSet<String> {
        object::items(class, &["status", "amis"]).iter().map(|ami| object::text(ami, &["id"]).to_owned()).collect()
    };
    let before = amis(&fixture.class());
    // AWS publishes images of the next version.
    fixture.world.ec2.with(|cloud, _| {
        let old = cloud.support.parameters.clone();
        for (path, id) in old.iter().filter(|(path, _)| path.contains("/1.36/")) {
            let mut image = cloud.images[id].clone();
            image.id = id.replace("ami-0a", "ami-0c");
            image.name = image.name.replace("1.36", "1.37");
            cloud.support.parameters.insert(path.replace("/1.36/", "/1.37/"), image.id.clone());
            cloud.images.insert(image.id.clone(), image);
        }
    });
    fixture.world.server().upgrade(37);
    let upgraded = move |world: &World| {
        let class = world.get(CLASSES, "default").unwrap();
        let now = amis(&class);
        !now.is_empty() && now.is_disjoint(&before) && object::condition_is_true(&class, "Ready")
    };
    // The version is read every minute. Images are looked up when the class is reconciled next, within another minute.
    let took = fixture.world.until("the class has images of 1.37", Duration::from_secs(150), upgraded).await;
    assert!(took.is_ok(), "{:#}", fixture.class());
}

/// Facts that could not be read at the start are read again, with increasing delay while reads fail, and then every
/// minute.
#[tokio::test(start_paused = true)]
async fn facts_of_the_cluster_are_read_again_until_they_are_known_and_then_kept_up_to_date() {
    let world = World::start(WorldConfig::default()).unwrap();
    let server = world.server();
    let of_dns = Matcher { name: Some("kube-dns".to_owned()), ..Matcher::of(Verb::Get, "services") };
    server.faults().next(8, of_dns, Fault::internal_error());
    let settings = Settings { cluster_dns: None, kubernetes_version: "1.36".to_owned(), ..Settings::default() };
    let (current, stop) = (Current::new(Arc::new(settings)), CancellationToken::new());
    let task = tokio::spawn(current.clone().follow(server.client("facts"), stop.clone()));
    let reads = |world: &World| {
        world.server().audit().iter().filter(|read| read.client == "facts" && read.name == "kube-dns").count()
    };
    tokio::time::sleep(Duration::from_secs(1)).await;
    assert_eq!((reads(&world), current.get().cluster_dns.clone()), (1, None));
    // 5, 10, 20, 40, 60 and 60 s after the previous read, then 60 s.
    tokio::time::sleep(Duration::from_secs(5 + 10 + 20 + 40 + 60 + 60)).await;
    assert_eq!((reads(&world), current.get().cluster_dns.clone()), (7, None));
    tokio::time::sleep(Duration::from_secs(120)).await;
    assert_eq!((reads(&world), current.get().cluster_dns.as_deref()), (9, Some("10.100.0.10")));
    server.upgrade(37);
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert_eq!((reads(&world), current.get().kubernetes_version.as_str()), (10, "1.37"));
    stop.cancel();
    task.await.unwrap();
}

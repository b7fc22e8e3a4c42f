//! Machine lifecycle in virtual time: from a launch to a Node and back.

use super::{Hardware, Machines, Problems, install_prerequisites};
use crate::apiserver::store::{Key, Object, Write};
use crate::apiserver::{ApiServer, ResourceId, object};
use crate::clock;
use crate::cloud::{Cloud, Ec2, Settings};
use crate::kube::{Cluster, Delays};
use plimsoll_actuator::ports::{FleetRequest, LaunchTemplateConfig, LaunchTemplateSpec, NetworkInterface, Override};
use plimsoll_model::catalog::CapacityType;
use serde_json::json;
use std::time::Duration;
use tokio::time::{Instant, sleep};

const USER_DATA: &str = "[settings.kubernetes]\ncluster-name = 'demo'\nmax-pods = 8\n[settings.kubernetes.node-labels]\nteam = 'b'\n\
    [settings.kubernetes.node-taints]\n'karpenter.sh/unregistered' = [':NoExecute']\n";

struct Fixture {
    cluster: Cluster,
    ec2: Ec2,
    problems: Problems,
}

impl Fixture {
    fn new() -> Self {
        let server = ApiServer::new(1, clock::usual());
        install_prerequisites(&server).unwrap();
        let mut cluster = Cluster::start(server, Delays::default());
        let cloud =
            Cloud::of_region(1, Settings::default(), &["demo".to_owned()], |name| name.starts_with("m6g.")).unwrap();
        let ec2 = Ec2::new(cloud, clock::usual());
        let hardware = Hardware::of_region("us-west-2").unwrap();
        let machines = Machines::new(ec2.clone(), cluster.kubelets.clone(), hardware);
        let problems = machines.problems();
        cluster.add(Box::new(machines));
        Self { cluster, ec2, problems }
    }

    /// Launches one m6g.large with an image and user data. Returns the instance id.
    fn launch(&self, image: &str, user_data: &str) -> String {
        let name = format!("template-{}", user_data.len());
        let template = LaunchTemplateSpec {
            name: name.clone(),
            image_id: image.to_owned(),
            user_data: user_data.to_owned(),
            instance_profile: "karpenter-node".to_owned(),
            tenancy: "default".to_owned(),
            network_interfaces: vec![NetworkInterface::default()],
            capacity_type: CapacityType::OnDemand,
            ..LaunchTemplateSpec::default()
        };
        let way = Override {
            instance_type: "m6g.large".to_owned(),
            zone: "us-west-2b".to_owned(),
            subnet_id: None,
            image_id: image.to_owned(),
            priority: 1,
        };
        let config =
            LaunchTemplateConfig { launch_template_name: name, version: 1, overrides: vec![way], reservation: None };
        let request = FleetRequest {
            client_token: format!("token-{image}-{}", user_data.len()),
            capacity_type: CapacityType::Spot,
            total_target_capacity: 1,
            launch_template_configs: vec![config],
            ..FleetRequest::default()
        };
        self.ec2.with(|cloud, now| {
            cloud.ensure_launch_template(&template);
            cloud.create_fleet(&request, now).unwrap().instances.remove(0).instance_id
        })
    }

    fn node(&self) -> Option<Object> {
        self.cluster.server.read(|store| store.all(ResourceId::NODES).next().map(|(_, node)| node.clone()))
    }

    async fn until(&self, what: &str, test: impl Fn(&Self) -> bool) -> u64 {
        let start = Instant::now();
        while !test(self) {
            assert!(start.elapsed() < Duration::from_secs(600), "not within ten minutes: {what}");
            sleep(Duration::from_millis(100)).await;
        }
        start.elapsed().as_secs()
    }
}

#[tokio::test(start_paused = true)]
async fn an_instance_becomes_the_node_that_its_user_data_says() {
    let fixture = Fixture::new();
    let id = fixture.launch("ami-0b077130000000001", USER_DATA);
    let took = fixture.until("the Node exists", |fixture| fixture.node().is_some()).await;
    assert_eq!(took, 20, "the time to boot");
    let node = fixture.node().unwrap();
    assert_eq!(object::text(&node, &["spec", "providerID"]), format!("aws:///us-west-2b/{id}"));
    for (key, value) in [
        ("team", "b"),
        ("node.kubernetes.io/instance-type", "m6g.large"),
        ("topology.kubernetes.io/zone", "us-west-2b"),
        ("topology.kubernetes.io/region", "us-west-2"),
        ("kubernetes.io/arch", "arm64"),
        ("kubernetes.io/os", "linux"),
    ] {
        assert_eq!(object::label(&node, key), Some(value), "{key}");
    }
    assert!(object::items(&node, &["spec", "taints"]).iter().any(|taint| taint["key"] == "karpenter.sh/unregistered"));
    // 2 vCPUs, of which 70m are reserved. The pod limit comes from the user data.
    let amount = |part, name| object::text(&node, &["status", part, name]).to_owned();
    assert_eq!([amount("capacity", "cpu"), amount("allocatable", "cpu")], ["2000m", "1930m"]);
    assert_eq!(amount("capacity", "pods"), "8");
    fixture.until("it is Ready", |fixture| object::condition_is_true(&fixture.node().unwrap(), "Ready")).await;
    assert!(fixture.problems.all().is_empty());
}

#[tokio::test(start_paused = true)]
async fn what_is_told_wrong_never_becomes_a_node() {
    let fixture = Fixture::new();
    fixture.launch("ami-0b077130000000000", USER_DATA);
    fixture.launch("ami-0b077130000000001", "echo hello");
    sleep(Duration::from_secs(120)).await;
    assert!(fixture.node().is_none());
    let problems = fixture.problems.all().join("\n");
    assert!(problems.contains("an image for x86_64 does not boot on a m6g.large"), "{problems}");
    assert!(problems.contains("nothing in the user data"), "{problems}");
}

#[tokio::test(start_paused = true)]
async fn an_interrupted_machine_ends_two_minutes_after_the_notice_and_its_node_with_it() {
    let fixture = Fixture::new();
    let id = fixture.launch("ami-0b077130000000001", USER_DATA);
    let ready = |fixture: &Fixture| fixture.node().is_some_and(|node| object::condition_is_true(&node, "Ready"));
    fixture.until("it is Ready", ready).await;
    assert!(fixture.ec2.with(|cloud, now| cloud.interrupt_spot(&id, now)));
    let took = fixture.until("the kubelet is silent", |fixture| fixture.cluster.kubelets.running().is_empty()).await;
    assert_eq!(took, 120);
    // The Node becomes not ready after 50 s of silence, and the cloud controller checks every 5 s.
    let took = fixture.until("the Node is deleted", |fixture| fixture.node().is_none()).await;
    assert!((50..=60).contains(&took), "{took}");
}

#[tokio::test(start_paused = true)]
async fn a_machine_may_become_a_node_of_another_name() {
    let fixture = Fixture::new();
    fixture.ec2.faults(|faults| faults.rename_nodes(true));
    let id = fixture.launch("ami-0b077130000000001", USER_DATA);
    let ready = |fixture: &Fixture| fixture.node().is_some_and(|node| object::condition_is_true(&node, "Ready"));
    fixture.until("it is Ready", ready).await;
    assert_eq!(object::name(&fixture.node().unwrap()), format!("{id}.us-west-2.compute.internal"));
    fixture.ec2.faults(|faults| faults.rename_nodes(false));
    fixture.ec2.with(|cloud, now| drop(cloud.terminate_instances(&[id], now)));
    fixture.until("the Node is deleted", |fixture| fixture.node().is_none()).await;
    assert!(fixture.cluster.kubelets.running().is_empty());
}

#[tokio::test(start_paused = true)]
async fn custom_resources_are_held_to_their_schemas() {
    let fixture = Fixture::new();
    let server = &fixture.cluster.server;
    let write = Write::new(server.now(), "test");
    let pool = json!({"metadata": {"name": "p"}, "spec": {"template": {"spec": {
        "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "c"}, "requirements": [], "unknown": 1}}}});
    let stored = server.write(|store| store.create(ResourceId::NODE_POOLS, "", pool, &write)).unwrap();
    assert_eq!(object::text(&stored, &["spec", "disruption", "consolidateAfter"]), "0s");
    assert_eq!(object::text(&stored, &["spec", "template", "spec", "expireAfter"]), "720h");
    assert!(object::at(&stored, &["spec", "template", "spec", "unknown"]).is_none());
    let refused = server.write(|store| {
        store.create(ResourceId::NODE_POOLS, "", json!({"metadata": {"name": "q"}, "spec": {}}), &write)
    });
    assert!(refused.is_err());
    let dns = server.read(|store| store.find(ResourceId::SERVICES, &Key::new("kube-system", "kube-dns")));
    assert!(dns.is_some());
}

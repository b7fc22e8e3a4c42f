//! Workloads of a run.

use super::config::pick;
use plimsoll_model::names::annotation;
use plimsoll_sim::apiserver::ResourceId;
use plimsoll_sim::kube::COMPLETE_AFTER;
use plimsoll_sim::seed::Rng;
use plimsoll_tests::TestCluster;
use serde_json::{Value, json};

/// Replicas of each Deployment at the end.
const FINAL_REPLICAS: u32 = 5;

/// How pods of a Deployment may be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    ZoneSpread,
    ApartByHost,
    LongGrace,
}

/// A Deployment whose replicas change.
#[derive(Debug, Clone, Copy)]
pub(super) struct Web {
    millicpu: u64,
    shape: Shape,
    budget: bool,
}

/// A workload of another kind.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Other {
    /// A StatefulSet that replaces its pods in order.
    Stateful,
    /// A Job in each round, whose pods must not be disrupted and complete.
    Batch,
    /// A Deployment whose pods must not be disrupted.
    Held,
    /// A Deployment whose pods must be in one zone.
    Together,
}

impl Other {
    const ALL: [Self; 4] = [Self::Stateful, Self::Batch, Self::Held, Self::Together];

    /// Replicas at the end.
    fn final_replicas(self) -> u32 {
        match self {
            Self::Stateful => 3,
            Self::Batch => 0,
            Self::Held => 2,
            Self::Together => 4,
        }
    }

    /// Whether its pods must not be disrupted.
    pub(super) fn is_held(self) -> bool {
        matches!(self, Self::Held)
    }

    fn name(self) -> &'static str {
        match self {
            Self::Stateful => "db",
            Self::Batch => "batch",
            Self::Held => "held",
            Self::Together => "together",
        }
    }

    fn pod_template(self) -> Value {
        let labels = json!({"app": self.name()});
        let requests = json!({"cpu": "600m", "memory": "300Mi"});
        let containers = json!([{"name": "main", "image": "example.com/app:1", "resources": {"requests": requests}}]);
        let mut template = json!({"metadata": {"labels": labels}, "spec": {"containers": containers}});
        if matches!(self, Self::Held | Self::Batch) {
            template["metadata"]["annotations"] = json!({annotation::DO_NOT_DISRUPT: "true"});
        }
        match self {
            Self::Together => {
                let term =
                    json!({"labelSelector": {"matchLabels": labels}, "topologyKey": "topology.kubernetes.io/zone"});
                template["spec"]["affinity"] =
                    json!({"podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]}});
            }
            Self::Batch => {
                template["metadata"]["annotations"][COMPLETE_AFTER] = json!("45s");
                template["spec"]["restartPolicy"] = json!("Never");
            }
            Self::Stateful | Self::Held => {}
        }
        template
    }

    fn apply(self, cluster: &TestCluster, replicas: u32) {
        let (name, labels) = (self.name(), json!({"app": self.name()}));
        let mut spec =
            json!({"replicas": replicas, "selector": {"matchLabels": labels}, "template": self.pod_template()});
        let kind = if self == Self::Stateful { "StatefulSet" } else { "Deployment" };
        if self == Self::Stateful {
            spec["serviceName"] = json!(name);
        }
        let object = json!({"apiVersion": "apps/v1", "kind": kind, "metadata": {"name": name}, "spec": spec});
        cluster.world.apply_object(&object).unwrap();
    }

    fn begin_job(self, cluster: &TestCluster, round: u64) {
        let spec = json!({"completions": 2, "parallelism": 2, "backoffLimit": 1000, "template": self.pod_template()});
        let name = format!("{}-{round}", self.name());
        let job = json!({"apiVersion": "batch/v1", "kind": "Job", "metadata": {"name": name}, "spec": spec});
        cluster.world.apply_object(&job).unwrap();
    }
}

/// All workloads of a run.
#[derive(Debug)]
pub(super) struct Workloads {
    web: Vec<Web>,
    pub(super) others: Vec<Other>,
}

impl Workloads {
    pub(super) fn drawn(rng: &mut Rng) -> Self {
        let shapes = [Shape::Plain, Shape::Plain, Shape::ZoneSpread, Shape::ApartByHost, Shape::LongGrace];
        let web = (0..=rng.below(2)).map(|_| Web {
            millicpu: pick(rng, &[300, 900, 1500]),
            shape: pick(rng, &shapes),
            budget: rng.chance(300),
        });
        Self { web: web.collect(), others: Vec::new() }
    }

    pub(super) fn draw_others(&mut self, rng: &mut Rng) {
        self.others = Other::ALL.into_iter().filter(|_| rng.chance(250)).collect();
    }

    fn apply_web(&self, cluster: &TestCluster, number: usize, replicas: u32) {
        let web = self.web[number];
        let name = format!("web-{number}");
        let selector = json!({"matchLabels": {"app": name}});
        let spec = match web.shape {
            Shape::Plain => json!({}),
            Shape::LongGrace => json!({"terminationGracePeriodSeconds": 90}),
            Shape::ZoneSpread => json!({"topologySpreadConstraints": [{"maxSkew": 1, "labelSelector": selector,
                "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]}),
            Shape::ApartByHost => json!({"affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}]}}}),
        };
        let memory = web.millicpu / 2;
        let requests = json!({"cpu": format!("{}m", web.millicpu), "memory": format!("{memory}Mi")});
        cluster.world.deploy(&name, replicas, &requests, &spec).unwrap();
        if web.budget {
            let budget = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
                "spec": {"maxUnavailable": 1, "selector": selector},
            });
            cluster.world.apply_object(&budget).unwrap();
        }
    }

    /// Sets random numbers of replicas.
    pub(super) fn deploy(&self, cluster: &TestCluster, rng: &mut Rng, round: u64) {
        for (number, web) in self.web.iter().enumerate() {
            let most = if web.shape == Shape::ApartByHost { 6 } else { 15 };
            self.apply_web(cluster, number, u32::try_from(rng.below(most)).unwrap());
        }
        for other in &self.others {
            match other {
                Other::Batch => other.begin_job(cluster, round),
                _ => other.apply(cluster, u32::try_from(rng.below(5)).unwrap()),
            }
        }
    }

    /// Changes the pod template of a Deployment, if it exists, so that its pods are replaced.
    pub(super) fn roll_out(cluster: &TestCluster, version: u32) {
        let image = json!({"metadata": {"annotations": {"plimsoll.test/version": version.to_string()}}});
        drop(cluster.world.patch(ResourceId::DEPLOYMENTS, "web-0", json!({"spec": {"template": image}})));
    }

    /// Sets the final numbers of replicas. Returns the number of pods that must run at the end.
    pub(super) fn deploy_final(&self, cluster: &TestCluster) -> usize {
        (0..self.web.len()).for_each(|number| self.apply_web(cluster, number, FINAL_REPLICAS));
        let mut pods = self.web.len() * FINAL_REPLICAS as usize;
        for other in self.replicated() {
            other.apply(cluster, other.final_replicas());
            pods += other.final_replicas() as usize;
        }
        pods
    }

    pub(super) fn scale_to_nothing(&self, cluster: &TestCluster) {
        (0..self.web.len()).for_each(|number| cluster.scale(&format!("web-{number}"), 0));
        self.replicated().for_each(|other| other.apply(cluster, 0));
    }

    /// Other workloads with a number of replicas.
    fn replicated(&self) -> impl Iterator<Item = Other> {
        self.others.iter().copied().filter(|other| *other != Other::Batch)
    }
}

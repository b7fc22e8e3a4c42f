//! Configuration of a run, derived from its seed.

use super::strikes::Kind;
use crate::faulty_planner::{self, FORGETS, MISCOUNTS, PANICS};
use plimsoll_actuator::ports::CloudError;
use plimsoll_scheduler::PlanFn;
use plimsoll_sim::apiserver::faults::{Effect, Matcher};
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::cloud::{Action, Effect as CloudEffect};
use plimsoll_sim::plimsoll::Options;
use plimsoll_sim::seed::Rng;
use plimsoll_tests::Scene;
use serde_json::{Value, json};
use std::time::Duration;

/// CPU limit of the pool, in millicores, enough for the pods at the end.
pub(super) const LIMIT: i64 = 64_000;
/// Replicas of each workload at the end.
const FINAL_REPLICAS: u32 = 5;

/// Pods that a faulty planner fails for.
const FAULTY_PODS: u32 = 2;

fn planner_fault_name(fault: PlannerFault) -> String {
    format!("Planner{fault:?}")
}

/// How pods of a workload may be placed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Shape {
    Plain,
    ZoneSpread,
    ApartByHost,
    LongGrace,
}

#[derive(Debug, Clone, Copy)]
struct Workload {
    millicpu: u64,
    shape: Shape,
    budget: bool,
}

/// A kind of random fault with its rate in per mille.
#[derive(Debug, Clone, Copy)]
struct Rate {
    fault: Fault,
    per_mille: u32,
}

#[derive(Debug, Clone, Copy)]
enum Fault {
    LoseAnswer,
    Drop,
    InternalError,
    Throttle,
    Delay,
    LateWrite,
    SlowClaims,
    Conflict,
    CloudLoseAnswer,
    CloudLate,
    CloudThrottle,
    CloudDrop,
    CloudDelay,
    CloudDenied,
}

const FAULTS: [(Fault, u32); 14] = [
    (Fault::LoseAnswer, 15),
    (Fault::Drop, 15),
    (Fault::InternalError, 15),
    (Fault::Throttle, 15),
    (Fault::Delay, 50),
    (Fault::LateWrite, 15),
    (Fault::SlowClaims, 60),
    (Fault::Conflict, 20),
    (Fault::CloudLoseAnswer, 40),
    (Fault::CloudLate, 20),
    (Fault::CloudThrottle, 40),
    (Fault::CloudDrop, 20),
    (Fault::CloudDelay, 50),
    (Fault::CloudDenied, 20),
];

/// The configuration of one run.
#[derive(Debug)]
pub(super) struct Config {
    capacity_types: &'static [&'static str],
    consolidate_after: &'static str,
    budget: &'static str,
    grace: Option<&'static str>,
    replicas: usize,
    nominate: bool,
    workloads: Vec<Workload>,
    faults: Vec<Rate>,
    strikes: Vec<Kind>,
    planner: Option<PlannerFault>,
}

/// How the planner fails for the pods of one shape.
#[derive(Debug, Clone, Copy)]
enum PlannerFault {
    Panics,
    Forgets,
    Miscounts,
}

fn pick<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[usize::try_from(rng.below(all.len() as u64)).unwrap()]
}

impl Config {
    /// The same seed gives the same configuration. `PLIMSOLL_WITHOUT` then removes kinds of faults and events from it,
    /// to find those that a failure needs.
    pub(super) fn of(seed: u64) -> Self {
        let mut config = Self::drawn(seed);
        let without = std::env::var("PLIMSOLL_WITHOUT").unwrap_or_default();
        let stays = |kind: String| !without.split(',').any(|name| name == kind);
        config.faults.retain(|rate| stays(format!("{:?}", rate.fault)));
        config.strikes.retain(|kind| stays(format!("{kind:?}")));
        config.planner = config.planner.filter(|fault| stays(planner_fault_name(*fault)));
        config
    }

    /// Names of the random faults.
    pub(super) fn fault_names(&self) -> impl Iterator<Item = String> {
        let random = self.faults.iter().map(|rate| format!("{:?}", rate.fault));
        random.chain(self.planner.map(planner_fault_name))
    }

    fn drawn(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0xc0_ff1e);
        let shapes = [Shape::Plain, Shape::Plain, Shape::ZoneSpread, Shape::ApartByHost, Shape::LongGrace];
        let workloads = (0..=rng.below(2)).map(|_| Workload {
            millicpu: pick(rng, &[300, 900, 1500]),
            shape: pick(rng, &shapes),
            budget: rng.chance(300),
        });
        let workloads = workloads.collect();
        // Half of the kinds, with rates between a fifth and twice the default.
        let mut faults = Vec::new();
        for (fault, usual) in FAULTS {
            let per_mille = usual * pick(rng, &[20, 50, 100, 200]) / 100;
            if rng.chance(500) {
                faults.push(Rate { fault, per_mille });
            }
        }
        let strikes: Vec<Kind> = Kind::ALL.into_iter().filter(|_| rng.chance(400)).collect();
        Self {
            capacity_types: pick(rng, &[&["spot", "on-demand"][..], &["on-demand"], &["spot"]]),
            consolidate_after: pick(rng, &["0s", "30s", "5m"]),
            budget: pick(rng, &["100%", "50%", "1"]),
            grace: pick(rng, &[None, None, Some("2m")]),
            replicas: pick(rng, &[2, 2, 3]),
            nominate: rng.chance(800),
            workloads,
            faults,
            strikes,
            planner: pick(
                rng,
                &[
                    None,
                    None,
                    None,
                    Some(PlannerFault::Panics),
                    Some(PlannerFault::Forgets),
                    Some(PlannerFault::Miscounts),
                ],
            ),
        }
    }

    pub(super) fn pool(&self) -> Value {
        let requirements = json!([{"key": "karpenter.sh/capacity-type", "operator": "In", "values": self.capacity_types},
                                  {"key": "kubernetes.io/arch", "operator": "In", "values": ["amd64"]}]);
        let mut template = json!({"spec": {"requirements": requirements}});
        if let Some(grace) = self.grace {
            template["spec"]["terminationGracePeriod"] = json!(grace);
        }
        json!({
            "limits": {"cpu": "64"}, "template": template,
            "disruption": {"consolidateAfter": self.consolidate_after, "budgets": [{"nodes": self.budget}]},
        })
    }

    pub(super) fn options(&self) -> Options {
        let replicas = self.replicas;
        Options {
            watchers: replicas,
            schedulers: replicas,
            actuators: replicas,
            nominate_nodes: self.nominate,
            plan: match self.planner {
                None => PlanFn::default(),
                Some(PlannerFault::Panics) => PANICS,
                Some(PlannerFault::Forgets) => FORGETS,
                Some(PlannerFault::Miscounts) => MISCOUNTS,
            },
            ..Options::default()
        }
    }

    pub(super) fn let_things_go_wrong(&self, scene: &Scene) {
        let server = scene.world.server().faults();
        for Rate { fault, per_mille } in self.faults.iter().copied() {
            let kube = |matcher, effect| {
                server.sometimes(per_mille, matcher, effect);
            };
            let cloud = |action: Option<Action>, effect| {
                scene.world.ec2.faults(|faults| faults.sometimes(per_mille, action, effect));
            };
            let claims = || Matcher { resource: Some("nodeclaims"), ..Matcher::default() };
            let second = Duration::from_secs;
            match fault {
                Fault::LoseAnswer => kube(Matcher::default(), Effect::LoseAnswer),
                Fault::Drop => kube(Matcher::default(), Effect::Drop),
                Fault::InternalError => kube(Matcher::default(), Effect::internal_error()),
                Fault::Throttle => kube(Matcher::default(), Effect::throttle(1)),
                Fault::Delay => kube(Matcher::default(), Effect::Delay(Duration::from_millis(300))),
                Fault::LateWrite => {
                    kube(Matcher { verb: Some(Verb::Create), ..claims() }, Effect::Late(second(20)));
                    kube(Matcher { verb: Some(Verb::Patch), ..claims() }, Effect::Late(second(20)));
                }
                Fault::SlowClaims => kube(claims(), Effect::Delay(second(5))),
                Fault::Conflict => kube(Matcher { verb: Some(Verb::Patch), ..claims() }, Effect::conflict()),
                Fault::CloudLoseAnswer => cloud(None, CloudEffect::LoseAnswer),
                Fault::CloudLate => cloud(None, CloudEffect::Late(second(30))),
                Fault::CloudThrottle => cloud(None, CloudEffect::Refuse(CloudError::Throttled)),
                Fault::CloudDrop => cloud(None, CloudEffect::Drop),
                Fault::CloudDelay => cloud(None, CloudEffect::Delay(second(2))),
                Fault::CloudDenied => {
                    let denied = CloudError::Denied { message: "UnauthorizedOperation: not now".to_owned() };
                    cloud(None, CloudEffect::Refuse(denied));
                }
            }
        }
    }

    fn apply(&self, scene: &Scene, number: usize, replicas: u32) {
        let workload = self.workloads[number];
        let name = format!("web-{number}");
        let selector = json!({"matchLabels": {"app": name}});
        let spec = match workload.shape {
            Shape::Plain => json!({}),
            Shape::LongGrace => json!({"terminationGracePeriodSeconds": 90}),
            Shape::ZoneSpread => json!({"topologySpreadConstraints": [{"maxSkew": 1, "labelSelector": selector,
                "topologyKey": "topology.kubernetes.io/zone", "whenUnsatisfiable": "DoNotSchedule"}]}),
            Shape::ApartByHost => json!({"affinity": {"podAntiAffinity": {
                "requiredDuringSchedulingIgnoredDuringExecution": [
                    {"labelSelector": selector, "topologyKey": "kubernetes.io/hostname"}]}}}),
        };
        let memory = workload.millicpu / 2;
        let requests = json!({"cpu": format!("{}m", workload.millicpu), "memory": format!("{memory}Mi")});
        scene.world.deploy(&name, replicas, &requests, &spec).unwrap();
        if workload.budget {
            let budget = json!({
                "apiVersion": "policy/v1", "kind": "PodDisruptionBudget", "metadata": {"name": name},
                "spec": {"maxUnavailable": 1, "selector": selector},
            });
            scene.world.apply_object(&budget).unwrap();
        }
    }

    pub(super) fn deploy(&self, scene: &Scene, rng: &mut Rng) {
        for number in 0..self.workloads.len() {
            let most = if self.workloads[number].shape == Shape::ApartByHost { 6 } else { 15 };
            self.apply(scene, number, u32::try_from(rng.below(most)).unwrap());
        }
    }

    /// Creates the pods that the planner fails for, if it does.
    pub(super) fn deploy_faulty(&self, scene: &Scene) {
        if self.planner.is_some() {
            faulty_planner::deploy(scene, FAULTY_PODS);
        }
    }

    /// Deletes these pods.
    pub(super) fn end_faulty(&self, scene: &Scene) {
        if self.planner.is_some() {
            scene.scale("faulty", 0);
        }
    }

    /// Scales the workloads to their final replicas. Returns the number of pods that must run at the end.
    pub(super) fn deploy_final(&self, scene: &Scene) -> usize {
        for number in 0..self.workloads.len() {
            self.apply(scene, number, FINAL_REPLICAS);
        }
        self.workloads.len() * FINAL_REPLICAS as usize
    }

    pub(super) fn scale_to_nothing(&self, scene: &Scene) {
        for number in 0..self.workloads.len() {
            scene.scale(&format!("web-{number}"), 0);
        }
    }

    pub(super) fn strike(&self, rng: &mut Rng) -> Option<Kind> {
        (!self.strikes.is_empty()).then(|| pick(rng, &self.strikes))
    }
}

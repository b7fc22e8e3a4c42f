//! Configuration of a run, derived from its seed.

use super::events::Kind;
use super::faults::{self, Rate};
use super::later_events::Kind as LaterKind;
use super::workloads::{Other, Workloads};
use crate::faulty_planner::{self, FORGETS, MISCOUNTS, PANICS};
use plimsoll_scheduler::PlanFn;
use plimsoll_sim::plimsoll::Options;
use plimsoll_sim::seed::Rng;
use plimsoll_sim::world::WorldConfig;
use plimsoll_tests::{HOUR, Setup, TestCluster};
use serde_json::{Value, json};
use std::time::Duration;

/// CPU limit of the pool, in millicores, enough for the pods at the end.
pub(super) const LIMIT: i64 = 64_000;

/// Pods that a faulty planner fails for.
const FAULTY_PODS: u32 = 2;

fn planner_fault_name(fault: PlannerFault) -> String {
    format!("Planner{fault:?}")
}

/// The configuration of one run.
#[derive(Debug)]
pub(super) struct Config {
    seed: u64,
    capacity_types: &'static [&'static str],
    consolidate_after: &'static str,
    pub(super) budget: &'static str,
    grace: Option<&'static str>,
    replicas: usize,
    nominate: bool,
    pub(super) workloads: Workloads,
    faults: Vec<Rate>,
    events: Vec<Kind>,
    /// Events of the third generator.
    later_events: Vec<LaterKind>,
    planner: Option<PlannerFault>,
    timings: Timings,
}

/// How the cluster and the cloud behave.
#[derive(Debug, Clone, Copy)]
struct Timings {
    boot: Duration,
    boot_jitter: Duration,
    settling: Duration,
    clock_error: Duration,
}

/// How the planner fails for the pods of one shape.
#[derive(Debug, Clone, Copy)]
enum PlannerFault {
    Panics,
    Forgets,
    Miscounts,
}

pub(super) fn pick<T: Copy>(rng: &mut Rng, all: &[T]) -> T {
    all[usize::try_from(rng.below(all.len() as u64)).unwrap()]
}

impl Timings {
    fn drawn(rng: &mut Rng) -> Self {
        let seconds = Duration::from_secs;
        Self {
            boot: seconds(pick(rng, &[20, 20, 45, 75])),
            boot_jitter: seconds(pick(rng, &[0, 0, 30, 120])),
            settling: seconds(pick(rng, &[1, 1, 5, 20])),
            clock_error: Duration::from_millis(pick(rng, &[0, 0, 300, 2_000])),
        }
    }
}

impl Config {
    /// The same seed gives the same configuration. `PLIMSOLL_WITHOUT` then removes kinds of faults, events and
    /// workloads from it, to find those that a failure needs.
    pub(super) fn of(seed: u64) -> Self {
        let mut config = Self::drawn(seed);
        let without = std::env::var("PLIMSOLL_WITHOUT").unwrap_or_default();
        let stays = |kind: String| !without.split(',').any(|name| name == kind);
        config.faults.retain(|rate| stays(format!("{:?}", rate.fault)));
        config.events.retain(|kind| stays(format!("{kind:?}")));
        config.later_events.retain(|kind| stays(format!("{kind:?}")));
        config.workloads.others.retain(|other| stays(format!("{other:?}")));
        config.planner = config.planner.filter(|fault| stays(planner_fault_name(*fault)));
        if !stays("ClockError".to_owned()) {
            config.timings.clock_error = Duration::ZERO;
        }
        config
    }

    /// Names of the random faults, and of the workloads that can be left out.
    pub(super) fn fault_names(&self) -> impl Iterator<Item = String> {
        let random = self.faults.iter().map(|rate| format!("{:?}", rate.fault));
        let others = self.workloads.others.iter().map(|other| format!("{other:?}"));
        let clock = (!self.timings.clock_error.is_zero()).then(|| "ClockError".to_owned());
        random.chain(others).chain(clock).chain(self.planner.map(planner_fault_name))
    }

    fn drawn(seed: u64) -> Self {
        let rng = &mut Rng::new(seed ^ 0xc0_ff1e);
        let mut workloads = Workloads::drawn(rng);
        let mut faults = faults::of_calls(rng);
        let mut events: Vec<Kind> = Kind::FIRST.into_iter().filter(|_| rng.chance(400)).collect();
        // A generator of its own, so that seeds keep their first choices when choices are added.
        let later = &mut Rng::new(seed ^ 0xadd);
        workloads.draw_others(later);
        let timings = Timings::drawn(later);
        faults.extend(faults::of_reports(later));
        events.extend(Kind::LATER.into_iter().filter(|_| later.chance(300)));
        faults.extend(faults::of_late_writes(later));
        // Half of the seeds have nothing of the third generator, and stay exactly as they were without it.
        let third = &mut Rng::new(seed ^ 0x3d);
        let mut later_events = Vec::new();
        if third.chance(500) {
            faults.extend(faults::of_answers(third));
            later_events.extend(LaterKind::ALL.into_iter().filter(|_| third.chance(250)));
        }
        Self {
            seed,
            capacity_types: pick(rng, &[&["spot", "on-demand"][..], &["on-demand"], &["spot"]]),
            consolidate_after: pick(rng, &["0s", "30s", "5m"]),
            budget: pick(rng, &["100%", "50%", "1"]),
            grace: pick(rng, &[None, None, Some("2m")]),
            replicas: pick(rng, &[2, 2, 3]),
            nominate: rng.chance(800),
            workloads,
            faults,
            events,
            later_events,
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
            timings,
        }
    }

    fn pool(&self) -> Value {
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

    fn options(&self) -> Options {
        let replicas = self.replicas;
        Options {
            watchers: replicas,
            schedulers: replicas,
            actuators: replicas,
            nominate_nodes: self.nominate,
            clock_error: self.timings.clock_error,
            plan: match self.planner {
                None => PlanFn::default(),
                Some(PlannerFault::Panics) => PANICS,
                Some(PlannerFault::Forgets) => FORGETS,
                Some(PlannerFault::Miscounts) => MISCOUNTS,
            },
            ..Options::default()
        }
    }

    pub(super) fn setup(&self) -> Setup {
        let Timings { boot, boot_jitter, settling, .. } = self.timings;
        let usual = Setup::seeded(self.seed);
        let world = WorldConfig { boot, boot_jitter, settling, ..usual.world };
        Setup { world, pool: self.pool(), options: self.options() }
    }

    /// As [`Config::setup`], with accurate clocks.
    pub(super) fn calm_setup(&self) -> Setup {
        let setup = self.setup();
        Setup { options: Options { clock_error: Duration::ZERO, ..setup.options }, ..setup }
    }

    pub(super) fn let_things_go_wrong(&self, cluster: &TestCluster) {
        self.faults.iter().for_each(|rate| rate.begin(cluster));
    }

    /// Whether the cost of the cluster must fall to that of a new cluster: nothing prevents removals. Spot nodes are
    /// replaced by cheaper Spot nodes only if a feature gate says so.
    pub(super) fn is_to_be_cheap(&self) -> bool {
        let is_held = self.workloads.others.iter().any(|other| Other::is_held(*other));
        self.capacity_types == ["on-demand"] && !is_held && self.planner.is_none()
    }

    /// Creates the pods that the planner fails for, if it does.
    pub(super) fn deploy_faulty(&self, cluster: &TestCluster) {
        if self.planner.is_some() {
            faulty_planner::deploy(cluster, FAULTY_PODS);
        }
    }

    /// Deletes these pods.
    pub(super) fn end_faulty(&self, cluster: &TestCluster) {
        if self.planner.is_some() {
            cluster.scale("faulty", 0);
        }
    }

    pub(super) fn pick_event(&self, rng: &mut Rng) -> Option<Kind> {
        (!self.events.is_empty()).then(|| pick(rng, &self.events))
    }

    pub(super) fn pick_later_event(&self, rng: &mut Rng) -> Option<LaterKind> {
        (!self.later_events.is_empty() && rng.chance(600)).then(|| pick(rng, &self.later_events))
    }

    /// By how much the clock of a process may be ahead.
    pub(super) fn clock_lead(&self) -> Duration {
        // Longer than all steps of a run together.
        let steps = if self.events.contains(&Kind::StepClock) { HOUR } else { Duration::ZERO };
        self.timings.clock_error + steps
    }
}

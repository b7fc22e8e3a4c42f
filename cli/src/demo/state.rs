//! A world with Plimsoll, and a reporter that observes it.

use super::measure::Measures;
use super::view::View;
use parking_lot::Mutex;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::plimsoll::{Options, Plimsoll};
use plimsoll_sim::world::{World, WorldConfig, WorldError};
use serde_json::Value;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio::time::Instant;

/// Interval between frames, in simulated time.
const FRAME: Duration = Duration::from_millis(500);
/// Maximum number of shown nodes, so that the frame fits on a screen.
const NODES_SHOWN: usize = 12;
/// Characters of a bar.
const BAR: usize = 30;

/// An expectation that was not met.
#[derive(Debug, thiserror::Error)]
#[error("the demo did not see this: {step}: {what}")]
pub(super) struct Missing {
    pub(super) step: String,
    pub(super) what: String,
}

/// State at the end of a step.
#[derive(Debug, Clone)]
pub(super) struct StepResult {
    pub(super) step: String,
    pub(super) took: Duration,
    pub(super) running: usize,
    pub(super) pending: usize,
    pub(super) nodes: usize,
    pub(super) hourly: MicroUsdPerHour,
    /// Longest time from pending to running of the pods of this step; `None` if no pod was pending.
    pub(super) to_running: Option<Duration>,
}

/// State that the reporter and the script share.
struct Shared {
    view: View,
    step: String,
    step_started: Instant,
    results: Vec<StepResult>,
}

/// A running world and its view.
pub(super) struct Demo {
    pub(super) world: Arc<World>,
    pub(super) measures: Measures,
    /// Stops when the demo is dropped.
    _plimsoll: Plimsoll,
    shared: Arc<Mutex<Shared>>,
    started: Instant,
    pub(super) real: std::time::Instant,
    reporter: tokio::task::JoinHandle<()>,
}

impl Demo {
    /// Creates the world in the region of the first seed, with a network for each seed's node class.
    pub(super) fn start(seed: u64, view: View) -> Result<Self, WorldError> {
        let config = WorldConfig {
            seed,
            region: "ap-northeast-2".to_owned(),
            networks: vec!["backend".to_owned(), "eks-workshop".to_owned()],
            ..WorldConfig::default()
        };
        let world = Arc::new(World::start(config)?);
        let plimsoll = Plimsoll::start(&world, Options::default());
        let started = Instant::now();
        let shared =
            Arc::new(Mutex::new(Shared { view, step: String::new(), step_started: started, results: Vec::new() }));
        let measures = Measures::start(&world);
        let reporter = tokio::spawn(report(world.clone(), shared.clone(), started));
        Ok(Self { world, measures, _plimsoll: plimsoll, shared, started, real: std::time::Instant::now(), reporter })
    }

    /// Simulated time since the start.
    pub(super) fn time(&self) -> Duration {
        self.started.elapsed()
    }

    pub(super) fn results(&self) -> Vec<StepResult> {
        self.shared.lock().results.clone()
    }

    /// Starts a step.
    pub(super) fn step(&self, name: &str, text: &str) {
        let mut shared = self.shared.lock();
        shared.step = name.to_owned();
        shared.step_started = Instant::now();
        shared.view.heading(&format!("{name}: {text}"));
    }

    /// Ends a step and shows the state.
    pub(super) fn end_step(&self) {
        let (world, mut shared) = (&self.world, self.shared.lock());
        let result = StepResult {
            step: shared.step.clone(),
            took: shared.step_started.elapsed(),
            running: world.running_pods(),
            pending: world.pending_pods(),
            nodes: world.ready_nodes(),
            hourly: world.hourly_cost(),
            to_running: self.measures.longest_to_running(shared.step_started),
        };
        shared.results.push(result);
    }

    pub(super) fn note(&self, text: &str) {
        self.shared.lock().view.note(&clock(self.time()), text);
    }

    fn missing(&self, what: &str) -> Missing {
        let mut shared = self.shared.lock();
        shared.view.missed(&clock(self.time()), what);
        Missing { step: shared.step.clone(), what: what.to_owned() }
    }

    /// Waits until an expected condition holds, at most `limit` in simulated time.
    pub(super) async fn expect(
        &self,
        what: &str,
        limit: Duration,
        test: impl Fn(&World) -> bool,
    ) -> Result<Duration, Missing> {
        match self.world.until(what, limit, test).await {
            Ok(took) => {
                self.shared.lock().view.seen(
                    &clock(self.time()),
                    &format!("{what} ({})", if took.is_zero() { "at once".to_owned() } else { seconds(took) }),
                );
                Ok(took)
            }
            Err(_) => Err(self.missing(&format!("{what} (within {})", seconds(limit)))),
        }
    }

    /// Checks a condition immediately.
    pub(super) fn check(&self, what: &str, holds: bool) -> Result<(), Missing> {
        if !holds {
            return Err(self.missing(what));
        }
        self.shared.lock().view.seen(&clock(self.time()), what);
        Ok(())
    }

    /// Ends the demo.
    pub(super) fn end(&self) {
        self.reporter.abort();
        self.shared.lock().view.close();
    }
}

async fn report(world: Arc<World>, shared: Arc<Mutex<Shared>>, started: Instant) {
    loop {
        let lines = picture(&world, &shared.lock().step, started.elapsed());
        shared.lock().view.picture(lines, FRAME);
        tokio::time::sleep(FRAME).await;
    }
}

fn picture(world: &World, step: &str, time: Duration) -> Vec<String> {
    let (running, pending) = (world.running_pods(), world.pending_pods());
    let nodes = world.all(ResourceId::NODES);
    let mut lines = vec![
        String::new(),
        format!("  {}  {step}", clock(time)),
        format!("  pods   {}  {running} running, {pending} pending", bar(running, pending)),
        format!("  nodes  {}, {} USD per hour", nodes.len(), world.hourly_cost()),
    ];
    let mut pods: BTreeMap<String, usize> = BTreeMap::new();
    for pod in world.all(ResourceId::PODS) {
        *pods.entry(object::text(&pod, &["spec", "nodeName"]).to_owned()).or_default() += 1;
    }
    for node in nodes.iter().take(NODES_SHOWN) {
        let on_it = pods.get(object::name(node)).copied().unwrap_or(0);
        lines.push(format!("         {}", node_line(node, on_it)));
    }
    if nodes.len() > NODES_SHOWN {
        lines.push(format!("         and {} more", nodes.len() - NODES_SHOWN));
    }
    lines
}

fn node_line(node: &Value, pods: usize) -> String {
    let label = |key| object::label(node, key).unwrap_or("-");
    let tainted = object::items(node, &["spec", "taints"])
        .iter()
        .any(|taint| taint["key"] == plimsoll_model::names::taint::DISRUPTED);
    let state = match (tainted || object::is_deleting(node), object::condition_is_true(node, "Ready")) {
        (true, _) => "leaving",
        (false, true) => "ready",
        (false, false) => "booting",
    };
    format!(
        "{:<44} {:<14} {:<16} {:<10} {state:<8} {}",
        object::name(node),
        label(label::INSTANCE_TYPE),
        label(label::ZONE),
        label(label::CAPACITY_TYPE),
        counted(pods, "pod")
    )
}

fn bar(running: usize, pending: usize) -> String {
    let all = (running + pending).max(1);
    let filled = (running * BAR).div_ceil(all).min(BAR);
    format!("[{}{}]", "#".repeat(filled), ".".repeat(BAR - filled))
}

/// A number with a noun, such as `1 pod` and `2 pods`.
pub(super) fn counted(number: usize, thing: &str) -> String {
    let ending = if number == 1 { "" } else { "s" };
    format!("{number} {thing}{ending}")
}

/// Simulated time since the start, as `mm:ss.t`.
pub(super) fn clock(time: Duration) -> String {
    let tenths = time.as_millis() / 100;
    format!("{:02}:{:02}.{}", tenths / 600, tenths / 10 % 60, tenths % 10)
}

/// A readable duration.
pub(super) fn seconds(time: Duration) -> String {
    if time < Duration::from_secs(1) {
        format!("{} ms", time.as_millis())
    } else {
        format!("{:.1} s", time.as_secs_f64())
    }
}

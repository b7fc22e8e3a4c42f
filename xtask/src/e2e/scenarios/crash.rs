//! kill -9 during a scale-up of more than 20 nodes: at the end all pods run and nothing was launched twice.

use super::super::objects;
use super::super::{Context, Figure, PROGRESS};
use crate::harness::audit;
use crate::harness::kubectl::instance_of;
use crate::harness::services::Kind;
use crate::harness::wait::{Poll, until};
use crate::harness::world::World;
use anyhow::{Result, ensure};
use serde_json::json;
use std::collections::BTreeSet;
use std::time::{Duration, Instant};

/// One pod per node.
const MILLIS: u32 = 1500;
/// Number of pods before and after the crash.
const FIRST: usize = 20;
const ALL: usize = 24;
/// Time for the lease to expire, and for calls of the crashed process to complete.
const RECOVERED: Duration = Duration::from_secs(240);
const CALLED: Duration = Duration::from_secs(60);

/// State of the call when the process crashes.
#[derive(Clone, Copy, Debug)]
enum Point {
    /// The claim is written; EC2 never receives the call.
    ClaimWritten,
    /// The call is in flight; EC2 executes it after the crash.
    FleetCalled,
    /// EC2 has executed the call; the response is lost.
    AnswerLost,
}

impl Point {
    fn fault(self) -> &'static str {
        match self {
            Point::ClaimWritten | Point::FleetCalled => "hold-request",
            Point::AnswerLost => "hold-answer",
        }
    }

    fn held(self) -> &'static str {
        match self {
            Point::ClaimWritten | Point::FleetCalled => "held-request",
            Point::AnswerLost => "held-answer",
        }
    }
}

pub(super) fn watcher(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_pool()?;
    let index = world.leader(Kind::Watcher)?;
    round(world, "watched", index, Point::FleetCalled).map(|figure| vec![figure])
}

pub(super) fn scheduler(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_pool()?;
    let mut figures = Vec::new();
    // One of the two has the session. Both are killed in turn, so that it is hit.
    let first = world.services()?.first(Kind::Scheduler)?;
    for (app, index) in [("planned-a", first), ("planned-b", first + 1)] {
        figures.push(round(world, app, index, Point::FleetCalled)?);
    }
    Ok(figures)
}

pub(super) fn actuator(_: &Context, world: &mut World) -> Result<Vec<Figure>> {
    world.apply_pool()?;
    let mut figures = Vec::new();
    for (app, point) in [
        ("claim-written", Point::ClaimWritten),
        ("fleet-called", Point::FleetCalled),
        ("answer-lost", Point::AnswerLost),
    ] {
        let index = world.leader(Kind::Actuator)?;
        figures.push(round(world, app, index, point)?);
    }
    Ok(figures)
}

/// Scales up, kills the process while the first call is held, scales up further, restarts the process, and counts.
fn round(world: &mut World, app: &'static str, victim: usize, point: Point) -> Result<Figure> {
    let launched_before = world.cloud.instances()?.len();
    let seen = world.cloud.last_call()?;
    world.cloud.faults(&json!({"calls": [{"action": "CreateFleet", "do": point.fault(), "times": 1}]}))?;
    world.cluster.kubectl.apply(&objects::deployment(app, FIRST, MILLIS))?;
    until("a CreateFleet is held", world.with_slack(CALLED), || {
        let calls = world.cloud.calls("CreateFleet", seen)?;
        let held = calls.iter().any(|c| c.state == point.held());
        Ok(if held { Poll::Yes(()) } else { Poll::NotYet(format!("{} calls", calls.len())) })
    })?;
    let begun = Instant::now();
    let name = world.services()?.kill(victim)?;
    PROGRESS.say(&format!("  {name} killed at {point:?}"));
    world.cloud.release(matches!(point, Point::ClaimWritten))?;
    world.scale(app, ALL)?;
    world.services()?.up(victim)?;
    let nodes = world.wait_ready(app, ALL, RECOVERED)?;
    let took = begun.elapsed();
    ensure!(nodes.len() == ALL, "{ALL} pods run on {} nodes, but a node fits only one", nodes.len());
    settled(world)?;
    let launched = world.cloud.instances()?.len() - launched_before;
    // The successor of a pod may get another node while the pod terminates on its own.
    let replaced = audit::deleted_by_node_controller(&world.cluster.audit()?, app);
    ensure!(
        (ALL..=ALL + replaced).contains(&launched),
        "{launched} instances were launched for {ALL} pods, of which the node controller deleted {replaced}"
    );
    Ok((
        app,
        format!("{name} killed at {point:?}; {ALL} pods ready {:.1} s later, {launched} instances", took.as_secs_f64()),
    ))
}

/// Checks that instances, claims and nodes agree, over the whole history and now.
pub(super) fn settled(world: &World) -> Result<()> {
    let ever = world.cloud.instances()?.len();
    let claims = audit::launched_claims(&world.cluster.audit()?).len();
    ensure!(ever == claims, "{ever} instances were ever launched, {claims} claims were ever Launched");
    let living: BTreeSet<_> = world.cloud.living()?.into_iter().map(|i| i.id).collect();
    let nodes: BTreeSet<_> = world.nodes()?.iter().filter_map(|n| instance_of(n).map(str::to_owned)).collect();
    let unmatched: Vec<_> = living.symmetric_difference(&nodes).collect();
    ensure!(unmatched.is_empty(), "instances without node, or nodes without instance: {unmatched:?}");
    Ok(())
}

impl World {
    fn leader(&mut self, kind: Kind) -> Result<usize> {
        let kubectl = self.cluster.kubectl.clone();
        self.services()?.leader(kind, &kubectl)
    }

    /// Applies manifests/pool.yaml with the name of this cluster.
    pub(in crate::e2e) fn apply_pool(&self) -> Result<()> {
        self.cluster.kubectl.apply(&self.pool_manifest())
    }

    /// manifests/pool.yaml with the name of this cluster.
    pub(in crate::e2e) fn pool_manifest(&self) -> String {
        include_str!("../manifests/pool.yaml").replace("CLUSTER", &self.cloud.cluster)
    }
}

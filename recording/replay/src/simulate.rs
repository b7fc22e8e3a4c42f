//! Simulates the recorded period with other NodePools.
//!
//! The workload is the recorded one: how many pods of each shape exist at each moment. The nodes are those that plans
//! launch and remove from the first snapshot on. New nodes boot in a fixed time, and pods go where kube-scheduler would
//! put them. Interruptions, failed launches, drift and manual changes of the recorded period are not simulated, apart
//! from offerings without capacity.

mod cluster;
mod planning;
mod workload;

use crate::figures::{Figures, Meter, Prices};
use crate::{ReplayError, open};
use cluster::Cluster;
use planning::Planning;
use plimsoll_model::catalog::{Catalog, reservation_resource};
use plimsoll_model::execution::OutcomeStatus;
use plimsoll_model::identity::{ActionId, CatalogId, NodePoolName, PodUid};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{Node, NodePool, NodeState, PodState, ReservationCount, Snapshot, UnavailableOffering};
use plimsoll_model::time::{Millis, Timestamp};
use plimsoll_recording::Step;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::ControlFlow;
use std::path::PathBuf;

/// Nodes of a NodePool.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct PoolNodes {
    /// Nodes in service.
    pub in_service: u32,
    /// Nodes among them that are being removed.
    pub leaving: u32,
}

/// Time from a plan to the next one at the least: the watcher's snapshots have times of whole seconds. A simulation in
/// which something happens all the time makes at most this many plans.
const STEP: Millis = Millis::from_seconds(1);

/// How long after its last plan an action may be accepted. The watcher plans an action again after seconds.
const REPORTED_WITHIN: Millis = Millis::from_seconds(3600);

/// Returns the NodePools at the time of a snapshot, which has only its time and the recorded NodePools, given the
/// simulated nodes of each. Only the allowed disruptions may depend on these nodes.
pub type Pools<'a> = &'a dyn Fn(&Snapshot, &BTreeMap<NodePoolName, PoolNodes>) -> Vec<NodePool>;

/// What a recorded period cost, and what it would have cost.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Comparison {
    /// Name of the cluster.
    pub cluster: String,
    /// Times of the first and the last plan.
    pub period: Option<(Timestamp, Timestamp)>,
    /// Number of recorded plans.
    pub plans: usize,
    /// Files that end in the middle of an entry.
    pub truncated: Vec<PathBuf>,
    /// As recorded.
    pub recorded: Figures,
    /// Simulated with the recorded NodePools. Differences to `recorded` show how exact the simulation is.
    pub same_pools: Figures,
    /// Simulated with the other NodePools.
    pub other_pools: Figures,
}

/// Simulates the period of the files with `pools`. New nodes take `boot` from purchase to service. Calls `progress`
/// with the number of recorded plans so far, which may end the simulation there.
///
/// # Errors
/// If a file cannot be read.
pub fn compare(
    files: &[PathBuf],
    pools: Pools<'_>,
    boot: Millis,
    mut progress: impl FnMut(usize) -> ControlFlow<()>,
) -> Result<Comparison, ReplayError> {
    let mut recorded = Recorded::default();
    let (mut same, mut other) = (Simulation::new(boot), Simulation::new(boot));
    let (mut cluster, mut period, mut plans, mut truncated) = (String::new(), None, 0, Vec::new());
    'files: for file in files {
        let mut reader = open(file, &mut cluster)?;
        while let Some(step) = reader.next_step()? {
            match step {
                Step::Restarted => {}
                Step::Reported { outcome, .. } => {
                    if outcome.status == OutcomeStatus::Accepted {
                        recorded.accepted(&outcome.action_id);
                    }
                }
                Step::Planned(planned) => {
                    let Some((snapshot, _)) = reader.snapshot() else { continue };
                    let (catalogs, options) = (reader.catalogs(), &planned.options);
                    recorded.observe(snapshot, catalogs);
                    recorded.planned(snapshot.now, &planned.plan);
                    std::thread::scope(|scope| {
                        scope.spawn(|| same.follow(snapshot, catalogs, &|at, _| at.node_pools.clone(), options));
                        other.follow(snapshot, catalogs, pools, options);
                    });
                    let first = period.map_or(snapshot.now, |(first, _)| first);
                    period = Some((first, snapshot.now));
                    plans += 1;
                    if progress(plans).is_break() {
                        break 'files;
                    }
                }
            }
        }
        if reader.is_truncated() {
            truncated.push(file.clone());
        }
    }
    Ok(Comparison {
        cluster,
        period,
        plans,
        truncated,
        recorded: recorded.meter.figures,
        same_pools: same.meter.figures,
        other_pools: other.meter.figures,
    })
}

/// Figures of the recorded cluster.
#[derive(Default)]
struct Recorded {
    meter: Meter,
    /// Pods that were bound once, in order. They wait no more, also if they move.
    bound: Vec<PodUid>,
    /// Actions of the last plans, each with the time of its last plan, and with the pods that a removal evicts, `None`
    /// for a launch. An action is planned again until it is accepted.
    actions: BTreeMap<ActionId, (Timestamp, Option<usize>)>,
}

impl Recorded {
    /// `snapshot` is in canonical order.
    fn observe(&mut self, snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>) {
        self.meter.pass(snapshot.now);
        let mut waiting = 0;
        // Both lists are in the order of UIDs, so that one pass is enough. Pods that are gone are forgotten.
        let mut known = std::mem::take(&mut self.bound).into_iter().peekable();
        for pod in &snapshot.pods {
            while known.next_if(|uid| *uid < pod.uid).is_some() {}
            let was_bound = known.next_if(|uid| *uid == pod.uid);
            let counts = pod.buffer.is_none() && pod.moves();
            let is_bound = counts && matches!(pod.state, PodState::Bound(_));
            waiting += usize::from(counts && !is_bound && was_bound.is_none());
            self.bound.extend(was_bound.or_else(|| is_bound.then(|| pod.uid.clone())));
        }
        self.meter.set(snapshot.nodes.iter(), &Prices::new(&snapshot.node_pools, catalogs), waiting);
    }

    fn planned(&mut self, now: Timestamp, plan: &Plan) {
        self.actions.retain(|_, (planned, _)| now.since(*planned) <= REPORTED_WITHIN);
        let launches = plan.launches.iter().map(|launch| (launch.action_id.clone(), (now, None)));
        let removals = plan.terminations.iter().map(|one| (one.action_id.clone(), (now, Some(one.pods.len()))));
        self.actions.extend(launches.chain(removals));
    }

    fn accepted(&mut self, action: &ActionId) {
        let figures = &mut self.meter.figures;
        match self.actions.remove(action) {
            Some((_, Some(evicted))) => {
                figures.removed += 1;
                figures.evicted += evicted;
            }
            Some((_, None)) => figures.launched += 1,
            // Accepted before the recording began.
            None => {}
        }
    }
}

/// Is told of each plan of a simulation, with what the plan was made for.
pub type Observer<'a> = &'a mut (dyn FnMut(Snapshot, &PlanOptions, &Plan) + Send);

/// A simulated cluster that follows a workload.
pub struct Simulation<'a> {
    cluster: Cluster,
    meter: Meter,
    observer: Option<Observer<'a>>,
    planning: Planning,
    /// Number of plans.
    plans: u64,
    /// Time of the last step.
    now: Timestamp,
    /// Which plan has something to do that was not planned yet.
    due: Due,
    /// When there may be something to do by time alone.
    next_time: Option<Timestamp>,
    /// Plans may remove nodes, as some recorded plan could.
    removes: bool,
}

/// Plans that have something to do. The watcher makes many plans without removals, since those take less time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Due {
    None,
    /// Plans with removals.
    Removals,
    /// All plans.
    Any,
}

impl<'a> Simulation<'a> {
    /// Begins without a cluster. New nodes take `boot` from purchase to service.
    #[must_use]
    pub fn new(boot: Millis) -> Self {
        Self {
            cluster: Cluster::new(boot),
            meter: Meter::default(),
            observer: None,
            planning: Planning::default(),
            plans: 0,
            now: Timestamp(0),
            due: Due::None,
            next_time: None,
            removes: false,
        }
    }

    /// Tells `observer` of each plan.
    #[must_use]
    pub fn observed(self, observer: Observer<'a>) -> Self {
        Self { observer: Some(observer), ..self }
    }

    /// What the period has cost so far.
    #[must_use]
    pub fn figures(&self) -> Figures {
        self.meter.figures
    }

    /// Moves on to the time of a snapshot and takes over its workload: how many pods of each kind there are. The first
    /// snapshot also has the nodes to begin with.
    pub fn follow(
        &mut self,
        recorded: &Snapshot,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        pools: Pools<'_>,
        options: &PlanOptions,
    ) {
        // Nodes kept by the recorded plan are others.
        let options = &PlanOptions { kept_nodes: BTreeSet::new(), ..options.clone() };
        self.removes |= options.disruption;
        let between = PlanOptions { disruption: self.removes, ..options.clone() };
        while let Some(now) = self.next_step().filter(|now| *now < recorded.now) {
            let moment = Moment { now, recorded, catalogs, pools };
            self.pass(&moment);
            self.plan(&moment, &between);
        }
        let moment = Moment { now: recorded.now, recorded, catalogs, pools };
        self.pass(&moment);
        if self.cluster.follow(recorded) {
            self.due = Due::Any;
        }
        self.plan(&moment, options);
    }

    /// When there is something to do before the recorded workload changes.
    fn next_step(&self) -> Option<Timestamp> {
        let soon = self.now.plus(STEP);
        let steps = [self.cluster.next_ready(), self.next_time, self.is_due(self.removes).then_some(soon)];
        steps.into_iter().flatten().min().map(|at| at.max(soon))
    }

    fn is_due(&self, removals: bool) -> bool {
        self.due >= if removals { Due::Removals } else { Due::Any }
    }

    /// Moves on to the moment.
    fn pass(&mut self, moment: &Moment<'_>) {
        self.meter.pass(moment.now);
        self.now = moment.now;
        let has_booted = self.cluster.boot(moment, &mut self.meter.figures);
        if has_booted || self.next_time.take_if(|next| *next <= moment.now).is_some() {
            self.due = Due::Any;
        }
    }

    fn plan(&mut self, moment: &Moment<'_>, options: &PlanOptions) {
        let nodes = self.cluster.pool_nodes();
        let at = Snapshot { now: moment.now, node_pools: moment.node_pools(&nodes), ..Snapshot::default() };
        let pools = (moment.pools)(&at, &nodes);
        if self.cluster.delete_nodes_without_pool(&pools) {
            self.due = Due::Any;
        }
        if self.is_due(options.disruption) {
            // Binding pods changes no node, so both see the same NodePools.
            self.cluster.schedule(moment, &pools);
            self.plans += 1;
            let snapshot = Snapshot { sequence: self.plans, ..self.cluster.snapshot(moment, &pools) };
            let (snapshot, plan) = self.planning.plan(snapshot, moment.catalogs, options);
            self.next_time = plan.next_time;
            // What the plan starts is part of the next snapshot, for which there may be more to do.
            let has_changed = self.cluster.carry_out(moment, snapshot, &plan, &mut self.meter.figures);
            self.due = match (has_changed, options.disruption) {
                (true, _) => Due::Any,
                (false, true) => Due::None,
                (false, false) => Due::Removals,
            };
            if let Some(observer) = &mut self.observer {
                observer(snapshot.clone(), options, &plan);
            }
        }
        self.meter.set(self.cluster.nodes(), &Prices::new(&pools, moment.catalogs), self.cluster.waiting());
    }
}

/// A moment of the simulation, and what is taken from the recording.
struct Moment<'a> {
    now: Timestamp,
    recorded: &'a Snapshot,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    pools: Pools<'a>,
}

impl Moment<'_> {
    /// The recorded NodePools. Their budgets count the `simulated` nodes that are being removed instead of the recorded
    /// ones.
    fn node_pools(&self, simulated: &BTreeMap<NodePoolName, PoolNodes>) -> Vec<NodePool> {
        let recorded = pool_nodes(self.recorded.nodes.iter());
        let leaving = |nodes: &BTreeMap<NodePoolName, PoolNodes>, pool: &NodePoolName| {
            nodes.get(pool).map_or(0, |nodes| nodes.leaving)
        };
        let mut pools = self.recorded.node_pools.clone();
        for pool in &mut pools {
            let (recorded, simulated) = (leaving(&recorded, &pool.name), leaving(simulated, &pool.name));
            // It is not known whether a budget that allows none is used up or does not allow any.
            for allowed in pool.disruption.allowed.values_mut().filter(|allowed| **allowed > 0) {
                *allowed = allowed.saturating_add(recorded).saturating_sub(simulated);
            }
        }
        pools
    }

    /// Free instances of capacity reservations, if the simulated `nodes` hold theirs instead of the recorded nodes.
    /// Nodes that are not launched yet are among the free ones.
    fn reservations<'n>(&self, nodes: impl Iterator<Item = &'n Node>) -> Vec<ReservationCount> {
        let mut reservations = self.recorded.reservations.clone();
        if reservations.is_empty() {
            return reservations;
        }
        let (recorded, simulated) = (reserved(self.recorded.nodes.iter()), reserved(nodes));
        for one in &mut reservations {
            let count = |held: &BTreeMap<&str, u32>| held.get(one.id.as_str()).copied().unwrap_or_default();
            one.free = one.free.saturating_add(count(&recorded)).saturating_sub(count(&simulated));
        }
        reservations
    }

    /// The recorded offerings without capacity, which may be tried again at the recorded time.
    fn unavailable_offerings(&self) -> Vec<UnavailableOffering> {
        let mut offerings = self.recorded.unavailable_offerings.clone();
        let more = self.recorded.now.since(self.now);
        offerings.iter_mut().for_each(|one| one.remaining = Millis(one.remaining.0.saturating_add(more.0)));
        offerings
    }
}

/// Nodes of each NodePool.
fn pool_nodes<'n>(nodes: impl Iterator<Item = &'n Node>) -> BTreeMap<NodePoolName, PoolNodes> {
    let mut pools: BTreeMap<NodePoolName, PoolNodes> = BTreeMap::new();
    for node in nodes.filter(|node| node.state == NodeState::Initialized) {
        let Some(pool) = &node.node_pool else { continue };
        let nodes = pools.entry(pool.clone()).or_default();
        nodes.in_service += 1;
        nodes.leaving += u32::from(node.deleting);
    }
    pools
}

/// How many instances of each capacity reservation the nodes hold, beside those that they count in `limit_usage`.
fn reserved<'n>(nodes: impl Iterator<Item = &'n Node>) -> BTreeMap<&'n str, u32> {
    let mut held: BTreeMap<&str, u32> = BTreeMap::new();
    for node in nodes {
        let Some(id) = node.labels.get(label::CAPACITY_RESERVATION_ID) else { continue };
        if node.limit_usage.get(&reservation_resource(id)) == 0 {
            *held.entry(id.as_str()).or_default() += 1;
        }
    }
    held
}

#[cfg(test)]
mod tests;

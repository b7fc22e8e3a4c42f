//! Repairs a finished plan by named moves, with one driver and one work budget.

mod edit;
pub(crate) mod fill_nodes;
mod give_up_domains;
mod host_skew;
pub(crate) mod moves;
pub(crate) mod narrow;
pub(crate) mod projection;
pub(crate) mod replay;
mod work;

use moves::{Move, Moves};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, PodUid, ShapeId};
use plimsoll_model::names::label;
use plimsoll_model::overlay;
use plimsoll_model::plan::{Launch, Plan, Reason, ReasonCode, Unschedulable};
use plimsoll_model::snapshot::{NodePool, Pod, PodShape, PodState, Snapshot};
use std::cell::OnceCell;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
pub(crate) use work::Work;

/// Largest cluster, in pods and nodes, in which every unplaced pod is planned again for the nodes of the plan; takes
/// some milliseconds. In larger clusters the next plan does so.
const PODS: usize = 1_000;
const NODES: usize = 200;
/// Reason of a pod without which a plan places more pods.
const LEFT_FOR_OTHERS: &str =
    "a place for this pod would leave more other pods without one, because of their topology constraints";

/// Snapshot and catalogs with NodeOverlays and node costs applied, once they are needed; `None` if nothing changes.
pub(crate) type Overlaid = OnceCell<Option<(Snapshot, BTreeMap<CatalogId, Catalog>)>>;

/// Snapshot and catalogs of a plan.
#[derive(Clone, Copy)]
pub(crate) struct Inputs<'a> {
    pub(crate) snapshot: &'a Snapshot,
    pub(crate) catalogs: &'a BTreeMap<CatalogId, Catalog>,
    /// Of this or another snapshot with the same NodePools.
    pub(crate) overlaid: &'a Overlaid,
}

impl<'a> Inputs<'a> {
    /// NodePools and catalogs with NodeOverlays and node costs applied, if these change anything.
    fn changed(self) -> Option<(&'a [NodePool], &'a BTreeMap<CatalogId, Catalog>)> {
        let overlaid = self.overlaid.get_or_init(|| overlay::applied(self.snapshot, self.catalogs)).as_ref();
        overlaid.map(|(snapshot, catalogs)| (snapshot.node_pools.as_slice(), catalogs))
    }

    /// The catalog that the launch uses.
    pub(crate) fn catalog_of(self, launch: &Launch) -> Option<&'a Catalog> {
        let (pools, catalogs) = self.changed().unwrap_or((self.snapshot.node_pools.as_slice(), self.catalogs));
        let pool = pools.iter().find(|pool| pool.name == launch.node_pool)?;
        catalogs.get(pool.catalog.as_ref()?)
    }

    /// A copy of the snapshot whose nodes have what NodeOverlays define.
    pub(crate) fn with_raised_nodes(self) -> Snapshot {
        let mut snapshot = self.snapshot.clone();
        if let Some((pools, catalogs)) = self.changed() {
            overlay::raise_amounts(&mut snapshot.nodes, pools, catalogs);
        }
        snapshot
    }

    /// Whether the plan violates none of its invariants.
    pub(super) fn is_valid(self, plan: &Plan) -> bool {
        plimsoll_invariants::check(self.snapshot, self.catalogs, plan).is_empty()
    }
}

/// How a further plan is computed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Variant {
    /// Like the original plan.
    Same,
    /// No node is removed.
    KeepingNodes,
    /// No node is removed, and pods are assigned evenly to domain tuples.
    Evenly,
}

pub(crate) type ReplanFn<'a> = &'a dyn Fn(&Snapshot, Variant) -> Plan;

/// The moves of one plan, their work budget, and a function to plan again.
pub(crate) struct Repair<'a> {
    pub(crate) inputs: Inputs<'a>,
    pub(crate) moves: &'a Moves,
    pub(crate) work: &'a Work<'a>,
    pub(crate) replan: ReplanFn<'a>,
}

/// A move for unplaced pods, with its function.
type PlacingMove = (Move, fn(&mut Best<'_>));

/// Moves for unplaced pods, in order.
const PLACE_MORE: [PlacingMove; 3] = [
    (Move::GiveUpDomains, give_up_domains::give_up),
    (Move::RaiseHostSkew, host_skew::raise),
    (Move::FillNodes, fill_nodes::fill),
];

impl Repair<'_> {
    /// Returns the best plan that the moves reach from `plan`, which must be valid, and whether it differs from `plan`.
    /// A plan that differs has no lower bound. Without `replays`, pods stay on their nodes.
    pub(crate) fn run(&self, plan: Plan, replays: bool) -> (Plan, bool) {
        let before = plan.unschedulable.clone();
        let plan = self.place_more(plan, &PLACE_MORE);
        let changed = plan.unschedulable != before;
        let better = if replays { replay::improve(self, &plan) } else { None };
        let Some(better) = better else { return (plan, changed) };
        // The better plan may have larger or more nodes.
        (self.place_more(better, &[(Move::FillNodes, fill_nodes::fill)]), true)
    }

    /// Applies moves for unplaced pods, each with half of the work that is left. The result leaves no more pods
    /// unplaced than `plan`. It may leave pods that `plan` places, but not for pods of lower priority.
    fn place_more(&self, plan: Plan, moves: &[PlacingMove]) -> Plan {
        if unplaced_pods(self.inputs.snapshot, &plan).is_empty() {
            return plan;
        }
        let mut best = Best { repair: self, inputs: self.inputs, plan, changed_snapshot: None };
        for (_, step) in moves.iter().filter(|(one, _)| self.moves.has(*one)) {
            let aside = self.work.set_half_aside(self.inputs.snapshot);
            step(&mut best);
            self.work.give_back(aside);
        }
        best.plan
    }

    /// Computes the plan for another snapshot; `None` if no work is left.
    fn plan_as(&self, snapshot: &Snapshot, variant: Variant) -> Option<Plan> {
        self.work.spend_plan(snapshot).then(|| (self.replan)(snapshot, variant))
    }

    fn plan_keeping_nodes(&self, snapshot: &Snapshot) -> Option<Plan> {
        self.plan_as(snapshot, Variant::KeepingNodes)
    }
}

fn is_small(snapshot: &Snapshot) -> bool {
    snapshot.pods.len() <= PODS && snapshot.nodes.len() <= NODES
}

/// The best plan so far.
struct Best<'a> {
    repair: &'a Repair<'a>,
    inputs: Inputs<'a>,
    plan: Plan,
    /// The snapshot that the plan was computed for, if it was changed.
    changed_snapshot: Option<Snapshot>,
}

/// Result of an attempt to improve the plan.
enum Attempt {
    Accepted,
    /// The plan that was computed.
    Rejected(Box<Plan>),
    /// No plan was computed: the work budget is spent.
    OutOfWork,
}

impl Best<'_> {
    /// A copy of the snapshot that the plan was computed for.
    fn start(&self) -> Snapshot {
        self.changed_snapshot.as_ref().unwrap_or(self.inputs.snapshot).clone()
    }

    /// Computes a plan for a changed snapshot. Accepts it if it leaves fewer pods unplaced or, if it `may_equal`, as
    /// many, if none of them replaces a pod of lower priority, and if it is valid for the original snapshot.
    fn attempt(&mut self, changed_snapshot: Snapshot, may_equal: bool) -> Attempt {
        let Some(tried) = self.plan_for(&changed_snapshot) else { return Attempt::OutOfWork };
        if !(self.leaves_fewer(&tried, may_equal) || self.places_more(&tried)) || !self.is_acceptable(&tried) {
            return Attempt::Rejected(Box::new(tried));
        }
        (self.plan, self.changed_snapshot) = (tried, Some(changed_snapshot));
        Attempt::Accepted
    }

    fn plan_for(&self, snapshot: &Snapshot) -> Option<Plan> {
        let mut tried = self.repair.plan_as(snapshot, Variant::Same)?;
        // The change may have removed unplaced pods.
        let known = self.plan.unschedulable.iter().filter(|one| snapshot.pod(&one.pod.uid).is_none());
        tried.unschedulable.extend(known.cloned());
        tried.unschedulable.sort();
        let mut plan = with_reports_of(tried, &self.plan);
        self.explain_left(&mut plan);
        Some(plan)
    }

    /// Explains why `plan` leaves pods that the current plan places. It was made for a changed snapshot, so its own
    /// reasons may name requirements that do not exist.
    fn explain_left(&self, plan: &mut Plan) {
        let snapshot = self.inputs.snapshot;
        let known: BTreeSet<&PodUid> = self.plan.unschedulable.iter().map(|one| &one.pod.uid).collect();
        let of_shape = |one: &Unschedulable| Some((&snapshot.pod(&one.pod.uid)?.shape, Arc::clone(&one.reasons)));
        let by_shape: BTreeMap<&ShapeId, Arc<Vec<Reason>>> =
            self.plan.unschedulable.iter().filter_map(of_shape).collect();
        let for_others = Arc::new(vec![Reason {
            node_pool: String::new(),
            code: ReasonCode::TopologyUnsatisfiable,
            message: LEFT_FOR_OTHERS.to_owned(),
        }]);
        for one in &mut plan.unschedulable {
            let Some(pod) = snapshot.pod(&one.pod.uid).filter(|pod| !pod.is_virtual()) else { continue };
            if !known.contains(&pod.uid) {
                one.reasons = Arc::clone(by_shape.get(&pod.shape).unwrap_or(&for_others));
            }
        }
    }

    /// Accepts a plan that was derived from the current one, if it is valid and leaves only some of the pods unplaced
    /// that are unplaced now.
    fn accept(&mut self, plan: Plan) -> bool {
        let accepted = self.leaves_fewer(&plan, false) && self.is_acceptable(&plan);
        if accepted {
            self.plan = plan;
        }
        accepted
    }

    fn leaves_fewer(&self, plan: &Plan, may_equal: bool) -> bool {
        let snapshot = self.inputs.snapshot;
        let (unplaced, known) = (unplaced_pods(snapshot, plan), unplaced_pods(snapshot, &self.plan));
        (may_equal || unplaced.len() < known.len()) && unplaced.is_subset(&known)
    }

    /// Whether the plan places more pods than the current one, although it leaves pods that the current one places:
    /// none of these has a higher priority than a pod that it places instead.
    fn places_more(&self, plan: &Plan) -> bool {
        let snapshot = self.inputs.snapshot;
        let (unplaced, known) = (unplaced_pods(snapshot, plan), unplaced_pods(snapshot, &self.plan));
        let priorities: BTreeMap<&ShapeId, i32> =
            snapshot.shapes.iter().map(|shape| (&shape.id, shape.priority)).collect();
        let priority = |uid: &&PodUid| priorities.get(&snapshot.pod(uid)?.shape).copied();
        let highest_lost = unplaced.difference(&known).copied().filter_map(|uid| priority(&uid)).max();
        let lowest_gained = known.difference(&unplaced).copied().filter_map(|uid| priority(&uid)).min();
        unplaced.len() < known.len() && highest_lost <= lowest_gained
    }

    fn is_acceptable(&self, plan: &Plan) -> bool {
        let snapshot = self.inputs.snapshot;
        let uneven = |plan: &Plan| projection::uneven(snapshot, &projection::project(self.inputs, plan));
        let owners = unplaced_by_shape(snapshot, &self.plan);
        let mut then = uneven(plan);
        then.retain(|shape| owners.contains_key(shape));
        // A spread may also be uneven because of pods that it counts but does not bind.
        (then.is_empty() || then.is_subset(&uneven(&self.plan))) && self.inputs.is_valid(plan)
    }
}

fn shapes_of_pods(snapshot: &Snapshot) -> BTreeMap<&PodUid, &PodShape> {
    let shapes: BTreeMap<&ShapeId, &PodShape> = snapshot.shapes.iter().map(|shape| (&shape.id, shape)).collect();
    snapshot.pods.iter().filter_map(|pod| Some((&pod.uid, *shapes.get(&pod.shape)?))).collect()
}

/// Whether required constraints make pods of the shape depend on the placement of other pods.
fn depends_on_others(shape: &PodShape) -> bool {
    shape.topology_spread.iter().any(|one| one.required)
        || shape.pod_affinity.iter().any(|one| !one.anti && one.weight.is_none())
}

/// Pending pods that the plan leaves unplaced, counted by shape.
fn unplaced_by_shape<'a>(snapshot: &'a Snapshot, plan: &Plan) -> BTreeMap<&'a ShapeId, usize> {
    let unplaced = unplaced_pods(snapshot, plan);
    let mut shapes = BTreeMap::new();
    for pod in snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending && unplaced.contains(&pod.uid)) {
        *shapes.entry(&pod.shape).or_default() += 1;
    }
    shapes
}

/// Topology keys of the shape's spreads other than the hostname. If `required`, only those of required constraints.
fn spread_over(shape: &PodShape, required: bool) -> BTreeSet<&str> {
    let spread = shape.topology_spread.iter().filter(|one| one.required || !required);
    spread.map(|one| label::normalized(&one.topology_key)).filter(|key| *key != label::HOSTNAME).collect()
}

/// Pods that the plan leaves unplaced, without virtual pods: these are no reason to plan again.
fn unplaced_pods<'p>(snapshot: &Snapshot, plan: &'p Plan) -> BTreeSet<&'p PodUid> {
    let is_virtual = |uid: &PodUid| snapshot.pod(uid).is_some_and(Pod::is_virtual);
    plan.unschedulable.iter().map(|one| &one.pod.uid).filter(|uid| !is_virtual(uid)).collect()
}

/// `plan` with the reasons and pool problems of `known`, which was computed for the unchanged snapshot.
pub(crate) fn with_reports_of(mut plan: Plan, known: &Plan) -> Plan {
    let mut reported = known.unschedulable.clone();
    let unplaced: BTreeSet<&PodUid> = plan.unschedulable.iter().map(|one| &one.pod.uid).collect();
    reported.retain(|one| unplaced.contains(&one.pod.uid));
    // The plans may leave different virtual pods.
    let known_uids: BTreeSet<PodUid> = reported.iter().map(|one| one.pod.uid.clone()).collect();
    reported.extend(plan.unschedulable.into_iter().filter(|one| !known_uids.contains(&one.pod.uid)));
    reported.sort();
    plan.unschedulable = reported;
    plan.pool_problems.clone_from(&known.pool_problems);
    plan
}

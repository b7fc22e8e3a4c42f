//! Replaces a plan that failed by one without the pods that make it fail, so that an error of the planner costs only
//! those pods and not every pod of the cluster.
//!
//! An invalid plan names pods. For a panic, a time-out, and an invalid plan that names none, the pods are found by a
//! binary search over the shapes of the pods to place: pending pods, and pods that leave nodes which are being deleted.

use super::{InvalidPlan, PlanFailure, validate};
use plimsoll_invariants::Violation;
use plimsoll_model::catalog::{Catalog, reservation_of_resource};
use plimsoll_model::identity::{CatalogId, NodeName, ShapeId};
use plimsoll_model::plan::{Launch, OfferingChoice, Plan, PodRef, Reason, ReasonCode, Termination, Unschedulable};
use plimsoll_model::snapshot::{Pod, PodState, Snapshot, SnapshotIndex};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum rounds, each of which excludes at least one more shape. More shapes are excluded by the next plans, and
/// until then the shapes after them in the search have no place.
const MAX_ROUNDS: usize = 8;

/// Attempts that share the remaining time if removals are left out first: a third is enough for such a plan.
pub(crate) const SEARCH_ATTEMPTS: u32 = 3;

/// Why a pod has no place although its shape is not known to make plans fail.
const SEARCHING: &str = "left out for now, because the planner fails for too many other pods";

/// Why shapes are left out of plans.
pub(crate) type Excluded = BTreeMap<ShapeId, PlanFailure>;

/// Makes the plan for a snapshot without the excluded pods. The number says how many attempts may follow at most,
/// including this one, before the next valid plan.
pub(crate) type Attempt<'f> = dyn FnMut(&Snapshot, &SnapshotIndex, u32) -> Result<Plan, PlanFailure> + 'f;

/// A plan that failed.
#[derive(Debug)]
pub(crate) struct Failed {
    /// The plan, if there is one.
    pub(crate) plan: Option<Box<Plan>>,
    pub(crate) failure: PlanFailure,
    /// The plan was allowed to remove nodes. The attempts after it are not.
    pub(crate) removals: bool,
}

/// Returns the plan if it is valid. `removals` is whether it was allowed to remove nodes.
pub(crate) fn validated(
    (snapshot, index): (&Snapshot, &SnapshotIndex),
    catalogs: &BTreeMap<CatalogId, Catalog>,
    plan: Plan,
    removals: bool,
) -> Result<Plan, Failed> {
    match validate(snapshot, index, catalogs, &plan) {
        Ok(()) => Ok(plan),
        Err(error) => Err(Failed { plan: Some(Box::new(plan)), failure: error.into(), removals }),
    }
}

/// A plan in place of one that failed.
#[derive(Debug)]
pub(crate) struct Replacement {
    pub(crate) plan: Plan,
    /// All shapes that plans fail for.
    pub(crate) excluded: Excluded,
    /// Whether all other pods have been planned.
    pub(crate) complete: bool,
}

/// The pods that a plan places even if it removes no node: pending pods, and pods that leave nodes which are being
/// deleted. As in the solver, protected pods that run stay there for now.
pub(crate) struct WaitingPods<'s> {
    snapshot: &'s Snapshot,
    deleting: BTreeSet<&'s NodeName>,
    /// PodDisruptionBudgets that never allow an eviction.
    blocking: BTreeSet<&'s str>,
}

impl<'s> WaitingPods<'s> {
    pub(crate) fn new(snapshot: &'s Snapshot) -> Self {
        let deleting = snapshot.nodes.iter().filter(|node| node.deleting).map(|node| &node.name).collect();
        let budgets = snapshot.pod_disruption_budgets.iter().filter(|budget| budget.fully_blocking);
        Self { snapshot, deleting, blocking: budgets.map(|budget| budget.name.as_str()).collect() }
    }

    pub(crate) fn iter(&self) -> impl Iterator<Item = &'s Pod> {
        self.snapshot.pods.iter().filter(move |pod| self.has(pod))
    }

    /// Without pending pods that need no place, such as terminating ones.
    pub(crate) fn to_report(&self) -> impl Iterator<Item = &'s Pod> {
        self.iter().filter(|pod| pod.moves())
    }

    fn has(&self, pod: &Pod) -> bool {
        match &pod.state {
            PodState::Pending => true,
            PodState::Reserved(node) => pod.moves() && self.deleting.contains(node),
            PodState::Bound(node) => {
                pod.moves() && self.deleting.contains(node) && (pod.terminating || !self.is_protected(pod))
            }
        }
    }

    fn is_protected(&self, pod: &Pod) -> bool {
        pod.do_not_disrupt_until.is_some_and(|until| until > self.snapshot.now)
            || pod.pod_disruption_budgets.iter().any(|name| self.blocking.contains(name.as_str()))
    }
}

/// Plans again without the pods that make the plan fail and all other pods to place of their shapes, which would fail
/// in the same way. The excluded pods are unschedulable in the new plan, with the failure as their reason. `excluded`
/// are the shapes that the failed plan was already without.
///
/// # Errors
/// The failure of the first plan, if plans fail without any pod to place, too, or if the time ends before there is a
/// plan. [`PlanFailure::Cancelled`] if the client is gone.
pub(crate) fn plan_without_offenders(
    (snapshot, index): (&Snapshot, &SnapshotIndex),
    catalogs: &BTreeMap<CatalogId, Catalog>,
    excluded: Excluded,
    first: Failed,
    attempt: &mut Attempt<'_>,
) -> Result<Replacement, PlanFailure> {
    let shapes = WaitingPods::new(snapshot).iter().map(|pod| &pod.shape).collect();
    let planned = BTreeSet::new();
    Search { snapshot, index, catalogs, shapes, attempt, excluded, best: None, planned }.run(first)
}

/// Appends the pods of excluded shapes to a plan that was made without them.
pub(crate) fn with_excluded(mut plan: Plan, snapshot: &Snapshot, excluded: &Excluded) -> Plan {
    add_left_out(&mut plan, snapshot, &|shape| excluded.contains_key(shape), excluded);
    plan
}

fn add_left_out(plan: &mut Plan, snapshot: &Snapshot, left_out: &dyn Fn(&ShapeId) -> bool, excluded: &Excluded) {
    let waiting = WaitingPods::new(snapshot);
    let left = waiting.to_report().filter(|pod| left_out(&pod.shape));
    plan.unschedulable.extend(left.map(|pod| unschedulable(pod, excluded)));
    plan.unschedulable.sort();
}

/// The snapshot without the pods to place of excluded shapes. All other pods of these shapes stay.
pub(crate) fn without_excluded(snapshot: &Snapshot, excluded: &dyn Fn(&ShapeId) -> bool) -> Snapshot {
    let waiting = WaitingPods::new(snapshot);
    let mut remaining = snapshot.clone();
    remaining.pods.retain(|pod| !(waiting.has(pod) && excluded(&pod.shape)));
    remaining
}

fn unschedulable(pod: &Pod, excluded: &Excluded) -> Unschedulable {
    let message = excluded.get(&pod.shape).map_or_else(|| SEARCHING.to_owned(), reason);
    Unschedulable {
        pod: PodRef { name: pod.full_name(), uid: pod.uid.clone() },
        reasons: vec![Reason { node_pool: String::new(), code: ReasonCode::NotSupported, message }].into(),
    }
}

/// Message to the owner of an excluded pod.
fn reason(failure: &PlanFailure) -> String {
    match failure {
        PlanFailure::Invalid(invalid) => {
            let violation = invalid.violations.first().map(Violation::to_string).unwrap_or_default();
            format!("left out, because the plan for pods like this one was not valid: {violation}")
        }
        PlanFailure::Panicked(message) => {
            format!("left out, because the planner panicked for pods like this one: {message}")
        }
        PlanFailure::TimedOut(limit) => {
            format!("left out, because the planner took more than {limit:?} for pods like this one")
        }
        PlanFailure::NoTimeLeft | PlanFailure::Cancelled => SEARCHING.to_owned(),
    }
}

struct Search<'a, 'f> {
    snapshot: &'a Snapshot,
    index: &'a SnapshotIndex,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    /// Shapes of the pods to place.
    shapes: BTreeSet<&'a ShapeId>,
    attempt: &'a mut Attempt<'f>,
    excluded: Excluded,
    /// The valid plan for the most shapes that a search has found.
    best: Option<Plan>,
    /// These shapes.
    planned: BTreeSet<&'a ShapeId>,
}

impl<'a> Search<'a, '_> {
    fn run(mut self, first: Failed) -> Result<Replacement, PlanFailure> {
        let (first_failure, mut failed) = (first.failure.clone(), first);
        if failed.removals {
            // Removals may be the cause, and no pod.
            match self.plan_all(SEARCH_ATTEMPTS) {
                Ok(plan) => return Ok(Replacement { plan, excluded: self.excluded, complete: true }),
                Err(Failed { failure: PlanFailure::Cancelled, .. }) => return Err(PlanFailure::Cancelled),
                Err(again) => failed = again,
            }
        }
        for _ in 0..MAX_ROUNDS {
            if !self.exclude_named(&failed) && !self.exclude_found(failed.failure)? {
                break;
            }
            match self.plan_all(1) {
                Ok(plan) => return Ok(Replacement { plan, excluded: self.excluded, complete: true }),
                Err(Failed { failure: PlanFailure::Cancelled, .. }) => return Err(PlanFailure::Cancelled),
                Err(again) => failed = again,
            }
        }
        // The next plan is made without the shapes that are excluded so far.
        let plan = self.best.ok_or(first_failure)?;
        Ok(Replacement { plan, excluded: self.excluded, complete: false })
    }

    /// Excludes the shapes that the violations of an invalid plan name. Returns whether there are any.
    fn exclude_named(&mut self, failed: &Failed) -> bool {
        let Failed { plan: Some(plan), failure: PlanFailure::Invalid(invalid), .. } = failed else { return false };
        let before = self.excluded.len();
        let waiting = WaitingPods::new(self.snapshot);
        let shapes: BTreeMap<String, &ShapeId> = waiting.iter().map(|pod| (pod.full_name(), &pod.shape)).collect();
        for violation in &invalid.violations {
            let failure = InvalidPlan { sequence: invalid.sequence, violations: vec![violation.clone()] };
            for shape in pods_of(violation, plan).iter().filter_map(|pod| shapes.get(pod)) {
                self.excluded.entry(ShapeId::clone(shape)).or_insert_with(|| failure.clone().into());
            }
        }
        self.excluded.len() > before
    }

    /// Finds a shape without which more shapes can be planned, and excludes it. Returns whether it was found. Nothing
    /// is excluded once no time is left, since such attempts do not tell which pods make plans fail.
    ///
    /// # Errors
    /// The client is gone.
    fn exclude_found(&mut self, mut failure: PlanFailure) -> Result<bool, PlanFailure> {
        if failure == PlanFailure::NoTimeLeft {
            return Ok(false);
        }
        if self.best.is_none() {
            match self.plan_first(&[], self.shapes.len()) {
                Ok(()) => {}
                Err(PlanFailure::Cancelled) => return Err(PlanFailure::Cancelled),
                // Plans also fail without any pod to place: no pod is the cause.
                Err(_) => return Ok(false),
            }
        }
        let shapes = self.shapes.iter().copied().filter(|shape| !self.excluded.contains_key(*shape));
        let shapes: Vec<&'a ShapeId> = shapes.collect();
        // There is a plan for the first `good` shapes, and none for the first `bad`.
        let mut good = shapes.iter().take_while(|shape| self.planned.contains(*shape)).count();
        let mut bad = shapes.len();
        while bad.saturating_sub(good) > 1 {
            let middle = good + (bad - good) / 2;
            match self.plan_first(shapes.get(..middle).unwrap_or_default(), bad - good) {
                Ok(()) => good = middle,
                Err(PlanFailure::Cancelled) => return Err(PlanFailure::Cancelled),
                Err(PlanFailure::NoTimeLeft) => return Ok(false),
                Err(other) => (bad, failure) = (middle, other),
            }
        }
        let Some(shape) = shapes.get(good..bad).and_then(<[&ShapeId]>::last) else { return Ok(false) };
        self.excluded.insert((*shape).clone(), failure);
        Ok(true)
    }

    /// Plans only these shapes of the pods to place, and keeps the plan. `range` is the number of shapes to search.
    fn plan_first(&mut self, shapes: &[&'a ShapeId], range: usize) -> Result<(), PlanFailure> {
        let first: BTreeSet<&'a ShapeId> = shapes.iter().copied().collect();
        let attempts = range.checked_ilog2().unwrap_or_default() + 2;
        let left_out = |shape: &ShapeId, _: &Excluded| !first.contains(shape);
        let plan = self.plan(&left_out, attempts).map_err(|failed| failed.failure)?;
        (self.best, self.planned) = (Some(plan), first);
        Ok(())
    }

    /// Plans all shapes that are not excluded.
    fn plan_all(&mut self, attempts: u32) -> Result<Plan, Failed> {
        self.plan(&|shape, excluded| excluded.contains_key(shape), attempts)
    }

    /// The valid plan without the pods to place of the shapes that are `left_out`.
    fn plan(&mut self, left_out: &dyn Fn(&ShapeId, &Excluded) -> bool, attempts: u32) -> Result<Plan, Failed> {
        let left_out = |shape: &ShapeId| left_out(shape, &self.excluded);
        let remaining = without_excluded(self.snapshot, &left_out);
        let plan = (self.attempt)(&remaining, &SnapshotIndex::new(&remaining), attempts);
        let mut plan = plan.map_err(|failure| Failed { plan: None, failure, removals: false })?;
        add_left_out(&mut plan, self.snapshot, &left_out, &self.excluded);
        validated((self.snapshot, self.index), self.catalogs, plan, false)
    }
}

/// Nodes that an invalid plan removes and that its violations are about: the removal itself, or the place of a pod.
pub(crate) fn removals_of(failed: &Failed) -> BTreeSet<NodeName> {
    let Failed { plan: Some(plan), failure: PlanFailure::Invalid(invalid), .. } = failed else {
        return BTreeSet::new();
    };
    let (mut nodes, mut pods) = (BTreeSet::new(), BTreeSet::new());
    for violation in &invalid.violations {
        pods.extend(pods_of(violation, plan));
        if let Violation::BadTermination { node, .. } | Violation::UnknownNode(node) = violation {
            nodes.insert(node.as_str());
        }
    }
    let is_meant =
        |one: &&Termination| nodes.contains(one.node.as_str()) || one.pods.iter().any(|pod| pods.contains(&pod.name));
    plan.terminations.iter().filter(is_meant).map(|one| one.node.clone()).collect()
}

/// Names of the pods that a violation is about.
fn pods_of(violation: &Violation, plan: &Plan) -> BTreeSet<String> {
    let launch_pods = |is_meant: &dyn Fn(&Launch) -> bool| -> BTreeSet<String> {
        let launches = plan.launches.iter().filter(|launch| is_meant(launch));
        launches.flat_map(|launch| &launch.pods).map(|pod| pod.name.clone()).collect()
    };
    let placed = |node: &str| -> BTreeSet<String> {
        let moves = plan.terminations.iter().flat_map(|one| &one.moved_to);
        let placements = plan.placements.iter().chain(moves).filter(|placement| placement.node.0 == node);
        placements.flat_map(|placement| &placement.pods).map(|pod| pod.name.clone()).collect()
    };
    match violation {
        Violation::PodTwice(pod)
        | Violation::UnknownPod(pod)
        | Violation::PodForgotten(pod)
        | Violation::NoReason(pod)
        | Violation::PodDoesNotFit { pod, .. } => [pod.clone()].into(),
        Violation::EmptyLaunch(action)
        | Violation::BadLaunch { launch: action, .. }
        | Violation::BadOffering { launch: action, .. } => launch_pods(&|launch| launch.action_id.0 == *action),
        Violation::UnknownPool(pool) | Violation::LimitExceeded { pool, .. } => {
            launch_pods(&|launch| launch.node_pool.0 == *pool)
        }
        Violation::Overcommitted { place, .. } => {
            let is_place = |choice: &OfferingChoice| choice.to_string() == *place;
            let launched = launch_pods(&|launch| launch.offerings.iter().any(is_place));
            placed(place).into_iter().chain(launched).collect()
        }
        Violation::UnknownNode(node) => placed(node),
        Violation::ReservationExceeded { resource, .. } => {
            let id = reservation_of_resource(resource);
            launch_pods(&|launch| launch.offerings.iter().any(|choice| choice.reservation.as_deref() == id))
        }
        Violation::QuotaExceeded { .. } => launch_pods(&|_| true),
        // Not about single pods.
        Violation::BadTermination { .. } | Violation::OnDemandRatioNotMet { .. } | Violation::BadSum(_) => {
            BTreeSet::new()
        }
    }
}

#[cfg(test)]
mod tests;

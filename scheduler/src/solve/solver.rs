//! Makes the plans of one client, one after another, and remembers which pods and removals make plans fail.

use super::attempt::{TimeBudget, attempt};
use super::exclude::{Excluded, Failed, SEARCH_ATTEMPTS, WaitingPods};
use super::exclude::{plan_without_offenders, removals_of, validated, with_excluded, without_excluded};
use super::{PlanFailure, PlanFn, TimeLimits};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, NodeName, ShapeId};
use plimsoll_model::plan::{Launch, Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use plimsoll_model::time::Millis;
use plimsoll_solver::{Cancel, Planner};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;

/// How long pods of a shape are left out, and nodes kept, before they are planned again, in case that something else
/// has changed.
pub(super) const RETRY_AFTER: Duration = Duration::from_secs(600);

/// When to plan again after a search that did not find all pods that make plans fail.
const CONTINUE_AFTER: Duration = Duration::from_secs(5);

/// When to plan removals again after a plan that was made without them. Removals are not urgent, and the attempts of a
/// plan that fails may occupy a worker for 45 s.
const REMOVALS_AFTER: Duration = Duration::from_secs(60);

/// Maximum remembered shapes, and maximum kept nodes. Plans fail again for more, which costs a search each.
pub(super) const MAX_REMEMBERED: usize = 256;

/// The input of a plan: a snapshot in canonical order with its index, which has followed all changes since the last
/// plan of the same solver.
type Input<'a> = (&'a Snapshot, &'a SnapshotIndex);

/// A valid plan.
#[derive(Debug)]
pub(crate) struct Solved {
    pub(crate) plan: Plan,
    /// Why the first plan failed, if `plan` is another one.
    pub(crate) replaced: Option<PlanFailure>,
    /// Number of pods that are left out, by the cause of [`PlanFailure::cause`].
    pub(crate) left_out: BTreeMap<&'static str, usize>,
    /// Nodes that are kept because plans that remove them are invalid.
    pub(crate) kept: Vec<NodeName>,
}

/// Makes plans for one client.
#[derive(Debug)]
pub(crate) struct Solver {
    plan: PlanFn,
    planner: Planner,
    limits: Option<TimeLimits>,
    cancel: Cancel,
    /// Shapes that plans fail for, and until when they are left out.
    remembered: BTreeMap<ShapeId, (PlanFailure, Instant)>,
    /// Nodes whose removal makes plans invalid, and until when they are kept.
    kept: BTreeMap<NodeName, Instant>,
    /// The last plan failed after launches of it had been sent: the next one is sent when it is complete.
    unsteady: bool,
}

impl Solver {
    /// Creates a solver that has no state yet.
    pub(crate) fn new(plan: PlanFn, limits: Option<TimeLimits>, cancel: Cancel) -> Self {
        let (remembered, kept) = (BTreeMap::new(), BTreeMap::new());
        Self { plan, planner: Planner::default(), limits, cancel, remembered, kept, unsteady: false }
    }

    /// Replaces the flag that ends the solves early.
    pub(crate) fn set_cancel(&mut self, cancel: Cancel) {
        self.cancel = cancel;
    }

    /// Drops the planner's cache, which belongs to the index of the former snapshots.
    pub(crate) fn forget_snapshot(&mut self) {
        self.planner = Planner::default();
    }

    /// Makes a plan. `early` receives valid launches that are final before the plan is complete.
    ///
    /// # Errors
    /// The planner fails although no pod to place makes it fail, or the client is gone.
    pub(crate) fn solve(
        &mut self,
        (snapshot, index): Input<'_>,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
        early: &mut dyn FnMut(Plan),
    ) -> Result<Solved, PlanFailure> {
        let budget = TimeBudget::start(self.limits);
        let now = Instant::now();
        self.remembered.retain(|_, (_, until)| *until > now);
        self.kept.retain(|_, until| *until > now);
        let excluded = self.present(snapshot);
        let options = &self.keeping(options);
        let mut sent = Vec::new();
        let failed = match self.first((snapshot, index), catalogs, options, &excluded, budget.first(), &mut |part| {
            sent.extend_from_slice(&part.launches);
            early(part);
        }) {
            Ok(plan) => {
                self.unsteady = false;
                return Ok(self.solved(plan, snapshot, &excluded, None));
            }
            Err(Failed { failure: PlanFailure::Cancelled, .. }) => return Err(PlanFailure::Cancelled),
            // What has been sent stays. Its pods are no longer pending in the next snapshot.
            Err(failed) if !sent.is_empty() => {
                self.unsteady = true;
                let plan = Plan { next_time: Some(snapshot.now), ..partial_plan(snapshot, &sent) };
                let replaced = Some(failed.failure);
                return Ok(Solved { plan, replaced, left_out: BTreeMap::new(), kept: Vec::new() });
            }
            Err(failed) => failed,
        };
        if let Some(plan) = self.with_kept_nodes(&failed, (snapshot, index), catalogs, options, &excluded, budget)? {
            return Ok(self.solved(plan, snapshot, &excluded, Some(failed.failure)));
        }
        self.replace((snapshot, index), catalogs, options, excluded, failed, budget)
    }

    /// The options, with the remembered nodes among those that the plan keeps.
    fn keeping(&self, options: &PlanOptions) -> PlanOptions {
        let mut options = options.clone();
        options.kept_nodes.extend(self.kept.keys().cloned());
        options
    }

    /// Shapes of pods to place that are remembered.
    fn present(&self, snapshot: &Snapshot) -> Excluded {
        if self.remembered.is_empty() {
            return Excluded::new();
        }
        let waiting = WaitingPods::new(snapshot);
        let known = waiting.iter().filter_map(|pod| Some((&pod.shape, &self.remembered.get(&pod.shape)?.0)));
        known.map(|(shape, failure)| (shape.clone(), failure.clone())).collect()
    }

    /// The plan as usual, without pods that are known to make it fail.
    fn first(
        &mut self,
        (snapshot, index): Input<'_>,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
        excluded: &Excluded,
        limit: Option<Duration>,
        early: &mut dyn FnMut(Plan),
    ) -> Result<Plan, Failed> {
        let limits = (&self.cancel, limit);
        let plan = if excluded.is_empty() {
            let unsteady = self.unsteady;
            let mut early = |launches: &[Launch]| {
                let part = partial_plan(snapshot, launches);
                // An invalid part is dropped: the complete plan will then fail validation too.
                if !unsteady && plimsoll_invariants::check_part(snapshot, index, catalogs, &part).is_empty() {
                    early(part);
                }
            };
            attempt((self.plan, &mut self.planner), (snapshot, index), catalogs, options, limits, &mut early)
        } else {
            // The planner does not follow this snapshot.
            self.planner = Planner::default();
            let remaining = without_excluded(snapshot, &|shape| excluded.contains_key(shape));
            let index = SnapshotIndex::new(&remaining);
            let planner = (self.plan, &mut Planner::default());
            attempt(planner, (&remaining, &index), catalogs, options, limits, &mut |_| {})
                .map(|plan| with_excluded(plan, snapshot, excluded))
        };
        let removals = options.disruption;
        let plan = plan.map_err(|failure| Failed { plan: None, failure, removals })?;
        validated((snapshot, index), catalogs, plan, removals)
    }

    /// Keeps the nodes whose removal makes the failed plan invalid, and plans the rest, so that other removals, above
    /// all of expired nodes, do not wait for them. `None` if there are no such nodes, or if this plan fails, too.
    ///
    /// # Errors
    /// The client is gone.
    fn with_kept_nodes(
        &mut self,
        failed: &Failed,
        input: Input<'_>,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
        excluded: &Excluded,
        budget: TimeBudget,
    ) -> Result<Option<Plan>, PlanFailure> {
        let nodes = removals_of(failed);
        if nodes.is_empty() {
            return Ok(None);
        }
        let (until, room) = (Instant::now() + RETRY_AFTER, MAX_REMEMBERED.saturating_sub(self.kept.len()));
        self.kept.extend(nodes.into_iter().take(room).map(|node| (node, until)));
        let options = self.keeping(options);
        self.planner = Planner::default();
        match self.first(input, catalogs, &options, excluded, budget.share(SEARCH_ATTEMPTS), &mut |_| {}) {
            Ok(plan) => Ok(Some(plan)),
            Err(Failed { failure: PlanFailure::Cancelled, .. }) => Err(PlanFailure::Cancelled),
            Err(_) => Ok(None),
        }
    }

    /// A plan in place of one that failed.
    fn replace(
        &mut self,
        (snapshot, index): Input<'_>,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
        excluded: Excluded,
        failed: Failed,
        budget: TimeBudget,
    ) -> Result<Solved, PlanFailure> {
        // Removals can wait: they may be what the planner fails for.
        let without_removals = PlanOptions { disruption: false, ..options.clone() };
        let (function, cancel) = (self.plan, self.cancel.clone());
        let mut again = |remaining: &Snapshot, index: &SnapshotIndex, attempts: u32| {
            let (planner, limits) = ((function, &mut Planner::default()), (&cancel, budget.share(attempts)));
            attempt(planner, (remaining, index), catalogs, &without_removals, limits, &mut |_| {})
        };
        let failure = failed.failure.clone();
        let replacement = plan_without_offenders((snapshot, index), catalogs, excluded, failed, &mut again)?;
        let until = Instant::now() + RETRY_AFTER;
        for (shape, failure) in &replacement.excluded {
            self.remembered.entry(shape.clone()).or_insert_with(|| (failure.clone(), until));
        }
        while self.remembered.len() > MAX_REMEMBERED {
            let oldest = self.remembered.iter().min_by_key(|(_, (_, until))| *until).map(|(shape, _)| shape.clone());
            oldest.into_iter().for_each(|shape| drop(self.remembered.remove(&shape)));
        }
        let mut plan = replacement.plan;
        // A plan without removals does not know when removals become possible, so nothing else would wake the client.
        let pauses = [options.disruption.then_some(REMOVALS_AFTER), (!replacement.complete).then_some(CONTINUE_AFTER)];
        let next = pauses.into_iter().flatten().map(|pause| snapshot.now.plus(millis(pause)));
        plan.next_time = plan.next_time.into_iter().chain(next).min();
        Ok(self.solved(plan, snapshot, &replacement.excluded, Some(failure)))
    }

    /// Adds when the excluded pods and the removals of kept nodes are planned again.
    fn solved(
        &self,
        mut plan: Plan,
        snapshot: &Snapshot,
        excluded: &Excluded,
        replaced: Option<PlanFailure>,
    ) -> Solved {
        let now = Instant::now();
        let until = excluded.keys().filter_map(|shape| self.remembered.get(shape)).map(|(_, until)| *until);
        let until = until.chain(self.kept.values().copied()).min();
        let retry = until.map(|until| snapshot.now.plus(millis(until.saturating_duration_since(now))));
        plan.next_time = plan.next_time.into_iter().chain(retry).min();
        let mut left_out = BTreeMap::new();
        if !excluded.is_empty() {
            let waiting = WaitingPods::new(snapshot);
            for failure in waiting.to_report().filter_map(|pod| excluded.get(&pod.shape)) {
                *left_out.entry(failure.cause()).or_default() += 1;
            }
        }
        Solved { plan, replaced, left_out, kept: self.kept.keys().cloned().collect() }
    }
}

fn millis(duration: Duration) -> Millis {
    Millis(u64::try_from(duration.as_millis()).unwrap_or(u64::MAX))
}

/// Returns a plan with only these launches.
fn partial_plan(snapshot: &Snapshot, launches: &[Launch]) -> Plan {
    Plan {
        snapshot_sequence: snapshot.sequence,
        ledger: snapshot.ledger,
        launches: launches.to_vec(),
        hourly: launches.iter().map(Launch::price).sum(),
        ..Plan::default()
    }
}

#[cfg(test)]
mod tests;

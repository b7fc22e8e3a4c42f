//! Plans successive snapshots of a cluster that changes little.

use crate::Cancel;
use crate::input::context::SolveContext;
use crate::input::max_node_share;
use crate::input::nodes::Nodes;
use crate::input::on_demand_ratio;
use crate::input::solve_index::{Change, Originals, SolveIndex};
use crate::pipeline::planned;
use crate::repair::moves::{Move, Moves};
use crate::repair::{Inputs, Overlaid, Repair, Variant, Work, replay};
use crate::retries;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::overlay::{self, Repriced};
use plimsoll_model::plan::{Launch, Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use std::collections::BTreeMap;

/// Input of a plan.
#[derive(Clone, Copy)]
struct Request<'a> {
    /// In canonical order.
    snapshot: &'a Snapshot,
    index: &'a SnapshotIndex,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    options: &'a PlanOptions,
    /// Original shapes, if On-Demand ratios changed some.
    originals: Option<&'a Originals>,
    /// Whether to compute the lower bound, which takes as long as some plans.
    bounded: bool,
    /// Whether to assign pods evenly to domain tuples.
    evenly: bool,
}

/// Plans successive snapshots of one cluster and caches data that stays valid. Each plan equals the plan of
/// [`solve`](crate::solve): the cache only saves time.
#[derive(Debug, Default)]
pub struct Planner {
    kept: Option<(SolveIndex, Nodes)>,
    moves: Moves,
    cancel: Cancel,
}

impl Planner {
    /// Creates a planner with an empty cache and the same settings.
    #[must_use]
    pub fn fresh(&self) -> Self {
        Self { kept: None, moves: self.moves.clone(), cancel: self.cancel.clone() }
    }

    /// Replaces the flag that ends the solves of this planner. The plan of a cancelled solve is valid, but may place
    /// fewer pods and cost more.
    pub fn set_cancel(&mut self, cancel: Cancel) {
        self.cancel = cancel;
    }

    /// Whether the current solve is to end.
    #[must_use]
    pub fn is_cancelled(&self) -> bool {
        self.cancel.is_cancelled()
    }

    pub(crate) fn without(moves: &[Move]) -> Self {
        Self { moves: Moves::without(moves), ..Self::default() }
    }

    /// Computes the plan for `snapshot`, which must be in canonical order. `index` belongs to this snapshot and has
    /// been updated with all changes since the last plan. Catalogs with the same id must be equal.
    #[must_use]
    pub fn solve(
        &mut self,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
    ) -> Plan {
        self.solve_early(snapshot, index, catalogs, options, &mut |_| {})
    }

    /// Like [`Self::solve`], but in a large burst `early` receives the first launches long before the rest is planned.
    /// The plan begins with these launches.
    #[must_use]
    pub fn solve_early(
        &mut self,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
        early: &mut dyn FnMut(&[Launch]),
    ) -> Plan {
        let request = Request { snapshot, index, catalogs, options, originals: None, bounded: true, evenly: false };
        let mut reported = false;
        let (plan, _) = self.plan_once(request, &mut |launches| {
            reported |= !launches.is_empty();
            early(launches);
        });
        // Launches that were reported are final, so the plan must not be repaired.
        if reported {
            return plan;
        }
        let unbounded = PlanOptions { max_share_per_node: 100, ..options.clone() };
        let (plan, request) = self.more_if_unbound(request, &unbounded, plan);
        let work = Work::new(&self.cancel);
        let overlaid = Overlaid::new();
        let mut options = request.options.clone();
        let inputs = Inputs { snapshot, catalogs, overlaid: &overlaid };
        let plan = self.keep_unprofitable(inputs, request, &mut options, &work, plan);
        let request = Request { options: &options, ..request };
        let keeping = PlanOptions { disruption: false, ..request.options.clone() };
        let replan = |other: &Snapshot, variant: Variant| {
            let options = if variant == Variant::Same { request.options } else { &keeping };
            let evenly = variant == Variant::Evenly;
            self.plan_other(Request { options, evenly, ..request }, other, &work)
        };
        let repair = Repair { inputs, moves: &self.moves, work: &work, replan: &replan };
        // Replays could move pods onto one node that the maximum share per node keeps apart.
        let replays = max_node_share::bound(snapshot, index, request.options).is_none();
        let (mut plan, changed) = repair.run(plan, replays);
        if changed {
            plan.lower_bound = self.lower_bound(request, &plan);
        }
        plan
    }

    /// Plans again without removals that save little where kube-scheduler binds the pods. Adds the nodes to
    /// `options.kept_nodes`.
    fn keep_unprofitable(
        &self,
        inputs: Inputs<'_>,
        request: Request<'_>,
        options: &mut PlanOptions,
        work: &Work<'_>,
        mut plan: Plan,
    ) -> Plan {
        if plan.terminations.is_empty() || !self.moves.has(Move::KeepNodes) {
            return plan;
        }
        let keeping = PlanOptions { disruption: false, ..options.clone() };
        let cost = |other: &Snapshot| {
            let request = Request { options: &keeping, ..request };
            work.spend_plan(other).then(|| self.plan_other(request, other, work).hourly.0)
        };
        for _ in 0..retries::SEVERAL {
            let Some(kept) = replay::removals::unprofitable(inputs, &plan, &cost) else { break };
            if !work.spend_plan(request.snapshot) {
                break;
            }
            options.kept_nodes.insert(kept);
            plan = self.plan_counted(Request { options, ..request }, work);
        }
        plan
    }

    /// If the maximum share per node leaves pods unplaced, plans without it. Returns the plan that leaves fewer pods,
    /// with its request.
    fn more_if_unbound<'a>(&self, request: Request<'a>, free: &'a PlanOptions, plan: Plan) -> (Plan, Request<'a>) {
        let most = max_node_share::bound(request.snapshot, request.index, request.options);
        if !most.is_some_and(|most| max_node_share::binds(&plan, most)) {
            return (plan, request);
        }
        let unbound = Request { options: free, ..request };
        let (other, _) = self.fresh().plan_once(unbound, &mut |_| {});
        if other.unschedulable.len() < plan.unschedulable.len() { (other, unbound) } else { (plan, request) }
    }

    /// Computes one plan for another snapshot, without repairs and without a lower bound.
    fn plan_other(&self, request: Request<'_>, other: &Snapshot, work: &Work<'_>) -> Plan {
        let request = Request { snapshot: other, index: &SnapshotIndex::new(other), bounded: false, ..request };
        self.plan_counted(request, work)
    }

    /// Computes one plan without repairs, whose packing is counted as `work`.
    fn plan_counted(&self, request: Request<'_>, work: &Work<'_>) -> Plan {
        let (plan, packing) = self.fresh().plan_once(request, &mut |_| {});
        work.add_packing(packing);
        plan
    }

    /// Computes one plan without repairs. Also returns the work of its packing.
    fn plan_once(&mut self, request: Request<'_>, early: &mut dyn FnMut(&[Launch])) -> (Plan, u64) {
        let mut marked = |launches: &[Launch]| {
            let mut repriced = Repriced::new(request.snapshot, request.catalogs);
            if repriced.is_none() {
                return early(launches);
            }
            let mut launches = launches.to_vec();
            repriced.mark(&mut launches);
            early(&launches);
        };
        let (mut plan, packing) = self.with_context(request, |context| {
            context.topology.evenly = request.evenly;
            let plan = planned(context, request.options, request.bounded, &mut marked);
            (plan, context.packing_work.get())
        });
        Repriced::new(request.snapshot, request.catalogs).mark(&mut plan.launches);
        (plan, packing)
    }

    /// Lower bound of the cost of any plan for the pods of `plan`.
    fn lower_bound(&mut self, request: Request<'_>, plan: &Plan) -> MicroUsdPerHour {
        self.with_context(request, |context| {
            crate::pipeline::lower_bound(context, plan, &crate::pipeline::demand(context, plan))
        })
    }

    /// Work of the packing of a plan.
    #[cfg(test)]
    pub(crate) fn packing_work(
        &mut self,
        (snapshot, index): (&Snapshot, &SnapshotIndex),
        catalogs: &BTreeMap<CatalogId, Catalog>,
    ) -> u64 {
        let options = &PlanOptions::default();
        let request = Request { snapshot, index, catalogs, options, originals: None, bounded: false, evenly: false };
        self.plan_once(request, &mut |_| {}).1
    }

    /// Lower bound of the cost of any plan for the pods of `plan`, not cut to the cost of this plan.
    #[cfg(test)]
    pub(crate) fn uncut_bound(
        &mut self,
        (snapshot, index): (&Snapshot, &SnapshotIndex),
        catalogs: &BTreeMap<CatalogId, Catalog>,
        plan: &Plan,
    ) -> MicroUsdPerHour {
        let options = &PlanOptions::default();
        let request = Request { snapshot, index, catalogs, options, originals: None, bounded: true, evenly: false };
        // Raising the bound to whole nodes ends there. That is above the cost of the plan, so that a false bound shows.
        let enough = MicroUsdPerHour(plan.hourly.0 + plan.hourly.0 / 8);
        self.with_context(request, |context| {
            crate::pipeline::uncut_bound(context, plan, &crate::pipeline::demand(context, plan), enough)
        })
    }

    /// Applies NodeOverlays, node costs and On-Demand ratios, then calls `ask`. Catalogs that overlays change have
    /// their own ids. Pods that On-Demand ratios change keep theirs, so nothing is cached for such snapshots.
    fn with_context<T>(&mut self, request: Request<'_>, ask: impl FnOnce(&mut SolveContext<'_>) -> T) -> T {
        let overlaid = overlay::applied(request.snapshot, request.catalogs);
        let priced = overlaid.as_ref();
        let priced = priced.map_or(request, |(snapshot, catalogs)| Request { snapshot, catalogs, ..request });
        if let Some((mixed, originals)) = on_demand_ratio::applied(priced.snapshot, priced.index, priced.catalogs) {
            let (index, originals) = (SnapshotIndex::new(&mixed), Some(&originals));
            let mixed = Request { snapshot: &mixed, index: &index, originals, ..priced };
            return self.fresh().with_priced(mixed, ask);
        }
        self.with_priced(priced, ask)
    }

    /// Like [`Self::with_context`], for a request to which everything is applied.
    fn with_priced<T>(&mut self, request: Request<'_>, ask: impl FnOnce(&mut SolveContext<'_>) -> T) -> T {
        let Request { snapshot, index, catalogs, options, originals, .. } = request;
        let (solve_index, nodes) = self.kept.take().unzip();
        let (solve_index, change) = SolveIndex::new(solve_index, snapshot, index, catalogs, options, originals);
        let kept = nodes.filter(|_| change != Change::All);
        let mut nodes = kept.unwrap_or_else(|| Nodes::new(&solve_index));
        if let Change::Shapes(former) = change {
            nodes.renumber_shapes(&former);
        }
        let pools = solve_index.all_views(snapshot, catalogs);
        nodes.follow(&solve_index, snapshot, index, &pools);
        let mut context = SolveContext::new(snapshot, index, catalogs, &solve_index, pools, &nodes, &self.cancel);
        context.originals = originals;
        let answer = ask(&mut context);
        self.kept = Some((solve_index, nodes));
        answer
    }
}

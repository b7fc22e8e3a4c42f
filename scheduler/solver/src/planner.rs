//! Plan after plan for a cluster of which little changes.

use crate::input::context::SolveContext;
use crate::input::max_node_share;
use crate::input::nodes::Nodes;
use crate::input::on_demand_ratio;
use crate::input::solve_index::{Change, SolveIndex};
use crate::pipeline::planned;
use crate::place::topology::AssignmentOrder;
use crate::repair;
use crate::repair::moves::{Move, Moves};
use crate::repair::replay;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::overlay::{self, Repriced};
use plimsoll_model::plan::{Launch, Plan, PlanOptions};
use plimsoll_model::snapshot::{Snapshot, SnapshotIndex};
use std::collections::BTreeMap;

/// How often a plan is replayed: once more where pods that it left found room on the nodes of a better one.
const REPLAYS: usize = 2;

/// What a plan is made of.
#[derive(Clone, Copy)]
struct Question<'a> {
    /// In canonical order.
    snapshot: &'a Snapshot,
    index: &'a SnapshotIndex,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
    options: &'a PlanOptions,
    /// A plan is to say what none can cost less than: that takes as long as some plans do.
    bounded: bool,
    assignment_order: AssignmentOrder,
}

/// Plans for one snapshot after another of the same cluster and keeps what stays the same between them. Each plan is
/// the one that [`solve`](crate::solve) makes: what is kept only saves time.
#[derive(Debug, Default)]
pub struct Planner {
    kept: Option<(SolveIndex, Nodes)>,
    moves: Moves,
}

impl Planner {
    /// One that knows nothing yet.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    pub(crate) fn without(moves: &[Move]) -> Self {
        Self { moves: Moves::without(moves), ..Self::default() }
    }

    /// The plan for `snapshot`, which is in canonical order. `index` is the one of this snapshot, and has followed all
    /// changes since the last plan; whatever has the same catalog id is the same catalog.
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

    /// The same plan. In a large burst `early` is told its first launches long before all others are planned: the plan
    /// begins with them.
    #[must_use]
    pub fn solve_early(
        &mut self,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
        early: &mut dyn FnMut(&[Launch]),
    ) -> Plan {
        let question =
            Question { snapshot, index, catalogs, options, bounded: true, assignment_order: AssignmentOrder::Cheapest };
        let mut told = false;
        let plan = self.plain(question, &mut |launches| {
            told |= !launches.is_empty();
            early(launches);
        });
        // What was told stands.
        if told {
            return plan;
        }
        let free = PlanOptions { max_share_per_node: 100, ..options.clone() };
        let (plan, question) = Self::more_if_unbound(question, &free, plan);
        let again = |other: &Snapshot, options: &PlanOptions, assignment_order: AssignmentOrder| {
            let index = SnapshotIndex::new(other);
            let question =
                Question { snapshot: other, index: &index, bounded: false, options, assignment_order, ..question };
            Self::new().plain(question, &mut |_| {})
        };
        let before = plan.unschedulable.clone();
        let usual = |other: &Snapshot| again(other, question.options, AssignmentOrder::Cheapest);
        let mut plan = repair::place_more(snapshot, catalogs, &self.moves, plan, usual);
        let mut changed = plan.unschedulable != before;
        let keeping = PlanOptions { disruption: false, ..question.options.clone() };
        let asked = replay::Question { snapshot, catalogs };
        // Where pods are kept apart on purpose, they are left where they are.
        let replays = if max_node_share::bound(snapshot, index, question.options).is_some() { 0 } else { REPLAYS };
        // What a replay gave, and the same with pods that find room then, which may be riskier.
        let mut known: Vec<Plan> = Vec::new();
        for _ in 0..replays {
            let improve = replay::improve(asked, &self.moves, &plan, |other, assignment_order| {
                again(other, &keeping, assignment_order)
            });
            let Some(other) = improve else { break };
            // Its nodes may be larger ones, or more.
            plan = repair::fill_nodes_of(snapshot, catalogs, &self.moves, other.clone(), usual);
            changed = true;
            if plan.unschedulable.len() == other.unschedulable.len() {
                break;
            }
            known.push(other);
        }
        if !self.moves.has(Move::MostReliable) {
            known.clear();
        }
        if let Some(surer) = replay::most_reliable(asked, &plan, known) {
            plan = surer;
        }
        if changed {
            plan.lower_bound = self.lower_bound(question, &plan);
        }
        plan
    }

    /// Where a bound on the share of one node leaves pods, the plan without it if that leaves fewer; and the question
    /// that it answers.
    fn more_if_unbound<'a>(question: Question<'a>, free: &'a PlanOptions, plan: Plan) -> (Plan, Question<'a>) {
        let most = max_node_share::bound(question.snapshot, question.index, question.options);
        if !most.is_some_and(|most| max_node_share::binds(&plan, most)) {
            return (plan, question);
        }
        let unbound = Question { options: free, ..question };
        let other = Self::new().plain(unbound, &mut |_| {});
        if other.unschedulable.len() < plan.unschedulable.len() { (other, unbound) } else { (plan, question) }
    }

    /// Without a second look at what is left.
    fn plain(&mut self, question: Question<'_>, early: &mut dyn FnMut(&[Launch])) -> Plan {
        let mut marked = |launches: &[Launch]| {
            let mut repriced = Repriced::new(question.snapshot, question.catalogs);
            if repriced.is_none() {
                return early(launches);
            }
            let mut launches = launches.to_vec();
            repriced.mark(&mut launches);
            early(&launches);
        };
        let mut plan = self.told(question, |planner, question| {
            let bounded = question.bounded;
            let options = question.options;
            planner.direct(question, |context| {
                context.topology.deal(question.assignment_order);
                planned(context, options, bounded, &mut marked)
            })
        });
        Repriced::new(question.snapshot, question.catalogs).mark(&mut plan.launches);
        plan
    }

    /// What no plan for the pods of `plan` costs less than.
    fn lower_bound(&mut self, question: Question<'_>, plan: &Plan) -> MicroUsdPerHour {
        self.told(question, |planner, question| {
            planner.direct(question, |context| {
                crate::pipeline::lower_bound(context, plan, &crate::pipeline::demand(context, plan))
            })
        })
    }

    /// Asks about the cluster with what NodeOverlays, costs of nodes and shares of On-Demand make of it. Catalogs that
    /// overlays change have ids of their own; pods that shares change do not, so that of these nothing is kept.
    fn told<T>(&mut self, question: Question<'_>, ask: impl FnOnce(&mut Self, Question<'_>) -> T) -> T {
        let overlaid = overlay::applied(question.snapshot, question.catalogs);
        let facts = overlaid.as_ref();
        let facts = facts.map_or(question, |(snapshot, catalogs)| Question { snapshot, catalogs, ..question });
        if let Some(mixed) = on_demand_ratio::applied(facts.snapshot, facts.index, facts.catalogs) {
            let index = SnapshotIndex::new(&mixed);
            return ask(&mut Self::new(), Question { snapshot: &mixed, index: &index, ..facts });
        }
        ask(self, facts)
    }

    fn direct<T>(&mut self, question: Question<'_>, ask: impl FnOnce(&mut SolveContext<'_>) -> T) -> T {
        let Question { snapshot, index, catalogs, options, .. } = question;
        let (solve_index, nodes) = self.kept.take().unzip();
        let (solve_index, change) = SolveIndex::new(solve_index, snapshot, index, catalogs, options);
        let kept = nodes.filter(|_| change != Change::All);
        let mut nodes = kept.unwrap_or_else(|| Nodes::new(&solve_index));
        if let Change::Shapes(former) = change {
            nodes.renumber_shapes(&former);
        }
        nodes.follow(&solve_index, snapshot, index, catalogs);
        let answer = ask(&mut SolveContext::new(snapshot, index, catalogs, &solve_index, &nodes));
        self.kept = Some((solve_index, nodes));
        answer
    }
}

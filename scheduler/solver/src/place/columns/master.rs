//! The restricted master problem: covers all pods with fractions of nodes at minimum price. Solved by the revised
//! simplex method.

use super::{Cap, KindId, PodKind, Row, Take, number};
use plimsoll_model::index::{Id, IndexVec};

/// Numbers below this are zero. Costs and demands are scaled to about one.
const TINY: f64 = 1e-9;

/// A filling of one node, with its price.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    /// The offering. The master does not use it.
    pub(super) row: Id<Row>,
    pub(super) price: f64,
    pub(super) take: Take,
    /// Caps to which the node counts.
    pub(super) caps: Vec<Id<Cap>>,
}

/// A value per kind.
pub(super) type Duals = IndexVec<PodKind, f64>;

/// A constraint: a kind is covered, or a cap holds. Kinds come first, then caps.
#[derive(Debug)]
enum Constraint {}

/// A value per constraint.
type Vector = IndexVec<Constraint, f64>;

/// A basis that covers all kinds, with the inverse of its matrix.
pub(super) struct Master {
    /// Number of kinds. Constraints from this number on are caps.
    kinds: usize,
    pub(super) columns: IndexVec<Column, Column>,
    /// Columns, surpluses of kinds, or slacks of caps.
    basis: IndexVec<Constraint, Member>,
    inverse: IndexVec<Constraint, Vector>,
    /// Value of each member of the basis.
    used: Vector,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Column(Id<Column>),
    Surplus(Id<Constraint>),
}

impl Master {
    /// Starts from one column per kind, which takes only this kind (`take[0]`) and is under no cap. `demand` is the
    /// number of pods of each kind. A cap is modelled as a kind of which each node covers minus one: at least minus the
    /// maximum.
    pub(super) fn new(columns: IndexVec<Column, Column>, demand: &Duals, caps: &IndexVec<Cap, f64>) -> Self {
        let width = demand.len() + caps.len();
        let diagonal = |row: usize, value: f64| {
            let mut vector = Vector::filled(0.0, width);
            vector[Id::new(row)] = value;
            vector
        };
        let mut inverse = IndexVec::new();
        let mut used = Vector::new();
        let mut basis = IndexVec::new();
        for ((id, column), count) in columns.iter_enumerated().zip(demand) {
            let each = column.take.first().map_or(1.0, |(_, n)| number(*n));
            inverse.push(diagonal(id.number(), 1.0 / each));
            used.push(count / each);
            basis.push(Member::Column(id));
        }
        for (cap, most) in (demand.len()..).zip(caps) {
            inverse.push(diagonal(cap, -1.0));
            used.push(*most);
            basis.push(Member::Surplus(Id::new(cap)));
        }
        Self { kinds: demand.len(), basis, columns, inverse, used }
    }

    fn of_kind(kind: KindId) -> Id<Constraint> {
        Id::new(kind.number())
    }

    fn of_cap(&self, cap: Id<Cap>) -> Id<Constraint> {
        Id::new(self.kinds + cap.number())
    }

    /// The cost of one more pod of each kind, and the saving of one more node under each cap. Neither is negative.
    pub(super) fn duals(&self) -> (Duals, IndexVec<Cap, f64>) {
        let all = self.signed_duals();
        let mut duals = all.iter().map(|dual| dual.max(0.0));
        let kinds = duals.by_ref().take(self.kinds).collect();
        (kinds, duals.collect())
    }

    /// The dual of each constraint. May be negative until the master is optimal.
    fn signed_duals(&self) -> Vector {
        let mut duals = Vector::filled(0.0, self.basis.len());
        for (member, tuples) in self.basis.iter().zip(&self.inverse) {
            if let Member::Column(column) = member {
                let price = self.columns[*column].price;
                duals.iter_mut().zip(tuples).for_each(|(dual, tuple)| *dual += price * tuple);
            }
        }
        duals
    }

    /// Pivots until no column improves the solution, at most `pivots` times.
    pub(super) fn optimise(&mut self, pivots: usize) {
        for _ in 0..pivots {
            let entering = self.entering(&self.signed_duals());
            if !entering.is_some_and(|member| self.enter(member)) {
                return;
            }
        }
    }

    /// Values of the columns that are used.
    pub(super) fn solution(&self) -> Vec<(Id<Column>, f64)> {
        let mut all: Vec<(Id<Column>, f64)> = self
            .basis
            .iter()
            .zip(&self.used)
            .filter_map(|(member, used)| match member {
                Member::Column(column) if *used > TINY => Some((*column, *used)),
                _ => None,
            })
            .collect();
        all.sort_by_key(|(column, _)| *column);
        all
    }

    /// The member with the highest gain per price.
    fn entering(&self, duals: &Vector) -> Option<Member> {
        let mut best: Option<(f64, Member)> = None;
        let mut offer = |gain: f64, member: Member| {
            if gain > 1e-7 && best.is_none_or(|(known, _)| gain > known) {
                best = Some((gain, member));
            }
        };
        for (constraint, dual) in duals.iter_enumerated() {
            offer(-dual, Member::Surplus(constraint));
        }
        for (id, column) in self.columns.iter_enumerated() {
            let of_caps = || column.caps.iter().map(|cap| duals[self.of_cap(*cap)]);
            let cap_cost: f64 = of_caps().map(|dual| dual.max(0.0)).sum();
            let against: f64 = of_caps().map(|dual| (-dual).max(0.0)).sum();
            let worth = of_take(duals, &column.take) + against;
            offer(worth / (column.price + cap_cost) - 1.0, Member::Column(id));
        }
        best.map(|(_, member)| member)
    }

    fn enter(&mut self, member: Member) -> bool {
        let in_direction = |tuples: &Vector| match member {
            Member::Surplus(constraint) => -tuples[constraint],
            Member::Column(column) => {
                let column = &self.columns[column];
                let caps: f64 = column.caps.iter().map(|cap| tuples[self.of_cap(*cap)]).sum();
                of_take(tuples, &column.take) - caps
            }
        };
        let direction: Vector = self.inverse.iter().map(in_direction).collect();
        let steps = direction.ids().filter(|row| direction[*row] > TINY);
        let step = |row: Id<Constraint>| self.used[row].max(0.0) / direction[row];
        let Some(leaving) = steps.min_by(|a, b| step(*a).total_cmp(&step(*b))) else { return false };
        let by = step(leaving);
        let inverse = 1.0 / direction[leaving];
        self.inverse[leaving].iter_mut().for_each(|tuple| *tuple *= inverse);
        let own = std::mem::take(&mut self.inverse[leaving]);
        let rows = self.inverse.iter_mut().zip(&mut self.used).zip(direction.iter_enumerated());
        for ((tuples, used), (_, factor)) in rows.filter(|(_, (row, factor))| *row != leaving && **factor != 0.0) {
            tuples.iter_mut().zip(&own).for_each(|(tuple, mine)| *tuple -= factor * mine);
            *used -= factor * by;
        }
        self.inverse[leaving] = own;
        self.used[leaving] = by;
        self.basis[leaving] = member;
        true
    }
}

/// Sum of the values of these pods.
fn of_take(values: &Vector, take: &[(KindId, usize)]) -> f64 {
    take.iter().map(|(kind, n)| values[Master::of_kind(*kind)] * number(*n)).sum()
}

//! The restricted master: which nodes, in fractions, cover all pods at the least price, by the revised simplex method.

/// Below this a number counts as zero: costs and demands are scaled to about one.
const TINY: f64 = 1e-9;

/// A way to fill one node: what it costs and how many pods of each kind it takes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Column {
    /// Which offering; only the caller knows.
    pub(super) row: usize,
    pub(super) price: f64,
    /// PodKind and number of pods; sorted, each once.
    pub(super) take: Vec<(usize, usize)>,
    /// Caps that its node counts for.
    pub(super) caps: Vec<usize>,
}

/// A basis that covers all kinds, and the inverse of its matrix.
pub(super) struct Master {
    /// Kinds; behind them come the caps.
    kinds: usize,
    width: usize,
    pub(super) columns: Vec<Column>,
    /// Per row of the basis: a column, or the surplus of a kind or what is left under a cap.
    basis: Vec<Member>,
    inverse: Vec<f64>,
    /// How often each member of the basis is used.
    used: Vec<f64>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Member {
    Column(usize),
    Surplus(usize),
}

impl Master {
    /// Starts from one column per kind that takes that kind alone (`take[0]`), for as many pods as `demand` says, and is under no cap.
    /// A cap is a kind of which each node takes one back: at least minus so many.
    pub(super) fn new(columns: Vec<Column>, demand: &[f64], caps: &[f64]) -> Self {
        let width = demand.len() + caps.len();
        let mut inverse = vec![0.0; width * width];
        let mut used = Vec::with_capacity(width);
        for (kind, column) in columns.iter().enumerate() {
            let each = column.take.first().map_or(1.0, |(_, n)| number(*n));
            inverse[kind * width + kind] = 1.0 / each;
            used.push(demand[kind] / each);
        }
        let mut basis: Vec<Member> = (0..demand.len()).map(Member::Column).collect();
        for (cap, most) in (demand.len()..).zip(caps) {
            inverse[cap * width + cap] = -1.0;
            used.push(*most);
            basis.push(Member::Surplus(cap));
        }
        Self { kinds: demand.len(), width, basis, columns, inverse, used }
    }

    /// What one more pod of each kind costs, and what one more node under each cap would save.
    pub(super) fn duals(&self) -> Vec<f64> {
        let mut duals = vec![0.0; self.width];
        for (row, member) in self.basis.iter().enumerate() {
            if let Member::Column(column) = member {
                let price = self.columns[*column].price;
                let tuples = &self.inverse[row * self.width..(row + 1) * self.width];
                duals.iter_mut().zip(tuples).for_each(|(dual, tuple)| *dual += price * tuple);
            }
        }
        duals
    }

    /// Pivots until no known column is worth more than it costs, at most `pivots` times. Returns how many it took.
    pub(super) fn optimise(&mut self, pivots: usize) -> usize {
        for pivot in 0..pivots {
            let duals = self.duals();
            let Some(entering) = self.entering(&duals) else { return pivot };
            if !self.enter(entering) {
                return pivot;
            }
        }
        pivots
    }

    /// How often each column is used, of those that are.
    pub(super) fn solution(&self) -> Vec<(usize, f64)> {
        let mut all: Vec<(usize, f64)> = self
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

    /// The member that promises most per price.
    fn entering(&self, duals: &[f64]) -> Option<Member> {
        let mut best: Option<(f64, Member)> = None;
        let mut offer = |gain: f64, member: Member| {
            if gain > 1e-7 && best.is_none_or(|(known, _)| gain > known) {
                best = Some((gain, member));
            }
        };
        for (kind, dual) in duals.iter().enumerate() {
            offer(-dual, Member::Surplus(kind));
        }
        for (number, column) in self.columns.iter().enumerate() {
            let fees: f64 = column.caps.iter().map(|cap| duals[self.kinds + cap].max(0.0)).sum();
            let against: f64 = column.caps.iter().map(|cap| (-duals[self.kinds + cap]).max(0.0)).sum();
            let worth = worth(&duals[..self.kinds], &column.take) + against;
            offer(worth / (column.price + fees) - 1.0, Member::Column(number));
        }
        best.map(|(_, member)| member)
    }

    fn enter(&mut self, member: Member) -> bool {
        let width = self.width;
        let direction: Vec<f64> = (0..width)
            .map(|row| {
                let tuples = &self.inverse[row * width..(row + 1) * width];
                match member {
                    Member::Surplus(kind) => -tuples[kind],
                    Member::Column(column) => {
                        let column = &self.columns[column];
                        let taken: f64 = column.take.iter().map(|(kind, n)| tuples[*kind] * number(*n)).sum();
                        taken - column.caps.iter().map(|cap| tuples[self.kinds + cap]).sum::<f64>()
                    }
                }
            })
            .collect();
        let steps = (0..width).filter(|row| direction[*row] > TINY);
        let step = |row: usize| self.used[row].max(0.0) / direction[row];
        let Some(leaving) = steps.min_by(|a, b| step(*a).total_cmp(&step(*b))) else { return false };
        let by = step(leaving);
        let inverse = 1.0 / direction[leaving];
        let own: Vec<f64> =
            self.inverse[leaving * width..(leaving + 1) * width].iter().map(|tuple| tuple * inverse).collect();
        for row in (0..width).filter(|row| *row != leaving) {
            let factor = direction[row];
            if factor != 0.0 {
                let tuples = &mut self.inverse[row * width..(row + 1) * width];
                tuples.iter_mut().zip(&own).for_each(|(tuple, mine)| *tuple -= factor * mine);
                self.used[row] -= factor * by;
            }
        }
        self.inverse[leaving * width..(leaving + 1) * width].copy_from_slice(&own);
        self.used[leaving] = by;
        self.basis[leaving] = member;
        true
    }
}

/// What the pods of a column are worth.
pub(super) fn worth(duals: &[f64], take: &[(usize, usize)]) -> f64 {
    take.iter().map(|(kind, n)| duals[*kind] * number(*n)).sum()
}

#[expect(clippy::cast_precision_loss, reason = "counts of pods are far below 2^52")]
pub(super) fn number(count: usize) -> f64 {
    count as f64
}

//! Prices of resources: the dual of buying offerings in fractions.

use crate::input::intern::Amounts;
use plimsoll_model::index::{Id, IndexVec};

/// Maximum number of pivots. A handful per resource is enough, and a program that cycles must end.
const PIVOTS_PER_RESOURCE: usize = 40;
/// Numbers below this are zero. All numbers are scaled to about one.
const TINY: f64 = 1e-9;

/// Computes prices per unit so that the capacity of no offering (price, capacity) is worth more than its price, and
/// `demand` is worth approximately the maximum. Resources that are not demanded, or that no offering has, have price 0.
#[expect(clippy::cast_precision_loss, reason = "the last step corrects rounding errors")]
pub(crate) fn resource_prices(offerings: &[(i64, &Amounts)], demand: &[i64]) -> Vec<f64> {
    let width = demand.len();
    let mut top = vec![0.0_f64; width];
    for (_, room) in offerings {
        top.iter_mut().zip(room.iter()).for_each(|(top, room)| *top = top.max(*room as f64));
    }
    let dearest = offerings.iter().map(|(price, _)| *price).max().unwrap_or(1).max(1) as f64;
    let is_used = |(demand, top): (&i64, &f64)| *demand > 0 && *top > 0.0;
    let used: Vec<bool> = demand.iter().zip(&top).map(is_used).collect();
    let count = used.iter().filter(|used| **used).count();
    // Rows: sum of (capacity x price of the resource) <= price of the offering.
    let row = |(price, room): &(i64, &Amounts)| {
        let scaled = room.iter().zip(&top).zip(&used).filter(|(_, used)| **used);
        let scaled = scaled.map(|((room, top), _)| (*room as f64).max(0.0) / top);
        Row { coefficients: scaled.collect(), value: *price as f64 / dearest }
    };
    let wanted = || demand.iter().zip(&top).filter(|pair| is_used(*pair));
    let most = wanted().map(|(demand, top)| *demand as f64 / top).fold(TINY, f64::max);
    let objective = wanted().map(|(demand, top)| -(*demand as f64) / top / most).collect();
    let mut tableau = Tableau {
        rows: offerings.iter().map(row).collect(),
        objective: Row { coefficients: objective, value: 0.0 },
        basis: IndexVec::filled(None, offerings.len()),
        outside: (0..count).map(|number| Some(Id::new(number))).collect(),
    };
    tableau.maximise();
    let mut solved: IndexVec<Variable, f64> = IndexVec::filled(0.0, count);
    for (variable, row) in tableau.basis.iter().zip(&tableau.rows) {
        if let Some(variable) = variable {
            solved[*variable] = row.value;
        }
    }
    let mut solved = solved.into_iter();
    let price = |(used, top): (&bool, &f64)| match used {
        true => (solved.next().unwrap_or(0.0) * dearest / top).max(0.0),
        false => 0.0,
    };
    let prices: Vec<f64> = used.iter().zip(&top).map(price).collect();
    // Regardless of rounding errors, no offering may be worth more than its price.
    let worth = |room: &Amounts| worth(&prices, room);
    let scale = offerings
        .iter()
        .map(|(price, room)| (*price as f64, worth(room)))
        .filter(|(price, worth)| worth > price)
        .map(|(price, worth)| price / worth)
        .fold(1.0, f64::min);
    prices.iter().map(|price| price * scale).collect()
}

/// Worth of `amounts` at these prices.
#[expect(clippy::cast_precision_loss, reason = "only compared, or bounded with a margin")]
pub(crate) fn worth(prices: &[f64], amounts: &[i64]) -> f64 {
    prices.iter().zip(amounts).map(|(price, amount)| price * (*amount).max(0) as f64).sum()
}

/// A variable: the price of a resource.
#[derive(Debug)]
enum Variable {}

/// A row of the tableau, or the objective.
#[derive(Debug, Default)]
struct Row {
    /// Coefficients of the variables outside the basis, or of the slacks in their place.
    coefficients: IndexVec<Variable, f64>,
    value: f64,
}

/// A condensed simplex tableau with a feasible start.
struct Tableau {
    rows: IndexVec<Row, Row>,
    objective: Row,
    /// The basic variable of each row; `None` for a slack.
    basis: IndexVec<Row, Option<Id<Variable>>>,
    /// The variable of each column; `None` for a slack.
    outside: IndexVec<Variable, Option<Id<Variable>>>,
}

impl Tableau {
    /// Runs the simplex method.
    fn maximise(&mut self) {
        for _ in 0..PIVOTS_PER_RESOURCE * self.outside.len().max(1) {
            let entering = self.objective.coefficients.iter_enumerated().min_by(|(_, a), (_, b)| a.total_cmp(b));
            let Some((column, _)) = entering.filter(|(_, coefficient)| **coefficient < -TINY) else { break };
            let steps = self.rows.iter_enumerated().filter(|(_, row)| row.coefficients[column] > TINY);
            let steps = steps.map(|(id, row)| (id, row.value / row.coefficients[column]));
            let Some((row, _)) = steps.min_by(|(_, a), (_, b)| a.total_cmp(b)) else { break };
            self.pivot(row, column);
            std::mem::swap(&mut self.basis[row], &mut self.outside[column]);
        }
    }

    fn pivot(&mut self, id: Id<Row>, column: Id<Variable>) {
        let own = &mut self.rows[id];
        let inverse = 1.0 / own.coefficients[column];
        own.coefficients.iter_mut().for_each(|mine| *mine *= inverse);
        own.value *= inverse;
        let own = std::mem::take(own);
        let others = self.rows.iter_enumerated_mut().filter(|(other, _)| *other != id).map(|(_, row)| row);
        for other in others.chain([&mut self.objective]) {
            let factor = other.coefficients[column];
            if factor != 0.0 {
                for (theirs, mine) in other.coefficients.iter_mut().zip(&own.coefficients) {
                    *theirs -= factor * mine;
                }
                other.coefficients[column] = -factor * inverse;
                other.value -= factor * own.value;
            }
        }
        self.rows[id] = own;
        self.rows[id].coefficients[column] = inverse;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_offerings_that_share_the_demand_price_both_resources() {
        // 2 CPU + 8 GiB for 2, and 4 CPU + 4 GiB for 2. For a demand of (6, 12), one of each is bought. The prices are
        // 1/3 per CPU and 1/6 per GiB.
        let (a, b) = (vec![2, 8], vec![4, 4]);
        let prices = resource_prices(&[(2_000_000, &a), (2_000_000, &b)], &[6, 12]);
        assert!((prices[0] - 1_000_000.0 / 3.0).abs() < 1.0, "{prices:?}");
        assert!((prices[1] - 1_000_000.0 / 6.0).abs() < 1.0, "{prices:?}");
    }

    #[test]
    fn only_what_is_wanted_and_there_has_a_price() {
        let room = vec![4, 100, 0];
        assert_eq!(resource_prices(&[(8, &room)], &[2, 0, 5]), [2.0, 0.0, 0.0]);
        assert_eq!(resource_prices(&[], &[2]), [0.0]);
    }
}

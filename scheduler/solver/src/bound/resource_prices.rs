//! What a unit of each resource is worth: the dual of buying offerings in fractions.

use crate::input::intern::Amounts;

/// Pivots at most: a handful per resource is enough, and a program that cycles must end.
const PIVOTS_PER_RESOURCE: usize = 40;
/// Below this a number counts as zero; all are scaled to about one.
const TINY: f64 = 1e-9;

/// Prices per unit such that the room of no offering (price, room) is worth more than it costs, and `demand` is worth about the most.
/// Resources that are not wanted, or that no offering has, cost nothing.
#[expect(clippy::cast_precision_loss, reason = "rounding is undone by the last step")]
pub(crate) fn resource_prices(offerings: &[(i64, &Amounts)], demand: &[i64]) -> Vec<f64> {
    let width = demand.len();
    let mut top = vec![0.0_f64; width];
    for (_, room) in offerings {
        top.iter_mut().zip(room.iter()).for_each(|(top, room)| *top = top.max(*room as f64));
    }
    let dearest = offerings.iter().map(|(price, _)| *price).max().unwrap_or(1).max(1) as f64;
    let used: Vec<usize> = (0..width).filter(|index| demand[*index] > 0 && top[*index] > 0.0).collect();
    // Rows: sum of room x price of resource <= price of offering; the last row is the objective.
    let mut rows: Vec<Vec<f64>> = offerings
        .iter()
        .map(|(price, room)| {
            let scaled = used.iter().map(|index| (room[*index] as f64).max(0.0) / top[*index]);
            scaled.chain([*price as f64 / dearest]).collect()
        })
        .collect();
    let most = used.iter().map(|index| demand[*index] as f64 / top[*index]).fold(TINY, f64::max);
    rows.push(used.iter().map(|index| -(demand[*index] as f64) / top[*index] / most).chain([0.0]).collect());
    let basis = maximise(&mut rows, used.len());
    let mut prices = vec![0.0; width];
    for (row, variable) in basis.iter().enumerate() {
        if let Some(resource) = variable.and_then(|variable| used.get(variable)) {
            prices[*resource] = (rows[row][used.len()] * dearest / top[*resource]).max(0.0);
        }
    }
    // Whatever the arithmetic did: scaled down until no offering is undercut.
    let worth = |room: &Amounts| worth(&prices, room);
    let scale = offerings
        .iter()
        .map(|(price, room)| (*price as f64, worth(room)))
        .filter(|(price, worth)| worth > price)
        .map(|(price, worth)| price / worth)
        .fold(1.0, f64::min);
    prices.iter().map(|price| price * scale).collect()
}

/// What `amounts` are worth at these prices.
#[expect(clippy::cast_precision_loss, reason = "only compared, or bounded with a margin")]
pub(crate) fn worth(prices: &[f64], amounts: &[i64]) -> f64 {
    prices.iter().zip(amounts).map(|(price, amount)| price * (*amount).max(0) as f64).sum()
}

/// The simplex method on a condensed tableau that starts feasible. Returns which variable each row holds, `None` for a slack.
fn maximise(rows: &mut [Vec<f64>], width: usize) -> Vec<Option<usize>> {
    let last = rows.len() - 1;
    let mut basis: Vec<Option<usize>> = vec![None; last];
    let mut columns: Vec<Option<usize>> = (0..width).map(Some).collect();
    for _ in 0..PIVOTS_PER_RESOURCE * width.max(1) {
        let entering = (0..width).min_by(|a, b| rows[last][*a].total_cmp(&rows[last][*b]));
        let Some(column) = entering.filter(|column| rows[last][*column] < -TINY) else { break };
        let steps = (0..last).filter(|row| rows[*row][column] > TINY);
        let step = |row: usize| rows[row][width] / rows[row][column];
        let Some(row) = steps.min_by(|a, b| step(*a).total_cmp(&step(*b))) else { break };
        pivot(rows, row, column);
        std::mem::swap(&mut basis[row], &mut columns[column]);
    }
    basis
}

fn pivot(rows: &mut [Vec<f64>], row: usize, column: usize) {
    let inverse = 1.0 / rows[row][column];
    let own: Vec<f64> = rows[row].iter().map(|tuple| tuple * inverse).collect();
    for (index, other) in rows.iter_mut().enumerate() {
        if index == row {
            continue;
        }
        let factor = other[column];
        if factor != 0.0 {
            for (place, (tuple, mine)) in other.iter_mut().zip(&own).enumerate() {
                *tuple = if place == column { -factor * inverse } else { *tuple - factor * mine };
            }
        }
    }
    rows[row] = own;
    rows[row][column] = inverse;
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn two_offerings_that_share_the_demand_price_both_resources() {
        // 2 cpu + 8 GiB for 2, 4 cpu + 4 GiB for 2: with a demand of (6, 12) one of each is bought, 1/3 per cpu and 1/6 per GiB.
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

//! Growth of the planning time.

use super::table::{Table, exponent, marked, median, numbers, seconds};
use super::{Bench, PROGRESS};
use anyhow::Result;
use plimsoll_workloads::Case;
use plimsoll_workloads::bench::{self as workloads, Types};

/// Number of plans of each workload; the median counts.
const REPEAT: u32 = 3;

/// Maximum exponent.
const MOST: f64 = 1.2;

/// Seed of the sizes.
const SEED: u64 = 1;

/// Name of the axis, its values, and the workload at each value.
type Axis = (&'static str, &'static [usize], fn(usize) -> Case);

const AXES: &[Axis] = &[
    ("pods of 300 shapes", &[1_000, 3_000, 10_000, 30_000, 100_000, 200_000], |pods| {
        workloads::shapes(SEED, pods, 300, Types::BuiltIn)
    }),
    ("pods, all different", &[1_000, 3_000, 10_000, 30_000, 100_000], |pods| {
        workloads::all_different(SEED, pods, Types::BuiltIn)
    }),
    ("shapes of 20,000 pods", &[10, 100, 1_000, 10_000], |shapes| {
        workloads::shapes(SEED, 20_000, shapes, Types::BuiltIn)
    }),
    ("types, 5,000 pods of 100 shapes", &[50, 100, 300, 700, 1_334], |types| {
        workloads::shapes(SEED, 5_000, 100, Types::Thinned(types))
    }),
    ("nodes, 1,000 waiting pods", &[10, 100, 1_000, 3_000, 10_000], |nodes| {
        workloads::with_nodes(SEED, nodes, nodes * 10, 1_000)
    }),
    ("pools, 10,000 pods", &[2, 8, 32, 63], |pools| workloads::many_pools(SEED, 10_000, pools, Types::BuiltIn)),
];

pub(super) fn run(bench: &Bench) -> Result<Vec<Table>> {
    let mut table = Table::new("Growth", &["what grows", "times", "exponent", "of the last two"]);
    let mut steepest = 0.0_f64;
    for (title, values, make) in AXES {
        let mut points = Vec::new();
        let mut cells = Vec::new();
        for value in *values {
            PROGRESS.say(&format!("growth: {title}: {value}"));
            let figures = bench.measure.plan(&make(*value), REPEAT, false)?;
            let time = median(&numbers(&figures["solveSeconds"]));
            points.push((*value as f64, time));
            cells.push(format!("{}: {}", marked(&value.to_string(), &figures), seconds(time)));
        }
        let fitted = exponent(&points);
        steepest = steepest.max(fitted);
        let last = exponent(&points[points.len().saturating_sub(2)..]);
        table.row(vec![(*title).to_owned(), cells.join(", "), format!("{fitted:.2}"), format!("{last:.2}")]);
    }
    table.note("exponent: b of time = a x^b, fitted to all points by least squares of the logarithms.".to_owned());
    table.aim(steepest <= MOST, &format!("no fitted exponent above {MOST}: at most {steepest:.2}."));
    Ok(vec![table])
}

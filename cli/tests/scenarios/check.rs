//! Compares a plan with the expectations of a scenario.

use crate::format::{Count, Expect, Range};
use crate::view::View;
use crate::{domains, launches, pods, removals};
use plimsoll_cli::offline::Answer;

/// Adds all deviations to `faults`.
pub(crate) fn check(answer: &Answer, expect: &Expect, faults: &mut Vec<String>) {
    let view = View::new(answer);
    let violations = plimsoll_invariants::check(&answer.snapshot, &answer.catalogs, &answer.plan);
    faults.extend(violations.iter().map(|it| format!("not a valid plan: {it}")));
    launches::check(&view, expect, faults);
    pods::check(&view, expect, faults);
    removals::check(&view, expect, faults);
    domains::check(&view, expect, faults);
    if let Some(range) = expect.cost {
        between("the launches' cost", answer.plan.hourly.usd(), range, faults);
    }
    let moved = answer.plan.launches.len() + answer.plan.placements.len() + answer.plan.terminations.len();
    if expect.nothing && moved > 0 {
        faults.push("nothing should happen".to_owned());
    }
}

/// Half of the smallest price step in the output.
const HALF_A_STEP: f64 = 0.000_000_5;

pub(crate) fn between(what: &str, value: f64, range: Range, faults: &mut Vec<String>) {
    if range.min.is_some_and(|least| value < least - HALF_A_STEP) {
        faults.push(format!("{what}: {value} USD per hour, at least {} expected", range.min.unwrap_or_default()));
    }
    if range.max.is_some_and(|most| value > most + HALF_A_STEP) {
        faults.push(format!("{what}: {value} USD per hour, at most {} expected", range.max.unwrap_or_default()));
    }
}

pub(crate) fn counted(what: &str, count: usize, wanted: Count, faults: &mut Vec<String>) {
    if !wanted.allows(count) {
        faults.push(format!("{what}: {count}, expected {wanted:?}"));
    }
}

//! Plans without a session.

use crate::{figures, question};
use anyhow::{Result, bail};
use plimsoll_model::plan::PlanOptions;
use serde_json::Value;
use std::path::Path;
use std::time::Instant;

/// Plans `repeat` times without earlier state, and then checks the plan.
pub(crate) fn measure(folder: &Path, repeat: usize) -> Result<Value> {
    let (snapshot, catalogs) = question(folder)?;
    let before = figures::peak_mib()?;
    let (mut seconds, mut first) = (Vec::new(), None);
    for _ in 0..repeat {
        let started = Instant::now();
        let plan = plimsoll_solver::solve(&snapshot, &catalogs, &PlanOptions::default());
        seconds.push(started.elapsed().as_secs_f64());
        match &first {
            None => first = Some(plan),
            Some(first) if *first == plan => {}
            Some(_) => bail!("two plans for the same snapshot differ"),
        }
    }
    let plan = first.unwrap_or_default();
    // Read before the check, which is not part of planning.
    let peak = figures::peak_mib()?;
    let started = Instant::now();
    let violations = plimsoll_invariants::check(&snapshot, &catalogs, &plan);
    let mut result = figures::of(&snapshot, &catalogs, &plan);
    result["solveSeconds"] = seconds.into();
    result["checkSeconds"] = started.elapsed().as_secs_f64().into();
    result["inputMib"] = before.into();
    result["peakMib"] = peak.into();
    result["violations"] = violations.len().into();
    result["firstViolation"] = violations.first().map(ToString::to_string).into();
    Ok(result)
}

//! Makes the plans of a recording again and compares them.

use crate::{ReplayError, open};
use plimsoll_model::plan::Plan;
use plimsoll_model::time::Timestamp;
use plimsoll_recording::Step;
use plimsoll_solver::Planner;
use serde_json::Value;
use std::collections::BTreeSet;
use std::path::PathBuf;

/// What was compared.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Summary {
    /// Name of the cluster.
    pub cluster: String,
    /// Times of the first and the last plan.
    pub period: Option<(Timestamp, Timestamp)>,
    /// Number of plans.
    pub plans: usize,
    /// Launches in these plans. A launch that is planned again, until it is admitted, counts each time.
    pub launches: usize,
    /// Removals in these plans, counted likewise.
    pub removals: usize,
    /// Outcomes of actions.
    pub outcomes: usize,
    /// Files that end in the middle of an entry.
    pub truncated: Vec<PathBuf>,
    /// The first plan that is another one now, where the comparison ends.
    pub difference: Option<Box<Difference>>,
}

/// A plan that is another one now.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Difference {
    /// The file.
    pub file: PathBuf,
    /// Id of the cycle.
    pub cycle_id: String,
    /// When the plan was recorded.
    pub at: Timestamp,
    /// Version of the watcher that recorded.
    pub version: String,
    /// The plan as recorded.
    pub recorded: Plan,
    /// The plan that the solver makes now.
    pub now: Plan,
}

impl Difference {
    /// The first field that differs, as text: its path, the recorded value, and the present one.
    #[must_use]
    pub fn first(&self) -> String {
        let value = |plan| serde_json::to_value(plan).unwrap_or_default();
        first_difference("", &value(&self.recorded), &value(&self.now)).unwrap_or_default()
    }
}

fn first_difference(path: &str, recorded: &Value, now: &Value) -> Option<String> {
    if recorded == now {
        return None;
    }
    let below = |path: String, recorded: Option<&Value>, now: Option<&Value>| {
        first_difference(&path, recorded.unwrap_or(&Value::Null), now.unwrap_or(&Value::Null))
    };
    let found = match (recorded, now) {
        (Value::Object(before), Value::Object(after)) => {
            let keys: BTreeSet<&String> = before.keys().chain(after.keys()).collect();
            let dot = if path.is_empty() { "" } else { "." };
            keys.into_iter().find_map(|key| below(format!("{path}{dot}{key}"), before.get(key), after.get(key)))
        }
        (Value::Array(before), Value::Array(after)) => {
            let positions = 0..before.len().max(after.len());
            positions.into_iter().find_map(|at| below(format!("{path}[{at}]"), before.get(at), after.get(at)))
        }
        _ => None,
    };
    let short = |value: &Value| match value {
        Value::Null => "nothing".to_owned(),
        Value::Array(_) | Value::Object(_) => "something".to_owned(),
        value => value.to_string(),
    };
    Some(found.unwrap_or_else(|| format!("{path} was {}, is now {}", short(recorded), short(now))))
}

/// Replays files until the first difference. Calls `progress` with the number of plans so far.
///
/// # Errors
/// If a file cannot be read.
pub fn replay(files: &[PathBuf], progress: impl FnMut(usize)) -> Result<Summary, ReplayError> {
    let mut summary = Summary::default();
    match compare(files, &mut summary, progress) {
        Ok(()) => Ok(summary),
        Err(ReplayError::Read(error)) if summary.plans > 0 => {
            Err(ReplayError::ReadAfter { plans: summary.plans, error })
        }
        Err(error) => Err(error),
    }
}

fn compare(files: &[PathBuf], summary: &mut Summary, mut progress: impl FnMut(usize)) -> Result<(), ReplayError> {
    for file in files {
        let mut reader = open(file, &mut summary.cluster)?;
        let mut planner = Planner::default();
        while let Some(step) = reader.next_step()? {
            let planned = match step {
                Step::Restarted => {
                    planner = Planner::default();
                    continue;
                }
                Step::Reported { .. } => {
                    summary.outcomes += 1;
                    continue;
                }
                Step::Planned(planned) => planned,
            };
            let Some((snapshot, index)) = reader.snapshot() else { continue };
            let now = planner.solve(snapshot, index, reader.catalogs(), &planned.options);
            summary.plans += 1;
            summary.launches += planned.plan.launches.len();
            summary.removals += planned.plan.terminations.len();
            let first = summary.period.map_or(reader.at(), |(first, _)| first);
            summary.period = Some((first, reader.at()));
            if now != planned.plan {
                summary.difference = Some(Box::new(Difference {
                    file: file.clone(),
                    cycle_id: planned.cycle_id,
                    at: reader.at(),
                    version: reader.version().to_owned(),
                    recorded: planned.plan,
                    now,
                }));
            }
            progress(summary.plans);
            if summary.difference.is_some() {
                break;
            }
        }
        if reader.is_truncated() {
            summary.truncated.push(file.clone());
        }
        if summary.difference.is_some() {
            break;
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests;

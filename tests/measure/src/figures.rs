//! Figures of a plan.

use anyhow::{Context as _, Result};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::CatalogId;
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{PodState, Snapshot};
use serde_json::{Value, json};
use std::collections::BTreeMap;

/// Counts and cost.
pub(crate) fn of(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, plan: &Plan) -> Value {
    let pending = snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending).count();
    let types: usize = catalogs.values().map(|catalog| catalog.instance_types.len()).sum();
    let reason = plan.unschedulable.first().and_then(|entry| entry.reasons.first());
    let most = plan.launches.iter().map(|launch| launch.pods.len()).max();
    json!({
        "pods": pending,
        "shapes": snapshot.shapes.len(),
        "types": types,
        "nodes": snapshot.nodes.len(),
        "launches": plan.launches.len(),
        "mostOnOneLaunch": most,
        "onLaunches": plan.launches.iter().map(|launch| launch.pods.len()).sum::<usize>(),
        "onExisting": plan.placements.iter().map(|placement| placement.pods.len()).sum::<usize>(),
        "unschedulable": plan.unschedulable.len(),
        "firstReason": reason.map(|reason| format!("{}: {}", reason.code.as_str(), reason.message)),
        "terminations": plan.terminations.len(),
        "hourly": plan.hourly.usd(),
        "lowerBound": plan.lower_bound.usd(),
        "gap": plan.gap(),
    })
}

/// Peak memory of this process: the high-water mark of Linux.
pub(crate) fn peak_mib() -> Result<f64> {
    peak_of("self")
}

/// Peak memory of another process, by its id.
pub(crate) fn peak_of(process: &str) -> Result<f64> {
    let status = std::fs::read_to_string(format!("/proc/{process}/status"));
    let status = status.context("peak memory is read from Linux' /proc")?;
    let line =
        status.lines().find_map(|line| line.strip_prefix("VmHWM:")).context("no VmHWM in the process's status")?;
    let kib: f64 = line.trim().trim_end_matches("kB").trim().parse()?;
    Ok(kib / 1024.0)
}

/// The percentile of sorted values: 0.5 for the median, 0.99 for p99.
pub(crate) fn percentile(values: &[f64], share: f64) -> f64 {
    let mut sorted = values.to_vec();
    sorted.sort_by(f64::total_cmp);
    let last = sorted.len().saturating_sub(1);
    #[expect(
        clippy::cast_precision_loss,
        clippy::cast_possible_truncation,
        clippy::cast_sign_loss,
        reason = "a place in a short list"
    )]
    let place = (last as f64 * share).ceil() as usize;
    sorted.get(place.min(last)).copied().unwrap_or(0.0)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn percentiles_are_values_that_were_measured() {
        let values: Vec<f64> = (1..=101).rev().map(f64::from).collect();
        let percentiles = [0.0, 0.5, 0.99, 1.0].map(|share| percentile(&values, share));
        assert_eq!(percentiles.map(|it| it.to_string()), ["1", "51", "100", "101"]);
        assert!(percentile(&[], 0.5).abs() < f64::EPSILON);
    }

    #[test]
    fn a_process_has_some_memory() {
        assert!(peak_mib().is_ok_and(|mib| mib > 0.5));
    }
}

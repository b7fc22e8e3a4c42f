//! How far a rollout is, and how long the rest takes. Derived from the NodeClaims alone, so that a restart of a service
//! changes nothing.

use crate::{annotations, kube_time};
use plimsoll_api::{NodeClaim, condition};
use plimsoll_model::names::annotation;
use plimsoll_model::time::{Millis, Timestamp};
use std::fmt;

/// Texts show numbers of nodes in steps of the total divided by this, so that the status of a large pool is not written
/// for each node.
const STEPS: usize = 100;
/// Texts show minutes in steps of [`MINUTES_STEP`] above this.
const EXACT_MINUTES: u64 = 15;
/// See [`EXACT_MINUTES`].
const MINUTES_STEP: u64 = 5;
/// Milliseconds of a minute.
const MINUTE: u64 = 60_000;

/// Progress of a rollout.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub struct Progress {
    /// Drifted nodes whose replacement has not started.
    pub drifted: usize,
    /// Drifted nodes that wait for their replacement, or that are being removed.
    pub replacing: usize,
    /// Nodes of the current revision beyond those that drifted nodes wait for.
    pub replaced: usize,
    /// Estimate of the time until no node has drifted. `None` if the rollout does not advance, or if no node of the
    /// current revision is in service.
    pub left: Option<Millis>,
}

impl Progress {
    /// `drifted` are the claims that have drifted, `current` those that were launched for the rollout.
    pub(super) fn of(drifted: &[&NodeClaim], current: &[&NodeClaim], advances: bool, now: Timestamp) -> Self {
        let replacing = drifted.iter().filter(|claim| is_leaving(claim)).count();
        let counts = Self {
            drifted: drifted.len().saturating_sub(replacing),
            replacing,
            replaced: current.len().saturating_sub(replacing),
            left: None,
        };
        Self { left: advances.then(|| counts.estimate(current, now)).flatten(), ..counts }
    }

    /// Nodes of the rollout.
    #[must_use]
    pub fn total(&self) -> usize {
        self.drifted.saturating_add(self.replacing).saturating_add(self.replaced)
    }

    /// A node takes as long as nodes of the current revision took on average until they were in service. As many nodes
    /// are replaced at the same time as now, or as were launched within that time.
    fn estimate(&self, current: &[&NodeClaim], now: Timestamp) -> Option<Millis> {
        let created = |claim: &NodeClaim| kube_time::created(&claim.metadata);
        let took = |claim: &&NodeClaim| {
            let initialized = claim.true_condition(condition::node_claim::INITIALIZED)?;
            let since = kube_time::timestamp(&initialized.last_transition_time);
            Some(since.since(created(claim)).0)
        };
        let times: Vec<u64> = current.iter().filter_map(took).collect();
        let sum = times.iter().fold(0, |sum: u64, time| sum.saturating_add(*time));
        let per_node = sum.checked_div(as_u64(times.len()))?;
        let recent = current.iter().filter(|claim| now.since(created(claim)).0 < per_node).count();
        let at_once = as_u64(self.replacing.max(recent));
        let rest = per_node.saturating_mul(as_u64(self.drifted)).checked_div(at_once)?;
        let booting = current.iter().filter(|claim| !claim.is_initialized()).map(|claim| created(claim)).max();
        let under_way = booting.map_or(0, |newest| per_node.saturating_sub(now.since(newest).0));
        Some(Millis(rest.saturating_add(under_way)))
    }
}

/// Such as `1,200 of 5,000 nodes replaced, 500 in progress, about 25 minutes left`.
impl fmt::Display for Progress {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let total = self.total();
        let step = (total / STEPS).max(1);
        let replaced = self.replaced / step * step;
        let in_progress = self.replacing.div_ceil(step) * step;
        let (replaced, in_progress) = (thousands(replaced), thousands(in_progress));
        write!(f, "{replaced} of {} nodes replaced, {in_progress} in progress", thousands(total))?;
        let Some(left) = self.left else { return Ok(()) };
        let minutes = left.0.div_ceil(MINUTE).max(1);
        let minutes = if minutes > EXACT_MINUTES { minutes.next_multiple_of(MINUTES_STEP) } else { minutes };
        write!(f, ", about {minutes} minute{} left", if minutes == 1 { "" } else { "s" })
    }
}

fn is_leaving(claim: &NodeClaim) -> bool {
    let metadata = &claim.metadata;
    metadata.deletion_timestamp.is_some() || annotations::text(metadata, annotation::REMOVAL).is_some()
}

fn as_u64(count: usize) -> u64 {
    u64::try_from(count).unwrap_or(u64::MAX)
}

/// The number with a comma between each three digits.
fn thousands(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::with_capacity(digits.len() + digits.len() / 3);
    for (index, digit) in digits.chars().enumerate() {
        if index > 0 && (digits.len() - index).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests;

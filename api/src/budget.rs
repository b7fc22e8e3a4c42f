//! Disruption budgets: how many nodes of a pool may be disrupted at once, always or within scheduled windows.

use crate::{GoDuration, node_pool::NodePoolSpec, schema};
use jiff::{SignedDuration, Timestamp};
use schemars::JsonSchema;
use serde::{Deserialize, Serialize};
use serde_json::json;

mod cron;

pub use cron::{Cron, CronError};

/// Default of `nodes`: a tenth of the pool's nodes.
pub const DEFAULT_NODES: &str = "10%";

/// A disruption reason.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, JsonSchema)]
pub enum DisruptionReason {
    /// Their pods have room elsewhere or on something cheaper.
    Underutilized,
    /// They have no pods of their own.
    Empty,
    /// They differ from what is now asked for.
    Drifted,
}

impl DisruptionReason {
    /// All reasons.
    pub const ALL: [Self; 3] = [Self::Empty, Self::Underutilized, Self::Drifted];

    /// The reason as budgets name it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Underutilized => "Underutilized",
            Self::Empty => "Empty",
            Self::Drifted => "Drifted",
        }
    }
}

/// A limit on the number of nodes that are disrupted at the same time.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize, JsonSchema)]
#[serde(rename_all = "camelCase")]
#[schemars(extend("required" = ["nodes"]))]
pub struct Budget {
    /// Disruption reasons that the budget applies to. Unset: all reasons.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(length(max = 50), extend("x-kubernetes-list-type" = "set"))]
    pub reasons: Option<Vec<DisruptionReason>>,
    /// Maximum number of nodes that are disrupted at the same time: a number, or a percentage of the NodePool's nodes,
    /// rounded up.
    #[serde(default = "default_nodes")]
    #[schemars(regex(pattern = schema::pattern::BUDGET_NODES), extend("default" = json!(DEFAULT_NODES)))]
    pub nodes: String,
    /// Cron schedule at which the budget becomes active: minute, hour, day of month, month, day of week, or a macro
    /// such as @daily. It is in UTC. CRON_TZ=Europe/Berlin before the five fields sets another time zone, which
    /// Karpenter cannot read. Unset: the budget is always active.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::BUDGET_SCHEDULE))]
    pub schedule: Option<String>,
    /// How long the budget is active after each time of the schedule, in hours and minutes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schemars(regex(pattern = schema::pattern::BUDGET_DURATION))]
    pub duration: Option<GoDuration>,
}

fn default_nodes() -> String {
    DEFAULT_NODES.to_owned()
}

impl Default for Budget {
    /// A tenth of the nodes, for all reasons, at any time.
    fn default() -> Self {
        Self { reasons: None, nodes: default_nodes(), schedule: None, duration: None }
    }
}

/// Reason why a budget is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BudgetError {
    /// `nodes` is neither a number nor a percentage.
    #[error("nodes {0:?} is neither a number nor a percentage")]
    Nodes(String),
    /// The schedule is invalid.
    #[error("schedule: {0}")]
    Schedule(#[from] CronError),
    /// Only one of schedule and duration is set.
    #[error("schedule and duration need each other")]
    Incomplete,
}

impl Budget {
    /// Whether the budget applies to `reason`.
    #[must_use]
    pub fn concerns(&self, reason: DisruptionReason) -> bool {
        self.reasons.as_ref().is_none_or(|reasons| reasons.contains(&reason))
    }

    /// Number of `total` nodes that may be disrupted while the budget is active. A percentage is rounded up.
    pub fn allowed(&self, total: u32) -> Result<u32, BudgetError> {
        let error = || BudgetError::Nodes(self.nodes.clone());
        let (digits, of_total) = match self.nodes.strip_suffix('%') {
            Some(digits) => (digits, true),
            None => (self.nodes.as_str(), false),
        };
        if digits.is_empty() || !digits.bytes().all(|byte| byte.is_ascii_digit()) {
            return Err(error());
        }
        let number: u64 = digits.parse().map_err(|_| error())?;
        let allowed = if of_total { number.saturating_mul(u64::from(total)).div_ceil(100) } else { number };
        Ok(u32::try_from(allowed).unwrap_or(u32::MAX))
    }

    /// Whether the budget is active at `now`, that is, a scheduled window is open.
    pub fn is_active(&self, now: Timestamp) -> Result<bool, BudgetError> {
        let Some((cron, duration)) = self.window()? else { return Ok(true) };
        Ok(Self::opened(&cron, duration, now).is_some())
    }

    /// The next time after `now` at which the budget may become active or inactive; `None` if it never changes. If
    /// windows overlap, this can be the end of one window while another is open.
    pub fn next_change(&self, now: Timestamp) -> Result<Option<Timestamp>, BudgetError> {
        let Some((cron, duration)) = self.window()? else { return Ok(None) };
        let end = Self::opened(&cron, duration, now).and_then(|opened| cron.ends(opened, duration));
        Ok(end.or_else(|| cron.next_after(now)))
    }

    fn window(&self) -> Result<Option<(Cron, SignedDuration)>, BudgetError> {
        match (&self.schedule, &self.duration) {
            (None, None) => Ok(None),
            (Some(schedule), Some(duration)) => {
                // A window beyond jiff's range is always open.
                let duration = SignedDuration::try_from(duration.value()).unwrap_or(SignedDuration::MAX);
                Ok(Some((Cron::parse(schedule)?, duration)))
            }
            _ => Err(BudgetError::Incomplete),
        }
    }

    /// When the window that is open at `now` started.
    fn opened(cron: &Cron, duration: SignedDuration, now: Timestamp) -> Option<Timestamp> {
        let opened = cron.last_at_or_before(now)?;
        // A window that ends beyond jiff's range is always open.
        cron.ends(opened, duration).is_none_or(|end| now < end).then_some(opened)
    }
}

impl NodePoolSpec {
    /// Number of `total` nodes of the pool that may be disrupted at once for `reason` at `now`, including nodes that
    /// are already disrupted. This is the minimum of all active budgets for the reason. Without such a budget there is
    /// no limit. An invalid budget allows no disruptions at all.
    #[must_use]
    pub fn allowed_disruptions(&self, reason: DisruptionReason, now: Timestamp, total: u32) -> u32 {
        let mut minimum = u32::MAX;
        for budget in self.budgets() {
            let allowed = match (budget.is_active(now), budget.allowed(total)) {
                (Ok(true), Ok(allowed)) if budget.concerns(reason) => allowed,
                (Ok(_), Ok(_)) => continue,
                (Err(_), _) | (_, Err(_)) => 0,
            };
            minimum = minimum.min(allowed);
        }
        minimum
    }

    /// The next time after `now` at which [`NodePoolSpec::allowed_disruptions`] may change.
    #[must_use]
    pub fn next_budget_change(&self, now: Timestamp) -> Option<Timestamp> {
        self.budgets().iter().filter_map(|budget| budget.next_change(now).ok().flatten()).min()
    }
}

#[cfg(test)]
mod tests;

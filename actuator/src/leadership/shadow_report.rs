//! Shadow mode's report: while Karpenter's Lease is held, what plans would have done, per NodePool, once per interval
//! as a log line, an Event and metrics.

use super::pause::UNKNOWN;
use crate::events::{Note, Recorder, object, reason};
use crate::fencing::Fence;
use crate::metrics::ActuatorMetrics;
use crate::metrics::node_pools::{costs, price};
use crate::metrics::view::{ClusterView, Sources};
use crate::state::proposals::{PoolReport, Proposals};
use crate::state::unexecuted::Unexecuted;
use plimsoll_model::identity::NodeName;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_runtime::clock::sleep_until;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Writes the report.
#[derive(Clone)]
pub(super) struct ShadowReport {
    /// The cluster and the catalogs.
    pub sources: Sources,
    /// Plans that were not executed.
    pub unexecuted: Unexecuted,
    /// Events on NodePools.
    pub events: Recorder,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Fence of the term.
    pub fence: Fence,
    /// Time between two reports.
    pub interval: Duration,
}

/// Writes a report at the end of each interval of a pause.
pub(super) async fn run(deps: ShadowReport, stop: CancellationToken) {
    let mut fence = deps.fence.clone();
    let mut due: Option<Instant> = None;
    loop {
        let paused = fence.paused().is_some_and(|reason| reason != UNKNOWN);
        if !paused {
            due = None;
            deps.metrics.shadow.set(Vec::new());
        } else if due.is_none() {
            *deps.unexecuted.proposals.lock() = Proposals::default();
            due = Some(Instant::now() + deps.interval);
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = fence.pause_changed() => {}
            () = sleep_until(due) => {
                deps.write();
                due = None;
            }
        }
    }
}

impl ShadowReport {
    fn write(&self) {
        let view = ClusterView::of(&self.sources);
        let mut prices: BTreeMap<&str, (String, MicroUsdPerHour)> = BTreeMap::new();
        for claim in &view.claims {
            if let (Some(node), Some(price)) = (claim.node_name(), price(&view, claim)) {
                prices.insert(node, (claim.node_pool().to_owned(), price));
            }
        }
        let pools = view.pools.iter().filter_map(|pool| pool.metadata.name.clone());
        let price_of = |node: &NodeName| prices.get(node.0.as_str()).cloned();
        let reports = self.unexecuted.proposals.lock().report(pools, &costs(&view), price_of);
        for report in &reports {
            tracing::info!(
                nodepool = report.pool,
                period_seconds = self.interval.as_secs(),
                launches = report.launches,
                removals = report.removals,
                incomplete = report.incomplete,
                current_usd_per_hour = report.current.usd(),
                planned_usd_per_hour = report.planned.map(MicroUsdPerHour::usd),
                "shadow report: what would have been done"
            );
            if let Some(pool) = view.pools.iter().find(|pool| pool.metadata.name.as_deref() == Some(&report.pool)) {
                let note = Note::normal(object(pool.as_ref()), reason::SHADOW_REPORT, message(report, self.interval));
                self.events.publish(note.with_cause(view.now.to_string()));
            }
        }
        self.metrics.shadow.set(reports);
    }
}

fn message(report: &PoolReport, period: Duration) -> String {
    let PoolReport { launches, removals, incomplete, current, planned, .. } = report;
    let at_least = if *incomplete { "at least " } else { "" };
    let done = format!(
        "In the last {}, Plimsoll would have launched {at_least}{launches} and removed {at_least}{removals} nodes of this NodePool.",
        text(period)
    );
    match planned {
        Some(planned) => {
            format!("{done} Its nodes cost {current} USD per hour; with the last plan they would cost {planned}.")
        }
        None => format!("{done} Its nodes cost {current} USD per hour; there was no plan in this time."),
    }
}

/// `24 h`, `90 min`.
fn text(period: Duration) -> String {
    let minutes = period.as_secs() / 60;
    if minutes.is_multiple_of(60) { format!("{} h", minutes / 60) } else { format!("{minutes} min") }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_report_names_figures_and_period() {
        let report = PoolReport {
            pool: "general".to_owned(),
            launches: 3,
            removals: 2,
            incomplete: false,
            current: MicroUsdPerHour(500_000),
            planned: Some(MicroUsdPerHour(370_000)),
        };
        assert_eq!(
            message(&report, Duration::from_secs(24 * 3600)),
            "In the last 24 h, Plimsoll would have launched 3 and removed 2 nodes of this NodePool. \
             Its nodes cost 0.5 USD per hour; with the last plan they would cost 0.37."
        );
        let none = PoolReport { incomplete: true, planned: None, ..report };
        let text = message(&none, Duration::from_secs(90 * 60));
        assert!(text.starts_with("In the last 90 min, Plimsoll would have launched at least 3 and"), "{text}");
        assert!(text.ends_with("there was no plan in this time."), "{text}");
    }
}

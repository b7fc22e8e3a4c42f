//! Metrics of the shadow report: what would have been done while another autoscaler runs.

use crate::state::proposals::PoolReport;
use parking_lot::Mutex;
use plimsoll_runtime::metrics::scrape::{Labels, Samples, Scraped};
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use std::sync::Arc;

/// Metrics of the shadow report. Clones share them.
#[derive(Debug, Clone)]
pub struct ShadowMetrics {
    launches: Scraped,
    removals: Scraped,
    cost: Scraped,
    latest: Arc<Mutex<Vec<PoolReport>>>,
}

impl ShadowMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        Ok(Self {
            launches: metrics.scraped(
                "shadow_launches",
                "Nodes that would have been launched in the period of the last shadow report.",
                &["nodepool"],
            )?,
            removals: metrics.scraped(
                "shadow_removals",
                "Nodes that would have been removed in the period of the last shadow report.",
                &["nodepool"],
            )?,
            cost: metrics.scraped(
                "shadow_cost_usd_per_hour",
                "Price of a NodePool's nodes in US dollars per hour at the last shadow report: current, and as planned.",
                &["nodepool", "state"],
            )?,
            latest: Arc::default(),
        })
    }

    /// Replaces the last report; an empty one if there is none.
    pub(crate) fn set(&self, reports: Vec<PoolReport>) {
        *self.latest.lock() = reports;
    }

    /// Writes the gauges.
    pub(super) fn collect(&self, samples: &mut Samples) {
        for report in self.latest.lock().iter() {
            let labels = Labels::of(&[("nodepool", &report.pool)]);
            samples.put(&self.launches, &labels, count(report.launches));
            samples.put(&self.removals, &labels, count(report.removals));
            samples.put(&self.cost, &labels.with("state", "current"), report.current.usd());
            if let Some(planned) = report.planned {
                samples.put(&self.cost, &labels.with("state", "planned"), planned.usd());
            }
        }
    }
}

fn count(count: usize) -> f64 {
    f64::from(u32::try_from(count).unwrap_or(u32::MAX))
}

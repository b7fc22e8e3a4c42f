//! Queries of Karpenter's dashboards: the metrics and labels that they use.

use super::scrapes::{Labels, Scrapes};
use anyhow::{Context as _, Result};
use serde::Deserialize;
use std::collections::{BTreeMap, BTreeSet};

const FACTS: &str = include_str!("../../../../../tests/monitoring/karpenter-dashboards.yaml");

/// A query.
#[derive(Deserialize, Debug)]
#[serde(deny_unknown_fields)]
pub(super) struct Query {
    /// Metrics that the query joins.
    metrics: Vec<String>,
    /// Labels with their values; `*` for any value.
    #[serde(default)]
    select: BTreeMap<String, String>,
    #[serde(default)]
    by: Vec<String>,
}

/// The queries of both dashboards.
///
/// # Errors
/// If the file cannot be parsed.
pub(super) fn queries() -> Result<Vec<Query>> {
    let boards: BTreeMap<String, Vec<Query>> =
        serde_saphyr::from_str(FACTS).context("tests/monitoring/karpenter-dashboards.yaml")?;
    Ok(boards.into_values().flatten().collect())
}

impl Query {
    /// Whether the query would return a series.
    pub(super) fn has_series(&self, scrapes: &Scrapes) -> bool {
        let mut common: Option<BTreeSet<&Labels>> = None;
        for metric in &self.metrics {
            let label_sets: BTreeSet<&Labels> = scrapes.of(metric).filter(|labels| self.takes(labels)).collect();
            common = Some(match common {
                Some(before) => before.intersection(&label_sets).copied().collect(),
                None => label_sets,
            });
        }
        common.is_some_and(|series| !series.is_empty())
    }

    fn takes(&self, labels: &Labels) -> bool {
        let has = |label: &String| labels.get(label).is_some_and(|value| !value.is_empty());
        let selected = |(label, wanted): (&String, &String)| match wanted.as_str() {
            "*" => has(label),
            _ => labels.get(label) == Some(wanted),
        };
        self.select.iter().all(selected) && self.by.iter().all(|label| has(label) || label == CONSOLIDATION_TYPE)
    }

    /// Name for messages.
    pub(super) fn name(&self) -> String {
        let select: Vec<_> = self.select.iter().map(|(label, value)| format!("{label}={value}")).collect();
        format!("{} {{{}}} by ({})", self.metrics.join(" with "), select.join(", "), self.by.join(", "))
    }
}

/// Empty for reasons other than consolidation, as in Karpenter.
const CONSOLIDATION_TYPE: &str = "consolidation_type";

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn has_series(query: &str, scraped: &str) -> Result<bool> {
        let mut scrapes = Scrapes::default();
        scrapes.add(scraped, SocketAddr::from(([127, 0, 0, 1], 1)))?;
        let query: Query = serde_saphyr::from_str(query)?;
        Ok(query.has_series(&scrapes))
    }

    #[test]
    fn a_query_needs_its_labels_and_metrics_with_the_same_ones() -> Result<()> {
        let usage = "{metrics: [usage, limit], select: {type: cpu, pool: \"*\"}, by: [pool]}";
        let both = "usage{type=\"cpu\",pool=\"a\"} 1\nlimit{type=\"cpu\",pool=\"a\"} 2\n";
        assert!(has_series(usage, both)?);
        assert!(!has_series(usage, &both.replace("limit{type=\"cpu\"", "limit{type=\"memory\""))?, "another value");
        assert!(
            !has_series(usage, &both.replace("limit{type=\"cpu\",pool=\"a\"", "limit{type=\"cpu\",pool=\"b\""))?,
            "labels differ"
        );
        assert!(!has_series(usage, &both.replace(",pool=\"a\"", ""))?, "no label to group by");
        assert!(!has_series(usage, "")?);
        Ok(())
    }

    #[test]
    fn the_facts_are_those_of_two_dashboards() -> Result<()> {
        let queries = queries()?;
        assert!(queries.len() > 40, "{}", queries.len());
        assert!(queries.iter().all(|query| !query.metrics.is_empty()));
        Ok(())
    }
}

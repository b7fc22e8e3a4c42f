//! Metrics of status conditions and terminations, as Karpenter's operator library exports them for each kind.

use super::view::{ClusterView, label_of, seconds_between};
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{Condition, ObjectMeta};
use plimsoll_model::names::label;
use plimsoll_runtime::metrics::scrape::{Labels, Samples, Scraped};
use plimsoll_runtime::metrics::spec::Meaning;
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use prometheus::{HistogramVec, IntCounterVec};
use std::collections::BTreeMap;

/// A kind, and the labels of its objects that are labels of its metrics too.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    NodeClaim,
    NodePool,
    Node,
    Ec2NodeClass,
}

impl Kind {
    const ALL: [Self; 4] = [Self::NodeClaim, Self::NodePool, Self::Node, Self::Ec2NodeClass];

    fn name(self) -> &'static str {
        match self {
            Self::NodeClaim => "nodeclaim",
            Self::NodePool => "nodepool",
            Self::Node => "node",
            Self::Ec2NodeClass => "ec2nodeclass",
        }
    }

    fn label_keys(self) -> &'static [&'static str] {
        match self {
            Self::NodeClaim => &[label::NODE_POOL, label::EC2_NODE_CLASS],
            Self::Node => &[label::NODE_POOL, label::EC2_NODE_CLASS, label::INITIALIZED],
            Self::NodePool | Self::Ec2NodeClass => &[],
        }
    }
}

/// Metrics of one kind.
#[derive(Debug, Clone)]
struct KindMetrics {
    /// Names of the additional labels, by the object's label.
    extra: Vec<(&'static str, String)>,
    count: Scraped,
    current: Scraped,
    terminating: Scraped,
    transition_seconds: HistogramVec,
    transitions: IntCounterVec,
    termination_seconds: HistogramVec,
}

/// Metrics of conditions of all kinds. Clones share them.
#[derive(Debug, Clone)]
pub struct ConditionMetrics {
    kinds: BTreeMap<Kind, KindMetrics>,
}

impl ConditionMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let operator = metrics.shared("operator_", Meaning::Same);
        let kinds = Kind::ALL.into_iter().map(|kind| Ok((kind, KindMetrics::new(&operator, kind)?)));
        Ok(Self { kinds: kinds.collect::<Result<_, MetricsError>>()? })
    }

    /// Writes the gauges.
    pub(super) fn collect(&self, view: &ClusterView, samples: &mut Samples) {
        each(view, |object| {
            if let Some(metrics) = self.kinds.get(&object.kind) {
                metrics.collect(object, view.now, samples);
            }
        });
    }
}

impl KindMetrics {
    fn new(operator: &Metrics, kind: Kind) -> Result<Self, MetricsError> {
        let sanitized = |key: &'static str| (key, key.replace(['/', '.', '-'], "_"));
        let extra: Vec<(&'static str, String)> = kind.label_keys().iter().map(|key| sanitized(key)).collect();
        let with = |labels: &[&'static str]| -> Vec<String> {
            let own = labels.iter().map(|label| (*label).to_owned());
            own.chain(extra.iter().map(|(_, name)| name.clone())).collect()
        };
        let name = |part: &str| format!("{}_{part}", kind.name());
        let (of_object, of_condition) = (with(&["name"]), with(&["name", "type", "status", "reason"]));
        let (of_state, of_transition) = (with(&["type", "status"]), with(&["type", "status", "reason"]));
        let no_own = with(&[]);
        let buckets: Vec<f64> = (0..15).map(|power| 0.5 * 2.0_f64.powi(power)).collect();
        Ok(Self {
            count: operator.scraped(
                &name("status_condition_count"),
                "1 for each status condition of an object.",
                &refs(&of_condition),
            )?,
            current: operator.scraped(
                &name("status_condition_current_status_seconds"),
                "Seconds since a status condition last changed.",
                &refs(&of_condition),
            )?,
            terminating: operator.scraped(
                &name("termination_current_time_seconds"),
                "Seconds since the deletion of an object that still exists.",
                &refs(&of_object),
            )?,
            transition_seconds: operator.histograms(
                &name("status_condition_transition_seconds"),
                "Seconds that a status condition was in a state before it changed.",
                &refs(&of_state),
                &buckets,
            )?,
            transitions: operator.counters(
                &name("status_condition_transitions_total"),
                "Changes of status conditions, by the state after the change.",
                &refs(&of_transition),
            )?,
            termination_seconds: operator.histograms(
                &name("termination_duration_seconds"),
                "Seconds from the deletion of an object until it is gone.",
                &refs(&no_own),
                &buckets,
            )?,
            extra,
        })
    }

    fn collect(&self, object: &Observed<'_>, now: Timestamp, samples: &mut Samples) {
        let mut labels = Labels::of(&[("name", object.name())]);
        for (key, name) in &self.extra {
            labels.push(name, label_of(object.metadata.labels.as_ref(), key));
        }
        if let Some(deleted) = &object.metadata.deletion_timestamp {
            samples.put(&self.terminating, &labels, seconds_between(deleted.0, now));
        }
        for condition in &object.conditions {
            let labels = labels.with("type", condition.name).with("status", condition.status);
            let labels = labels.with("reason", condition.reason);
            samples.put(&self.count, &labels, 1.0);
            if let Some(since) = condition.since {
                samples.put(&self.current, &labels, seconds_between(since, now));
            }
        }
    }

    fn extra_values(&self, metadata: &ObjectMeta) -> Vec<String> {
        self.extra.iter().map(|(key, _)| label_of(metadata.labels.as_ref(), key).to_owned()).collect()
    }
}

fn refs(names: &[String]) -> Vec<&str> {
    names.iter().map(String::as_str).collect()
}

/// A condition of an object.
struct ConditionView<'a> {
    name: &'a str,
    status: &'a str,
    reason: &'a str,
    since: Option<Timestamp>,
}

impl<'a> From<&'a Condition> for ConditionView<'a> {
    fn from(condition: &'a Condition) -> Self {
        let Condition { type_: name, status, reason, last_transition_time, .. } = condition;
        Self { name, status, reason, since: Some(last_transition_time.0) }
    }
}

/// An object with conditions.
struct Observed<'a> {
    kind: Kind,
    metadata: &'a ObjectMeta,
    conditions: Vec<ConditionView<'a>>,
}

impl Observed<'_> {
    fn name(&self) -> &str {
        self.metadata.name.as_deref().unwrap_or_default()
    }
}

/// Calls `visit` for each object.
fn each(view: &ClusterView, mut visit: impl FnMut(&Observed<'_>)) {
    fn of<'a>(conditions: Option<&'a Vec<Condition>>) -> Vec<ConditionView<'a>> {
        conditions.into_iter().flatten().map(ConditionView::from).collect()
    }
    for claim in &view.claims {
        let conditions = of(claim.status.as_ref().map(|status| &status.conditions));
        visit(&Observed { kind: Kind::NodeClaim, metadata: &claim.metadata, conditions });
    }
    for pool in &view.pools {
        let conditions = of(pool.status.as_ref().map(|status| &status.conditions));
        visit(&Observed { kind: Kind::NodePool, metadata: &pool.metadata, conditions });
    }
    for class in &view.classes {
        let conditions = of(class.status.as_ref().map(|status| &status.conditions));
        visit(&Observed { kind: Kind::Ec2NodeClass, metadata: &class.metadata, conditions });
    }
    for node in &view.nodes {
        visit(&Observed { kind: Kind::Node, metadata: &node.metadata, conditions: of_node(node) });
    }
}

fn of_node(node: &Node) -> Vec<ConditionView<'_>> {
    let conditions = node.status.as_ref().and_then(|status| status.conditions.as_ref());
    conditions
        .into_iter()
        .flatten()
        .map(|condition| ConditionView {
            name: &condition.type_,
            status: &condition.status,
            reason: condition.reason.as_deref().unwrap_or_default(),
            since: condition.last_transition_time.as_ref().map(|time| time.0),
        })
        .collect()
}

/// An object at the last pass.
#[derive(Debug)]
struct Remembered {
    version: Option<String>,
    deleted: Option<Timestamp>,
    extra: Vec<String>,
    /// Status and last change by condition.
    states: BTreeMap<String, (String, Option<Timestamp>)>,
}

/// Counts changes of conditions and ends of objects, by comparing passes. Changes that are undone between two passes
/// are not seen.
#[derive(Debug, Default)]
pub(super) struct ConditionChanges {
    objects: BTreeMap<(Kind, String), Remembered>,
    /// The first pass only learns what exists.
    started: bool,
}

impl ConditionChanges {
    /// Compares all objects with the last pass.
    pub(super) fn pass(&mut self, metrics: &ConditionMetrics, view: &ClusterView) {
        let mut before = std::mem::take(&mut self.objects);
        each(view, |object| {
            let Some(metrics) = metrics.kinds.get(&object.kind) else { return };
            let key = (object.kind, object.metadata.uid.clone().unwrap_or_else(|| object.name().to_owned()));
            let previous = before.remove(&key);
            let is_unchanged = |previous: &Remembered| {
                previous.version.is_some() && previous.version == object.metadata.resource_version
            };
            let current = match previous {
                Some(previous) if is_unchanged(&previous) => previous,
                previous => {
                    let current = remember(metrics, object);
                    if self.started {
                        count(metrics, object, previous.as_ref(), &current.extra);
                    }
                    current
                }
            };
            self.objects.insert(key, current);
        });
        for ((kind, _), gone) in before {
            if let (Some(metrics), Some(deleted)) = (metrics.kinds.get(&kind), gone.deleted) {
                metrics.termination_seconds.with_label_values(&gone.extra).observe(seconds_between(deleted, view.now));
            }
        }
        self.started = true;
    }
}

fn remember(metrics: &KindMetrics, object: &Observed<'_>) -> Remembered {
    let state =
        |condition: &ConditionView<'_>| (condition.name.to_owned(), (condition.status.to_owned(), condition.since));
    Remembered {
        version: object.metadata.resource_version.clone(),
        deleted: object.metadata.deletion_timestamp.as_ref().map(|time| time.0),
        extra: metrics.extra_values(object.metadata),
        states: object.conditions.iter().map(state).collect(),
    }
}

/// Counts the conditions that differ from `previous`.
fn count(metrics: &KindMetrics, object: &Observed<'_>, previous: Option<&Remembered>, extra: &[String]) {
    let with = |values: &[&str]| -> Vec<String> {
        values.iter().map(|value| (*value).to_owned()).chain(extra.iter().cloned()).collect()
    };
    for condition in &object.conditions {
        let before = previous.and_then(|previous| previous.states.get(condition.name));
        if before.is_some_and(|(status, _)| status == condition.status) {
            continue;
        }
        let values = with(&[condition.name, condition.status, condition.reason]);
        metrics.transitions.with_label_values(&values).inc();
        if let Some((status, Some(since))) = before
            && let Some(at) = condition.since
        {
            let values = with(&[condition.name, status]);
            metrics.transition_seconds.with_label_values(&values).observe(seconds_between(*since, at));
        }
    }
}

#[cfg(test)]
mod tests;

//! Reads PodDisruptionBudgets: which pods each budget covers, and how many evictions it allows now.

use crate::problems::{Fault, Problem, full_name};
use crate::{Objects, Source, selectors};
use k8s_openapi::api::policy::v1::PodDisruptionBudget as KubeBudget;
use k8s_openapi::apimachinery::pkg::util::intstr::IntOrString;
use plimsoll_api::Pod;
use plimsoll_model::snapshot::{LabelSelector, PodDisruptionBudget};
use std::collections::BTreeMap;

/// Budgets by namespace.
pub(crate) struct Budgets<'objects> {
    by_namespace: BTreeMap<&'objects str, Vec<Budget>>,
}

struct Budget {
    model: PodDisruptionBudget,
    selector: LabelSelector,
    /// Pods that are not ready may always be evicted.
    always_allow_unhealthy: bool,
}

impl<'objects> Budgets<'objects> {
    pub(crate) fn new(objects: &'objects Objects, source: Source, problems: &mut Vec<Problem>) -> Self {
        let mut by_namespace: BTreeMap<&str, Vec<Budget>> = BTreeMap::new();
        for budget in &objects.pod_disruption_budgets {
            match read(budget, objects, source) {
                Ok(Some(read)) => {
                    by_namespace
                        .entry(budget.metadata.namespace.as_deref().unwrap_or_default())
                        .or_default()
                        .push(read);
                }
                Ok(None) => {}
                Err(fault) => problems.push(Problem::of("PodDisruptionBudget", &budget.metadata, fault)),
            }
        }
        Self { by_namespace }
    }

    /// Names of the budgets that an eviction of `pod` must respect. The Eviction API refuses a pod with several
    /// budgets, whatever they allow.
    pub(crate) fn covering(&self, pod: &Pod) -> Vec<String> {
        let namespace = pod.metadata.namespace.as_deref().unwrap_or_default();
        let budgets = self.by_namespace.get(namespace).into_iter().flatten();
        let covering: Vec<&Budget> = budgets.filter(|budget| budget.selector.matches(&pod.labels)).collect();
        if let [budget] = covering.as_slice()
            && budget.always_allow_unhealthy
            && pod.status.is_unready()
        {
            return Vec::new();
        }
        let mut names: Vec<String> = covering.iter().map(|budget| budget.model.name.clone()).collect();
        names.sort();
        names
    }

    /// What decides which budgets cover a pod.
    pub(crate) fn identities(&self) -> Vec<(String, String, LabelSelector, bool)> {
        let budgets = self.by_namespace.iter().flat_map(|(name, list)| list.iter().map(move |budget| (name, budget)));
        budgets
            .map(|(namespace, budget)| {
                let name = budget.model.name.clone();
                ((*namespace).to_owned(), name, budget.selector.clone(), budget.always_allow_unhealthy)
            })
            .collect()
    }

    pub(crate) fn into_model(self) -> Vec<PodDisruptionBudget> {
        self.by_namespace.into_values().flatten().map(|budget| budget.model).collect()
    }
}

/// Evictions of `pods` by the budget that they must respect (`namespace/name`). An unreadable budget has none.
#[must_use]
pub fn evictions<'a>(
    pods: impl IntoIterator<Item = &'a Pod>,
    pod_disruption_budgets: Vec<KubeBudget>,
) -> BTreeMap<String, u32> {
    let objects = Objects { pod_disruption_budgets, ..Objects::default() };
    let budgets = Budgets::new(&objects, Source::Cluster, &mut Vec::new());
    let mut evictions = BTreeMap::new();
    for budget in pods.into_iter().flat_map(|pod| budgets.covering(pod)) {
        *evictions.entry(budget).or_default() += 1;
    }
    evictions
}

/// Reads a budget; `None` if it covers no pod.
fn read(budget: &KubeBudget, objects: &Objects, source: Source) -> Result<Option<Budget>, Fault> {
    let Some(spec) = &budget.spec else { return Ok(None) };
    let Some(selector) = &spec.selector else { return Ok(None) };
    let selector = selectors::label_selector(selector).map_err(|fault| fault.below("spec.selector"))?;
    let disruptions_allowed = match &budget.status {
        Some(status) => {
            let is_current = status.observed_generation.unwrap_or(0) >= budget.metadata.generation.unwrap_or(0);
            if is_current { status.disruptions_allowed.unwrap_or(0) } else { 0 }
        }
        None if source == Source::Files => allowed_by_spec(budget, &selector, objects)?,
        None => 0,
    };
    let is = |value: &Option<IntOrString>, texts: &[&str]| match value {
        Some(IntOrString::Int(number)) => texts.contains(&number.to_string().as_str()),
        Some(IntOrString::String(text)) => texts.contains(&text.as_str()),
        None => false,
    };
    Ok(Some(Budget {
        model: PodDisruptionBudget {
            name: full_name(&budget.metadata),
            disruptions_allowed: disruptions_allowed.max(0),
            fully_blocking: is(&spec.max_unavailable, &["0", "0%"]) || is(&spec.min_available, &["100%"]),
        },
        selector,
        always_allow_unhealthy: spec.unhealthy_pod_eviction_policy.as_deref() == Some("AlwaysAllow"),
    }))
}

/// Computes what the disruption controller would write to the status: healthy pods minus desired pods.
fn allowed_by_spec(budget: &KubeBudget, selector: &LabelSelector, objects: &Objects) -> Result<i32, Fault> {
    let Some(spec) = &budget.spec else { return Ok(0) };
    let (mut expected, mut healthy) = (0_i64, 0_i64);
    let replicas = objects
        .replicas
        .iter()
        .map(|replicas| (replicas.template(), i64::try_from(replicas.len()).unwrap_or(i64::MAX)));
    for (pod, count) in objects.pods.iter().map(|pod| (pod.as_ref(), 1)).chain(replicas) {
        if pod.metadata.namespace != budget.metadata.namespace || pod.is_terminal() {
            continue;
        }
        if !selector.matches(&pod.labels) {
            continue;
        }
        expected += count;
        let is_running = pod.node_name.is_some() && pod.metadata.deletion_timestamp.is_none();
        if is_running && !pod.status.is_unready() {
            healthy += count;
        }
    }
    let desired = match (&spec.min_available, &spec.max_unavailable) {
        (Some(min_available), _) => scaled(min_available, expected, "spec.minAvailable")?,
        (None, Some(max_unavailable)) => (expected - scaled(max_unavailable, expected, "spec.maxUnavailable")?).max(0),
        (None, None) => 0,
    };
    Ok(i32::try_from(healthy - desired).unwrap_or(0))
}

/// Resolves a number, or a percentage of `total` rounded up.
fn scaled(value: &IntOrString, total: i64, field: &str) -> Result<i64, Fault> {
    match value {
        IntOrString::Int(number) => Ok(i64::from(*number)),
        IntOrString::String(text) => {
            let percent = text.strip_suffix('%').and_then(|digits| digits.parse::<u32>().ok());
            let percent = percent.ok_or_else(|| Fault::new(field, format!("{text:?} is not a percentage")))?;
            Ok((i64::from(percent).saturating_mul(total).saturating_add(99)) / 100)
        }
    }
}

#[cfg(test)]
mod tests;

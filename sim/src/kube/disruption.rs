//! The disruption controller: updates the status of each PodDisruptionBudget.

use super::Controller;
use super::mirror::Mirror;
use super::view::PodView;
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::apiserver::selector::LabelSelector;
use crate::apiserver::store::{Key, Object, Part, Store, Write};
use jiff::{SignedDuration, Timestamp};
use serde_json::{Map, Value, json};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum time until an allowed eviction is visible on its pod.
const EVICTION_SHOWS_WITHIN: SignedDuration = SignedDuration::from_mins(2);

/// The disruption controller.
#[derive(Debug)]
pub struct DisruptionController {
    pods: Mirror<PodView>,
    budgets: Mirror<Object>,
}

impl Default for DisruptionController {
    fn default() -> Self {
        Self {
            pods: Mirror::new(ResourceId::PODS, PodView::read),
            budgets: Mirror::new(ResourceId::POD_DISRUPTION_BUDGETS, Object::clone),
        }
    }
}

impl Controller for DisruptionController {
    fn watches(&self) -> &'static [ResourceId] {
        &[
            ResourceId::PODS,
            ResourceId::POD_DISRUPTION_BUDGETS,
            ResourceId::DEPLOYMENTS,
            ResourceId::REPLICA_SETS,
            ResourceId::STATEFUL_SETS,
        ]
    }

    fn step(&mut self, store: &mut Store, now: Timestamp) -> Option<Timestamp> {
        self.pods.sync(store);
        self.budgets.sync(store);
        let mut by_namespace: BTreeMap<&str, Vec<&PodView>> = BTreeMap::new();
        if self.budgets.values().next().is_some() {
            for pod in self.pods.values() {
                by_namespace.entry(&pod.key.namespace).or_default().push(pod);
            }
        }
        let mut next: Option<Timestamp> = None;
        for (key, budget) in self.budgets.iter() {
            let selector = LabelSelector::of_object(object::at(budget, &["spec", "selector"]));
            let pods = by_namespace.get(key.namespace.as_str()).map(Vec::as_slice).unwrap_or_default();
            let pods: Vec<&PodView> =
                pods.iter().copied().filter(|pod| selector.matches(&pod.object) && !pod.is_over()).collect();
            if let Some(at) = keep_up(store, key, budget, &pods, now) {
                next = Some(next.map_or(at, |next| next.min(at)));
            }
        }
        next
    }
}

fn keep_up(store: &mut Store, key: &Key, budget: &Object, pods: &[&PodView], now: Timestamp) -> Option<Timestamp> {
    let (disrupted, recheck) = still_disrupted(budget, pods, now);
    let (expected, desired) = wanted(store, budget, pods);
    let healthy = |pod: &&&PodView| pod.ready && pod.deletion.is_none() && !disrupted.contains_key(&pod.key.name);
    let healthy = i64::try_from(pods.iter().filter(healthy).count()).unwrap_or(i64::MAX);
    let allowed = if expected <= 0 { 0 } else { (healthy - desired).max(0) };
    let mut new = (**budget).clone();
    let mut status = json!({
        "observedGeneration": object::generation(budget), "disruptionsAllowed": allowed, "currentHealthy": healthy,
        "desiredHealthy": desired, "expectedPods": expected,
        "conditions": object::at(budget, &["status", "conditions"]).cloned().unwrap_or_else(|| json!([])),
    });
    if !disrupted.is_empty() {
        status["disruptedPods"] = Value::Object(disrupted);
    }
    new["status"] = status;
    let (yes, reason) = if allowed > 0 { ("True", "SufficientPods") } else { ("False", "InsufficientPods") };
    let generation = object::generation(budget);
    let condition = json!({"type": "DisruptionAllowed", "status": yes, "reason": reason, "message": "", "observedGeneration": generation});
    object::set_condition(&mut new, condition, now);
    if new != **budget {
        let write = Write::new(now, "disruption-controller");
        // An eviction changed the budget in the meantime; the change triggers another step.
        let _ = store.update(ResourceId::POD_DISRUPTION_BUDGETS, &key.namespace, &key.name, Part::Status, new, &write);
    }
    recheck
}

/// Pods whose eviction was allowed but is not visible yet, and when the first of them expires.
fn still_disrupted(budget: &Value, pods: &[&PodView], now: Timestamp) -> (Map<String, Value>, Option<Timestamp>) {
    let mut left = Map::new();
    let mut recheck: Option<Timestamp> = None;
    for (name, since) in
        object::at(budget, &["status", "disruptedPods"]).and_then(Value::as_object).into_iter().flatten()
    {
        let waiting = pods.iter().any(|pod| pod.key.name == *name && pod.deletion.is_none());
        let ends = since
            .as_str()
            .and_then(|text| text.parse::<Timestamp>().ok())
            .and_then(|at| at.checked_add(EVICTION_SHOWS_WITHIN).ok());
        if let Some(ends) = ends.filter(|ends| waiting && *ends > now) {
            left.insert(name.clone(), since.clone());
            recheck = Some(recheck.map_or(ends, |first| first.min(ends)));
        }
    }
    (left, recheck)
}

/// Number of expected pods, and number of pods that must stay healthy.
fn wanted(store: &Store, budget: &Value, pods: &[&PodView]) -> (i64, i64) {
    let count = i64::try_from(pods.len()).unwrap_or(i64::MAX);
    match (object::at(budget, &["spec", "maxUnavailable"]), object::at(budget, &["spec", "minAvailable"])) {
        (Some(most), _) => {
            let expected = expected_by_owners(store, pods);
            (expected, (expected - portion(most, expected)).max(0))
        }
        (None, Some(least)) if least.is_string() => {
            let expected = expected_by_owners(store, pods);
            (expected, portion(least, expected))
        }
        (None, Some(least)) => (count, least.as_i64().unwrap_or(0)),
        (None, None) => (count, 0),
    }
}

/// A number, or a percentage of `of`, rounded up.
pub(super) fn portion(value: &Value, of: i64) -> i64 {
    let percent = value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<i64>().ok());
    match percent {
        Some(percent) => (percent * of + 99) / 100,
        None => value.as_i64().unwrap_or(0),
    }
}

/// Sum of the desired replicas of the pods' controllers. Pods without a controller do not count.
fn expected_by_owners(store: &Store, pods: &[&PodView]) -> i64 {
    let mut owners = BTreeSet::new();
    let mut expected = 0;
    for pod in pods {
        let Some((uid, replicas)) = owner_scale(store, pod) else { continue };
        if owners.insert(uid) {
            expected += replicas;
        }
    }
    expected
}

/// The topmost controller with a scale, and its desired replicas.
fn owner_scale(store: &Store, pod: &PodView) -> Option<(String, i64)> {
    let follow = |child: &Value| {
        let owner = object::controller(child)?;
        let resource = ResourceId::of_kind(object::text(owner, &["apiVersion"]), object::text(owner, &["kind"]))?;
        let found = store.find(resource, &Key::new(&*pod.key.namespace, object::text(owner, &["name"])))?;
        (object::uid(&found) == object::text(owner, &["uid"])).then_some((resource, found))
    };
    let (resource, mut owner) = follow(&pod.object)?;
    resource.get().scale?;
    if let Some((_, above)) = follow(&owner) {
        owner = above;
    }
    Some((object::uid(&owner).to_owned(), object::integer(&owner, &["spec", "replicas"])?))
}

//! Features of kube-scheduler that Karpenter's scheduler models differently.

use crate::Feature;
use crate::constraints::{NODE_TERMS, SPREAD, node_term, pod_term, spread};
use crate::generate::Draft;
use crate::manifest::{at, container, push, selects};
use crate::pools::{TEAM, TIER, comparison};
use crate::template::Workload;
use plimsoll_model::names::label;
use serde_json::{Value, json};

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
/// The second namespace of a case.
const OTHER_NAMESPACE: &str = "team-a";

/// Applies a feature of this module to a workload.
pub(crate) fn apply(draft: &mut Draft, feature: Feature, index: usize) {
    match feature {
        Feature::MinDomains => {
            spread(draft, index, label::ZONE, "DoNotSchedule");
            let least = draft.rng.range(2, 4);
            change_spread(draft, index, |it| it["minDomains"] = least.into());
        }
        Feature::MatchLabelKeys => {
            let key = draft.rng.text(&[label::ZONE, label::HOSTNAME]);
            spread(draft, index, key, "DoNotSchedule");
            change_spread(draft, index, |it| it["matchLabelKeys"] = json!(["version"]));
            let version = draft.rng.text(&["v1", "v2"]).to_owned();
            workload(draft, index, |it| drop(it.labels.insert("version".to_owned(), version)));
        }
        Feature::SpreadPolicies => {
            let key = draft.rng.text(&[label::ZONE, label::HOSTNAME]);
            spread(draft, index, key, "DoNotSchedule");
            let policy = |draft: &mut Draft| draft.rng.text(&["Honor", "Ignore"]).to_owned();
            let (affinity, taints) = (policy(draft), policy(draft));
            change_spread(draft, index, |it| {
                it["nodeAffinityPolicy"] = affinity.into();
                it["nodeTaintsPolicy"] = taints.into();
            });
        }
        Feature::CapacityTypeSpread => spread(draft, index, label::CAPACITY_TYPE, "DoNotSchedule"),
        Feature::CustomKeys => {
            let key = draft.rng.text(&[TEAM, TIER]);
            spread(draft, index, key, "DoNotSchedule");
        }
        Feature::SeveralSpreads => {
            spread(draft, index, label::ZONE, "DoNotSchedule");
            spread(draft, index, label::HOSTNAME, "DoNotSchedule");
        }
        Feature::Namespaces | Feature::NamespaceSelectors => namespaces(draft, feature, index),
        Feature::Comparisons => {
            let term = comparison(&mut draft.rng);
            workload(draft, index, |it| push(&mut it.pod, NODE_TERMS, json!({"matchExpressions": [term]})));
        }
        Feature::SeveralTerms => {
            for _ in 0..2 {
                let term = node_term(draft);
                workload(draft, index, |it| push(&mut it.pod, NODE_TERMS, json!({"matchExpressions": [term]})));
            }
        }
        Feature::Expressions => expressions(draft, index),
        _ => resources(draft, feature, index),
    }
}

fn workload(draft: &mut Draft, index: usize, change: impl FnOnce(&mut Workload)) {
    if let Some(workload) = draft.workloads.get_mut(index) {
        change(workload);
    }
}

/// Changes the spread that was added last.
fn change_spread(draft: &mut Draft, index: usize, change: impl FnOnce(&mut Value)) {
    workload(draft, index, |it| {
        if let Some(last) = at(&mut it.pod, SPREAD).as_array_mut().and_then(|list| list.last_mut()) {
            change(last);
        }
    });
}

fn namespaces(draft: &mut Draft, feature: Feature, index: usize) {
    // Some pods move to the other namespace, and pods of this workload select them there.
    let moved = draft.rng.range(0, draft.workloads.len().saturating_sub(1));
    workload(draft, moved, |it| OTHER_NAMESPACE.clone_into(&mut it.namespace));
    let key = draft.rng.text(&[label::ZONE, label::HOSTNAME]);
    let mut term = pod_term(draft, index, key);
    let app = draft.workloads.get(moved).map(|it| it.name.clone()).unwrap_or_default();
    term["labelSelector"] = selects("app", &app);
    if feature == Feature::Namespaces {
        term["namespaces"] = json!([OTHER_NAMESPACE]);
    } else {
        term["namespaceSelector"] =
            if draft.rng.chance(30) { json!({}) } else { json!({"matchLabels": {"team": "web"}}) };
    }
    let kind = draft.rng.text(&["podAffinity", "podAntiAffinity", "podAntiAffinity"]);
    workload(draft, index, |it| push(&mut it.pod, &["affinity", kind, REQUIRED], term));
}

fn expressions(draft: &mut Draft, index: usize) {
    let own_name = draft.workloads.get(index).map(|it| it.name.clone()).unwrap_or_default();
    let other = draft.any_app();
    let rng = &mut draft.rng;
    let expression = match rng.range(1, 3) {
        1 => json!({"key": "app", "operator": "In", "values": [own_name, other]}),
        2 => json!({"key": "tier", "operator": "NotIn", "values": ["back"]}),
        _ => json!({"key": "version", "operator": "DoesNotExist"}),
    };
    let key = rng.text(&[label::ZONE, label::HOSTNAME]);
    let term = json!({"topologyKey": key, "labelSelector": {"matchExpressions": [expression]}});
    if rng.chance(50) {
        workload(draft, index, |it| push(&mut it.pod, &["affinity", "podAntiAffinity", REQUIRED], term));
    } else {
        let mut term = term;
        term["maxSkew"] = 1.into();
        term["whenUnsatisfiable"] = "DoNotSchedule".into();
        workload(draft, index, |it| push(&mut it.pod, SPREAD, term));
    }
}

/// Requests for resources other than cpu and memory, and pods that must not be placed.
fn resources(draft: &mut Draft, feature: Feature, index: usize) {
    let rng = &mut draft.rng;
    let small = rng.range(1, 2);
    match feature {
        Feature::ExtendedResources => workload(draft, index, |it| {
            if let Some(first) = it.pod["containers"].get_mut(0) {
                *at(first, &["resources", "requests", "nvidia.com/gpu"]) = small.to_string().into();
                *at(first, &["resources", "limits", "nvidia.com/gpu"]) = small.to_string().into();
            }
            it.replicas = it.replicas.min(4);
        }),
        Feature::Sidecars => {
            let mut sidecar = container("proxy", rng.text(&["100m", "500m"]), "128Mi");
            sidecar["restartPolicy"] = "Always".into();
            let init = container("late", rng.text(&["200m", "2"]), "128Mi");
            workload(draft, index, |it| {
                push(&mut it.pod, &["initContainers"], sidecar);
                push(&mut it.pod, &["initContainers"], init);
            });
        }
        // At least the sum of the container requests, which are at most 4 cpu and 8Gi.
        Feature::PodResources => {
            workload(draft, index, |it| {
                it.pod["resources"] = json!({"requests": {"cpu": "5", "memory": "9Gi"}});
                // An API server rejects pod-level requests below those of the containers.
                it.pod["containers"] = json!([container("app", "100m", "64Mi")]);
            });
        }
        Feature::EphemeralStorage => {
            let amount = rng.text(&["1Gi", "5Gi", "12Gi"]).to_owned();
            workload(draft, index, |it| {
                if let Some(first) = it.pod["containers"].get_mut(0) {
                    *at(first, &["resources", "requests", "ephemeral-storage"]) = amount.into();
                }
            });
        }
        Feature::Priorities => {
            let value = rng.range(1, 3) * 1000;
            let name = format!("class-{value}");
            let class = json!({
                "apiVersion": "scheduling.k8s.io/v1", "kind": "PriorityClass", "metadata": {"name": name}, "value": value,
                "preemptionPolicy": "Never",
            });
            draft.objects.push(class);
            workload(draft, index, |it| it.pod["priorityClassName"] = name.into());
        }
        Feature::NotOurs => {
            let gated = rng.chance(50);
            workload(draft, index, |it| {
                if gated {
                    it.pod["schedulingGates"] = json!([{"name": "example.com/wait"}]);
                } else {
                    it.pod["schedulerName"] = "other-scheduler".into();
                }
            });
        }
        _ => {}
    }
}

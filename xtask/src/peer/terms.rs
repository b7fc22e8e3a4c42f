//! One rule of kube-scheduler that a plan can break while each of its terms looks kept: where a pod has several required affinity terms,
//! only pods that match all of them count for any, and the first pod of a series must match all of its own.

use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::requirements::{Operator, Requirement};
use plimsoll_model::snapshot::{LabelSelector, PodAffinityTerm, PodShape, PodState, Snapshot};
use std::collections::BTreeMap;

/// A pod and where it is.
struct Located<'a> {
    name: String,
    shape: &'a PodShape,
    host: String,
    zone: Option<&'a str>,
    placed: bool,
}

/// Placed pods whose terms no set of pods fulfils together. Keys other than zone and hostname are not looked at.
pub(super) fn problems(snapshot: &Snapshot, plan: &Plan) -> Vec<String> {
    let located = locate(snapshot, plan);
    let mut found = Vec::new();
    for pod in located.iter().filter(|pod| pod.placed) {
        let terms: Vec<&PodAffinityTerm> =
            pod.shape.pod_affinity.iter().filter(|it| !it.anti && it.weight.is_none()).collect();
        let usual = terms.iter().all(|it| [label::ZONE, label::HOSTNAME].contains(&it.topology_key.as_str()));
        if terms.len() < 2 || !usual {
            continue;
        }
        let others: Vec<&Located<'_>> =
            located.iter().filter(|one| one.name != pod.name && matches_all(&terms, one.shape)).collect();
        // In a series of their own kind one of the placed pods came first.
        let first = matches_all(&terms, pod.shape) && others.iter().all(|one| one.placed);
        let kept = terms.iter().all(|term| others.iter().any(|one| together(pod, one, &term.topology_key)));
        if !first && !kept {
            found.push(format!("pod {} has no place beside pods that match all of its affinity terms", pod.name));
        }
    }
    found
}

fn together(one: &Located<'_>, other: &Located<'_>, key: &str) -> bool {
    if key == label::ZONE { one.zone.is_some() && one.zone == other.zone } else { one.host == other.host }
}

fn locate<'a>(snapshot: &'a Snapshot, plan: &'a Plan) -> Vec<Located<'a>> {
    let shapes: BTreeMap<&str, &PodShape> = snapshot.shapes.iter().map(|it| (it.id.as_str(), it)).collect();
    let shape_of: BTreeMap<&str, &PodShape> =
        snapshot.pods.iter().filter_map(|it| Some((it.uid.as_str(), *shapes.get(it.shape.as_str())?))).collect();
    let zones: BTreeMap<&str, &str> =
        snapshot.nodes.iter().filter_map(|it| Some((it.name.as_str(), it.labels.get(label::ZONE)?.as_str()))).collect();
    let mut located = Vec::new();
    for pod in &snapshot.pods {
        if let (PodState::Bound(node), Some(shape)) = (&pod.state, shape_of.get(pod.uid.as_str())) {
            let zone = zones.get(node.as_str()).copied();
            let host = node.as_str().to_owned();
            located.push(Located { name: pod.full_name(), shape, host, zone, placed: false });
        }
    }
    let on_nodes =
        plan.placements.iter().map(|it| (it.node.as_str().to_owned(), zones.get(it.node.as_str()).copied(), &it.pods));
    let on_launches = plan.launches.iter().enumerate().map(|(index, it)| {
        (format!("launch {index}"), it.offerings.first().map(|offering| offering.zone.as_str()), &it.pods)
    });
    for (host, zone, pods) in on_nodes.chain(on_launches) {
        for pod in pods {
            if let Some(shape) = shape_of.get(pod.uid.as_str()) {
                located.push(Located { name: pod.name.clone(), shape, host: host.clone(), zone, placed: true });
            }
        }
    }
    located
}

fn matches_all(terms: &[&PodAffinityTerm], shape: &PodShape) -> bool {
    terms.iter().all(|it| {
        it.namespaces.contains(&shape.namespace) && it.selector.as_ref().is_some_and(|one| selects(one, &shape.labels))
    })
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(|one| {
            let value = labels.get(&one.key);
            match one.operator {
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::NotIn => value.is_none_or(|value| !one.values.contains(value)),
                _ => value.is_some_and(|value| Requirement::new(one).is_ok_and(|read| read.has(value))),
            }
        })
}

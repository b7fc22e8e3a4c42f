//! StatefulSets: ordered pods with ordinals, each with its claims.

use super::{Work, count, size};
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::apiserver::store::Key;
use crate::kube::view::PodView;
use serde_json::{Value, json};

pub(super) fn reconcile(work: &mut Work<'_>, pods: &[&PodView]) {
    if !work.is_deleting() {
        let wanted = size(work.number("replicas").unwrap_or(1));
        let in_order = object::text(work.owner, &["spec", "podManagementPolicy"]) != "Parallel";
        let find = |number: usize| pods.iter().copied().find(|pod| pod.key.name == name(work.owner, number));
        let mut all_ready = true;
        for number in 0..wanted {
            let pod = find(number);
            match pod {
                None => create(work, number),
                Some(pod) if pod.is_over() => work.delete_pod(pod),
                Some(_) => {}
            }
            all_ready &= pod.is_some_and(|pod| pod.ready && pod.deletion.is_none());
            if in_order && !all_ready {
                break;
            }
        }
        let mut surplus: Vec<(usize, &PodView)> =
            pods.iter().filter_map(|pod| Some((ordinal(work.owner, pod)?, *pod))).collect();
        surplus.retain(|(number, _)| *number >= wanted);
        surplus.sort_by_key(|(number, _)| std::cmp::Reverse(*number));
        // In order: one pod at a time, starting with the highest ordinal, and only while the pods below are ready.
        let at_once = if in_order { 1 } else { surplus.len() };
        if !in_order || all_ready {
            for (_, pod) in surplus.into_iter().take(at_once).filter(|(_, pod)| pod.deletion.is_none()) {
                work.delete_pod(pod);
            }
        }
    }
    let replicas = count(pods, PodView::is_active);
    let ready = count(pods, |pod| pod.is_active() && pod.ready);
    work.report(json!({"replicas": replicas, "currentReplicas": replicas, "updatedReplicas": replicas, "readyReplicas": ready, "availableReplicas": ready}));
}

fn name(owner: &Value, number: usize) -> String {
    format!("{}-{number}", object::name(owner))
}

fn ordinal(owner: &Value, pod: &PodView) -> Option<usize> {
    pod.key.name.strip_prefix(object::name(owner))?.strip_prefix('-')?.parse().ok()
}

fn create(work: &mut Work<'_>, number: usize) {
    let name = name(work.owner, number);
    let mut pod = work.pod();
    pod["metadata"]["name"] = json!(name);
    object::set(&mut pod, &["metadata", "labels", "statefulset.kubernetes.io/pod-name"], json!(name));
    object::set(&mut pod, &["metadata", "labels", "apps.kubernetes.io/pod-index"], json!(number.to_string()));
    pod["spec"]["hostname"] = json!(name);
    let mut volumes = object::items(&pod, &["spec", "volumes"]).to_vec();
    for template in object::items(work.owner, &["spec", "volumeClaimTemplates"]) {
        let claim_name = format!("{}-{name}", object::name(template));
        volumes.retain(|volume| object::text(volume, &["name"]) != object::name(template));
        volumes.push(json!({"name": object::name(template), "persistentVolumeClaim": {"claimName": claim_name}}));
        let key = Key::new(work.namespace(), claim_name.clone());
        if work.store.find(ResourceId::PERSISTENT_VOLUME_CLAIMS, &key).is_none() {
            let labels =
                object::at(work.owner, &["spec", "selector", "matchLabels"]).cloned().unwrap_or_else(|| json!({}));
            let claim = json!({"metadata": {"name": claim_name, "labels": labels}, "spec": template.get("spec")});
            work.create(ResourceId::PERSISTENT_VOLUME_CLAIMS, claim);
        }
    }
    if !volumes.is_empty() {
        pod["spec"]["volumes"] = Value::Array(volumes);
    }
    work.create(ResourceId::PODS, pod);
}

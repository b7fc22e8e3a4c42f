//! Deployments: one ReplicaSet per template, scaled up and down step by step.

use super::Work;
use crate::apiserver::ResourceId;
use crate::apiserver::object;
use crate::apiserver::store::{Key, Object, Part};
use crate::kube::disruption::portion;
use serde_json::{Value, json};

const HASH_LABEL: &str = "pod-template-hash";

/// State of one ReplicaSet.
struct Set<'a> {
    object: &'a Object,
    wanted: i64,
    available: i64,
}

pub(super) fn reconcile(work: &mut Work<'_>, sets: Vec<&Object>) {
    if work.is_deleting() {
        return;
    }
    let hash = template_hash(work.owner);
    let mut sets: Vec<Set<'_>> = sets
        .into_iter()
        .map(|object| Set {
            object,
            wanted: object::integer(object, &["spec", "replicas"]).unwrap_or(0),
            available: object::integer(object, &["status", "availableReplicas"]).unwrap_or(0),
        })
        .collect();
    sets.sort_by_cached_key(|set| object::text(set.object, &["metadata", "creationTimestamp"]).to_owned());
    let (current, old): (Vec<_>, Vec<_>) =
        sets.into_iter().partition(|set| object::label(set.object, HASH_LABEL) == Some(&hash));
    let wanted = work.number("replicas").unwrap_or(1);
    match current.first() {
        None => create_set(work, &hash, first_size(work, wanted, &old)),
        Some(current) => roll(work, wanted, current, &old),
    }
    report(work, wanted, current.first(), &old);
}

fn rounds(work: &Work<'_>, wanted: i64) -> (i64, i64) {
    let field = |name| object::at(work.owner, &["spec", "strategy", "rollingUpdate", name]);
    let surge = field("maxSurge").map_or(0, |value| portion(value, wanted));
    // Percentages round up for the surge and down for unavailable pods.
    let missing = field("maxUnavailable").map_or(0, |value| {
        if value.is_string() { wanted - portion(&complement(value), wanted) } else { portion(value, wanted) }
    });
    if surge == 0 && missing == 0 { (0, 1) } else { (surge, missing) }
}

/// 100 % minus a percentage.
fn complement(value: &Value) -> Value {
    let percent =
        value.as_str().and_then(|text| text.strip_suffix('%')).and_then(|text| text.parse::<i64>().ok()).unwrap_or(0);
    json!(format!("{}%", 100 - percent))
}

fn is_recreate(work: &Work<'_>) -> bool {
    object::text(work.owner, &["spec", "strategy", "type"]) == "Recreate"
}

fn first_size(work: &Work<'_>, wanted: i64, old: &[Set<'_>]) -> i64 {
    let present: i64 = old.iter().map(|set| set.wanted).sum();
    if is_recreate(work) {
        return if present == 0 { wanted } else { 0 };
    }
    wanted.min(wanted + rounds(work, wanted).0 - present).max(0)
}

fn roll(work: &mut Work<'_>, wanted: i64, current: &Set<'_>, old: &[Set<'_>]) {
    let others: i64 = old.iter().map(|set| set.wanted).sum();
    if is_recreate(work) {
        old.iter().for_each(|set| scale(work, set, 0));
        let gone = old.iter().all(|set| object::integer(set.object, &["status", "replicas"]).unwrap_or(0) == 0);
        if gone {
            scale(work, current, wanted);
        }
        return;
    }
    let (surge, missing) = rounds(work, wanted);
    let room = (wanted + surge - current.wanted - others).max(0);
    scale(work, current, if current.wanted > wanted { wanted } else { wanted.min(current.wanted + room) });
    // Old pods that are not available are removed at once, others as new pods become available.
    let least = wanted - missing;
    let total = current.wanted + others;
    let mut spare = (total - least - (current.wanted - current.available).max(0)).max(0);
    let available: i64 = current.available + old.iter().map(|set| set.available).sum::<i64>();
    let mut healthy_spare = (available - least).max(0);
    for set in old {
        let broken = (set.wanted - set.available).max(0).min(spare);
        let healthy = set.available.min(set.wanted).min(healthy_spare).min(spare - broken);
        spare -= broken + healthy;
        healthy_spare -= healthy;
        scale(work, set, set.wanted - broken - healthy);
    }
}

fn scale(work: &mut Work<'_>, set: &Set<'_>, wanted: i64) {
    if set.wanted == wanted {
        return;
    }
    let mut new = (**set.object).clone();
    new["spec"]["replicas"] = json!(wanted);
    let (key, write) = (Key::of(set.object), work.write());
    // The ReplicaSet changed in the meantime; the change triggers another step.
    let _ = work.store.update(ResourceId::REPLICA_SETS, &key.namespace, &key.name, Part::Main, new, &write);
}

fn create_set(work: &mut Work<'_>, hash: &str, replicas: i64) {
    let mut template = object::at(work.owner, &["spec", "template"]).cloned().unwrap_or_default();
    object::set(&mut template, &["metadata", "labels", HASH_LABEL], json!(hash));
    let mut selector = object::at(work.owner, &["spec", "selector"]).cloned().unwrap_or_default();
    object::set(&mut selector, &["matchLabels", HASH_LABEL], json!(hash));
    let labels = template["metadata"]["labels"].clone();
    let metadata = json!({"name": format!("{}-{hash}", object::name(work.owner)), "labels": labels, "ownerReferences": [work.reference()]});
    work.create(
        ResourceId::REPLICA_SETS,
        json!({"metadata": metadata, "spec": {"replicas": replicas, "selector": selector, "template": template}}),
    );
}

fn report(work: &mut Work<'_>, wanted: i64, current: Option<&Set<'_>>, old: &[Set<'_>]) {
    let number = |set: &Set<'_>, field| object::integer(set.object, &["status", field]).unwrap_or(0);
    let sum = |field| current.into_iter().chain(old).map(|set| number(set, field)).sum::<i64>();
    let (replicas, available) = (sum("replicas"), sum("availableReplicas"));
    let updated = current.map_or(0, |set| number(set, "replicas"));
    let mut new = (**work.owner).clone();
    for (field, value) in [
        ("observedGeneration", object::generation(work.owner)),
        ("replicas", replicas),
        ("updatedReplicas", updated),
        ("readyReplicas", sum("readyReplicas")),
        ("availableReplicas", available),
        ("unavailableReplicas", (wanted - available).max(0)),
    ] {
        object::set(&mut new, &["status", field], json!(value));
    }
    let enough = available >= wanted - rounds(work, wanted).1;
    let (status, reason) =
        if enough { ("True", "MinimumReplicasAvailable") } else { ("False", "MinimumReplicasUnavailable") };
    object::set_condition(
        &mut new,
        json!({"type": "Available", "status": status, "reason": reason, "message": ""}),
        work.now,
    );
    let done = updated == wanted && available == wanted && replicas == wanted;
    let reason = if done { "NewReplicaSetAvailable" } else { "ReplicaSetUpdated" };
    object::set_condition(
        &mut new,
        json!({"type": "Progressing", "status": "True", "reason": reason, "message": ""}),
        work.now,
    );
    work.report_object(new);
}

/// Hash of a template: FNV-1a over its JSON, in hexadecimal.
fn template_hash(owner: &Value) -> String {
    let text = object::at(owner, &["spec", "template"]).map(Value::to_string).unwrap_or_default();
    let hash = text.bytes().fold(0x811c_9dc5_u32, |hash, byte| (hash ^ u32::from(byte)).wrapping_mul(0x0100_0193));
    format!("{hash:08x}")
}

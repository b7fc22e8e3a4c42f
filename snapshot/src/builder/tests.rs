use super::*;
use crate::Source;
use crate::problems::Fault;
use k8s_openapi::api::core::v1::Pod;
use k8s_openapi::serde::de::DeserializeOwned;
use proptest::prelude::*;
use serde_json::{Value, json};
use std::sync::Arc;

/// A change of the cluster. Numbers choose among a few objects, so that changes meet the same objects again.
#[derive(Debug, Clone)]
enum Change {
    /// Creates or replaces a pod: its number, its node if any, and its variant.
    Pod(u8, Option<u8>, u8),
    /// Deletes the pod at a position; the last pod takes the position.
    DeletePod(u8),
    /// Creates or deletes a node.
    Node(u8, bool),
    /// Labels of the namespace that pod affinity selects.
    Namespace(bool),
    /// Value of the priority class.
    Priority(i32),
    /// Label value that the disruption budget selects, and the evictions that it allows.
    Budget(u8, i32),
    /// The zone of the volume that one variant of pods claims; `None` if the claim is not bound.
    Volume(Option<bool>),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0..8_u8, proptest::option::of(0..3_u8), 0..5_u8).prop_map(|(pod, node, variant)| Change::Pod(pod, node, variant)),
        2 => (0..8_u8).prop_map(Change::DeletePod),
        2 => (0..3_u8, any::<bool>()).prop_map(|(node, exists)| Change::Node(node, exists)),
        1 => any::<bool>().prop_map(Change::Namespace),
        1 => (0..3_i32).prop_map(Change::Priority),
        1 => (0..3_u8, 0..2_i32).prop_map(|(variant, allowed)| Change::Budget(variant, allowed)),
        1 => proptest::option::of(any::<bool>()).prop_map(Change::Volume),
    ]
}

fn read<K: DeserializeOwned>(object: Value) -> K {
    serde_json::from_value(object).unwrap()
}

fn pod(number: u8, node: Option<u8>, variant: u8) -> Pod {
    let mut spec = json!({
        "nodeName": node.map(|node| format!("n{node}")),
        "containers": [{"name": "app", "resources": {"requests": {"cpu": format!("{}m", 100 + u32::from(variant))}}}],
    });
    match variant {
        1 => spec["priorityClassName"] = json!("high"),
        2 => {
            spec["affinity"]["podAffinity"]["requiredDuringSchedulingIgnoredDuringExecution"] = json!([{
                "topologyKey": "kubernetes.io/hostname",
                "labelSelector": {},
                "namespaceSelector": {"matchLabels": {"team": "a"}},
            }]);
        }
        3 => spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),
        4 => spec["containers"][0]["resources"]["requests"]["cpu"] = json!("many"),
        _ => {}
    }
    read(json!({
        "metadata": {"namespace": "shop", "name": format!("p{number}"), "uid": format!("u{number}"),
            "labels": {"variant": variant.to_string()}},
        "spec": spec,
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }))
}

fn apply(objects: &mut Objects, change: &Change) {
    match change {
        Change::Pod(number, node, variant) => {
            let pod = Arc::new(pod(*number, *node, *variant));
            match objects.pods.iter_mut().find(|existing| existing.metadata.name == pod.metadata.name) {
                Some(existing) => *existing = pod,
                None => objects.pods.push(pod),
            }
        }
        Change::DeletePod(position) if usize::from(*position) < objects.pods.len() => {
            objects.pods.swap_remove(usize::from(*position));
        }
        Change::DeletePod(_) => {}
        Change::Node(number, exists) => {
            let name = format!("n{number}");
            objects.nodes.retain(|node| node.metadata.name.as_ref() != Some(&name));
            if *exists {
                objects.nodes.push(read(json!({"metadata": {"name": name}})));
            }
        }
        Change::Namespace(labelled) => {
            let labels = if *labelled { json!({"team": "a"}) } else { json!({}) };
            objects.namespaces = vec![read(json!({"metadata": {"name": "other", "labels": labels}}))];
        }
        Change::Priority(value) => {
            objects.priority_classes = vec![read(json!({"metadata": {"name": "high"}, "value": value * 100_000_000}))];
        }
        Change::Budget(variant, allowed) => {
            objects.pod_disruption_budgets = vec![read(json!({
                "metadata": {"namespace": "shop", "name": "budget"},
                "spec": {"selector": {"matchLabels": {"variant": variant.to_string()}}, "maxUnavailable": 1},
                "status": {"disruptionsAllowed": allowed, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1},
            }))];
        }
        Change::Volume(zone) => {
            let volume = zone.map(|zone| if zone { "in-a" } else { "in-b" });
            objects.persistent_volume_claims = vec![read(json!({
                "metadata": {"namespace": "shop", "name": "data",
                    "annotations": {"pv.kubernetes.io/bind-completed": "yes"}},
                "spec": {"volumeName": volume}, "status": {"phase": "Bound"},
            }))];
            objects.persistent_volumes = ["a", "b"]
                .map(|zone| {
                    read(json!({
                        "metadata": {"name": format!("in-{zone}")},
                        "spec": {"nodeAffinity": {"required": {"nodeSelectorTerms": [{"matchExpressions": [
                            {"key": "topology.kubernetes.io/zone", "operator": "In", "values": [zone]}]}]}}},
                    }))
                })
                .into();
        }
    }
}

proptest! {
    #[test]
    fn every_snapshot_equals_a_full_build(changes in proptest::collection::vec(change(), 1..40)) {
        let extra = Extra { source: Source::Cluster, ..Extra::default() };
        let (mut objects, mut builder) = (Objects::default(), Builder::default());
        for change in &changes {
            apply(&mut objects, change);
            prop_assert_eq!(builder.build(&objects, &extra), crate::build(&objects, &extra));
        }
    }
}

#[test]
fn an_audit_finds_a_wrong_entry_counts_it_and_returns_the_full_build() {
    let objects = Objects { pods: vec![Arc::new(pod(0, None, 0))], ..Objects::default() };
    let mut builder = Builder::default();
    let at = |now| Extra { now: Timestamp(now), ..Extra::default() };
    let (right, _) = builder.build(&objects, &at(0));
    builder.pods.replace_entry(0, Err(Fault::new("spec", "wrong")));
    assert!(builder.build(&objects, &at(1)).0.pods.is_empty(), "the cache is used");
    assert_eq!(builder.failed_audits(), 0);
    let (audited, _) = builder.build(&objects, &at(AUDIT_INTERVAL_MS));
    assert_eq!((audited.pods, builder.failed_audits()), (right.pods, 1));
    let (after, _) = builder.build(&objects, &at(AUDIT_INTERVAL_MS + 1));
    assert_eq!((after.pods.len(), builder.failed_audits()), (1, 1), "the wrong entry is gone");
}

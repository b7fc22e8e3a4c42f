use super::*;
use crate::Source;
use k8s_openapi::serde::de::DeserializeOwned;
use plimsoll_api::{NodeClaim, Pod, PodPhase};
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
    /// Ends a pod, or reserves a node for it.
    End(u8),
    Reserve(u8, Option<u8>),
    /// Virtual pods of a CapacityBuffer.
    Buffer(u8),
    /// The zone of the volume that one variant of pods claims; `None` if the claim is not bound.
    Volume(Option<bool>),
}

fn change() -> impl Strategy<Value = Change> {
    prop_oneof![
        6 => (0..8_u8, proptest::option::of(0..3_u8), 0..7_u8).prop_map(|(pod, node, variant)| Change::Pod(pod, node, variant)),
        2 => (0..8_u8).prop_map(Change::DeletePod),
        2 => (0..3_u8, any::<bool>()).prop_map(|(node, exists)| Change::Node(node, exists)),
        1 => any::<bool>().prop_map(Change::Namespace),
        1 => (0..3_i32).prop_map(Change::Priority),
        1 => (0..3_u8, 0..2_i32).prop_map(|(variant, allowed)| Change::Budget(variant, allowed)),
        1 => (0..8_u8).prop_map(Change::End),
        1 => (0..8_u8, proptest::option::of(0..3_u8)).prop_map(|(pod, node)| Change::Reserve(pod, node)),
        1 => (0..3_u8).prop_map(Change::Buffer),
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
                "labelSelector": {"matchLabels": {"variant": "1"}},
                "namespaceSelector": {"matchLabels": {"team": "a"}},
            }]);
        }
        3 => spec["volumes"] = json!([{"name": "data", "persistentVolumeClaim": {"claimName": "data"}}]),
        4 => spec["containers"][0]["resources"]["requests"]["cpu"] = json!("many"),
        _ => {}
    }
    let owners =
        (variant > 4).then(|| json!([{"apiVersion": "apps/v1", "kind": "DaemonSet", "name": "agent", "uid": "d"}]));
    let created = format!("2026-01-01T00:00:0{}Z", number % 3);
    read(json!({
        "metadata": {"namespace": "shop", "name": format!("p{number}"), "uid": format!("u{number}"),
            "labels": {"variant": variant.to_string()}, "creationTimestamp": created, "ownerReferences": owners},
        "spec": spec,
        "status": {"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]},
    }))
}

fn apply(objects: &mut Objects, extra: &mut Extra, change: &Change) {
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
        Change::End(number) => {
            let name = format!("p{number}");
            let pod = objects.pods.iter_mut().find(|pod| pod.metadata.name.as_ref() == Some(&name));
            if let Some(pod) = pod {
                Arc::make_mut(pod).status.phase = Some(PodPhase::Succeeded);
            }
        }
        Change::Reserve(number, node) => {
            let uid = format!("u{number}").into();
            match node {
                Some(node) => drop(extra.reserved_pods.insert(uid, format!("n{node}").into())),
                None => drop(extra.reserved_pods.remove(&uid)),
            }
        }
        Change::Buffer(replicas) => {
            let spec = json!({"containers": [{"name": "app", "resources": {"requests": {"cpu": "1"}}}]});
            objects.pod_templates = vec![read(json!({
                "metadata": {"namespace": "shop", "name": "spare"},
                "template": {"metadata": {"labels": {"app": "spare"}}, "spec": spec},
            }))];
            objects.capacity_buffers = vec![read(json!({
                "apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer",
                "metadata": {"namespace": "shop", "name": "spare", "uid": "b1"},
                "spec": {"podTemplateRef": {"name": "spare"}, "replicas": replicas},
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
    fn every_snapshot_equals_a_full_build_and_every_change_a_comparison(
        changes in proptest::collection::vec(change(), 1..40),
    ) {
        let mut extra = Extra { source: Source::Cluster, ..Extra::default() };
        let agent = json!({"metadata": {"namespace": "shop", "name": "agent", "uid": "d"},
            "spec": {"selector": {}, "template": {"spec": {"containers": [{"name": "app"}]}}}});
        let mut objects = Objects { daemon_sets: vec![read(agent)], ..Objects::default() };
        let mut builder = Builder::default();
        let mut previous: Arc<Snapshot> = Arc::default();
        for change in &changes {
            apply(&mut objects, &mut extra, change);
            let (full, problems) = crate::build(&objects, &extra);
            let built = builder.build(&objects, &extra);
            prop_assert_eq!(&*built.snapshot, &full);
            prop_assert_eq!(built.problems, problems);
            prop_assert_eq!(built.buffers, buffers::reports(&objects));
            prop_assert_eq!(&built.edits, &SnapshotEdits::between(&previous, &full));
            previous = built.snapshot;
        }
    }
}

#[test]
fn pods_with_the_same_uid_are_all_in_the_snapshot() {
    let extra = Extra::default();
    let same = |name: &str| {
        let mut pod = pod(0, None, 0);
        pod.metadata.name = Some(name.to_owned());
        Arc::new(pod)
    };
    let mut objects = Objects { pods: vec![same("a")], ..Objects::default() };
    let mut builder = Builder::default();
    for count in [1, 2, 2, 1, 1] {
        objects.pods = ["a", "b"].into_iter().take(count).map(same).collect();
        assert_eq!(*builder.build(&objects, &extra).snapshot, crate::build(&objects, &extra).0);
    }
}

#[test]
fn an_audit_finds_a_wrong_entry_counts_it_and_returns_the_full_build() {
    let objects = Objects { pods: vec![Arc::new(pod(0, None, 0))], ..Objects::default() };
    let mut builder = Builder::default();
    let at = |now| Extra { now: Timestamp(now), ..Extra::default() };
    let right = builder.build(&objects, &at(0)).snapshot;
    Arc::make_mut(&mut builder.state.current).pods.clear();
    assert!(builder.build(&objects, &at(1)).snapshot.pods.is_empty(), "what was built before is used");
    assert_eq!(builder.failed_audits(), 0);
    let audited = builder.build(&objects, &at(AUDIT_INTERVAL_MS));
    assert_eq!(
        (&audited.snapshot.pods, audited.edits.pods.inserted, builder.failed_audits()),
        (&right.pods, vec![0], 1)
    );
    let after = builder.build(&objects, &at(AUDIT_INTERVAL_MS + 1));
    assert_eq!((after.snapshot.pods.len(), builder.failed_audits()), (1, 1), "the wrong entry is gone");
}

/// Otherwise an audit would need the memory of a second snapshot.
#[test]
fn an_audit_shares_the_pods_that_are_right() {
    let pods = (0..2).map(|number| Arc::new(pod(number, None, 0))).collect();
    let objects = Objects { pods, ..Objects::default() };
    let mut builder = Builder::default();
    let at = |now| Extra { now: Timestamp(now), ..Extra::default() };
    let right = builder.build(&objects, &at(0)).snapshot;
    for pod in &mut Arc::make_mut(&mut builder.state.current).pods {
        if pod.uid == right.pods[0].uid {
            pod.terminating = true;
        }
    }
    let audited = builder.build(&objects, &at(AUDIT_INTERVAL_MS)).snapshot;
    assert_eq!((&audited.pods, builder.failed_audits()), (&right.pods, 1));
    let is_shared = audited.pods.iter().zip(&right.pods).map(|(one, other)| std::ptr::eq(one, other));
    assert_eq!(is_shared.collect::<Vec<_>>(), [false, true]);
}

#[test]
fn a_pod_that_is_read_again_is_in_memory_once() {
    let extra = Extra::default();
    let pods = (0..3).map(|number| Arc::new(pod(number, None, 0))).collect();
    let mut objects = Objects { pods, ..Objects::default() };
    let mut builder = Builder::default();
    let _first = builder.build(&objects, &extra);
    // The last pod takes the position of the first.
    objects.pods.swap_remove(0);
    let Built { snapshot, edits, .. } = builder.build(&objects, &extra);
    assert_eq!((edits.pods.removed, edits.pods.replaced), (vec![0], vec![]));
    let in_snapshot = |placed: &super::Pod| snapshot.pods.iter().filter(|pod| std::ptr::eq(*pod, placed)).count();
    assert_eq!(builder.state.pods.placed().map(in_snapshot).collect::<Vec<_>>(), [1, 1]);
}

/// Cluster Autoscaler's annotation protects until the node expires, Karpenter's for half an hour, and neither from five
/// minutes before the end of the drain on.
#[test]
fn a_pod_follows_what_protects_it_on_its_node() {
    let claim = |expire_after: &str, deleted: Option<&str>| -> NodeClaim {
        read(json!({
            "metadata": {"name": "c1", "creationTimestamp": "1970-01-01T00:01:00Z", "deletionTimestamp": deleted,
                "annotations": {"karpenter.sh/nodeclaim-termination-timestamp": "1970-01-01T01:25:00Z"}},
            "spec": {"nodeClassRef": {"group": "g", "kind": "EC2NodeClass", "name": "default"}, "requirements": [],
                "expireAfter": expire_after},
            "status": {"providerID": "aws:///a/i-1", "nodeName": "n1"},
        }))
    };
    let annotations =
        json!({"cluster-autoscaler.kubernetes.io/safe-to-evict": "false", "karpenter.sh/do-not-disrupt": "30m"});
    let pod: Pod = read(json!({
        "metadata": {"namespace": "shop", "name": "web", "uid": "u1", "annotations": annotations},
        "spec": {"nodeName": "n1", "containers": [{"name": "app"}]},
        "status": {"startTime": "1970-01-01T00:00:00Z"},
    }));
    let node = read(json!({"metadata": {"name": "n1"}, "spec": {"providerID": "aws:///a/i-1"}}));
    let mut objects = Objects { pods: vec![Arc::new(pod)], nodes: vec![node], ..Objects::default() };
    let mut builder = Builder::default();
    let mut previous: Arc<Snapshot> = Arc::default();
    let steps = [
        (3659, claim("1h", None), Some(i64::MAX)),
        (3660, claim("1h", None), Some(1_800_000)),
        (4200, claim("1h", Some("1970-01-01T01:10:00Z")), Some(4_800_000)),
        (4801, claim("9h", None), Some(i64::MAX)),
    ];
    for (second, claim, until) in steps {
        objects.node_claims = vec![claim];
        let extra = Extra { now: Timestamp(second * 1000), ..Extra::default() };
        let (full, _) = crate::build(&objects, &extra);
        let built = builder.build(&objects, &extra);
        assert_eq!(built.snapshot.pods[0].do_not_disrupt_until, until.map(Timestamp), "{second}");
        assert_eq!((&*built.snapshot, &built.edits), (&full, &SnapshotEdits::between(&previous, &full)));
        previous = built.snapshot;
    }
    assert_eq!(builder.failed_audits(), 0);
}

mod collisions;
mod kept_fields;
mod owners;

use super::*;
use k8s_openapi::api::apps::v1::{Deployment, ReplicaSet, StatefulSet};
use k8s_openapi::api::batch::v1::Job;
use k8s_openapi::api::core::v1::{Node, PodTemplate};
use plimsoll_api::Pod;
use serde_json::{Value, json};

fn read<K: Indexed>(object: &Value) -> K {
    simplified(serde_json::from_value(object.clone()).unwrap())
}

fn node(name: &str, cpu: &str) -> Node {
    read(&json!({"metadata": {"name": name}, "status": {"capacity": {"cpu": cpu}}}))
}

fn names(index: &Index) -> Vec<&str> {
    let mut names: Vec<_> = index.objects().nodes.iter().filter_map(|node| node.metadata.name.as_deref()).collect();
    names.sort_unstable();
    names
}

/// Lists the kind anew.
fn relist<K: Indexed>(index: &mut Index, objects: impl IntoIterator<Item = K>) -> bool {
    let mut list = PartialList::default();
    objects.into_iter().for_each(|object| index.receive(object, &mut list));
    index.reset(list)
}

#[test]
fn apply_and_delete_report_whether_objects_changed() {
    let mut index = Index::default();
    assert!(index.apply(node("a", "1")) && index.apply(node("b", "1")) && index.apply(node("c", "1")));
    assert!(!index.apply(node("a", "1")), "nothing changed");
    assert!(index.apply(node("a", "2")));
    assert!(index.delete::<Node>(&node("a", "2").metadata));
    assert!(!index.delete::<Node>(&node("a", "2").metadata), "it is gone already");
    // `swap_remove` moved the last object: both remaining objects are still found.
    assert!(index.apply(node("c", "4")) && index.delete::<Node>(&node("b", "1").metadata));
    assert_eq!((names(&index), index.count(ObjectKind::Node)), (vec!["c"], 1));
}

#[test]
fn objects_are_found_whatever_was_deleted() {
    let name = |number: u32| (number * 37 % 100).to_string();
    let mut index = Index::default();
    for number in 0..100 {
        assert!(index.apply(node(&name(number), "1")));
    }
    for number in 0..100 {
        assert!(index.delete::<Node>(&node(&name(number), "1").metadata));
        assert!(!index.delete::<Node>(&node(&name(number), "1").metadata), "it is gone already");
        let changed = (number + 1..100).filter(|other| index.apply(node(&name(*other), "1"))).count();
        assert_eq!((changed, index.count(ObjectKind::Node)), (0, names(&index).len()), "after {number}");
    }
    // The same name in several namespaces.
    assert!(index.apply(pod("p", None, "")));
    let mut other = pod("p", None, "");
    other.metadata.namespace = Some("other".to_owned());
    assert!(index.apply(other.clone()) && index.delete::<Pod>(&other.metadata));
    assert!(!index.apply(pod("p", None, "")), "it is still there");
}

#[test]
fn a_node_heartbeat_is_not_a_change() {
    let beat = |version: &str, time: &str| -> Node {
        let managers = json!([{"manager": "kubelet", "operation": "Update", "time": time}]);
        read(&json!({"metadata": {"name": "a", "resourceVersion": version, "managedFields": managers}, "status": {
            "images": [{"names": [time]}],
            "conditions": [{"type": "Ready", "status": "True", "lastHeartbeatTime": time}]}}))
    };
    let mut index = Index::default();
    assert!(index.apply(beat("1", "2026-01-05T00:00:00Z")));
    assert!(!index.apply(beat("2", "2026-01-05T00:00:10Z")));
}

#[test]
fn a_node_keeps_its_resources_and_when_it_became_ready() {
    let annotations = json!({"karpenter.sh/do-not-disrupt": "true", "node.alpha.kubernetes.io/ttl": "0"});
    let whole = json!({"metadata": {"name": "a", "labels": {"zone": "a"}, "annotations": annotations}, "status": {
        "capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"},
        "addresses": [{"type": "InternalIP", "address": "10.0.0.1"}],
        "volumesAttached": [{"name": "v", "devicePath": ""}], "config": {}, "daemonEndpoints": {},
        "conditions": [
            {"type": "MemoryPressure", "status": "False", "reason": "Sufficient", "message": "kubelet has memory"},
            {"type": "Ready", "status": "True", "reason": "KubeletReady", "message": "kubelet is posting",
                "lastHeartbeatTime": "2026-01-05T00:05:00Z", "lastTransitionTime": "2026-01-05T00:00:00Z"}]}});
    let ready = json!({"type": "Ready", "status": "True", "lastTransitionTime": "2026-01-05T00:00:00Z"});
    let annotations = json!({"karpenter.sh/do-not-disrupt": "true"});
    let expected = json!({"metadata": {"name": "a", "labels": {"zone": "a"}, "annotations": annotations},
        "status": {"capacity": {"cpu": "4"}, "allocatable": {"cpu": "3"}, "conditions": [ready]}});
    assert_eq!(read::<Node>(&whole), serde_json::from_value(expected).unwrap());
    let mut other = whole.clone();
    other["metadata"]["annotations"] = json!({"node.alpha.kubernetes.io/ttl": "0"});
    assert_eq!(read::<Node>(&other).metadata.annotations, None, "not an empty map");
}

#[test]
fn a_pod_keeps_the_conditions_that_plans_depend_on_without_texts_and_times() {
    let kept = |scheduled: Value, ready: Value| {
        let at = |mut condition: Value, kind: &str| {
            condition["type"] = json!(kind);
            condition["message"] = json!("0/5000 nodes are available");
            condition["lastTransitionTime"] = json!("2026-01-05T00:00:00Z");
            condition
        };
        let conditions = [at(scheduled, "PodScheduled"), at(ready, "Ready")];
        let pod: Pod = read(&json!({"metadata": {"name": "p"}, "status": {"conditions": conditions}}));
        serde_json::to_value(pod).unwrap().get("status").cloned()
    };
    let is = |status: &str| json!({"status": status, "reason": "ContainersNotReady"});
    assert_eq!(kept(is("True"), is("True")), None);
    assert_eq!(kept(json!({"status": "False", "reason": "SchedulingGated"}), is("True")), None);
    let refused = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable"});
    let unready = json!({"type": "Ready", "status": "False"});
    assert_eq!(kept(refused.clone(), is("True")), Some(json!({"conditions": [refused]})));
    assert_eq!(kept(is("True"), is("False")), Some(json!({"conditions": [unready]})));
}

#[test]
fn a_claim_keeps_no_launch_request() {
    use plimsoll_model::names::annotation;
    let claim = |annotations: Value| -> plimsoll_api::NodeClaim {
        let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
        read(&json!({"metadata": {"name": "c", "annotations": annotations},
            "spec": {"nodeClassRef": class, "requirements": []}}))
    };
    let whole = json!({annotation::LAUNCH_REQUEST: "{}", annotation::PODS: "[]"});
    assert_eq!(claim(whole), claim(json!({annotation::PODS: "[]"})));
}

#[test]
fn reset_replaces_one_kind_and_leaves_other_kinds() {
    let mut index = Index::default();
    index.apply(node("a", "1"));
    index.apply(node("b", "1"));
    index.apply(pod("p", None, ""));
    assert!(relist(&mut index, [node("b", "2"), node("c", "1")]));
    assert_eq!(names(&index), ["b", "c"]);
    assert_eq!(index.count(ObjectKind::Pod), 1);
    assert!(!relist(&mut index, [node("c", "1"), node("b", "2")]), "the same in another order");
    assert_eq!((names(&index).as_slice(), index.objects().nodes.len()), (["b", "c"].as_slice(), 2));
}

#[test]
fn a_list_holds_only_objects_that_the_index_does_not_have() {
    let mut index = Index::default();
    index.apply(node("a", "1"));
    index.apply(node("b", "1"));
    let mut list = PartialList::default();
    [node("a", "1"), node("b", "2"), node("c", "1")].into_iter().for_each(|node| index.receive(node, &mut list));
    assert_eq!(list.changed, [node("b", "2"), node("c", "1")]);
    assert!(index.reset(list));
    assert_eq!(names(&index), ["a", "b", "c"]);
}

#[test]
fn all_listed_is_true_once_every_kind_has_been_listed() {
    let mut index = Index::default();
    macro_rules! list {
        ($($kind:path),+) => { $(assert!(!index.all_listed()); index.reset(PartialList::<$kind>::default());)+ };
    }
    use k8s_openapi::api::{apps::v1::*, batch::v1::*, core::v1::*, policy::v1::*, scheduling::v1::*, storage::v1::*};
    list!(
        Node,
        plimsoll_api::NodeClaim,
        plimsoll_api::NodePool,
        plimsoll_api::EC2NodeClass,
        plimsoll_api::NodeOverlay,
        plimsoll_api::Pod,
        DaemonSet,
        PodDisruptionBudget,
        PriorityClass,
        Namespace,
        PersistentVolume,
        PersistentVolumeClaim,
        StorageClass,
        CSINode,
        plimsoll_api::CapacityBuffer,
        plimsoll_api::CapacityQuota,
        PodTemplate,
        Deployment,
        ReplicaSet,
        StatefulSet,
        Job,
        ReplicationController
    );
    assert!(index.all_listed());
}

#[test]
fn templates_keep_only_scheduling_fields() {
    let mut template = json!({"metadata": {"labels": {"app": "web"}, "annotations": {"a": "b"}}, "spec": {
        "nodeSelector": {"disk": "ssd"}, "volumes": [{"name": "data", "emptyDir": {}}],
        "securityContext": {"runAsUser": 7}, "imagePullSecrets": [{"name": "registry"}],
        "dnsConfig": {"nameservers": ["10.0.0.9"]},
        "containers": [{"name": "app", "image": "i", "env": [{"name": "TOKEN", "value": "secret"}],
            "ports": [{"containerPort": 8080}, {"containerPort": 9090, "hostPort": 9091}],
            "resources": {"requests": {"cpu": "1"}}}]}});
    let ports = |template: &Value| {
        let kept: PodTemplate = read(&json!({"metadata": {"name": "t"}, "template": template}));
        let ports = kept.template.unwrap().spec.unwrap().containers[0].ports.clone().unwrap();
        ports.iter().map(|port| port.container_port).collect::<Vec<_>>()
    };
    assert_eq!(ports(&template), [9090]);
    template["spec"]["hostNetwork"] = json!(true);
    assert_eq!(ports(&template), [8080, 9090], "in the host network, each of them is a host port");
    let set = |owners: Value| -> ReplicaSet {
        read(&json!({"metadata": {"name": "s", "namespace": "shop", "ownerReferences": owners},
            "spec": {"replicas": 2, "selector": {}, "template": template}, "status": {"replicas": 2}}))
    };
    let mut index = Index::default();
    index.apply(set(json!([])));
    let kept = index.objects().replica_sets[0].clone();
    let pod = kept.spec.unwrap().template.unwrap();
    let text = serde_json::to_string(&pod).unwrap();
    assert!(text.contains("ssd") && text.contains("cpu") && text.contains("web"), "{text}");
    assert!(!text.contains("secret") && !text.contains("emptyDir") && !text.contains("\"b\""), "{text}");
    assert!(!["runAsUser", "registry", "10.0.0.9"].iter().any(|dropped| text.contains(dropped)), "{text}");
    // A ReplicaSet owned by a Deployment drops its template.
    let owner = json!([{"apiVersion": "apps/v1", "kind": "Deployment", "name": "d", "uid": "d"}]);
    index.apply(set(owner));
    assert_eq!(index.objects().replica_sets[0].spec.clone().unwrap().template, None);
    let mut other = set(json!([]));
    other.status = None;
    index.apply(other.clone());
    other.metadata.resource_version = Some("7".to_owned());
    assert!(!index.apply(simplified(other)), "how many it has now is no change");
}

#[test]
fn workloads_keep_only_their_identity_and_what_they_want() {
    let annotated = |mut metadata: Value| {
        metadata["labels"] = json!({"app": "web"});
        metadata["annotations"] = json!({"kubectl.kubernetes.io/last-applied-configuration": "{}"});
        metadata
    };
    let owner = json!({"apiVersion": "apps/v1", "kind": "Deployment", "name": "web", "uid": "d"});
    let identity = json!({"name": "web", "namespace": "shop", "uid": "w", "ownerReferences": [owner],
        "deletionTimestamp": "2026-01-05T00:00:00Z"});
    let pod = json!({"metadata": {"labels": {"app": "web"}}, "spec": {"containers": [{"name": "app"}]}});
    let whole = json!({"metadata": annotated(identity.clone()), "spec": {
        "replicas": 2, "minReadySeconds": 5, "selector": {"matchLabels": {"app": "web"}}, "template": pod}});
    let set: ReplicaSet = read(&whole);
    let expected = json!({"metadata": identity, "spec": {"replicas": 2, "selector": {}}});
    assert_eq!(set, serde_json::from_value(expected).unwrap());
    let mut deployment = whole.clone();
    deployment["spec"]["strategy"] = json!({"type": "Recreate"});
    let expected = json!({"metadata": identity, "spec": {"replicas": 2, "selector": {}, "template": pod}});
    assert_eq!(read::<Deployment>(&deployment), serde_json::from_value(expected).unwrap());
    let mut stateful = whole.clone();
    stateful["spec"]["podManagementPolicy"] = json!("Parallel");
    stateful["spec"]["serviceName"] = json!("web");
    let expected = json!({"replicas": 2, "podManagementPolicy": "Parallel", "selector": {}, "template": pod});
    let expected = json!({"metadata": identity, "spec": expected});
    assert_eq!(read::<StatefulSet>(&stateful), serde_json::from_value(expected).unwrap());
    let job = json!({"metadata": annotated(identity.clone()),
        "spec": {"parallelism": 2, "completions": 9, "suspend": false, "backoffLimit": 3, "template": pod},
        "status": {"succeeded": 4, "active": 1, "startTime": "2026-01-05T00:00:00Z"}});
    let expected = json!({"metadata": identity, "status": {"succeeded": 4},
        "spec": {"parallelism": 2, "completions": 9, "suspend": false, "template": {}}});
    assert_eq!(read::<Job>(&job), serde_json::from_value(expected).unwrap());
}

/// `state`: empty for a pod that no scheduler has considered, `Unschedulable`, or the name of the pod's node.
fn pod(name: &str, owner: Option<&str>, state: &str) -> Pod {
    let owners: Vec<_> = owner
        .map(|uid| json!({"apiVersion": "v1", "kind": "X", "name": "x", "uid": uid, "controller": true}))
        .into_iter()
        .collect();
    let mut pod = json!({
        "metadata": {"namespace": "shop", "name": name, "uid": name, "ownerReferences": owners},
        "spec": {"containers": []},
    });
    match state {
        "" => {}
        "Unschedulable" => {
            pod["status"] =
                json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
        }
        node => pod["spec"]["nodeName"] = json!(node),
    }
    read(&pod)
}

fn replica_set(replicas: i32) -> ReplicaSet {
    let metadata = json!({"namespace": "shop", "name": "rs", "uid": "rs"});
    read(&json!({"metadata": metadata, "spec": {"replicas": replicas, "selector": {}}}))
}

fn incomplete(index: &Index) -> Vec<String> {
    index.incomplete().into_iter().map(|uid| uid.0).collect()
}

#[test]
fn a_pod_without_an_owner_is_complete() {
    let mut index = Index::default();
    index.apply(pod("a", None, "Unschedulable"));
    assert_eq!(incomplete(&index), [""; 0]);
}

#[test]
fn a_replica_set_is_complete_once_the_scheduler_has_considered_all_its_pods() {
    let mut index = Index::default();
    index.apply(replica_set(3));
    index.apply(pod("a", Some("rs"), "Unschedulable"));
    index.apply(pod("b", Some("rs"), "n1"));
    assert_eq!(incomplete(&index), ["a"]);
    index.apply(pod("c", Some("rs"), ""));
    assert_eq!(incomplete(&index), ["a", "c"], "a pod that nobody has looked at does not count");
    index.apply(pod("c", Some("rs"), "Unschedulable"));
    assert_eq!(incomplete(&index), [""; 0]);
    index.apply(replica_set(4));
    assert_eq!(incomplete(&index), ["a", "c"], "its owner wants more now");
}

#[test]
fn owners_are_counted_the_same_after_any_changes() {
    let names = ["a", "b", "c"];
    let states = ["", "Unschedulable", "n1"];
    let mut index = Index::default();
    index.apply(replica_set(2));
    let mut steps = 0;
    // Each pod takes each state after each other state and moves between owners, and pods are deleted in between.
    for (step, state) in (0..81).flat_map(|step| states.map(|state| (step, state))) {
        let name = names[step % 3];
        let owner = [Some("rs"), Some("other"), None][step / 3 % 3];
        if step % 7 == 0 {
            let metadata = pod(names[step / 7 % 3], None, "").metadata;
            index.delete::<Pod>(&metadata);
        }
        index.apply(pod(name, owner, state));
        let mut fresh = Index::default();
        fresh.apply(replica_set(2));
        for pod in &index.objects().pods {
            fresh.apply(Pod::clone(pod));
        }
        assert_eq!(index.incomplete(), fresh.incomplete());
        steps += usize::from(!index.incomplete().is_empty());
    }
    assert!(steps > 0, "some were incomplete");
}

#[test]
fn terminating_pods_do_not_count_as_observed() {
    let mut index = Index::default();
    index.apply(replica_set(2));
    index.apply(pod("a", Some("rs"), "Unschedulable"));
    let mut terminating = pod("b", Some("rs"), "n1");
    terminating.metadata.deletion_timestamp =
        read::<Node>(&json!({"metadata": {"deletionTimestamp": "2026-01-05T00:00:00Z"}})).metadata.deletion_timestamp;
    index.apply(terminating);
    assert_eq!(incomplete(&index), ["a"]);
}

#[test]
fn a_pod_of_an_unknown_owner_is_incomplete() {
    let mut index = Index::default();
    index.apply(pod("a", Some("stranger"), "Unschedulable"));
    assert_eq!(incomplete(&index), ["a"]);
}

use super::step::{self, Step};
use super::*;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{FieldsV1, ManagedFieldsEntry, OwnerReference};
use plimsoll_api::PodPhase;
use plimsoll_model::plan::{Placement, Plan, PodRef, Unschedulable};

const NOW: Timestamp = Timestamp(1_000_000);

fn after(seconds: u64) -> Timestamp {
    NOW.plus(Millis::from_seconds(seconds))
}

fn pod(name: &str, version: &str) -> Pod {
    let mut pod = Pod::default();
    pod.metadata.name = Some(name.to_owned());
    pod.metadata.uid = Some(name.to_owned());
    pod.metadata.resource_version = Some(version.to_owned());
    pod
}

fn nominated(mut pod: Pod, node: &str, manager: &str) -> Pod {
    pod.status.nominated_node_name = Some(node.to_owned());
    pod.metadata.managed_fields = Some(vec![ManagedFieldsEntry {
        manager: Some(manager.to_owned()),
        fields_v1: Some(FieldsV1(json!({"f:status": {"f:nominatedNodeName": {}}}))),
        ..ManagedFieldsEntry::default()
    }]);
    pod
}

fn nominate(node: &str) -> Option<Step> {
    Some(Step::Nominate(node.to_owned()))
}

#[test]
fn pod_without_nomination_is_nominated() {
    assert_eq!(step::of(&pod("a", "1"), Some("n1")), nominate("n1"));
    assert_eq!(step::of(&pod("a", "1"), None), None);
    let cleared = json!({"metadata": {"name": "a"}, "status": {"nominatedNodeName": ""}});
    assert_eq!(step::of(&serde_json::from_value(cleared).unwrap(), Some("n1")), nominate("n1"));
}

#[test]
fn nominations_by_others_are_kept() {
    let preempts = nominated(pod("a", "1"), "n2", "kube-scheduler");
    assert_eq!(step::of(&preempts, Some("n1")), None);
    assert_eq!(step::of(&preempts, None), None);
    // We own another field of the status, but not this one.
    let mut other = nominated(pod("a", "1"), "n2", NOMINATION_FIELD_MANAGER);
    other.metadata.managed_fields.as_mut().unwrap()[0].fields_v1 = Some(FieldsV1(json!({"f:status": {"f:phase": {}}})));
    assert_eq!(step::of(&other, Some("n1")), None);
}

#[test]
fn own_nomination_follows_the_plan_and_is_withdrawn_with_it() {
    let ours = nominated(pod("a", "1"), "n1", NOMINATION_FIELD_MANAGER);
    assert_eq!(step::of(&ours, Some("n1")), None, "it is so already");
    assert_eq!(step::of(&ours, Some("n2")), nominate("n2"));
    assert_eq!(step::of(&ours, None), Some(Step::TakeBack));
}

#[test]
fn only_unbound_reschedulable_pods_are_waiting() {
    assert!(step::is_waiting(&pod("a", "1")));
    let with = |change: &dyn Fn(&mut Pod)| {
        let mut pod = pod("a", "1");
        change(&mut pod);
        step::is_waiting(&pod)
    };
    assert!(!with(&|pod| pod.node_name = Some("n".to_owned())));
    assert!(!with(&|pod| pod.metadata.deletion_timestamp = serde_json::from_value(json!("2026-01-01T00:00:00Z")).ok()));
    assert!(!with(&|pod| pod.status.phase = Some(PodPhase::Failed)));
    let daemon = OwnerReference { kind: "DaemonSet".to_owned(), ..OwnerReference::default() };
    assert!(!with(&|pod| pod.owners = vec![daemon.clone()].into()));
}

#[test]
fn pods_with_conflicting_constraints_are_nominated_one_after_another() {
    let spread = |key: &str| json!({"topologyKey": key, "maxSkew": 1, "whenUnsatisfiable": "DoNotSchedule", "labelSelector": {"matchLabels": {"app": key.replace('/', ".")}}});
    let web = |name: &str, key: &str| -> Arc<Pod> {
        let mut pod = pod(name, "1");
        pod.spec = serde_json::from_value(json!({"containers": [], "topologySpreadConstraints": [spread(key)]})).ok();
        pod.labels = Arc::new([("app".to_owned(), key.replace('/', "."))].into());
        Arc::new(pod)
    };
    let zone = "topology.kubernetes.io/zone";
    let waiting: BTreeMap<PodUid, Arc<Pod>> = [
        ("a", web("a", zone)),
        ("b", web("b", zone)),
        ("c", web("c", zone)),
        ("d", web("d", "kubernetes.io/hostname")),
        ("e", Arc::new(pod("e", "1"))),
        ("f", web("f", "kubernetes.io/hostname")),
    ]
    .map(|(name, pod)| (PodUid::from(name), pod))
    .into();
    let wanted = [("a", "n1"), ("b", "n1"), ("c", "n2"), ("d", "n1"), ("e", "n1"), ("f", "n1")];
    let wanted = |but: &str| {
        let others = wanted.iter().filter(|(pod, _)| *pod != but);
        others.map(|(pod, node)| (PodUid::from(*pod), (*node).to_owned())).collect()
    };
    let node = |zone: &str| {
        let mut node = Node::default();
        node.metadata.labels = Some([("topology.kubernetes.io/zone".to_owned(), zone.to_owned())].into());
        Arc::new(node)
    };
    let nodes = [node("a"), node("b")];
    let names =
        |nominated_pods: BTreeMap<PodUid, String>| nominated_pods.into_keys().map(|uid| uid.0).collect::<Vec<String>>();
    // b waits for a on the same node, and f waits for d; a's spread constraint does not select d.
    assert_eq!(names(step::without_conflicts(&waiting, &wanted(""), &nodes)), ["a", "c", "d", "e"]);
    assert_eq!(names(step::without_conflicts(&waiting, &wanted("a"), &nodes)), ["b", "c", "d", "e"]);
    // With a single zone, the skew is never exceeded.
    assert_eq!(names(step::without_conflicts(&waiting, &wanted(""), &nodes[..1])), ["a", "b", "c", "d", "e"]);
    // An existing nomination is not withdrawn for a pod with a lower UID.
    let mut waiting = waiting;
    let nominated_pod = waiting.get_mut(&PodUid::from("b")).map(Arc::make_mut).unwrap();
    nominated_pod.status.nominated_node_name = Some("n1".to_owned());
    assert_eq!(names(step::without_conflicts(&waiting, &wanted(""), &nodes)), ["b", "c", "d", "e"]);
}

fn due(
    nominator: &mut Nominator,
    pods: &[Pod],
    planned: &[(&str, &str)],
    now: Timestamp,
) -> Vec<(String, Option<String>)> {
    let waiting = pods.iter().map(|pod| (PodUid(pods::uid(pod)), Arc::new(pod.clone()))).collect();
    let planned = planned.iter().map(|(pod, node)| (PodUid::from(*pod), (*node).to_owned())).collect();
    let writes = nominator.due(&waiting, &planned, now);
    writes.iter().map(|write| (write.pod.name_any(), write.step.node().map(str::to_owned))).collect()
}

#[test]
fn withdrawals_come_first_and_rounds_are_bounded() {
    let mut pods: Vec<Pod> = (0..300).map(|number| pod(&format!("p{number:03}"), "1")).collect();
    pods.push(nominated(pod("z", "1"), "gone", NOMINATION_FIELD_MANAGER));
    let names: Vec<String> = (0..300).map(|number| format!("p{number:03}")).collect();
    let planned: Vec<(&str, &str)> = names.iter().map(|name| (name.as_str(), "n1")).collect();
    let mut nominator = Nominator::default();
    let first = due(&mut nominator, &pods, &planned, NOW);
    assert_eq!((first.len(), &first[0]), (PER_ROUND, &("z".to_owned(), None)));
    let second = due(&mut nominator, &pods, &planned, NOW);
    assert_eq!((second.len(), second[0].0.as_str()), (101, "p199"), "the rest, and nothing twice");
}

#[test]
fn cleared_nomination_is_retried_up_to_the_limit() {
    let mut nominator = Nominator::default();
    let nomination = [("a".to_owned(), Some("n1".to_owned()))];
    let planned = [("a", "n1")];
    assert_eq!(due(&mut nominator, &[pod("a", "1")], &planned, NOW), nomination);
    assert_eq!(due(&mut nominator, &[pod("a", "1")], &planned, after(9)), [], "its effect is not seen yet");
    assert_eq!(due(&mut nominator, &[pod("a", "1")], &planned, after(10)), nomination, "it was lost");
    for version in 3..=MAX_TRIES {
        assert_eq!(
            due(&mut nominator, &[pod("a", &version.to_string())], &planned, after(11)),
            nomination,
            "{version}"
        );
    }
    assert_eq!(due(&mut nominator, &[pod("a", "99")], &planned, after(12)), [], "it does not fit there");
    let ours = nominated(pod("a", "100"), "n1", NOMINATION_FIELD_MANAGER);
    assert_eq!(
        due(&mut nominator, &[ours], &[], after(13)),
        [("a".to_owned(), None)],
        "what is ours is always taken back"
    );
    assert_eq!(due(&mut nominator, &[pod("a", "101")], &planned, after(14)), [], "which does not begin it anew");
    let other = [("a".to_owned(), Some("n2".to_owned()))];
    assert_eq!(due(&mut nominator, &[pod("a", "101")], &[("a", "n2")], after(15)), other);
}

fn plan(placements: &[(&str, &[&str])]) -> Plan {
    let pods = |pods: &[&str]| pods.iter().map(|uid| PodRef { name: format!("d/{uid}"), uid: (*uid).into() }).collect();
    let placements = placements.iter().map(|(node, uids)| Placement { node: (*node).into(), pods: pods(uids) });
    Plan { placements: placements.collect(), ..Plan::default() }
}

fn taken(placements: &Placements, nodes: &[(&str, &str)], now: Timestamp) -> Vec<(String, String)> {
    let node = |name: &str| nodes.iter().find(|(planned, _)| *planned == name).map(|(_, name)| (*name).to_owned());
    placements.resolve(node, now).into_iter().map(|(uid, node)| (uid.0, node)).collect()
}

fn pairs(list: &[(&str, &str)]) -> Vec<(String, String)> {
    list.iter().map(|(uid, node)| ((*uid).to_owned(), (*node).to_owned())).collect()
}

#[test]
fn placement_waits_for_its_node_and_expires_after_30_seconds() {
    let placements = Placements::default();
    placements.note(&plan(&[("n1", &["a"]), ("claim-1", &["b"])]), NOW);
    let nodes: &[_] = &[("n1", "n1")];
    assert_eq!(taken(&placements, nodes, NOW), pairs(&[("a", "n1")]));
    placements.note(&plan(&[("n1", &["a"])]), after(20));
    assert_eq!(taken(&placements, nodes, after(29)), pairs(&[("a", "n1")]));
    assert_eq!(taken(&placements, nodes, after(30)), [], "saying it again does not prolong it");
    let nodes: &[_] = &[("n1", "n1"), ("claim-1", "n2")];
    assert_eq!(taken(&placements, nodes, after(600)), pairs(&[("b", "n2")]), "its node has come");
    assert_eq!(taken(&placements, nodes, after(630)), []);
    placements.note(&plan(&[("claim-2", &["c"])]), NOW);
    assert_eq!(taken(&placements, &[], after(899)), []);
    assert_eq!(taken(&placements, &[("claim-2", "n3")], after(899)), pairs(&[("c", "n3")]));
    placements.note(&plan(&[("claim-3", &["d"])]), NOW);
    assert_eq!(taken(&placements, &[], after(900)), []);
    assert_eq!(taken(&placements, &[("claim-3", "n4")], after(900)), [], "it was given up");
}

#[test]
fn later_plan_replaces_placements_of_the_pods_it_names() {
    let placements = Placements::default();
    let nodes: &[_] = &[("n1", "n1"), ("n2", "n2")];
    placements.note(&plan(&[("n1", &["a", "b", "c"])]), NOW);
    placements.note(&plan(&[("n2", &["a"])]), NOW);
    let pod = PodRef { name: "d/b".to_owned(), uid: "b".into() };
    placements.note(
        &Plan { unschedulable: vec![Unschedulable { pod, reasons: Default::default() }], ..Plan::default() },
        NOW,
    );
    assert_eq!(taken(&placements, nodes, NOW), pairs(&[("a", "n2"), ("c", "n1")]));
    placements.retain(|uid| uid.as_str() == "a", after(29));
    assert_eq!(taken(&placements, nodes, after(29)), pairs(&[("a", "n2"), ("c", "n1")]), "it may not be seen yet");
    placements.note(&plan(&[("n1", &["e"])]), after(1));
    placements.retain(|uid| uid.as_str() == "a", after(31));
    assert_eq!(placements.resolve(|name| Some(name.to_owned()), after(29)).len(), 1, "the others are bound or gone");
}

use super::*;
use crate::index::PartialList;
use crate::samples::{node, pod};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::{CatalogUpdate, LedgerUpdate};
use plimsoll_model::snapshot::{IgnoredPod, LedgerPosition, PodShape};
use plimsoll_proto::delta::Mirror;
use plimsoll_runtime::metrics::Metrics;
use serde_json::{Value, json};

/// A snapshot as it is published, without a delta.
pub(crate) fn published(snapshot: Snapshot) -> PublishedSnapshot {
    PublishedSnapshot {
        checksum: delta::checksum(&snapshot),
        relevant_sequence: snapshot.sequence,
        snapshot: Arc::new(snapshot),
        delta: None,
        incomplete: BTreeSet::new(),
        buffers: Vec::new(),
        started_at: Instant::now(),
        time: Timestamp(0),
    }
}

fn ignored(pods: usize, bytes: usize) -> Vec<IgnoredPod> {
    let ignored = |pod: usize| IgnoredPod {
        uid: format!("{pod:04}").into(),
        pod: "shop/web".to_owned(),
        reason: "x".repeat(bytes),
    };
    (0..pods).map(ignored).collect()
}

#[test]
fn a_delta_is_sent_only_if_it_fits_into_a_message() {
    let first = published(Snapshot { sequence: 1, ..Snapshot::default() });
    for (pods, bytes, fits) in [(2000, 100, true), (2001, 100, false), (150, 50_000, true), (200, 50_000, false)] {
        let next = published(Snapshot { sequence: 2, ignored: ignored(pods, bytes), ..Snapshot::default() });
        assert_eq!(next.since(&first).is_some(), fits, "{pods} objects of {bytes} bytes");
    }
}

#[test]
fn a_delta_from_an_earlier_snapshot_than_the_previous_one_contains_all_changes() {
    let with = |sequence: u64, nodes: &[&str]| Snapshot {
        sequence,
        nodes: nodes.iter().map(|name| node(name, "default")).collect(),
        ..Snapshot::default()
    };
    let (first, second) = (published(with(1, &[])), published(with(2, &["a"])));
    let mut third = published(with(3, &["a", "b"]));
    third.delta = Some(delta::diff(&second.snapshot, &third.snapshot));
    for (earlier, upserted) in [(&first, 2), (&second, 1)] {
        let delta = third.since(earlier).unwrap();
        assert_eq!(delta.base_sequence, earlier.snapshot.sequence);
        assert_eq!(delta.upserts.map(|upserts| upserts.nodes.len()), Some(upserted));
    }
}

#[test]
fn the_objects_of_a_delta_are_counted_over_all_large_lists() {
    let name = |number: usize| format!("{number:04}");
    let snapshot = |pods: usize| Snapshot {
        sequence: 2,
        shapes: (0..500).map(|number| PodShape { id: name(number).into(), ..PodShape::default() }).collect(),
        pods: (0..pods).map(|number| pod(&name(number))).collect(),
        nodes: (0..500).map(|number| node(&name(number), "default")).collect(),
        ignored: ignored(500, 10),
        ..Snapshot::default()
    };
    let first = published(Snapshot { sequence: 1, ..Snapshot::default() });
    assert!(published(snapshot(500)).since(&first).is_some(), "2000 objects");
    assert!(published(snapshot(501)).since(&first).is_none(), "2001 objects");
}

#[test]
fn a_request_stays_until_a_snapshot_was_built() {
    let mut demand = Demand { requested: true, failed: false };
    demand.built(BuildResult::Failed);
    assert!(demand.requested && demand.failed, "tried again after a pause");
    demand.built(BuildResult::FactsMissing);
    assert!(demand.requested && !demand.failed, "the next change tries again");
    demand.built(BuildResult::Built);
    assert!(!demand.requested && !demand.failed);
    demand.built(BuildResult::Failed);
    assert!(!demand.requested && demand.failed, "a change is not lost either");
}

#[test]
fn only_new_problems_are_logged() {
    let problem = |number: usize| Problem {
        kind: "Pod".to_owned(),
        name: format!("shop/web-{number:06}"),
        field: "spec".to_owned(),
        message: "is wrong".to_owned(),
        left_out: true,
    };
    // A comparison of each problem with each other one would take minutes.
    let before: Vec<Problem> = (0..200_000).filter(|number| number % 70_000 != 7).map(problem).collect();
    let now: Vec<Problem> = (0..200_000).map(problem).collect();
    let new: Vec<&str> = new_problems(&now, &before).map(|problem| problem.name.as_str()).collect();
    assert_eq!(new, ["shop/web-000007", "shop/web-070007", "shop/web-140007"]);
    assert_eq!(new_problems(&before, &now).count(), 0);
}

/// All facts of a cluster without objects.
fn empty_cluster() -> Facts {
    use k8s_openapi::api::{apps::v1::*, batch::v1::*, core::v1::*, policy::v1::*, scheduling::v1::*, storage::v1::*};
    use plimsoll_api::{CapacityBuffer, CapacityQuota, EC2NodeClass, NodeClaim, NodeOverlay, NodePool};
    let facts = Facts::default();
    macro_rules! list {
        ($($kind:path),+) => { $(facts.change_index(|index| index.reset(PartialList::<$kind>::default()));)+ };
    }
    list!(Node, NodeClaim, NodePool, EC2NodeClass, NodeOverlay, plimsoll_api::Pod, DaemonSet, PodDisruptionBudget);
    list!(PriorityClass, Namespace, PersistentVolume, PersistentVolumeClaim, StorageClass, CSINode);
    list!(CapacityBuffer, CapacityQuota, PodTemplate, Deployment, ReplicaSet, StatefulSet, Job, ReplicationController);
    set_ledger(&facts, 0);
    let complete = CatalogUpdate { complete: true, ..CatalogUpdate::default() };
    facts.change_catalogs(|catalogs| {
        catalogs.restart();
        (catalogs.apply(complete, Timestamp(0)).unwrap(), ())
    });
    facts
}

fn set_ledger(facts: &Facts, sequence: u64) {
    let position = LedgerPosition { epoch: 1, sequence };
    let update = LedgerUpdate { position, complete: true, ..LedgerUpdate::default() };
    facts.change_ledger(|ledger| ledger.apply(update, Timestamp(0)));
}

fn apply<K: crate::index::Indexed>(facts: &Facts, object: Value) {
    let object: K = serde_json::from_value(object).unwrap();
    facts.change_index(|index| index.apply(object));
}

fn apply_node(facts: &Facts, name: &str) {
    let four = json!({"cpu": "4"});
    let node = json!({"metadata": {"name": name, "uid": name}, "status": {"capacity": four, "allocatable": four}});
    apply::<k8s_openapi::api::core::v1::Node>(facts, node);
}

/// A pod of ReplicaSet `rs`, with these conditions.
fn apply_pod(facts: &Facts, conditions: &Value) {
    let owner = json!({"apiVersion": "apps/v1", "kind": "ReplicaSet", "name": "rs", "uid": "rs", "controller": true});
    let metadata = json!({"namespace": "shop", "name": "web", "uid": "web", "ownerReferences": [owner]});
    let spec = json!({"containers": [{"name": "app"}]});
    let pod = json!({"metadata": metadata, "spec": spec, "status": {"conditions": conditions}});
    apply::<plimsoll_api::Pod>(facts, pod);
}

fn apply_replica_set(facts: &Facts, replicas: u32) {
    let metadata = json!({"namespace": "shop", "name": "rs", "uid": "rs"});
    let set = json!({"metadata": metadata, "spec": {"replicas": replicas, "selector": {}}});
    apply::<k8s_openapi::api::apps::v1::ReplicaSet>(facts, set);
}

/// Snapshots of a cluster as the publisher makes them, and a client that follows them.
struct Follower {
    facts: Facts,
    last: PublishedSnapshot,
    last_build: u64,
    mirror: Mirror,
}

impl Follower {
    fn new() -> Self {
        let facts = empty_cluster();
        let NextSnapshot { published, number, .. } =
            build_next(&facts, (Instant::now(), Timestamp(1999)), None, false).unwrap();
        let last = published.unwrap();
        let mut mirror = Mirror::default();
        for chunk in delta::chunks(&last.snapshot, OBJECTS_PER_CHUNK) {
            mirror.apply_chunk(chunk).unwrap();
        }
        Self { facts, last, last_build: number, mirror }
    }

    /// Sequence of the next snapshot, and of the last one that plans depend on; `None` if none is published.
    fn next(&mut self, requested: bool) -> Option<(u64, u64)> {
        let previous = Some((&self.last, self.last_build));
        let next = build_next(&self.facts, (Instant::now(), Timestamp(2000)), previous, requested).unwrap();
        self.last_build = next.number;
        self.last = next.published?;
        self.mirror.apply_delta(self.last.delta.clone().unwrap()).unwrap();
        assert_eq!(self.mirror.snapshot(), Some(&*self.last.snapshot));
        Some((self.last.snapshot.sequence, self.last.relevant_sequence))
    }
}

#[test]
fn a_snapshot_is_published_if_it_is_new_or_requested_and_marked_if_plans_depend_on_what_changed() {
    let mut follower = Follower::new();
    let first = &follower.last;
    assert_eq!((first.snapshot.sequence, first.relevant_sequence, first.snapshot.now), (1, 1, Timestamp(1000)));
    assert_eq!(follower.next(false), None, "only the time has changed");
    assert_eq!(follower.next(true), Some((2, 2)));
    apply_replica_set(&follower.facts, 1);
    assert_eq!(follower.next(false), None, "no pod is of the ReplicaSet");
    apply_pod(&follower.facts, &json!([]));
    assert_eq!(follower.next(false), Some((3, 2)), "its scheduler has not considered the pod");
    apply_pod(&follower.facts, &json!([{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]));
    assert_eq!(follower.next(false), Some((4, 4)));
    apply_replica_set(&follower.facts, 2);
    assert_eq!(follower.next(false), Some((5, 4)), "a launch waits, and no plan is another");
    assert_eq!(follower.last.incomplete, BTreeSet::from(["web".into()]));
    set_ledger(&follower.facts, 1);
    assert_eq!(follower.next(false), Some((6, 6)));
    let metadata = json!({"namespace": "shop", "name": "spare", "uid": "spare"});
    let buffer = json!({"apiVersion": "autoscaling.x-k8s.io/v1beta1", "kind": "CapacityBuffer", "metadata": metadata,
        "spec": {"podTemplateRef": {"name": "missing"}, "replicas": 1}});
    apply::<plimsoll_api::CapacityBuffer>(&follower.facts, buffer);
    assert_eq!(follower.next(false), Some((7, 7)), "its status is sent with a plan");
    assert_eq!(follower.next(false), None);
}

/// The instance types of a node class may differ after each change of the class.
#[test]
fn a_pool_has_a_catalog_only_if_it_is_of_its_class_as_the_class_is_now() {
    let mut follower = Follower::new();
    let ready = json!({"conditions": [{"type": "Ready", "status": "True", "reason": "Ready", "message": "",
        "lastTransitionTime": "2026-01-05T00:00:00Z"}]});
    let class = json!({"apiVersion": "karpenter.k8s.aws/v1", "kind": "EC2NodeClass",
        "metadata": {"name": "default", "generation": 2}, "status": ready,
        "spec": {"amiFamily": "AL2023", "role": "node", "subnetSelectorTerms": [{"id": "subnet-1"}],
            "securityGroupSelectorTerms": [{"id": "sg-1"}]}});
    apply::<plimsoll_api::EC2NodeClass>(&follower.facts, class);
    let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let pool = json!({"apiVersion": "karpenter.sh/v1", "kind": "NodePool", "metadata": {"name": "default"},
        "spec": {"template": {"spec": {"nodeClassRef": reference, "requirements": []}}}});
    apply::<plimsoll_api::NodePool>(&follower.facts, pool);
    for (generation, is_known) in [(1, false), (2, true)] {
        let catalog = Catalog { region: "us-east-1".to_owned(), ..Catalog::default() };
        let update = CatalogUpdate {
            node_class: "default".to_owned(),
            generation,
            catalog_id: Some(catalog.id()),
            catalog: Some(catalog),
            ..CatalogUpdate::default()
        };
        follower.facts.change_catalogs(|catalogs| (catalogs.apply(update, Timestamp(0)).unwrap(), ()));
        follower.next(false);
        let pool = &follower.last.snapshot.node_pools[0];
        assert_eq!(pool.catalog.is_some(), is_known, "{generation}: {:?}", pool.not_ready);
    }
}

#[tokio::test(start_paused = true)]
async fn snapshots_are_made_and_kept_only_while_there_are_readers() {
    let facts = Arc::new(empty_cluster());
    let metrics = WatcherMetrics::new(&Metrics::new("watcher")).unwrap();
    let publisher = Publisher::new(Arc::clone(&facts), Clock::system(), metrics.clone());
    let (mut newest, readers) = (publisher.newest(), publisher.readers());
    tokio::spawn(publisher.run());
    apply_node(&facts, "a");
    tokio::time::sleep(Duration::from_secs(60)).await;
    assert!(newest.borrow().is_none() && metrics.snapshots.get() == 0, "a standby makes none");
    let (leader, client) = (readers.add(), readers.add());
    newest.wait_for(Option::is_some).await.unwrap();
    drop(leader);
    apply_node(&facts, "b");
    let is_second = |published: &Option<Arc<PublishedSnapshot>>| {
        published.as_ref().is_some_and(|published| published.snapshot.nodes.len() == 2)
    };
    newest.wait_for(is_second).await.unwrap();
    drop(client);
    newest.wait_for(Option::is_none).await.unwrap();
    let _next = readers.add();
    newest.wait_for(is_second).await.unwrap();
    let sequence = newest.borrow().as_ref().map(|published| published.snapshot.sequence);
    assert_eq!(sequence, Some(1), "a new numbering");
}

#[test]
fn a_change_is_not_lost_in_a_build_that_was_not_published() {
    let mut follower = Follower::new();
    apply_node(&follower.facts, "a");
    assert_eq!(follower.next(false), Some((2, 2)));
    apply_node(&follower.facts, "b");
    assert!(follower.facts.build_snapshot(Timestamp(2000), 3).is_some());
    apply_node(&follower.facts, "c");
    assert_eq!(follower.next(false), Some((3, 3)));
    assert_eq!(follower.last.snapshot.nodes.len(), 3);
}

#[test]
fn plans_depend_on_everything_but_ignored_pods_and_the_time() {
    let old =
        Snapshot { sequence: 1, nodes: vec![node("a", "default")], ignored: ignored(1, 1), ..Snapshot::default() };
    let next = Snapshot { sequence: 2, now: Timestamp(1000), ..old.clone() };
    for (new, same_ledger, expected) in [
        (next.clone(), true, (true, true)),
        (next.clone(), false, (false, false)),
        (Snapshot { ignored: ignored(2, 1), ..next.clone() }, true, (false, true)),
        (Snapshot { ignored: Vec::new(), ..next.clone() }, true, (false, true)),
        (Snapshot { nodes: vec![node("a", "other")], ..next.clone() }, true, (false, false)),
        (Snapshot { nodes: Vec::new(), ..next.clone() }, true, (false, false)),
    ] {
        assert_eq!(compare(&delta::diff(&old, &new), same_ledger), expected, "{new:?}");
    }
}

//! A small cluster for tests.

use plimsoll_model::catalog::Catalog;
use plimsoll_model::plan::{Plan, PlanOptions};
use plimsoll_model::snapshot::{Node, NodePool, Pod, PodShape, Snapshot};
use plimsoll_model::time::Timestamp;
use plimsoll_proto::delta::checksum;
use plimsoll_recording::{Limits, PlannedEntry, Writer};
use serde_json::json;
use std::path::Path;
use std::sync::Arc;

/// Time of the first plan.
pub(crate) const START: Timestamp = Timestamp(1_700_000_000_000);

/// Instance types with 2, 4 and 8 CPUs and 4 GiB per CPU, on demand in zone `a`, at 0.05 USD per CPU and hour.
pub(crate) fn catalog() -> Catalog {
    let instance_type = |cpus: i64| {
        json!({
            "name": format!("t.{cpus}"), "architecture": "amd64", "operating_systems": ["linux"],
            "capacity": {"cpu": cpus * 1000, "memory": cpus * 4 * (1_i64 << 30), "pods": 20},
            "overhead": {}, "labels": {},
            "offerings": [{
                "zone": "a", "zone_id": "", "capacity_type": "on-demand", "price": cpus * 50_000, "available": true,
                "list_price": null, "reservation": null,
            }],
        })
    };
    let types = [instance_type(2), instance_type(4), instance_type(8)];
    serde_json::from_value(json!({"region": "r", "instance_types": types})).unwrap()
}

pub(crate) fn pool(name: &str, weight: i32) -> NodePool {
    let mut pool: NodePool = serde_json::from_value(json!({
        "name": name, "weight": weight, "labels": {}, "taints": [], "startup_taints": [], "requirements": [],
        "limits": {}, "replicas": null, "node_class": "default", "catalog": null, "not_ready": null, "deleting": false,
        "disruption": {"policy": "WhenEmptyOrUnderutilized", "consolidate_after": 0, "allowed": {},
            "next_budget_change": null},
        "on_demand": null, "overlays": [], "costs": plimsoll_model::costs::NodeCosts::default(),
    }))
    .unwrap();
    pool.catalog = Some(catalog().id());
    pool
}

pub(crate) fn shape(id: &str, cpu: i64) -> PodShape {
    let mut shape = PodShape { id: id.into(), ..PodShape::default() };
    shape.requests.set("cpu", cpu);
    shape.requests.set("memory", 1 << 30);
    shape.requests.set("pods", 1);
    shape
}

/// A pod, pending or bound to a node.
pub(crate) fn pod(name: &str, shape: &str, node: Option<&str>) -> Pod {
    let state = node.map_or(json!("Pending"), |node| json!({"Bound": node}));
    serde_json::from_value(json!({
        "uid": format!("uid-{name}"), "namespace": "shop", "name": name, "shape": shape, "state": state, "created": START,
        "stays_with_node": false, "terminating": false, "returns": false, "do_not_disrupt_until": null,
        "eviction_cost_milli": 1000, "pod_disruption_budgets": [], "buffer": null,
    }))
    .unwrap()
}

/// A node of the type with `cpus` CPUs.
pub(crate) fn node(name: &str, pool: &str, cpus: i64) -> Node {
    serde_json::from_value(json!({
        "name": name, "node_claim": name, "node_pool": pool, "state": "Initialized",
        "labels": {
            "karpenter.sh/nodepool": pool, "node.kubernetes.io/instance-type": format!("t.{cpus}"),
            "topology.kubernetes.io/zone": "a", "karpenter.sh/capacity-type": "on-demand", "kubernetes.io/os": "linux",
            "kubernetes.io/arch": "amd64", "kubernetes.io/hostname": name,
        },
        "taints": [], "allocatable": {"cpu": cpus * 1000, "memory": cpus * 4 * (1_i64 << 30), "pods": 20},
        "limit_usage": {"cpu": cpus * 1000, "nodes": 1}, "ready": true, "cordoned": false, "deleting": false,
        "do_not_disrupt": false, "created": START, "expires": null, "idle_since": null, "drifted": null,
        "termination_grace_period": null,
    }))
    .unwrap()
}

/// A snapshot `seconds` after [`START`], with one pool.
pub(crate) fn snapshot(seconds: i64, pods: Vec<Pod>, nodes: Vec<Node>) -> Snapshot {
    let mut snapshot = Snapshot {
        sequence: u64::try_from(seconds).unwrap() + 1,
        now: Timestamp(START.0 + seconds * 1000),
        shapes: vec![shape("web", 1500)],
        pods: pods.into(),
        nodes,
        node_pools: vec![pool("default", 0)],
        ..Snapshot::default()
    };
    snapshot.sort();
    snapshot
}

pub(crate) fn options() -> PlanOptions {
    PlanOptions { disruption: true, ..PlanOptions::default() }
}

pub(crate) fn planned(snapshot: &Snapshot) -> Plan {
    plimsoll_solver::solve(snapshot, &[(catalog().id(), catalog())].into(), &options())
}

/// Records a plan for each snapshot of cluster `shop`, changed by `change`.
pub(crate) fn record(folder: &Path, snapshots: &[Snapshot], change: impl Fn(usize, &mut Plan)) {
    record_of("shop", folder, snapshots, change);
}

pub(crate) fn record_of(cluster: &str, folder: &Path, snapshots: &[Snapshot], change: impl Fn(usize, &mut Plan)) {
    let mut writer = Writer::new(folder.to_owned(), Limits::of(1 << 30), "1.2.3", cluster);
    for (position, snapshot) in snapshots.iter().enumerate() {
        let mut plan = planned(snapshot);
        change(position, &mut plan);
        writer
            .planned(&PlannedEntry {
                at: snapshot.now,
                checksum: checksum(snapshot),
                snapshot: &Arc::new(snapshot.clone()),
                delta: None,
                catalogs: &[Arc::new((&catalog()).into())],
                cycle_id: &format!("1-{}", snapshot.sequence),
                options: &options(),
                plan: &plan,
            })
            .unwrap();
    }
}

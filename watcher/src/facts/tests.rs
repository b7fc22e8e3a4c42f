use super::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::{CatalogUpdate, LedgerUpdate};
use plimsoll_model::snapshot::{ReservationCount, UnavailableOffering};
use plimsoll_model::time::Millis;
use plimsoll_proto::convert::check_snapshot;
use plimsoll_snapshot::Objects;
use serde::de::DeserializeOwned;
use serde_json::{Value, json};

fn read<K: DeserializeOwned>(object: &Value) -> Option<K> {
    serde_json::from_value(object.clone()).ok()
}

/// Puts the object in place of those of its kind. `None` if it cannot be read.
fn put(objects: &mut Objects, kind: &str, object: &Value) -> Option<()> {
    match kind {
        "Pod" => objects.pods = vec![Arc::new(read(object)?)],
        "Node" => objects.nodes = vec![read(object)?],
        "NodePool" => objects.node_pools = vec![read(object)?],
        "NodeClaim" => objects.node_claims = vec![read(object)?],
        "NodeOverlay" => objects.node_overlays = vec![read(object)?],
        "DaemonSet" => objects.daemon_sets = vec![read(object)?],
        "PodDisruptionBudget" => objects.pod_disruption_budgets = vec![read(object)?],
        "CSINode" => objects.csi_nodes = vec![read(object)?],
        "CapacityBuffer" => objects.capacity_buffers = vec![read(object)?],
        "CapacityQuota" => objects.capacity_quotas = vec![read(object)?],
        "PodTemplate" => objects.pod_templates = vec![read(object)?],
        _ => return None,
    }
    Some(())
}

/// Object of each kind.
fn valid() -> Vec<(&'static str, Value)> {
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let team = json!([{"key": "team", "operator": "In", "values": ["a"]}]);
    let taints = json!([{"key": "team", "value": "a", "effect": "NoSchedule"}]);
    let pool = json!({"karpenter.sh/nodepool": "default"});
    let selector = json!({"matchLabels": {"app": "web"}, "matchExpressions": team});
    let requests = json!({"requests": {"cpu": "1", "memory": "1Gi"}});
    let term = json!({"topologyKey": "zone", "labelSelector": selector, "namespaceSelector": selector});
    let pod = json!({
        "containers": [{"name": "app", "resources": requests, "ports": [{"containerPort": 80, "hostPort": 80}]}],
        "nodeSelector": {"disk": "ssd"},
        "tolerations": [{"key": "team", "operator": "Equal", "value": "a", "effect": "NoSchedule"}],
        "topologySpreadConstraints": [{"maxSkew": 1, "topologyKey": "zone", "whenUnsatisfiable": "DoNotSchedule",
            "labelSelector": selector}],
        "affinity": {
            "nodeAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": {
                "nodeSelectorTerms": [{"matchExpressions": team}]}},
            "podAffinity": {"requiredDuringSchedulingIgnoredDuringExecution": [term]},
        },
    });
    let unschedulable = json!({"conditions": [{"type": "PodScheduled", "status": "False", "reason": "Unschedulable"}]});
    let metadata = |name: &str, more: Value| {
        let mut metadata = json!({"name": name, "namespace": "shop", "uid": name, "labels": {"app": "web"}});
        metadata.as_object_mut().unwrap().extend(more.as_object().unwrap().clone());
        metadata
    };
    let ratio = json!({"annotations": {"plimsoll.dev/on-demand-percentage": "30"}});
    let price = json!({"labels": pool, "annotations": {"plimsoll.dev/usd-per-hour": "0.1",
        "plimsoll.dev/reserved": r#"{"cpu":"4"}"#}});
    let four = json!({"cpu": "4", "memory": "8Gi"});
    let template = json!({"metadata": {"labels": {"app": "web"}}, "spec": pod});
    vec![
        ("Pod", json!({"metadata": metadata("web", ratio.clone()), "spec": pod, "status": unschedulable})),
        (
            "Node",
            json!({"metadata": metadata("n1", json!({"labels": pool})),
                "spec": {"providerID": "aws:///a/i-1", "taints": taints},
                "status": {"capacity": four, "allocatable": four}}),
        ),
        (
            "NodePool",
            json!({"metadata": metadata("default", ratio), "spec": {"limits": {"cpu": 10}, "weight": 1,
                "disruption": {"budgets": [{"nodes": "10%"}], "consolidateAfter": "1m"},
                "template": {"metadata": {"labels": {"tier": "b"}},
                    "spec": {"nodeClassRef": class, "requirements": team, "taints": taints, "expireAfter": "1h"}}}}),
        ),
        (
            "NodeClaim",
            json!({"metadata": metadata("c1", price), "spec": {"nodeClassRef": class, "taints": taints,
                "requirements": [{"key": "karpenter.sh/nodepool", "operator": "In", "values": ["default"]}],
                "resources": requests}, "status": {"capacity": four, "allocatable": four}}),
        ),
        (
            "NodeOverlay",
            json!({"metadata": metadata("fuse", json!({})),
                "spec": {"requirements": team, "capacity": {"example.com/fuse": "1"}, "price": "0.1", "weight": 1}}),
        ),
        (
            "DaemonSet",
            json!({"metadata": metadata("agent", json!({})), "spec": {"selector": selector, "template": template}}),
        ),
        (
            "PodDisruptionBudget",
            json!({"metadata": metadata("web", json!({})), "spec": {"selector": selector, "maxUnavailable": 1},
                "status": {"disruptionsAllowed": 1, "currentHealthy": 1, "desiredHealthy": 1, "expectedPods": 1}}),
        ),
        (
            "CSINode",
            json!({"metadata": metadata("n1", json!({})),
                "spec": {"drivers": [{"name": "ebs", "nodeID": "i-1", "allocatable": {"count": 25}}]}}),
        ),
        ("PodTemplate", json!({"metadata": metadata("spare", json!({})), "template": template})),
        (
            "CapacityBuffer",
            json!({"metadata": metadata("spare", json!({})),
                "spec": {"podTemplateRef": {"name": "spare"}, "replicas": 2, "limits": {"cpu": "8"}}}),
        ),
        (
            "CapacityQuota",
            json!({"metadata": metadata("quota", json!({})),
                "spec": {"selector": selector, "limits": {"resources": {"cpu": 10}}}}),
        ),
    ]
}

/// Every value with one change, and the path of the change: an empty text, a negative number, or an entry whose name is
/// empty.
fn changed(value: &Value, path: &str) -> Vec<(String, Value)> {
    let mut changes = Vec::new();
    match value {
        Value::String(_) => changes.push((path.to_owned(), json!(""))),
        Value::Number(_) => changes.extend([-1, 0].map(|number| (path.to_owned(), json!(number)))),
        Value::Array(items) => {
            for (index, item) in items.iter().enumerate() {
                for (path, item) in changed(item, &format!("{path}/{index}")) {
                    let mut items = items.clone();
                    items[index] = item;
                    changes.push((path, Value::Array(items)));
                }
            }
        }
        Value::Object(fields) => {
            let first = fields.values().next().cloned().unwrap_or_default();
            let named = fields.iter().map(|(name, field)| (name, changed(field, &format!("{path}/{name}"))));
            let named = named.flat_map(|(name, all)| all.into_iter().map(move |(path, field)| (path, name, field)));
            let nameless = String::new();
            for (path, name, field) in named.chain([(format!("{path}/"), &nameless, first)]) {
                let mut fields = fields.clone();
                fields.insert(name.clone(), field);
                changes.push((path, Value::Object(fields)));
            }
        }
        Value::Null | Value::Bool(_) => {}
    }
    changes
}

/// The API server names every object, and refuses taints and requirements without a key. It accepts other fields that
/// our validation refuses, such as a negative limit of a NodePool.
fn is_refused(path: &str) -> bool {
    ["/metadata/name", "/metadata/uid"].contains(&path)
        || ["/taints/0/key", "/requirements/0/key"].iter().any(|field| path.ends_with(field))
}

/// A scheduler refuses the whole of an invalid snapshot, so one such object would end all plans.
#[test]
fn no_object_that_the_api_server_accepts_makes_the_snapshot_invalid() {
    let mut objects = Objects::default();
    for (kind, object) in valid() {
        assert_eq!(put(&mut objects, kind, &object), Some(()), "{kind}");
    }
    let (snapshot, problems) = plimsoll_snapshot::build(&objects, &Extra::default());
    assert_eq!((check_snapshot(&snapshot), problems), (Ok(()), Vec::new()));
    let mut checked = 0;
    for (kind, object) in valid() {
        for (path, object) in changed(&object, "").into_iter().filter(|(path, _)| !is_refused(path)) {
            let mut objects = objects.clone();
            if put(&mut objects, kind, &object).is_some() {
                let (snapshot, _) = plimsoll_snapshot::build(&objects, &Extra::default());
                assert_eq!(check_snapshot(&snapshot), Ok(()), "{kind} {path}");
                checked += 1;
            }
        }
    }
    assert!(checked > 100, "only {checked} changes");
}

/// A plan without catalogs would launch nothing, and still remove nodes.
#[test]
fn there_is_no_snapshot_before_ledger_and_catalogs_are_known_and_it_contains_what_they_tell() {
    let (facts, now) = (Facts::default(), Timestamp(0));
    let free = vec![ReservationCount { id: "cr-1".to_owned(), free: 2 }];
    let update = LedgerUpdate { reservations: Some(free.clone()), complete: true, ..LedgerUpdate::default() };
    assert!(facts.change_ledger(|ledger| ledger.apply(update, now)));
    assert!(facts.extra(now).is_none(), "the catalogs are unknown");
    let zones = BTreeSet::from(["a".to_owned()]);
    let update = CatalogUpdate { shifted_zones: Some(zones.clone()), complete: true, ..CatalogUpdate::default() };
    facts.change_catalogs(|catalogs| {
        catalogs.restart();
        (catalogs.apply(update, now).unwrap(), ())
    });
    let extra = facts.extra(now).unwrap();
    assert_eq!((extra.reservations, extra.shifted_zones), (free, zones));
}

/// The ledger's list is as new as its position. Without such a list, the one of the catalogs is used.
#[test]
fn offerings_without_capacity_are_those_of_the_ledger_if_it_reports_any_list() {
    let list = |zone: &str| {
        let zone = Some(zone.to_owned());
        let capacity_type = CapacityType::Spot;
        vec![UnavailableOffering { instance_type: None, zone, capacity_type, remaining: Millis(60_000) }]
    };
    let (facts, now) = (Facts::default(), Timestamp(0));
    let known = || facts.extra(now).map(|extra| extra.unavailable_offerings);
    facts.change_catalogs(|catalogs| {
        catalogs.restart();
        let unavailable_offerings = Some(list("a"));
        let update = CatalogUpdate { unavailable_offerings, complete: true, ..CatalogUpdate::default() };
        (catalogs.apply(update, now).unwrap(), ())
    });
    assert_eq!(known(), None, "the ledger is unknown");
    for (told, expected) in [(None, list("a")), (Some(list("b")), list("b")), (Some(Vec::new()), Vec::new())] {
        let update = LedgerUpdate { unavailable_offerings: told, complete: true, ..LedgerUpdate::default() };
        assert!(facts.change_ledger(|ledger| ledger.apply(update, now)));
        assert_eq!(known(), Some(expected));
    }
}

use super::*;
use crate::ledger::Removal;
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::apimachinery::pkg::api::resource::Quantity;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use plimsoll_api::Pod;
use plimsoll_model::execution::{ClaimState, InFlightClaim};
use plimsoll_model::names::annotation;
use plimsoll_model::snapshot::DisruptionReason;
use serde_json::{Value, json};

/// An empty ledger, which this watch cache feeds.
fn sources(stores: Stores) -> Sources {
    Sources {
        stores,
        ledger: LedgerHandle::new(Ledger::default()),
        events: Recorder::silent(),
        clock: Clock::starting_at(jiff::Timestamp::UNIX_EPOCH),
    }
}

/// A claim of a pool with these conditions.
fn claim(pool: &str, conditions: &[&str]) -> Arc<NodeClaim> {
    let is_true = |kind: &&str| {
        json!({"type": kind, "status": "True", "reason": kind, "message": "",
            "lastTransitionTime": "2026-01-05T00:00:00Z"})
    };
    let claim = json!({
        "metadata": {"name": "c", "labels": {"karpenter.sh/nodepool": pool}},
        "spec": {
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"},
            "requirements": [],
        },
        "status": {"conditions": conditions.iter().map(is_true).collect::<Vec<_>>()},
    });
    Arc::new(serde_json::from_value(claim).unwrap())
}

#[test]
fn nodes_in_service_are_initialized_and_not_being_terminated() {
    let claims = [
        claim("a", &["Launched", "Registered", "Initialized"]),
        claim("a", &["Initialized", "Drifted"]),
        claim("a", &["Launched", "Registered"]),
        claim("a", &["Initialized", "InstanceTerminating"]),
        claim("b", &["Initialized"]),
        claim("c", &[]),
    ];
    assert_eq!(in_service(&claims), [("a", 2), ("b", 1)].into());
}

/// Its nodes are still removed, for which the ledger must know its budgets.
#[tokio::test(start_paused = true)]
async fn a_pool_with_an_invalid_limit_launches_no_node_and_keeps_its_budgets() {
    let pool = json!({"metadata": {"name": "a"}, "spec": {
        "limits": {"cpu": "-1"}, "disruption": {"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]},
        "template": {"spec": {"requirements": [],
            "nodeClassRef": {"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"}}}}});
    let deps = sources(Stores::default());
    let facts = facts(&deps, &serde_json::from_value(pool).unwrap(), (3, 0), &[]);
    assert_eq!(facts.limits, Resources::from([("nodes", 0)]));
    assert_eq!(facts.allowed.get(&DisruptionReason::Empty), Some(&1));
}

/// Its write had succeeded, and the response was lost.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_given_up_is_adopted_again_if_it_is_still_seen_after_a_minute() {
    let deps = sources(Stores::of_claims([Arc::unwrap_or_clone(claim("a", &[]))]));
    let is_known = || deps.ledger.read(|ledger| ledger.knows("c"));
    let mut feed = Feed::default();
    feed.pass(&deps);
    assert!(is_known());
    deps.ledger.gone("c");
    // All claims are read every ten seconds. The minute begins when one is missing in the ledger.
    for (seconds, expected) in [(10, false), (59, false), (1, true)] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        feed.pass(&deps);
        assert_eq!(is_known(), expected, "{seconds} s later");
    }
    deps.ledger.gone("c");
    for seconds in [0, 10] {
        tokio::time::advance(Duration::from_secs(seconds)).await;
        feed.pass(&deps);
        assert!(!is_known(), "another minute begins");
    }
}

/// The claim as it was admitted.
fn admitted() -> InFlightClaim {
    InFlightClaim {
        name: "c".to_owned(),
        node_pool: "a".into(),
        state: ClaimState::Launching,
        ..InFlightClaim::default()
    }
}

#[tokio::test(start_paused = true)]
async fn a_claim_that_is_no_longer_there_is_gone() {
    // All claims are read every ten seconds, and changed ones in between.
    for seconds in [0, 10] {
        let shown = Arc::unwrap_or_clone(claim("a", &[]));
        let (deps, mut feed) = (sources(Stores::of_claims([shown.clone()])), Feed::default());
        feed.pass(&deps);
        assert!(deps.ledger.read(|ledger| ledger.knows("c")));
        deps.ledger.launching(admitted());
        tokio::time::advance(Duration::from_secs(seconds)).await;
        deps.stores.claims.show_gone(shown);
        feed.pass(&deps);
        assert!(!deps.ledger.read(|ledger| ledger.knows("c")), "{seconds}");
        assert!(deps.ledger.all_launching().is_empty(), "{seconds}");
    }
}

/// What the ledger has recorded of the claim.
fn recorded(deps: &Sources) -> Vec<String> {
    deps.ledger.read(|ledger| {
        let claim = ledger.claim("c").unwrap();
        let facts = [
            (claim.launched, "launched"),
            (claim.initialized, "initialized"),
            (claim.overdue, "overdue"),
            (claim.deleting, "deleting"),
            (claim.terminating, "terminating"),
            (claim.drifted, "drifted"),
        ];
        let facts = facts.into_iter().filter(|(is_so, _)| *is_so).map(|(_, fact)| fact.to_owned());
        let amounts = [
            claim.price().map(|price| format!("price {}", price.0)),
            claim.node.as_ref().map(|node| format!("node {node}")),
            Some(claim.counted.get("cpu")).filter(|cpu| *cpu > 0).map(|cpu| format!("cpu {cpu}")),
            claim.labels.get("team").map(|team| format!("team {team}")),
        ];
        facts.chain(amounts.into_iter().flatten()).collect()
    })
}

fn node(labels: &Value) -> Node {
    serde_json::from_value(json!({"metadata": {"name": "n", "labels": labels}})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn what_a_claim_and_its_node_say_is_recorded_at_once() {
    let (deps, mut feed) = (sources(Stores::default()), Feed::default());
    let mut shown = Arc::unwrap_or_clone(claim("a", &[]));
    let conditions = |kinds: &[&str]| claim("a", kinds).status.clone().unwrap().conditions;
    let price = |text: &str| Some(BTreeMap::from([(annotation::USD_PER_HOUR.to_owned(), text.to_owned())]));
    let mut pass = |claim: &NodeClaim| {
        deps.stores.claims.show(claim.clone());
        feed.pass(&deps);
        recorded(&deps)
    };
    assert_eq!(pass(&shown), [""; 0]);
    let status = shown.status.get_or_insert_default();
    status.provider_id = Some("aws:///zone-a/i-1".to_owned());
    status.capacity = [("cpu".to_owned(), Quantity("2".to_owned()))].into();
    shown.metadata.annotations = price("0.5");
    assert_eq!(pass(&shown), ["launched", "price 500000", "cpu 2000"]);
    shown.status.get_or_insert_default().capacity.clear();
    shown.metadata.annotations = price("0.6");
    assert_eq!(pass(&shown), ["launched", "price 600000", "cpu 2000"], "its capacity cannot be read any more");
    shown.status.get_or_insert_default().node_name = Some("n".to_owned());
    let of_node = ["price 600000", "node n", "cpu 2000"];
    assert_eq!(pass(&shown), [&["launched"][..], &of_node].concat());
    let rows: [(&[&str], &[&str]); 3] = [
        (&["Drifted"], &["launched", "drifted"]),
        (&["InitializationTimedOut"], &["launched", "overdue"]),
        (&["InitializationTimedOut", "Initialized"], &["launched", "initialized", "overdue"]),
    ];
    for (kinds, facts) in rows {
        shown.status.get_or_insert_default().conditions = conditions(kinds);
        assert_eq!(pass(&shown), [facts, &of_node].concat());
    }
    shown.metadata.deletion_timestamp = Some(Time(jiff::Timestamp::UNIX_EPOCH));
    let deleting = ["launched", "initialized", "overdue", "deleting"];
    assert_eq!(pass(&shown), [&deleting[..], &of_node].concat());
    shown.status.get_or_insert_default().conditions = conditions(&["Initialized", "InstanceTerminating"]);
    assert_eq!(pass(&shown), [&deleting[..], &["terminating"], &of_node].concat());
    // Only the Node changes.
    deps.stores.nodes.show(node(&json!({"team": "b", "karpenter.sh/registered": "true"})));
    feed.pass(&deps);
    assert_eq!(recorded(&deps).last().map(String::as_str), Some("team b"));
}

fn pod(node: &str, phase: &str, verdict: &str) -> Pod {
    let condition = json!({"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": verdict});
    let conditions: Vec<Value> = [condition].into_iter().filter(|_| !verdict.is_empty()).collect();
    let pod = json!({
        "metadata": {"name": "p", "namespace": "default", "uid": "p"},
        "spec": {"nodeName": node, "containers": [{"name": "main"}]},
        "status": {"phase": phase, "conditions": conditions},
    });
    serde_json::from_value(pod).unwrap()
}

/// Whether the pod is reserved after each pass, of which the claim's node is initialized before the one with this
/// number. Before each pass, the pod is shown like this.
fn reserved_after(initialized: usize, shown: &[Option<Pod>]) -> Vec<bool> {
    let deps = sources(Stores::default());
    let annotations = [(annotation::PODS.to_owned(), r#"["p"]"#.to_owned())].into();
    let claim = ClaimSeed { name: "c".to_owned(), pool: "a".into(), annotations, ..ClaimSeed::default() };
    deps.ledger.with(|ledger| ledger.adopt(&claim)).unwrap();
    let (mut feed, now) = (Feed::default(), deps.clock.timestamp());
    let pass = |(number, shown): (usize, &Option<Pod>)| {
        match shown {
            Some(pod) => deps.stores.pods.show(pod.clone()),
            None => deps.stores.pods.show_gone(pod("", "Pending", "")),
        }
        if number == initialized {
            deps.ledger.with(|ledger| ledger.initialized("c", now));
        }
        feed.pass(&deps);
        deps.ledger.read(|ledger| ledger.reserved_by(&"p".into(), now).is_some())
    };
    shown.iter().enumerate().map(pass).collect()
}

/// Rule 7, but for the end of the claim.
#[tokio::test(start_paused = true)]
async fn a_reservation_ends_when_its_pod_is_bound_gone_or_refused_again() {
    const NEVER: usize = usize::MAX;
    let waits = |verdict: &str| Some(pod("", "Pending", verdict));
    let runs = |node: &str| Some(pod(node, "Running", ""));
    let (first, second) = (|| waits("0/1 nodes"), || waits("0/2 nodes"));
    for (initialized, shown, expected, why) in [
        (NEVER, vec![None, None], vec![true, true], "it is not seen yet"),
        (NEVER, vec![first(), runs("n")], vec![true, false], "bound"),
        (NEVER, vec![first(), None], vec![true, false], "gone"),
        (NEVER, vec![first(), Some(pod("", "Failed", ""))], vec![true, false], "ended"),
        (NEVER, vec![runs("old"), runs("old")], vec![true, true], "it is to move"),
        (NEVER, vec![runs("old"), Some(pod("old", "Succeeded", ""))], vec![true, false], "ended on its old node"),
        (NEVER, vec![first(), second()], vec![true, true], "the node is not in service"),
        (2, vec![first(), second(), second()], vec![true, true, true], "the verdict is older than the node"),
        (1, vec![first(), first(), second()], vec![true, true, false], "refused again"),
        (1, vec![first(), waits(""), first()], vec![true, true, true], "the same verdict"),
        (0, vec![first(), first()], vec![true, true], "a new leader knows no earlier verdict"),
    ] {
        assert_eq!(reserved_after(initialized, &shown), expected, "{why}");
    }
}

/// Rule 10.
#[tokio::test(start_paused = true)]
async fn plans_are_outdated_by_a_node_that_changes_or_whose_pods_do() {
    let (deps, mut feed) = (sources(Stores::default()), Feed::default());
    let mut is_news = || {
        let before = deps.ledger.position();
        feed.pass(&deps);
        deps.ledger.position() > before
    };
    assert!(!is_news());
    deps.stores.nodes.show(node(&json!({})));
    assert_eq!((is_news(), is_news()), (true, false));
    deps.stores.nodes.show(node(&json!({})));
    assert!(!is_news(), "a heartbeat");
    deps.stores.nodes.show(node(&json!({"team": "a"})));
    assert!(is_news());
    deps.stores.pods.show(pod("n", "Running", ""));
    assert!(is_news(), "bound to it");
    deps.stores.pods.show(pod("other", "Running", ""));
    assert!(is_news(), "it has left");
    deps.stores.nodes.show_gone(node(&json!({})));
    assert_eq!((is_news(), is_news()), (true, false), "gone");
}

fn pool_with(disruption: &Value) -> NodePool {
    let class = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": "default"});
    let spec = json!({"replicas": 3, "limits": {"cpu": "8"}, "disruption": disruption,
        "template": {"spec": {"requirements": [], "nodeClassRef": class}}});
    serde_json::from_value(json!({"metadata": {"name": "a"}, "spec": spec})).unwrap()
}

#[tokio::test(start_paused = true)]
async fn the_ledger_knows_limits_replicas_and_the_budget_of_each_reason_while_there_is_the_pool() {
    let (deps, mut feed) = (sources(Stores::default()), Feed::default());
    let budgets = json!([{"nodes": "1", "reasons": ["Empty"]}, {"nodes": "50%", "reasons": ["Drifted"]}]);
    let shown = pool_with(&json!({"consolidateAfter": "0s", "budgets": budgets}));
    let of_four = facts(&deps, &shown, (4, 0), &[]);
    assert_eq!(of_four.allowed.get(&DisruptionReason::Drifted), Some(&2), "half of the nodes");
    deps.stores.pools.show(shown.clone());
    feed.pass(&deps);
    let known = || deps.ledger.read(|ledger| ledger.pool(&"a".into()).cloned());
    let allowed = [(DisruptionReason::Empty, 1), (DisruptionReason::Drifted, 0)].into();
    let limits = Resources::from([("cpu", 8000)]);
    assert_eq!(known(), Some(PoolFacts { limits, allowed, rollout_limit: None, replicas: Some(3) }));
    let of_underutilized = json!([{"nodes": "2", "reasons": ["Underutilized"]}]);
    deps.stores.pools.show(pool_with(&json!({"consolidateAfter": "0s", "budgets": of_underutilized})));
    feed.pass(&deps);
    assert_eq!(known().map(|facts| facts.allowed), Some([(DisruptionReason::Underutilized, 2)].into()));
    deps.stores.pools.show_gone(shown);
    feed.pass(&deps);
    assert_eq!(known(), None);
}

/// The number of empty nodes that may be removed at a time if the condition Ready of the only node is like this, and
/// its claim has these annotations. The node was Ready before, and `then` changes the ledger after that.
fn allowed(ready: &str, annotations: BTreeMap<String, String>, then: fn(&mut Ledger)) -> Option<u32> {
    let (deps, mut feed) = (sources(Stores::default()), Feed::default());
    deps.stores.pools.show(pool_with(&json!({"consolidateAfter": "0s", "budgets": [{"nodes": "1"}]})));
    let mut shown = Arc::unwrap_or_clone(claim("a", &["Launched", "Registered", "Initialized"]));
    shown.status.get_or_insert_default().node_name = Some("n".to_owned());
    shown.metadata.annotations = Some(annotations);
    deps.stores.claims.show(shown);
    for ready in ["True", ready] {
        let conditions = json!([{"type": "Ready", "status": ready}]);
        let node = json!({"metadata": {"name": "n"}, "status": {"conditions": conditions}});
        deps.stores.nodes.show(serde_json::from_value(node).unwrap());
        feed.pass(&deps);
        deps.ledger.with(then);
    }
    feed.pass(&deps);
    deps.ledger.read(|ledger| ledger.pool(&"a".into()).unwrap().allowed.get(&DisruptionReason::Empty).copied())
}

/// As in Karpenter. Plans count such nodes, too, but a plan does not know the removals of the one before yet.
#[tokio::test(start_paused = true)]
async fn a_node_that_is_not_ready_uses_up_the_budget_of_its_pool() {
    let states = ["True", "False", "Unknown"].map(|ready| allowed(ready, BTreeMap::new(), |_| ()));
    assert_eq!(states, [Some(1), Some(0), Some(0)]);
    let deleting = allowed("False", BTreeMap::new(), |ledger| ledger.deleting("c"));
    assert_eq!(deleting, Some(1), "the ledger itself counts nodes that are being removed");
    let removal = Removal {
        action: "remove".into(),
        node: "n".into(),
        reason: DisruptionReason::Empty,
        replacements: Vec::new(),
        evictions: BTreeMap::new(),
        rooms: BTreeMap::new(),
        pods: BTreeSet::new(),
        admitted: Timestamp(0),
    };
    let command = [(annotation::REMOVAL.to_owned(), serde_json::to_string(&removal).unwrap())];
    assert_eq!(allowed("False", command.into(), |_| ()), Some(1), "before its claim is deleted");
}

#[tokio::test(start_paused = true)]
async fn the_ledger_knows_how_many_nodes_the_rollout_of_a_pool_may_replace() {
    let (deps, mut feed) = (sources(Stores::default()), Feed::default());
    let mut shown = pool_with(&json!({"consolidateAfter": "0s"}));
    deps.stores.pools.show(shown.clone());
    let mut limit = || {
        feed.pass(&deps);
        deps.ledger.read(|ledger| ledger.pool(&"a".into()).unwrap().rollout_limit)
    };
    assert_eq!(limit(), None, "no node has drifted");
    deps.stores.claims.show(Arc::unwrap_or_clone(claim("a", &["Initialized", "Drifted"])));
    assert_eq!(limit(), Some(1), "the canary");
    shown.metadata.annotations = Some([(annotation::ROLLOUT_PAUSED.to_owned(), "true".to_owned())].into());
    deps.stores.pools.show(shown);
    assert_eq!(limit(), Some(0));
}

#[tokio::test(start_paused = true)]
async fn the_ledger_knows_quotas_and_the_nodes_that_they_count_beside_claims() {
    let (deps, mut feed) = (sources(Stores::default()), Feed::default());
    let mut known = || {
        feed.pass(&deps);
        deps.ledger.read(|ledger| (ledger.quotas().len(), ledger.unmanaged_nodes().len()))
    };
    deps.stores.nodes.show(node(&json!({})));
    assert_eq!(known(), (0, 0), "no quota counts it");
    let quota = json!({"metadata": {"name": "q"}, "spec": {"limits": {"resources": {"nodes": "1"}}}});
    let quota: plimsoll_api::CapacityQuota = serde_json::from_value(quota).unwrap();
    deps.stores.quotas.show(quota.clone());
    assert_eq!(known(), (1, 1));
    deps.stores.nodes.show_gone(node(&json!({})));
    assert_eq!(known(), (1, 0));
    deps.stores.quotas.show_gone(quota);
    assert_eq!(known(), (0, 0));
}

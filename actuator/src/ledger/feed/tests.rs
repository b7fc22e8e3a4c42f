use super::*;
use crate::ledger::Ledger;
use serde_json::json;

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
    let deps = Sources {
        stores: Stores::of_claims([]),
        ledger: LedgerHandle::new(Ledger::default()),
        events: Recorder::silent(),
        clock: Clock::starting_at(jiff::Timestamp::UNIX_EPOCH),
    };
    let facts = facts(&deps, &serde_json::from_value(pool).unwrap(), 3, false);
    assert_eq!(facts.limits, Resources::from([("nodes", 0)]));
    assert_eq!(facts.allowed.get(&DisruptionReason::Empty), Some(&1));
}

/// Its write had succeeded, and the response was lost.
#[tokio::test(start_paused = true)]
async fn a_claim_that_was_given_up_is_adopted_again_if_it_is_still_seen_after_a_minute() {
    let deps = Sources {
        stores: Stores::of_claims([Arc::unwrap_or_clone(claim("a", &[]))]),
        ledger: LedgerHandle::new(Ledger::default()),
        events: Recorder::silent(),
        clock: Clock::starting_at(jiff::Timestamp::UNIX_EPOCH),
    };
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
}

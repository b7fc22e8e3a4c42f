//! Claims that the ledger reads from the cluster: unreadable ones, and claims that this term did not admit.

use super::*;

#[test]
fn repaired_claim_counts_and_unblocks_its_pool() {
    let mut broken = seed("x");
    broken.capacity = None;
    broken.annotations.insert(annotation::RESERVED.to_owned(), "nonsense".to_owned());
    let (mut ledger, _) = Ledger::from_claims(8, std::slice::from_ref(&broken));
    ledger.observe_driver(driver(1));
    ledger.set_pool(&"pool".into(), pool(8000));
    let before = ledger.position();
    ledger.adopt(&broken).unwrap_err();
    assert_eq!(ledger.position(), before, "the same problem is no news");
    broken.annotations.insert(annotation::RESERVED.to_owned(), "other nonsense".to_owned());
    ledger.adopt(&broken).unwrap_err();
    assert!(ledger.position() > before, "plans from before do not know of the problem");
    broken.annotations.insert(annotation::RESERVED.to_owned(), r#"{"cpu": "7"}"#.to_owned());
    ledger.adopt(&broken).unwrap();
    assert!(!ledger.is_unreadable("x"));
    let context = plan(&ledger, 1);
    let refused = rejection(admit(&mut ledger, &launch("two", &["large"], &[]), &context));
    assert!(matches!(refused, Rejection::LimitExceeded { used: 7000, .. }), "{refused:?}");
    claim_of(&admit(&mut ledger, &launch("three", &["small"], &[]), &context));
}

/// Whether a stored request may be sent again depends on who admitted the claim, not on its existence.
#[test]
fn only_claims_with_their_pods_reserved_are_resent() {
    let launching = |name: &str, pod: &str| {
        let mut seed = seed(name);
        (seed.capacity, seed.initialized) = (None, false);
        seed.annotations = [
            (annotation::RESERVED.to_owned(), r#"{"cpu": "1"}"#.to_owned()),
            (annotation::PODS.to_owned(), format!("[\"{pod}\"]")),
        ]
        .into();
        seed
    };
    let mut ledger = ledger_of(&[launching("before", "p"), launching("contested", "p")]);
    assert!(ledger.may_send_again("before"));
    assert!(!ledger.may_send_again("contested"), "another claim has its pod");
    ledger.adopt(&launching("quarantine", "q")).unwrap();
    assert!(ledger.may_send_again("quarantine"), "a former leader's, read before anything was admitted");
    ledger.begin_admitting();
    let context = plan(&ledger, 1);
    let admitted = claim_of(&admit(&mut ledger, &launch("one", &["small"], &["r"]), &context));
    assert!(ledger.may_send_again(&admitted));
    ledger.adopt(&launching("late", "r")).unwrap();
    assert!(!ledger.may_send_again("late"));
    assert_eq!(ledger.reserved_by(&"r".into(), NOW), Some(admitted.as_str()), "the late one takes no pod away");
    ledger.failed(&admitted, "Refused", NOW);
    assert!(!ledger.may_send_again(&admitted), "its pods may have another launch");
    assert!(!ledger.may_send_again("unknown"));
}

/// A claim whose launch has failed may still exist at a change of the leader, beside the launch that followed.
#[test]
fn a_claim_whose_pods_have_an_instance_is_not_resent() {
    let with_pod = |name: &str, launched: bool, initialized: bool| {
        let mut seed = seed(name);
        seed.initialized = initialized;
        if !launched {
            seed.capacity = None;
        }
        seed.annotations.insert(annotation::RESERVED.to_owned(), r#"{"cpu": "1"}"#.to_owned());
        seed.annotations.insert(annotation::PODS.to_owned(), r#"["p"]"#.to_owned());
        seed
    };
    for initialized in [false, true] {
        let ledger = ledger_of(&[with_pod("failed", false, false), with_pod("launched", true, initialized)]);
        assert!(!ledger.may_send_again("failed"), "initialized: {initialized}");
        let holder = ledger.reserved_by(&"p".into(), NOW);
        assert_eq!(holder, (!initialized).then_some("launched"));
    }
}

#[test]
fn launches_on_probation_are_admitted_one_at_a_time() {
    let mut ledger = ledger_of(&[]);
    let context = plan(&ledger, 1);
    let pool = "pool".into();
    let probe = |ledger: &mut Ledger, id: &str| {
        let action = launch(id, &["small"], &[]);
        ledger.admit_probe(&pool, |ledger| admit(ledger, &action, &context))
    };
    let first = claim_of(&probe(&mut ledger, "one"));
    assert!(matches!(rejection(probe(&mut ledger, "two")), Rejection::BackOff { .. }));
    claim_of(&admit(&mut ledger, &launch("other", &["small"], &[]), &context));
    ledger.launched(&first, Resources::from([("cpu", 1000)]));
    claim_of(&probe(&mut ledger, "two"));
}

/// The watcher may know the node before it knows its claim, and take it for empty.
#[test]
fn node_that_existing_pods_are_reserved_for_is_removed_only_by_force() {
    let ledger = ledger_of(&[seed("x")]);
    let context = plan(&ledger, 1);
    let admit_removal = |reason, expected: &[&str]| {
        let expected = expected.iter().map(|pod| PodUid::from(*pod)).collect();
        let facts = RemovalFacts { claim: "x".to_owned(), expected, now: NOW, ..RemovalFacts::default() };
        ledger.clone().admit_removal(&removal("n", reason), &[], &context, &facts)
    };
    let refused = rejection(admit_removal(DisruptionReason::Empty, &["p"]));
    assert_eq!(refused, Rejection::PodExpected { node: "n".into(), pod: "p".into() });
    claim_of(&admit_removal(DisruptionReason::Interrupted, &["p"]));
    claim_of(&admit_removal(DisruptionReason::Empty, &[]));
}

#[test]
fn new_leader_restores_the_ledger_from_claims() {
    let mut launching = ClaimSeed { capacity: None, initialized: false, node: None, ..seed("x") };
    launching.annotations = [
        (annotation::ACTION_ID, "one"),
        (annotation::PODS, r#"["p"]"#),
        (annotation::RESERVED, r#"{"cpu":"4","nodes":"1"}"#),
    ]
    .map(|(key, value)| (key.to_owned(), value.to_owned()))
    .into();
    let mut before = ledger_of(&[seed("a"), seed("c")]);
    let context = plan(&before, 1);
    claim_of(&before.admit_removal(&removal("a", DisruptionReason::Empty), &[], &context, &facts("a", "c", 600)));
    let (_, stored) = before.removals().next().unwrap();
    let mut removing = seed("a");
    removing.annotations.insert(annotation::REMOVAL.to_owned(), serde_json::to_string(stored).unwrap());

    let mut ledger = ledger_of(&[launching.clone(), removing, seed("b"), seed("c")]);
    assert_eq!(ledger.used(&"pool".into()).get("cpu"), 7000);
    assert_eq!(ledger.reserved_by(&"p".into(), NOW), Some("x"));
    let context = plan(&ledger, 1);
    assert_eq!(
        admit(&mut ledger, &launch("one", &["small"], &["p"]), &context),
        Admission::Repeated(Outcome::Admitted)
    );
    let second = ledger.admit_removal(&removal("b", DisruptionReason::Drifted), &[], &context, &facts("b", "c", 401));
    assert_eq!(rejection(second), Rejection::InsufficientResources { node: "c".into(), resource: "cpu".to_owned() });

    launching.annotations.insert(annotation::RESERVED.to_owned(), "nonsense".to_owned());
    let (mut ledger, problems) = Ledger::from_claims(8, &[launching]);
    assert!(problems[0].to_string().starts_with("NodeClaim x: annotation plimsoll.dev/reserved: "), "{}", problems[0]);
    ledger.observe_driver(driver(1));
    ledger.set_pool(&"pool".into(), pool(8000));
    let context = plan(&ledger, 1);
    let closed = rejection(admit(&mut ledger, &launch("two", &["small"], &[]), &context));
    assert!(matches!(closed, Rejection::PoolUnreadable { .. }));
    ledger.gone("x");
    let context = plan(&ledger, 2);
    claim_of(&admit(&mut ledger, &launch("two", &["small"], &[]), &context));
}

#[test]
fn a_negative_reserved_amount_is_unreadable() {
    let mut negative = ClaimSeed { capacity: None, initialized: false, node: None, ..seed("x") };
    negative.annotations.insert(annotation::RESERVED.to_owned(), r#"{"cpu": "-1", "nodes": "1"}"#.to_owned());
    let (mut ledger, problems) = Ledger::from_claims(8, std::slice::from_ref(&negative));
    let texts: Vec<String> = problems.iter().map(ToString::to_string).collect();
    assert_eq!(texts, ["NodeClaim x: annotation plimsoll.dev/reserved: cpu: must not be negative"]);
    assert!(ledger.is_unreadable("x") && ledger.claim("x").is_none());
    ledger.adopt(&negative).unwrap_err();
}

/// The first node of a pod was not initialized in time, or is being deleted, and its second one is being launched as
/// the leader changes.
#[test]
fn the_pods_of_a_node_that_is_not_waited_for_stay_with_their_second_launch() {
    let of_pod = |name: &str| {
        let mut seed = ClaimSeed { initialized: false, ..seed(name) };
        seed.annotations = [
            (annotation::RESERVED.to_owned(), r#"{"cpu": "1"}"#.to_owned()),
            (annotation::PODS.to_owned(), r#"["p"]"#.to_owned()),
        ]
        .into();
        seed
    };
    let deleting = ClaimSeed { deleting: true, ..of_pod("first") };
    for first in [
        ClaimSeed { overdue: true, ..of_pod("first") },
        ClaimSeed { capacity: None, ..deleting.clone() },
        ClaimSeed { initialized: true, ..deleting.clone() },
        deleting,
    ] {
        let second = ClaimSeed { capacity: None, ..of_pod("second") };
        let ledger = ledger_of(&[first.clone(), second]);
        assert_eq!(ledger.reserved_by(&"p".into(), NOW), Some("second"), "{first:?}");
        assert!(ledger.may_send_again("second"), "{first:?}");
    }
}

//! What the admission of removals rests on, and what it changes.

use super::*;

fn none(claim: &str) -> RemovalFacts {
    RemovalFacts { claim: claim.to_owned(), ..RemovalFacts::default() }
}

fn empty(node: &str) -> Termination {
    removal(node, DisruptionReason::Empty)
}

/// The removal of node a, whose pod p moves.
fn removal_with_pod() -> Termination {
    let pods = vec![PodRef { name: "ns/p".to_owned(), uid: "p".into() }];
    Termination { pods, ..removal("a", DisruptionReason::Underutilized) }
}

#[test]
fn a_budget_counts_removals_and_deletions_of_its_own_pool_only() {
    let mut ledger = ledger_of(&[seed("a"), seed("b"), ClaimSeed { pool: "other".into(), ..seed("x") }]);
    ledger.set_pool(&"other".into(), pool(8000));
    let context = plan(&ledger, 1);
    claim_of(&ledger.admit_removal(&empty("x"), &[], &context, &none("x")));
    let mut deleted = ledger.clone();
    deleted.deleting("a");
    let exhausted = Rejection::BudgetExhausted { allowed: 1, removing: 1 };
    assert_eq!(rejection(deleted.admit_removal(&empty("b"), &[], &context, &none("b"))), exhausted);
    claim_of(&ledger.admit_removal(&empty("a"), &[], &context, &none("a")));
}

#[test]
fn a_removal_rests_on_its_node_its_pods_and_their_destinations() {
    let fresh = ledger_of(&[seed("a"), seed("b"), seed("c")]);
    let old = plan(&fresh, 1);
    let after = |subject: Subject| {
        let mut ledger = fresh.clone();
        ledger.changed(subject);
        ledger.admit_removal(&removal_with_pod(), &[], &old, &facts("a", "c", 100))
    };
    for subject in [Subject::Node("a".into()), Subject::Node("c".into()), Subject::Pod("p".into())] {
        assert_eq!(rejection(after(subject.clone())), Rejection::Changed(subject));
    }
    claim_of(&after(Subject::Node("b".into())));
}

#[test]
fn an_admitted_removal_outdates_other_plans_for_its_node_its_pods_and_their_destinations() {
    let mut ledger = ledger_of(&[seed("a"), seed("b"), seed("c")]);
    let (own, other) = (plan(&ledger, 1), plan(&ledger, 2));
    let before = ledger.position();
    claim_of(&ledger.admit_removal(&removal_with_pod(), &[], &own, &facts("a", "c", 100)));
    assert!(ledger.position() > before);
    let second = removal("b", DisruptionReason::Underutilized);
    for node in ["a", "c"] {
        let answer = ledger.admit_removal(&second, &[], &other, &facts("b", node, 100));
        assert_eq!(rejection(answer), Rejection::Changed(Subject::Node(node.into())));
    }
    let for_the_pod = launch("one", &["small"], &["p"]);
    assert_eq!(rejection(admit(&mut ledger, &for_the_pod, &other)), Rejection::Changed(Subject::Pod("p".into())));
    claim_of(&ledger.admit_removal(&second, &[], &own, &facts("b", "c", 100)));
}

#[test]
fn a_node_that_is_being_removed_is_not_removed_again() {
    let mut ledger = ledger_of(&[seed("a"), seed("b")]);
    let context = plan(&ledger, 1);
    claim_of(&ledger.admit_removal(&empty("a"), &[], &context, &none("a")));
    ledger.deleting("b");
    // No budget limits drift.
    for node in ["a", "b"] {
        let again = Termination { action_id: "again".into(), ..removal(node, DisruptionReason::Drifted) };
        let answer = ledger.admit_removal(&again, &[], &context, &none(node));
        assert_eq!(rejection(answer), Rejection::AlreadyRemoving(node.into()));
    }
}

#[test]
fn a_node_that_is_not_in_service_is_removed_only_if_its_static_pool_has_too_many() {
    let mut ledger = ledger_of(&[seed("a"), seed("b"), seed("c")]);
    let context = plan(&ledger, 1);
    let starting = RemovalFacts { starting: true, ..none("a") };
    let admit = |ledger: &Ledger| ledger.clone().admit_removal(&empty("a"), &[], &context, &starting);
    let not_in_service = Rejection::UnknownNode("a".into());
    assert_eq!(rejection(admit(&ledger)), not_in_service, "the pool is not static");
    let fixed = |replicas| PoolFacts {
        replicas: Some(replicas),
        allowed: [(DisruptionReason::Empty, 0)].into(),
        ..PoolFacts::default()
    };
    ledger.set_pool(&"pool".into(), fixed(3));
    assert_eq!(rejection(admit(&ledger)), not_in_service);
    ledger.set_pool(&"pool".into(), fixed(2));
    claim_of(&admit(&ledger));
    let mut leaving = ledger.clone();
    leaving.deleting("c");
    assert_eq!(rejection(admit(&leaving)), not_in_service, "the others are as many as it should have");
    // The node may be the successor of a drifted one.
    let mut again = ledger.clone();
    claim_of(&ledger.admit_removal(&removal("b", DisruptionReason::Drifted), &[], &context, &none("b")));
    assert_eq!(rejection(admit(&ledger)), not_in_service);
    // The second check.
    claim_of(&again.admit_removal(&empty("a"), &[], &context, &starting));
    assert_eq!(again.check_removal_again(&starting), Ok(()), "it is still the third of two");
    again.set_pool(&"pool".into(), fixed(3));
    assert_eq!(again.check_removal_again(&starting), Err(not_in_service));
    assert_eq!(again.check_removal_again(&none("a")), Ok(()), "once in service, it was a surplus node when it began");
}

/// The taint of the first node is not visible yet, so that a plan finds another node for the same surplus.
#[test]
fn a_static_pool_keeps_as_many_nodes_as_its_replicas_beside_those_that_are_being_removed() {
    let mut ledger = ledger_of(&[seed("a"), seed("b"), seed("c")]);
    let context = plan(&ledger, 1);
    let fixed = |replicas| PoolFacts { replicas: Some(replicas), ..PoolFacts::default() };
    ledger.set_pool(&"pool".into(), fixed(2));
    claim_of(&ledger.admit_removal(&empty("a"), &[], &context, &none("a")));
    let remove_b =
        |ledger: &Ledger, reason| ledger.clone().admit_removal(&removal("b", reason), &[], &context, &none("b"));
    for reason in [DisruptionReason::Empty, DisruptionReason::Underutilized] {
        assert_eq!(rejection(remove_b(&ledger, reason)), Rejection::NoSurplus { replicas: 2, staying: 2 });
    }
    claim_of(&remove_b(&ledger, DisruptionReason::Drifted));
    claim_of(&remove_b(&ledger, DisruptionReason::Expired));
    ledger.set_pool(&"pool".into(), fixed(1));
    claim_of(&remove_b(&ledger, DisruptionReason::Empty));
    ledger.set_pool(&"pool".into(), PoolFacts::default());
    claim_of(&remove_b(&ledger, DisruptionReason::Empty));
}

#[test]
fn an_undone_removal_has_failed_frees_its_budget_and_outdates_plans() {
    let mut ledger = ledger_of(&[seed("a"), seed("b"), seed("c")]);
    let context = plan(&ledger, 1);
    claim_of(&ledger.admit_removal(&empty("a"), &[], &context, &facts("a", "c", 100)));
    let admitted = ledger.position();
    ledger.removal_undone("a");
    assert_eq!(ledger.outcome(&"remove-a".into()), Some(&Outcome::Failed));
    assert!(ledger.position() > admitted);
    let changed = |node: &str| Rejection::Changed(Subject::Node(node.into()));
    assert_eq!(rejection(ledger.admit_removal(&empty("a"), &[], &context, &none("a"))), changed("a"));
    assert_eq!(rejection(ledger.admit_removal(&empty("b"), &[], &context, &facts("b", "c", 100))), changed("c"));
    let newer = plan(&ledger, 2);
    claim_of(&ledger.admit_removal(&empty("b"), &[], &newer, &facts("b", "c", 100)));
}

#[test]
fn evictions_that_are_over_leave_the_disruption_budget_to_other_removals() {
    let mut ledger = ledger_of(&[seed("a"), seed("b"), seed("c")]);
    let context = plan(&ledger, 1);
    let allowed = [("ns/pdb".to_owned(), 2)].into();
    let second = RemovalFacts { disruptions_allowed: allowed, ..facts("b", "c", 0) };
    let admit = |ledger: &Ledger| {
        let drifted = removal("b", DisruptionReason::Drifted);
        ledger.clone().admit_removal(&drifted, &[], &context, &second)
    };
    let expired = removal("a", DisruptionReason::Expired);
    claim_of(&ledger.admit_removal(&expired, &[], &context, &facts("a", "c", 0)));
    assert_eq!(rejection(admit(&ledger)), Rejection::NoDisruptionRoom("ns/pdb".to_owned()));
    let left = |ledger: &Ledger| ledger.removal("a").unwrap().evictions.get("ns/pdb").copied();
    ledger.evictions_left("a", &[("ns/pdb".to_owned(), 1)].into());
    assert_eq!(left(&ledger), Some(1));
    claim_of(&admit(&ledger));
    ledger.evictions_left("a", &[("ns/pdb".to_owned(), 2), ("ns/other".to_owned(), 1)].into());
    assert_eq!(left(&ledger), Some(1), "a later pod was not admitted");
    ledger.evictions_left("a", &BTreeMap::new());
    assert!(ledger.removal("a").unwrap().evictions.is_empty());
}

/// They are in an annotation, which others may have written.
#[test]
fn numbers_of_evictions_that_nobody_admitted_do_no_harm() {
    let mut ledger = ledger_of(&[seed("a"), seed("b"), seed("c"), seed("d")]);
    let context = plan(&ledger, 1);
    for node in ["a", "b"] {
        let most = RemovalFacts { evictions: [("ns/pdb".to_owned(), u32::MAX)].into(), ..none(node) };
        claim_of(&ledger.admit_removal(&removal(node, DisruptionReason::Expired), &[], &context, &most));
    }
    let allowed = RemovalFacts { disruptions_allowed: [("ns/pdb".to_owned(), 9)].into(), ..facts("c", "d", 0) };
    let answer = ledger.admit_removal(&removal("c", DisruptionReason::Drifted), &[], &context, &allowed);
    assert_eq!(rejection(answer), Rejection::NoDisruptionRoom("ns/pdb".to_owned()));
}

#[test]
fn a_new_leader_gives_the_same_answer_for_a_removal_that_was_admitted() {
    let mut before = ledger_of(&[seed("a")]);
    let context = plan(&before, 1);
    claim_of(&before.admit_removal(&empty("a"), &[], &context, &none("a")));
    let mut removing = seed("a");
    let stored = serde_json::to_string(before.removal("a").unwrap()).unwrap();
    removing.annotations.insert(annotation::REMOVAL.to_owned(), stored);
    let mut ledger = ledger_of(&[removing]);
    let context = plan(&ledger, 1);
    let answer = ledger.admit_removal(&empty("a"), &[], &context, &none("a"));
    assert_eq!(answer, Admission::Repeated(Outcome::Admitted));
}

/// The pods of node a come late, such as those that a PodDisruptionBudget holds.
#[test]
fn a_replacement_stays_until_the_node_that_it_replaces_is_gone() {
    let mut ledger = ledger_of(&[seed("a")]);
    let context = plan(&ledger, 1);
    let new = claim_of(&admit(&mut ledger, &launch("one", &["small"], &[]), &context));
    let replaced = removal("a", DisruptionReason::Drifted);
    claim_of(&ledger.admit_removal(&replaced, &["one".into()], &context, &none("a")));
    let command = serde_json::to_string(ledger.removal("a").unwrap()).unwrap();
    ledger.initialized(&new, NOW);
    ledger.deleting("a");
    // It does not count in the budget.
    ledger.terminating("a");
    let context = plan(&ledger, 2);
    let destination = Rejection::NodeIsDestination("new".into());
    assert_eq!(rejection(ledger.admit_removal(&empty("new"), &[], &context, &none(&new))), destination);
    let expired = removal("new", DisruptionReason::Expired);
    claim_of(&ledger.clone().admit_removal(&expired, &[], &context, &none(&new)));

    let with = |claim: ClaimSeed, key: &str, value: &str| ClaimSeed {
        annotations: [(key.to_owned(), value.to_owned())].into(),
        ..claim
    };
    let leaving = ClaimSeed { deleting: true, terminating: true, ..seed("a") };
    let seeds = [with(leaving, annotation::REMOVAL, &command), with(seed("new"), annotation::ACTION_ID, "one")];
    let mut next_leader = ledger_of(&seeds);
    let restored = plan(&next_leader, 1);
    let answer = next_leader.admit_removal(&empty("new"), &[], &restored, &none("new"));
    assert_eq!(rejection(answer), destination);

    // Its drain ended long ago, and its instance is protected from termination.
    let drained = RemovalFacts { drained: ["a".to_owned()].into(), ..none(&new) };
    claim_of(&ledger.clone().admit_removal(&empty("new"), &[], &context, &drained));

    ledger.gone("a");
    let context = plan(&ledger, 3);
    claim_of(&ledger.admit_removal(&empty("new"), &[], &context, &none(&new)));
}

/// EC2 may refuse to terminate its instance for ever.
#[test]
fn a_destination_stays_until_the_drain_of_the_removed_node_ended_long_ago() {
    let mut ledger = ledger_of(&[seed("a"), seed("b"), seed("c")]);
    let context = plan(&ledger, 1);
    let reason = DisruptionReason::Underutilized;
    claim_of(&ledger.admit_removal(&removal("a", reason), &[], &context, &facts("a", "c", 600)));
    ledger.deleting("a");
    ledger.evictions_left("a", &BTreeMap::new());
    ledger.terminating("a");
    let context = plan(&ledger, 2);
    let remove = |node: &str, reason, facts: &RemovalFacts| {
        let mut ledger = ledger.clone();
        let admission = ledger.admit_removal(&removal(node, reason), &[], &context, facts);
        (ledger, admission)
    };
    let to_c = || facts("b", "c", 600);
    let drained = |facts: RemovalFacts| RemovalFacts { drained: ["a".to_owned()].into(), ..facts };
    let full = Rejection::InsufficientResources { node: "c".into(), resource: "cpu".to_owned() };
    assert_eq!(rejection(remove("c", reason, &none("c")).1), Rejection::NodeIsDestination("c".into()));
    assert_eq!(rejection(remove("b", reason, &to_c()).1), full);
    claim_of(&remove("c", DisruptionReason::Expired, &none("c")).1);
    claim_of(&remove("c", reason, &drained(none("c"))).1);
    let (ledger, admission) = remove("b", reason, &drained(to_c()));
    claim_of(&admission);
    assert_eq!(ledger.check_removal_again(&drained(to_c())), Ok(()));
    assert_eq!(ledger.check_removal_again(&to_c()), Err(full));
}

#[test]
fn a_removal_is_done_when_its_claim_is_gone() {
    let mut ledger = ledger_of(&[seed("a")]);
    let context = plan(&ledger, 1);
    let action = "remove-a".into();
    assert!(!ledger.is_under_way(&action));
    claim_of(&ledger.admit_removal(&empty("a"), &[], &context, &none("a")));
    assert!(ledger.is_under_way(&action));
    ledger.gone("a");
    assert_eq!((ledger.outcome(&action), ledger.removals().count()), (Some(&Outcome::Done), 0));
    assert!(!ledger.is_under_way(&action));
}

/// It is written to the claim, and a new leader knows nothing else of the removal.
#[test]
fn the_command_of_a_removal_has_all_that_was_admitted() {
    let mut ledger = ledger_of(&[seed("a"), seed("c")]);
    let context = plan(&ledger, 1);
    claim_of(&admit(&mut ledger, &launch("one", &["small"], &["p"]), &context));
    let asked = RemovalFacts { now: NOW, ..facts("a", "c", 100) };
    claim_of(&ledger.admit_removal(&removal_with_pod(), &["one".into()], &context, &asked));
    let expected = Removal {
        action: "remove-a".into(),
        node: "a".into(),
        reason: DisruptionReason::Underutilized,
        replacements: vec!["one".into()],
        evictions: [("ns/pdb".to_owned(), 2)].into(),
        rooms: [(NodeName::from("c"), Resources::from([("cpu", 100)]))].into(),
        pods: [PodUid::from("p")].into(),
        admitted: NOW,
    };
    assert_eq!(ledger.removal("a"), Some(&expected));
}

/// Rule 9: the second check covers only the removal itself, and an expired node goes whatever its pods are.
#[test]
fn the_second_check_does_not_count_the_removal_itself_and_concerns_no_forced_one() {
    let ledger = ledger_of(&[seed("a"), seed("b"), seed("c")]);
    let context = plan(&ledger, 1);
    assert_eq!(ledger.check_removal_again(&none("a")), Err(Rejection::NotAdmitted("a".to_owned())));
    let own = || facts("a", "c", 600);
    let allowing = |count: u32| RemovalFacts { disruptions_allowed: [("ns/pdb".to_owned(), count)].into(), ..own() };
    let full = Rejection::InsufficientResources { node: "c".into(), resource: "cpu".to_owned() };
    for (reason, is_forced) in [(DisruptionReason::Underutilized, false), (DisruptionReason::Expired, true)] {
        let mut ledger = ledger.clone();
        claim_of(&ledger.admit_removal(&removal("a", reason), &[], &context, &own()));
        let second = removal("b", DisruptionReason::Underutilized);
        let other = RemovalFacts { disruptions_allowed: [("ns/pdb".to_owned(), 9)].into(), ..facts("b", "c", 400) };
        claim_of(&ledger.admit_removal(&second, &[], &context, &other));
        let refused = |cause: Rejection| if is_forced { Ok(()) } else { Err(cause) };
        assert_eq!(ledger.check_removal_again(&allowing(3)), Ok(()), "two evictions of the other removal");
        let no_room = Rejection::NoDisruptionRoom("ns/pdb".to_owned());
        assert_eq!(ledger.check_removal_again(&allowing(2)), refused(no_room), "{reason:?}");
        let moves = [(NodeName::from("c"), Resources::from([("cpu", 601)]))].into();
        let larger = RemovalFacts { moves, ..allowing(3) };
        assert_eq!(ledger.check_removal_again(&larger), refused(full.clone()), "{reason:?}");
    }
}

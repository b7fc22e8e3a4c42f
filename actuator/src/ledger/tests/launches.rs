//! Pauses and caps of launches, probes, and what a failed launch still holds.

use super::*;
use crate::ledger::failures::{NOT_INITIALIZED, NOT_REGISTERED};

/// A ledger whose pool has no limits.
fn without_limits(seeds: &[ClaimSeed]) -> Ledger {
    let mut ledger = ledger_of(seeds);
    ledger.set_pool(&"pool".into(), PoolFacts::default());
    ledger
}

/// Asks for a launch on a plan that knows all of the ledger.
fn launch_at(ledger: &mut Ledger, now: Timestamp, id: &str, pods: &[&str]) -> Admission {
    let context = plan(ledger, 1);
    ledger.admit_launch(&launch(id, &["small"], pods), &context, &catalog(), now)
}

fn small() -> Resources {
    Resources::from([("cpu", 1000), ("nodes", 1)])
}

fn pause(cause: &str, millis: u64) -> Rejection {
    Rejection::BackOff { cause: cause.to_owned(), remaining: Millis(millis) }
}

#[test]
fn a_pause_ends_when_an_instance_is_first_seen() {
    let mut ledger = without_limits(&[]);
    let one = claim_of(&launch_at(&mut ledger, NOW, "one", &[]));
    ledger.failed(&one, "Denied", NOW);
    let now = NOW.plus(Millis(1000));
    let [two, three, four] = ["two", "three", "four"].map(|id| claim_of(&launch_at(&mut ledger, now, id, &[])));
    ledger.failed(&three, "Denied", now);
    assert_eq!(rejection(launch_at(&mut ledger, now, "five", &[])), pause("Denied", 2000));
    ledger.launched(&two, small());
    claim_of(&launch_at(&mut ledger, now, "five", &[]));
    ledger.failed(&four, "Denied", now);
    ledger.launched(&two, small());
    assert_eq!(rejection(launch_at(&mut ledger, now, "six", &[])), pause("Denied", 1000), "its launch is no news");
}

#[test]
fn the_pause_after_a_node_that_did_not_register_ends_when_a_node_is_initialized() {
    let mut ledger = without_limits(&[]);
    let [one, two] = ["one", "two"].map(|id| claim_of(&launch_at(&mut ledger, NOW, id, &[])));
    ledger.failed(&one, NOT_REGISTERED, NOW);
    ledger.launched(&two, small());
    assert_eq!(rejection(launch_at(&mut ledger, NOW, "three", &[])), pause(NOT_REGISTERED, 1000));
    ledger.initialized(&two, NOW);
    claim_of(&launch_at(&mut ledger, NOW, "three", &[]));
}

#[test]
fn the_pods_of_a_node_that_is_not_initialized_in_time_may_have_another() {
    let mut ledger = without_limits(&[]);
    let one = claim_of(&launch_at(&mut ledger, NOW, "one", &["p"]));
    ledger.launched(&one, small());
    let before = ledger.position();
    ledger.not_initialized(&one, NOW);
    assert!(ledger.position() > before, "older plans do not know that its pods need another node");
    assert_eq!(ledger.reserved_by(&"p".into(), NOW), None);
    assert_eq!(rejection(launch_at(&mut ledger, NOW, "two", &["p"])), pause(NOT_INITIALIZED, 1000));
    let later = NOW.plus(Millis(1000));
    let two = claim_of(&launch_at(&mut ledger, later, "two", &["p"]));
    ledger.not_initialized(&one, later);
    assert_eq!(ledger.reserved_by(&"p".into(), later), Some(two.as_str()), "it is no news");
    assert_eq!(ledger.used(&"pool".into()).get("cpu"), 2000, "the first node is still there");

    ledger.initialized(&one, later);
    assert_eq!(ledger.outcome(&"one".into()), Some(&Outcome::Done));
    assert_eq!(ledger.reserved_by(&"p".into(), later), Some(two.as_str()));
    ledger.not_initialized(&one, later);
    claim_of(&launch_at(&mut ledger, later, "three", &[]));
    ledger.initialized(&two, later);
    ledger.not_initialized(&two, later);
    claim_of(&launch_at(&mut ledger, later, "four", &[]));
}

/// Its pods can be planned again at once, and it says nothing about other nodes of the pool.
#[test]
fn the_node_of_a_claim_that_is_being_deleted_is_not_waited_for() {
    let mut ledger = without_limits(&[]);
    let one = claim_of(&launch_at(&mut ledger, NOW, "one", &["p"]));
    let old = plan(&ledger, 2);
    ledger.deleting(&one);
    ledger.not_initialized(&one, NOW);
    assert_eq!(ledger.reserved_by(&"p".into(), NOW), None);
    let changed = Rejection::Changed(Subject::Pod("p".into()));
    assert_eq!(rejection(admit(&mut ledger, &launch("two", &["small"], &["p"]), &old)), changed);
    let two = claim_of(&launch_at(&mut ledger, NOW, "two", &["p"]));
    assert_eq!(ledger.used(&"pool".into()).get("cpu"), 2000, "the first node is still there");
    let before = ledger.position();
    ledger.deleting(&one);
    assert_eq!(ledger.position(), before, "it is no news");
    ledger.gone(&one);
    assert_eq!(ledger.reserved_by(&"p".into(), NOW), Some(two.as_str()));
}

#[test]
fn a_pool_gets_at_most_600_claims_per_minute() {
    let mut ledger = without_limits(&[]);
    for number in 0..600 {
        claim_of(&launch_at(&mut ledger, NOW, &number.to_string(), &[]));
    }
    for (after, wait) in [(0, 60_000), (59_999, 1)] {
        let answer = launch_at(&mut ledger, NOW.plus(Millis(after)), "more", &[]);
        assert_eq!(rejection(answer), Rejection::TooManyClaims(Millis(wait)));
    }
    claim_of(&launch_at(&mut ledger, NOW.plus(Millis(60_000)), "more", &[]));
}

#[test]
fn a_probe_waits_only_for_a_living_one_of_its_own_pool() {
    let mut ledger = without_limits(&[]);
    ledger.set_pool(&"other".into(), PoolFacts::default());
    let probe = |ledger: &mut Ledger, pool: &str, id: &str| {
        let action = Launch { node_pool: pool.into(), ..launch(id, &["small"], &[]) };
        let context = plan(ledger, 1);
        ledger.admit_probe(&pool.into(), |ledger| admit(ledger, &action, &context))
    };
    let first = claim_of(&probe(&mut ledger, "pool", "one"));
    claim_of(&probe(&mut ledger, "other", "two"));
    assert!(matches!(rejection(probe(&mut ledger, "pool", "three")), Rejection::BackOff { .. }));
    // It has failed, but it is not gone.
    ledger.deleting(&first);
    claim_of(&probe(&mut ledger, "pool", "three"));
}

#[test]
fn a_node_that_is_being_removed_is_no_replica() {
    let mut ledger = without_limits(&[seed("a")]);
    ledger.set_pool(&"pool".into(), PoolFacts { replicas: Some(1), ..PoolFacts::default() });
    let full = Rejection::LimitExceeded { resource: "replicas".to_owned(), limit: 1, used: 1, asked: 1 };
    assert_eq!(rejection(launch_at(&mut ledger, NOW, "one", &[])), full);
    let (context, facts) = (plan(&ledger, 1), RemovalFacts { claim: "a".to_owned(), ..RemovalFacts::default() });
    claim_of(&ledger.admit_removal(&removal("a", DisruptionReason::Drifted), &[], &context, &facts));
    claim_of(&launch_at(&mut ledger, NOW, "one", &[]));
}

#[test]
fn a_failed_launch_frees_its_pods_at_once_and_its_usage_once_it_is_gone() {
    let mut ledger = without_limits(&[]);
    let first = claim_of(&launch_at(&mut ledger, NOW, "one", &["p"]));
    ledger.failed(&first, "Denied", NOW);
    assert_eq!(ledger.reserved_by(&"p".into(), NOW), None);
    assert_eq!(ledger.used(&"pool".into()).get("cpu"), 1000);
    let second = claim_of(&launch_at(&mut ledger, NOW.plus(Millis(1000)), "two", &["p"]));
    ledger.gone(&first);
    assert_eq!(ledger.reserved_by(&"p".into(), NOW), Some(second.as_str()));
    assert_eq!(ledger.used(&"pool".into()).get("cpu"), 1000, "of the second one");
    assert_eq!(ledger.outcome(&"one".into()), Some(&Outcome::Failed));
}

/// EC2 showed the instance late, and the deletion of the claim got lost.
#[test]
fn a_claim_whose_instance_is_found_after_its_launch_was_given_up_does_not_count_as_terminating() {
    let mut ledger = without_limits(&[]);
    let claim = claim_of(&launch_at(&mut ledger, NOW, "one", &["p"]));
    ledger.failed(&claim, "NothingFound", NOW);
    ledger.launched(&claim, small());
    let is_deleting = |ledger: &Ledger| ledger.claim(&claim).map(|view| view.deleting);
    assert_eq!(is_deleting(&ledger), Some(true));
    ledger.found(&claim);
    assert_eq!(is_deleting(&ledger), Some(false));
    assert_eq!(ledger.reserved_by(&"p".into(), NOW), None, "its pod may have another node");
    ledger.initialized(&claim, NOW);
    let (context, facts) = (plan(&ledger, 1), RemovalFacts { claim: claim.clone(), ..RemovalFacts::default() });
    claim_of(&ledger.admit_removal(&removal("n", DisruptionReason::Empty), &[], &context, &facts));
}

/// Otherwise its node would go although nothing replaces it.
#[test]
fn a_removal_that_depends_on_a_failed_launch_is_rejected() {
    let mut ledger = without_limits(&[seed("a")]);
    let claim = claim_of(&launch_at(&mut ledger, NOW, "one", &[]));
    ledger.failed(&claim, "Denied", NOW);
    let (context, facts) = (plan(&ledger, 1), RemovalFacts { claim: "a".to_owned(), ..RemovalFacts::default() });
    let drifted = removal("a", DisruptionReason::Drifted);
    let refused = rejection(ledger.admit_removal(&drifted, &["one".into()], &context, &facts));
    assert_eq!(refused, Rejection::DependencyRejected("one".into()));
}

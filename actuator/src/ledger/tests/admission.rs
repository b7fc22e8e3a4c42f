//! Admission at the edges of its rules.

use super::*;
use plimsoll_model::catalog::CapacityReservation;

#[test]
fn a_change_of_limits_outdates_plans_and_a_change_of_budgets_does_not() {
    let mut ledger = ledger_of(&[]);
    let old = plan(&ledger, 1);
    ledger.set_pool(&"pool".into(), PoolFacts { allowed: BTreeMap::new(), ..pool(8000) });
    claim_of(&admit(&mut ledger, &launch("one", &["small"], &[]), &old));
    ledger.set_pool(&"pool".into(), pool(7000));
    let changed = Rejection::Changed(Subject::Pool("pool".into()));
    assert_eq!(rejection(admit(&mut ledger, &launch("two", &["small"], &[]), &old)), changed);
    let new = plan(&ledger, 2);
    claim_of(&admit(&mut ledger, &launch("two", &["small"], &[]), &new));
}

#[test]
fn nothing_is_launched_for_a_removed_pool() {
    let mut ledger = ledger_of(&[]);
    ledger.remove_pool(&"pool".into());
    let context = plan(&ledger, 1);
    let unknown = Rejection::UnknownPool("pool".into());
    assert_eq!(rejection(admit(&mut ledger, &launch("one", &["small"], &[]), &context)), unknown);
}

#[test]
fn a_withdrawn_launch_frees_its_pods_for_its_own_plan_only() {
    let mut ledger = ledger_of(&[]);
    let (first, second) = (plan(&ledger, 1), plan(&ledger, 2));
    let claim = claim_of(&admit(&mut ledger, &launch("one", &["large"], &["p"]), &first));
    let between = plan(&ledger, 3);
    ledger.withdraw(&claim, &first);
    assert_eq!(ledger.used(&"pool".into()), Resources::new());
    assert_eq!(ledger.outcome(&"one".into()), Some(&Outcome::Failed));
    // The other plans, and a plan of another driver with the same number, know the pod as it was before.
    let changed = Rejection::Changed(Subject::Pod("p".into()));
    for other in [&second, &between] {
        assert_eq!(rejection(admit(&mut ledger, &launch("two", &["small"], &["p"]), other)), changed);
    }
    let mut other = ledger.clone();
    other.observe_driver(driver(2));
    let same_number = PlanContext { driver: driver(2), ..first.clone() };
    assert_eq!(rejection(admit(&mut other, &launch("two", &["small"], &["p"]), &same_number)), changed);
    claim_of(&admit(&mut ledger, &launch("two", &["small"], &["p"]), &first));
}

#[test]
fn claims_of_other_pools_and_those_being_deleted_are_no_replicas() {
    let mut ledger = ledger_of(&[]);
    ledger.set_pool(&"pool".into(), PoolFacts { replicas: Some(1), ..PoolFacts::default() });
    ledger.set_pool(&"other".into(), pool(8000));
    let context = plan(&ledger, 1);
    let of_other = Launch { node_pool: "other".into(), ..launch("a", &["small"], &[]) };
    claim_of(&admit(&mut ledger, &of_other, &context));
    let first = claim_of(&admit(&mut ledger, &launch("b", &["small"], &[]), &context));
    ledger.deleting(&first);
    claim_of(&admit(&mut ledger, &launch("c", &["small"], &[]), &context));
}

#[test]
fn a_claim_that_is_gone_before_its_node_is_initialized_has_failed() {
    let mut ledger = ledger_of(&[]);
    let context = plan(&ledger, 1);
    let [early, late] =
        ["early", "late"].map(|id| claim_of(&admit(&mut ledger, &launch(id, &["small"], &[]), &context)));
    ledger.initialized(&late, NOW);
    ledger.gone(&early);
    ledger.gone(&late);
    assert_eq!(ledger.outcome(&"early".into()), Some(&Outcome::Failed));
    assert_eq!(ledger.outcome(&"late".into()), Some(&Outcome::Done));
}

#[test]
fn another_holder_with_the_same_transitions_is_stale() {
    let mut ledger = ledger_of(&[]);
    let context = PlanContext { driver: Driver { holder: "other".to_owned(), transitions: 1 }, ..plan(&ledger, 1) };
    let action = launch("one", &["small"], &[]);
    assert_eq!(rejection(admit(&mut ledger, &action, &context)), Rejection::StaleDriver(1));
}

#[test]
fn a_resource_beyond_its_limit_blocks_only_launches_that_need_it() {
    let gpus = Resources::from([("cpu", 1000), ("nvidia.com/gpu", 2), ("nodes", 1)]);
    let mut ledger = ledger_of(&[ClaimSeed { capacity: Some(gpus), ..seed("a") }]);
    let limits = Resources::from([("cpu", 8000), ("nvidia.com/gpu", 1)]);
    ledger.set_pool(&"pool".into(), PoolFacts { limits, ..pool(8000) });
    let context = plan(&ledger, 1);
    claim_of(&admit(&mut ledger, &launch("one", &["small"], &[]), &context));
    // Beside a claim that has no such resource.
    claim_of(&admit(&mut ledger, &launch("two", &["small"], &[]), &context));
}

#[test]
fn claims_of_other_pools_do_not_count_towards_a_limit() {
    let mut ledger = ledger_of(&[seed("a"), ClaimSeed { pool: "other".into(), ..seed("x") }]);
    ledger.set_pool(&"pool".into(), pool(2000));
    assert_eq!(ledger.used(&"pool".into()), Resources::from([("cpu", 1000), ("nodes", 1)]));
    let context = plan(&ledger, 1);
    claim_of(&admit(&mut ledger, &launch("one", &["small"], &[]), &context));
}

/// One launch serves a pending pod and the pod of a node that the same plan removes.
#[test]
fn an_admitted_launch_outdates_other_plans_for_its_pods_and_not_its_own() {
    let mut ledger = ledger_of(&[seed("a")]);
    let (own, other) = (plan(&ledger, 1), plan(&ledger, 2));
    claim_of(&admit(&mut ledger, &launch("one", &["small"], &["p"]), &own));
    let pods = vec![PodRef { name: "ns/p".to_owned(), uid: "p".into() }];
    let moved = Termination { pods, ..removal("a", DisruptionReason::Underutilized) };
    let facts = RemovalFacts { claim: "a".to_owned(), ..RemovalFacts::default() };
    let refused = rejection(ledger.admit_removal(&moved, &["one".into()], &other, &facts));
    assert_eq!(refused, Rejection::Changed(Subject::Pod("p".into())));
    // The Lease is read again meanwhile, and its holder is the same.
    ledger.observe_driver(driver(1));
    claim_of(&ledger.admit_removal(&moved, &["one".into()], &own, &facts));
}

#[test]
fn a_launch_that_is_in_service_is_done_and_may_be_depended_on() {
    let mut ledger = ledger_of(&[seed("a")]);
    let context = plan(&ledger, 1);
    let first = launch("one", &["small"], &["p"]);
    let claim = claim_of(&admit(&mut ledger, &first, &context));
    ledger.initialized(&claim, NOW);
    assert_eq!(admit(&mut ledger, &first, &context), Admission::Repeated(Outcome::Done));
    let (drifted, facts) = (removal("a", DisruptionReason::Drifted), facts("a", "b", 0));
    claim_of(&ledger.admit_removal(&drifted, &["one".into()], &context, &facts));
}

/// The watch cache says so at each later change of the claim.
#[test]
fn pods_are_not_reserved_longer_because_their_node_is_seen_as_initialized_again() {
    let mut ledger = ledger_of(&[]);
    let context = plan(&ledger, 1);
    let claim = claim_of(&admit(&mut ledger, &launch("one", &["small"], &["p"]), &context));
    ledger.initialized(&claim, NOW);
    ledger.initialized(&claim, NOW.plus(Millis(20_000)));
    assert_eq!(ledger.reserved_by(&"p".into(), NOW.plus(Millis(30_000))), None);
}

#[test]
fn what_is_gone_or_withdrawn_reserves_no_pod_and_outdates_plans() {
    let mut ledger = ledger_of(&[seed("a")]);
    let first = plan(&ledger, 1);
    let [gone, withdrawn] =
        ["p", "q"].map(|pod| claim_of(&admit(&mut ledger, &launch(pod, &["small"], &[pod]), &first)));
    ledger.node_of(&gone, "n".into());
    assert_eq!(ledger.reserved_pods().cloned().collect::<Vec<_>>(), ["p", "q"].map(PodUid::from));
    let old = plan(&ledger, 2);
    ledger.gone(&gone);
    ledger.withdraw(&withdrawn, &first);
    assert_eq!((ledger.reserved_pods().count(), ledger.reservations().count()), (0, 0));
    let for_its_pod = rejection(admit(&mut ledger, &launch("two", &["small"], &["p"]), &old));
    assert_eq!(for_its_pod, Rejection::Changed(Subject::Pod("p".into())));
    let idle = removal("a", DisruptionReason::Underutilized);
    let onto_its_node = rejection(ledger.admit_removal(&idle, &[], &old, &facts("a", "n", 100)));
    assert_eq!(onto_its_node, Rejection::Changed(Subject::Node("n".into())));
}

#[test]
fn launches_of_a_plan_never_exceed_a_reservation() {
    let reservation =
        CapacityReservation { id: "cr-1".to_owned(), capacity_block: false, interruptible: false, count: None };
    let capacity_type = CapacityType::Reserved;
    let reserved = Offering { capacity_type, reservation: Some(reservation), ..offering("a", 1) };
    let kind = instance_type("small", 1000, vec![reserved]);
    let catalog = Catalog { region: "r".to_owned(), instance_types: vec![kind] };
    let mut ledger = ledger_of(&[]);
    ledger.set_reservation("cr-1", 1, NOW);
    let context = plan(&ledger, 1);
    let mut ask = |id: &str| {
        let mut asked = launch(id, &["small"], &[]);
        let reservation = Some("cr-1".to_owned());
        let choice = OfferingChoice { capacity_type, reservation, ..asked.offerings[0].clone() };
        asked.offerings = Arc::new(vec![choice]);
        ledger.admit_launch(&asked, &context, &catalog, NOW)
    };
    claim_of(&ask("one"));
    assert_eq!(rejection(ask("two")), Rejection::ReservationFull("cr-1".to_owned()));
}

#[test]
fn a_launch_without_offerings_is_rejected() {
    let mut ledger = ledger_of(&[]);
    let context = plan(&ledger, 1);
    let refused = rejection(admit(&mut ledger, &launch("one", &[], &[]), &context));
    assert_eq!(refused, Rejection::UnknownInstanceType(String::new()));
}

/// A user has lowered `replicas`.
#[test]
fn a_static_pool_with_too_many_nodes_gets_no_other() {
    let mut ledger = ledger_of(&[seed("a"), seed("b")]);
    ledger.set_pool(&"pool".into(), PoolFacts { replicas: Some(1), ..PoolFacts::default() });
    let context = plan(&ledger, 1);
    let over = Rejection::LimitExceeded { resource: "replicas".to_owned(), limit: 1, used: 2, asked: 1 };
    assert_eq!(rejection(admit(&mut ledger, &launch("one", &["small"], &[]), &context)), over);
}

/// What changed since is not known.
#[test]
fn a_plan_is_rejected_if_too_much_has_changed_since_its_snapshot() {
    let mut ledger = ledger_of(&[]);
    let old = plan(&ledger, 1);
    for number in 0..200_000 {
        ledger.changed(Subject::Node(number.to_string().into()));
    }
    claim_of(&admit(&mut ledger, &launch("one", &["small"], &[]), &old));
    ledger.changed(Subject::Node("one-more".into()));
    let (known, here) = (old.position, ledger.position());
    let refused = rejection(admit(&mut ledger, &launch("two", &["small"], &[]), &old));
    assert_eq!(refused, Rejection::StalePosition { known, here });
    let new = plan(&ledger, 2);
    claim_of(&admit(&mut ledger, &launch("two", &["small"], &[]), &new));
}

/// No plan can rest on other facts of it.
#[test]
fn a_pool_that_is_seen_for_the_first_time_outdates_no_plan() {
    let mut ledger = ledger_of(&[]);
    let context = plan(&ledger, 1);
    ledger.set_pool(&"other".into(), pool(8000));
    let of_other = Launch { node_pool: "other".into(), ..launch("one", &["small"], &[]) };
    claim_of(&admit(&mut ledger, &of_other, &context));
}

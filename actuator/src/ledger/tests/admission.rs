//! Admission at the edges of its rules.

use super::*;

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
    assert_eq!(ledger.outcome(&"one".into()), Some(&Outcome::Failed("Withdrawn".to_owned())));
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
    assert_eq!(ledger.outcome(&"early".into()), Some(&Outcome::Failed("Deleted".to_owned())));
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
}

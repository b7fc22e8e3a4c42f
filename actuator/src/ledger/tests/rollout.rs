//! Budgets count nodes in service that are being removed, and the limit of a rollout those that are replaced for drift.

use super::*;

fn none(claim: &str) -> RemovalFacts {
    RemovalFacts { claim: claim.to_owned(), ..RemovalFacts::default() }
}

/// A ledger of the claims whose pool has a limit of one replacement for drift.
fn with_canary(seeds: &[ClaimSeed]) -> Ledger {
    let mut ledger = ledger_of(seeds);
    let allowed = [(DisruptionReason::Drifted, 9)].into();
    ledger.set_pool(&"pool".into(), PoolFacts { allowed, rollout_limit: Some(1), ..pool(8000) });
    ledger
}

fn drifted(name: &str) -> ClaimSeed {
    ClaimSeed { drifted: true, ..seed(name) }
}

/// Asks for the replacement of node c, which has drifted.
fn replace_c(ledger: &Ledger) -> Admission {
    let context = plan(ledger, 1);
    ledger.clone().admit_removal(&removal("c", DisruptionReason::Drifted), &[], &context, &none("c"))
}

const FULL: Rejection = Rejection::RolloutLimit { limit: 1, replacing: 1 };

#[test]
fn the_limit_of_a_rollout_counts_only_replacements_for_drift() {
    let seeds = [drifted("a"), ClaimSeed { drifted: false, ..seed("b") }, drifted("c")];
    let ledger = with_canary(&seeds);
    let with_removal = |reason| {
        let (mut ledger, context) = (ledger.clone(), plan(&ledger, 1));
        claim_of(&ledger.admit_removal(&removal("a", reason), &[], &context, &none("a")));
        ledger
    };
    let expired = with_removal(DisruptionReason::Expired);
    claim_of(&replace_c(&expired));
    let mut drains = expired;
    drains.deleting("a");
    drains.deleting("b");
    claim_of(&replace_c(&drains));

    let mut replacing = with_removal(DisruptionReason::Drifted);
    assert_eq!(rejection(replace_c(&replacing)), FULL);
    replacing.deleting("a");
    assert_eq!(rejection(replace_c(&replacing)), FULL, "while it drains");
    let context = plan(&replacing, 2);
    let empty = removal("b", DisruptionReason::Empty);
    claim_of(&replacing.clone().admit_removal(&empty, &[], &context, &none("b")));
    replacing.terminating("a");
    claim_of(&replace_c(&replacing));
}

#[test]
fn budgets_count_every_removal_also_during_a_rollout() {
    let mut ledger = with_canary(&[seed("a"), drifted("c")]);
    let allowed = [(DisruptionReason::Drifted, 1)].into();
    ledger.set_pool(&"pool".into(), PoolFacts { allowed, rollout_limit: Some(1), ..pool(8000) });
    ledger.deleting("a");
    assert_eq!(rejection(replace_c(&ledger)), Rejection::BudgetExhausted { allowed: 1, removing: 1 });
}

#[test]
fn a_deletion_for_an_unknown_reason_counts_as_drift_if_the_node_has_drifted() {
    let mut ledger = with_canary(&[drifted("a"), drifted("c")]);
    ledger.deleting("a");
    assert_eq!(rejection(replace_c(&ledger)), FULL);
    ledger.drifted("a", false);
    claim_of(&replace_c(&ledger));
    ledger.drifted("a", true);
    let context = plan(&ledger, 1);
    let removal = removal("c", DisruptionReason::Drifted);
    let mut undone = with_canary(&[drifted("a"), drifted("c")]);
    claim_of(&undone.admit_removal(&removal, &[], &context, &none("c")));
    undone.deleting("c");
    undone.removal_undone("c");
    let again = Termination { action_id: "again".into(), ..super::removal("a", DisruptionReason::Drifted) };
    let context = plan(&undone, 2);
    let answer = undone.admit_removal(&again, &[], &context, &none("a"));
    assert_eq!(rejection(answer), FULL, "its command is lost, and the node goes");
}

#[test]
fn a_new_leader_knows_which_nodes_are_replaced_for_drift() {
    let mut before = with_canary(&[drifted("a"), drifted("c")]);
    let context = plan(&before, 1);
    claim_of(&before.admit_removal(&removal("a", DisruptionReason::Drifted), &[], &context, &none("a")));
    let command = serde_json::to_string(before.removal("a").unwrap()).unwrap();
    let replaced = |command: &str, deleting| {
        let annotations = [(annotation::REMOVAL.to_owned(), command.to_owned())].into();
        ClaimSeed { annotations, deleting, ..drifted("a") }
    };
    for deleting in [false, true] {
        assert_eq!(rejection(replace_c(&with_canary(&[replaced(&command, deleting), drifted("c")]))), FULL);
    }
    let expired = command.replace("Drifted", "Expired");
    claim_of(&replace_c(&with_canary(&[replaced(&expired, true), drifted("c")])));
    assert_eq!(rejection(replace_c(&with_canary(&[ClaimSeed { deleting: true, ..drifted("a") }, drifted("c")]))), FULL);

    let (mut ledger, problems) = Ledger::from_claims(7, &[replaced("nonsense", true), drifted("c")]);
    assert_eq!(problems.len(), 1);
    ledger.observe_driver(driver(1));
    ledger.set_pool(&"pool".into(), PoolFacts { rollout_limit: Some(1), ..pool(8000) });
    assert_eq!(rejection(replace_c(&ledger)), FULL, "its command is unreadable");
    let elsewhere = ClaimSeed { pool: "other".into(), ..replaced("nonsense", true) };
    let (mut ledger, problems) = Ledger::from_claims(7, &[elsewhere, drifted("c")]);
    assert_eq!(problems.len(), 1);
    ledger.observe_driver(driver(1));
    ledger.set_pool(&"pool".into(), PoolFacts { rollout_limit: Some(1), ..pool(8000) });
    claim_of(&replace_c(&ledger));
}

#[test]
fn a_claim_that_was_never_in_service_takes_no_room_in_a_budget() {
    let mut ledger = ledger_of(&[seed("a")]);
    let context = plan(&ledger, 1);
    let failed = claim_of(&admit(&mut ledger, &launch("one", &["small"], &[]), &context));
    ledger.failed(&failed, "Denied", NOW);
    let context = plan(&ledger, 2);
    claim_of(&ledger.admit_removal(&removal("a", DisruptionReason::Empty), &[], &context, &none("a")));
    let failed = ClaimSeed { initialized: false, deleting: true, ..drifted("a") };
    claim_of(&replace_c(&with_canary(&[failed, drifted("c")])));
}

//! Limits of the price of a pool's nodes: `plimsoll.dev/usd-per-hour`.

use super::*;
use crate::ledger::handle::LedgerHandle;
use std::sync::Barrier;

const USD: &str = USD_PER_HOUR_RESOURCE;
/// Prices of the catalog's offerings.
const SMALL: i64 = 10_000;
const LARGE: i64 = 40_000;
/// Plans that all schedulers make at once.
const PLANS: usize = 100;
const SCHEDULERS: usize = 4;

fn at_most(micro_usd: i64) -> PoolFacts {
    PoolFacts { limits: Resources::from([(USD, micro_usd)]), ..PoolFacts::default() }
}

fn ledger_with(limit: i64, seeds: &[ClaimSeed]) -> Ledger {
    let mut ledger = ledger_of(seeds);
    ledger.set_pool(&"pool".into(), at_most(limit));
    ledger
}

fn used(ledger: &Ledger) -> i64 {
    ledger.used(&"pool".into()).get(USD)
}

/// A small node, bought at `price`.
fn bought(price: i64) -> Resources {
    Resources::from([("cpu", 1000), ("nodes", 1), (USD, price)])
}

#[test]
fn the_dearest_offering_counts_until_launch_and_the_price_paid_from_then_on() {
    let mut ledger = ledger_with(LARGE + SMALL, &[]);
    let context = plan(&ledger, 1);
    let claim = claim_of(&admit(&mut ledger, &launch("a", &["small", "large"], &[]), &context));
    assert_eq!(used(&ledger), LARGE);
    let over = Rejection::LimitExceeded { resource: USD.to_owned(), limit: LARGE + SMALL, used: LARGE, asked: LARGE };
    assert_eq!(
        over.to_string(),
        "NodePool limit reached: 0.04 of 0.05 plimsoll.dev/usd-per-hour in use or reserved, the launch may need 0.04"
    );
    assert_eq!(rejection(admit(&mut ledger, &launch("b", &["large"], &[]), &context)), over);
    // The price is written to the claim before the instance.
    ledger.priced(&claim, MicroUsdPerHour(SMALL));
    assert_eq!(used(&ledger), LARGE);
    ledger.launched(&claim, bought(SMALL - 1));
    assert_eq!(used(&ledger), SMALL - 1);
    claim_of(&admit(&mut ledger, &launch("b", &["large"], &[]), &context));
    assert_eq!(used(&ledger), LARGE + SMALL - 1);
    // The instance leaves its capacity reservation: another price counts from then on.
    ledger.priced(&claim, MicroUsdPerHour(LARGE));
    ledger.deleting(&claim);
    assert_eq!(used(&ledger), 2 * LARGE, "until it is gone");
    ledger.gone(&claim);
    assert_eq!(used(&ledger), LARGE);
}

#[test]
fn a_launch_without_a_known_price_counts_what_was_reserved() {
    let mut ledger = ledger_with(LARGE, &[]);
    let context = plan(&ledger, 1);
    let claim = claim_of(&admit(&mut ledger, &launch("a", &["small", "large"], &[]), &context));
    ledger.launched(&claim, Resources::from([("cpu", 1000), ("nodes", 1)]));
    assert_eq!(used(&ledger), LARGE);
}

#[test]
fn a_new_leader_counts_the_same() {
    let mut ledger = ledger_with(100_000, &[]);
    let context = plan(&ledger, 1);
    let (launched, waiting) = (launch("a", &["small", "large"], &[]), launch("b", &["large"], &[]));
    let names = [&launched, &waiting].map(|launch| claim_of(&admit(&mut ledger, launch, &context)));
    ledger.launched(&names[0], bought(SMALL + 1));
    let seed = |name: &String, reserved: &Resources, capacity: Option<Resources>| ClaimSeed {
        name: name.clone(),
        pool: "pool".into(),
        annotations: [(annotation::RESERVED.to_owned(), reserved_text(reserved))].into(),
        capacity,
        ..ClaimSeed::default()
    };
    let reserved = max_usage(&launched, &catalog()).unwrap();
    let seeds = [
        seed(&names[0], &reserved, Some(bought(SMALL + 1))),
        seed(&names[1], &max_usage(&waiting, &catalog()).unwrap(), None),
    ];
    let restarted = ledger_with(100_000, &seeds);
    assert_eq!((used(&restarted), used(&ledger)), (LARGE + SMALL + 1, LARGE + SMALL + 1));
    // A launched claim whose price was not written yet counts what it reserved.
    let unpriced = seed(&names[0], &reserved, Some(Resources::from([("cpu", 1000), ("nodes", 1)])));
    assert_eq!(used(&ledger_with(100_000, &[unpriced])), LARGE);
}

#[test]
fn a_claim_of_unknown_price_blocks_only_pools_that_limit_prices() {
    let mut ledger = ledger_with(100_000, &[seed("karpenters")]);
    let context = plan(&ledger, 1);
    let one = launch("one", &["small"], &[]);
    let unknown = Rejection::PriceUnknown("karpenters".to_owned());
    assert_eq!(rejection(admit(&mut ledger, &one, &context)), unknown);
    let replacement = ledger.admit_replacement(&"pool".into(), &"two".into(), bought(SMALL));
    assert_eq!(rejection(replacement), unknown);
    let elsewhere = ClaimSeed { pool: "other".into(), ..seed("karpenters") };
    let mut of_others = ledger_with(100_000, &[elsewhere]);
    claim_of(&admit(&mut of_others, &one, &context));
    let mut without = ledger.clone();
    without.set_pool(&"pool".into(), pool(8000));
    let context = plan(&without, 2);
    claim_of(&admit(&mut without, &one, &context));
    ledger.priced("karpenters", MicroUsdPerHour(SMALL));
    let context = plan(&ledger, 2);
    claim_of(&admit(&mut ledger, &one, &context));
    assert_eq!(used(&ledger), 2 * SMALL);
}

#[test]
fn an_offering_that_the_catalog_lacks_has_no_price() {
    let mut ledger = ledger_with(100_000, &[]);
    let context = plan(&ledger, 1);
    let mut elsewhere = launch("one", &["small"], &[]);
    let mut offering = elsewhere.offerings[0].clone();
    offering.zone = "b".to_owned();
    elsewhere.offerings = Arc::new(vec![offering]);
    assert!(matches!(rejection(admit(&mut ledger, &elsewhere, &context)), Rejection::UnknownOffering(_)));
}

#[test]
fn a_hundred_concurrent_plans_of_four_schedulers_never_exceed_the_limit() {
    // Room for 30 small nodes and half of another one.
    let limit = 30 * SMALL + SMALL / 2;
    let handle = LedgerHandle::new(ledger_with(limit, &[]));
    let start = Barrier::new(SCHEDULERS);
    let context = handle.read(|ledger| plan(ledger, 1));
    let admitted: usize = std::thread::scope(|scope| {
        let schedulers: Vec<_> = (0..SCHEDULERS)
            .map(|scheduler| {
                let (handle, start, context) = (&handle, &start, &context);
                scope.spawn(move || {
                    start.wait();
                    let mut admitted = 0;
                    for number in 0..PLANS / SCHEDULERS {
                        // Each plan asks for two nodes: one that may become large, and a small one.
                        for types in [&["small", "large"][..], &["small"][..]] {
                            let id = format!("{scheduler}-{number}-{}", types.len());
                            let asked = launch(&id, types, &[&id]);
                            let answer = handle.with(|ledger| admit(ledger, &asked, context));
                            let over = handle.read(used) > limit;
                            assert!(!over, "{id}: {answer:?}");
                            if let Admission::Admitted { claim, .. } = answer {
                                handle.with(|ledger| ledger.launched(&claim, bought(SMALL)));
                                admitted += 1;
                            }
                        }
                    }
                    admitted
                })
            })
            .collect();
        schedulers.into_iter().map(|scheduler| scheduler.join().unwrap()).sum()
    });
    assert_eq!((admitted, handle.read(used)), (30, 30 * SMALL), "no more, and as many as there is room for");
}

proptest! {
    /// For any sequence of launches, purchases, deletions and changes of leader, the limit holds.
    #[test]
    fn the_limit_holds(steps in prop::collection::vec((any::<bool>(), 0_u8..5, 1_i64..=SMALL), 1..60)) {
        let limit = 3 * LARGE;
        let mut ledger = ledger_with(limit, &[]);
        let mut seeds: Vec<ClaimSeed> = Vec::new();
        for (number, (large, event, paid)) in steps.into_iter().enumerate() {
            let types: &[&str] = if large { &["small", "large"] } else { &["small"] };
            let (context, wanted) = (plan(&ledger, 1), launch(&number.to_string(), types, &[]));
            if let Admission::Admitted { claim, .. } = admit(&mut ledger, &wanted, &context) {
                let reserved = reserved_text(&max_usage(&wanted, &catalog()).unwrap());
                let annotations = [(annotation::RESERVED.to_owned(), reserved)].into();
                seeds.push(ClaimSeed { name: claim, pool: "pool".into(), annotations, ..ClaimSeed::default() });
            }
            match (event, seeds.last_mut()) {
                (1, Some(last)) if last.capacity.is_none() => {
                    last.capacity = Some(bought(paid));
                    ledger.launched(&last.name, bought(paid));
                }
                (2, Some(last)) => {
                    ledger.gone(&last.name);
                    seeds.pop();
                }
                (3, _) => {
                    let before = used(&ledger);
                    ledger = ledger_with(limit, &seeds);
                    prop_assert_eq!(used(&ledger), before);
                }
                _ => {}
            }
            prop_assert!(used(&ledger) <= limit);
        }
    }
}

//! Tests of the maximum price of a better plan.

use super::add_nodes::is_worth;
use super::outcomes::{ANEW, RUNS};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::Plan;

#[test]
fn what_is_bought_must_be_worth_its_price() {
    let priced = |micro: i64| Plan { hourly: MicroUsdPerHour(micro), ..Plan::default() };
    let all = ANEW * RUNS;
    let (cheap, dear) = (priced(1_000_000), priced(1_200_000));
    // A fifth more is worth it if one in ten runs strands a pod: eight times a tenth is more than a fifth.
    assert!(is_worth((&dear, 0), (&cheap, all / 10)));
    assert!(!is_worth((&dear, 0), (&cheap, all / 100)));
    assert!(!is_worth((&dear, all / 10), (&cheap, all / 10)), "more expensive and not better");
    // Also applies if the known plan launches nothing.
    assert!(is_worth((&dear, 0), (&priced(0), all / 4)));
    assert!(!is_worth((&dear, 0), (&priced(0), all / 10)));
}

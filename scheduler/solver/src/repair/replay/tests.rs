//! What a better plan may cost.

use super::add_nodes::is_worth;
use super::outcomes::{ANEW, RUNS};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::Plan;

#[test]
fn what_is_bought_must_be_worth_its_price() {
    let priced = |micro: i64| Plan { hourly: MicroUsdPerHour(micro), ..Plan::default() };
    let all = ANEW * RUNS;
    let (cheap, dear) = (priced(1_000_000), priced(1_200_000));
    // A fifth more, where one in ten strands a pod: eight times a tenth is more than that.
    assert!(is_worth((&dear, 0), (&cheap, all / 10)));
    assert!(!is_worth((&dear, 0), (&cheap, all / 100)));
    assert!(!is_worth((&dear, all / 10), (&cheap, all / 10)), "dearer and no better");
    // Where nothing is to be bought so far, too.
    assert!(is_worth((&dear, 0), (&priced(0), all / 4)));
    assert!(!is_worth((&dear, 0), (&priced(0), all / 10)));
}

//! Tests of [`super`].

use super::{About, Effect, Faults, Matcher};
use crate::apiserver::request::Verb;

const CREATE: About<'static> = About { client: "a", verb: Verb::Create, resource: "pods", subresource: "", name: "" };

#[test]
fn a_counted_rule_is_used_up_by_what_it_matches() {
    let faults = Faults::new(0);
    faults.next(2, Matcher::of(Verb::Create, "pods"), Effect::Drop);
    let other = About { verb: Verb::Get, ..CREATE };
    assert_eq!(faults.effects(&other).len(), 0);
    let hits: Vec<_> = (0..3).map(|_| faults.effects(&CREATE).len()).collect();
    assert_eq!(hits, [1, 1, 0]);
}

#[test]
fn chance_is_fixed_by_the_seed() {
    let run = |seed| {
        let faults = Faults::new(seed);
        faults.sometimes(300, Matcher::default(), Effect::LoseAnswer);
        (0..50).map(|_| faults.effects(&CREATE).len()).collect::<Vec<_>>()
    };
    assert_eq!(run(1), run(1));
    assert_ne!(run(1), run(2));
    let hits: usize = run(1).iter().sum();
    assert!((5..30).contains(&hits), "{hits} of 50 at 300 per mille");
}

#[test]
fn cutting_watches_spares_those_opened_later_and_other_clients() {
    let faults = Faults::new(0);
    let first = faults.open_watch();
    faults.cut_watches(["a"]);
    let second = faults.open_watch();
    assert!(faults.is_cut("a", first));
    assert!(!faults.is_cut("a", second));
    assert!(!faults.is_cut("b", first));
}

#[test]
fn a_rule_for_one_request_counts_those_before_it() {
    let faults = Faults::new(0);
    faults.nth(3, Matcher::of(Verb::Create, "pods"), Effect::Drop);
    let other = About { verb: Verb::Get, ..CREATE };
    let hits: Vec<_> =
        [CREATE, other, CREATE, CREATE, CREATE].iter().map(|about| faults.effects(about).len()).collect();
    assert_eq!(hits, [0, 0, 0, 1, 0]);
}

//! What kube-scheduler asks about where other pods are, and what it likes.

use super::further::is_worth;
use super::rules::{Guests, Rules};
use super::score::normalized;
use super::shown::{ANEW, PERFORMANCES};
use plimsoll_model::identity::{NodeName, ShapeId};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::plan::Plan;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{
    LabelSelector, Node, NodeState, PodAffinityTerm, PodShape, Snapshot, SnapshotIndex, TopologySpread,
};
use plimsoll_model::time::Timestamp;
use plimsoll_model::turns::Kind;

const WEB: usize = 0;
const DB: usize = 1;

/// A node in each of these zones.
fn rules(zones: &[&str], mut web: PodShape, mut db: PodShape) -> Rules {
    for (shape, name) in [(&mut web, "web"), (&mut db, "db")] {
        shape.id = ShapeId::from(name);
        shape.labels.insert("app".into(), name.into());
    }
    let node = |(number, zone): (usize, &&str)| Node {
        name: NodeName(format!("n{number}")),
        node_claim: None,
        node_pool: None,
        state: NodeState::Initialized,
        labels: [(label::ZONE.to_owned(), (*zone).to_owned())].into(),
        taints: Vec::new(),
        allocatable: Resources::new(),
        limit_usage: Resources::new(),
        ready: true,
        cordoned: false,
        deleting: false,
        do_not_disrupt: false,
        created: Timestamp(0),
        expires: None,
        idle_since: None,
        drifted: None,
        termination_grace_period: None,
    };
    let nodes = zones.iter().enumerate().map(node).collect();
    let snapshot = Snapshot { shapes: vec![web, db], nodes, ..Snapshot::default() };
    Rules::new(&snapshot, &SnapshotIndex::new(&snapshot))
}

fn selector(app: &str) -> Option<LabelSelector> {
    Some(LabelSelector { match_labels: [("app".to_owned(), app.to_owned())].into(), match_expressions: Vec::new() })
}

fn spread_over_zones(app: &str, skew: i32) -> PodShape {
    let spread = TopologySpread {
        topology_key: label::ZONE.into(),
        max_skew: skew,
        min_domains: None,
        required: true,
        selector: selector(app),
        honor_node_affinity: true,
        honor_node_taints: false,
    };
    PodShape { topology_spread: vec![spread], ..PodShape::default() }
}

fn with_term(anti: bool, weight: Option<i32>, app: &str) -> PodShape {
    let (topology_key, namespaces) = (label::ZONE.into(), vec![String::new()]);
    let term = PodAffinityTerm { anti, weight, topology_key, selector: selector(app), namespaces };
    PodShape { pod_affinity: vec![term], ..PodShape::default() }
}

fn none() -> Guests {
    Guests::default()
}

fn guests(shape: usize, count: usize) -> Guests {
    let mut guests = none();
    (0..count).for_each(|_| guests.add(shape));
    guests
}

#[test]
fn a_spread_counts_what_is_bound_anywhere_and_what_is_nominated_to_the_node() {
    let mut rules = rules(&["a", "b"], spread_over_zones("web", 1), PodShape::default());
    rules.add(WEB, 0);
    assert!(!rules.permit(WEB, 0, &none()), "two in a and none in b");
    assert!(rules.permit(WEB, 1, &none()));
    assert!(rules.permit(DB, 0, &none()), "it has no spread of its own");
    // Two that wait for the node in b count as if they were there; others do not.
    assert!(!rules.permit(WEB, 1, &guests(WEB, 2)), "three in b and one in a");
    assert!(rules.permit(WEB, 1, &guests(DB, 2)));
}

#[test]
fn fewer_domains_than_there_should_be_count_as_if_one_were_empty() {
    let mut least = spread_over_zones("web", 1);
    least.topology_spread[0].min_domains = Some(3);
    let mut rules = rules(&["a", "b"], least, PodShape::default());
    assert!(rules.permit(WEB, 0, &none()));
    (0..2).for_each(|node| rules.add(WEB, node));
    assert!(!rules.permit(WEB, 0, &none()) && !rules.permit(WEB, 1, &none()));
}

#[test]
fn the_first_pod_that_must_be_near_its_like_goes_anywhere_the_next_ones_do_not() {
    let mut alike = rules(&["a", "b"], with_term(false, None, "web"), PodShape::default());
    assert!(alike.permit(WEB, 0, &none()) && alike.permit(WEB, 1, &none()));
    alike.add(WEB, 0);
    assert!(alike.permit(WEB, 0, &none()) && !alike.permit(WEB, 1, &none()));
    // Near others nobody is the first.
    let mut other = rules(&["a", "b"], with_term(false, None, "db"), PodShape::default());
    assert!(!other.permit(WEB, 0, &none()));
    assert!(other.permit(WEB, 0, &guests(DB, 1)), "one that is nominated there counts");
    other.add(DB, 1);
    assert!(!other.permit(WEB, 0, &none()) && other.permit(WEB, 1, &none()));
}

#[test]
fn those_that_must_keep_away_and_those_they_keep_away_exclude_each_other() {
    let mut rules = rules(&["a", "a", "b"], with_term(true, None, "db"), PodShape::default());
    rules.add(WEB, 0);
    assert!(!rules.permit(DB, 1, &none()), "in the same zone");
    assert!(rules.permit(DB, 2, &none()) && rules.permit(WEB, 1, &none()));
    assert!(!rules.permit(DB, 2, &guests(WEB, 1)), "one that waits for that node counts");
    rules.add(DB, 2);
    assert!(!rules.permit(WEB, 2, &none()));
}

#[test]
fn nobody_looks_at_what_nominated_pods_keep_away_as_long_as_no_pod_that_runs_does() {
    let mut rules = rules(&["a", "b", "c"], with_term(true, None, "db"), PodShape::default());
    let waits = guests(WEB, 1);
    assert!(rules.permit(DB, 0, &waits), "kube-scheduler's plugin has nothing to do for such a pod");
    rules.add(WEB, 1);
    assert!(!rules.permit(DB, 0, &waits), "one in another zone is enough");
    // A pod with a rule of its own is looked at anyway.
    let mut both = self::rules(&["a", "b"], with_term(true, None, "db"), with_term(true, None, "nobody"));
    assert!(!both.permit(DB, 0, &waits));
    both.add(DB, 1);
    assert!(!both.permit(WEB, 0, &guests(DB, 1)), "whom it keeps away itself");
}

#[test]
fn what_is_bought_must_be_worth_its_price() {
    let priced = |micro: i64| Plan { hourly: MicroUsdPerHour(micro), ..Plan::default() };
    let all = ANEW * PERFORMANCES;
    let (cheap, dear) = (priced(1_000_000), priced(1_200_000));
    // A fifth more, where one in ten strands a pod: eight times a tenth is more than that.
    assert!(is_worth((&dear, 0), (&cheap, all / 10)));
    assert!(!is_worth((&dear, 0), (&cheap, all / 100)));
    assert!(!is_worth((&dear, all / 10), (&cheap, all / 10)), "dearer and no better");
    // Where nothing is to be bought so far, too.
    assert!(is_worth((&dear, 0), (&priced(0), all / 4)));
    assert!(!is_worth((&dear, 0), (&priced(0), all / 10)));
}

#[test]
fn turns_are_taken_by_pods_that_a_spread_binds_where_there_is_more_than_one_domain() {
    let one_zone = rules(&["a", "a"], spread_over_zones("web", 1), PodShape::default());
    assert_eq!(one_zone.kinds(&[WEB, DB]), [Kind::default(), Kind::default()]);
    let two_zones = rules(&["a", "b"], spread_over_zones("web", 1), PodShape::default());
    assert_eq!(two_zones.kinds(&[WEB, DB]), [Kind { spreads: vec![(1, vec![0])] }, Kind::default()]);
    // One that it counts is in its way only if that one would wait for it.
    let counts_others = rules(&["a", "b"], spread_over_zones("db", 1), PodShape::default());
    assert_eq!(counts_others.kinds(&[WEB, DB])[0], Kind { spreads: vec![(1, Vec::new())] });
    let followed = rules(&["a", "b"], spread_over_zones("db", 1), with_term(false, None, "web"));
    assert_eq!(followed.kinds(&[WEB, DB])[0], Kind { spreads: vec![(1, vec![1])] });
}

#[test]
fn pods_are_drawn_to_those_that_they_prefer_and_to_those_that_must_be_near_them() {
    let mut wish = rules(&["a", "b"], with_term(false, Some(30), "db"), PodShape::default());
    wish.add(DB, 0);
    assert_eq!((wish.pull(WEB, 0), wish.pull(WEB, 1), wish.pull(DB, 0)), (30, 0, 0));
    wish.add(WEB, 1);
    assert_eq!(wish.pull(DB, 1), 30, "and they by those that prefer them");
    // A rule of a pod that runs counts as a wish of one.
    let mut rule = rules(&["a", "b"], with_term(false, None, "db"), PodShape::default());
    rule.add(WEB, 1);
    assert_eq!((rule.pull(DB, 0), rule.pull(DB, 1), rule.pull(WEB, 1)), (0, 1, 0));
    let mut apart = rules(&["a", "b"], with_term(true, Some(30), "db"), PodShape::default());
    apart.add(DB, 0);
    assert_eq!(apart.pull(WEB, 0), -30);
}

#[test]
fn scores_of_a_plugin_go_from_zero_to_a_hundred() {
    assert_eq!(normalized(&[-30, 0, 30], true), [0, 50, 100]);
    assert_eq!(normalized(&[7, 7], true), [0, 0], "nobody is better");
    // Of spreads the fewest are best.
    assert_eq!(normalized(&[1, 3], false), [100, 33]);
    assert_eq!(normalized(&[0, 0], false), [100, 100]);
}

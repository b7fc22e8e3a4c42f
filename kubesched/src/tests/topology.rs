//! Topology spread, affinity and anti-affinity, one rule at a time.

use super::{node, selector};
use crate::filter::Nominated;
use crate::nomination::{Group, SpreadLimit};
use crate::topology::Topology;
use plimsoll_model::identity::ShapeId;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{LabelSelector, PodAffinityTerm, PodShape, Snapshot, TopologySpread};

const WEB: usize = 0;
const DB: usize = 1;

/// A node in each of these zones, and pending pods of both shapes.
fn rules(zones: &[&str], mut web: PodShape, mut db: PodShape) -> Topology {
    for (shape, name) in [(&mut web, "web"), (&mut db, "db")] {
        shape.id = ShapeId::from(name);
        shape.labels.insert("app".into(), name.into());
    }
    let nodes = zones.iter().enumerate().map(|(number, zone)| node(&format!("n{number}"), &[(label::ZONE, zone)]));
    let snapshot = Snapshot { shapes: vec![web, db], nodes: nodes.collect(), ..Snapshot::default() };
    Topology::new(&snapshot, &[true, true])
}

fn spread_over_zones(app: &str, skew: i32) -> PodShape {
    let spread = TopologySpread {
        topology_key: label::ZONE.into(),
        max_skew: skew,
        min_domains: None,
        required: true,
        selector: Some(selector(app)),
        honor_node_affinity: true,
        honor_node_taints: false,
    };
    PodShape { topology_spread: vec![spread], ..PodShape::default() }
}

fn with_term(anti: bool, weight: Option<i32>, app: &str) -> PodShape {
    let (topology_key, namespaces) = (label::ZONE.into(), vec![String::new()]);
    let term = PodAffinityTerm { anti, weight, topology_key, selector: Some(selector(app)), namespaces };
    PodShape { pod_affinity: vec![term], ..PodShape::default() }
}

fn none() -> Nominated {
    Nominated::default()
}

fn nominated(shape: usize, count: usize) -> Nominated {
    let mut nominated = none();
    (0..count).for_each(|_| nominated.add(shape));
    nominated
}

fn permits(rules: &Topology, shape: usize, node: usize, nominated: &Nominated) -> bool {
    rules.filter(shape, node, nominated).is_ok()
}

fn limit(max_skew: i64, counted: Vec<usize>) -> Group {
    Group { spreads: vec![SpreadLimit { max_skew, counted }] }
}

#[test]
fn a_spread_counts_bound_pods_anywhere_and_pods_nominated_to_the_node() {
    let mut rules = rules(&["a", "b"], spread_over_zones("web", 1), PodShape::default());
    rules.add(WEB, 0);
    assert!(!permits(&rules, WEB, 0, &none()), "two in a and none in b");
    assert!(permits(&rules, WEB, 1, &none()));
    assert!(permits(&rules, DB, 0, &none()), "the pod has no spread constraint");
    // Pods that are nominated to the node in b count as if they ran there. Other pods do not count.
    assert!(!permits(&rules, WEB, 1, &nominated(WEB, 2)), "three in b and one in a");
    assert!(permits(&rules, WEB, 1, &nominated(DB, 2)));
}

#[test]
fn fewer_domains_than_min_domains_count_as_if_one_were_empty() {
    let mut least = spread_over_zones("web", 1);
    least.topology_spread[0].min_domains = Some(3);
    let mut rules = rules(&["a", "b"], least, PodShape::default());
    assert!(permits(&rules, WEB, 0, &none()));
    (0..2).for_each(|node| rules.add(WEB, node));
    assert!(!permits(&rules, WEB, 0, &none()) && !permits(&rules, WEB, 1, &none()));
}

#[test]
fn a_spread_with_an_empty_selector_counts_only_the_pod_itself_and_nominated_pods() {
    let mut empty = spread_over_zones("web", 1);
    empty.topology_spread[0].selector = Some(LabelSelector::default());
    empty.topology_spread[0].min_domains = Some(3);
    let mut preferred = empty.clone();
    preferred.topology_spread[0].required = false;
    let mut rules = rules(&["a", "b"], empty, preferred);
    (0..2).for_each(|_| rules.add(WEB, 0));
    rules.add(DB, 0);
    assert!(permits(&rules, WEB, 0, &none()), "running pods do not count");
    assert_eq!(rules.spread_score(DB, 0), Some(0));
    assert!(rules.spreads_hold(WEB, 0));
    assert!(!permits(&rules, WEB, 0, &nominated(WEB, 1)) && !permits(&rules, WEB, 1, &nominated(DB, 1)));
    assert_eq!(rules.nomination_groups(&[WEB, DB]), [limit(1, vec![0]), Group::default()]);
    (0..2).for_each(|_| rules.remove(WEB, 0));
    assert!(permits(&rules, WEB, 0, &none()) && permits(&rules, WEB, 1, &none()));
}

#[test]
fn the_first_of_pods_with_affinity_to_themselves_goes_anywhere_the_next_ones_do_not() {
    let mut alike = rules(&["a", "b"], with_term(false, None, "web"), PodShape::default());
    assert!(permits(&alike, WEB, 0, &none()) && permits(&alike, WEB, 1, &none()));
    alike.add(WEB, 0);
    assert!(permits(&alike, WEB, 0, &none()) && !permits(&alike, WEB, 1, &none()));
    // A pod whose affinity selects only other pods cannot be the first.
    let mut other = rules(&["a", "b"], with_term(false, None, "db"), PodShape::default());
    assert!(!permits(&other, WEB, 0, &none()));
    assert!(permits(&other, WEB, 0, &nominated(DB, 1)), "a pod that is nominated to the node counts");
    other.add(DB, 1);
    assert!(!permits(&other, WEB, 0, &none()) && permits(&other, WEB, 1, &none()));
}

#[test]
fn anti_affinity_holds_in_both_directions() {
    let mut rules = rules(&["a", "a", "b"], with_term(true, None, "db"), PodShape::default());
    rules.add(WEB, 0);
    assert!(!permits(&rules, DB, 1, &none()), "in the same zone");
    assert!(permits(&rules, DB, 2, &none()) && permits(&rules, WEB, 1, &none()));
    assert!(!permits(&rules, DB, 2, &nominated(WEB, 1)), "a pod that is nominated to the node counts");
    rules.add(DB, 2);
    assert!(!permits(&rules, WEB, 2, &none()));
}

#[test]
fn anti_affinity_of_nominated_pods_counts_once_a_running_pod_has_some() {
    let mut rules = rules(&["a", "b", "c"], with_term(true, None, "db"), PodShape::default());
    let waits = nominated(WEB, 1);
    assert!(permits(&rules, DB, 0, &waits), "kube-scheduler's plugin skips such a pod");
    rules.add(WEB, 1);
    assert!(!permits(&rules, DB, 0, &waits), "a running pod in another zone is enough");
    // For a pod with a required term of its own, the plugin does not skip.
    let mut both = self::rules(&["a", "b"], with_term(true, None, "db"), with_term(true, None, "nobody"));
    assert!(!permits(&both, DB, 0, &waits));
    both.add(DB, 1);
    assert!(!permits(&both, WEB, 0, &nominated(DB, 1)), "its own term excludes the nominated pod");
}

#[test]
fn the_nomination_gate_limits_spread_pods_where_there_is_more_than_one_domain() {
    let one_zone = rules(&["a", "a"], spread_over_zones("web", 1), PodShape::default());
    assert_eq!(one_zone.nomination_groups(&[WEB, DB]), [Group::default(), Group::default()]);
    let two_zones = rules(&["a", "b"], spread_over_zones("web", 1), PodShape::default());
    assert_eq!(two_zones.nomination_groups(&[WEB, DB]), [limit(1, vec![0]), Group::default()]);
    // A counted group hinders the pod only if that group would wait for the pod.
    let counts_others = rules(&["a", "b"], spread_over_zones("db", 1), PodShape::default());
    assert_eq!(counts_others.nomination_groups(&[WEB, DB])[0], limit(1, Vec::new()));
    let followed = rules(&["a", "b"], spread_over_zones("db", 1), with_term(false, None, "web"));
    assert_eq!(followed.nomination_groups(&[WEB, DB])[0], limit(1, vec![1]));
}

#[test]
fn preferred_terms_score_for_pending_pods_and_both_kinds_of_terms_for_running_ones() {
    let mut preferred = rules(&["a", "b"], with_term(false, Some(30), "db"), PodShape::default());
    preferred.add(DB, 0);
    assert_eq!(
        (preferred.affinity_score(WEB, 0), preferred.affinity_score(WEB, 1), preferred.affinity_score(DB, 0)),
        (30, 0, 0)
    );
    preferred.add(WEB, 1);
    assert_eq!(preferred.affinity_score(DB, 1), 30, "preferred terms of running pods count");
    // A required term of a running pod adds to the score.
    let mut rule = rules(&["a", "b"], with_term(false, None, "db"), PodShape::default());
    rule.add(WEB, 1);
    assert_eq!((rule.affinity_score(DB, 0), rule.affinity_score(DB, 1), rule.affinity_score(WEB, 1)), (0, 1, 0));
    let mut apart = rules(&["a", "b"], with_term(true, Some(30), "db"), PodShape::default());
    apart.add(DB, 0);
    assert_eq!(apart.affinity_score(WEB, 0), -30);
}

use super::super::tests::{claim, condition, new, old, pool, rollout};
use super::*;
use serde_json::json;

const MINUTES: u64 = 60 * 1000;

fn leaving(name: &str) -> NodeClaim {
    let mut claim = old(name);
    claim.metadata.annotations.get_or_insert_default().insert(annotation::REMOVAL.to_owned(), "{}".to_owned());
    claim
}

fn progress(claims: &[NodeClaim], now: i64) -> Progress {
    let canaries = json!({annotation::ROLLOUT_CANARIES: "0"});
    rollout(&pool(&canaries), claims, &[], &[], now).unwrap().progress
}

/// This many nodes whose replacements were launched at `created` and are not in service.
fn wave(nodes: usize, created: i64) -> Vec<NodeClaim> {
    let pair = |number| [leaving(&format!("o{number}")), claim(&format!("n{number}"), created, "ami-new", &[])];
    (0..nodes).flat_map(pair).collect()
}

fn waiting(nodes: usize) -> impl Iterator<Item = NodeClaim> {
    (0..nodes).map(|number| old(&format!("w{number}")))
}

#[test]
fn a_node_counts_once_from_its_drift_to_its_replacement() {
    let mut deleting = old("d");
    deleting.metadata.deletion_timestamp = new("x", 60).metadata.creation_timestamp;
    // d is being removed since its replacement n is in service; l waits for its replacement b; r has been replaced.
    let claims = [old("w"), deleting, new("n", 60), leaving("l"), claim("b", 20, "ami-new", &[]), new("r", 60)];
    let found = progress(&claims, 100);
    assert_eq!((found.drifted, found.replacing, found.replaced, found.total()), (1, 2, 1, 4));
}

#[test]
fn the_estimate_is_of_the_time_per_node_and_the_number_at_once() {
    // The first node took 300 s.
    let mut claims = vec![new("first", 310)];
    claims.extend(wave(10, 400));
    claims.extend(waiting(80));
    let left = |claims: &[NodeClaim], now| progress(claims, now).left;
    assert_eq!(left(&claims, 400), Some(Millis(45 * MINUTES)), "this wave and eight more");
    assert_eq!(left(&claims, 520), Some(Millis(43 * MINUTES)));
    // Between two waves: no node waits for its replacement, and ten were launched within the last five minutes.
    let in_service = |number| claim(&format!("n{number}"), 400, "ami-new", &[condition("Initialized", "True", 700)]);
    let mut between: Vec<NodeClaim> = (0..10).map(in_service).collect();
    between.extend(waiting(80));
    assert_eq!(left(&between, 699), Some(Millis(40 * MINUTES)));
    assert_eq!(left(&between, 3600), None, "nothing is launched any more");
    assert_eq!(left(&wave(10, 400), 500), None, "it is not known how long a node takes");
}

#[test]
fn a_rollout_that_is_held_has_no_estimate() {
    let mut claims = vec![new("first", 310)];
    claims.extend(wave(10, 400));
    let paused = rollout(&pool(&json!({annotation::ROLLOUT_PAUSED: "true"})), &claims, &[], &[], 500).unwrap();
    assert_eq!((paused.progress.left, paused.progress.replacing), (None, 10));
}

#[test]
fn the_text_names_nodes_and_minutes() {
    let text = |replaced, replacing, drifted, left: Option<u64>| {
        Progress { drifted, replacing, replaced, left: left.map(Millis) }.to_string()
    };
    assert_eq!(
        text(1200, 500, 3300, Some(22 * MINUTES)),
        "1,200 of 5,000 nodes replaced, 500 in progress, about 25 minutes left"
    );
    assert_eq!(text(0, 1, 9, None), "0 of 10 nodes replaced, 1 in progress");
    assert_eq!(text(9, 1, 0, Some(1)), "9 of 10 nodes replaced, 1 in progress, about 1 minute left");
    assert_eq!(text(9, 1, 0, Some(8 * MINUTES - 1)), "9 of 10 nodes replaced, 1 in progress, about 8 minutes left");
    assert_eq!(text(999, 0, 1, None), "990 of 1,000 nodes replaced, 0 in progress");
}

#[test]
fn the_text_of_a_large_pool_changes_a_hundred_times_at_most() {
    let text = |replaced: usize| Progress { drifted: 5000 - replaced, replaced, ..Progress::default() }.to_string();
    let mut texts: Vec<String> = (0..=5000).map(text).collect();
    texts.dedup();
    assert_eq!(texts.len(), 101);
    let last = Progress { replacing: 1, replaced: 4999, ..Progress::default() }.to_string();
    assert_eq!(last, "4,950 of 5,000 nodes replaced, 50 in progress", "both are rounded, and neither is left out");
}

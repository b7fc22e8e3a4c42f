mod rooms;

use super::*;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::plan::{Launch, OfferingChoice, PodRef};
use plimsoll_model::snapshot::{Pod, Snapshot};

/// A cycle with a clock of its own, in milliseconds.
struct Scene {
    cycle: Cycle,
    start: Instant,
    sequence: u64,
}

/// What a snapshot is about: pods by letter; those in `incomplete` wait for others.
#[derive(Clone, Copy, Default)]
struct Seen {
    pods: &'static str,
    incomplete: &'static str,
    ledger: u64,
}

impl Scene {
    fn new() -> Self {
        Self { cycle: Cycle::new(7), start: Instant::now(), sequence: 0 }
    }

    fn at(&self, millis: u64) -> Instant {
        self.start + Duration::from_millis(millis)
    }

    /// A snapshot made at `millis`.
    fn snapshot(&mut self, millis: u64, seen: Seen) -> Published {
        self.sequence += 1;
        let time = Timestamp(i64::try_from(millis).unwrap());
        let pods = seen.pods.chars().map(|letter| pod(&letter.to_string())).collect();
        let snapshot = Snapshot {
            sequence: self.sequence,
            ledger: position(seen.ledger),
            now: Timestamp(time.0 - time.0 % TIME_STEP_MS),
            pods,
            ..Snapshot::default()
        };
        let incomplete = seen.incomplete.chars().map(|letter| PodUid(letter.to_string())).collect();
        Published {
            relevant: snapshot.sequence,
            snapshot,
            checksum: 0,
            delta: None,
            incomplete,
            buffers: Vec::new(),
            at: self.at(millis),
            time,
        }
    }

    fn next(&mut self, published: &Published, millis: u64) -> Step {
        let now = self.at(millis);
        self.cycle.next(Some(published), now)
    }

    fn planned(&mut self, published: &Published, plan: Plan, millis: u64) {
        let (now, sequence) = (self.at(millis), published.snapshot.sequence);
        self.cycle.planned(sequence, Some(Plan { snapshot_sequence: sequence, ..plan }), false, now);
    }

    fn outcome(&mut self, action: &str, status: OutcomeStatus, ledger: u64, millis: u64) {
        let reason = (status == OutcomeStatus::Rejected).then_some(OutcomeReason::PodChanged);
        let outcome = Outcome {
            action_id: action.into(),
            status,
            reason,
            message: String::new(),
            node_claim: None,
            ledger: position(ledger),
        };
        let now = self.at(millis);
        self.cycle.heard(Event::Outcome { cycle_id: "x".to_owned(), outcome }, now);
    }
}

fn position(sequence: u64) -> LedgerPosition {
    LedgerPosition { epoch: 1, sequence }
}

fn pod(uid: &str) -> Pod {
    Pod {
        uid: uid.into(),
        namespace: "shop".to_owned(),
        name: uid.to_owned(),
        shape: "s".into(),
        state: PodState::Pending,
        created: Timestamp(0),
        stays_with_node: false,
        terminating: false,
        returns: false,
        do_not_disrupt_until: None,
        eviction_cost_milli: 1000,
        pod_disruption_budgets: Vec::new(),
        buffer: None,
    }
}

/// One launch for each word: its letters are pods, the word is its action.
fn launches(words: &[&str]) -> Plan {
    let launch = |word: &&str| Launch {
        action_id: (*word).into(),
        node_pool: "default".into(),
        node_class: "default".to_owned(),
        offerings: std::sync::Arc::new(vec![OfferingChoice {
            instance_type: "c5.large".to_owned(),
            zone: "a".to_owned(),
            capacity_type: CapacityType::Spot,
            price: MicroUsdPerHour(1),
        }]),
        requirements: std::sync::Arc::default(),
        requests: Default::default(),
        taints: Vec::new(),
        labels: Default::default(),
        pods: word.chars().map(|letter| PodRef { name: letter.to_string(), uid: PodUid(letter.to_string()) }).collect(),
        prioritized: false,
        why: String::new(),
    };
    Plan { launches: words.iter().map(launch).collect(), ..Plan::default() }
}

fn reasons(uid: &str) -> Plan {
    let pod = PodRef { name: uid.to_owned(), uid: uid.into() };
    Plan { unschedulable: vec![Unschedulable { pod, reasons: Vec::new() }], ..Plan::default() }
}

/// The actions of a step that executes.
fn actions(step: &Step) -> Vec<&str> {
    let Step::Execute { plan, .. } = step else { panic!("{step:?}") };
    plan.launches.iter().map(|one| one.action_id.as_str()).collect()
}

#[test]
fn a_pod_that_nobody_waits_for_is_launched_for_at_once() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(0, Seen { pods: "a", ..Seen::default() });
    assert_eq!(scene.next(&seen, 0), Step::Plan);
    scene.planned(&seen, launches(&["a"]), 3);
    assert_eq!(actions(&scene.next(&seen, 3)), ["a"]);
}

#[test]
fn launches_wait_for_pods_of_one_owner_and_others_go_ahead() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(0, Seen { pods: "abc", incomplete: "ab", ledger: 0 });
    assert_eq!(scene.next(&seen, 0), Step::Plan);
    scene.planned(&seen, launches(&["ab", "c"]), 0);
    assert_eq!(actions(&scene.next(&seen, 0)), ["c"]);
    scene.outcome("c", OutcomeStatus::Accepted, 1, 1);
    // The pod that was bought for is reserved now; the others still wait, up to a second of silence.
    let seen = scene.snapshot(2, Seen { pods: "ab", incomplete: "ab", ledger: 1 });
    assert_eq!(scene.next(&seen, 2), Step::Plan);
    scene.planned(&seen, launches(&["ab"]), 2);
    assert_eq!(scene.next(&seen, 2), Step::Wait(Some(scene.at(1000))));
    assert_eq!(actions(&scene.next(&seen, 1000)), ["ab"], "the plan is ready, only the commit waited");
}

#[test]
fn the_wait_ends_when_the_last_pod_is_seen() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(0, Seen { pods: "a", incomplete: "a", ledger: 0 });
    assert_eq!(scene.next(&seen, 0), Step::Plan);
    scene.planned(&seen, launches(&["a"]), 0);
    assert!(matches!(scene.next(&seen, 0), Step::Wait(_)));
    let seen = scene.snapshot(40, Seen { pods: "ab", ..Seen::default() });
    assert_eq!(scene.next(&seen, 40), Step::Plan);
    scene.planned(&seen, launches(&["ab"]), 41);
    assert_eq!(actions(&scene.next(&seen, 41)), ["ab"]);
}

#[test]
fn the_next_plan_waits_for_a_snapshot_that_knows_the_last_outcomes() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(0, Seen { pods: "a", ..Seen::default() });
    scene.next(&seen, 0);
    scene.planned(&seen, launches(&["a"]), 0);
    scene.next(&seen, 0);
    let newer = scene.snapshot(1, Seen { pods: "a", ..Seen::default() });
    assert_eq!(scene.next(&newer, 1), Step::Wait(Some(scene.at(10_000))), "admission is not known yet");
    scene.outcome("a", OutcomeStatus::Accepted, 5, 2);
    for ledger in [0, 4] {
        let stale = scene.snapshot(3, Seen { pods: "a", incomplete: "", ledger });
        assert!(matches!(scene.next(&stale, 3), Step::Wait(_)), "the ledger is at {ledger}");
    }
    let known = scene.snapshot(4, Seen { pods: "a", incomplete: "", ledger: 5 });
    assert_eq!(scene.next(&known, 4), Step::Plan);
}

#[test]
fn a_failure_that_comes_late_counts_as_well() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(0, Seen { pods: "a", ..Seen::default() });
    scene.next(&seen, 0);
    scene.planned(&seen, launches(&["a"]), 0);
    scene.next(&seen, 0);
    scene.outcome("a", OutcomeStatus::Accepted, 1, 1);
    scene.outcome("a", OutcomeStatus::Failed, 2, 90);
    let stale = scene.snapshot(91, Seen { pods: "a", incomplete: "", ledger: 1 });
    assert!(matches!(scene.next(&stale, 91), Step::Wait(_)), "it would buy what has no capacity again");
    let known = scene.snapshot(92, Seen { pods: "a", incomplete: "", ledger: 2 });
    assert_eq!(scene.next(&known, 92), Step::Plan);
}

#[test]
fn a_ledger_that_has_begun_anew_is_believed_after_a_while() {
    let mut scene = Scene::new();
    scene.outcome("a", OutcomeStatus::Accepted, 9, 0);
    let behind = scene.snapshot(0, Seen::default());
    assert_eq!(scene.next(&behind, 0), Step::Wait(Some(scene.at(60_000))));
    assert_eq!(scene.next(&behind, 60_000), Step::Plan);
}

#[test]
fn a_rejected_action_is_planned_again_at_once_and_then_ever_later() {
    let mut scene = Scene::new();
    let mut millis = 0;
    let mut pauses = Vec::new();
    for _ in 0..4 {
        let seen = scene.snapshot(millis, Seen { pods: "a", ..Seen::default() });
        assert_eq!(scene.next(&seen, millis), Step::Plan);
        scene.planned(&seen, launches(&["a"]), millis);
        let began = millis;
        while let Step::Wait(Some(until)) = scene.next(&seen, millis) {
            millis = u64::try_from((until - scene.start).as_millis()).unwrap();
            if scene.cycle.awaited.is_some() {
                break;
            }
        }
        pauses.push(millis - began);
        scene.outcome("a", OutcomeStatus::Rejected, 0, millis);
        match scene.next(&seen, millis) {
            Step::Refresh => {}
            Step::Wait(Some(until)) => {
                let next = u64::try_from((until - scene.start).as_millis()).unwrap();
                pauses.push(next - millis);
                millis = next;
                assert_eq!(scene.next(&seen, millis), Step::Refresh);
            }
            step => panic!("{step:?}"),
        }
    }
    let pauses: Vec<_> = pauses.into_iter().filter(|pause| *pause > 0 && *pause < 10_000).collect();
    assert_eq!(pauses, [200, 400, 800]);
}

#[test]
fn an_unheard_execution_is_asked_again() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(0, Seen { pods: "a", ..Seen::default() });
    scene.next(&seen, 0);
    scene.planned(&seen, launches(&["a"]), 0);
    scene.next(&seen, 0);
    let status = tonic::Status::unavailable("gone");
    let now = scene.at(20);
    let cycle_id = scene.cycle.id(seen.snapshot.sequence);
    scene.cycle.heard(Event::Ended { cycle_id, result: Err(status) }, now);
    assert_eq!(scene.next(&seen, 20), Step::Wait(Some(scene.at(70))), "not at once: the actuator is down");
    assert_eq!(scene.next(&seen, 70), Step::Plan);
    scene.planned(&seen, launches(&["a"]), 71);
    assert_eq!(actions(&scene.next(&seen, 71)), ["a"]);
}

#[test]
fn a_snapshot_in_which_nothing_matters_has_the_same_plan_and_its_parts_have_names_of_their_own() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(0, Seen { pods: "ab", incomplete: "a", ledger: 0 });
    scene.next(&seen, 0);
    scene.planned(&seen, launches(&["a", "b"]), 0);
    let name = |step: Step| match step {
        Step::Execute { cycle_id, .. } => cycle_id,
        step => panic!("{step:?}"),
    };
    assert_eq!(name(scene.next(&seen, 0)), "7-1");
    scene.outcome("b", OutcomeStatus::Accepted, 0, 1);
    let mut again = scene.snapshot(20, Seen { pods: "ab", ..Seen::default() });
    again.relevant = 1;
    let step = scene.next(&again, 20);
    assert_eq!(actions(&step), ["a"], "its owner is complete now");
    assert_eq!(name(step), "7-1.2");
    let now = scene.at(21);
    scene.cycle.heard(Event::Ended { cycle_id: "7-1".to_owned(), result: Ok(()) }, now);
    assert!(scene.cycle.awaited.is_some(), "the end of the first part is not that of the second");
}

#[test]
fn a_part_that_comes_early_is_sent_at_once_and_never_again() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(0, Seen { pods: "abc", incomplete: "b", ledger: 0 });
    assert_eq!(scene.next(&seen, 0), Step::Plan);
    let now = scene.at(1);
    let early = Plan { snapshot_sequence: 1, ..launches(&["a", "b"]) };
    let (part, name) = scene.cycle.part(1, &early, now).unwrap();
    let sent: Vec<&str> = part.launches.iter().map(|one| one.action_id.as_str()).collect();
    assert_eq!((sent, name.as_str()), (vec!["a"], "7-1"), "the owner of b is not complete");
    scene.planned(&seen, launches(&["a", "b", "c"]), 2);
    assert!(matches!(scene.next(&seen, 2), Step::Wait(_)), "whether the first is admitted is not known");
    scene.outcome("a", OutcomeStatus::Accepted, 0, 3);
    assert_eq!(actions(&scene.next(&seen, 3)), ["c"]);
}

#[test]
fn nodes_are_looked_at_once_nobody_waits_for_a_plan() {
    let mut scene = Scene::new();
    scene.cycle = Cycle::new(7).sweeping(true);
    let seen = scene.snapshot(0, Seen { pods: "ab", ..Seen::default() });
    assert_eq!(scene.next(&seen, 0), Step::Plan);
    scene.planned(&seen, launches(&["a"]), 1);
    assert_eq!(actions(&scene.next(&seen, 1)), ["a"]);
    scene.outcome("a", OutcomeStatus::Accepted, 0, 2);
    assert_eq!(scene.next(&seen, 2), Step::Sweep, "b is not placed, but nothing more can be done for it");
    let now = scene.at(3);
    scene.cycle.planned(1, Some(Plan { snapshot_sequence: 1, ..launches(&["a"]) }), true, now);
    assert!(matches!(scene.next(&seen, 3), Step::Wait(_)), "a was sent, and nothing is new");
    let calm = scene.snapshot(10, Seen::default());
    assert_eq!(scene.next(&calm, 10), Step::Sweep);
}

#[test]
fn reasons_are_told_once() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(0, Seen { pods: "a", ..Seen::default() });
    scene.next(&seen, 0);
    scene.planned(&seen, reasons("a"), 0);
    assert!(matches!(scene.next(&seen, 0), Step::Execute { .. }));
    assert_eq!(scene.next(&seen, 1), Step::Wait(None));
    let again = scene.snapshot(5000, Seen { pods: "a", ..Seen::default() });
    scene.next(&again, 5000);
    scene.planned(&again, reasons("a"), 5000);
    assert_eq!(scene.next(&again, 5000), Step::Wait(None), "nothing new to tell");
    let other = scene.snapshot(6000, Seen { pods: "b", ..Seen::default() });
    scene.next(&other, 6000);
    scene.planned(&other, reasons("b"), 6000);
    assert!(matches!(scene.next(&other, 6000), Step::Execute { .. }));
}

#[test]
fn a_plan_that_does_nothing_is_not_sent() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(0, Seen::default());
    scene.next(&seen, 0);
    scene.planned(&seen, Plan::default(), 0);
    assert_eq!(scene.next(&seen, 0), Step::Wait(None));
}

#[test]
fn time_alone_causes_a_plan_at_the_step_of_the_clock_that_shows_it() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(300, Seen::default());
    scene.next(&seen, 300);
    let wait = |scene: &mut Scene, next_time: i64| {
        scene.planned(&seen, Plan { next_time: Some(Timestamp(next_time)), ..Plan::default() }, 300);
        match scene.next(&seen, 300) {
            Step::Wait(Some(until)) => (until - scene.start).as_millis(),
            step => panic!("{step:?}"),
        }
    };
    assert_eq!(wait(&mut scene, 4200), 5000, "a snapshot of 4.2 s would tell 4 s, and the plan would be the same");
    assert_eq!(wait(&mut scene, 5000), 5000);
    assert_eq!(wait(&mut scene, 0), 1000, "never the same step again");
    assert_eq!(scene.next(&seen, 1000), Step::Refresh);
}

#[test]
fn without_a_plan_it_is_asked_for_again_with_growing_pauses() {
    let mut scene = Scene::new();
    let seen = scene.snapshot(0, Seen::default());
    let mut millis = 0;
    let mut pauses = Vec::new();
    for _ in 0..9 {
        assert_eq!(scene.next(&seen, millis), Step::Plan);
        let now = scene.at(millis);
        scene.cycle.planned(seen.snapshot.sequence, None, false, now);
        let Step::Wait(Some(until)) = scene.next(&seen, millis) else { panic!("no pause") };
        let next = u64::try_from((until - scene.start).as_millis()).unwrap();
        pauses.push(next - millis);
        millis = next;
    }
    assert_eq!(pauses, [50, 100, 200, 400, 800, 1600, 2000, 2000, 2000]);
}

use super::{node_claim::*, *};

fn at(second: i64) -> Timestamp {
    Timestamp::from_second(1_800_000_000 + second).unwrap()
}

fn moment(second: i64) -> Moment {
    Moment { generation: 1, created: at(0), deleting: false, now: at(second) }
}

/// Name, status, reason and age at transition of each condition.
fn shown(conditions: &[Condition]) -> Vec<(&str, &str, &str, i64)> {
    conditions
        .iter()
        .map(|it| {
            let since = it.last_transition_time.0.as_second() - at(0).as_second();
            (it.type_.as_str(), it.status.as_str(), it.reason.as_str(), since)
        })
        .collect()
}

#[test]
fn initial_conditions_are_unknown_since_creation() {
    let mut conditions = Vec::new();
    assert!(CONDITIONS.initialize(&mut conditions, moment(30)));
    let waiting = |name| (name, "Unknown", "AwaitingReconciliation", 0);
    assert_eq!(
        shown(&conditions),
        [waiting("Launched"), waiting("Registered"), waiting("Initialized"), waiting("Ready")]
    );
    assert!(!CONDITIONS.initialize(&mut conditions, moment(60)), "a second time changes nothing");
}

#[test]
fn ready_is_computed_from_its_dependents() {
    let mut conditions = Vec::new();
    CONDITIONS.set_true(&mut conditions, moment(10), LAUNCHED);
    CONDITIONS.set(&mut conditions, moment(20), REGISTERED, Status::Unknown, "NodeNotFound", "no node");
    assert_eq!(get(&conditions, READY).unwrap().reason, "ReconcilingDependents");
    assert_eq!(get(&conditions, READY).unwrap().message, "Registered=Unknown, Initialized=Unknown");
    CONDITIONS.set(&mut conditions, moment(30), REGISTERED, Status::False, "MultipleNodesFound", "two nodes");
    assert_eq!(get(&conditions, READY).unwrap().reason, "UnhealthyDependents");
    assert_eq!(get(&conditions, READY).unwrap().message, "Registered=False, Initialized=Unknown");
    CONDITIONS.set_true(&mut conditions, moment(40), REGISTERED);
    CONDITIONS.set_true(&mut conditions, moment(50), INITIALIZED);
    let expected = [
        ("Launched", "True", "Launched", 10),
        ("Registered", "True", "Registered", 40),
        ("Initialized", "True", "Initialized", 50),
        ("Ready", "True", "Ready", 50),
    ];
    assert_eq!(shown(&conditions), expected);
}

#[test]
fn the_transition_time_changes_only_with_the_status() {
    let mut conditions = Vec::new();
    CONDITIONS.set_true(&mut conditions, moment(10), LAUNCHED);
    assert!(!CONDITIONS.set_true(&mut conditions, moment(20), LAUNCHED));
    assert!(CONDITIONS.set(&mut conditions, moment(20), LAUNCHED, Status::True, "Launched", "i-1"));
    assert_eq!(shown(&conditions)[2], ("Launched", "True", "Launched", 10));
    assert_eq!(get(&conditions, LAUNCHED).unwrap().message, "i-1");
}

#[test]
fn a_dependent_of_an_older_generation_is_not_sufficient() {
    let mut conditions = Vec::new();
    let set = node_overlay::CONDITIONS;
    set.set_true(&mut conditions, moment(10), node_overlay::VALIDATION_SUCCEEDED);
    assert!(is_true(&conditions, READY));
    let second = Moment { generation: 2, ..moment(20) };
    set.set_true(&mut conditions, second, "Other");
    let ready = get(&conditions, READY).unwrap();
    assert_eq!((ready.status.as_str(), ready.message.as_str()), ("Unknown", "ValidationSucceeded=True"));
    assert_eq!(ready.observed_generation, Some(2));
    // A false condition of an older generation is unknown, too.
    set.set(&mut conditions, moment(30), node_overlay::VALIDATION_SUCCEEDED, Status::False, "Conflict", "");
    set.set(&mut conditions, second, "Other", Status::False, "No", "");
    assert_eq!(get(&conditions, READY).unwrap().status, "Unknown");
    set.set_true(&mut conditions, second, node_overlay::VALIDATION_SUCCEEDED);
    assert!(is_true(&conditions, READY));
}

#[test]
fn only_independent_conditions_can_be_cleared() {
    let mut conditions = Vec::new();
    CONDITIONS.set_true(&mut conditions, moment(10), LAUNCHED);
    CONDITIONS.set(&mut conditions, moment(20), DRIFTED, Status::True, "NodePoolDrifted", "NodePoolDrifted");
    assert_eq!(shown(&conditions).last().unwrap().0, "Ready", "the root stays last");
    assert_eq!(CONDITIONS.clear(&mut conditions, moment(30), DRIFTED), Ok(true));
    assert_eq!(CONDITIONS.clear(&mut conditions, moment(30), DRIFTED), Ok(false));
    assert_eq!(CONDITIONS.clear(&mut conditions, moment(30), LAUNCHED), Err(ClearError(LAUNCHED.to_owned())));
    assert!(is_true(&conditions, LAUNCHED) && !is_false(&conditions, LAUNCHED));
}

#[test]
fn setting_a_condition_of_a_deleted_object_updates_all_observed_generations() {
    let mut conditions = Vec::new();
    CONDITIONS.set_true(&mut conditions, moment(10), LAUNCHED);
    let going = Moment { generation: 2, deleting: true, ..moment(20) };
    CONDITIONS.set_true(&mut conditions, going, DRAINED);
    assert!(conditions.iter().all(|condition| condition.observed_generation == Some(2)));
}

#[test]
fn fractions_of_seconds_are_ignored() {
    let now = at(10).checked_add(jiff::SignedDuration::from_millis(900)).unwrap();
    let mut conditions = Vec::new();
    CONDITIONS.set_true(&mut conditions, Moment { now, ..moment(10) }, LAUNCHED);
    let written = serde_json::to_value(&conditions).unwrap();
    let read: Vec<Condition> = serde_json::from_value(written).unwrap();
    assert_eq!(read, conditions);
    assert_eq!(get(&read, LAUNCHED).unwrap().last_transition_time.0, at(10));
}

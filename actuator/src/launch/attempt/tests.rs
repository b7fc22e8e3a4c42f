use super::*;
use crate::ports::OfferingError;
use plimsoll_model::catalog::CapacityType;

const START: Timestamp = Timestamp(1_000_000);

fn instance(id: &str) -> FleetInstance {
    FleetInstance {
        instance_id: id.to_owned(),
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        capacity_type: CapacityType::Spot,
        subnet_id: String::new(),
        image_id: String::new(),
    }
}

fn refusal(code: &str) -> OfferingError {
    OfferingError {
        instance_type: "m5.large".to_owned(),
        zone: "us-east-1a".to_owned(),
        subnet_id: String::new(),
        capacity_type: CapacityType::Spot,
        code: code.to_owned(),
        message: "no".to_owned(),
    }
}

fn empty(code: &str) -> FleetAnswer {
    FleetAnswer { instances: Vec::new(), errors: vec![refusal(code)] }
}

fn lost() -> CloudError {
    CloudError::Ambiguous { message: "timed out".to_owned() }
}

fn denied() -> CloudError {
    CloudError::Denied { message: "no right".to_owned() }
}

fn group() -> GroupKey {
    GroupKey { id: "g".to_owned(), size: 1 }
}

fn request() -> FleetRequest {
    FleetRequest {
        client_token: group().client_token(FIRST_ATTEMPT),
        capacity_type: CapacityType::Spot,
        total_target_capacity: 1,
        tags: group().tags(FIRST_ATTEMPT).into(),
        ..FleetRequest::default()
    }
}

fn first() -> Attempt {
    Attempt::first(request(), START)
}

#[test]
fn raised_attempt_has_its_own_token_and_tags_and_otherwise_the_same_request() {
    let raised = first().raised(&group(), START.plus(Millis(1)));
    let expected = FleetRequest { client_token: "g-2".to_owned(), tags: group().tags(2).into(), ..request() };
    assert_eq!((raised.number, &raised.request), (2, &expected));

    let earlier = Attempt { sent: 7, throttled: 3, maybe_bought: true, internal_errors: 2, ..first() };
    let expected = Attempt { throttled: 3, started: START.plus(Millis(1)), ..raised };
    assert_eq!(earlier.raised(&group(), START.plus(Millis(1))), expected, "its age and its pauses count from now");
}

#[test]
fn lost_response_is_resent_with_the_same_token_and_backoff() {
    let mut attempt = first();
    let pauses: Vec<Decision> = (0..8).map(|_| after_sending(&mut attempt, Err(lost()), START)).collect();
    let seconds = [1, 2, 4, 8, 16, 32, 60, 60];
    assert_eq!(pauses, seconds.map(|s| Decision::Send { after: Millis::from_seconds(s) }));
    assert_eq!(attempt.number, 1);
}

#[test]
fn a_request_that_ec2_answers_by_internal_errors_is_looked_up_after_a_minute() {
    for code in INTERNAL_ERRORS {
        let internal = || Err(CloudError::Ambiguous { message: format!("{code}: An internal error has occurred") });
        let mut attempt = first();
        let pauses: Vec<Decision> = (0..6).map(|_| after_sending(&mut attempt, internal(), START)).collect();
        assert_eq!(pauses, [1, 2, 4, 8, 16, 32].map(|s| Decision::Send { after: Millis::from_seconds(s) }));
        // No response at all says nothing about EC2.
        let _ = after_sending(&mut attempt, Err(lost()), START);
        assert!(!attempt.fails_in_ec2());
        assert_eq!(after_sending(&mut attempt, internal(), START), Decision::LookUp { after: Millis(0) });
        assert!(attempt.fails_in_ec2() && attempt.maybe_bought && attempt.number == FIRST_ATTEMPT);
    }
}

#[test]
fn refusal_after_a_lost_response_does_not_raise_the_attempt() {
    let mut attempt = first();
    let _ = after_sending(&mut attempt, Err(lost()), START);
    // EC2 checks permissions before it looks at tokens: the first request may well have launched.
    for refused in [
        denied(),
        CloudError::NotFound { message: String::new() },
        CloudError::InsufficientCapacity { message: String::new() },
        CloudError::InvalidRequest { code: "X".to_owned(), message: String::new() },
    ] {
        assert_eq!(after_sending(&mut attempt, Err(refused), START), Decision::LookUp { after: Millis(0) });
    }
}

#[test]
fn resumed_attempt_may_have_launched() {
    let mut attempt = Attempt::resumed(request(), 2, START);
    assert_eq!(first_decision(&attempt, START.plus(MAX_RESEND_AGE)), Decision::Send { after: Millis(0) });
    assert_eq!(after_sending(&mut attempt, Err(denied()), START), Decision::LookUp { after: Millis(0) });
}

#[test]
fn attempt_past_the_maximum_age_is_never_sent() {
    let late = START.plus(MAX_RESEND_AGE).plus(Millis(1));
    assert_eq!(first_decision(&Attempt::resumed(request(), 1, START), late), Decision::LookUp { after: Millis(0) });
    // Nothing was bought, so there is nothing to look up.
    let not_accepted = Decision::Fail(Failure::NotAccepted);
    assert_eq!(first_decision(&first(), late), not_accepted);
    let unavailable = CloudError::Unavailable { message: String::new() };
    for (error, expected) in [
        (lost(), Decision::LookUp { after: Millis(0) }),
        (CloudError::Throttled, not_accepted.clone()),
        (unavailable, not_accepted.clone()),
    ] {
        let mut attempt = first();
        // The pause would end after the maximum age, although the age is not reached yet.
        assert_eq!(after_sending(&mut attempt, Err(error), START.plus(MAX_RESEND_AGE)), expected);
    }
}

#[test]
fn token_mismatch_leads_to_a_look_up() {
    let mut attempt = first();
    let decision = after_sending(&mut attempt, Err(CloudError::IdempotentParameterMismatch), START);
    assert_eq!(decision, Decision::LookUp { after: Millis(0) });
    assert!(attempt.maybe_bought);
}

#[test]
fn definite_refusals_raise_the_attempt_up_to_the_limit() {
    let mut attempt = first();
    for pause in [1, 2] {
        assert!(!attempt.is_last());
        let decision = after_sending(&mut attempt, Err(denied()), START);
        assert_eq!(decision, Decision::RaiseAttempt { after: Millis::from_seconds(pause) });
        attempt = attempt.raised(&group(), START);
    }
    assert_eq!(attempt.number, MAX_ATTEMPTS);
    assert!(attempt.is_last());
    let expected = Failure::Refused { code: "Denied".to_owned(), message: "no right".to_owned() };
    assert_eq!(after_sending(&mut attempt, Err(denied()), START), Decision::Fail(expected));
}

fn no_capacity(code: &str) -> Failure {
    Failure::InsufficientCapacity { refusals: format!("{code} for 1: {}", refusal(code).message), named: true }
}

#[test]
fn insufficient_capacity_fails_at_once_and_other_refusals_are_retried() {
    let mut attempt = first();
    for code in ["InsufficientInstanceCapacity", "SpotMaxPriceTooLow"] {
        let decision = after_sending(&mut attempt, Ok(empty(code)), START);
        assert_eq!(decision, Decision::Fail(no_capacity(code)));
    }
    let decision = after_sending(&mut attempt, Ok(FleetAnswer::default()), START);
    let silent = Failure::InsufficientCapacity { refusals: String::new(), named: false };
    assert_eq!(decision, Decision::Fail(silent), "nothing is named that could be skipped");
    let decision = after_sending(&mut attempt, Ok(empty("UnauthorizedOperation")), START);
    assert_eq!(decision, Decision::RaiseAttempt { after: Millis::from_seconds(1) });
}

#[test]
fn response_is_final_even_after_a_lost_response() {
    let mut attempt = first();
    let _ = after_sending(&mut attempt, Err(lost()), START);
    let decision = after_sending(&mut attempt, Ok(empty("UnfulfillableCapacity")), START);
    assert_eq!(decision, Decision::Fail(no_capacity("UnfulfillableCapacity")));
}

#[test]
fn instances_are_adopted_and_remaining_claims_fail() {
    let mut attempt = first();
    let answer = FleetAnswer { instances: vec![instance("i-1")], errors: vec![refusal("UnfulfillableCapacity")] };
    let expected =
        Decision::Adopt { instances: vec![instance("i-1")], rest: Some(no_capacity("UnfulfillableCapacity")) };
    assert_eq!(after_sending(&mut attempt, Ok(answer), START), expected);
}

#[test]
fn throttled_instances_are_requested_again_for_ten_minutes() {
    let throttled = || Ok(empty("RequestLimitExceeded"));
    let (mut attempt, mut pauses) = (first(), Vec::new());
    let last = loop {
        match after_sending(&mut attempt, throttled(), START) {
            Decision::RaiseAttempt { after } => pauses.push(after.0 / 1000),
            other => break other,
        }
        attempt = attempt.raised(&group(), START);
    };
    assert_eq!(last, Decision::Fail(Failure::NotAccepted));
    assert_eq!(pauses[..7], [1, 2, 4, 8, 16, 32, 60]);
    assert_eq!(pauses.iter().sum::<u64>(), 603);

    let mut attempt = first();
    for _ in 0..MAX_ATTEMPTS {
        let _ = after_sending(&mut attempt, throttled(), START);
        attempt = attempt.raised(&group(), START);
    }
    let decision = after_sending(&mut attempt, Err(denied()), START);
    let again = Decision::RaiseAttempt { after: Millis::from_seconds(1) };
    assert_eq!(decision, again, "a refusal has attempts of its own");
}

#[test]
fn the_throttled_rest_of_a_launch_fails_as_such() {
    for (other, rest) in [
        ("UnfulfillableCapacity", Failure::Throttled),
        (
            "UnauthorizedOperation",
            Failure::Refused { code: "UnauthorizedOperation".to_owned(), message: "no".to_owned() },
        ),
    ] {
        let errors = ["RequestLimitExceeded", other].map(refusal).into();
        let answer = FleetAnswer { instances: vec![instance("i-1")], errors };
        let expected = Decision::Adopt { instances: vec![instance("i-1")], rest: Some(rest) };
        assert_eq!(after_sending(&mut first(), Ok(answer), START), expected);
    }
}

#[test]
fn of_several_refusals_the_one_that_is_no_lack_of_capacity_is_told() {
    let codes = ["AuthFailure.ServiceLinkedRoleCreationNotPermitted", "UnfulfillableCapacity", "UnauthorizedOperation"];
    let answer = FleetAnswer { instances: vec![instance("i-1")], errors: codes.map(refusal).into() };
    assert!(answer.errors[0].is_spot_role_missing());
    let rest = Some(Failure::Refused { code: "UnauthorizedOperation".to_owned(), message: "no".to_owned() });
    let expected = Decision::Adopt { instances: vec![instance("i-1")], rest };
    assert_eq!(after_sending(&mut first(), Ok(answer), START), expected);
}

#[test]
fn refusals_are_counted_by_code_with_the_first_message_of_each() {
    let refused = |code: &str, message: &str| OfferingError { message: message.to_owned(), ..refusal(code) };
    let errors = [refused("B", "first"), refused("A", "no"), refused("B", "second")];
    assert_eq!(summary(&errors), "A for 1: no; B for 2: first");
}

#[test]
fn absence_needs_two_reads_over_two_minutes() {
    let mut look_ups = LookUps::default();
    let again = Decision::LookUp { after: Millis::from_seconds(10) };
    assert_eq!(after_look_up(&mut look_ups, Vec::new(), 1, START), again);
    assert_eq!(after_look_up(&mut look_ups, Vec::new(), 1, START.plus(Millis(SETTLING.0 - 1))), again);
    let late = after_look_up(&mut look_ups, Vec::new(), 1, START.plus(SETTLING));
    assert_eq!(late, Decision::Fail(Failure::NothingFound));

    let mut one_late_read = LookUps { short_since: Some(START), reads: 0 };
    assert_eq!(after_look_up(&mut one_late_read, Vec::new(), 1, START.plus(SETTLING)), again, "one read is not enough");
}

#[test]
fn found_instances_are_adopted_while_the_rest_is_awaited() {
    let mut look_ups = LookUps::default();
    let found = || vec![instance("i-1")];
    let waiting = Decision::Adopt { instances: found(), rest: None };
    assert_eq!(after_look_up(&mut look_ups, found(), 2, START), waiting);
    let settled = Decision::Adopt { instances: found(), rest: Some(Failure::NothingFound) };
    assert_eq!(after_look_up(&mut look_ups, found(), 2, START.plus(SETTLING)), settled);
}

#[test]
fn a_request_is_sent_again_if_its_pause_ends_within_the_maximum_age() {
    let last = START.plus(Millis(MAX_RESEND_AGE.0 - 1000));
    let again = Decision::Send { after: Millis(1000) };
    assert_eq!(after_sending(&mut first(), Err(lost()), last), again);
    assert_eq!(after_sending(&mut first(), Err(CloudError::Throttled), last), again);
    let late = after_sending(&mut first(), Err(lost()), last.plus(Millis(1)));
    assert_eq!(late, Decision::LookUp { after: Millis(0) });
}

/// Without an earlier request, each of these says that nothing was launched.
#[test]
fn only_a_definite_refusal_that_may_pass_raises_the_attempt() {
    let invalid = |code: &str| CloudError::InvalidRequest { code: code.to_owned(), message: "no".to_owned() };
    let refused = |code: &str| Failure::Refused { code: code.to_owned(), message: "no".to_owned() };
    let again = || Decision::RaiseAttempt { after: Millis(1000) };
    let no_capacity = Failure::InsufficientCapacity { refusals: "no".to_owned(), named: false };
    let codes = ["InvalidParameterValue", "InvalidAMIID.NotFound", "InvalidLaunchTemplateName.MalformedException"];
    let finals = codes.map(|code| (invalid(code), Decision::Fail(refused(code))));
    for (error, expected) in [
        (denied(), again()),
        (CloudError::NotFound { message: "no".to_owned() }, again()),
        (invalid("InvalidLaunchTemplateName.NotFoundException"), again()),
        (invalid("InvalidLaunchTemplateId.VersionNotFound"), again()),
        (CloudError::InsufficientCapacity { message: "no".to_owned() }, Decision::Fail(no_capacity)),
    ]
    .into_iter()
    .chain(finals)
    {
        let shown = format!("{error:?}");
        assert_eq!(after_sending(&mut first(), Err(error), START), expected, "{shown}");
    }
}

#[test]
fn instances_for_all_claims_are_adopted_without_another_look() {
    for ids in [&["i-1", "i-2"][..], &["i-1", "i-2", "i-3"]] {
        let living: Vec<FleetInstance> = ids.iter().map(|id| instance(id)).collect();
        let decision = after_look_up(&mut LookUps::default(), living.clone(), 2, START);
        let rest = Some(Failure::NothingFound);
        assert_eq!(decision, Decision::Adopt { instances: living, rest });
    }
}

/// EC2 refuses the whole request, or reports the template for each offering.
#[test]
fn a_missing_template_is_found_in_each_kind_of_answer() {
    let whole = |code: &str| Err(CloudError::InvalidRequest { code: code.to_owned(), message: String::new() });
    let offerings = |codes: &[&str]| {
        Ok(FleetAnswer { instances: Vec::new(), errors: codes.iter().map(|code| refusal(code)).collect() })
    };
    let (missing, other) = ("InvalidLaunchTemplateName.NotFoundException", "InsufficientInstanceCapacity");
    for (outcome, expected) in [
        (whole(missing), true),
        (whole("InvalidParameterValue"), false),
        (Err(CloudError::Throttled), false),
        (offerings(&[other, missing]), true),
        (offerings(&[other]), false),
    ] {
        assert_eq!(names_missing_template(&outcome), expected, "{outcome:?}");
    }
}

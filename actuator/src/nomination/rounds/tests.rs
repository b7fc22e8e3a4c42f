use super::*;
use kube::core::Status;

fn answer(code: u16) -> WriteResult {
    let status = Status { code, message: format!("code {code}"), ..Status::default() };
    WriteResult::of::<()>(Ok(Err(kube::Error::Api(Box::new(status)))))
}

/// A round in which the pods with these numbers got these answers.
fn round(answers: impl IntoIterator<Item = (u32, WriteResult)>) -> Round {
    let mut round = Round::default();
    for (number, answer) in answers {
        let mut pod = Pod::default();
        pod.metadata.uid = Some(number.to_string());
        round.note(&pod, answer);
    }
    round
}

fn refused(pods: impl IntoIterator<Item = u32>) -> Round {
    round(pods.into_iter().map(|pod| (pod, answer(403))))
}

#[test]
fn refusals_of_a_few_pods_say_nothing_about_the_right() {
    let mut right = Right::default();
    for attempt in 0..100 {
        assert_eq!(right.after(&refused(0..9)), Conclusion::GoOn, "the same nine pods, attempt {attempt}");
    }
    assert_eq!(right.after(&refused([9])), Conclusion::Missing, "the tenth pod");
}

#[test]
fn a_permitted_write_shows_that_the_right_is_there() {
    for code in [404, 409] {
        let mut right = Right::default();
        assert_eq!(right.after(&refused(0..9)), Conclusion::GoOn);
        let mixed = (0..50).map(|pod| (pod, answer(if pod == 25 { code } else { 403 })));
        assert_eq!(right.after(&round(mixed)), Conclusion::GoOn, "{code}: its order in the round does not matter");
        assert_eq!(right.after(&refused(0..9)), Conclusion::GoOn, "{code}: counted anew");
    }
    let mut right = Right::default();
    right.after(&refused(0..9));
    right.after(&round([(0, WriteResult::Done)]));
    assert_eq!(right, Right::default());
}

#[test]
fn other_failures_say_nothing_about_the_right() {
    let mut right = Right::default();
    assert_eq!(right.after(&round((0..50).map(|pod| (pod, answer(500))))), Conclusion::GoOn);
    right.after(&refused(0..9));
    right.after(&round([(50, WriteResult::of::<()>(Err(NotAllowed::NotLeader)))]));
    right.after(&Round::default());
    assert_eq!(right.after(&refused([9])), Conclusion::Missing, "the failures between did not count");
}

#[test]
fn a_missing_right_is_reported_once_until_a_write_is_permitted() {
    let mut right = Right::default();
    assert_eq!(right.after(&refused(0..10)), Conclusion::Missing);
    // Ten pods are tried after the pause, too: the first ones may be refused for another reason.
    assert_eq!(right.after(&refused(0..9)), Conclusion::GoOn);
    assert_eq!(right.after(&refused(0..10)), Conclusion::StillMissing);
    assert_eq!(right.after(&round([(0, WriteResult::Done)])), Conclusion::GoOn);
    assert_eq!(right.after(&refused(0..10)), Conclusion::Missing);
}

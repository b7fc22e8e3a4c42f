//! `minValues` that a launch lowered.

use super::*;

#[test]
fn what_was_lowered_is_what_there_is() {
    let lowered = |case: &mut Case| Arc::make_mut(&mut case.plan.launches[0].requirements)[1].min_values = Some(1);
    rejected("2 values of node.kubernetes.io/instance-type, at least 1 are wanted", lowered);
    accepted(|case| {
        lowered(case);
        offerings(case).pop();
    });
    rejected("the requirement of the pool on node.kubernetes.io/instance-type is dropped", |case| {
        Arc::make_mut(&mut case.plan.launches[0].requirements)[1].min_values = None;
    });
}

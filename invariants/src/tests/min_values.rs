//! Tests of lowered `minValues`.

use super::*;

#[test]
fn lowered_min_values_equal_the_number_of_values() {
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

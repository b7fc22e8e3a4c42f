//! Moved pods keep their preferences as far as these can be satisfied.

use crate::input::context::SolveContext;
use crate::place::State;
use crate::place::pod_groups::PodGroup;
use crate::place::relaxation;
use std::collections::BTreeSet;

/// Tries to place `own` with all preferences, and then repeatedly with fewer preferences of the pods that the attempt
/// returns as unplaced. Changes of a failed attempt are undone, except for the work.
///
/// # Errors
/// UIDs of pods that cannot be placed even without preferences.
pub(super) fn give_up<'a, T>(
    context: &SolveContext<'a>,
    state: &mut State,
    own: Vec<PodGroup<'a>>,
    mut attempt: impl FnMut(&mut State, Vec<PodGroup<'a>>) -> Result<T, Vec<PodGroup<'a>>>,
) -> Result<T, BTreeSet<&'a str>> {
    let mut pod_groups = relaxation::strictest(context, own);
    loop {
        let missed = match state.attempt(|state| attempt(state, pod_groups.clone())) {
            Ok(done) => return Ok(done),
            Err(left) => relaxation::uids(&left),
        };
        let relaxed = relaxation::relaxed(context, &pod_groups, &missed, &BTreeSet::new());
        match relaxed.filter(|_| state.work > 0) {
            Some(relaxed) => pod_groups = relaxed,
            None => return Err(missed.into_iter().map(plimsoll_model::identity::PodUid::as_str).collect()),
        }
    }
}

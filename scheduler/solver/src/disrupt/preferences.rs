//! Moved pods keep what they prefer as far as there is a place for it.

use crate::input::context::SolveContext;
use crate::place::State;
use crate::place::pod_groups::PodGroup;
use crate::place::relaxation;
use std::collections::BTreeSet;

/// Attempts to place `own` with all that its pods prefer, and then again with less for those that the attempt returns
/// without a place. Changes of a failed attempt are undone, except for the work.
///
/// # Errors
/// UIDs of pods that have no place although nothing is preferred any more.
pub(super) fn give_up<'a, T>(
    context: &SolveContext<'a>,
    state: &mut State,
    own: Vec<PodGroup<'a>>,
    mut attempt: impl FnMut(&mut State, Vec<PodGroup<'a>>) -> Result<T, Vec<PodGroup<'a>>>,
) -> Result<T, BTreeSet<&'a str>> {
    let mut pod_groups = relaxation::strictest(context, own);
    loop {
        let mut missed = BTreeSet::new();
        let done = state.trial(|state| match attempt(state, pod_groups.clone()) {
            Ok(done) => Some(done),
            Err(left) => {
                missed = relaxation::uids(&left);
                None
            }
        });
        if let Some(done) = done {
            return Ok(done);
        }
        let relaxed = relaxation::relaxed(context, &pod_groups, &missed, &BTreeSet::new());
        match relaxed.filter(|_| state.work > 0) {
            Some(relaxed) => pod_groups = relaxed,
            None => return Err(missed.into_iter().map(plimsoll_model::identity::PodUid::as_str).collect()),
        }
    }
}

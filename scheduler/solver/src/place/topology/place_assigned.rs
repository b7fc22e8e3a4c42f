//! Assigns pods to domains and places them there. Domains that turn out too small get fewer pods, and domains that
//! share a limit share it evenly.

use super::assign::{Caps, assign_within};
use crate::input::context::SolveContext;
use crate::place::pod_groups::{self, PodGroup};
use crate::place::{self, Placed, State};
use crate::retries;
use crate::score::unplaced;
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::PodShape;
use std::collections::{BTreeMap, BTreeSet};

/// Plans with more pods try fewer assignments to share a limit: each takes as long as the plan.
const SHARING_PODS: usize = 500;

/// Places as many of `pod_groups` as topology allows.
pub(crate) fn place<'a>(context: &SolveContext<'a>, state: &mut State, pod_groups: Vec<PodGroup<'a>>) -> Placed<'a> {
    if !pod_groups.iter().any(|pod_group| context.topology.concerns(pod_group.shape)) {
        return place::place(context, state, pod_groups);
    }
    let limited = state.headroom.iter().flatten().any(Option::is_some);
    if !limited {
        return place_capped(context, state, pod_groups);
    }
    let before = state.clone();
    let capped = place_capped(context, state, pod_groups.clone());
    if unplaced(&capped) == 0 {
        return capped;
    }
    // A domain may be too small only because another domain has used up the limit that they share.
    let mut shared = before;
    shared.work = state.work;
    match place_sharing(context, &mut shared, &pod_groups) {
        Some(placed) if unplaced(&placed) < unplaced(&capped) => {
            *state = shared;
            placed
        }
        _ => capped,
    }
}

/// Assigns pods to domains and assigns fewer pods to domains that turn out too small.
fn place_capped<'a>(context: &SolveContext<'a>, state: &mut State, pod_groups: Vec<PodGroup<'a>>) -> Placed<'a> {
    let mut bounds = Bounds::default();
    let (mut pod_groups, mut refused) = (pod_groups, Vec::new());
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut short = Vec::new();
        let placed = state.trial(|state| {
            let attempt = place_once(context, state, pod_groups.clone(), &bounds);
            short = attempt.short;
            short.is_empty().then_some(attempt.placed)
        });
        if let Some(mut placed) = placed {
            placed.left.extend(refused);
            return placed;
        }
        bounds.caps.extend(short.iter().map(|short| (short.tuple.clone(), short.fitting)));
        if attempt >= retries::SEVERAL {
            // Give up shapes that still do not fit, so that the others keep their constraints. Each further attempt
            // gives up at least one shape.
            let (given_up, rest) = pod_groups
                .into_iter()
                .partition(|pod_group| short.iter().any(|short| short.tuple.0 == pod_group.shape));
            refused.extend::<Vec<PodGroup<'a>>>(given_up);
            pod_groups = rest;
        }
    }
}

/// Assigns fewer pods of each shape that does not fit, evenly over its domains, until all of them fit. Then adds single
/// pods as long as a domain has capacity for them. Returns `None` if no attempt succeeds.
fn place_sharing<'a>(context: &SolveContext<'a>, state: &mut State, pod_groups: &[PodGroup<'a>]) -> Option<Placed<'a>> {
    let mut bounds = Bounds::default();
    let mut best: Option<(usize, State, Placed<'a>)> = None;
    let mut assigned = Caps::new();
    let attempts = if pod_groups::count(pod_groups) > SHARING_PODS { retries::SEVERAL } else { retries::BY_HALVES };
    // Shapes with fewer assigned pods than requested.
    let mut reduced: BTreeSet<Id<PodShape>> = BTreeSet::new();
    let mut grown = None;
    for _ in 0..attempts {
        let mut tried = state.clone();
        let Attempt { placed, short, assigned: tried_with } =
            place_once(context, &mut tried, pod_groups.to_vec(), &bounds);
        state.work = tried.work;
        if !short.is_empty() {
            if best.is_some() {
                // The domain with one more pod has no capacity for it, or takes the capacity from another domain.
                for (tuple, pods) in tried_with {
                    let known = assigned.get(&tuple).copied().unwrap_or(0);
                    if pods > known {
                        bounds.caps.insert(tuple, known);
                    }
                }
            } else {
                reduced.extend(short.iter().map(|one| one.tuple.0));
                bounds.totals.extend(short.iter().map(|one| (one.tuple.0, one.fitting_in_all)));
            }
            continue;
        }
        let left = unplaced(&placed);
        if best.as_ref().is_none_or(|(known, ..)| left < *known) {
            (best, assigned) = (Some((left, tried, placed)), tried_with);
        } else if let Some(shape) = grown {
            // No domain of the shape has capacity for one more pod.
            reduced.remove(&shape);
        }
        let waits = |shape: &&Id<PodShape>| {
            best.iter().any(|(_, _, known)| known.left.iter().any(|pod_group| pod_group.shape == **shape))
        };
        grown = reduced.iter().find(waits).copied();
        let Some(shape) = grown else { break };
        *bounds.totals.entry(shape).or_default() += 1;
    }
    let (_, mut after, placed) = best?;
    after.work = state.work;
    *state = after;
    Some(placed)
}

/// Known capacity of domains and limits, in pods.
#[derive(Default)]
struct Bounds {
    caps: Caps,
    /// Per shape: maximum number of assigned pods over all domains.
    totals: BTreeMap<Id<PodShape>, usize>,
}

/// A domain tuple with capacity for fewer pods than it was assigned.
struct Short {
    /// Shape and domains, as in [`Caps`].
    tuple: (Id<PodShape>, BTreeMap<String, String>),
    fitting: usize,
    /// Number of the shape's pods that fit in all domain tuples together.
    fitting_in_all: usize,
}

/// Result of one assignment.
struct Attempt<'a> {
    /// Valid only if `short` is empty.
    placed: Placed<'a>,
    short: Vec<Short>,
    /// Number of assigned pods by shape and domain tuple.
    assigned: Caps,
}

/// Assigns pods to domains within `bounds` and places them there.
fn place_once<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    mut pod_groups: Vec<PodGroup<'a>>,
    bounds: &Bounds,
) -> Attempt<'a> {
    let beyond = split_off(&mut pod_groups, &bounds.totals);
    let (ready, waiting) = assign_within(context, state, pod_groups, &bounds.caps);
    let assigned = shares(&ready);
    let mut placed = place::place(context, state, ready);
    // Pods without relevant groups were counted before it was known whether they have a place.
    for pod_group in placed.left.iter().filter(|pod_group| pod_group.only.is_none()) {
        let count = i64::try_from(pod_group.pods.len()).unwrap_or(i64::MAX);
        state.counts.add_anywhere(context, pod_group.shape, -count);
    }
    let short_of = shares(&placed.left);
    let in_all = |shares: &Caps, shape: Id<PodShape>| -> usize {
        shares.iter().filter(|(tuple, _)| tuple.0 == shape).map(|(_, pods)| pods).sum()
    };
    let mut short = Vec::new();
    for (tuple, left) in &short_of {
        let fitting = assigned.get(tuple).copied().unwrap_or(0) - left;
        if fitting > 0 && context.topology.is_count_independent[tuple.0] {
            let count = i64::try_from(*left).unwrap_or(i64::MAX);
            state.counts.add(context, tuple.0, -count, None, |label| tuple.1.get(label).map(String::as_str));
            continue;
        }
        let fitting_in_all = in_all(&assigned, tuple.0) - in_all(&short_of, tuple.0);
        short.push(Short { tuple: tuple.clone(), fitting, fitting_in_all });
    }
    placed.left.extend(waiting);
    placed.left.extend(beyond);
    Attempt { placed, short, assigned }
}

/// Removes the last pods of shapes with more pods than `totals` allows, and returns them.
fn split_off<'a>(pod_groups: &mut Vec<PodGroup<'a>>, totals: &BTreeMap<Id<PodShape>, usize>) -> Vec<PodGroup<'a>> {
    let mut left = totals.clone();
    let mut beyond = Vec::new();
    for pod_group in pod_groups.iter_mut() {
        let Some(left) = left.get_mut(&pod_group.shape) else { continue };
        let kept = pod_group.pods.len().min(*left);
        *left -= kept;
        let rest = pod_group.pods.split_off(kept);
        if !rest.is_empty() {
            beyond.push(PodGroup { pods: rest, only: pod_group.only.clone(), ..*pod_group });
        }
    }
    pod_groups.retain(|pod_group| !pod_group.pods.is_empty());
    beyond
}

/// Number of pods by shape and domain tuple.
fn shares(pod_groups: &[PodGroup<'_>]) -> Caps {
    let mut shares = Caps::new();
    for pod_group in pod_groups {
        if let Some(only) = &pod_group.only {
            *shares.entry((pod_group.shape, only.values())).or_default() += pod_group.pods.len();
        }
    }
    shares
}

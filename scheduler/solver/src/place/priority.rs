//! Prefers pods of higher priority if not all pods can be placed.
//!
//! All pods are placed together at first, since this is cheapest. If a pod is unplaced while a pod of lower priority is
//! placed, priorities are placed one after another, each together with all higher ones.

use crate::input::context::SolveContext;
use crate::place::pod_groups::PodGroup;
use crate::place::relaxation;
use crate::place::{Placed, State};
use crate::retries;
use plimsoll_model::index::Id;
use plimsoll_model::snapshot::{Pod, PodShape};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Maximum number of distinct priorities; all lower ones count as one. Each requires placing all pods of higher
/// priorities again.
const MAX_PRIORITIES: usize = retries::LEVELS;

/// Places as many of `pod_groups` as possible, highest priority first.
pub(crate) fn place<'a>(context: &SolveContext<'a>, state: &mut State, pod_groups: Vec<PodGroup<'a>>) -> Placed<'a> {
    let together = state.trial(|state| {
        let placed = relaxation::place(context, state, pod_groups.clone());
        is_in_order(context, &pod_groups, &placed.left).then_some(placed)
    });
    if let Some(placed) = together {
        return placed;
    }
    let mut chosen: Vec<PodGroup<'a>> = Vec::new();
    let mut refused: Vec<PodGroup<'a>> = Vec::new();
    // If a whole priority cannot be added without displacing higher ones, its shapes are added one by one. The number
    // of pods of a shape is halved until they fit.
    let mut tries = retries::BY_HALVES;
    for pod_groups in by_priority(context, pod_groups) {
        if let Some(left) = join(context, state, &mut chosen, &pod_groups) {
            refused.extend(left);
            continue;
        }
        for pod_group in pod_groups {
            let mut count = pod_group.pods.len();
            while count > 0 {
                count = if tries > 0 { count } else { 0 };
                tries = tries.saturating_sub(1);
                let part = PodGroup { pods: pod_group.pods.iter().copied().take(count).collect(), ..pod_group.clone() };
                if let Some(left) = join(context, state, &mut chosen, &[part]) {
                    refused.extend(left);
                    break;
                }
                count /= 2;
            }
            let rest: Vec<&Pod> = pod_group.pods.into_iter().skip(count).collect();
            if !rest.is_empty() {
                refused.push(PodGroup::plain(context.relaxation.base(pod_group.shape), rest));
            }
        }
    }
    let mut placed = relaxation::place(context, state, chosen);
    placed.left.extend(refused);
    placed
}

/// Adds `pod_groups` to `chosen`, except for pods that cannot be placed, which are returned. `None` if a chosen pod
/// could not be placed then.
fn join<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    chosen: &mut Vec<PodGroup<'a>>,
    pod_groups: &[PodGroup<'a>],
) -> Option<Vec<PodGroup<'a>>> {
    let mut asked: Vec<PodGroup<'a>> =
        chosen.iter().chain(pod_groups).filter(|pod_group| !pod_group.pods.is_empty()).cloned().collect();
    let left = state.undone(|state| relaxation::place(context, state, asked.clone()).left);
    let out = relaxation::uids(&left);
    if !relaxation::uids(chosen).is_disjoint(&out) {
        return None;
    }
    asked.iter_mut().for_each(|pod_group| pod_group.pods.retain(|pod| !out.contains(&pod.uid)));
    asked.retain(|pod_group| !pod_group.pods.is_empty());
    *chosen = asked;
    Some(
        left.into_iter()
            .map(|pod_group| PodGroup::plain(context.relaxation.base(pod_group.shape), pod_group.pods))
            .collect(),
    )
}

/// Whether no pod is unplaced while a pod of lower priority is placed.
fn is_in_order(context: &SolveContext<'_>, pod_groups: &[PodGroup<'_>], left: &[PodGroup<'_>]) -> bool {
    let priority = |shape: Id<PodShape>| context.shapes[shape].shape.priority;
    let Some(highest) = left.iter().map(|pod_group| priority(pod_group.shape)).max() else { return true };
    let mut missing: BTreeMap<Id<PodShape>, usize> = BTreeMap::new();
    left.iter().for_each(|pod_group| {
        *missing.entry(context.relaxation.base(pod_group.shape)).or_default() += pod_group.pods.len();
    });
    let has_place =
        |pod_group: &PodGroup<'_>| pod_group.pods.len() > missing.get(&pod_group.shape).copied().unwrap_or(0);
    !pod_groups.iter().any(|pod_group| priority(pod_group.shape) < highest && has_place(pod_group))
}

/// Pod groups by priority, highest first.
fn by_priority<'a>(context: &SolveContext<'a>, pod_groups: Vec<PodGroup<'a>>) -> Vec<Vec<PodGroup<'a>>> {
    let mut groups: BTreeMap<Reverse<i32>, Vec<PodGroup<'a>>> = BTreeMap::new();
    for pod_group in pod_groups {
        let priority = context.shapes[pod_group.shape].shape.priority;
        groups.entry(Reverse(priority)).or_default().push(pod_group);
    }
    let mut all: Vec<Vec<PodGroup<'a>>> = groups.into_values().collect();
    if all.len() > MAX_PRIORITIES {
        let low = all.split_off(MAX_PRIORITIES - 1);
        all.push(low.into_iter().flatten().collect());
    }
    all
}

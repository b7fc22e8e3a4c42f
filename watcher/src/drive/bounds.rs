//! Bounds of one execution. A plan to execute is one message, and the actuator receives at most 16 MiB. The parts below
//! add up to less than 15 MiB, including the UIDs of virtual pods, which are sent a second time beside the launches.
//! What does not fit is sent with a later part of the plan or with a later plan.

use super::subset::subset;
use plimsoll_model::identity::{ActionId, PodUid};
use plimsoll_model::plan::{Placement, Plan, Reason, Termination, Unschedulable};
use plimsoll_proto::convert::{SharedLists, encoded_size};
use plimsoll_proto::plan::v1 as wire;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Maximum launches: as many as the actuator admits from one plan.
const MAX_LAUNCHES: usize = 512;

/// Maximum size of the launches. Distinct lists of offerings are about 16 kB each.
const MAX_LAUNCH_BYTES: usize = 5 << 20;

/// Maximum removals. Together with the launches, they are fewer than the actuator accepts in one plan (10,000).
const MAX_TERMINATIONS: usize = 5000;

/// Maximum size of the removals: some hundreds with a hundred pods each.
const MAX_TERMINATION_BYTES: usize = 5 << 19;

/// Maximum size of the placements on existing nodes: about 10,000 pods. They are hints.
const MAX_PLACEMENT_BYTES: usize = 1 << 20;

/// Maximum size of the unschedulable pods without their reasons: about 20,000 pods.
const MAX_UNSCHEDULABLE_BYTES: usize = 5 << 19;

/// Maximum size of all reasons.
const MAX_REASON_BYTES: usize = 3 << 19;

/// Maximum text of the reasons of one pod: the maximum message of an Event, so more would not be shown.
const MAX_TEXT_BYTES: usize = 1024;

/// The first actions of the plan that fit into one execution. A removal and its replacements stay together. Contains at
/// least one action if the plan does.
#[must_use]
pub fn first_actions(plan: Plan, is_virtual: impl Fn(&PodUid) -> bool) -> Plan {
    let chosen = first_launches(&plan);
    let terminations = first_terminations(&plan, &chosen);
    if chosen.len() == plan.launches.len() && terminations.len() == plan.terminations.len() {
        return plan;
    }
    let launches: BTreeSet<&ActionId> =
        chosen.iter().filter_map(|index| plan.launches.get(*index)).map(|launch| &launch.action_id).collect();
    subset(&plan, |it| launches.contains(&it.action_id), |it| terminations.contains(&it.action_id), is_virtual)
}

/// Indices of the first launches that fit. A launch is chosen together with the other replacements of the removals that
/// it serves, because a removal is sent only with all of its replacements.
fn first_launches(plan: &Plan) -> BTreeSet<usize> {
    let mut served: BTreeMap<usize, Vec<&Termination>> = BTreeMap::new();
    for termination in &plan.terminations {
        for index in &termination.replaced_by {
            served.entry(*index).or_default().push(termination);
        }
    }
    let (mut chosen, mut bytes, mut shared) = (BTreeSet::new(), 0_usize, SharedLists::default());
    for index in 0..plan.launches.len() {
        if chosen.contains(&index) {
            continue;
        }
        let others = served.get(&index).into_iter().flatten().flat_map(|it| it.replaced_by.iter().copied());
        let unit: BTreeSet<usize> = others.chain([index]).filter(|index| !chosen.contains(index)).collect();
        let launches = unit.iter().filter_map(|index| plan.launches.get(*index));
        let size: usize = launches.map(|launch| encoded_size(&shared.launch(launch))).sum();
        let fits = chosen.len() + unit.len() <= MAX_LAUNCHES && bytes + size <= MAX_LAUNCH_BYTES;
        if !fits && !chosen.is_empty() {
            break;
        }
        chosen.extend(unit);
        bytes += size;
    }
    chosen
}

/// The first removals that fit, of those whose replacements are chosen.
fn first_terminations(plan: &Plan, launches: &BTreeSet<usize>) -> BTreeSet<ActionId> {
    let (mut chosen, mut bytes) = (BTreeSet::new(), 0_usize);
    let ready = |one: &&Termination| one.replaced_by.iter().all(|index| launches.contains(index));
    for termination in plan.terminations.iter().filter(ready) {
        let size = encoded_size(&wire::Termination::from(termination));
        let fits = chosen.len() < MAX_TERMINATIONS && bytes + size <= MAX_TERMINATION_BYTES;
        if !fits && !chosen.is_empty() {
            break;
        }
        chosen.insert(termination.action_id.clone());
        bytes += size;
    }
    chosen
}

/// The first placements that fit.
#[must_use]
pub fn first_placements(mut placements: Vec<Placement>) -> Vec<Placement> {
    let sizes = placements.iter().map(|placement| encoded_size(&wire::Placement::from(placement)));
    let fitting = fitting(sizes, MAX_PLACEMENT_BYTES);
    placements.truncate(fitting);
    placements
}

/// Which pods are sent with reasons next, if not all reasons fit into one execution. The actuator needs all
/// unschedulable pods, because it replaces a node by a similar one if no plan names any of its pods. It needs the
/// reasons only for Events.
#[derive(Debug, Clone, Default)]
pub struct ReasonCursor {
    /// Position of the first pod that is sent with reasons next.
    from: usize,
    /// Pods of the present list that have not been sent with their reasons.
    remaining: usize,
}

impl ReasonCursor {
    /// A new list of this many pods is sent. The cursor stays where it is, so that each pod is reached although the
    /// list changes all the time.
    pub fn restart(&mut self, pods: usize) {
        self.remaining = pods;
    }

    /// Whether all pods of the list have been sent with their reasons.
    #[must_use]
    pub fn is_complete(&self) -> bool {
        self.remaining == 0
    }

    /// The list as it is sent: with the reasons of the next pods only, at least of one pod.
    #[must_use]
    pub fn next(&mut self, mut list: Vec<Unschedulable>) -> Vec<Unschedulable> {
        let sizes = list.iter().map(|one| {
            encoded_size(&wire::Unschedulable { pod: Some((&one.pod).into()), ..wire::Unschedulable::default() })
        });
        let pods = fitting(sizes, MAX_UNSCHEDULABLE_BYTES);
        list.truncate(pods);
        if pods == 0 {
            return list;
        }
        let start = self.from % pods;
        let sizes = list
            .iter()
            .cycle()
            .skip(start)
            .take(pods)
            .map(|one| shown(&one.reasons).iter().map(|reason| encoded_size(&wire::Reason::from(reason))).sum());
        let given = fitting(sizes, MAX_REASON_BYTES);
        for (index, one) in list.iter_mut().enumerate() {
            let sent = if (index + pods - start) % pods < given { shown(&one.reasons) } else { &[] };
            if sent.len() < one.reasons.len() {
                one.reasons = Arc::new(sent.to_vec());
            }
        }
        self.from = (start + given) % pods;
        self.remaining = self.remaining.min(pods).saturating_sub(given);
        list
    }
}

/// The first reasons of a pod, as many as an Event shows.
fn shown(reasons: &[Reason]) -> &[Reason] {
    let sizes = reasons.iter().map(|reason| reason.node_pool.len() + reason.message.len());
    reasons.get(..fitting(sizes, MAX_TEXT_BYTES)).unwrap_or_default()
}

/// How many of the first items fit into `max`. The first one always does.
fn fitting(sizes: impl Iterator<Item = usize>, max: usize) -> usize {
    let mut sum = 0_usize;
    let fits = |(index, size): &(usize, usize)| {
        sum = sum.saturating_add(*size);
        *index == 0 || sum <= max
    };
    sizes.enumerate().take_while(fits).count()
}

#[cfg(test)]
mod tests;

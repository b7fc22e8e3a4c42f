//! Assigns pods to domain tuples, the emptiest first.

use super::domain_tuples::DomainTuple;
use super::group_constraint::GroupConstraint;
use crate::input::context::SolveContext;
use crate::input::existing_nodes::takes_some;
use crate::place::hostname_topology::HostRule;
use crate::place::pod_groups::{self, PodGroup};
use crate::place::{State, allowed, put_some};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::{Pod, PodShape};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Number of pods that fit, by shape and domain tuple.
pub(crate) type Caps = BTreeMap<(Id<PodShape>, BTreeMap<String, String>), usize>;

/// Assigns domains to pod groups. Returns the assigned pod groups and the pods without a domain.
pub(crate) fn assign<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
) -> (Vec<PodGroup<'a>>, Vec<PodGroup<'a>>) {
    if pod_groups.iter().any(|pod_group| context.topology.concerns(pod_group.shape)) {
        assign_within(context, state, pod_groups, &Caps::new())
    } else {
        (pod_groups, Vec::new())
    }
}

/// Like [`assign`], but assigns no more pods to a domain tuple than its cap.
pub(super) fn assign_within<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
    caps: &Caps,
) -> (Vec<PodGroup<'a>>, Vec<PodGroup<'a>>) {
    if !state.moving {
        return assign_all(context, state, pod_groups, caps);
    }
    // The capacity that assigned pods reserve is free again when they are placed.
    let (assigned, counts) = state.undone(|state| {
        let assigned = assign_all(context, state, pod_groups, caps);
        (assigned, state.counts.clone())
    });
    state.counts = counts;
    assigned
}

/// Assigns one group after another.
fn assign_all<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
    caps: &Caps,
) -> (Vec<PodGroup<'a>>, Vec<PodGroup<'a>>) {
    let mut ready = Vec::new();
    let mut waiting = pod_groups;
    // Pods go before the pods that must follow them: first by number of required hostname affinities, then pods without
    // relevant groups, then pods that only other pods' groups select, then pods with the fewest domain tuples. Large
    // pods go before small ones.
    waiting.sort_by_cached_key(|pod_group| {
        let topology = &context.topology;
        let bound =
            match (topology.relevant(pod_group.shape).is_empty(), topology.shapes[pod_group.shape].owns.is_empty()) {
                (true, _) => 0,
                (false, true) => 1,
                (false, false) => 2,
            };
        let requests = std::cmp::Reverse(context.shapes[pod_group.shape].requests.clone());
        // Pods can give up preferences, so only the choice of the base shape counts.
        let choice = context.tuples(context.relaxation.base(pod_group.shape)).all.len();
        (
            topology.host_affinities(pod_group.shape).count(),
            bound,
            choice,
            requests,
            context.relaxation.order(pod_group.shape),
        )
    });
    let mut used = Caps::new();
    // Hostname groups of circles whose owners are assigned already.
    let mut followed: BTreeSet<Id<HostRule>> = BTreeSet::new();
    let in_circle =
        |pod_group: &PodGroup<'_>| context.topology.follows_in_circle(context.relaxation.base(pod_group.shape));
    let any_circle = waiting.iter().any(in_circle);
    let mut patient = any_circle;
    loop {
        let before = pod_groups::count(&waiting);
        let mut rest = Vec::new();
        for pod_group in std::mem::take(&mut waiting) {
            let shape = context.relaxation.base(pod_group.shape);
            let there = |group: &Id<HostRule>| state.counts.hosts[*group] > 0;
            let follows: Vec<Id<HostRule>> = context.topology.hosts_in_circles(shape).filter(there).collect();
            // The others of a circle come first, as long as they can be assigned.
            if (patient && !follows.is_empty()) || context.topology.closes_circle(shape, &followed) {
                rest.push(pod_group);
                continue;
            }
            let assigned = ready.len();
            rest.extend(assign_group(context, state, pod_group, caps, &mut used, &mut ready));
            if ready.len() > assigned {
                followed.extend(follows);
            }
            if state.moving {
                ready.iter().skip(assigned).for_each(|pod_group| reserve(context, state, pod_group));
            }
        }
        waiting = rest;
        let after = pod_groups::count(&waiting);
        if after == 0 || (after == before && !patient) {
            return (ready, waiting);
        }
        patient = any_circle && after < before;
    }
}

/// Assigns the pods of one group and returns the rest. `used` counts the pods assigned to domain tuples with a cap.
fn assign_group<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    mut pod_group: PodGroup<'a>,
    caps: &Caps,
    used: &mut Caps,
    ready: &mut Vec<PodGroup<'a>>,
) -> Option<PodGroup<'a>> {
    let shape = pod_group.shape;
    pod_group.on_one_node = false;
    let Some(starts) = starts_a_host(context, state, shape) else { return Some(pod_group) };
    // No host has a member yet: the pods start together on one host.
    pod_group.on_one_node = starts;
    let tuples = context.tuples(shape);
    let relevant = context.topology.relevant(shape);
    if relevant.is_empty() {
        let count = i64::try_from(pod_group.pods.len()).unwrap_or(i64::MAX);
        // The pods go wherever there is capacity.
        state.counts.add_anywhere(context, shape, count);
        ready.push(pod_group);
        return None;
    }
    let mut assigned: IndexVec<DomainTuple, usize> = IndexVec::filled(0, tuples.all.len());
    let cap = |tuple: &DomainTuple| {
        let key = (shape, tuple.values.clone());
        let cap = caps.get(&key).copied().unwrap_or(usize::MAX);
        cap.saturating_sub(used.get(&key).copied().unwrap_or(0))
    };
    let most: IndexVec<DomainTuple, usize> =
        tuples.all.iter().map(|tuple| if caps.is_empty() { usize::MAX } else { cap(tuple) }).collect();
    let mut constraints: Vec<GroupConstraint<'_>> =
        relevant.iter().map(|group| GroupConstraint::new(context, state, shape, *group, &tuples)).collect();
    // Pods that a spread constrains but does not count fill no domain. They are divided evenly over the domain tuples,
    // or all go to the preferred zone if one is set.
    let spread = || constraints.iter().filter(|one| one.owner && one.spreads());
    let counted = spread().next().is_none() || spread().any(|one| one.itself);
    let evenly = context.topology.evenly && spread().filter(|one| one.itself).count() > 1;
    // Pods that start on one host are in one domain tuple.
    let mut started = None;
    let prefers = |tuple: &DomainTuple| {
        state.preferred_zone.as_ref().is_some_and(|zone| tuple.values.values().any(|one| one == zone))
    };
    let preferred: IndexVec<DomainTuple, bool> = tuples.all.iter().map(prefers).collect();
    // Existing nodes cost nothing, as long as they have room.
    let room_of = |tuple: &DomainTuple| room_on_nodes(context, state, &pod_group, tuple);
    let room: IndexVec<DomainTuple, usize> = tuples.all.iter().map(room_of).collect();
    let at_once = if pod_group.on_one_node { pod_group.pods.len() } else { 1 };
    let mut picked = Vec::with_capacity(pod_group.pods.len());
    for _ in 0..pod_group.pods.len() {
        let fits = |index: Id<DomainTuple>, even: bool| {
            assigned[index] < most[index]
                && started.is_none_or(|one| one == index)
                && constraints.iter().all(|one| one.permits(index, even))
        };
        // Moved pods need no new node in a domain with room, even if it is not the emptiest one. But if the pods that
        // stay are too uneven, the emptiest domains come first.
        let by_room = state.moving && constraints.iter().all(GroupConstraint::holds);
        let rank = |index: &Id<DomainTuple>| {
            let lacks_room = by_room && assigned[*index] + at_once > room[*index];
            let among = |some: fn(&GroupConstraint<'_>) -> bool| -> i64 {
                constraints.iter().filter(|one| some(one)).map(|one| one.domain_count(*index)).sum()
            };
            // In a large plan, pods that other pods' spreads count fill the domains evenly from the start. Otherwise
            // the constrained pods may find no domain that satisfies all of their spreads.
            let counted_pods = if state.even { among(|one| one.itself) } else { 0 };
            let domain_count = if counted {
                among(|one| one.owner)
            } else if state.preferred_zone.is_some() {
                0
            } else {
                i64::try_from(assigned[*index]).unwrap_or(i64::MAX)
            };
            let on_tuple = if evenly { assigned[*index] } else { 0 };
            let without_launch = if assigned[*index] < room[*index] { 0 } else { i64::MAX };
            let price = tuples.all[*index].price.unwrap_or(without_launch);
            (lacks_room, counted_pods, domain_count, on_tuple, !preferred[*index], price, *index)
        };
        let pick = |even: bool| tuples.all.ids().filter(|index| fits(*index, even)).min_by_key(rank);
        let best = if state.even { pick(true).or_else(|| pick(false)) } else { pick(false) };
        let Some(best) = best else { break };
        assigned[best] += 1;
        picked.push(best);
        started = started.or_else(|| pod_group.on_one_node.then_some(best));
        constraints.iter_mut().for_each(|one| one.add(best));
    }
    // Keep the order of assignment: kube-scheduler schedules pods one after another, and each spread must hold after
    // every pod.
    let mut shares: IndexVec<DomainTuple, Vec<&Pod>> =
        assigned.iter().map(|count| Vec::with_capacity(*count)).collect();
    for (pod, index) in pod_group.pods.drain(..picked.len()).zip(picked) {
        shares[index].push(pod);
    }
    for (tuple, pods) in tuples.all.iter().zip(shares).filter(|(_, pods)| !pods.is_empty()) {
        let (count, values) = (pods.len(), &tuple.values);
        let by = i64::try_from(count).unwrap_or(i64::MAX);
        state.counts.add(context, shape, by, None, |key| values.get(key).map(String::as_str));
        if !caps.is_empty() {
            *used.entry((shape, values.clone())).or_default() += count;
        }
        ready.push(PodGroup { shape, pods, only: Some(Rc::clone(&tuple.only)), on_one_node: pod_group.on_one_node });
    }
    (!pod_group.pods.is_empty()).then_some(pod_group)
}

/// Whether pods of the shape start a group on a host. `None` if they must wait for other pods.
fn starts_a_host(context: &SolveContext<'_>, state: &State, shape: Id<PodShape>) -> Option<bool> {
    let rules = &context.topology;
    let (there, nowhere): (Vec<Id<HostRule>>, Vec<Id<HostRule>>) =
        rules.host_affinities(shape).partition(|group| state.counts.hosts[*group] > 0);
    let own = |group: &Id<HostRule>| rules.hosts[shape].matches.contains(group);
    let starts =
        |group: &Id<HostRule>| own(group) && !rules.is_started(&state.counts, shape, &rules.host_groups[*group]);
    // The pods wait if only pods of other shapes can start one of their groups. They also wait if they would start a
    // group of their own instead of following the existing one.
    let waits = !nowhere.iter().all(starts) || (!nowhere.is_empty() && there.iter().any(own));
    (!waits).then_some(!nowhere.is_empty())
}

/// Number of the group's pods that fit on existing nodes of a domain tuple, or on one of them if the group must stay
/// together. Not counted, and 0, if new nodes can be launched there and the pods are not moved.
fn room_on_nodes(
    context: &SolveContext<'_>,
    state: &mut State,
    pod_group: &PodGroup<'_>,
    tuple: &DomainTuple,
) -> usize {
    if tuple.price.is_some() && !state.moving {
        return 0;
    }
    let mut room = 0;
    for node in tuple.only.nodes.iter() {
        if room >= pod_group.pods.len() || state.work == 0 {
            break;
        }
        state.work -= 1;
        if allowed(context, node, state.search) {
            let here = takes_some(context, node, state.room(node), pod_group);
            room = if pod_group.on_one_node { here.max(room) } else { here + room };
        }
    }
    room
}

/// Uses capacity of existing nodes for pods that are assigned to a domain, so that further groups see what is left.
fn reserve<'a>(context: &SolveContext<'a>, state: &mut State, pod_group: &PodGroup<'a>) {
    let Some(only) = &pod_group.only else { return };
    let (mut left, mut existing) = (pod_group.clone(), BTreeMap::new());
    for node in only.nodes.iter() {
        if left.pods.is_empty() || state.work == 0 {
            break;
        }
        state.work -= 1;
        if allowed(context, node, state.search) {
            put_some(context, state, node, &mut left, &mut existing);
        }
    }
}

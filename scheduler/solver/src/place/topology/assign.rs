//! Pods are dealt out to domains, the emptiest first; then each domain's share is placed like any other pod group.

use super::domain_tuples::DomainTuple;
use super::group_constraint::GroupConstraint;
use crate::input::context::SolveContext;
use crate::place::pod_groups::{Only, PodGroup};
use crate::place::{self, Placed, Search, State};
use crate::score::unplaced;
use plimsoll_model::snapshot::Pod;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// How many pods of a shape a domain tuple turned out to have room for.
pub(crate) type Caps = BTreeMap<(usize, BTreeMap<String, String>), usize>;

/// How often pods are assigned anew after a domain turned out to be too small. Each time at least one share shrinks.
const ATTEMPTS: usize = 8;

/// How often pods are assigned anew to share a limit: about so many are needed to halve their number until they fit,
/// then to add single pods.
const SHARING_ATTEMPTS: usize = 24;
/// Plans for more pods are assigned anew as often as without limits: each attempt takes as long as the plan.
const SHARING_PODS: usize = 500;

/// Places as many of `pod_groups` as it can, within what topology allows.
pub(crate) fn place<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
    search: Search,
) -> Placed<'a> {
    if !pod_groups.iter().any(|pod_group| context.topology.concerns(pod_group.shape)) {
        return place::place(context, state, pod_groups, search);
    }
    let limited = state.headroom.iter().flatten().any(Option::is_some);
    if !limited {
        return place_capped(context, state, pod_groups, search);
    }
    let before = state.clone();
    let capped = place_capped(context, state, pod_groups.clone(), search);
    if unplaced(&capped) == 0 {
        return capped;
    }
    // A domain may be short only because another one has used up the limit that they share.
    let mut shared = before;
    shared.work = state.work;
    match place_sharing(context, &mut shared, &pod_groups, search) {
        Some(placed) if unplaced(&placed) < unplaced(&capped) => {
            *state = shared;
            placed
        }
        _ => capped,
    }
}

/// Assigns pods to domains, with fewer for those that turn out to be too small.
fn place_capped<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
    search: Search,
) -> Placed<'a> {
    let mut bounds = Bounds::default();
    let (mut pod_groups, mut refused) = (pod_groups, Vec::new());
    let mut attempt = 0;
    loop {
        attempt += 1;
        let mut short = Vec::new();
        let placed = state.trial(|state| {
            let attempt = place_once(context, state, pod_groups.clone(), &bounds, search);
            short = attempt.short;
            short.is_empty().then_some(attempt.placed)
        });
        if let Some(mut placed) = placed {
            placed.left.extend(refused);
            return placed;
        }
        bounds.caps.extend(short.iter().map(|short| (short.tuple.clone(), short.fitting)));
        if attempt >= ATTEMPTS {
            // Shapes that still do not come out are given up, so that the others keep to their rules: one at least goes
            // each time.
            let (given_up, rest) = pod_groups
                .into_iter()
                .partition(|pod_group| short.iter().any(|short| short.tuple.0 == pod_group.shape));
            refused.extend::<Vec<PodGroup<'a>>>(given_up);
            pod_groups = rest;
        }
    }
}

/// Assigns fewer pods of each shape that does not fit, evenly over its domains, until all fit; then single pods more as
/// long as a domain has room for them. `None` if that comes to nothing in time.
fn place_sharing<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: &[PodGroup<'a>],
    search: Search,
) -> Option<Placed<'a>> {
    let mut bounds = Bounds::default();
    let mut best: Option<(usize, State, Placed<'a>)> = None;
    let mut assigned = Caps::new();
    let pods: usize = pod_groups.iter().map(|pod_group| pod_group.pods.len()).sum();
    let attempts = if pods > SHARING_PODS { ATTEMPTS } else { SHARING_ATTEMPTS };
    // Shapes of which fewer pods are assigned than there are.
    let mut reduced: BTreeSet<usize> = BTreeSet::new();
    let mut grown = None;
    for _ in 0..attempts {
        let mut tried = state.clone();
        let Attempt { placed, short, assigned: tried_with } =
            place_once(context, &mut tried, pod_groups.to_vec(), &bounds, search);
        state.work = tried.work;
        if !short.is_empty() {
            if best.is_some() {
                // The domain that was to take one more has no room for it, or takes it from another one.
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
            // None of its domains has room for one more.
            reduced.remove(&shape);
        }
        let waits = |shape: &&usize| {
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

/// What is known of how many pods domains and limits have room for.
#[derive(Default)]
struct Bounds {
    caps: Caps,
    /// Pods of a shape that are assigned at most, over all domains.
    totals: BTreeMap<usize, usize>,
}

/// A domain tuple that has room for fewer pods than it was assigned.
struct Short {
    /// See [`Caps`].
    tuple: (usize, BTreeMap<String, String>),
    fitting: usize,
    /// How many of the shape fit in all domain tuples.
    fitting_in_all: usize,
}

/// What came of one assignment.
struct Attempt<'a> {
    /// Holds only if no domain tuple is short.
    placed: Placed<'a>,
    short: Vec<Short>,
    /// Pods by domain tuple.
    assigned: Caps,
}

/// Assigns pods to domains within `bounds` and places them there.
fn place_once<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    mut pod_groups: Vec<PodGroup<'a>>,
    bounds: &Bounds,
    search: Search,
) -> Attempt<'a> {
    let beyond = split_off(&mut pod_groups, &bounds.totals);
    let (ready, waiting) = assign_within(context, state, pod_groups, &bounds.caps);
    let all: Vec<Share> = ready.iter().filter_map(Share::of).collect();
    let mut placed = place::place(context, state, ready, search);
    let short_of = shares(placed.left.iter().filter_map(Share::of));
    let assigned = shares(all.into_iter());
    let in_all = |shares: &Caps, shape: usize| -> usize {
        shares.iter().filter(|(tuple, _)| tuple.0 == shape).map(|(_, pods)| pods).sum()
    };
    let mut short = Vec::new();
    for (tuple, left) in &short_of {
        let fitting = assigned.get(tuple).copied().unwrap_or(0) - left;
        if fitting > 0 && context.topology.lenient[tuple.0] {
            let count = i64::try_from(*left).unwrap_or(i64::MAX);
            state.counts.add(context, tuple.0, -count, |label| tuple.1.get(label).map(String::as_str));
            continue;
        }
        let fitting_in_all = in_all(&assigned, tuple.0) - in_all(&short_of, tuple.0);
        short.push(Short { tuple: tuple.clone(), fitting, fitting_in_all });
    }
    placed.left.extend(waiting);
    placed.left.extend(beyond);
    Attempt { placed, short, assigned }
}

/// Takes the last pods of shapes of which there are more than `totals` allow, and returns these.
fn split_off<'a>(pod_groups: &mut Vec<PodGroup<'a>>, totals: &BTreeMap<usize, usize>) -> Vec<PodGroup<'a>> {
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

/// Pods of a shape in a domain tuple.
struct Share {
    shape: usize,
    only: Rc<Only>,
    pods: usize,
}

impl Share {
    fn of(pod_group: &PodGroup<'_>) -> Option<Self> {
        let only = Rc::clone(pod_group.only.as_ref()?);
        Some(Self { shape: pod_group.shape, only, pods: pod_group.pods.len() })
    }
}

fn shares(all: impl Iterator<Item = Share>) -> Caps {
    let mut shares = Caps::new();
    for share in all {
        *shares.entry((share.shape, share.only.values())).or_default() += share.pods;
    }
    shares
}

/// Pod groups with their domains, and those that have none.
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

/// The same, with no share above its cap.
fn assign_within<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
    caps: &Caps,
) -> (Vec<PodGroup<'a>>, Vec<PodGroup<'a>>) {
    let mut ready = Vec::new();
    let mut waiting = pod_groups;
    // Those that others wait for first; those that nothing binds, then those that only others look at, then those with
    // the least choice, so that whoever must follow finds them there; large ones before small ones.
    waiting.sort_by_cached_key(|pod_group| {
        let topology = &context.topology;
        let bound =
            match (topology.relevant(pod_group.shape).is_empty(), topology.shapes[pod_group.shape].owns.is_empty()) {
                (true, _) => 0,
                (false, true) => 1,
                (false, false) => 2,
            };
        let requests = std::cmp::Reverse(context.shapes[pod_group.shape].requests.clone());
        // What pods only prefer they can give up.
        let choice = context.tuples(context.relaxation.base(pod_group.shape)).all.len();
        (topology.joins(pod_group.shape).count(), bound, choice, requests, context.relaxation.order(pod_group.shape))
    });
    let mut last = Vec::new();
    if context.topology.waits {
        let shapes: Vec<usize> = waiting.iter().map(|pod_group| pod_group.shape).collect();
        (last, waiting) =
            waiting.into_iter().partition(|pod_group| context.topology.counts_any(pod_group.shape, &shapes));
    }
    let mut used = Caps::new();
    loop {
        let before: usize = waiting.iter().map(|pod_group| pod_group.pods.len()).sum();
        let mut rest = Vec::new();
        for pod_group in std::mem::take(&mut waiting) {
            let left = deal(context, state, pod_group, caps, &mut used, &mut ready);
            rest.extend(left);
        }
        waiting = rest;
        let after: usize = waiting.iter().map(|pod_group| pod_group.pods.len()).sum();
        if after == 0 || after == before {
            if last.is_empty() {
                return (ready, waiting);
            }
            waiting.append(&mut last);
        }
    }
}

/// Deals out one pod group; what is left of it. `used` is what domain tuples with a cap have been given.
fn deal<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    mut pod_group: PodGroup<'a>,
    caps: &Caps,
    used: &mut Caps,
    ready: &mut Vec<PodGroup<'a>>,
) -> Option<PodGroup<'a>> {
    let shape = pod_group.shape;
    pod_group.whole = false;
    let membership = &context.topology.hosts[shape];
    let (there, nowhere): (Vec<usize>, Vec<usize>) =
        context.topology.joins(shape).partition(|group| state.counts.hosts[*group] > 0);
    let own = |group: &usize| membership.matches.contains(group);
    // They wait for others; or they would start a group of their own where they do not follow the one that there is.
    if !nowhere.iter().all(own) || (!nowhere.is_empty() && there.iter().any(own)) {
        return Some(pod_group);
    }
    // Nobody is there: they start on one host together.
    pod_group.whole = !nowhere.is_empty();
    let tuples = context.tuples(shape);
    let relevant = context.topology.relevant(shape);
    if relevant.is_empty() {
        let count = i64::try_from(pod_group.pods.len()).unwrap_or(i64::MAX);
        // They go wherever there is room; where they ask for one domain it is known.
        let selector = &context.shapes[shape].shape.node_selector;
        state.counts.add(context, shape, count, |key| crate::input::pool_requirements::lookup(selector, key));
        ready.push(pod_group);
        return None;
    }
    let mut dealt: Vec<usize> = vec![0; tuples.all.len()];
    let cap = |tuple: &DomainTuple| {
        let key = (shape, tuple.values.clone());
        let cap = caps.get(&key).copied().unwrap_or(usize::MAX);
        cap.saturating_sub(used.get(&key).copied().unwrap_or(0))
    };
    let most: Vec<usize> =
        tuples.all.iter().map(|tuple| if caps.is_empty() { usize::MAX } else { cap(tuple) }).collect();
    let mut asked: Vec<GroupConstraint<'_>> =
        relevant.iter().map(|group| GroupConstraint::new(context, state, shape, *group, &tuples)).collect();
    // Pods that a spread binds but does not count fill no domain: they are wherever there is room, or all in the zone
    // that is favoured.
    let spread = || asked.iter().filter(|one| one.owner && one.spreads());
    let counted = spread().next().is_none() || spread().any(|one| one.itself);
    let evenly = context.topology.evenly && spread().filter(|one| one.itself).count() > 1;
    // Those that start on one host are in one domain tuple.
    let mut started = None;
    let favours =
        |tuple: &DomainTuple| state.favoured.as_ref().is_some_and(|zone| tuple.values.values().any(|one| one == zone));
    let favoured: Vec<bool> = tuples.all.iter().map(favours).collect();
    let mut picked = Vec::with_capacity(pod_group.pods.len());
    for _ in 0..pod_group.pods.len() {
        let fits = |index: usize, even: bool| {
            dealt[index] < most[index]
                && started.is_none_or(|one| one == index)
                && asked.iter().all(|one| one.permits(index, even))
        };
        let rank = |index: &usize| {
            let among = |some: fn(&GroupConstraint<'_>) -> bool| -> i64 {
                asked.iter().filter(|one| some(one)).map(|one| one.domain_count(*index)).sum()
            };
            // In a large plan those that others count fill domains evenly from the start, or else those others find no
            // domain that does for all.
            let crowded = if state.even { among(|one| one.itself) } else { 0 };
            let domain_count = if counted {
                among(|one| one.owner)
            } else if state.favoured.is_some() {
                0
            } else {
                i64::try_from(dealt[*index]).unwrap_or(i64::MAX)
            };
            let assigned = if evenly { dealt[*index] } else { 0 };
            (crowded, domain_count, assigned, !favoured[*index], tuples.all[*index].price.unwrap_or(i64::MAX), *index)
        };
        let pick = |even: bool| (0..tuples.all.len()).filter(|index| fits(*index, even)).min_by_key(rank);
        let best = if state.even { pick(true).or_else(|| pick(false)) } else { pick(false) };
        let Some(best) = best else { break };
        dealt[best] += 1;
        picked.push(best);
        started = started.or_else(|| pod_group.whole.then_some(best));
        asked.iter_mut().for_each(|one| one.add(best));
    }
    // In turn: kube-scheduler takes them one after another, and each spread is to hold after every one of them.
    let mut shares: Vec<Vec<&Pod>> = dealt.iter().map(|count| Vec::with_capacity(*count)).collect();
    for (pod, index) in pod_group.pods.drain(..picked.len()).zip(picked) {
        shares[index].push(pod);
    }
    for (index, pods) in shares.into_iter().enumerate().filter(|(_, pods)| !pods.is_empty()) {
        let (count, values) = (pods.len(), &tuples.all[index].values);
        state
            .counts
            .add(context, shape, i64::try_from(count).unwrap_or(i64::MAX), |key| values.get(key).map(String::as_str));
        if !caps.is_empty() {
            *used.entry((shape, values.clone())).or_default() += count;
        }
        ready.push(PodGroup { shape, pods, only: Some(Rc::clone(&tuples.all[index].only)), whole: pod_group.whole });
    }
    (!pod_group.pods.is_empty()).then_some(pod_group)
}

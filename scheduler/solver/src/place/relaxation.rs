//! Preferences: honoured as if they were required, then given up one after another, by those pods alone that find no place.
//!
//! A shape that prefers something becomes a list of levels of shapes: on the first level everything it prefers is required, on the last,
//! which is the shape itself, nothing is. Pods step down by pod group, not one by one.

use crate::input::context::{SolveContext, tolerated};
use crate::place::pod_groups::{self, PodGroup};
use crate::place::topology;
use crate::place::{Placed, Search, State};
use crate::retries;
use crate::score::Score;
use plimsoll_model::identity::{PodUid, ShapeId};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::plan::PreferencePolicy;
use plimsoll_model::requirements::NodeSelectorTerm;
use plimsoll_model::snapshot::{Pod, PodShape, Snapshot};
use plimsoll_model::taints::{Taint, TaintEffect};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Levels above a shape at most: what is preferred beyond that falls away at once. Few pods prefer more than three things.
const LEVELS: usize = retries::LEVELS;
/// How often pods step down by one level. Whoever still has no place then gives up all that is left to prefer, so that
/// pods nobody can place do not have everything packed anew for each of their preferences.
const STEPS: usize = retries::SEVERAL;
/// Pods placed in search of the one shape whose preferences cost others their places; beyond that all give theirs up.
const TRIALS: usize = 1_000;
/// What all may cost at most, for what they cost otherwise, so that some pods of a shape are apart as they prefer while others of it cannot
/// be: three for two.
const PART: (i64, i64) = (2, 3);

/// Which shapes of the snapshot stand for which others.
#[derive(Debug, Clone, Default)]
pub(crate) struct RelaxationLevels {
    /// Per shape: the one that the pods have.
    base: IndexVec<PodShape, Id<PodShape>>,
    /// Per shape that pods have: its levels, hardest first; the last is itself.
    levels: IndexVec<PodShape, Vec<Id<PodShape>>>,
}

impl RelaxationLevels {
    /// The ladders of shapes that have so many levels above them each. Levels are numbered from behind the last shape.
    pub(crate) fn new(above: &[usize]) -> Self {
        let mut relaxation = Self { base: (0..above.len()).map(Id::new).collect(), levels: IndexVec::new() };
        for count in above.iter().copied() {
            let (shape, first) = (Id::new(relaxation.levels.len()), relaxation.base.len());
            relaxation.levels.push((first..first + count).map(Id::new).chain([shape]).collect());
            relaxation.base.extend(std::iter::repeat_n(shape, count));
        }
        relaxation
    }

    /// How many levels a shape that pods have was given above it.
    pub(crate) fn above(&self, shape: Id<PodShape>) -> usize {
        self.levels.try_get(shape).map_or(0, |levels| levels.len().saturating_sub(1))
    }

    /// The shape that the pods have.
    pub(crate) fn base(&self, shape: Id<PodShape>) -> Id<PodShape> {
        self.base.try_get(shape).copied().unwrap_or(shape)
    }

    /// Nothing that it only prefers is asked for, and taints that are to be avoided are no matter.
    pub(crate) fn is_required_only(&self, shape: Id<PodShape>) -> bool {
        self.base(shape) == shape
    }

    /// Leaves out levels that `possible` says nobody can stand on.
    pub(crate) fn keep(&mut self, possible: impl Fn(Id<PodShape>) -> bool) {
        for levels in &mut self.levels {
            let last = levels.last().copied();
            levels.retain(|shape| Some(*shape) == last || possible(*shape));
        }
    }

    /// Orders shapes so that pods which still ask for more come before those of the same kind that gave it up: they could not follow them.
    pub(crate) fn order(&self, shape: Id<PodShape>) -> (Id<PodShape>, bool, Id<PodShape>) {
        (self.base(shape), self.is_required_only(shape), shape)
    }

    pub(crate) fn strictest(&self, shape: Id<PodShape>) -> Id<PodShape> {
        self.levels.try_get(self.base(shape)).and_then(|levels| levels.first()).copied().unwrap_or(shape)
    }

    fn next(&self, shape: Id<PodShape>) -> Option<Id<PodShape>> {
        let levels = self.levels.try_get(self.base(shape))?;
        let here = levels.iter().position(|level| *level == shape)?;
        levels.get(here + 1).copied()
    }
}

/// Taints of pools and nodes that are to be avoided.
pub(crate) fn unwanted(snapshot: &Snapshot) -> Vec<Taint> {
    let taints =
        snapshot.node_pools.iter().map(|pool| &pool.taints).chain(snapshot.nodes.iter().map(|node| &node.taints));
    let mut unwanted: Vec<&Taint> =
        taints.flatten().filter(|taint| taint.effect == TaintEffect::PreferNoSchedule).collect();
    unwanted.sort();
    unwanted.dedup();
    unwanted.into_iter().cloned().collect()
}

/// The levels above `shape`, hardest first. `unwanted` are the taints that are to be avoided.
pub(crate) fn levels(shape: &PodShape, unwanted: &[Taint], policy: PreferencePolicy) -> Vec<PodShape> {
    let mut above = if policy == PreferencePolicy::Respect { strict_levels(shape) } else { Vec::new() };
    if !tolerated(unwanted, &shape.tolerations, false) {
        above.push(avoiding(shape, above.len()));
    }
    above
}

/// Of these, those on which something that it prefers is required.
fn strict_levels(shape: &PodShape) -> Vec<PodShape> {
    let mut left = shape.clone();
    // A preferred term that says nothing prefers nothing.
    left.preferred_node_affinity.retain(|one| one.term != NodeSelectorTerm::default());
    // Heaviest first; of equal weight in the pod's order.
    left.preferred_node_affinity.sort_by_key(|one| Reverse(one.weight));
    let mut all = Vec::new();
    while all.len() < LEVELS {
        let mut level = required(&left);
        level.id = ShapeId(format!("{}~{}", shape.id, all.len()));
        if !relax(&mut left) {
            break;
        }
        all.push(level);
    }
    all
}

/// The last level above `shape`: nothing that it only prefers, but no taint that is to be avoided.
fn avoiding(shape: &PodShape, number: usize) -> PodShape {
    let mut level = shape.clone();
    level.id = ShapeId(format!("{}~{number}", shape.id));
    level.preferred_node_affinity.clear();
    level.topology_spread.retain(|one| one.required);
    level.pod_affinity.retain(|one| one.weight.is_none());
    level
}

/// `left` with what it prefers required: of preferred node affinity the heaviest term alone, all else together.
fn required(left: &PodShape) -> PodShape {
    let mut level = left.clone();
    if let Some(heaviest) = left.preferred_node_affinity.first() {
        if level.required_node_affinity.is_empty() {
            level.required_node_affinity.push(NodeSelectorTerm::default());
        }
        for term in &mut level.required_node_affinity {
            term.expressions.extend(heaviest.term.expressions.iter().cloned());
            term.fields.extend(heaviest.term.fields.iter().cloned());
        }
    }
    level.preferred_node_affinity.clear();
    level.topology_spread.iter_mut().for_each(|one| one.required = true);
    level
}

/// Gives up what Karpenter gives up first: preferred pod affinity, pod anti-affinity and node affinity, the heaviest of each first, then
/// spread that is no more than wished for. False if there is nothing left to give up.
fn relax(left: &mut PodShape) -> bool {
    for anti in [false, true] {
        let weights = left.pod_affinity.iter().enumerate().filter(|(_, one)| one.anti == anti);
        let heaviest = weights.filter_map(|(index, one)| Some((Reverse(one.weight?), index))).min();
        if let Some((_, index)) = heaviest {
            left.pod_affinity.remove(index);
            return true;
        }
    }
    if !left.preferred_node_affinity.is_empty() {
        left.preferred_node_affinity.remove(0);
        return true;
    }
    let wish = left.topology_spread.iter().position(|one| !one.required);
    wish.map(|index| left.topology_spread.remove(index)).is_some()
}

/// `pod_groups` with all that their pods prefer, as far as that is possible anywhere.
pub(crate) fn strictest<'a>(context: &SolveContext<'a>, pod_groups: Vec<PodGroup<'a>>) -> Vec<PodGroup<'a>> {
    pod_groups
        .into_iter()
        .map(|pod_group| PodGroup { shape: context.relaxation.strictest(pod_group.shape), ..pod_group })
        .collect()
}

/// `pod_groups` with those pods that are in `missed` one level further down, those in `stuck` all the way. `None` if none of them can give up anything.
pub(crate) fn relaxed<'a>(
    context: &SolveContext<'a>,
    pod_groups: &[PodGroup<'a>],
    missed: &BTreeSet<&PodUid>,
    stuck: &BTreeSet<&PodUid>,
) -> Option<Vec<PodGroup<'a>>> {
    let mut changed = false;
    let mut all: BTreeMap<Id<PodShape>, Vec<&'a Pod>> = BTreeMap::new();
    for pod_group in pod_groups {
        let next = context.relaxation.next(pod_group.shape);
        for pod in pod_group.pods.iter().copied() {
            let down = next.filter(|_| missed.contains(&pod.uid));
            changed |= down.is_some();
            let down = down.map(|next| if stuck.contains(&pod.uid) { context.relaxation.base(next) } else { next });
            all.entry(down.unwrap_or(pod_group.shape)).or_default().push(pod);
        }
    }
    changed.then(|| pod_groups::plain(all))
}

/// UIDs of all pods of `pod_groups`.
pub(crate) fn uids<'a>(pod_groups: &[PodGroup<'a>]) -> BTreeSet<&'a PodUid> {
    pod_groups.iter().flat_map(|pod_group| &pod_group.pods).map(|pod| &pod.uid).collect()
}

/// Places as many of `pod_groups` as it can: with all that they prefer, then with less for those that found no place.
pub(crate) fn place<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
    search: Search,
) -> Placed<'a> {
    let mut other = None;
    let placed = state.trial(|state| {
        let (placed, pod_groups) = relax_stepwise(context, state, pod_groups, search);
        match alike(context, &pod_groups) {
            Some(alike) => {
                other = Some((Score::of(context, &placed), pod_groups, alike));
                None
            }
            None => Some(placed),
        }
    });
    if let Some(placed) = placed {
        return placed;
    }
    let Some((known, pod_groups, alike)) = other else { return Placed::default() };
    let cheaper = state.trial(|state| {
        let placed = topology::place(context, state, alike, search);
        let score = Score::of(context, &placed);
        let cheaper = score.price().saturating_mul(PART.1) < known.price().saturating_mul(PART.0);
        (score.unplaced <= known.unplaced && cheaper).then_some(placed)
    });
    cheaper.unwrap_or_else(|| topology::place(context, state, pod_groups, search))
}

/// `pod_groups` in which pods that would rather keep apart do so only where all of their shape can. `None` if all can.
fn alike<'a>(context: &SolveContext<'a>, pod_groups: &[PodGroup<'a>]) -> Option<Vec<PodGroup<'a>>> {
    let apart = |shape: Id<PodShape>| {
        let terms = &context.shapes[shape].shape.pod_affinity;
        terms.iter().filter(|one| one.anti && one.weight.is_some()).count()
    };
    // Per shape of the pods: the levels they are on. A level further down has less to prefer.
    let mut levels: BTreeMap<Id<PodShape>, BTreeSet<(usize, Id<PodShape>)>> = BTreeMap::new();
    for pod_group in pod_groups {
        let wishes = if context.relaxation.is_required_only(pod_group.shape) { 0 } else { apart(pod_group.shape) };
        levels.entry(context.relaxation.base(pod_group.shape)).or_default().insert((wishes, pod_group.shape));
    }
    let differ = |all: &&BTreeSet<(usize, Id<PodShape>)>| all.first().map(|one| one.0) != all.last().map(|one| one.0);
    levels.values().find(differ)?;
    let mut all: BTreeMap<Id<PodShape>, Vec<&'a Pod>> = BTreeMap::new();
    for pod_group in pod_groups {
        let least = levels.get(&context.relaxation.base(pod_group.shape)).filter(differ).and_then(|all| all.first());
        all.entry(least.map_or(pod_group.shape, |one| one.1)).or_default().extend(&pod_group.pods);
    }
    Some(pod_groups::plain(all))
}

/// With all that they prefer, then with less for those that found no place, all being placed anew, so that pods which gave something up share
/// nodes with the others. With the pod groups that it came to.
fn relax_stepwise<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
    search: Search,
) -> (Placed<'a>, Vec<PodGroup<'a>>) {
    let mut pod_groups = strictest(context, pod_groups);
    for step in 0.. {
        if pod_groups.iter().all(|pod_group| context.relaxation.is_required_only(pod_group.shape)) {
            break;
        }
        let (mut lower, mut kept) = (None, None);
        let placed = state.trial(|state| {
            let placed = topology::place(context, state, pod_groups.clone(), search);
            let missed = uids(&placed.left);
            if missed.is_empty() {
                return Some(placed);
            }
            lower = relaxed(context, &pod_groups, &missed, &BTreeSet::new());
            // Whoever finds no place beside the others even without any preference is not helped by giving one up.
            let rest = topology::place(context, state, required_only(context, &placed.left), search);
            let stuck = uids(&rest.left);
            if lower.is_none() || stuck.len() == missed.len() {
                kept = Some(missed.len());
                return None;
            }
            let stuck = if step >= STEPS || state.work == 0 { &missed } else { &stuck };
            lower = relaxed(context, &pod_groups, &missed, stuck);
            None
        });
        if let Some(placed) = placed {
            return (placed, pod_groups);
        }
        pod_groups = match kept {
            None => lower.unwrap_or_default(),
            Some(left) => match relax_for_others(context, state, &pod_groups, search, left) {
                Some(fewer) => fewer,
                None => break,
            },
        };
    }
    let mut placed = topology::place(context, state, pod_groups.clone(), search);
    placed.left = required_only(context, &placed.left);
    (placed, pod_groups)
}

/// `pod_groups` with less to prefer for some that have a place, so that fewer than `left` pods go without one: no pod pays with its place for what
/// another only prefers. Of one shape alone, if that helps; `None` if nothing does.
fn relax_for_others<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: &[PodGroup<'a>],
    search: Search,
    left: usize,
) -> Option<Vec<PodGroup<'a>>> {
    let mut without = |pod_groups: &[PodGroup<'a>]| {
        let mut count = usize::MAX;
        state.trial(|state| -> Option<()> {
            let placed = topology::place(context, state, pod_groups.to_vec(), search);
            count = placed.left.iter().map(|pod_group| pod_group.pods.len()).sum();
            None
        });
        count
    };
    let all = required_only(context, pod_groups);
    if without(&all) >= left {
        return None;
    }
    let wishing = pod_groups.iter().filter(|pod_group| !context.relaxation.is_required_only(pod_group.shape));
    let wishing: BTreeSet<Id<PodShape>> = wishing.map(|pod_group| context.relaxation.base(pod_group.shape)).collect();
    let pods: usize = pod_groups.iter().map(|pod_group| pod_group.pods.len()).sum();
    if pods.saturating_mul(wishing.len()) > TRIALS {
        return Some(all);
    }
    let modest = |base: Id<PodShape>| {
        let (own, others): (Vec<PodGroup<'a>>, Vec<PodGroup<'a>>) =
            pod_groups.iter().cloned().partition(|pod_group| context.relaxation.base(pod_group.shape) == base);
        others.into_iter().chain(required_only(context, &own)).collect::<Vec<PodGroup<'a>>>()
    };
    let tried = wishing.iter().map(|base| (without(&modest(*base)), *base)).min();
    Some(tried.filter(|(count, _)| *count < left).map_or(all, |(_, base)| modest(base)))
}

/// `pod_groups` without anything that their pods only prefer.
pub(crate) fn required_only<'a>(context: &SolveContext<'a>, pod_groups: &[PodGroup<'a>]) -> Vec<PodGroup<'a>> {
    let mut all: BTreeMap<Id<PodShape>, Vec<&'a Pod>> = BTreeMap::new();
    for pod_group in pod_groups {
        all.entry(context.relaxation.base(pod_group.shape)).or_default().extend(&pod_group.pods);
    }
    pod_groups::plain(all)
}

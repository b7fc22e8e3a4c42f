//! Preferences: they are required at first, and then given up one after another, only by pods that cannot be placed.
//!
//! A shape with preferences has several levels. On the first level its preferences are required: of preferred node
//! affinity the heaviest term, of all others all. The last level is the shape itself, without preferences. Pods move
//! from level to level by pod group, not one by one.

use crate::input::context::{SolveContext, tolerated};
use crate::place::pod_groups::{self, PodGroup};
use crate::place::topology;
use crate::place::{Placed, State};
use crate::retries;
use crate::score::{Score, unplaced};
use plimsoll_model::identity::{PodUid, ShapeId};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::plan::PreferencePolicy;
use plimsoll_model::requirements::NodeSelectorTerm;
use plimsoll_model::snapshot::{Pod, PodShape, Snapshot};
use plimsoll_model::taints::{Taint, TaintEffect};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of levels of a shape besides itself. Preferences beyond this number are given up at once. Few pods
/// have more than three preferences.
const LEVELS: usize = retries::LEVELS;
/// Maximum number of steps by one level. Pods that are still unplaced then give up all remaining preferences. Otherwise
/// unschedulable pods would cause all pods to be packed again for each of their preferences.
const STEPS: usize = retries::SEVERAL;
/// Maximum number of pods that are placed to find the one shape whose preferences prevent other pods from being placed.
/// With more, all shapes give up their preferences.
const TRIALS: usize = 1_000;
/// Ratio of costs. If only some pods of a shape can be kept apart as they prefer, they are kept apart unless the plan
/// without this preference costs less than this fraction.
const PART: (i64, i64) = (2, 3);

/// Relaxation levels of the snapshot's shapes.
#[derive(Debug, Clone, Default)]
pub(crate) struct RelaxationLevels {
    /// Per shape: the shape that the pods have.
    base: IndexVec<PodShape, Id<PodShape>>,
    /// Per shape of the snapshot: its levels, strictest first. The last is the shape itself.
    levels: IndexVec<PodShape, Vec<Id<PodShape>>>,
}

impl RelaxationLevels {
    /// Creates levels: `above` is the number of levels of each shape besides itself. Levels are numbered from the last
    /// shape on.
    pub(crate) fn new(above: &[usize]) -> Self {
        let mut relaxation = Self { base: (0..above.len()).map(Id::new).collect(), levels: IndexVec::new() };
        for count in above.iter().copied() {
            let (shape, first) = (Id::new(relaxation.levels.len()), relaxation.base.len());
            relaxation.levels.push((first..first + count).map(Id::new).chain([shape]).collect());
            relaxation.base.extend(std::iter::repeat_n(shape, count));
        }
        relaxation
    }

    /// Number of levels of a shape of the snapshot besides itself.
    pub(crate) fn above(&self, shape: Id<PodShape>) -> usize {
        self.levels.try_get(shape).map_or(0, |levels| levels.len().saturating_sub(1))
    }

    /// The shape that the pods have.
    pub(crate) fn base(&self, shape: Id<PodShape>) -> Id<PodShape> {
        self.base.try_get(shape).copied().unwrap_or(shape)
    }

    /// Whether the shape requires none of its preferences and ignores PreferNoSchedule taints.
    pub(crate) fn is_required_only(&self, shape: Id<PodShape>) -> bool {
        self.base(shape) == shape
    }

    /// Removes levels for which `possible` is false.
    pub(crate) fn keep(&mut self, possible: impl Fn(Id<PodShape>) -> bool) {
        for levels in &mut self.levels {
            let last = levels.last().copied();
            levels.retain(|shape| Some(*shape) == last || possible(*shape));
        }
    }

    /// Sort key of shapes. Pods that still require preferences come before pods of the same base shape that gave them
    /// up, because they cannot be placed wherever the latter can.
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

/// PreferNoSchedule taints of pools and nodes.
pub(crate) fn unwanted(snapshot: &Snapshot) -> Vec<Taint> {
    let taints =
        snapshot.node_pools.iter().map(|pool| &pool.taints).chain(snapshot.nodes.iter().map(|node| &node.taints));
    let mut unwanted: Vec<&Taint> =
        taints.flatten().filter(|taint| taint.effect == TaintEffect::PreferNoSchedule).collect();
    unwanted.sort();
    unwanted.dedup();
    unwanted.into_iter().cloned().collect()
}

/// The levels of `shape` besides itself, strictest first. `unwanted` are the PreferNoSchedule taints.
pub(crate) fn levels(shape: &PodShape, unwanted: &[Taint], policy: PreferencePolicy) -> Vec<PodShape> {
    let mut above = if policy == PreferencePolicy::Respect { strict_levels(shape) } else { Vec::new() };
    if !tolerated(unwanted, &shape.tolerations, false) {
        above.push(avoiding(shape, above.len()));
    }
    above
}

/// The levels on which some preference is required.
fn strict_levels(shape: &PodShape) -> Vec<PodShape> {
    let mut left = shape.clone();
    // An empty preferred term has no effect.
    left.preferred_node_affinity.retain(|one| one.term != NodeSelectorTerm::default());
    // Heaviest first; terms of equal weight in the order of the pod.
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

/// The last level before `shape` itself: without preferences, but respecting PreferNoSchedule taints.
fn avoiding(shape: &PodShape, number: usize) -> PodShape {
    let mut level = shape.clone();
    level.id = ShapeId(format!("{}~{number}", shape.id));
    level.preferred_node_affinity.clear();
    level.topology_spread.retain(|one| one.required);
    level.pod_affinity.retain(|one| one.weight.is_none());
    level
}

/// Makes the preferences of `left` required: the heaviest preferred node affinity term, and all other preferences.
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

/// Gives up one preference in Karpenter's order: preferred pod affinity, pod anti-affinity and node affinity, the
/// heaviest of each first, then preferred topology spread. Returns false if there is no preference.
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
    let preferred = left.topology_spread.iter().position(|one| !one.required);
    preferred.map(|index| left.topology_spread.remove(index)).is_some()
}

/// `pod_groups` on their strictest levels that are possible anywhere.
pub(crate) fn strictest<'a>(context: &SolveContext<'a>, pod_groups: Vec<PodGroup<'a>>) -> Vec<PodGroup<'a>> {
    pod_groups
        .into_iter()
        .map(|pod_group| PodGroup { shape: context.relaxation.strictest(pod_group.shape), ..pod_group })
        .collect()
}

/// Moves pods of `missed` to the next level, and those that are also in `stuck` to the last level. `None` if no pod has
/// a further level.
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

pub(crate) fn uids<'a>(pod_groups: &[PodGroup<'a>]) -> BTreeSet<&'a PodUid> {
    pod_groups.iter().flat_map(|pod_group| &pod_group.pods).map(|pod| &pod.uid).collect()
}

/// Places as many of `pod_groups` as possible: with all preferences first, then with fewer preferences of the unplaced
/// pods.
pub(crate) fn place<'a>(context: &SolveContext<'a>, state: &mut State, pod_groups: Vec<PodGroup<'a>>) -> Placed<'a> {
    let stepwise = state.attempt(|state| {
        let (placed, pod_groups) = relax_stepwise(context, state, pod_groups);
        match with_equal_levels(context, &pod_groups) {
            Some(equal_levels) => Err((Score::of(context, &placed), pod_groups, equal_levels)),
            None => Ok(placed),
        }
    });
    let (known, pod_groups, equal_levels) = match stepwise {
        Ok(placed) => return placed,
        Err(other) => other,
    };
    let cheaper = state.trial(|state| {
        let placed = topology::place(context, state, equal_levels);
        let score = Score::of(context, &placed);
        let cheaper = score.price().saturating_mul(PART.1) < known.price().saturating_mul(PART.0);
        (score.unplaced <= known.unplaced && cheaper).then_some(placed)
    });
    cheaper.unwrap_or_else(|| topology::place(context, state, pod_groups))
}

/// If pods of one shape differ in their preferred anti-affinity, moves all pods of the shape to the level with the
/// least. `None` if there is no such shape.
fn with_equal_levels<'a>(context: &SolveContext<'a>, pod_groups: &[PodGroup<'a>]) -> Option<Vec<PodGroup<'a>>> {
    let apart = |shape: Id<PodShape>| {
        let terms = &context.shapes[shape].shape.pod_affinity;
        terms.iter().filter(|one| one.anti && one.weight.is_some()).count()
    };
    // Per base shape: the levels of its pods. Further levels have fewer preferences.
    let mut levels: BTreeMap<Id<PodShape>, BTreeSet<(usize, Id<PodShape>)>> = BTreeMap::new();
    for pod_group in pod_groups {
        let preferences = if context.relaxation.is_required_only(pod_group.shape) { 0 } else { apart(pod_group.shape) };
        levels.entry(context.relaxation.base(pod_group.shape)).or_default().insert((preferences, pod_group.shape));
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

/// Places pods with all preferences first, then with fewer preferences of the unplaced pods. All pods are placed again
/// in each step, so that pods that gave up a preference can share nodes with others. Also returns the final pod groups.
fn relax_stepwise<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: Vec<PodGroup<'a>>,
) -> (Placed<'a>, Vec<PodGroup<'a>>) {
    let mut pod_groups = strictest(context, pod_groups);
    for step in 0.. {
        if pod_groups.iter().all(|pod_group| context.relaxation.is_required_only(pod_group.shape)) {
            break;
        }
        let attempt = state.attempt(|state| {
            let placed = topology::place(context, state, pod_groups.clone());
            let missed = uids(&placed.left);
            if missed.is_empty() {
                return Ok(placed);
            }
            // Giving up one preference does not help pods that cannot be placed in addition to the others even without
            // preferences.
            let rest = topology::place(context, state, required_only(context, &placed.left));
            let stuck = uids(&rest.left);
            let last = if step >= STEPS || state.work == 0 { &missed } else { &stuck };
            let lower = relaxed(context, &pod_groups, &missed, last).filter(|_| stuck.len() < missed.len());
            Err((lower, missed.len()))
        });
        let (lower, left) = match attempt {
            Ok(placed) => return (placed, pod_groups),
            Err(other) => other,
        };
        let fewer = lower.or_else(|| relax_for_others(context, state, &pod_groups, left));
        let Some(fewer) = fewer else { break };
        pod_groups = fewer;
    }
    let mut placed = topology::place(context, state, pod_groups.clone());
    placed.left = required_only(context, &placed.left);
    (placed, pod_groups)
}

/// Gives up preferences of placed pods so that fewer than `left` pods are unplaced: a preference must not prevent
/// another pod from being placed. Only one shape gives up its preferences if this helps. `None` if nothing helps.
fn relax_for_others<'a>(
    context: &SolveContext<'a>,
    state: &mut State,
    pod_groups: &[PodGroup<'a>],
    left: usize,
) -> Option<Vec<PodGroup<'a>>> {
    let mut without = |pod_groups: &[PodGroup<'a>]| {
        state.undone(|state| unplaced(&topology::place(context, state, pod_groups.to_vec())))
    };
    let all = required_only(context, pod_groups);
    if without(&all) >= left {
        return None;
    }
    let with_preferences = pod_groups.iter().filter(|pod_group| !context.relaxation.is_required_only(pod_group.shape));
    let with_preferences: BTreeSet<Id<PodShape>> =
        with_preferences.map(|pod_group| context.relaxation.base(pod_group.shape)).collect();
    if pod_groups::count(pod_groups).saturating_mul(with_preferences.len()) > TRIALS {
        return Some(all);
    }
    let modest = |base: Id<PodShape>| {
        let (own, others): (Vec<PodGroup<'a>>, Vec<PodGroup<'a>>) =
            pod_groups.iter().cloned().partition(|pod_group| context.relaxation.base(pod_group.shape) == base);
        others.into_iter().chain(required_only(context, &own)).collect::<Vec<PodGroup<'a>>>()
    };
    let tried = with_preferences.iter().map(|base| (without(&modest(*base)), *base)).min();
    Some(tried.filter(|(count, _)| *count < left).map_or(all, |(_, base)| modest(base)))
}

/// `pod_groups` on their last levels, without preferences.
fn required_only<'a>(context: &SolveContext<'a>, pod_groups: &[PodGroup<'a>]) -> Vec<PodGroup<'a>> {
    let mut all: BTreeMap<Id<PodShape>, Vec<&'a Pod>> = BTreeMap::new();
    for pod_group in pod_groups {
        all.entry(context.relaxation.base(pod_group.shape)).or_default().extend(&pod_group.pods);
    }
    pod_groups::plain(all)
}

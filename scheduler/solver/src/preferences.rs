//! Preferences: honoured as if they were required, then given up one after another, by those pods alone that find no place.
//!
//! A shape that prefers something becomes a ladder of shapes: on the first rung everything it prefers is required, on the last,
//! which is the shape itself, nothing is. Pods step down by lot, not one by one.

use crate::lots::{self, Lot};
use crate::place::{Placed, Search, State};
use crate::score::Score;
use crate::topology;
use crate::world::{World, tolerated};
use plimsoll_model::identity::{PodUid, ShapeId};
use plimsoll_model::plan::PreferencePolicy;
use plimsoll_model::requirements::NodeSelectorTerm;
use plimsoll_model::snapshot::{Pod, PodShape, Snapshot};
use plimsoll_model::taints::{Taint, TaintEffect};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Rungs above a shape at most: what is preferred beyond that falls away at once. Few pods prefer more than three things.
const RUNGS: usize = 16;
/// How often pods step down by one rung. Whoever still has no place then gives up all that is left to prefer, so that
/// pods nobody can place do not have everything packed anew for each of their preferences.
const STEPS: usize = 6;
/// Pods placed in search of the one shape whose preferences cost others their places; beyond that all give theirs up.
const TRIALS: usize = 1_000;
/// What all may cost at most, for what they cost otherwise, so that some pods of a shape are apart as they prefer while others of it cannot
/// be: three for two.
const PART: (i64, i64) = (2, 3);

/// Which shapes of the snapshot stand for which others.
#[derive(Debug, Clone, Default)]
pub(crate) struct Ladders {
    /// Per shape: the one that the pods have.
    base: Vec<usize>,
    /// Per shape that pods have: its rungs, hardest first; the last is itself.
    rungs: Vec<Vec<usize>>,
}

impl Ladders {
    /// The ladders of shapes that have so many rungs above them each. Rungs are numbered from behind the last shape.
    pub(crate) fn new(above: &[usize]) -> Self {
        let mut ladders = Self { base: (0..above.len()).collect(), rungs: Vec::with_capacity(above.len()) };
        for (shape, count) in above.iter().copied().enumerate() {
            let first = ladders.base.len();
            ladders.rungs.push((first..first + count).chain([shape]).collect());
            ladders.base.extend(std::iter::repeat_n(shape, count));
        }
        ladders
    }

    /// How many rungs a shape that pods have was given above it.
    pub(crate) fn above(&self, shape: usize) -> usize {
        self.rungs.get(shape).map_or(0, |rungs| rungs.len().saturating_sub(1))
    }

    /// The shape that the pods have.
    pub(crate) fn base(&self, shape: usize) -> usize {
        self.base.get(shape).copied().unwrap_or(shape)
    }

    /// Nothing that it only prefers is asked for, and taints that are to be avoided are no matter.
    pub(crate) fn is_bare(&self, shape: usize) -> bool {
        self.base(shape) == shape
    }

    /// Leaves out rungs that `possible` says nobody can stand on.
    pub(crate) fn keep(&mut self, possible: impl Fn(usize) -> bool) {
        for rungs in &mut self.rungs {
            let last = rungs.last().copied();
            rungs.retain(|shape| Some(*shape) == last || possible(*shape));
        }
    }

    /// Orders shapes so that pods which still ask for more come before those of the same kind that gave it up: they could not follow them.
    pub(crate) fn order(&self, shape: usize) -> (usize, bool, usize) {
        (self.base(shape), self.is_bare(shape), shape)
    }

    pub(crate) fn hardest(&self, shape: usize) -> usize {
        self.rungs.get(self.base(shape)).and_then(|rungs| rungs.first()).copied().unwrap_or(shape)
    }

    fn next(&self, shape: usize) -> Option<usize> {
        let rungs = self.rungs.get(self.base(shape))?;
        let here = rungs.iter().position(|rung| *rung == shape)?;
        rungs.get(here + 1).copied()
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

/// The rungs above `shape`, hardest first. `unwanted` are the taints that are to be avoided.
pub(crate) fn rungs(shape: &PodShape, unwanted: &[Taint], policy: PreferencePolicy) -> Vec<PodShape> {
    let mut above = if policy == PreferencePolicy::Respect { hardened(shape) } else { Vec::new() };
    if !tolerated(unwanted, &shape.tolerations, false) {
        above.push(avoiding(shape, above.len()));
    }
    above
}

/// Of these, those on which something that it prefers is required.
fn hardened(shape: &PodShape) -> Vec<PodShape> {
    let mut left = shape.clone();
    // A preferred term that says nothing prefers nothing.
    left.preferred_node_affinity.retain(|one| one.term != NodeSelectorTerm::default());
    // Heaviest first; of equal weight in the pod's order.
    left.preferred_node_affinity.sort_by_key(|one| Reverse(one.weight));
    let mut all = Vec::new();
    while all.len() < RUNGS {
        let mut rung = required(&left);
        rung.id = ShapeId(format!("{}~{}", shape.id, all.len()));
        if !relax(&mut left) {
            break;
        }
        all.push(rung);
    }
    all
}

/// The last rung above `shape`: nothing that it only prefers, but no taint that is to be avoided.
fn avoiding(shape: &PodShape, number: usize) -> PodShape {
    let mut rung = shape.clone();
    rung.id = ShapeId(format!("{}~{number}", shape.id));
    rung.preferred_node_affinity.clear();
    rung.topology_spread.retain(|one| one.required);
    rung.pod_affinity.retain(|one| one.weight.is_none());
    rung
}

/// `left` with what it prefers required: of preferred node affinity the heaviest term alone, all else together.
fn required(left: &PodShape) -> PodShape {
    let mut rung = left.clone();
    if let Some(heaviest) = left.preferred_node_affinity.first() {
        if rung.required_node_affinity.is_empty() {
            rung.required_node_affinity.push(NodeSelectorTerm::default());
        }
        for term in &mut rung.required_node_affinity {
            term.expressions.extend(heaviest.term.expressions.iter().cloned());
            term.fields.extend(heaviest.term.fields.iter().cloned());
        }
    }
    rung.preferred_node_affinity.clear();
    rung.topology_spread.iter_mut().for_each(|one| one.required = true);
    rung
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

/// `lots` with all that their pods prefer, as far as that is possible anywhere.
pub(crate) fn hardest<'a>(world: &World<'a>, lots: Vec<Lot<'a>>) -> Vec<Lot<'a>> {
    lots.into_iter().map(|lot| Lot { shape: world.ladders.hardest(lot.shape), ..lot }).collect()
}

/// `lots` with those pods that are in `missed` one rung further down, those in `stuck` all the way. `None` if none of them can give up anything.
pub(crate) fn lowered<'a>(
    world: &World<'a>,
    lots: &[Lot<'a>],
    missed: &BTreeSet<&PodUid>,
    stuck: &BTreeSet<&PodUid>,
) -> Option<Vec<Lot<'a>>> {
    let mut changed = false;
    let mut all: BTreeMap<usize, Vec<&'a Pod>> = BTreeMap::new();
    for lot in lots {
        let next = world.ladders.next(lot.shape);
        for pod in lot.pods.iter().copied() {
            let down = next.filter(|_| missed.contains(&pod.uid));
            changed |= down.is_some();
            let down = down.map(|next| if stuck.contains(&pod.uid) { world.ladders.base(next) } else { next });
            all.entry(down.unwrap_or(lot.shape)).or_default().push(pod);
        }
    }
    changed.then(|| lots::plain(all))
}

/// UIDs of all pods of `lots`.
pub(crate) fn uids<'a>(lots: &[Lot<'a>]) -> BTreeSet<&'a PodUid> {
    lots.iter().flat_map(|lot| &lot.pods).map(|pod| &pod.uid).collect()
}

/// Places as many of `lots` as it can: with all that they prefer, then with less for those that found no place.
pub(crate) fn place<'a>(world: &World<'a>, state: &mut State, lots: Vec<Lot<'a>>, search: Search) -> Placed<'a> {
    let mut other = None;
    let placed = state.trial(|state| {
        let (placed, lots) = climb_down(world, state, lots, search);
        match alike(world, &lots) {
            Some(alike) => {
                other = Some((Score::of(world, &placed), lots, alike));
                None
            }
            None => Some(placed),
        }
    });
    if let Some(placed) = placed {
        return placed;
    }
    let Some((known, lots, alike)) = other else { return Placed::default() };
    let cheaper = state.trial(|state| {
        let placed = topology::place(world, state, alike, search);
        let score = Score::of(world, &placed);
        let cheaper = score.price().saturating_mul(PART.1) < known.price().saturating_mul(PART.0);
        (score.unplaced <= known.unplaced && cheaper).then_some(placed)
    });
    cheaper.unwrap_or_else(|| topology::place(world, state, lots, search))
}

/// `lots` in which pods that would rather keep apart do so only where all of their shape can. `None` if all can.
fn alike<'a>(world: &World<'a>, lots: &[Lot<'a>]) -> Option<Vec<Lot<'a>>> {
    let apart = |shape: usize| {
        let terms = &world.shapes[shape].shape.pod_affinity;
        terms.iter().filter(|one| one.anti && one.weight.is_some()).count()
    };
    // Per shape of the pods: the rungs they are on. A rung further down has less to prefer.
    let mut rungs: BTreeMap<usize, BTreeSet<(usize, usize)>> = BTreeMap::new();
    for lot in lots {
        let wishes = if world.ladders.is_bare(lot.shape) { 0 } else { apart(lot.shape) };
        rungs.entry(world.ladders.base(lot.shape)).or_default().insert((wishes, lot.shape));
    }
    let differ = |all: &&BTreeSet<(usize, usize)>| all.first().map(|one| one.0) != all.last().map(|one| one.0);
    rungs.values().find(differ)?;
    let mut all: BTreeMap<usize, Vec<&'a Pod>> = BTreeMap::new();
    for lot in lots {
        let least = rungs.get(&world.ladders.base(lot.shape)).filter(differ).and_then(|all| all.first());
        all.entry(least.map_or(lot.shape, |one| one.1)).or_default().extend(&lot.pods);
    }
    Some(lots::plain(all))
}

/// With all that they prefer, then with less for those that found no place, all being placed anew, so that pods which gave something up share
/// nodes with the others. With the lots that it came to.
fn climb_down<'a>(
    world: &World<'a>,
    state: &mut State,
    lots: Vec<Lot<'a>>,
    search: Search,
) -> (Placed<'a>, Vec<Lot<'a>>) {
    let mut lots = hardest(world, lots);
    for step in 0.. {
        if lots.iter().all(|lot| world.ladders.is_bare(lot.shape)) {
            break;
        }
        let (mut lower, mut kept) = (None, None);
        let placed = state.trial(|state| {
            let placed = topology::place(world, state, lots.clone(), search);
            let missed = uids(&placed.left);
            if missed.is_empty() {
                return Some(placed);
            }
            lower = lowered(world, &lots, &missed, &BTreeSet::new());
            // Whoever finds no place beside the others even without any preference is not helped by giving one up.
            let rest = topology::place(world, state, bare(world, &placed.left), search);
            let stuck = uids(&rest.left);
            if lower.is_none() || stuck.len() == missed.len() {
                kept = Some(missed.len());
                return None;
            }
            let stuck = if step >= STEPS || state.work == 0 { &missed } else { &stuck };
            lower = lowered(world, &lots, &missed, stuck);
            None
        });
        if let Some(placed) = placed {
            return (placed, lots);
        }
        lots = match kept {
            None => lower.unwrap_or_default(),
            Some(left) => match concession(world, state, &lots, search, left) {
                Some(fewer) => fewer,
                None => break,
            },
        };
    }
    let mut placed = topology::place(world, state, lots.clone(), search);
    placed.left = bare(world, &placed.left);
    (placed, lots)
}

/// `lots` with less to prefer for some that have a place, so that fewer than `left` pods go without one: no pod pays with its place for what
/// another only prefers. Of one shape alone, if that helps; `None` if nothing does.
fn concession<'a>(
    world: &World<'a>,
    state: &mut State,
    lots: &[Lot<'a>],
    search: Search,
    left: usize,
) -> Option<Vec<Lot<'a>>> {
    let mut without = |lots: &[Lot<'a>]| {
        let mut count = usize::MAX;
        state.trial(|state| -> Option<()> {
            let placed = topology::place(world, state, lots.to_vec(), search);
            count = placed.left.iter().map(|lot| lot.pods.len()).sum();
            None
        });
        count
    };
    let all = bare(world, lots);
    if without(&all) >= left {
        return None;
    }
    let wishing = lots.iter().filter(|lot| !world.ladders.is_bare(lot.shape));
    let wishing: BTreeSet<usize> = wishing.map(|lot| world.ladders.base(lot.shape)).collect();
    let pods: usize = lots.iter().map(|lot| lot.pods.len()).sum();
    if pods.saturating_mul(wishing.len()) > TRIALS {
        return Some(all);
    }
    let modest = |base: usize| {
        let (own, others): (Vec<Lot<'a>>, Vec<Lot<'a>>) =
            lots.iter().cloned().partition(|lot| world.ladders.base(lot.shape) == base);
        others.into_iter().chain(bare(world, &own)).collect::<Vec<Lot<'a>>>()
    };
    let tried = wishing.iter().map(|base| (without(&modest(*base)), *base)).min();
    Some(tried.filter(|(count, _)| *count < left).map_or(all, |(_, base)| modest(base)))
}

/// `lots` without anything that their pods only prefer.
pub(crate) fn bare<'a>(world: &World<'a>, lots: &[Lot<'a>]) -> Vec<Lot<'a>> {
    let mut all: BTreeMap<usize, Vec<&'a Pod>> = BTreeMap::new();
    for lot in lots {
        all.entry(world.ladders.base(lot.shape)).or_default().extend(&lot.pods);
    }
    lots::plain(all)
}

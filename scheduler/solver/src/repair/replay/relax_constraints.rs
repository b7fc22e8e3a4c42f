//! Plans that are made otherwise from the start.
//!
//! A plan that holds once all its pods are where they are to be may be one that kube-scheduler hardly ever comes to: since one pod would have to
//! be the very first of those that follow each other, or since those that are dealt to combinations of domains find the last of these out of reach. So it
//! is made once more: with pods dealt evenly to combinations, as if no pod that is stranded could be the first, and with those spread that others count.

use super::add_nodes::{WORK, is_worth, played};
use super::outcomes::Outcomes;
use super::projected::Replay;
use super::{OFTEN, Question};
use crate::place::topology::{AssignmentOrder, matches};
use crate::repair::moves::{Move, Moves};
use crate::repair::with_reports_of;
use plimsoll_model::identity::{PodUid, ShapeId};
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{LabelSelector, PodShape, PodState, Snapshot, TopologySpread};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A plan that leaves no other pods than `plan`, of which so many runs strand one, and of which fewer do; with how many.
pub(super) fn planned(
    question: Question<'_>,
    moves: &Moves,
    known: (&Plan, usize),
    again: &impl Fn(&Snapshot, AssignmentOrder) -> Plan,
) -> Option<(Plan, usize)> {
    let replay = Replay::new(question, known.0)?;
    let shapes = stranded(&replay, &Outcomes::anew(&replay));
    let level = moves.has(Move::AssignEvenly).then(|| again(question.snapshot, AssignmentOrder::Level));
    let without_self_affinity =
        moves.has(Move::WithoutSelfAffinity).then(|| without_self_affinity(question.snapshot, &shapes)).flatten();
    let alone = moves.has(Move::WithoutDaemons).then(|| alone(question.snapshot, &shapes)).flatten();
    let changed = without_self_affinity.into_iter().chain(alone).map(|facts| again(&facts, AssignmentOrder::Cheapest));
    best_of(question, known, level.into_iter().chain(changed))
}

/// The same with the pods spread that the spreads of stranded ones count: who is counted, but goes where it likes, may leave the others no domain.
pub(super) fn spread(
    question: Question<'_>,
    known: (&Plan, usize),
    again: &impl Fn(&Snapshot) -> Plan,
) -> Option<(Plan, usize)> {
    let replay = Replay::new(question, known.0)?;
    let shapes = stranded(&replay, &Outcomes::anew(&replay));
    let facts = bound(question.snapshot, alone(question.snapshot, &shapes).as_ref(), &shapes)?;
    best_of(question, known, std::iter::once(again(&facts)))
}

/// The best of them, if it is better than the known one.
fn best_of(
    question: Question<'_>,
    (plan, stranding): (&Plan, usize),
    others: impl Iterator<Item = Plan>,
) -> Option<(Plan, usize)> {
    let mut work = WORK;
    let mut best: Option<(Plan, usize)> = None;
    for other in others {
        if !left(&other).is_subset(&left(plan)) || !is_valid(question, &other) {
            continue;
        }
        let known = best.as_ref().map_or((plan, stranding), |(plan, still)| (plan, *still));
        let Some((other, still)) = played(question, with_reports_of(other, plan), &mut work) else { continue };
        let better = match other.unschedulable.len() < known.0.unschedulable.len() {
            true => still <= known.1,
            false => still + OFTEN <= known.1 && is_worth((&other, still), known),
        };
        if better {
            best = Some((other, still));
        }
    }
    best
}

/// Shapes of pods that were stranded, the most often first.
pub(super) fn stranded(replay: &Replay, outcomes: &Outcomes) -> Vec<ShapeId> {
    let mut often: BTreeMap<usize, usize> = BTreeMap::new();
    for (slot, times) in &outcomes.stranded {
        *often.entry(replay.slots[*slot].shape).or_default() += times;
    }
    let mut shapes: Vec<(Reverse<usize>, usize)> =
        often.into_iter().map(|(shape, times)| (Reverse(times), shape)).collect();
    shapes.sort_unstable();
    shapes.into_iter().map(|(_, shape)| replay.after.shapes[shape].id.clone()).collect()
}

/// As if no pod of those shapes could be the first that others follow, though its own rule selects it; `None` if none could.
pub(super) fn without_self_affinity(snapshot: &Snapshot, shapes: &[ShapeId]) -> Option<Snapshot> {
    let mut facts = snapshot.clone();
    let mut any = false;
    for shape in facts.shapes.iter_mut().filter(|shape| shapes.contains(&shape.id)) {
        let keys = own_terms(shape);
        any |= !keys.is_empty();
        shape.labels.retain(|key, _| !keys.contains(key));
    }
    any.then_some(facts)
}

/// Keys of labels by which the pod itself is among those that it must be near.
fn own_terms(shape: &PodShape) -> BTreeSet<String> {
    let required = shape.pod_affinity.iter().filter(|term| !term.anti && term.weight.is_none());
    let own = required.filter(|term| term.namespaces.contains(&shape.namespace));
    let selectors = own.filter_map(|term| term.selector.as_ref()).filter(|selector| matches(selector, shape));
    let keys = selectors.flat_map(|selector| {
        let expressions = selector.match_expressions.iter().map(|one| &one.key);
        selector.match_labels.keys().chain(expressions).cloned()
    });
    keys.collect()
}

/// As if the spreads of those shapes did not count pods of DaemonSets, of which each node has some, but their own; `None` if none does.
fn alone(snapshot: &Snapshot, shapes: &[ShapeId]) -> Option<Snapshot> {
    let daemons: BTreeSet<&ShapeId> = snapshot.daemon_sets.iter().map(|daemon| &daemon.shape).collect();
    let daemons: Vec<&PodShape> = snapshot.shapes.iter().filter(|shape| daemons.contains(&shape.id)).collect();
    let mut facts = snapshot.clone();
    let mut any = false;
    for shape in facts.shapes.iter_mut().filter(|shape| shapes.contains(&shape.id)) {
        let counts = |selector: &LabelSelector| {
            daemons.iter().any(|daemon| daemon.namespace == shape.namespace && matches(selector, daemon))
        };
        for spread in shape.topology_spread.iter_mut().filter(|one| one.required) {
            if spread.selector.as_ref().is_some_and(counts) {
                spread.selector = Some(alike(&shape.labels));
                any = true;
            }
        }
    }
    any.then_some(facts)
}

/// As if the pods that spreads of those shapes count were spread as well, those of each shape among themselves; `None` if all are.
fn bound(snapshot: &Snapshot, alone: Option<&Snapshot>, shapes: &[ShapeId]) -> Option<Snapshot> {
    let owners: Vec<&PodShape> = snapshot.shapes.iter().filter(|shape| shapes.contains(&shape.id)).collect();
    let coming: BTreeSet<&ShapeId> =
        snapshot.pods.iter().filter(|pod| pod.state == PodState::Pending).map(|pod| &pod.shape).collect();
    let mut facts = alone.unwrap_or(snapshot).clone();
    let mut any = false;
    for shape in facts.shapes.iter_mut().filter(|shape| coming.contains(&shape.id)) {
        for owner in owners.iter().filter(|owner| owner.namespace == shape.namespace) {
            for spread in owner.topology_spread.iter().filter(|one| one.required) {
                let counts = spread.selector.as_ref().is_some_and(|selector| matches(selector, shape));
                let has =
                    shape.topology_spread.iter().any(|one| one.required && one.topology_key == spread.topology_key);
                if counts && !has {
                    let selector = Some(alike(&shape.labels));
                    shape.topology_spread.push(TopologySpread { selector, ..spread.clone() });
                    any = true;
                }
            }
        }
    }
    any.then_some(facts)
}

/// Selects pods with these labels.
fn alike(labels: &BTreeMap<String, String>) -> LabelSelector {
    LabelSelector { match_labels: labels.clone(), match_expressions: Vec::new() }
}

pub(super) fn is_valid(question: Question<'_>, plan: &Plan) -> bool {
    plimsoll_invariants::check(question.snapshot, question.catalogs, plan).is_empty()
}

pub(super) fn left(plan: &Plan) -> BTreeSet<&PodUid> {
    plan.unschedulable.iter().map(|one| &one.pod.uid).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::tests::builder::{Cluster, app, spread};
    use plimsoll_model::names::label;

    const PARTS: [&str; 4] = ["spread", "counted", "other", "agent"];

    /// Pods that are spread over zones with all of their app, of two more shapes, one of that app, and a DaemonSet of that app.
    fn cluster() -> Snapshot {
        let mut cluster = Cluster::new();
        for part in PARTS {
            let mut shape = app(if part == "other" { "db" } else { "web" }, 100);
            shape.labels.insert("part".into(), part.into());
            if part == "spread" {
                shape.topology_spread = vec![spread(label::ZONE, 1)];
            }
            if part == "agent" {
                cluster.daemon_set(part, &shape);
            } else {
                cluster.pending(part, 1, &shape);
            }
        }
        cluster.snapshot
    }

    fn shape_of<'s>(snapshot: &'s Snapshot, part: &str) -> &'s PodShape {
        snapshot.shapes.iter().find(|shape| shape.labels.get("part").is_some_and(|one| one == part)).unwrap()
    }

    /// Labels by which the only spread of a shape selects, if it has one.
    fn selects<'s>(snapshot: &'s Snapshot, part: &str) -> Option<Vec<&'s str>> {
        let spread = shape_of(snapshot, part).topology_spread.first()?;
        Some(spread.selector.as_ref()?.match_labels.values().map(String::as_str).collect())
    }

    fn stranded(snapshot: &Snapshot, part: &str) -> [ShapeId; 1] {
        [shape_of(snapshot, part).id.clone()]
    }

    #[test]
    fn what_a_spread_counts_is_spread_among_itself() {
        let before = cluster();
        let of_spread = stranded(&before, "spread");
        let after = bound(&before, None, &of_spread).unwrap();
        assert_eq!(selects(&after, "counted"), Some(vec!["web", "counted"]));
        assert_eq!(selects(&after, "spread"), Some(vec!["web"]), "as it was");
        assert_eq!((selects(&after, "other"), selects(&after, "agent")), (None, None));
        assert_eq!(bound(&after, None, &of_spread), None, "all are spread");
        let of_other = stranded(&before, "other");
        assert_eq!(bound(&before, None, &of_other), None, "nobody is stranded whose spread counts others");
    }

    #[test]
    fn a_spread_that_counts_agents_may_count_its_own_pods_alone_and_those_that_it_counted_are_still_spread() {
        let before = cluster();
        let of_spread = stranded(&before, "spread");
        let own = alone(&before, &of_spread).unwrap();
        assert_eq!(selects(&own, "spread"), Some(vec!["web", "spread"]));
        let both = bound(&before, Some(&own), &of_spread).unwrap();
        assert_eq!(selects(&both, "spread"), Some(vec!["web", "spread"]));
        assert_eq!(selects(&both, "counted"), Some(vec!["web", "counted"]));
    }
}

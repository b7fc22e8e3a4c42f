//! Plans that are made otherwise from the start.
//!
//! A plan that holds once all its pods are where they are to be may be one that kube-scheduler hardly ever comes to: since one pod would have to
//! be the very first of those that follow each other, or since those that are dealt to combinations of domains find the last of these out of reach. So it
//! is made once more: with pods dealt evenly to combinations, as if no pod that is stranded could be the first, and with those spread that others count.

use super::further::{WORK, is_worth, played};
use super::shown::Shown;
use super::stage::Stage;
use super::{OFTEN, Question};
use crate::gather::told_by;
use crate::topology::{Dealing, matches};
use plimsoll_model::identity::{PodUid, ShapeId};
use plimsoll_model::plan::Plan;
use plimsoll_model::snapshot::{LabelSelector, PodShape, PodState, Snapshot, TopologySpread};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// A plan that leaves no other pods than `plan`, of which so many performances strand one, and of which fewer do; with how many.
pub(super) fn planned(
    question: Question<'_>,
    known: (&Plan, usize),
    again: &impl Fn(&Snapshot, Dealing) -> Plan,
) -> Option<(Plan, usize)> {
    let stage = Stage::new(question, known.0)?;
    let shapes = stranded(&stage, &Shown::anew(&stage));
    let level = again(question.snapshot, Dealing::Level);
    let changed = unled(question.snapshot, &shapes).into_iter().chain(alone(question.snapshot, &shapes));
    let changed = changed.map(|facts| again(&facts, Dealing::Cheapest));
    best_of(question, known, std::iter::once(level).chain(changed))
}

/// The same with the pods spread that the spreads of stranded ones count: who is counted, but goes where it likes, may leave the others no domain.
pub(super) fn spread(
    question: Question<'_>,
    known: (&Plan, usize),
    again: &impl Fn(&Snapshot) -> Plan,
) -> Option<(Plan, usize)> {
    let stage = Stage::new(question, known.0)?;
    let shapes = stranded(&stage, &Shown::anew(&stage));
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
        let Some((other, still)) = played(question, told_by(other, plan), &mut work) else { continue };
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
pub(super) fn stranded(stage: &Stage, shown: &Shown) -> Vec<ShapeId> {
    let mut often: BTreeMap<usize, usize> = BTreeMap::new();
    for (actor, times) in &shown.stranded {
        *often.entry(stage.actors[*actor].shape).or_default() += times;
    }
    let mut shapes: Vec<(Reverse<usize>, usize)> =
        often.into_iter().map(|(shape, times)| (Reverse(times), shape)).collect();
    shapes.sort_unstable();
    shapes.into_iter().map(|(_, shape)| stage.after.shapes[shape].id.clone()).collect()
}

/// As if no pod of those shapes could be the first that others follow, though its own rule selects it; `None` if none could.
pub(super) fn unled(snapshot: &Snapshot, shapes: &[ShapeId]) -> Option<Snapshot> {
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
                let match_labels = shape.labels.clone();
                spread.selector = Some(LabelSelector { match_labels, match_expressions: Vec::new() });
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
                    let selector = LabelSelector { match_labels: shape.labels.clone(), match_expressions: Vec::new() };
                    shape.topology_spread.push(TopologySpread { selector: Some(selector), ..spread.clone() });
                    any = true;
                }
            }
        }
    }
    any.then_some(facts)
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
    use plimsoll_model::names::label;
    use plimsoll_model::snapshot::{DaemonSet, Pod};
    use plimsoll_model::time::Timestamp;

    const SPREAD: usize = 0;
    const COUNTED: usize = 1;
    const OTHER: usize = 2;
    const DAEMON: usize = 3;

    /// Pods of a shape that is spread over zones with all that have a label, of two more shapes, one with it, and a DaemonSet with it.
    fn cluster() -> Snapshot {
        let with = |name: &str, counted: bool| PodShape {
            id: ShapeId::from(name),
            namespace: "shop".into(),
            labels: [("app", name), ("tier", if counted { "front" } else { "back" })]
                .map(|(key, value)| (key.to_owned(), value.to_owned()))
                .into(),
            ..PodShape::default()
        };
        let mut shapes = vec![with("spread", true), with("counted", true), with("other", false), with("daemon", true)];
        let selector = LabelSelector {
            match_labels: [("tier".to_owned(), "front".to_owned())].into(),
            match_expressions: Vec::new(),
        };
        shapes[SPREAD].topology_spread.push(TopologySpread {
            topology_key: label::ZONE.into(),
            max_skew: 1,
            min_domains: None,
            required: true,
            selector: Some(selector),
            honor_node_affinity: true,
            honor_node_taints: false,
        });
        let pod = |shape: &PodShape| Pod {
            uid: PodUid::from(shape.id.to_string()),
            namespace: "shop".into(),
            name: shape.id.to_string(),
            shape: shape.id.clone(),
            state: PodState::Pending,
            created: Timestamp(0),
            stays_with_node: false,
            terminating: false,
            do_not_disrupt_until: None,
            eviction_cost_milli: 0,
            pod_disruption_budgets: Vec::new(),
            buffer: None,
        };
        let pods = shapes[..DAEMON].iter().map(pod).collect();
        let daemon = DaemonSet {
            uid: "daemon".into(),
            namespace: "shop".into(),
            name: "daemon".into(),
            shape: shapes[DAEMON].id.clone(),
        };
        Snapshot { shapes, pods, daemon_sets: vec![daemon], ..Snapshot::default() }
    }

    /// Labels by which the only spread of a shape selects, if it has one.
    fn selects(snapshot: &Snapshot, shape: usize) -> Option<Vec<&str>> {
        let spread = snapshot.shapes[shape].topology_spread.first()?;
        Some(spread.selector.as_ref()?.match_labels.values().map(String::as_str).collect())
    }

    #[test]
    fn what_a_spread_counts_is_spread_among_itself() {
        let before = cluster();
        let stranded = [before.shapes[SPREAD].id.clone()];
        let after = bound(&before, None, &stranded).unwrap();
        assert_eq!(selects(&after, COUNTED), Some(vec!["counted", "front"]));
        assert_eq!(selects(&after, SPREAD), Some(vec!["front"]), "as it was");
        assert_eq!((selects(&after, OTHER), selects(&after, DAEMON)), (None, None));
        assert_eq!(bound(&after, None, &stranded), None, "all are spread");
        assert_eq!(
            bound(&before, None, &[before.shapes[OTHER].id.clone()]),
            None,
            "nobody is stranded whose spread counts others"
        );
    }

    #[test]
    fn a_spread_that_counts_agents_may_count_its_own_pods_alone_and_those_that_it_counted_are_still_spread() {
        let before = cluster();
        let stranded = [before.shapes[SPREAD].id.clone()];
        let own = alone(&before, &stranded).unwrap();
        assert_eq!(selects(&own, SPREAD), Some(vec!["spread", "front"]));
        let both = bound(&before, Some(&own), &stranded).unwrap();
        assert_eq!(selects(&both, SPREAD), Some(vec!["spread", "front"]));
        assert_eq!(selects(&both, COUNTED), Some(vec!["counted", "front"]));
    }
}

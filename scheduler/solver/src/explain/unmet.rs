//! Which requirements exclude each other: as few of them as it takes.

use crate::input::intern::Bits;
use crate::input::offerings::PoolView;
use crate::input::pool_requirements::equals;
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm};
use plimsoll_model::snapshot::PodShape;
use std::collections::BTreeSet;

/// Values and terms that are listed before the rest is only counted.
const SHOWN: usize = 5;

/// Which of the pool's own requirements leave it no offering.
pub(super) fn by_itself(view: &PoolView<'_>) -> String {
    if view.custom.impossible {
        return "requirements of the NodePool contradict each other".to_owned();
    }
    let own: Vec<NodeSelectorRequirement> = view
        .pool
        .requirements
        .iter()
        .cloned()
        .chain(view.pool.labels.iter().map(|(key, value)| equals(key, value)))
        .filter(|one| !view.custom.has(&one.key))
        .collect();
    let all = Bits::all(view.offerings.len());
    let few = fewest(view, &all, &own);
    format!("no offering of the node class satisfies the NodePool's own {}", told(view, &all, &few))
}

/// Which of the pod's requirements leave nothing of what the pool allows.
pub(super) fn by_pod(view: &PoolView<'_>, shape: &PodShape) -> String {
    let selector: Vec<NodeSelectorRequirement> =
        shape.node_selector.iter().map(|(key, value)| equals(key, value)).collect();
    let mut parts: Vec<String> = Vec::new();
    let terms: Vec<&NodeSelectorTerm> = shape.required_node_affinity.iter().collect();
    if terms.is_empty() || excluded(view, &view.allowed, &selector) {
        parts.push(told(view, &view.allowed, &fewest(view, &view.allowed, &selector)));
    } else {
        for term in terms.iter().take(SHOWN) {
            if let Some(name) = term.fields.first() {
                parts.push(format!("{name}, which names a node"));
                continue;
            }
            if term.expressions.is_empty() {
                parts.push("a term of node affinity without requirements".to_owned());
                continue;
            }
            let both: Vec<NodeSelectorRequirement> = selector.iter().chain(&term.expressions).cloned().collect();
            parts.push(told(view, &view.allowed, &fewest(view, &view.allowed, &both)));
        }
        if terms.len() > SHOWN {
            parts.push(format!("{} more terms", terms.len() - SHOWN));
        }
    }
    parts.dedup();
    format!("nothing that the NodePool allows satisfies {}", parts.join(", or "))
}

/// How many values each `minValues` finds.
pub(super) fn by_min_values(view: &PoolView<'_>, usable: &Bits) -> String {
    let parts: Vec<String> = view
        .pool
        .requirements
        .iter()
        .filter_map(|one| {
            let wanted = one.min_values?;
            let values: BTreeSet<&str> =
                usable.iter().filter_map(|index| view.label(index, label::normalized(&one.key))).collect();
            Some(format!("{wanted} values of {}, of which at most {} would do", one.key, values.len()))
        })
        .collect();
    format!("minValues of the NodePool asks for {}", parts.join(" and for "))
}

/// The first requirement, else the first two, that alone leave nothing of `among`; else all.
fn fewest<'r>(
    view: &PoolView<'_>,
    among: &Bits,
    all: &'r [NodeSelectorRequirement],
) -> Vec<&'r NodeSelectorRequirement> {
    for (index, one) in all.iter().enumerate() {
        if excluded(view, among, std::slice::from_ref(one)) {
            return vec![&all[index]];
        }
    }
    for (index, one) in all.iter().enumerate() {
        for other in &all[index + 1..] {
            if excluded(view, among, &[one.clone(), other.clone()]) {
                return vec![one, other];
            }
        }
    }
    all.iter().collect()
}

/// Whether nothing of `among` satisfies all of `requirements`.
fn excluded(view: &PoolView<'_>, among: &Bits, requirements: &[NodeSelectorRequirement]) -> bool {
    let expressions = requirements.to_vec();
    let shape = PodShape {
        required_node_affinity: vec![NodeSelectorTerm { expressions, fields: Vec::new() }],
        ..PodShape::default()
    };
    !requirements.is_empty() && view.alternatives(&shape).iter().all(|one| !one.offerings.meets(among))
}

/// Requirements with what there is instead.
fn told(view: &PoolView<'_>, among: &Bits, requirements: &[&NodeSelectorRequirement]) -> String {
    let one = |requirement: &&NodeSelectorRequirement| {
        let key = label::normalized(&requirement.key);
        if key == label::HOSTNAME {
            return format!("{requirement}, which names a node");
        }
        let mut values: BTreeSet<String> =
            among.iter().filter_map(|index| view.label(index, key)).map(str::to_owned).collect();
        values.extend(view.custom.values(key));
        if values.is_empty() {
            return format!("{requirement} (no such label here)");
        }
        let listed: Vec<&str> = values.iter().take(SHOWN).map(String::as_str).collect();
        let more = values.len() - listed.len();
        let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
        format!("{requirement} (there is {}{rest})", listed.join(", "))
    };
    requirements.iter().map(one).collect::<Vec<String>>().join(" together with ")
}

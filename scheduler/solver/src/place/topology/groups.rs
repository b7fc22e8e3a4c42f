//! Constraints of pods on each other, each once, however many shapes have it.

use crate::input::context::tolerated;
use crate::input::pool_requirements::lookup;
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator, selects_node};
use plimsoll_model::snapshot::{LabelSelector, Node, PodAffinityTerm, PodShape};
use plimsoll_model::taints::Toleration;
use std::collections::{BTreeMap, BTreeSet};

/// What a group asks of the domains of its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupKind {
    /// Members are at most so far apart in number, on the nodes that count.
    TopologySpread { skew: i64, min_domains: usize, nodes: NodeFilter },
    /// Owners keep away from members; if it is mutual, as it is where it is required, members from owners too.
    PodAntiAffinity { mutual: bool },
    /// Owners go where members are.
    PodAffinity,
}

/// Nodes whose pods and domains a spread counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeFilter {
    selector: BTreeMap<String, String>,
    terms: Vec<NodeSelectorTerm>,
    /// nodeTaintsPolicy is Honor: only nodes whose taints these tolerate.
    pub(super) tolerations: Option<Vec<Toleration>>,
}

impl NodeFilter {
    /// Whether no node is left out.
    pub(super) fn is_all(&self) -> bool {
        self.selector.is_empty() && self.terms.is_empty() && self.tolerations.is_none()
    }

    /// A shape that asks for such nodes, taints aside.
    pub(super) fn shape(&self) -> PodShape {
        PodShape {
            node_selector: self.selector.clone(),
            required_node_affinity: self.terms.clone(),
            ..PodShape::default()
        }
    }

    pub(super) fn passes(&self, node: &Node) -> bool {
        if self.is_all() {
            return true;
        }
        let tolerated = self.tolerations.as_ref().is_none_or(|own| tolerated(&node.taints, own, true));
        tolerated && selects_node(&self.selector, &self.terms, node.name.as_str(), |key| lookup(&node.labels, key))
    }
}

/// A constraint that one or more shapes have.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct Group {
    pub(crate) key: String,
    pub(crate) kind: GroupKind,
    namespaces: Vec<String>,
    selector: LabelSelector,
}

impl Group {
    /// Labels that members have to have, among other things.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.selector.match_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether pods of that shape are members.
    pub(super) fn selects(&self, shape: &PodShape) -> bool {
        self.namespaces.contains(&shape.namespace) && matches(&self.selector, shape)
    }
}

/// Whether the selector matches the labels of that shape.
pub(crate) fn matches(selector: &LabelSelector, shape: &PodShape) -> bool {
    selector.matches(&shape.labels)
}

/// The constraints of a shape: those that are required, and with `preferred` also the others, as if they were. What nodes a spread looks
/// at, `base` alone says.
pub(crate) fn constraints(shape: &PodShape, base: &PodShape, preferred: bool) -> Vec<Group> {
    let spread = shape.topology_spread.iter().filter(|one| one.required).map(|one| {
        let key = label::normalized(&one.topology_key).to_owned();
        // A rule about one host needs no other nodes to compare with.
        let on_host = key == label::HOSTNAME;
        let mut terms = Vec::new();
        if !on_host {
            terms = if one.honor_node_affinity { base.required_node_affinity.clone() } else { Vec::new() };
            have(&mut terms, &others(shape, &key));
        }
        let nodes = NodeFilter {
            selector: if one.honor_node_affinity && !on_host { base.node_selector.clone() } else { BTreeMap::new() },
            terms,
            tolerations: (one.honor_node_taints && !on_host).then(|| base.tolerations.clone()),
        };
        Group {
            key,
            kind: GroupKind::TopologySpread {
                skew: i64::from(one.max_skew.max(1)),
                min_domains: one.min_domains.and_then(|least| usize::try_from(least).ok()).unwrap_or(1),
                nodes,
            },
            namespaces: vec![shape.namespace.clone()],
            selector: one.selector.clone().unwrap_or_else(nothing),
        }
    });
    let mut all: Vec<Group> = spread.collect();
    let together: Vec<&PodAffinityTerm> =
        shape.pod_affinity.iter().filter(|one| !one.anti && one.weight.is_none()).collect();
    let (namespaces, selector) = common(&together);
    all.extend(together.iter().map(|one| Group {
        key: label::normalized(&one.topology_key).to_owned(),
        kind: GroupKind::PodAffinity,
        namespaces: namespaces.clone(),
        selector: selector.clone(),
    }));
    let others = shape.pod_affinity.iter().filter(|one| one.anti || one.weight.is_some());
    let asked = others.filter(|one| preferred || one.weight.is_none());
    all.extend(asked.filter_map(|one| {
        // A term that selects nothing keeps nobody away, but nobody can be near it either.
        let selector = one.selector.clone().or_else(|| (!one.anti).then(nothing))?;
        Some(Group {
            key: label::normalized(&one.topology_key).to_owned(),
            kind: if one.anti {
                GroupKind::PodAntiAffinity { mutual: one.weight.is_none() }
            } else {
                GroupKind::PodAffinity
            },
            namespaces: one.namespaces.clone(),
            selector,
        })
    }));
    all
}

/// Further keys over which the shape must be spread. kube-scheduler looks at no node that lacks any of them; labels that are on all nodes
/// of pools need no such rule.
fn others<'s>(shape: &'s PodShape, key: &str) -> BTreeSet<&'s str> {
    let required = shape.topology_spread.iter().filter(|one| one.required);
    let keys = required.map(|one| label::normalized(&one.topology_key));
    keys.filter(|other| *other != key && *other != label::HOSTNAME && !label::is_well_known(other)).collect()
}

/// Adds to each term that there are these labels.
fn have(terms: &mut Vec<NodeSelectorTerm>, keys: &BTreeSet<&str>) {
    if terms.is_empty() && !keys.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in terms {
        let exists = |key: &&str| NodeSelectorRequirement::new(*key, Operator::Exists, Vec::<String>::new());
        term.expressions.extend(keys.iter().map(exists));
    }
}

/// Whom all of several required affinity terms are about: kube-scheduler looks for one pod that matches every one of them, and then at where
/// that is, rather than for a pod per term.
fn common(terms: &[&PodAffinityTerm]) -> (Vec<String>, LabelSelector) {
    let [first, rest @ ..] = terms else { return (Vec::new(), nothing()) };
    let mut namespaces: BTreeSet<&String> = first.namespaces.iter().collect();
    let mut selector = first.selector.clone().unwrap_or_else(nothing);
    for term in rest {
        namespaces.retain(|one| term.namespaces.contains(one));
        let other = term.selector.clone().unwrap_or_else(nothing);
        selector.match_expressions.extend(other.match_expressions);
        for (key, value) in other.match_labels {
            match selector.match_labels.get(&key) {
                Some(known) if *known == value => {}
                // Two values for one label: nobody has both.
                Some(_) => selector.match_expressions.extend(nothing().match_expressions),
                None => drop(selector.match_labels.insert(key, value)),
            }
        }
    }
    (namespaces.into_iter().cloned().collect(), selector)
}

/// A selector that no labels match.
fn nothing() -> LabelSelector {
    let requirement =
        |operator| NodeSelectorRequirement { key: "nothing".into(), operator, values: Vec::new(), min_values: None };
    LabelSelector {
        match_labels: BTreeMap::new(),
        match_expressions: vec![requirement(Operator::Exists), requirement(Operator::DoesNotExist)],
    }
}

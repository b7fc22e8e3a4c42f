//! Inter-pod constraints, deduplicated across shapes.

use crate::input::context::tolerated;
use crate::input::offerings::{Alternative, PoolView};
use crate::input::pool_requirements::lookup;
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator, selects_node};
use plimsoll_model::snapshot::{LabelSelector, Node, PodAffinityTerm, PodShape};
use plimsoll_model::taints::Toleration;
use std::collections::{BTreeMap, BTreeSet};

/// Constraint of a group on the domains of its key.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum GroupKind {
    /// The numbers of members per domain differ by at most `skew`. Only `nodes` count.
    TopologySpread { skew: i64, min_domains: usize, nodes: NodeFilter },
    /// Owners avoid members. If `mutual`, as for required anti-affinity, members also avoid owners.
    PodAntiAffinity { mutual: bool },
    /// Owners go to domains with members.
    PodAffinity,
}

/// Nodes whose pods and domains a spread counts.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) struct NodeFilter {
    selector: BTreeMap<String, String>,
    terms: Vec<NodeSelectorTerm>,
    /// Set if `nodeTaintsPolicy` is `Honor`: only nodes whose taints these tolerate count.
    tolerations: Option<Vec<Toleration>>,
}

impl NodeFilter {
    pub(super) fn is_all(&self) -> bool {
        self.selector.is_empty() && self.terms.is_empty() && self.tolerations.is_none()
    }

    /// Offerings of the pool whose nodes pass the filter.
    pub(super) fn alternatives(&self, pool: &PoolView<'_>) -> Vec<Alternative> {
        if self.tolerations.as_ref().is_some_and(|own| !tolerated(&pool.pool.taints, own, true)) {
            return Vec::new();
        }
        // A shape that selects the same nodes, taints aside.
        pool.alternatives(&PodShape {
            node_selector: self.selector.clone(),
            required_node_affinity: self.terms.clone(),
            ..PodShape::default()
        })
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
    /// Labels that every member has. The selector may require more.
    pub(super) fn labels(&self) -> impl Iterator<Item = (&str, &str)> {
        self.selector.match_labels.iter().map(|(key, value)| (key.as_str(), value.as_str()))
    }

    /// Whether pods on the node count. Without the label, no constraint counts them.
    pub(crate) fn counts(&self, node: &Node) -> bool {
        let passes = match &self.kind {
            GroupKind::TopologySpread { nodes, .. } => nodes.passes(node),
            GroupKind::PodAntiAffinity { .. } | GroupKind::PodAffinity => true,
        };
        passes && lookup(&node.labels, &self.key).is_some()
    }

    /// Whether `other` has the same members.
    pub(super) fn has_members_of(&self, other: &Self) -> bool {
        self.namespaces == other.namespaces && self.selector == other.selector
    }

    pub(super) fn selects(&self, shape: &PodShape) -> bool {
        self.namespaces.contains(&shape.namespace) && self.selector.matches(&shape.labels)
    }
}

/// Required constraints of a shape. With `preferred`, includes preferred pod affinity and anti-affinity terms as well.
/// Only `base` determines the nodes that a spread counts.
pub(crate) fn constraints(shape: &PodShape, base: &PodShape, preferred: bool) -> Vec<Group> {
    let spread = shape.topology_spread.iter().filter(|one| one.required).map(|one| {
        let key = label::normalized(&one.topology_key).to_owned();
        // A hostname rule applies to each node alone and compares no nodes.
        let on_host = key == label::HOSTNAME;
        let mut terms = Vec::new();
        if !on_host {
            terms = if one.honor_node_affinity { base.required_node_affinity.clone() } else { Vec::new() };
            // A preferred spread has no say in which nodes a required one counts.
            let is_required = base.topology_spread.contains(one);
            have(&mut terms, &others(if is_required { base } else { shape }, &key));
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
            // kube-scheduler counts no running pod for an empty selector.
            selector: one.selector.clone().filter(|selector| !selector.is_empty()).unwrap_or_else(nothing),
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
        // An anti-affinity term without a selector excludes no pod. An affinity term without a selector cannot be
        // satisfied.
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

/// Other keys over which the shape must be spread. kube-scheduler ignores nodes that lack any of them.
fn others<'s>(shape: &'s PodShape, key: &str) -> BTreeSet<&'s str> {
    let required = shape.topology_spread.iter().filter(|one| one.required);
    let keys = required.map(|one| label::normalized(&one.topology_key));
    keys.filter(|other| *other != key && *other != label::HOSTNAME).collect()
}

/// Requires these labels in every term.
fn have(terms: &mut Vec<NodeSelectorTerm>, keys: &BTreeSet<&str>) {
    if terms.is_empty() && !keys.is_empty() {
        terms.push(NodeSelectorTerm::default());
    }
    for term in terms {
        let exists = |key: &&str| NodeSelectorRequirement::new(*key, Operator::Exists, Vec::<String>::new());
        term.expressions.extend(keys.iter().map(exists));
    }
}

/// Namespaces and selector of the pods that match all of the required affinity terms. kube-scheduler looks for one pod
/// that matches every term and uses its domain, instead of looking for one pod per term.
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
                // No pod has two values for one label.
                Some(_) => selector.match_expressions.extend(nothing().match_expressions),
                None => drop(selector.match_labels.insert(key, value)),
            }
        }
    }
    (namespaces.into_iter().cloned().collect(), selector)
}

/// A selector that no labels match.
fn nothing() -> LabelSelector {
    let requirement = |operator| NodeSelectorRequirement::new("nothing", operator, Vec::<String>::new());
    LabelSelector {
        match_labels: BTreeMap::new(),
        match_expressions: vec![requirement(Operator::Exists), requirement(Operator::DoesNotExist)],
    }
}

//! Counts the pods of topology spread constraints by domain.

use super::counts::ShapeCounts;
use super::targets::{Column, Domain, LabelSet, Place, PlacementTargets, common_value};
use super::{SelectorIndex, TopologyCheck};
use crate::labels::{label_problem, taint_problem};
use crate::offering_nodes::OfferingNode;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{LabelSelector, PodShape, TopologySpread};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// Targets with equal taints, equal values of all labels by which checked shapes select nodes, and the same topology
/// keys.
pub(super) struct EquivalenceClasses<'a> {
    by_target: IndexVec<Place, Id<Class>>,
    /// One target of each class.
    representatives: IndexVec<Class, Id<Place>>,
    /// By label set of launches: one node for each combination of values of those labels.
    variants: IndexVec<LabelSet<'static>, LabelSet<'a>>,
    /// By topology key that decides which nodes a spread over another key counts: whether each target has the label.
    labelled: BTreeMap<&'a str, IndexVec<Place, bool>>,
}

/// Counts equivalence classes.
pub(super) enum Class {}

impl<'a> EquivalenceClasses<'a> {
    pub(super) fn new(
        targets: &PlacementTargets<'a>,
        selectors: &SelectorIndex<'a>,
        shape_counts: &ShapeCounts<'_>,
    ) -> Self {
        let checked = shape_counts.checked_shapes.iter().map(|number| selectors.shapes[*number]);
        let spread = checked.filter(|shape| shape.topology_spread.iter().any(|spread| spread.required));
        let shapes: Vec<&'a PodShape> = spread.collect();
        let others = |shape: &'a PodShape| {
            let required = shape.topology_spread.iter().filter(|spread| spread.required);
            required.flat_map(move |spread| other_keys(shape, spread))
        };
        let topology_keys: BTreeSet<&'a str> = shapes.iter().copied().flat_map(others).collect();
        let labelled: BTreeMap<_, _> = topology_keys.into_iter().map(|key| (key, targets.labelled(key))).collect();
        let keys: BTreeSet<&str> = shapes.iter().copied().flat_map(keys).collect();
        let columns: Vec<Column> = keys.iter().map(|key| targets.column(key)).collect();
        let variants = targets.variants(&keys);
        let (mut by_target, mut representatives) = (IndexVec::new(), IndexVec::new());
        let mut numbers = BTreeMap::new();
        for place in targets.places() {
            let values: Vec<Option<Id<Domain>>> = columns.iter().map(|column| column.values[place]).collect();
            let has_keys: Vec<bool> = labelled.values().map(|labelled| labelled[place]).collect();
            // In a column, a label that differs between the nodes of a launch looks like a missing label.
            let varied = targets.label_set(place).filter(|set| variants[*set].len() > 1);
            let class = numbers.entry((values, has_keys, targets.taints(place), varied));
            by_target.push(*class.or_insert_with(|| representatives.push(place)));
        }
        Self { by_target, representatives, variants, labelled }
    }

    /// Whether the shape selects the target by labels: an existing node, or all nodes that a launch may become.
    fn matches_labels(&self, targets: &PlacementTargets<'_>, shape: &PodShape, place: Id<Place>) -> bool {
        let (name, host) = (targets.name(place), targets.host(place));
        let Some(set) = targets.label_set(place) else {
            let labels = targets.node_labels(place, &host);
            return label_problem(shape, &name, |key| labels.get(key).copied()).is_none();
        };
        let variants = &self.variants[set];
        let host_or = |key: &str, value| if key == label::HOSTNAME { Some(host.as_str()) } else { value };
        let is_selected = |node: &Rc<OfferingNode<'a>>| {
            label_problem(shape, &name, |key| host_or(key, node.labels.get(key))).is_none()
        };
        // A launch of which only some nodes match also counts if the labels that all of them have suffice: for `NotIn`.
        variants.iter().all(is_selected)
            || label_problem(shape, &name, |key| host_or(key, common_value(variants, key))).is_none()
    }

    /// By class: whether its domains count for the spread.
    fn eligible(
        &self,
        targets: &PlacementTargets<'_>,
        shape: &PodShape,
        spread: &TopologySpread,
    ) -> IndexVec<Class, bool> {
        let others = other_keys(shape, spread);
        let labelled: Vec<_> = others.iter().filter_map(|key| self.labelled.get(*key)).collect();
        let selects_nodes = !keys(shape).is_empty();
        let counts = |place: &Id<Place>| {
            (!spread.honor_node_affinity || !selects_nodes || self.matches_labels(targets, shape, *place))
                && labelled.iter().all(|labelled| labelled[*place])
                && (!spread.honor_node_taints || taint_problem(shape, targets.taints(*place)).is_none())
        };
        self.representatives.iter().map(counts).collect()
    }
}

/// Labels by which a shape selects nodes; includes the hostname if it selects by node name.
fn keys(shape: &PodShape) -> BTreeSet<&str> {
    let mut keys: BTreeSet<&str> = shape.node_selector.keys().map(|key| label::normalized(key)).collect();
    let terms = shape.required_node_affinity.iter().chain(shape.volumes.iter().flat_map(|volume| &volume.alternatives));
    for term in terms {
        keys.extend(term.expressions.iter().map(|expression| label::normalized(&expression.key)));
        if !term.fields.is_empty() {
            keys.insert(label::HOSTNAME);
        }
    }
    keys
}

/// Topology keys of the shape's other required spreads. kube-scheduler does not count a node that lacks one of them. A
/// node that lacks the key of the spread itself is in none of its domains. Every node has a hostname.
fn other_keys<'s>(shape: &'s PodShape, spread: &TopologySpread) -> BTreeSet<&'s str> {
    let required = shape.topology_spread.iter().filter(|spread| spread.required);
    let keys = required.map(|other| label::normalized(&other.topology_key));
    keys.filter(|key| *key != label::normalized(&spread.topology_key) && *key != label::HOSTNAME).collect()
}

/// Pods that a spread selects, by domain.
pub(super) struct DomainCounts {
    /// By domain: pods that are there before the last pod bound by the spread.
    settled: IndexVec<Domain, i64>,
    /// Minimum over all eligible domains.
    global_minimum: i64,
}

/// Domain counts by namespace, spread and eligible classes of targets.
pub(super) type DomainCountsCache<'a> =
    BTreeMap<(&'a str, &'a TopologySpread, IndexVec<Class, bool>), Rc<DomainCounts>>;

/// A required spread of a shape with its domain counts.
pub(super) struct SpreadCheck<'a> {
    pub(super) spread: &'a TopologySpread,
    column: Rc<Column>,
    domain_counts: Rc<DomainCounts>,
}

impl SpreadCheck<'_> {
    /// Whether the skew is within the limit for pods that the plan puts on `place`.
    pub(super) fn satisfies_skew(&self, place: Id<Place>) -> bool {
        let domain = self.column.values[place];
        domain.is_some_and(|domain| {
            self.domain_counts.settled[domain] - self.domain_counts.global_minimum <= i64::from(self.spread.max_skew)
        })
    }
}

impl<'a> TopologyCheck<'a> {
    /// Required spreads of a shape. A spread without selector matches no pod, and kube-scheduler counts no running pod
    /// for an empty selector. Both are omitted.
    pub(super) fn spreads(&mut self, shape: &'a PodShape) -> Vec<SpreadCheck<'a>> {
        let has_condition =
            |selector: &LabelSelector| !selector.match_labels.is_empty() || !selector.match_expressions.is_empty();
        let counts_pods = |spread: &&TopologySpread| spread.selector.as_ref().is_some_and(has_condition);
        let binding = shape.topology_spread.iter().filter(|spread| spread.required).filter(counts_pods);
        let checks = binding.map(|spread| {
            let column = self.column(&spread.topology_key);
            SpreadCheck { spread, domain_counts: self.domain_counts(shape, spread, &column), column }
        });
        checks.collect()
    }

    fn domain_counts(&mut self, shape: &'a PodShape, spread: &'a TopologySpread, column: &Column) -> Rc<DomainCounts> {
        let eligible = self.classes.eligible(&self.targets, shape, spread);
        let key = (shape.namespace.as_str(), spread, eligible);
        if let Some(cached) = self.domain_counts.get(&key) {
            return Rc::clone(cached);
        }
        let domain_counts =
            Rc::new(count(&self.classes, &self.counts, &mut self.selectors, (shape, spread), column, &key.2));
        self.domain_counts.insert(key, Rc::clone(&domain_counts));
        domain_counts
    }
}

fn count<'a>(
    classes: &EquivalenceClasses<'_>,
    shape_counts: &ShapeCounts<'_>,
    selectors: &mut SelectorIndex<'a>,
    (shape, spread): (&'a PodShape, &'a TopologySpread),
    column: &Column,
    eligible: &IndexVec<Class, bool>,
) -> DomainCounts {
    let mut counts: IndexVec<Domain, Option<i64>> = IndexVec::filled(None, column.count);
    for (class, domain) in classes.by_target.iter().zip(&column.values) {
        if let Some(domain) = domain.filter(|_| eligible[*class]) {
            counts[domain] = Some(0);
        }
    }
    let mut settled = IndexVec::filled(0, column.count);
    let namespace = std::slice::from_ref(&shape.namespace);
    for member in selectors.members(namespace, spread.selector.as_ref()).iter() {
        // Selected pods that the spread does not bind may arrive after the pods it binds.
        let is_bound = selectors.shapes[*member].topology_spread.contains(spread);
        for entry in shape_counts.by_shape[*member].iter().filter(|entry| eligible[classes.by_target[entry.place]]) {
            let Some(domain) = column.values[entry.place] else { continue };
            settled[domain] += entry.kept + if is_bound { entry.placed } else { 0 };
            if let Some(count) = &mut counts[domain] {
                *count += entry.remaining() + entry.leaving;
            }
        }
    }
    let domains = counts.iter().flatten().count();
    let too_few_domains = spread.min_domains.and_then(|min| usize::try_from(min).ok()).unwrap_or(1) > domains;
    let global_minimum = if too_few_domains { 0 } else { counts.into_iter().flatten().min().unwrap_or(0) };
    DomainCounts { settled, global_minimum }
}

//! Who may share a domain with whom, for what the plan places: required spread, affinity and anti-affinity of pods.
//!
//! Where a plan's order of events is open (pods that leave while others come), the view that allows more is taken.

use crate::labels::{aliased, label_problem, of_offering, taint_problem};
use crate::{Facts, Violation};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::requirements::{Operator, Requirement};
use plimsoll_model::snapshot::{LabelSelector, PodShape, TopologySpread};
use std::collections::BTreeMap;

/// A node, or a launch.
struct Place {
    name: String,
    labels: BTreeMap<String, String>,
}

/// A pod that counts.
struct Located<'a> {
    uid: &'a str,
    shape: &'a PodShape,
    place: usize,
    /// The plan put it there.
    placed: bool,
    /// The plan takes it away from there.
    leaving: bool,
}

struct View<'a> {
    places: Vec<Place>,
    pods: Vec<Located<'a>>,
}

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let bound = |shape: &PodShape| {
        shape.topology_spread.iter().any(|one| one.required)
            || shape.pod_affinity.iter().any(|one| one.weight.is_none())
    };
    if !facts.snapshot.shapes.iter().any(bound) {
        return;
    }
    let view = View::new(facts, plan);
    for pod in view.pods.iter().filter(|pod| !pod.leaving && bound(pod.shape)) {
        if let Some(problem) = view.problem(facts, pod) {
            let name = facts.pods.get(pod.uid).map_or_else(String::new, |pod| pod.full_name());
            let place = view.places[pod.place].name.clone();
            found.push(Violation::PodDoesNotFit { pod: name, place, problem });
        }
    }
}

impl<'a> View<'a> {
    fn new(facts: &Facts<'a>, plan: &'a Plan) -> Self {
        let mut view = Self { places: Vec::new(), pods: Vec::new() };
        let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
        for (name, node) in &facts.nodes {
            numbers.insert(name, view.places.len());
            let mut labels = aliased(&node.labels);
            labels.insert(label::HOSTNAME.to_owned(), (*name).to_owned());
            view.places.push(Place { name: (*name).to_owned(), labels });
        }
        for (name, pods) in &facts.there {
            let Some(place) = numbers.get(name) else { continue };
            let leaving = facts.leaving.contains(name);
            for pod in pods.iter().filter(|pod| !pod.terminating) {
                view.put(facts, pod.uid.as_str(), *place, false, leaving);
            }
        }
        let moved = plan.terminations.iter().flat_map(|one| &one.moved_to);
        for to in plan.placements.iter().chain(moved) {
            if let Some(place) = numbers.get(to.node.as_str()) {
                to.pods.iter().for_each(|pod| view.put(facts, pod.uid.as_str(), *place, true, false));
            }
        }
        for (index, launch) in plan.launches.iter().enumerate() {
            let place = view.places.len();
            let name = format!("launch {}", launch.action_id.0);
            view.places.push(Place { labels: common_labels(facts, launch, index), name });
            launch.pods.iter().for_each(|pod| view.put(facts, pod.uid.as_str(), place, true, false));
        }
        view
    }

    fn put(&mut self, facts: &Facts<'a>, uid: &'a str, place: usize, placed: bool, leaving: bool) {
        if let Some(shape) = facts.shape(uid) {
            self.pods.push(Located { uid, shape, place, placed, leaving });
        }
    }

    fn domain(&self, pod: &Located<'_>, key: &str) -> Option<&str> {
        self.places[pod.place].labels.get(label::normalized(key)).map(String::as_str)
    }

    fn members<'v>(
        &'v self,
        namespaces: &'v [String],
        selector: Option<&'v LabelSelector>,
    ) -> impl Iterator<Item = &'v Located<'a>> {
        self.pods.iter().filter(move |pod| {
            namespaces.contains(&pod.shape.namespace) && selector.is_some_and(|one| selects(one, &pod.shape.labels))
        })
    }

    /// What the plan did wrong by where this pod is, or by what it put beside it.
    fn problem(&self, facts: &Facts<'_>, pod: &Located<'_>) -> Option<String> {
        for term in pod.shape.pod_affinity.iter().filter(|one| one.weight.is_none()) {
            let key = &term.topology_key;
            let own = self.domain(pod, key);
            let members = || self.members(&term.namespaces, term.selector.as_ref()).filter(|one| one.uid != pod.uid);
            let here = |one: &&Located<'_>| !one.leaving && own.is_some() && self.domain(one, key) == own;
            if term.anti && members().any(|one| (pod.placed || one.placed) && here(&one)) {
                return Some(format!("podAntiAffinity over {key}"));
            }
            // kube-scheduler looks for one pod that matches all terms at once.
            if !term.anti && pod.placed {
                let others = || self.pods.iter().filter(|one| one.uid != pod.uid && wants(pod.shape, one.shape));
                // Of pods that want each other, one alone can be the first.
                let before = |one: &Located<'_>| !one.leaving && (!one.placed || wants(one.shape, pod.shape));
                let first = wants(pod.shape, pod.shape) && !others().any(before);
                if own.is_none() || !(others().any(|one| here(&one)) || first) {
                    return Some(format!("podAffinity over {key}"));
                }
            }
        }
        let mut spread = pod.shape.topology_spread.iter().filter(|one| one.required && pod.placed);
        let bad = spread.find(|one| !self.is_even(facts, pod, one))?;
        Some(format!("topology spread over {}", bad.topology_key))
    }

    fn is_even(&self, facts: &Facts<'_>, pod: &Located<'_>, spread: &TopologySpread) -> bool {
        if spread.selector.is_none() {
            return true;
        }
        let Some(own) = self.domain(pod, &spread.topology_key) else { return false };
        let key = label::normalized(&spread.topology_key);
        let namespaces = [pod.shape.namespace.clone()];
        let (mut here, mut counts): (i64, BTreeMap<&str, i64>) = (0, BTreeMap::new());
        let counted: Vec<bool> = self.places.iter().map(|place| counts_for(facts, place, pod.shape, spread)).collect();
        for (place, _) in self.places.iter().zip(&counted).filter(|(_, counted)| **counted) {
            if let Some(domain) = place.labels.get(key) {
                counts.entry(domain).or_default();
            }
        }
        for member in self.members(&namespaces, spread.selector.as_ref()).filter(|one| counted[one.place]) {
            if let Some(domain) = self.domain(member, key) {
                // Members that the spread does not bind may come once its own pods are there.
                let first = !member.placed || member.shape.topology_spread.contains(spread);
                here += i64::from(domain == own && !member.leaving && first);
                counts.entry(domain).and_modify(|count| *count += 1);
            }
        }
        let few = spread.min_domains.and_then(|least| usize::try_from(least).ok()).unwrap_or(1) > counts.len();
        let least = if few { 0 } else { counts.values().min().copied().unwrap_or(0) };
        here - least <= i64::from(spread.max_skew)
    }
}

/// Whether pods of `shape` want to be near those of `other`: these match all of its required terms.
fn wants(shape: &PodShape, other: &PodShape) -> bool {
    let mut terms = shape.pod_affinity.iter().filter(|one| !one.anti && one.weight.is_none()).peekable();
    terms.peek().is_some()
        && terms.all(|one| {
            one.namespaces.contains(&other.namespace)
                && one.selector.as_ref().is_some_and(|selector| selects(selector, &other.labels))
        })
}

/// Whether a place's domain counts for the least of a spread.
fn counts_for(facts: &Facts<'_>, place: &Place, shape: &PodShape, spread: &TopologySpread) -> bool {
    let taints = facts.nodes.get(place.name.as_str()).map_or(&[][..], |node| &node.taints);
    (!spread.honor_node_affinity || label_problem(shape, &place.name, &place.labels).is_none())
        && (!spread.honor_node_taints || taint_problem(shape, taints).is_none())
}

/// Labels that every offering of the launch gives its node.
fn common_labels(facts: &Facts<'_>, launch: &Launch, index: usize) -> BTreeMap<String, String> {
    let mut common: Option<BTreeMap<String, String>> = None;
    let pool = facts.pools.get(launch.node_pool.as_str());
    let catalog = pool.and_then(|pool| facts.catalogs.get(pool.catalog.as_ref()?));
    if let Some((pool, catalog)) = pool.zip(catalog) {
        for choice in &launch.offerings {
            let Some(kind) = catalog.get(&choice.instance_type) else { continue };
            let same = |one: &&plimsoll_model::catalog::Offering| {
                one.zone == choice.zone && one.capacity_type == choice.capacity_type
            };
            let Some(offering) = kind.offerings.iter().find(same) else { continue };
            let labels = of_offering(catalog, pool, launch, kind, offering);
            match &mut common {
                Some(known) => known.retain(|key, value| labels.get(key) == Some(value)),
                None => common = Some(labels),
            }
        }
    }
    let mut common = common.unwrap_or_default();
    common.insert(label::HOSTNAME.to_owned(), format!("launch {index}"));
    common
}

fn selects(selector: &LabelSelector, labels: &BTreeMap<String, String>) -> bool {
    selector.match_labels.iter().all(|(key, value)| labels.get(key) == Some(value))
        && selector.match_expressions.iter().all(|one| {
            let value = labels.get(&one.key);
            match one.operator {
                Operator::Exists => value.is_some(),
                Operator::DoesNotExist => value.is_none(),
                Operator::NotIn => value.is_none_or(|value| !one.values.contains(value)),
                _ => value.is_some_and(|value| Requirement::new(one).is_ok_and(|read| read.has(value))),
            }
        })
}

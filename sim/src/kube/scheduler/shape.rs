//! Parses the scheduling requirements of a pod from its JSON. Written independently of `plimsoll-snapshot`, which
//! parses pods for the product.

use crate::apiserver::object;
use crate::kube::quantity::Amounts;
use crate::kube::view::PodView;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::resources::{CPU, Resources};
use plimsoll_model::snapshot::{
    HostPort, LabelSelector, PodAffinityTerm, PodShape, PreferredTerm, TopologySpread, VolumeTopology,
};
use plimsoll_model::taints::{TaintEffect, Toleration, TolerationOperator};
use serde_json::Value;
use std::collections::BTreeMap;

const REQUIRED: &str = "requiredDuringSchedulingIgnoredDuringExecution";
const PREFERRED: &str = "preferredDuringSchedulingIgnoredDuringExecution";

/// Labels of namespaces, by name.
pub(super) type Namespaces<'a> = BTreeMap<&'a str, BTreeMap<String, String>>;

/// Shape of a pod whose volumes have the topology `volumes`.
pub(super) fn of_pod(pod: &PodView, namespaces: &Namespaces<'_>, volumes: Vec<VolumeTopology>) -> PodShape {
    let node_affinity =
        |kind| object::at(&pod.object, &["spec", "affinity", "nodeAffinity", kind]).unwrap_or(&Value::Null);
    let preferred = object::items(&pod.object, &["spec", "affinity", "nodeAffinity", PREFERRED]).iter();
    let labels = strings(object::at(&pod.object, &["metadata", "labels"]));
    let spreads = object::items(&pod.object, &["spec", "topologySpreadConstraints"]).iter();
    let mut shape = PodShape {
        namespace: pod.key.namespace.clone(),
        requests: resources(&pod.requests, |whole| -(-whole).div_euclid(1000)),
        node_selector: strings(object::at(&pod.object, &["spec", "nodeSelector"])),
        required_node_affinity: object::items(node_affinity(REQUIRED), &["nodeSelectorTerms"])
            .iter()
            .map(term)
            .collect(),
        preferred_node_affinity: preferred
            .map(|one| PreferredTerm { weight: weight(one), term: term(&one["preference"]) })
            .collect(),
        tolerations: pod.tolerations().iter().map(toleration).collect(),
        host_ports: pod
            .host_ports
            .iter()
            .filter_map(|(port, protocol, ip)| {
                Some(HostPort { ip: ip.clone(), port: u16::try_from(*port).ok()?, protocol: protocol.clone() })
            })
            .collect(),
        topology_spread: spreads.map(|constraint| spread(constraint, &labels)).collect(),
        volumes,
        priority: i32::try_from(pod.priority).unwrap_or(i32::MAX),
        ..PodShape::default()
    };
    for (kind, anti) in [("podAffinity", false), ("podAntiAffinity", true)] {
        let own = (pod.key.namespace.as_str(), &labels);
        let required = object::items(&pod.object, &["spec", "affinity", kind, REQUIRED]).iter();
        shape.pod_affinity.extend(required.map(|term| affinity(term, anti, None, own, namespaces)));
        let preferred = object::items(&pod.object, &["spec", "affinity", kind, PREFERRED]).iter();
        shape
            .pod_affinity
            .extend(preferred.map(|one| affinity(&one["podAffinityTerm"], anti, Some(weight(one)), own, namespaces)));
    }
    shape.labels = labels;
    shape.id = shape.content_id();
    shape
}

/// Converts thousandths to the units of the model: CPU stays in thousandths, other resources are rounded to whole
/// units.
pub(super) fn resources(amounts: &Amounts, round: fn(i64) -> i64) -> Resources {
    let whole = |(name, amount): (&String, &i64)| (name.clone(), if name == CPU { *amount } else { round(*amount) });
    amounts.iter().map(whole).collect()
}

/// Entries of a map of strings.
pub(super) fn strings(object: Option<&Value>) -> BTreeMap<String, String> {
    let entries = object.and_then(Value::as_object).into_iter().flatten();
    entries.map(|(key, value)| (key.clone(), value.as_str().unwrap_or_default().to_owned())).collect()
}

/// Parses a term. An invalid term matches nothing, like an empty one.
pub(super) fn term(term: &Value) -> NodeSelectorTerm {
    serde_json::from_value(term.clone()).unwrap_or_default()
}

fn weight(preference: &Value) -> i32 {
    object::integer(preference, &["weight"]).and_then(|weight| i32::try_from(weight).ok()).unwrap_or(0)
}

fn toleration(toleration: &Value) -> Toleration {
    let field = |name| object::text(toleration, &[name]).to_owned();
    let exists = field("operator") == "Exists";
    Toleration {
        key: field("key"),
        operator: if exists { TolerationOperator::Exists } else { TolerationOperator::Equal },
        value: field("value"),
        effect: TaintEffect::parse(&field("effect")),
    }
}

/// `None` if the selector is absent or invalid.
fn selector(selector: Option<&Value>) -> Option<LabelSelector> {
    let selector = selector.filter(|selector| selector.is_object())?;
    let expression = |it: &Value| serde_json::from_value::<NodeSelectorRequirement>(it.clone()).ok();
    let expressions: Option<Vec<_>> = object::items(selector, &["matchExpressions"]).iter().map(expression).collect();
    Some(LabelSelector { match_labels: strings(selector.get("matchLabels")), match_expressions: expressions? })
}

/// The selector of a constraint with its matchLabelKeys and mismatchLabelKeys.
fn keyed_selector(constraint: &Value, labels: &BTreeMap<String, String>) -> Option<LabelSelector> {
    let mut selector = selector(constraint.get("labelSelector"))?;
    for (field, operator) in [("matchLabelKeys", Operator::In), ("mismatchLabelKeys", Operator::NotIn)] {
        for key in object::items(constraint, &[field]).iter().filter_map(Value::as_str) {
            let value = labels.get(key).map(|value| NodeSelectorRequirement::new(key, operator, [value.as_str()]));
            selector.match_expressions.extend(value);
        }
    }
    Some(selector)
}

fn spread(constraint: &Value, labels: &BTreeMap<String, String>) -> TopologySpread {
    let number = |field| object::integer(constraint, &[field]).and_then(|number| i32::try_from(number).ok());
    TopologySpread {
        topology_key: object::text(constraint, &["topologyKey"]).to_owned(),
        max_skew: number("maxSkew").unwrap_or(1),
        min_domains: number("minDomains"),
        required: object::text(constraint, &["whenUnsatisfiable"]) != "ScheduleAnyway",
        selector: keyed_selector(constraint, labels),
        honor_node_affinity: object::text(constraint, &["nodeAffinityPolicy"]) != "Ignore",
        honor_node_taints: object::text(constraint, &["nodeTaintsPolicy"]) == "Honor",
    }
}

fn affinity(
    term: &Value,
    anti: bool,
    weight: Option<i32>,
    (namespace, labels): (&str, &BTreeMap<String, String>),
    namespaces: &Namespaces<'_>,
) -> PodAffinityTerm {
    let mut named: Vec<String> =
        object::items(term, &["namespaces"]).iter().filter_map(Value::as_str).map(str::to_owned).collect();
    if let Some(selector) = selector(term.get("namespaceSelector")) {
        let selected = namespaces.iter().filter(|(_, labels)| selector.matches(labels));
        named.extend(selected.map(|(name, _)| (*name).to_owned()));
    } else if named.is_empty() {
        named.push(namespace.to_owned());
    }
    PodAffinityTerm {
        anti,
        weight,
        topology_key: object::text(term, &["topologyKey"]).to_owned(),
        selector: keyed_selector(term, labels),
        namespaces: named,
    }
}

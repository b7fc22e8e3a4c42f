//! Finds the requirements that exclude each other: as few as possible.

use crate::input::intern::Bits;
use crate::input::offerings::PoolView;
use crate::input::pool_requirements::equals;
use crate::input::volumes;
use plimsoll_model::catalog::Offering;
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::similar;
use plimsoll_model::snapshot::PodShape;
use std::collections::BTreeSet;

/// Maximum number of listed values and terms. Further ones are only counted.
const SHOWN: usize = 5;

/// Describes which of the pool's own requirements leave no offering.
pub(super) fn by_itself(view: &PoolView<'_>) -> String {
    if view.custom.impossible {
        return "requirements of the NodePool contradict each other".to_owned();
    }
    if view.offerings.is_empty() {
        return "the catalog has no offering for the node class".to_owned();
    }
    let own = of_offerings(view);
    let all = Bits::all(view.offerings.len());
    let few = fewest(view, &all, &own);
    format!("no offering of the node class satisfies the NodePool's own {}", describe(view, &all, &few))
}

/// The requirements and labels of the pool that offerings satisfy or not.
fn of_offerings(view: &PoolView<'_>) -> Vec<NodeSelectorRequirement> {
    let labels = view.pool.labels.iter().map(|(key, value)| equals(key, value));
    let all = view.pool.requirements.iter().cloned().chain(labels);
    all.filter(|one| !view.custom.has(&one.key)).collect()
}

/// Describes that none of the offerings in `matching` is available. Catalogs do not say why. But if every offering of
/// an architecture or in a zone is unavailable, and others are available, the node class probably lacks something.
pub(super) fn by_availability(view: &PoolView<'_>, matching: &Bits<Offering>) -> String {
    let text = format!("none of the {} matching offerings is available", matching.iter().count());
    let closed = |key: &str| {
        let (wanted, open) = (label_values(view, matching, key), label_values(view, &view.offered, key));
        (!open.is_empty() && wanted.is_disjoint(&open)).then(|| join(&wanted))
    };
    if let Some(architectures) = closed(label::ARCH) {
        let why = format!("the node class may have no image for {architectures} (status.amis)");
        return format!("{text}, nor any other for {architectures}: {why}");
    }
    if let Some(zones) = closed(label::ZONE) {
        return format!("{text}, nor any other in {zones}: the node class may have no subnet there (status.subnets)");
    }
    text
}

/// Values that the offerings in `among` have for a label.
fn label_values<'a>(view: &PoolView<'a>, among: &Bits<Offering>, key: &str) -> BTreeSet<&'a str> {
    among.iter().filter_map(|index| view.label(index, key)).collect()
}

/// Describes which of the pod's requirements leave no offering that the pool allows.
pub(super) fn by_pod(view: &PoolView<'_>, shape: &PodShape) -> String {
    let selector: Vec<NodeSelectorRequirement> =
        shape.node_selector.iter().map(|(key, value)| equals(key, value)).collect();
    let mut parts: Vec<String> = Vec::new();
    let terms: Vec<&NodeSelectorTerm> = shape.required_node_affinity.iter().collect();
    if terms.is_empty() || excluded(view, &view.allowed, &selector) {
        let few = fewest(view, &view.allowed, &selector);
        if let [one] = few.as_slice()
            && let Some(text) = missing_label(view, one)
        {
            return text;
        }
        parts.push(describe(view, &view.allowed, &few));
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
            parts.push(describe(view, &view.allowed, &fewest(view, &view.allowed, &both)));
        }
        if terms.len() > SHOWN {
            parts.push(format!("{} more terms", terms.len() - SHOWN));
        }
    }
    parts.dedup();
    format!("no offering of the NodePool satisfies {}", parts.join(", or "))
}

/// If a pod selects a label that no node of the pool has, suggests where to add it, or the label that may have been
/// meant.
fn missing_label(view: &PoolView<'_>, requirement: &NodeSelectorRequirement) -> Option<String> {
    let key = label::normalized(&requirement.key);
    let [value] = requirement.values.as_slice() else { return None };
    let exists = view.allowed.iter().any(|index| view.label(index, key).is_some()) || view.custom.has(key);
    if exists || key == label::HOSTNAME || label::is_well_known(key) {
        return None;
    }
    let text = format!("no node of NodePool {} has the label {key}", view.pool.name);
    Some(match replacement(key).or_else(|| label::similar(key)) {
        _ if own_requirements(view, key).next().is_some() => {
            format!("{text}, {}: remove it from the pod", required_by_pool(view, key))
        }
        Some(known) => format!("{text}; did you mean {known}?"),
        None if is_reserved(key) => format!("{text}, which is reserved: remove it from the pod"),
        None => format!(
            "{text}: add {key}: {value:?} to spec.template.metadata.labels of the NodePool, or remove it from the pod"
        ),
    })
}

/// The label of Karpenter that replaces a label of its earlier versions or of EKS managed node groups.
fn replacement(key: &str) -> Option<&'static str> {
    match key {
        "karpenter.sh/provisioner-name" => Some(label::NODE_POOL),
        "eks.amazonaws.com/capacityType" => Some(label::CAPACITY_TYPE),
        _ => None,
    }
}

/// Whether the template of a NodePool must not set the label. As in the NodePool's validation, any domain with one of
/// these suffixes is reserved.
fn is_reserved(key: &str) -> bool {
    let domain = key.split_once('/').map_or("", |(domain, _)| domain);
    ["karpenter.sh", label::AWS_DOMAIN].iter().any(|reserved| domain.ends_with(reserved))
}

/// The requirements of the pool on a label.
fn own_requirements<'a>(view: &PoolView<'a>, key: &str) -> impl Iterator<Item = &'a NodeSelectorRequirement> {
    view.pool.requirements.iter().filter(move |one| label::normalized(&one.key) == key)
}

/// `since the NodePool requires size Exists and size Gt [5]`.
fn required_by_pool(view: &PoolView<'_>, key: &str) -> String {
    let own: Vec<String> = own_requirements(view, key).map(ToString::to_string).collect();
    format!("since the NodePool requires {}", own.join(" and "))
}

/// Describes where the volumes of a pod are, and what excludes the pod from there: the pool, or the pod's own selector.
pub(super) fn by_volumes(view: &PoolView<'_>, shape: &PodShape) -> String {
    let anywhere = PodShape { volumes: shape.volumes.clone(), ..PodShape::default() };
    let near = view.any_of(&view.attachable(&anywhere)).and(&view.allowed);
    let places = volumes::places(shape);
    if !near.is_empty() {
        return format!("its volumes are in {places}, which its own node selector or node affinity excludes");
    }
    let zones = label_values(view, &view.allowed, label::ZONE);
    let wanted = volumes::zones(shape);
    if wanted.is_empty() || wanted.iter().any(|zone| zones.contains(zone)) {
        return format!("its volumes can be attached only where {places}");
    }
    let mut sold = Bits::all(view.offerings.len());
    let others = of_offerings(view).into_iter().filter(|one| label::normalized(&one.key) != label::ZONE);
    others.for_each(|one| sold.keep(&view.satisfying(&one)));
    let sold = label_values(view, &sold, label::ZONE);
    let missing: BTreeSet<&str> = wanted.intersection(&sold).copied().collect();
    let (wanted, zones) = (join(&wanted), join(&zones));
    if missing.is_empty() {
        return format!("its volumes are in {wanted}, where no offering that the NodePool allows is sold");
    }
    let missing = join(&missing);
    format!("its volumes are in {wanted}; the NodePool allows only {zones}: add {missing} to its zones")
}

/// Whether values of the label are places. Their names differ by single letters, so a similar name is not likely to be
/// meant.
fn is_place(key: &str) -> bool {
    [label::ZONE, label::ZONE_ID, label::REGION].contains(&key)
}

fn join(values: &BTreeSet<&str>) -> String {
    let listed: Vec<&str> = values.iter().copied().take(SHOWN).collect();
    let more = values.len() - listed.len();
    let rest = if more == 0 { String::new() } else { format!(" and {more} more") };
    format!("{}{rest}", listed.join(", "))
}

/// The keys for which the pool sets strict `minValues`, with the numbers of values.
pub(super) fn min_values<'a>(view: &PoolView<'a>) -> impl Iterator<Item = (&'a str, u32)> + use<'a> {
    let strict = view.strict_min_values;
    let requirements = view.pool.requirements.iter().filter(move |_| strict);
    requirements.filter_map(|one| Some((one.key.as_str(), one.min_values?)))
}

/// Describes how many values each `minValues` requires and finds, except where it finds enough.
pub(super) fn by_min_values(view: &PoolView<'_>, usable: &Bits<Offering>) -> String {
    let unmet = min_values(view).filter_map(|(key, wanted)| {
        let count = label_values(view, usable, label::normalized(key)).len();
        let is_met = u32::try_from(count).is_ok_and(|count| count >= wanted);
        (!is_met).then(|| format!("{wanted} values of {key}, but at most {count} are available"))
    });
    format!("minValues of the NodePool asks for {}", unmet.collect::<Vec<String>>().join(" and for "))
}

/// The first requirement, or else the first two requirements, that exclude all of `among`; all requirements if there
/// are none.
fn fewest<'r>(
    view: &PoolView<'_>,
    among: &Bits<Offering>,
    all: &'r [NodeSelectorRequirement],
) -> Vec<&'r NodeSelectorRequirement> {
    if let Some(one) = all.iter().find(|one| excluded(view, among, std::slice::from_ref(*one))) {
        return vec![one];
    }
    for (index, one) in all.iter().enumerate() {
        for other in all.iter().skip(index + 1) {
            if excluded(view, among, &[one.clone(), other.clone()]) {
                return vec![one, other];
            }
        }
    }
    all.iter().collect()
}

/// Whether no offering of `among` satisfies all of `requirements`.
fn excluded(view: &PoolView<'_>, among: &Bits<Offering>, requirements: &[NodeSelectorRequirement]) -> bool {
    let expressions = requirements.to_vec();
    let shape = PodShape {
        required_node_affinity: vec![NodeSelectorTerm { expressions, fields: Vec::new() }],
        ..PodShape::default()
    };
    !requirements.is_empty() && view.alternatives(&shape).iter().all(|one| !one.offerings.meets(among))
}

/// Describes requirements with the available values.
fn describe(view: &PoolView<'_>, among: &Bits<Offering>, requirements: &[&NodeSelectorRequirement]) -> String {
    let one = |requirement: &&NodeSelectorRequirement| {
        let key = label::normalized(&requirement.key);
        if key == label::HOSTNAME {
            let every_node = requirement.operator == Operator::DoesNotExist;
            return format!("{requirement}, which {}", if every_node { "every node has" } else { "names a node" });
        }
        let mut values: BTreeSet<String> = label_values(view, among, key).into_iter().map(str::to_owned).collect();
        values.extend(view.custom.values(key));
        if values.is_empty() && view.custom.has(key) {
            return format!("{requirement}, {}", required_by_pool(view, key));
        }
        if values.is_empty() {
            return format!("{requirement} (no such label here)");
        }
        let values: BTreeSet<&str> = values.iter().map(String::as_str).collect();
        // There may be hundreds of values. A similar value is more helpful.
        let offered = |value: &str| view.offerings.ids().any(|index| view.label(index, key) == Some(value));
        let misspelt = |value: &&String| !is_place(key) && !offered(value);
        let unknown = requirement.values.iter().filter(misspelt);
        match unknown.filter_map(|value| similar::nearest(value, values.iter().copied())).next() {
            Some(nearest) => format!("{requirement} (did you mean {nearest}?)"),
            None => format!("{requirement} (there is {})", join(&values)),
        }
    };
    requirements.iter().map(one).collect::<Vec<String>>().join(" together with ")
}

//! Hints about labels, values and limits that may be misspelt: none exists with this spelling, but a similar one does.

use plimsoll_model::catalog::{CapacityType, Catalog};
use plimsoll_model::identity::{CatalogId, ShapeId};
use plimsoll_model::names::{NODES_RESOURCE, USD_PER_HOUR_RESOURCE, annotation, label};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::similar;
use plimsoll_model::snapshot::{NodePool, PodShape, Snapshot};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of hints, because further hints are mostly repetitions.
pub(super) const MAX_HINTS: usize = 10;
/// Labels of places. Their names differ by single letters, so the nearest name is not a useful suggestion.
pub(super) const PLACES: [&str; 3] = [label::ZONE, label::ZONE_ID, label::REGION];

/// Hints about the requirements and limits of NodePools, the limits of CapacityQuotas, and the selectors of pods.
pub(crate) fn misspelt(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>) -> Vec<String> {
    let mut hints = Vec::new();
    for pool in &snapshot.node_pools {
        let Some(catalog) = pool.catalog.as_ref().and_then(|id| catalogs.get(id)) else { continue };
        of_pool(pool, catalog, &mut hints);
    }
    of_limits(snapshot, catalogs, &mut hints);
    of_pods(snapshot, catalogs, &mut hints);
    hints.truncate(MAX_HINTS);
    hints
}

fn of_pool(pool: &NodePool, catalog: &Catalog, hints: &mut Vec<String>) {
    for requirement in pool.requirements.iter().filter(|it| !pool.labels.contains_key(&it.key)) {
        let key = label::normalized(&requirement.key);
        if !label::is_well_known(key) {
            if let Some(known) = label::similar(key) {
                hints.push(format!(
                    "NodePool {}: requirement {key} is no known label; did you mean {known}?",
                    pool.name
                ));
            }
            continue;
        }
        for text in unknown_values(requirement, catalog) {
            hints.push(format!("NodePool {}: {text}", pool.name));
        }
    }
}

/// A limit of a resource that no node has limits nothing.
fn of_limits(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, hints: &mut Vec<String>) {
    let of_types = catalogs.values().flat_map(|catalog| &catalog.instance_types).map(|it| &it.capacity);
    let of_overlays = snapshot.node_pools.iter().flat_map(|pool| &pool.overlays).map(|overlay| &overlay.capacity);
    let of_nodes = snapshot.nodes.iter().map(|node| &node.allocatable);
    let of_pods = snapshot.shapes.iter().map(|shape| &shape.requests);
    let amounts = of_types.chain(of_overlays).chain(of_nodes).chain(of_pods);
    let mut known: BTreeSet<&str> = amounts.flat_map(|amounts| amounts.iter().map(|(name, _)| name)).collect();
    known.extend([NODES_RESOURCE, USD_PER_HOUR_RESOURCE]);
    let of_pools = snapshot.node_pools.iter().map(|it| (format!("NodePool {}: spec.limits", it.name), &it.limits));
    let quotas = snapshot.capacity_quotas.iter();
    let of_quotas = quotas.map(|it| (format!("CapacityQuota {}: spec.limits.resources", it.name), &it.limits));
    for (place, limits) in of_pools.chain(of_quotas) {
        for (name, _) in limits.iter() {
            if let Some(meant) = meant_resource(name, &known) {
                hints.push(format!("{place} has {name}, which no instance type has; did you mean {meant}?"));
            }
        }
    }
}

/// The known resource that `name` may be a misspelling of.
fn meant_resource<'k>(name: &str, known: &BTreeSet<&'k str>) -> Option<&'k str> {
    let mut candidates = known.iter().copied();
    if name.contains('/') && !name.starts_with(annotation::PREFIX) {
        // Device plugins add resources with similar names: `nvidia.com/gpumem` is not `nvidia.com/gpu`.
        let alike = candidates.find(|it| similar::is_same_but_for_case(name, it));
        return alike.filter(|_| !known.contains(name));
    }
    // The first letter is rarely wrong, and `gpu` is not `cpu`.
    let first = |text: &str| text.chars().next().map(|letter| letter.to_ascii_lowercase());
    similar::nearest(name, candidates.filter(|it| first(it) == first(name)))
}

/// Values of the requirement that no offering has and that are similar to an existing value.
fn unknown_values(requirement: &NodeSelectorRequirement, catalog: &Catalog) -> Vec<String> {
    let key = label::normalized(&requirement.key);
    if PLACES.contains(&key) || !matches!(requirement.operator, Operator::In | Operator::NotIn) {
        return Vec::new();
    }
    let offered = values(catalog, key);
    let missing = requirement.values.iter().filter(|value| !offered.contains(value.as_str()));
    let text = |value: &String| {
        let meant = similar::nearest(value, offered.iter().copied());
        let advice = match (key, meant) {
            (_, Some(meant)) => format!("did you mean {meant}?"),
            (label::CAPACITY_TYPE, None) if CapacityType::parse(value).is_none() => {
                format!("there is {}", CapacityType::ALL.map(CapacityType::as_str).join(", "))
            }
            (_, None) => return None,
        };
        Some(format!("no offering has {key} {value}; {advice}"))
    };
    missing.filter_map(text).collect()
}

/// The values of a label in a catalog.
fn values<'c>(catalog: &'c Catalog, key: &str) -> BTreeSet<&'c str> {
    let types = || catalog.instance_types.iter();
    match key {
        label::INSTANCE_TYPE => types().map(|it| it.name.as_str()).collect(),
        label::ARCH => types().map(|it| it.architecture.as_str()).collect(),
        label::OS => types().flat_map(|it| &it.operating_systems).map(String::as_str).collect(),
        label::CAPACITY_TYPE => CapacityType::ALL.iter().map(|it| it.as_str()).collect(),
        _ => types().filter_map(|it| it.labels.get(key)).map(String::as_str).collect(),
    }
}

fn of_pods(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, hints: &mut Vec<String>) {
    let known = known_labels(snapshot);
    for shape in &snapshot.shapes {
        for key in selected_keys(shape) {
            if known.contains(key) || key == label::HOSTNAME || label::is_well_known(label::normalized(key)) {
                continue;
            }
            if let (Some(meant), Some(pod)) = (label::similar(key), some_pod(snapshot, &shape.id)) {
                hints.push(format!("Pod {pod}: label {key} is unknown; did you mean {meant}?"));
            }
        }
        let selected = shape
            .node_selector
            .iter()
            .map(|(key, value)| NodeSelectorRequirement::new(key, Operator::In, [value.as_str()]));
        for requirement in selected {
            // A value that one of the catalogs has is not misspelt.
            let texts: Vec<Vec<String>> = catalogs.values().map(|it| unknown_values(&requirement, it)).collect();
            let on_node = snapshot.nodes.iter().any(|node| {
                requirement.values.iter().any(|value| label::lookup(&node.labels, &requirement.key) == Some(value))
            });
            let text = texts.first().and_then(|texts| texts.first()).filter(|_| texts.iter().all(|it| !it.is_empty()));
            if let (Some(text), Some(pod), false) = (text, some_pod(snapshot, &shape.id), on_node) {
                hints.push(format!("Pod {pod}: {text}"));
            }
        }
    }
}

/// Labels that nodes have or can get from their NodePools.
fn known_labels(snapshot: &Snapshot) -> BTreeSet<&str> {
    let of_pools = snapshot.node_pools.iter().flat_map(|pool| {
        pool.labels.keys().map(String::as_str).chain(pool.requirements.iter().map(|it| it.key.as_str()))
    });
    let of_nodes = snapshot.nodes.iter().flat_map(|node| node.labels.keys()).map(String::as_str);
    of_pools.chain(of_nodes).collect()
}

fn selected_keys(shape: &PodShape) -> BTreeSet<&str> {
    let affinity = shape.required_node_affinity.iter().flat_map(|term| &term.expressions);
    shape.node_selector.keys().map(String::as_str).chain(affinity.map(|it| it.key.as_str())).collect()
}

/// A pod or DaemonSet of the shape.
pub(super) fn some_pod(snapshot: &Snapshot, shape: &ShapeId) -> Option<String> {
    let pod = snapshot.pods.iter().find(|pod| pod.shape == *shape).map(plimsoll_model::snapshot::Pod::full_name);
    let daemon_set = || snapshot.daemon_sets.iter().find(|it| it.shape == *shape);
    pod.or_else(|| daemon_set().map(|it| format!("of DaemonSet {}/{}", it.namespace, it.name)))
}

/// Hints about pods that request less than 1 KiB of memory: `512m` is half a byte.
pub(crate) fn tiny_memory(snapshot: &Snapshot) -> Vec<String> {
    /// A smaller amount is never intended.
    const TINY: i64 = 1024;
    let tiny = |shape: &&PodShape| (1..TINY).contains(&shape.requests.get("memory"));
    let text = |shape: &PodShape| {
        let (pod, bytes) = (some_pod(snapshot, &shape.id)?, shape.requests.get("memory"));
        let bytes = if bytes == 1 { "1 byte".to_owned() } else { format!("{bytes} bytes") };
        Some(format!("Pod {pod} requests {bytes} of memory; did you mean Mi? The suffix m stands for a thousandth"))
    };
    snapshot.shapes.iter().filter(tiny).filter_map(text).take(MAX_HINTS).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_resource_of_a_device_plugin_is_no_misspelling_of_another() {
        let known = BTreeSet::from([
            "cpu",
            "memory",
            "nodes",
            "aws.amazon.com/neuroncore",
            "nvidia.com/gpu",
            "plimsoll.dev/usd-per-hour",
            "vpc.amazonaws.com/pod-eni",
        ]);
        for (name, meant) in [
            ("nvidia.com/gpucores", None),
            ("nvidia.com/gpumem", None),
            ("nvidia.com/vgpu", None),
            ("aws.amazon.com/neurondevice", None),
            ("vpc.amazonaws.com/efa", None),
            ("gpu", None),
            ("GPU", None),
            ("nvidia.com/gpu", None),
            ("NVIDIA.com/GPU", Some("nvidia.com/gpu")),
            ("nvidia.com/g-pu", Some("nvidia.com/gpu")),
            ("plimsoll.dev/usd-per-hours", Some("plimsoll.dev/usd-per-hour")),
            ("Memory", Some("memory")),
            ("cpus", Some("cpu")),
        ] {
            assert_eq!(meant_resource(name, &known), meant, "{name}");
        }
    }
}

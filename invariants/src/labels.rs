//! Labels that a node of an offering will have, and whether pods may run where labels and taints are known.

use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::plan::Launch;
use plimsoll_model::requirements::{NodeSelectorTerm, Operator, Requirement};
use plimsoll_model::snapshot::{NodePool, PodShape, VolumeTopology};
use plimsoll_model::taints::{Taint, TaintEffect};
use std::collections::BTreeMap;

/// Older names under which nodes carry a label as well.
const ALIASES: [&str; 6] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.ebs.csi.aws.com/zone",
];

/// `labels`, each also under its older or newer name.
pub(crate) fn aliased(labels: &BTreeMap<String, String>) -> BTreeMap<String, String> {
    let mut all = labels.clone();
    for old in ALIASES {
        let new = label::normalized(old);
        if let Some(value) = labels.get(new) {
            all.entry(old.to_owned()).or_insert_with(|| value.clone());
        } else if let Some(value) = labels.get(old) {
            all.entry(new.to_owned()).or_insert_with(|| value.clone());
        }
    }
    all
}

/// The value that a node with these labels has under `key`, which is [`label::normalized`], or under an older name of it.
pub(crate) fn value_of<'l>(labels: &'l BTreeMap<String, String>, key: &str) -> Option<&'l str> {
    let older = || ALIASES.into_iter().filter(|old| label::normalized(old) == key).find_map(|old| labels.get(old));
    labels.get(key).or_else(older).map(String::as_str)
}

/// The labels of a node that `launch` makes of that offering.
pub(crate) fn of_offering(
    catalog: &Catalog,
    pool: &NodePool,
    launch: &Launch,
    kind: &InstanceType,
    offering: &Offering,
) -> BTreeMap<String, String> {
    let mut labels = pool.labels.clone();
    labels.extend(kind.labels.clone());
    let on_system = pool.requirements.iter().filter(|one| label::normalized(&one.key) == label::OS);
    let read: Vec<Requirement> = on_system.filter_map(|one| Requirement::new(one).ok()).collect();
    let allowed = kind.operating_systems.iter().find(|system| read.iter().all(|one| one.has(system)));
    for (key, value) in [
        (label::ZONE, offering.zone.as_str()),
        (label::ZONE_ID, &offering.zone_id),
        (label::CAPACITY_TYPE, offering.capacity_type.as_str()),
        (label::INSTANCE_TYPE, &kind.name),
        (label::ARCH, &kind.architecture),
        (label::REGION, &catalog.region),
        (label::NODE_POOL, pool.name.as_str()),
        (label::EC2_NODE_CLASS, &pool.node_class),
        (label::OS, allowed.or(kind.operating_systems.first()).map_or("", String::as_str)),
        (label::REGISTERED, "true"),
        (label::INITIALIZED, "true"),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels.retain(|_, value| !value.is_empty());
    // Open labels of the pool get the one value that the launch asks for.
    for asked in launch.requirements.iter().filter(|one| one.operator == Operator::In && one.values.len() == 1) {
        labels.entry(asked.key.clone()).or_insert_with(|| asked.values[0].clone());
    }
    aliased(&labels)
}

/// The first requirement of the pool that a node with these labels does not meet. Open labels that the launch leaves open are no problem.
pub(crate) fn pool_problem(pool: &NodePool, labels: &BTreeMap<String, String>) -> Option<String> {
    for wanted in &pool.requirements {
        let read = match Requirement::new(wanted) {
            Ok(read) => read,
            Err(error) => return Some(error.to_string()),
        };
        let met = match labels.get(&read.key) {
            Some(value) => read.has(value),
            None => read.allows_absence() || !label::is_well_known(&read.key),
        };
        if !met {
            return Some(format!("requirement of the pool on {}", wanted.key));
        }
    }
    None
}

/// What keeps pods of `shape` from a place with these taints.
pub(crate) fn taint_problem(shape: &PodShape, taints: &[Taint]) -> Option<String> {
    let mut hard = taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    let bad = hard.find(|taint| !shape.tolerations.iter().any(|one| one.tolerates(taint)))?;
    Some(format!("taint {}={}:{}", bad.key, bad.value, bad.effect.as_str()))
}

/// What keeps pods of `shape` from a node with these labels, which are [`aliased`].
pub(crate) fn label_problem(shape: &PodShape, name: &str, labels: &BTreeMap<String, String>) -> Option<String> {
    let wrong = shape.node_selector.iter().find(|(key, value)| labels.get(*key) != Some(value));
    if let Some((key, value)) = wrong {
        return Some(format!("node selector {key}={value}"));
    }
    let required = &shape.required_node_affinity;
    let holds = |term: &NodeSelectorTerm| term.matches_node(name, labels);
    if !required.is_empty() && !required.iter().any(holds) {
        return Some("required node affinity".to_owned());
    }
    let attachable = |volume: &VolumeTopology| volume.alternatives.is_empty() || volume.alternatives.iter().any(holds);
    (!shape.volumes.iter().all(attachable)).then(|| "a volume that cannot be attached there".to_owned())
}

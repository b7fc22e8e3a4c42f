//! Labels that a node of an offering will have, and whether pods may run where labels and taints are known.

use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::plan::Launch;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator, Requirement};
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

/// Labels of a node, borrowed: a check looks at thousands of nodes that offerings would become.
pub(crate) type Labels<'a> = BTreeMap<&'a str, &'a str>;

/// `labels`, each also under its older or newer name.
pub(crate) fn aliased(labels: &BTreeMap<String, String>) -> Labels<'_> {
    let mut all = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    add_aliases(&mut all);
    all
}

fn add_aliases(labels: &mut Labels<'_>) {
    for old in ALIASES {
        let new = label::normalized(old);
        match (labels.get(old).copied(), labels.get(new).copied()) {
            (None, Some(value)) => labels.insert(old, value),
            (Some(value), None) => labels.insert(new, value),
            _ => None,
        };
    }
}

/// The value that an existing node with these labels has under `key`, which is [`label::normalized`], or under an older name of it.
pub(crate) fn value_of<'l>(labels: &'l BTreeMap<String, String>, key: &str) -> Option<&'l str> {
    let older = || ALIASES.into_iter().filter(|old| label::normalized(old) == key).find_map(|old| labels.get(old));
    labels.get(key).or_else(older).map(String::as_str)
}

/// The labels of a node that `launch` makes of that offering; `requirements` are those of the pool.
pub(crate) fn of_offering<'a>(
    catalog: &'a Catalog,
    pool: &'a NodePool,
    requirements: &[Requirement],
    launch: &'a Launch,
    (kind, offering): (&'a InstanceType, &'a Offering),
) -> Labels<'a> {
    let of_pool = pool.labels.iter().chain(&kind.labels);
    let mut labels: Labels<'a> = of_pool.map(|(key, value)| (key.as_str(), value.as_str())).collect();
    let on_system = |system: &&String| {
        let mut asked = requirements.iter().filter(|one| one.key == label::OS);
        asked.all(|one| one.has(system))
    };
    let allowed = kind.operating_systems.iter().find(on_system);
    labels.extend([
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
    ]);
    labels.retain(|_, value| !value.is_empty());
    // Open labels of the pool get the one value that the launch asks for.
    for asked in launch.requirements.iter().filter(|one| one.operator == Operator::In && one.values.len() == 1) {
        labels.entry(&asked.key).or_insert(&asked.values[0]);
    }
    add_aliases(&mut labels);
    labels
}

/// The first of the pool's requirements, each as it is written and as it is read, that a node with these labels does not meet. Open labels that
/// the launch leaves open are no problem.
pub(crate) fn pool_problem(pool: &NodePool, requirements: &[Requirement], labels: &Labels<'_>) -> Option<String> {
    let unmet = |(_, read): &(&NodeSelectorRequirement, &Requirement)| match labels.get(read.key.as_str()) {
        Some(value) => !read.has(value),
        None => !read.allows_absence() && label::is_well_known(&read.key),
    };
    let (wanted, _) = pool.requirements.iter().zip(requirements).find(unmet)?;
    Some(format!("requirement of the pool on {}", wanted.key))
}

/// What keeps pods of `shape` from a place with these taints.
pub(crate) fn taint_problem(shape: &PodShape, taints: &[Taint]) -> Option<String> {
    let mut hard = taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    let bad = hard.find(|taint| !shape.tolerations.iter().any(|one| one.tolerates(taint)))?;
    Some(format!("taint {}={}:{}", bad.key, bad.value, bad.effect.as_str()))
}

/// What keeps pods of `shape` from a node with these labels, which are [`aliased`].
pub(crate) fn label_problem(shape: &PodShape, name: &str, labels: &Labels<'_>) -> Option<String> {
    let wrong = shape.node_selector.iter().find(|(key, value)| labels.get(key.as_str()) != Some(&value.as_str()));
    if let Some((key, value)) = wrong {
        return Some(format!("node selector {key}={value}"));
    }
    let required = &shape.required_node_affinity;
    let holds = |term: &NodeSelectorTerm| term.matches_node_with(name, |key| labels.get(key).copied());
    if !required.is_empty() && !required.iter().any(holds) {
        return Some("required node affinity".to_owned());
    }
    let attachable = |volume: &VolumeTopology| volume.alternatives.is_empty() || volume.alternatives.iter().any(holds);
    (!shape.volumes.iter().all(attachable)).then(|| "a volume that cannot be attached there".to_owned())
}

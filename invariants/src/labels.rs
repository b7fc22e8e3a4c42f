//! Labels that a node of an offering will have, and whether pods may run where labels and taints are known.

use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Requirement};
use plimsoll_model::snapshot::{NodePool, PodShape, VolumeTopology};
use plimsoll_model::taints::{Taint, TaintEffect};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Older names under which nodes carry a label as well.
const ALIASES: [&str; 6] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.ebs.csi.aws.com/zone",
];

/// Labels of a node, borrowed.
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

/// The labels of a node that a launch makes of an offering. A check looks at thousands of offerings, and at few labels of each: they are
/// found when they are asked for.
#[derive(Debug, Clone)]
pub(crate) struct OfferingLabels<'a> {
    catalog: &'a Catalog,
    pool: &'a NodePool,
    kind: &'a InstanceType,
    offering: &'a Offering,
    system: &'a str,
    /// The one value that the launch asks for, of each label of which it asks for one value.
    asked: Rc<[(&'a str, &'a str)]>,
}

/// Labels that a node has from its offering and its pool, whatever labels these list.
const OWN: [&str; 11] = [
    label::ZONE,
    label::ZONE_ID,
    label::CAPACITY_TYPE,
    label::INSTANCE_TYPE,
    label::ARCH,
    label::REGION,
    label::NODE_POOL,
    label::EC2_NODE_CLASS,
    label::OS,
    label::REGISTERED,
    label::INITIALIZED,
];

impl<'a> OfferingLabels<'a> {
    /// Of a node of the pool; `requirements` are the pool's.
    pub(crate) fn new(
        catalog: &'a Catalog,
        pool: &'a NodePool,
        requirements: &[Requirement],
        (kind, offering): (&'a InstanceType, &'a Offering),
        asked: Rc<[(&'a str, &'a str)]>,
    ) -> Self {
        let on_system = |system: &&String| {
            let mut asked = requirements.iter().filter(|one| one.key == label::OS);
            asked.all(|one| one.has(system))
        };
        let allowed = kind.operating_systems.iter().find(on_system);
        let system = allowed.or(kind.operating_systems.first()).map_or("", String::as_str);
        Self { catalog, pool, kind, offering, system, asked }
    }

    /// The value under that name, or under an older or newer name of it.
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        let new = label::normalized(key);
        let older = || ALIASES.into_iter().filter(|old| label::normalized(old) == new).find_map(|old| self.named(old));
        self.named(key).or_else(|| self.named(new)).or_else(older)
    }

    /// The value under just that name. What pool and type leave open is as the launch asks.
    fn named(&self, key: &str) -> Option<&'a str> {
        let listed = || self.kind.labels.get(key).or_else(|| self.pool.labels.get(key)).map(String::as_str);
        let value = if OWN.contains(&key) { Some(self.own(key)) } else { listed() };
        let asked = || self.asked.iter().find(|(name, _)| *name == key).map(|(_, value)| *value);
        value.filter(|value| !value.is_empty()).or_else(asked)
    }

    /// Of [`OWN`].
    fn own(&self, key: &str) -> &'a str {
        match key {
            label::ZONE => &self.offering.zone,
            label::ZONE_ID => &self.offering.zone_id,
            label::CAPACITY_TYPE => self.offering.capacity_type.as_str(),
            label::INSTANCE_TYPE => &self.kind.name,
            label::ARCH => &self.kind.architecture,
            label::REGION => &self.catalog.region,
            label::NODE_POOL => self.pool.name.as_str(),
            label::EC2_NODE_CLASS => &self.pool.node_class,
            label::OS => self.system,
            _ => "true",
        }
    }

    /// All of them.
    pub(crate) fn all(&self) -> Labels<'a> {
        let listed = self.pool.labels.keys().chain(self.kind.labels.keys()).map(String::as_str);
        let keys = listed.chain(self.asked.iter().map(|(key, _)| *key)).chain(OWN).chain(ALIASES);
        keys.filter_map(|key| Some((key, self.get(key)?))).collect()
    }
}

/// The first of the pool's requirements, each as it is written and as it is read, that a node with these labels does not meet. Open labels that
/// the launch leaves open are no problem.
pub(crate) fn pool_problem(
    pool: &NodePool,
    requirements: &[Requirement],
    labels: &OfferingLabels<'_>,
) -> Option<String> {
    let unmet = |(_, read): &(&NodeSelectorRequirement, &Requirement)| match labels.get(&read.key) {
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

/// What keeps pods of `shape` from a node of that name; `value` is that of a label, under whatever name it is asked for.
pub(crate) fn label_problem<'l>(
    shape: &PodShape,
    name: &str,
    value: impl Fn(&str) -> Option<&'l str>,
) -> Option<String> {
    let wrong = shape.node_selector.iter().find(|(key, wanted)| value(key) != Some(wanted.as_str()));
    if let Some((key, value)) = wrong {
        return Some(format!("node selector {key}={value}"));
    }
    let required = &shape.required_node_affinity;
    let holds = |term: &NodeSelectorTerm| term.matches_node_with(name, &value);
    if !required.is_empty() && !required.iter().any(holds) {
        return Some("required node affinity".to_owned());
    }
    let attachable = |volume: &VolumeTopology| volume.alternatives.is_empty() || volume.alternatives.iter().any(holds);
    (!shape.volumes.iter().all(attachable)).then(|| "a volume that cannot be attached there".to_owned())
}

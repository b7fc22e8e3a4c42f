//! Labels of the node that an offering would become, and whether pods may run on nodes with given labels and taints.

use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Requirement};
use plimsoll_model::snapshot::{NodePool, PodShape, VolumeTopology};
use plimsoll_model::taints::{Taint, TaintEffect};
use std::collections::BTreeMap;
use std::rc::Rc;

/// Deprecated names of labels that nodes also carry.
const ALIASES: [&str; 6] = [
    "beta.kubernetes.io/arch",
    "beta.kubernetes.io/instance-type",
    "beta.kubernetes.io/os",
    "failure-domain.beta.kubernetes.io/region",
    "failure-domain.beta.kubernetes.io/zone",
    "topology.ebs.csi.aws.com/zone",
];

/// Hostname of a new node, which no requirement can name.
const NEW_HOST: &str = "(not known yet)";

/// Borrowed labels of a node.
pub(crate) type Labels<'a> = BTreeMap<&'a str, &'a str>;

/// Returns `labels`, each also under its deprecated or current name.
pub(crate) fn aliased(labels: &BTreeMap<String, String>) -> Labels<'_> {
    let mut aliased = labels.iter().map(|(key, value)| (key.as_str(), value.as_str())).collect();
    add_aliases(&mut aliased);
    aliased
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

/// Value of a label of an existing node. `key` must be [`label::normalized`]; deprecated names are considered too.
pub(crate) fn value_of<'l>(labels: &'l BTreeMap<String, String>, key: &str) -> Option<&'l str> {
    let older = || ALIASES.into_iter().filter(|old| label::normalized(old) == key).find_map(|old| labels.get(old));
    labels.get(key).or_else(older).map(String::as_str)
}

/// Labels of the node that an offering would become. They are computed on demand, because a check considers thousands
/// of offerings but few labels of each.
#[derive(Debug, Clone)]
pub(crate) struct OfferingLabels<'a> {
    catalog: &'a Catalog,
    pool: &'a NodePool,
    instance_type: &'a InstanceType,
    offering: &'a Offering,
    operating_system: &'a str,
    /// Labels for which the launch requires exactly one value.
    pinned: Rc<[(&'a str, &'a str)]>,
}

/// Labels that come from the offering and the pool regardless of their own labels.
const OFFERING_LABELS: [&str; 11] = [
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
    /// Labels of a node of `pool`, which has `requirements`.
    pub(crate) fn new(
        catalog: &'a Catalog,
        pool: &'a NodePool,
        requirements: &[Requirement],
        (instance_type, offering): (&'a InstanceType, &'a Offering),
        pinned: Rc<[(&'a str, &'a str)]>,
    ) -> Self {
        let is_allowed = |operating_system: &&String| {
            let mut os_requirements = requirements.iter().filter(|requirement| requirement.key == label::OS);
            os_requirements.all(|requirement| requirement.has(operating_system))
        };
        let allowed = instance_type.operating_systems.iter().find(is_allowed);
        let operating_system = allowed.or(instance_type.operating_systems.first()).map_or("", String::as_str);
        Self { catalog, pool, instance_type, offering, operating_system, pinned }
    }

    /// Value of a label, also under its deprecated or current name.
    pub(crate) fn get(&self, key: &str) -> Option<&'a str> {
        let new = label::normalized(key);
        let older = || ALIASES.into_iter().filter(|old| label::normalized(old) == new).find_map(|old| self.exact(old));
        self.exact(key).or_else(|| self.exact(new)).or_else(older)
    }

    /// Like [`Self::get`], for selectors of pods and CapacityQuotas. The new node will have a hostname.
    pub(crate) fn get_for_pods(&self, key: &str) -> Option<&'a str> {
        if key == label::HOSTNAME { Some(NEW_HOST) } else { self.get(key) }
    }

    /// Value of a label under exactly this name. If neither pool nor instance type has the label, the launch's value is
    /// used.
    fn exact(&self, key: &str) -> Option<&'a str> {
        let listed = || self.instance_type.labels.get(key).or_else(|| self.pool.labels.get(key)).map(String::as_str);
        if label::CAPACITY_RESERVATION.contains(&key) {
            return self.offering.reservation_label(key);
        }
        // Labels of pools and types may have an empty value.
        let filled = || Some(self.offering_label(key)).filter(|value| !value.is_empty());
        let value = if OFFERING_LABELS.contains(&key) { filled() } else { listed() };
        value.or_else(|| self.pinned.iter().find(|(name, _)| *name == key).map(|(_, value)| *value))
    }

    /// Value of one of [`OFFERING_LABELS`]; empty if the catalog does not have it.
    fn offering_label(&self, key: &str) -> &'a str {
        match key {
            label::ZONE => &self.offering.zone,
            label::ZONE_ID => &self.offering.zone_id,
            label::CAPACITY_TYPE => self.offering.capacity_type.as_str(),
            label::INSTANCE_TYPE => &self.instance_type.name,
            label::ARCH => &self.instance_type.architecture,
            label::REGION => &self.catalog.region,
            label::NODE_POOL => self.pool.name.as_str(),
            label::EC2_NODE_CLASS => &self.pool.node_class,
            label::OS => self.operating_system,
            _ => "true",
        }
    }
}

/// Returns the first requirement of the pool that a node with these labels does not meet. `requirements` are the parsed
/// `pool.requirements`. The launch may leave a custom label open whose values the pool lists: the actuator uses the
/// first that all requirements on the label allow. Without such a value, nothing gives the node the label.
pub(crate) fn pool_problem(
    pool: &NodePool,
    requirements: &[Requirement],
    labels: &OfferingLabels<'_>,
) -> Option<String> {
    let is_given = |key: &str| {
        let on_key = || requirements.iter().filter(|requirement| requirement.key == key);
        let mut listed = on_key().filter(|requirement| !requirement.complement).flat_map(|listed| &listed.values);
        listed.any(|value| on_key().all(|requirement| requirement.has(value)))
    };
    let unmet = |(_, parsed): &(&NodeSelectorRequirement, &Requirement)| match labels.get(&parsed.key) {
        Some(value) => !parsed.has(value),
        // The launch chooses a tenancy that the pool allows.
        None if parsed.key == label::INSTANCE_TENANCY => !label::TENANCIES.iter().any(|tenancy| parsed.has(tenancy)),
        None if label::is_of_launch(&parsed.key) => false,
        None => !parsed.allows_absence() && (label::is_well_known(&parsed.key) || !is_given(&parsed.key)),
    };
    let (wanted, _) = pool.requirements.iter().zip(requirements).find(unmet)?;
    Some(format!("requirement of the pool on {}", wanted.key))
}

/// Returns the first taint that `shape` does not tolerate.
pub(crate) fn taint_problem(shape: &PodShape, taints: &[Taint]) -> Option<String> {
    let mut taints = taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    let taint = taints.find(|taint| !shape.tolerations.iter().any(|toleration| toleration.tolerates(taint)))?;
    Some(format!("taint {}={}:{}", taint.key, taint.value, taint.effect.as_str()))
}

/// Returns why `shape` cannot run on the node `name`. `value` returns the value of a label under any of its names.
pub(crate) fn label_problem<'l>(
    shape: &PodShape,
    name: &str,
    value: impl Fn(&str) -> Option<&'l str>,
) -> Option<String> {
    let mismatch = shape.node_selector.iter().find(|(key, wanted)| value(key) != Some(wanted.as_str()));
    if let Some((key, value)) = mismatch {
        return Some(format!("node selector {key}={value}"));
    }
    let required = &shape.required_node_affinity;
    let holds = |term: &NodeSelectorTerm| term.matches_node_with(name, &value);
    if !required.is_empty() && !required.iter().any(holds) {
        return Some("required node affinity".to_owned());
    }
    let attachable = |volume: &VolumeTopology| {
        volume.problem.is_none() && (volume.alternatives.is_empty() || volume.alternatives.iter().any(holds))
    };
    (!shape.volumes.iter().all(attachable)).then(|| "a volume that cannot be attached there".to_owned())
}

//! Labels of the node that a launch becomes.

use crate::catalog::{Catalog, InstanceType, Offering};
use crate::names::label;
use crate::plan::Launch;
use crate::requirements::{NodeSelectorRequirement, Operator, selector_matches};

/// Labels of the node that a launch gets if it buys `offering`.
#[derive(Debug, Clone, Copy)]
pub struct LaunchLabels<'a> {
    /// The launch.
    pub launch: &'a Launch,
    /// Its catalog.
    pub catalog: &'a Catalog,
    /// The type of the offering.
    pub kind: &'a InstanceType,
    /// The bought offering.
    pub offering: &'a Offering,
}

/// Labels whose value the offering, its type or the pool decides, besides [`label::CAPACITY_RESERVATION`].
const DECIDED: [&str; 11] = [
    label::ZONE,
    label::ZONE_ID,
    label::CAPACITY_TYPE,
    label::INSTANCE_TYPE,
    label::ARCH,
    label::OS,
    label::REGION,
    label::NODE_POOL,
    label::EC2_NODE_CLASS,
    label::REGISTERED,
    label::INITIALIZED,
];

impl<'a> LaunchLabels<'a> {
    /// All labels that every node of the launch gets if it buys the offering, without those of the template.
    pub fn decided(&self) -> impl Iterator<Item = (&'a str, &'a str)> {
        let of_type = self.kind.labels.iter().map(|(key, value)| (key.as_str(), value.as_str()));
        let keys = DECIDED.iter().chain(&label::CAPACITY_RESERVATION);
        of_type.chain(keys.filter_map(|key| Some((*key, self.get(key)?))))
    }

    /// The value of a label, if it is certain.
    pub fn get(&self, key: &str) -> Option<&'a str> {
        let Self { launch, catalog, kind, offering } = *self;
        let key = label::normalized(key);
        let value = match key {
            label::ZONE => &offering.zone,
            label::ZONE_ID => &offering.zone_id,
            label::CAPACITY_TYPE => offering.capacity_type.as_str(),
            label::INSTANCE_TYPE => &kind.name,
            label::ARCH => &kind.architecture,
            label::REGION => &catalog.region,
            label::NODE_POOL => launch.node_pool.as_str(),
            label::EC2_NODE_CLASS => &launch.node_class,
            label::OS => self.operating_system(),
            label::REGISTERED | label::INITIALIZED => "true",
            label::HOSTNAME => label::NEW_HOSTNAME,
            _ => {
                let listed = || kind.labels.get(key).or_else(|| launch.labels.get(key)).map(String::as_str);
                return offering.reservation_label(key).or_else(listed).or_else(|| self.pinned(key));
            }
        };
        Some(value).filter(|value| !value.is_empty())
    }

    /// The value of a label for which the launch requires exactly one.
    fn pinned(&self, key: &str) -> Option<&'a str> {
        self.required(key).find_map(|requirement| match (requirement.operator, requirement.values.as_slice()) {
            (Operator::In, [value]) => Some(value.as_str()),
            _ => None,
        })
    }

    /// If the launch chooses the value of the label, which neither the type nor the template sets: whether one of its
    /// values satisfies the requirement.
    pub(super) fn open(&self, requirement: &NodeSelectorRequirement) -> Option<bool> {
        let key = label::normalized(&requirement.key);
        if label::is_well_known(key) && key != label::INSTANCE_TENANCY {
            return None;
        }
        if let Some(listed) = self.required(key).find(|one| one.operator == Operator::In) {
            let is_allowed = |value: &&String| self.required(key).all(|one| selector_matches(one, Some(value)));
            let mut possible = listed.values.iter().filter(is_allowed);
            return Some(possible.any(|value| selector_matches(requirement, Some(value))));
        }
        let has_label = self.required(key).any(|one| one.operator == Operator::Exists || one.operator.is_bound());
        has_label.then_some(requirement.operator != Operator::DoesNotExist)
    }

    fn operating_system(&self) -> &'a str {
        let is_allowed = |system: &&String| self.required(label::OS).all(|one| selector_matches(one, Some(system)));
        let systems = &self.kind.operating_systems;
        systems.iter().find(is_allowed).or_else(|| systems.first()).map_or("", String::as_str)
    }

    fn required(&self, key: &str) -> impl Iterator<Item = &'a NodeSelectorRequirement> {
        self.launch.requirements.iter().filter(move |one| label::normalized(&one.key) == label::normalized(key))
    }
}

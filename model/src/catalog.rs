//! What can be bought: instance types and their offerings, as one node class sees them.

use crate::identity::{CatalogId, ContentHasher};
use crate::money::MicroUsdPerHour;
use crate::resources::Resources;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How capacity is bought.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// From a capacity reservation.
    Reserved,
    /// May be taken back with two minutes' notice.
    Spot,
    /// Kept until given back.
    OnDemand,
}

impl CapacityType {
    /// All of them, in Karpenter's order of precedence.
    pub const ALL: [Self; 3] = [Self::Reserved, Self::Spot, Self::OnDemand];

    /// The label's value.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// From the label's value.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        Self::ALL.into_iter().find(|capacity_type| capacity_type.as_str() == text)
    }
}

impl fmt::Display for CapacityType {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(self.as_str())
    }
}

/// One way to buy an instance type.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Offering {
    /// Availability zone, `us-east-1a`.
    pub zone: String,
    /// Its account-independent id, `use1-az2`; empty where unknown.
    pub zone_id: String,
    /// How it is bought.
    pub capacity_type: CapacityType,
    /// Price per hour.
    pub price: MicroUsdPerHour,
    /// Whether it can be asked for at all: the zone has a subnet, the node class allows the type. What is out of capacity right now is in the snapshot instead.
    pub available: bool,
}

/// An instance type as one node class would run it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct InstanceType {
    /// `c6g.large`.
    pub name: String,
    /// `amd64` or `arm64`.
    pub architecture: String,
    /// Operating systems it can run: `linux`, `windows`.
    pub operating_systems: Vec<String>,
    /// What a node of it has, before anything is taken away.
    pub capacity: Resources,
    /// What kubelet, system and eviction thresholds take from it.
    pub overhead: Resources,
    /// Labels with one value each. A well-known label that is not here does not exist on the type.
    /// Type, architecture, operating system, zone, zone id and capacity type are in the other fields.
    pub labels: BTreeMap<String, String>,
    /// Ways to buy it, sorted by (zone, capacity type).
    pub offerings: Vec<Offering>,
}

impl InstanceType {
    /// What pods may use: capacity less overhead, and less huge pages for memory; never below zero (spec: core section 4.8).
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        let mut rest = self.capacity.clone();
        for (name, amount) in self.overhead.iter() {
            rest.set(name, rest.get(name).saturating_sub(amount).max(0));
        }
        let huge: i64 =
            self.capacity.iter().filter(|(name, _)| name.starts_with("hugepages-")).map(|(_, amount)| amount).sum();
        if huge > 0 {
            rest.set("memory", rest.get("memory").saturating_sub(huge).max(0));
        }
        rest
    }
}

/// Everything that one node class can buy. Immutable; known by its content hash.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Catalog {
    /// `us-east-1`.
    pub region: String,
    /// Sorted by name, each name once.
    pub instance_types: Vec<InstanceType>,
}

impl Catalog {
    /// The same content gives the same id on every machine; 32 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> CatalogId {
        let mut hasher = ContentHasher::new("catalog");
        hasher.text(&self.region);
        for instance_type in &self.instance_types {
            hash_instance_type(&mut hasher, instance_type);
        }
        CatalogId(hasher.hex(32))
    }

    /// The type of that name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&InstanceType> {
        let found = self.instance_types.binary_search_by(|candidate| candidate.name.as_str().cmp(name)).ok()?;
        self.instance_types.get(found)
    }
}

fn hash_instance_type(hasher: &mut ContentHasher, instance_type: &InstanceType) {
    hasher.text(&instance_type.name);
    hasher.text(&instance_type.architecture);
    hasher.text(&instance_type.operating_systems.join(","));
    for resources in [&instance_type.capacity, &instance_type.overhead] {
        hasher.part(&(resources.iter().count() as u64).to_le_bytes());
        for (name, amount) in resources.iter() {
            hasher.text(name);
            hasher.part(&amount.to_le_bytes());
        }
    }
    hasher.part(&(instance_type.labels.len() as u64).to_le_bytes());
    for (key, value) in &instance_type.labels {
        hasher.text(key);
        hasher.text(value);
    }
    for offering in &instance_type.offerings {
        hasher.text(&offering.zone);
        hasher.text(&offering.zone_id);
        hasher.text(offering.capacity_type.as_str());
        hasher.part(&offering.price.0.to_le_bytes());
        hasher.part(&[u8::from(offering.available)]);
    }
}

#[cfg(test)]
mod tests;

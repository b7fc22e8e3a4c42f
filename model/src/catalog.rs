//! Instance types and their offerings, as available to a node class.

use crate::identity::{CatalogId, ContentHasher};
use crate::money::MicroUsdPerHour;
use crate::names::{NODES_RESOURCE, USD_PER_HOUR_RESOURCE, label};
use crate::plan::OfferingChoice;
use crate::resources::Resources;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::fmt;

/// How capacity is purchased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum CapacityType {
    /// From a capacity reservation.
    Reserved,
    /// Spot capacity, which is reclaimed with two minutes' notice.
    Spot,
    /// On-Demand capacity.
    #[default]
    OnDemand,
}

impl CapacityType {
    /// All capacity types, in Karpenter's order of precedence.
    pub const ALL: [Self; 3] = [Self::Reserved, Self::Spot, Self::OnDemand];

    /// Value of the label.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::Reserved => "reserved",
            Self::Spot => "spot",
            Self::OnDemand => "on-demand",
        }
    }

    /// Parses the value of the label.
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

/// A capacity reservation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct CapacityReservation {
    /// `cr-...`.
    pub id: String,
    /// Whether it is a Capacity Block: for a time that was paid for.
    pub capacity_block: bool,
    /// Whether its owner may take the instances back.
    pub interruptible: bool,
    /// Free instances, in a catalog from a file. `None`: the snapshot has the number.
    pub count: Option<u32>,
}

impl CapacityReservation {
    /// Value of the label `karpenter.k8s.aws/capacity-reservation-type`.
    #[must_use]
    pub fn kind(&self) -> &'static str {
        if self.capacity_block { "capacity-block" } else { "default" }
    }

    /// Value of one of the labels [`label::CAPACITY_RESERVATION`], if `key` is one of them.
    #[must_use]
    pub fn label(&self, key: &str) -> Option<&str> {
        match key {
            label::CAPACITY_RESERVATION_ID => Some(&self.id),
            label::CAPACITY_RESERVATION_TYPE => Some(self.kind()),
            label::CAPACITY_RESERVATION_INTERRUPTIBLE => Some(if self.interruptible { "true" } else { "false" }),
            _ => None,
        }
    }
}

/// Resource by which a launch counts one instance of a capacity reservation until the instance is launched. It limits
/// launches across NodePools, like the resources of a NodePool's limits do within one.
#[must_use]
pub fn reservation_resource(id: &str) -> String {
    format!("{RESERVATION_PREFIX}{id}")
}

/// The capacity reservation that a resource counts, if it is one of [`reservation_resource`].
#[must_use]
pub fn reservation_of_resource(resource: &str) -> Option<&str> {
    resource.strip_prefix(RESERVATION_PREFIX)
}

const RESERVATION_PREFIX: &str = "plimsoll.dev/capacity-reservation.";

/// A combination of zone and capacity type in which an instance type is sold, and the capacity reservation if it is
/// bought from one.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct Offering {
    /// Availability zone, such as `us-east-1a`.
    pub zone: String,
    /// Account-independent zone id, such as `use1-az2`; empty if unknown.
    pub zone_id: String,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// Price per hour.
    pub price: MicroUsdPerHour,
    /// The price before NodeOverlays and node costs, if these changed `price`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub list_price: Option<MicroUsdPerHour>,
    /// Whether the offering can be requested at all: the zone has a subnet and the node class allows the type.
    /// Temporary lack of capacity is recorded in the snapshot.
    pub available: bool,
    /// The capacity reservation of a reserved offering; `None` for others.
    pub reservation: Option<CapacityReservation>,
}

impl Offering {
    /// Unique among the offerings of a type; its order is that of the list.
    #[must_use]
    pub fn key(&self) -> (&str, CapacityType, Option<&str>) {
        (&self.zone, self.capacity_type, self.reservation_id())
    }

    /// The price that counts against limits: without NodeOverlays and node costs, which adjust plans.
    #[must_use]
    pub fn list_price(&self) -> MicroUsdPerHour {
        self.list_price.unwrap_or(self.price)
    }

    /// Id of the capacity reservation.
    #[must_use]
    pub fn reservation_id(&self) -> Option<&str> {
        self.reservation.as_ref().map(|reservation| reservation.id.as_str())
    }

    /// Whether a plan's choice of this type means this offering.
    #[must_use]
    pub fn is(&self, choice: &OfferingChoice) -> bool {
        self.key() == (&choice.zone, choice.capacity_type, choice.reservation.as_deref())
    }

    /// Value of a label that only nodes of capacity reservations have.
    #[must_use]
    pub fn reservation_label(&self, key: &str) -> Option<&str> {
        self.reservation.as_ref()?.label(key)
    }
}

/// Resources of accelerators that ordinary pods do not use, as in Karpenter.
const ACCELERATORS: [&str; 4] = ["nvidia.com/gpu", "amd.com/gpu", "habana.ai/gaudi", "aws.amazon.com/neuron"];

/// Whether the resource is an accelerator.
#[must_use]
pub fn is_accelerator(resource: &str) -> bool {
    ACCELERATORS.contains(&resource)
}

/// An instance type as a node class would configure it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct InstanceType {
    /// Name, such as `c6g.large`.
    pub name: String,
    /// Architecture: `amd64` or `arm64`.
    pub architecture: String,
    /// Supported operating systems: `linux`, `windows`.
    pub operating_systems: Vec<String>,
    /// Total resources of a node.
    pub capacity: Resources,
    /// Resources reserved for kubelet, system and eviction thresholds.
    pub overhead: Resources,
    /// Labels with one value each. A well-known label that is missing here does not exist on the type. Type,
    /// architecture, operating system, zone, zone id and capacity type are in other fields.
    pub labels: BTreeMap<String, String>,
    /// Offerings, sorted by [`Offering::key`].
    pub offerings: Vec<Offering>,
}

impl InstanceType {
    /// Whether the type is bare metal or has accelerators. Launches without `minValues` use such types only for pods
    /// that fit no other type, as in Karpenter.
    #[must_use]
    pub fn is_exotic(&self) -> bool {
        let size = self.labels.get(label::INSTANCE_SIZE);
        size.is_some_and(|size| size.contains("metal"))
            || self.capacity.iter().any(|(name, amount)| amount > 0 && is_accelerator(name))
    }

    /// What a node that is bought as `offering` may add to the usage of limits: its capacity, its price, and one
    /// instance of its capacity reservation.
    #[must_use]
    pub fn limit_usage(&self, offering: &Offering) -> Resources {
        let mut usage = self.capacity.clone();
        usage.set(NODES_RESOURCE, 1);
        usage.set(USD_PER_HOUR_RESOURCE, offering.list_price().0);
        offering.reservation_id().into_iter().for_each(|id| usage.set(&reservation_resource(id), 1));
        usage
    }

    /// Resources available to pods: capacity minus overhead, and for memory minus huge pages; never negative.
    #[must_use]
    pub fn allocatable(&self) -> Resources {
        let mut allocatable = self.capacity.clone();
        for (name, amount) in self.overhead.iter() {
            allocatable.set(name, allocatable.get(name).saturating_sub(amount).max(0));
        }
        let huge_pages = self.capacity.iter().filter(|(name, _)| name.starts_with("hugepages-"));
        // A NodeOverlay may define any amounts.
        let huge_pages = huge_pages.map(|(_, amount)| amount).fold(0, i64::saturating_add);
        if huge_pages > 0 {
            allocatable.set("memory", allocatable.get("memory").saturating_sub(huge_pages).max(0));
        }
        allocatable
    }
}

/// Everything that a node class can purchase. Immutable, identified by its content hash.
#[derive(Debug, Clone, PartialEq, Eq, Default, Serialize, Deserialize)]
pub struct Catalog {
    /// Region, such as `us-east-1`.
    pub region: String,
    /// Instance types, sorted by their unique names.
    pub instance_types: Vec<InstanceType>,
}

impl Catalog {
    /// Content hash, the same on every machine; 32 hexadecimal digits.
    #[must_use]
    pub fn id(&self) -> CatalogId {
        let mut hasher = ContentHasher::new("catalog");
        hasher.text(&self.region);
        for instance_type in &self.instance_types {
            hash_instance_type(&mut hasher, instance_type);
        }
        CatalogId(hasher.hex(32))
    }

    /// Returns an instance type by name.
    #[must_use]
    pub fn get(&self, name: &str) -> Option<&InstanceType> {
        let index = self.instance_types.binary_search_by(|candidate| candidate.name.as_str().cmp(name)).ok()?;
        self.instance_types.get(index)
    }

    /// Returns the instance type and the offering that a plan's choice means.
    #[must_use]
    pub fn find(&self, choice: &OfferingChoice) -> Option<(&InstanceType, &Offering)> {
        let kind = self.get(&choice.instance_type)?;
        Some((kind, kind.offerings.iter().find(|offering| offering.is(choice))?))
    }

    /// The offering that a node with these labels was bought as.
    #[must_use]
    pub fn offering_of(&self, labels: &BTreeMap<String, String>) -> Option<&Offering> {
        let zone = labels.get(label::ZONE)?;
        let capacity_type = labels.get(label::CAPACITY_TYPE).and_then(|text| CapacityType::parse(text))?;
        let reservation = labels.get(label::CAPACITY_RESERVATION_ID).map(String::as_str);
        let key = (zone.as_str(), capacity_type, reservation);
        self.get(labels.get(label::INSTANCE_TYPE)?)?.offerings.iter().find(|offering| offering.key() == key)
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
        if let Some(list_price) = offering.list_price {
            hasher.text("list price");
            hasher.part(&list_price.0.to_le_bytes());
        }
        if let Some(CapacityReservation { id, capacity_block, interruptible, count }) = &offering.reservation {
            hasher.text(id);
            hasher.part(&[u8::from(*capacity_block), u8::from(*interruptible)]);
            hasher.text(&count.map_or_else(String::new, |count| count.to_string()));
        }
    }
}

#[cfg(test)]
mod tests;

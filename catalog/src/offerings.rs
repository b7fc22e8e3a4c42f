//! Ways to buy an instance type (spec: AWS provider section 5.7).

use crate::InstanceTypeFacts;
use plimsoll_model::catalog::{CapacityType, Offering};
use plimsoll_model::money::MicroUsdPerHour;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// An availability zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    /// `us-east-1a`.
    pub name: String,
    /// `use1-az2`; empty where unknown.
    pub id: String,
    /// Types that are offered there.
    pub instance_types: BTreeSet<String>,
    /// Whether the node class has a subnet there: otherwise its offerings are not available.
    #[serde(default = "yes")]
    pub usable: bool,
}

fn yes() -> bool {
    true
}

/// Prices of one region.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prices {
    /// By instance type.
    pub on_demand: BTreeMap<String, MicroUsdPerHour>,
    /// Spot prices.
    pub spot: SpotPrices,
}

/// Spot prices of one region.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SpotPrices {
    /// They were never read: on-demand prices stand for them.
    #[default]
    Unknown,
    /// By instance type and zone. What is not in it has no price and cannot be bought.
    Known(BTreeMap<String, BTreeMap<String, MicroUsdPerHour>>),
}

impl Prices {
    /// Price of an on-demand or spot instance; reservations have prices of their own.
    #[must_use]
    pub fn of(&self, instance_type: &str, zone: &str, capacity_type: CapacityType) -> Option<MicroUsdPerHour> {
        match (capacity_type, &self.spot) {
            (CapacityType::OnDemand, _) | (CapacityType::Spot, SpotPrices::Unknown) => {
                self.on_demand.get(instance_type).copied()
            }
            (CapacityType::Spot, SpotPrices::Known(prices)) => prices.get(instance_type)?.get(zone).copied(),
            (CapacityType::Reserved, _) => None,
        }
    }
}

/// One offering per zone and supported capacity type that has a price, sorted by both.
pub(crate) fn offerings(facts: &InstanceTypeFacts, zones: &[Zone], prices: &Prices, compatible: bool) -> Vec<Offering> {
    let supported = [CapacityType::Spot, CapacityType::OnDemand].into_iter().filter(|it| facts.sells(*it));
    let mut offerings = Vec::new();
    for capacity_type in supported {
        for zone in zones.iter().filter(|zone| zone.instance_types.contains(&facts.name)) {
            let Some(price) = prices.of(&facts.name, &zone.name, capacity_type) else { continue };
            offerings.push(Offering {
                zone: zone.name.clone(),
                zone_id: zone.id.clone(),
                capacity_type,
                price,
                available: compatible && zone.usable,
            });
        }
    }
    offerings.sort_by(|left, right| (&left.zone, left.capacity_type).cmp(&(&right.zone, right.capacity_type)));
    offerings
}

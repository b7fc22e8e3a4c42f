//! Computes the offerings of instance types.

use crate::InstanceTypeFacts;
use crate::reservations::{self, SelectedReservation};
use plimsoll_model::catalog::{CapacityType, Offering};
use plimsoll_model::money::MicroUsdPerHour;
use serde::{Deserialize, Serialize};
use std::collections::{BTreeMap, BTreeSet};

/// An availability zone.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "camelCase")]
pub struct Zone {
    /// Name, such as `us-east-1a`.
    pub name: String,
    /// Id, such as `use1-az2`; empty if unknown.
    pub id: String,
    /// Instance types offered in the zone.
    pub instance_types: BTreeSet<String>,
    /// Whether the node class has a subnet in the zone. Otherwise its offerings are unavailable.
    #[serde(default = "default_true")]
    pub usable: bool,
}

fn default_true() -> bool {
    true
}

/// Prices of a region.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Prices {
    /// On-demand prices by instance type.
    pub on_demand: BTreeMap<String, MicroUsdPerHour>,
    /// Spot prices.
    pub spot: SpotPrices,
}

/// Spot prices of a region.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub enum SpotPrices {
    /// Not available yet; on-demand prices are used instead.
    #[default]
    Unknown,
    /// Prices by instance type and zone. Other combinations have no price and cannot be launched.
    Known(BTreeMap<String, BTreeMap<String, MicroUsdPerHour>>),
}

impl Prices {
    /// Price of an on-demand or spot instance. Reservations have separate prices.
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

/// Returns one offering per zone and supported capacity type with a price, and one per capacity reservation, sorted by
/// both.
pub(crate) fn offerings(
    facts: &InstanceTypeFacts,
    zones: &[Zone],
    prices: &Prices,
    reservations: &[SelectedReservation],
    compatible: bool,
) -> Vec<Offering> {
    let supported =
        [CapacityType::Spot, CapacityType::OnDemand].into_iter().filter(|capacity_type| facts.sells(*capacity_type));
    let mut offerings = Vec::new();
    let zones = zones.iter().filter(|zone| zone.instance_types.contains(&facts.name));
    for capacity_type in supported {
        for zone in zones.clone() {
            let Some(price) = prices.of(&facts.name, &zone.name, capacity_type) else { continue };
            offerings.push(Offering {
                zone: zone.name.clone(),
                zone_id: zone.id.clone(),
                capacity_type,
                price,
                available: compatible && zone.usable,
                list_price: None,
                reservation: None,
            });
        }
    }
    let on_demand = prices.on_demand.get(&facts.name).copied();
    let reserved = reservations.iter().filter(|one| one.instance_type == facts.name);
    for one in reserved.filter(|_| facts.sells(CapacityType::Reserved)) {
        let Some(zone) = zones.clone().find(|zone| zone.name == one.zone) else { continue };
        offerings.push(Offering {
            zone: zone.name.clone(),
            zone_id: zone.id.clone(),
            capacity_type: CapacityType::Reserved,
            price: reservations::price(on_demand),
            available: compatible && zone.usable && one.usable,
            list_price: None,
            reservation: Some(one.reservation.clone()),
        });
    }
    offerings.sort_by(|left: &Offering, right| left.key().cmp(&right.key()));
    offerings.dedup_by(|left, right| left.key() == right.key());
    offerings
}

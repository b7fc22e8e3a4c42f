//! Offerings of capacity reservations (spec: AWS provider section 5.7).

use plimsoll_model::catalog::{CapacityReservation, CapacityType, Catalog, Offering};
use plimsoll_model::money::MicroUsdPerHour;

/// Divisor of the On-Demand price. A reserved instance is paid for whether it is used or not, so its price only orders
/// reservations.
const PRICE_DIVISOR: i64 = 10_000_000;

/// A capacity reservation that a node class selects.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SelectedReservation {
    /// Id, type, and whether the reservation is interruptible.
    pub reservation: CapacityReservation,
    /// Instance type of the reservation.
    pub instance_type: String,
    /// Zone of the reservation.
    pub zone: String,
    /// False if the reservation ends soon.
    pub usable: bool,
}

/// Adds an offering for each reservation whose type and zone have an On-Demand offering. The offering is available if
/// the On-Demand offering is available and the reservation is usable.
pub fn add(catalog: &mut Catalog, reservations: &[SelectedReservation]) {
    for SelectedReservation { reservation, instance_type, zone, usable } in reservations {
        let found = catalog.instance_types.binary_search_by(|kind| kind.name.cmp(instance_type));
        let Some(kind) = found.ok().and_then(|index| catalog.instance_types.get_mut(index)) else { continue };
        let on_demand = |one: &&Offering| one.zone == *zone && one.capacity_type == CapacityType::OnDemand;
        let Some(on_demand) = kind.offerings.iter().find(on_demand) else { continue };
        let offering = Offering {
            capacity_type: CapacityType::Reserved,
            price: price(on_demand.price),
            available: on_demand.available && *usable,
            reservation: Some(reservation.clone()),
            ..on_demand.clone()
        };
        if let Err(place) = kind.offerings.binary_search_by(|one| one.key().cmp(&offering.key())) {
            kind.offerings.insert(place, offering);
        }
    }
}

/// Price of a reserved instance. Rounded up, so that it is not zero.
fn price(on_demand: MicroUsdPerHour) -> MicroUsdPerHour {
    MicroUsdPerHour((on_demand.0.max(0).saturating_add(PRICE_DIVISOR - 1)) / PRICE_DIVISOR)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::InstanceType;
    use plimsoll_model::resources::Resources;

    fn on_demand(zone: &str, available: bool) -> Offering {
        Offering {
            zone: zone.to_owned(),
            zone_id: format!("id-{zone}"),
            capacity_type: CapacityType::OnDemand,
            price: MicroUsdPerHour(96_000),
            available,
            list_price: None,
            reservation: None,
        }
    }

    fn selected(id: &str, zone: &str, usable: bool) -> SelectedReservation {
        let reservation =
            CapacityReservation { id: id.to_owned(), capacity_block: false, interruptible: false, count: None };
        SelectedReservation { reservation, instance_type: "m5.large".to_owned(), zone: zone.to_owned(), usable }
    }

    #[test]
    fn each_reservation_becomes_an_offering_where_its_type_is_sold() {
        let kind = InstanceType {
            name: "m5.large".to_owned(),
            architecture: "amd64".to_owned(),
            operating_systems: Vec::new(),
            capacity: Resources::new(),
            overhead: Resources::new(),
            labels: Default::default(),
            offerings: vec![on_demand("a", true), on_demand("b", false)],
        };
        let mut catalog = Catalog { region: String::new(), instance_types: vec![kind] };
        let unknown = SelectedReservation { instance_type: "p5.48xlarge".to_owned(), ..selected("cr-5", "a", true) };
        let reservations = [
            selected("cr-2", "a", true),
            selected("cr-1", "a", false),
            selected("cr-3", "b", true),
            selected("cr-4", "c", true),
            unknown,
        ];
        add(&mut catalog, &reservations);
        let shown = |one: &Offering| {
            (one.zone_id.clone(), one.reservation_id().unwrap_or("-").to_owned(), one.price.0, one.available)
        };
        let row = |zone: &str, id: &str, price, available| (format!("id-{zone}"), id.to_owned(), price, available);
        assert_eq!(
            catalog.instance_types[0].offerings.iter().map(shown).collect::<Vec<_>>(),
            [
                row("a", "cr-1", 1, false),
                row("a", "cr-2", 1, true),
                row("a", "-", 96_000, true),
                row("b", "cr-3", 1, false),
                row("b", "-", 96_000, false),
            ]
        );
    }

    #[test]
    fn a_reserved_instance_costs_less_than_any_other_but_not_nothing() {
        let prices = [0, 1, 10_000_000, 10_000_001].map(|on_demand| price(MicroUsdPerHour(on_demand)).0);
        assert_eq!(prices, [0, 1, 1, 2]);
    }
}

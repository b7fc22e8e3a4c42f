//! Offerings of capacity reservations.

use plimsoll_model::catalog::CapacityReservation;
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

/// Price of a reserved instance whose type has this On-Demand price, rounded up and never zero. EC2 sells some types in
/// Capacity Blocks only: these have no On-Demand price.
pub(crate) fn price(on_demand: Option<MicroUsdPerHour>) -> MicroUsdPerHour {
    let on_demand = on_demand.map_or(0, |price| price.0);
    MicroUsdPerHour((on_demand.saturating_add(PRICE_DIVISOR - 1) / PRICE_DIVISOR).max(1))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::offerings::offerings;
    use crate::{InstanceTypeFacts, Prices, Zone};
    use plimsoll_model::catalog::Offering;

    fn facts(name: &str, usage_class: &str) -> InstanceTypeFacts {
        let usage_classes = vec![usage_class.to_owned()];
        InstanceTypeFacts { name: name.to_owned(), usage_classes, ..InstanceTypeFacts::default() }
    }

    fn selected(id: &str, instance_type: &str, zone: &str, usable: bool) -> SelectedReservation {
        let reservation =
            CapacityReservation { id: id.to_owned(), capacity_block: false, interruptible: false, count: None };
        SelectedReservation { reservation, instance_type: instance_type.to_owned(), zone: zone.to_owned(), usable }
    }

    fn zone(name: &str, usable: bool) -> Zone {
        let instance_types = ["m5.large", "p5e.48xlarge"].map(str::to_owned).into();
        Zone { name: name.to_owned(), id: format!("id-{name}"), instance_types, usable }
    }

    /// Zone, reservation, price and availability of each offering.
    fn shown(facts: &InstanceTypeFacts) -> Vec<(String, String, i64, bool)> {
        let prices =
            Prices { on_demand: [("m5.large".to_owned(), MicroUsdPerHour(96_000))].into(), ..Prices::default() };
        let reservations = [
            selected("cr-2", "m5.large", "a", true),
            selected("cr-1", "m5.large", "a", false),
            selected("cr-3", "m5.large", "b", true),
            selected("cr-4", "m5.large", "c", true),
            selected("cr-5", "p5e.48xlarge", "a", true),
        ];
        let all = offerings(facts, &[zone("a", true), zone("b", false)], &prices, &reservations, true);
        let shown = |one: &Offering| {
            (one.zone_id.clone(), one.reservation_id().unwrap_or("-").to_owned(), one.price.0, one.available)
        };
        all.iter().map(shown).collect()
    }

    fn row(zone: &str, id: &str, price: i64, available: bool) -> (String, String, i64, bool) {
        (format!("id-{zone}"), id.to_owned(), price, available)
    }

    #[test]
    fn each_reservation_becomes_an_offering_where_its_type_is_sold() {
        assert_eq!(
            shown(&facts("m5.large", "on-demand")),
            [
                row("a", "cr-1", 1, false),
                row("a", "cr-2", 1, true),
                row("a", "-", 96_000, true),
                row("b", "cr-3", 1, false),
                row("b", "-", 96_000, false),
            ]
        );
        assert_eq!(shown(&facts("m5.large", "spot")).iter().filter(|one| one.1 != "-").count(), 0);
    }

    #[test]
    fn a_capacity_block_of_a_type_without_on_demand_price_can_be_used() {
        assert_eq!(shown(&facts("p5e.48xlarge", "capacity-block")), [row("a", "cr-5", 1, true)]);
        assert_eq!(shown(&facts("p5e.48xlarge", "on-demand")), [row("a", "cr-5", 1, true)]);
    }

    #[test]
    fn a_reserved_instance_costs_less_than_any_other_but_not_nothing() {
        let prices = [None, Some(0), Some(1), Some(10_000_000), Some(10_000_001)];
        assert_eq!(prices.map(|on_demand| price(on_demand.map(MicroUsdPerHour)).0), [1, 1, 1, 1, 2]);
    }
}

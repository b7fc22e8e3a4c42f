//! Tests of capacity reservations.

use super::*;
use plimsoll_model::catalog::{CapacityReservation, reservation_resource};
use plimsoll_model::snapshot::ReservationCount;

/// Changes the first offering of the launch to `cr-1`, a reservation with this number of free instances.
fn reserved(case: &mut Case, free: u32) {
    let reservation =
        CapacityReservation { id: "cr-1".into(), capacity_block: false, interruptible: false, count: None };
    let kind = &mut case.catalog.instance_types[0];
    let offering = Offering {
        capacity_type: CapacityType::Reserved,
        price: MicroUsdPerHour(1),
        reservation: Some(reservation),
        ..kind.offerings[0].clone()
    };
    kind.offerings.insert(0, offering);
    let choice = OfferingChoice {
        capacity_type: CapacityType::Reserved,
        reservation: Some("cr-1".into()),
        ..choice("a", "zone-a", 1)
    };
    offerings(case).insert(0, choice);
    (case.plan.hourly, case.plan.lower_bound) = (MicroUsdPerHour(1), MicroUsdPerHour(1));
    case.snapshot.reservations = vec![ReservationCount { id: "cr-1".into(), free }];
}

#[test]
fn launches_list_a_reservation_no_more_often_than_it_has_instances() {
    let exceeded = "1 launches list plimsoll.dev/capacity-reservation.cr-1, more than it has free";
    accepted(|case| reserved(case, 1));
    rejected(exceeded, |case| reserved(case, 0));
    rejected(exceeded, |case| {
        reserved(case, 1);
        case.node("n1").limit_usage.set(&reservation_resource("cr-1"), 1);
    });
    rejected(exceeded, |case| {
        reserved(case, 1);
        case.snapshot.reservations.clear();
    });
    rejected("a in zone-a (reserved cr-2): no such offering", |case| {
        reserved(case, 1);
        offerings(case)[0].reservation = Some("cr-2".into());
    });
}

#[test]
fn only_nodes_of_a_reservation_have_its_labels() {
    let select = |case: &mut Case, value: &str| {
        let value = value.to_owned();
        case.reshape("new", |shape| {
            shape.node_selector.insert(label::CAPACITY_RESERVATION_ID.into(), value);
        });
    };
    rejected("pod ns/new cannot run on a in zone-b", |case| {
        reserved(case, 1);
        select(case, "cr-1");
    });
    rejected("pod ns/new cannot run on a in zone-a (reserved cr-1)", |case| {
        reserved(case, 1);
        select(case, "cr-2");
    });
}

//! Which capacity reservations a launch uses.

use plimsoll_model::catalog::{CapacityReservation, CapacityType, Catalog};
use plimsoll_model::plan::OfferingChoice;
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Removes reserved offerings that one launch cannot use together: EC2 launches one kind of reservations per request,
/// Capacity Blocks one at a time, and one reservation per type and zone. `free` returns the free instances of a
/// reservation. Other offerings are kept.
pub(super) fn choose(open: &mut Vec<OfferingChoice>, catalog: &Catalog, free: impl Fn(&str) -> i64) {
    let reserved = open.iter().filter(|choice| choice.capacity_type == CapacityType::Reserved);
    let kinds = reserved.filter_map(|choice| Some((choice.price, kind(find(catalog, choice)?))));
    let Some((_, chosen)) = kinds.min() else { return };
    // Capacity Blocks: a single type, and its cheapest block.
    let mut block: Option<OfferingChoice> = None;
    let mut best: BTreeMap<(String, String), (Reverse<i64>, String)> = BTreeMap::new();
    for choice in open.iter() {
        let Some(reservation) = find(catalog, choice).filter(|reservation| kind(reservation) == chosen) else {
            continue;
        };
        if chosen == Kind::Block && block.as_ref().is_none_or(|known| choice.price < known.price) {
            block = Some(choice.clone());
        }
        let rank = (Reverse(free(&reservation.id)), reservation.id.clone());
        let place = (choice.instance_type.clone(), choice.zone.clone());
        let known = best.entry(place).or_insert_with(|| rank.clone());
        *known = (*known).clone().min(rank);
    }
    open.retain(|choice| {
        let Some(id) = &choice.reservation else { return true };
        if chosen == Kind::Block {
            return block.as_ref() == Some(choice);
        }
        let place = (choice.instance_type.clone(), choice.zone.clone());
        find(catalog, choice).is_some_and(|reservation| kind(reservation) == chosen)
            && best.get(&place).is_some_and(|(_, best)| best == id)
    });
}

/// Kinds of reservations, in order of preference.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Kind {
    Default,
    Block,
    Interruptible,
}

fn kind(reservation: &CapacityReservation) -> Kind {
    match (reservation.capacity_block, reservation.interruptible) {
        (true, _) => Kind::Block,
        (false, true) => Kind::Interruptible,
        (false, false) => Kind::Default,
    }
}

/// The reservation of a choice, as the catalog has it.
pub(in crate::launch) fn find<'c>(catalog: &'c Catalog, choice: &OfferingChoice) -> Option<&'c CapacityReservation> {
    let offerings = &catalog.get(&choice.instance_type)?.offerings;
    offerings.iter().find(|offering| offering.is(choice))?.reservation.as_ref()
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::{InstanceType, Offering};
    use plimsoll_model::money::MicroUsdPerHour;

    /// Id, zone, price, Capacity Block, interruptible.
    type Row = (&'static str, &'static str, i64, bool, bool);

    fn chosen(rows: &[Row], free: impl Fn(&str) -> i64) -> Vec<String> {
        let offering = |(id, zone, price, capacity_block, interruptible): &Row| Offering {
            zone: (*zone).to_owned(),
            capacity_type: CapacityType::Reserved,
            price: MicroUsdPerHour(*price),
            available: true,
            reservation: Some(CapacityReservation {
                id: (*id).to_owned(),
                capacity_block: *capacity_block,
                interruptible: *interruptible,
                count: None,
            }),
            ..Offering::default()
        };
        let kind = InstanceType {
            name: "m5.large".to_owned(),
            architecture: "amd64".to_owned(),
            offerings: rows.iter().map(offering).collect(),
            ..InstanceType::default()
        };
        let choice = |one: &Offering| OfferingChoice {
            instance_type: "m5.large".to_owned(),
            zone: one.zone.clone(),
            capacity_type: one.capacity_type,
            price: one.price,
            reservation: one.reservation_id().map(str::to_owned),
        };
        let mut open: Vec<OfferingChoice> = kind.offerings.iter().map(choice).collect();
        let spot = OfferingChoice { capacity_type: CapacityType::Spot, reservation: None, ..open[0].clone() };
        open.push(spot);
        choose(&mut open, &Catalog { region: String::new(), instance_types: vec![kind] }, free);
        open.iter().map(|choice| choice.reservation.clone().unwrap_or_else(|| "spot".to_owned())).collect()
    }

    #[test]
    fn one_reservation_per_type_and_zone_the_one_with_most_free_instances() {
        let rows = [("cr-1", "a", 1, false, false), ("cr-2", "a", 1, false, false), ("cr-3", "b", 1, false, false)];
        let free = |id: &str| if id == "cr-2" { 5 } else { 1 };
        assert_eq!(chosen(&rows, free), ["cr-2", "cr-3", "spot"]);
        assert_eq!(chosen(&rows, |_| 1), ["cr-1", "cr-3", "spot"], "of equal ones the first");
    }

    #[test]
    fn one_kind_of_reservations_the_cheapest_or_else_the_ordinary_one() {
        let (default, block, interruptible) =
            (("cr-1", "a", 2, false, false), ("cr-2", "a", 2, true, false), ("cr-3", "a", 2, false, true));
        assert_eq!(chosen(&[interruptible, block, default], |_| 1), ["cr-1", "spot"]);
        assert_eq!(chosen(&[interruptible, block], |_| 1), ["cr-2", "spot"]);
        let cheap = ("cr-4", "b", 1, false, true);
        assert_eq!(chosen(&[block, default, cheap], |_| 1), ["cr-4", "spot"]);
    }

    #[test]
    fn a_single_capacity_block_the_cheapest() {
        let blocks = [("cr-1", "a", 2, true, false), ("cr-2", "b", 1, true, false)];
        assert_eq!(chosen(&blocks, |_| 9), ["cr-2", "spot"]);
    }
}

//! Free instances of capacity reservations. They bound launches of all NodePools together.

use super::Snapshot;
use crate::catalog::{Catalog, reservation_resource};
use crate::identity::CatalogId;
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// Free instances of a capacity reservation.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct ReservationCount {
    /// Key: `cr-...`.
    pub id: String,
    /// Free instances.
    pub free: u32,
}

/// Instances that launches may still take from each capacity reservation of the catalogs, by
/// [`reservation_resource`]. The snapshot's count is newer than the catalog's; a reservation without a count has none.
#[must_use]
pub fn free_reservations(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>) -> BTreeMap<String, i64> {
    let types = catalogs.values().flat_map(|catalog| &catalog.instance_types);
    let reservations = types.flat_map(|kind| &kind.offerings).filter_map(|offering| offering.reservation.as_ref());
    let mut free: BTreeMap<String, i64> = reservations
        .map(|reservation| {
            let known = snapshot.reservations.iter().find(|count| count.id == reservation.id);
            let count = known.map(|known| known.free).or(reservation.count).unwrap_or(0);
            (reservation_resource(&reservation.id), i64::from(count))
        })
        .collect();
    for node in &snapshot.nodes {
        // Others may have written the amounts: they are from annotations and from the capacity of nodes.
        free.iter_mut().for_each(|(resource, free)| *free = free.saturating_sub(node.limit_usage.get(resource)));
    }
    free
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::catalog::{CapacityReservation, CapacityType, InstanceType, Offering};
    use crate::money::MicroUsdPerHour;
    use crate::resources::Resources;
    use crate::snapshot::Node;

    fn offering(id: &str, count: Option<u32>) -> Offering {
        Offering {
            zone: "a".to_owned(),
            capacity_type: CapacityType::Reserved,
            price: MicroUsdPerHour(1),
            available: true,
            reservation: Some(CapacityReservation { id: id.to_owned(), count, ..CapacityReservation::default() }),
            ..Offering::default()
        }
    }

    #[test]
    fn the_snapshot_counts_before_the_catalog_and_unknown_reservations_have_none() {
        let offerings = vec![offering("cr-1", Some(5)), offering("cr-2", Some(5)), offering("cr-3", None)];
        let kind = InstanceType {
            name: "m5.large".to_owned(),
            architecture: "amd64".to_owned(),
            offerings,
            ..InstanceType::default()
        };
        let catalog = Catalog { region: String::new(), instance_types: vec![kind] };
        let reservations = vec![ReservationCount { id: "cr-1".to_owned(), free: 2 }];
        let snapshot = Snapshot { reservations, ..Snapshot::default() };
        let free = free_reservations(&snapshot, &BTreeMap::from([(catalog.id(), catalog)]));
        let of = |id| free.get(&reservation_resource(id)).copied();
        assert_eq!([of("cr-1"), of("cr-2"), of("cr-3"), of("cr-4")], [Some(2), Some(5), Some(0), None]);
    }

    #[test]
    fn amounts_that_no_launch_reserved_leave_nothing() {
        let kind = InstanceType {
            name: "m5.large".to_owned(),
            offerings: vec![offering("cr-1", Some(5))],
            ..InstanceType::default()
        };
        let catalog = Catalog { region: String::new(), instance_types: vec![kind] };
        let limit_usage = Resources::from([(reservation_resource("cr-1").as_str(), i64::MAX)]);
        let nodes = vec![Node { limit_usage, ..Node::default() }; 3];
        let snapshot = Snapshot { nodes, ..Snapshot::default() };
        let free = free_reservations(&snapshot, &BTreeMap::from([(catalog.id(), catalog)]));
        assert_eq!(free, BTreeMap::from([(reservation_resource("cr-1"), i64::MIN)]));
    }
}

//! Builds the catalog of one node class from its spec and EC2's facts. Pure functions.

use super::facts::{Facts, Region};
use crate::resolve;
use crate::settings::Settings;
use crate::state::catalogs::CatalogEntry;
use crate::state::discovered_memory::MemoryKey;
use crate::state::insufficient_capacity::{Key, Wanted};
use plimsoll_api::EC2NodeClass;
use plimsoll_api::ec2_node_class::{ReservationState, ReservationType};
use plimsoll_catalog::reservations::SelectedReservation;
use plimsoll_catalog::{NodeClassSettings, Prices, Zone};
use plimsoll_model::catalog::{CapacityReservation, CapacityType, Catalog, InstanceType};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// What a node class must not launch for now.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) struct Closed {
    /// What its placement group lacks capacity for.
    pub(super) in_group: Vec<Key>,
    /// Zones that the cluster is shifted away from, or where all subnets of the class are full.
    pub(super) zones: BTreeSet<String>,
}

/// The catalog entry of a node class. `memory` is the memory in bytes of types with images of the class.
pub(super) fn entry(
    settings: &Settings,
    class: &EC2NodeClass,
    facts: &Facts,
    closed: &Closed,
    memory: &BTreeMap<MemoryKey, i64>,
) -> CatalogEntry {
    let problem = resolve::for_launch(class).err().map(|error| error.to_string());
    let catalog = facts.region.as_ref().map(|region| catalog(settings, class, region, &facts.prices, memory));
    let catalog = catalog.map(|mut catalog| {
        close_in_group(class, &mut catalog, &closed.in_group);
        close_zones(&mut catalog, &closed.zones);
        close_spot(&mut catalog, &facts.withdrawn_spot());
        catalog
    });
    let (unsent, catalog) = if is_looked_up(class) { (None, catalog) } else { (catalog, None) };
    CatalogEntry {
        generation: class.metadata.generation.unwrap_or(0),
        catalog: catalog.map(|catalog| (catalog.id(), Arc::new(catalog))),
        is_provisional: facts.region.as_ref().is_none_or(|region| region.builtin),
        offered: facts.region.as_ref().map(|region| Arc::clone(&region.zones)).unwrap_or_default(),
        unsent: unsent.map(Arc::new),
        problem,
    }
}

/// Whether anything of the class was looked up.
fn is_looked_up(class: &EC2NodeClass) -> bool {
    class.status.as_ref().is_some_and(|status| !status.conditions.is_empty())
}

/// A class that is not ready has a catalog too, since its existing nodes need prices. The zones of a new class are not
/// known: its catalog says which types it could use. Known limit: if its subnets appear after its first look-up, no
/// type is available at first, and its first dry run may ask for a type that the class cannot use.
fn catalog(
    settings: &Settings,
    class: &EC2NodeClass,
    region: &Region,
    prices: &Prices,
    memory: &BTreeMap<MemoryKey, i64>,
) -> Catalog {
    let subnets = class.status.as_ref().map(|status| status.subnets.as_slice()).unwrap_or_default();
    let zone_ids: BTreeMap<&str, &str> =
        subnets.iter().map(|subnet| (subnet.zone.as_str(), subnet.zone_id.as_deref().unwrap_or_default())).collect();
    let zones: Vec<Zone> = region
        .zones
        .iter()
        .map(|(name, instance_types)| Zone {
            name: name.clone(),
            id: zone_ids.get(name.as_str()).copied().unwrap_or_default().to_owned(),
            instance_types: instance_types.clone(),
            usable: !is_looked_up(class) || zone_ids.contains_key(name.as_str()),
        })
        .collect();
    let mut node_class = NodeClassSettings {
        vm_memory_overhead_percent: settings.vm_memory_overhead_percent,
        reserved_enis: i64::from(settings.reserved_enis),
        placement_group: class.placement_group().cloned(),
        ipv6: settings.is_ipv6(),
        reservations: if settings.reserved_capacity { reservations(class) } else { Vec::new() },
        ..NodeClassSettings::from(&class.spec)
    };
    let mut catalog = plimsoll_catalog::build(&settings.region, region.types.iter(), &node_class, &zones, prices);
    // Which image a type uses depends on its labels, so types whose memory is known are built twice.
    node_class.discovered_memory = discovered_memory(class, &catalog, memory);
    if !node_class.discovered_memory.is_empty() {
        let known = region.types.iter().filter(|facts| node_class.discovered_memory.contains_key(&facts.name));
        let rebuilt = plimsoll_catalog::build(&settings.region, known, &node_class, &zones, prices);
        let mut rebuilt: BTreeMap<String, InstanceType> =
            rebuilt.instance_types.into_iter().map(|one| (one.name.clone(), one)).collect();
        for instance_type in &mut catalog.instance_types {
            if let Some(same) = rebuilt.remove(&instance_type.name) {
                *instance_type = same;
            }
        }
    }
    close_types_without_image(class, &mut catalog);
    catalog
}

/// Memory in bytes by instance type, as nodes with the image that the class uses for the type report it.
fn discovered_memory(
    class: &EC2NodeClass,
    catalog: &Catalog,
    memory: &BTreeMap<MemoryKey, i64>,
) -> BTreeMap<String, i64> {
    let amis = class.status.as_ref().map(|status| status.amis.as_slice()).unwrap_or_default();
    let Ok(images) = resolve::images(amis) else { return BTreeMap::new() };
    let of_current_image = memory.iter().filter_map(|(key, bytes)| {
        let image = resolve::image_for(&images, catalog.get(&key.instance_type)?)?;
        (image.id == key.image).then(|| (key.instance_type.clone(), *bytes))
    });
    of_current_image.collect()
}

/// The capacity reservations of the class's status. Their free instances are in the ledger.
fn reservations(class: &EC2NodeClass) -> Vec<SelectedReservation> {
    let listed = class.status.iter().flat_map(|status| &status.capacity_reservations);
    let selected = listed.map(|one| SelectedReservation {
        reservation: CapacityReservation {
            id: one.id.clone(),
            capacity_block: one.reservation_type == ReservationType::CapacityBlock,
            interruptible: one.interruptible.unwrap_or(false),
            count: None,
        },
        instance_type: one.instance_type.clone(),
        zone: one.availability_zone.clone(),
        usable: one.state == ReservationState::Active,
    });
    selected.collect()
}

/// Marks types that no image of the class supports as unavailable in every zone.
fn close_types_without_image(class: &EC2NodeClass, catalog: &mut Catalog) {
    let Ok(resolved) = resolve::from_status(class) else { return };
    for instance_type in &mut catalog.instance_types {
        if resolved.image_for(instance_type).is_none() {
            instance_type.offerings.iter_mut().for_each(|offering| offering.available = false);
        }
    }
}

/// Zones where all subnets of the class are full. Other classes may have other subnets there.
pub(super) fn full_zones(class: &EC2NodeClass, is_full: impl Fn(&str) -> bool) -> BTreeSet<String> {
    let subnets = class.status.as_ref().map(|status| status.subnets.as_slice()).unwrap_or_default();
    let zones = |full: bool| -> BTreeSet<String> {
        let those = subnets.iter().filter(|subnet| is_full(&subnet.id) == full);
        those.map(|subnet| subnet.zone.clone()).collect()
    };
    &zones(true) - &zones(false)
}

/// Marks all offerings of these zones as unavailable. Their prices remain, for existing nodes.
fn close_zones(catalog: &mut Catalog, zones: &BTreeSet<String>) {
    for offering in catalog.instance_types.iter_mut().flat_map(|it| &mut it.offerings) {
        offering.available &= !zones.contains(&offering.zone);
    }
}

/// Marks Spot offerings of these types and zones as unavailable. Their prices remain, for existing nodes.
fn close_spot(catalog: &mut Catalog, withdrawn: &BTreeSet<(&str, &str)>) {
    for instance_type in &mut catalog.instance_types {
        let name = instance_type.name.as_str();
        for offering in instance_type.offerings.iter_mut().filter(|it| it.capacity_type == CapacityType::Spot) {
            let is_withdrawn = withdrawn.contains(&(name, offering.zone.as_str()));
            offering.available &= !is_withdrawn;
        }
    }
}

/// Marks offerings that the placement group of the class lacks capacity for as unavailable. Other node classes may use
/// them.
fn close_in_group(class: &EC2NodeClass, catalog: &mut Catalog, closed: &[Key]) {
    let Some(group) = class.placement_group().filter(|_| !closed.is_empty()) else { return };
    for instance_type in &mut catalog.instance_types {
        let name = &instance_type.name;
        for offering in &mut instance_type.offerings {
            let wanted = Wanted {
                instance_type: name,
                zone: &offering.zone,
                capacity_type: offering.capacity_type,
                placement_group: Some(group.id.as_str()),
            };
            let is_closed = closed.iter().any(|key| key.covers(wanted));
            offering.available &= !is_closed;
        }
    }
}

#[cfg(test)]
mod tests;

//! Conversion of catalogs.

use super::{
    ConvertError, ConvertResult, WireEnum as _, check_unique, enum_value, key, list, not_negative, resources_from_wire,
    resources_to_wire, to_wire,
};
use crate::catalog::v1 as wire;
use plimsoll_model::catalog::{CapacityReservation, CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::money::MicroUsdPerHour;

impl From<&Offering> for wire::Offering {
    fn from(offering: &Offering) -> Self {
        Self {
            zone: offering.zone.clone(),
            zone_id: offering.zone_id.clone(),
            capacity_type: offering.capacity_type.to_wire(),
            price_micro_usd_per_hour: offering.price.0,
            available: offering.available,
            reservation: offering.reservation.as_ref().map(Into::into),
        }
    }
}

impl From<&CapacityReservation> for wire::CapacityReservation {
    fn from(reservation: &CapacityReservation) -> Self {
        Self {
            id: reservation.id.clone(),
            capacity_block: reservation.capacity_block,
            interruptible: reservation.interruptible,
            count: reservation.count,
        }
    }
}

impl TryFrom<wire::CapacityReservation> for CapacityReservation {
    type Error = ConvertError;
    fn try_from(reservation: wire::CapacityReservation) -> ConvertResult<Self> {
        Ok(Self {
            id: key("id", reservation.id)?,
            capacity_block: reservation.capacity_block,
            interruptible: reservation.interruptible,
            count: reservation.count,
        })
    }
}

impl TryFrom<wire::Offering> for Offering {
    type Error = ConvertError;
    fn try_from(offering: wire::Offering) -> ConvertResult<Self> {
        let capacity_type = enum_value("capacity_type", offering.capacity_type)?;
        let reservation = offering.reservation.map(CapacityReservation::try_from).transpose();
        let reservation = reservation.map_err(|error| error.within("reservation"))?;
        if reservation.is_some() != (capacity_type == CapacityType::Reserved) {
            let problem = if reservation.is_some() { "is set" } else { "is not set" };
            return Err(ConvertError::new("reservation", format!("{problem}, but the offering is {capacity_type}")));
        }
        Ok(Self {
            zone: key("zone", offering.zone)?,
            zone_id: offering.zone_id,
            capacity_type,
            price: MicroUsdPerHour(not_negative("price_micro_usd_per_hour", offering.price_micro_usd_per_hour)?),
            available: offering.available,
            list_price: None,
            reservation,
        })
    }
}

impl From<&InstanceType> for wire::InstanceType {
    fn from(instance_type: &InstanceType) -> Self {
        Self {
            name: instance_type.name.clone(),
            architecture: instance_type.architecture.clone(),
            operating_systems: instance_type.operating_systems.clone(),
            capacity: resources_to_wire(&instance_type.capacity),
            overhead: resources_to_wire(&instance_type.overhead),
            labels: instance_type.labels.clone(),
            offerings: to_wire(&instance_type.offerings),
        }
    }
}

impl TryFrom<wire::InstanceType> for InstanceType {
    type Error = ConvertError;
    fn try_from(instance_type: wire::InstanceType) -> ConvertResult<Self> {
        let mut offerings: Vec<Offering> = list("offerings", instance_type.offerings)?;
        check_unique(&offerings, "offerings", "", Offering::key)?;
        offerings.sort_by(|a, b| a.key().cmp(&b.key()));
        Ok(Self {
            name: key("name", instance_type.name)?,
            architecture: instance_type.architecture,
            operating_systems: instance_type.operating_systems,
            capacity: resources_from_wire("capacity", instance_type.capacity)?,
            overhead: resources_from_wire("overhead", instance_type.overhead)?,
            labels: instance_type.labels,
            offerings,
        })
    }
}

impl From<&Catalog> for wire::Catalog {
    fn from(catalog: &Catalog) -> Self {
        Self { id: catalog.id().0, region: catalog.region.clone(), instance_types: to_wire(&catalog.instance_types) }
    }
}

impl TryFrom<wire::Catalog> for Catalog {
    type Error = ConvertError;
    fn try_from(wire: wire::Catalog) -> ConvertResult<Self> {
        let convert = || {
            let mut instance_types: Vec<InstanceType> = list("instance_types", wire.instance_types)?;
            check_unique(&instance_types, "instance_types", ".name", |instance_type| &instance_type.name)?;
            instance_types.sort_by(|a, b| a.name.cmp(&b.name));
            let catalog = Self { region: wire.region, instance_types };
            let id = catalog.id();
            if !wire.id.is_empty() && wire.id != id.0 {
                return Err(ConvertError::new("id", format!("is {}, but the content's is {id}", wire.id)));
            }
            Ok(catalog)
        };
        convert().map_err(|error: ConvertError| error.within("catalog"))
    }
}

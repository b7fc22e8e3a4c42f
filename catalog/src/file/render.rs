//! Writes catalogs as JSON.

use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::Resources;
use serde_json::{Map, Value, json};

/// Renders the catalog as indented JSON with a final line break.
#[must_use]
pub fn render(catalog: &Catalog) -> String {
    format!("{:#}\n", to_value(catalog))
}

/// Converts the catalog to a JSON value, for other formats.
#[must_use]
pub fn to_value(catalog: &Catalog) -> Value {
    let types: Vec<Value> = catalog.instance_types.iter().map(instance_type).collect();
    json!({"region": catalog.region, "instanceTypes": types})
}

fn instance_type(instance_type: &InstanceType) -> Value {
    // Readers that only use labels find the architecture there, as on a node.
    let mut labels = instance_type.labels.clone();
    labels.insert(label::ARCH.to_owned(), instance_type.architecture.clone());
    json!({
        "name": instance_type.name,
        "architecture": instance_type.architecture,
        "operatingSystems": instance_type.operating_systems,
        "capacity": amounts(&instance_type.capacity),
        "overhead": amounts(&instance_type.overhead),
        "labels": labels,
        "offerings": instance_type.offerings.iter().map(offering).collect::<Vec<_>>(),
    })
}

fn amounts(resources: &Resources) -> Value {
    let entries = resources.iter().map(|(name, amount)| (name.to_owned(), format_amount(name, amount).into()));
    Value::Object(entries.collect::<Map<_, _>>())
}

fn offering(offering: &Offering) -> Value {
    let mut value = json!({
        "zone": offering.zone,
        "zoneId": offering.zone_id,
        "capacityType": offering.capacity_type.as_str(),
        "price": offering.price.usd(),
        "available": offering.available,
    });
    if let (Some(reservation), Some(fields)) = (&offering.reservation, value.as_object_mut()) {
        let reservation = json!({
            "id": reservation.id,
            "type": reservation.kind(),
            "interruptible": reservation.interruptible,
            "count": reservation.count,
        });
        fields.insert("reservation".to_owned(), reservation);
    }
    value
}

//! To JSON.

use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::quantity::format_amount;
use plimsoll_model::resources::Resources;
use serde_json::{Map, Value, json};

/// The catalog as indented JSON with a line break at the end.
#[must_use]
pub fn render(catalog: &Catalog) -> String {
    format!("{:#}\n", to_value(catalog))
}

/// The catalog as a JSON value, for other formats.
#[must_use]
pub fn to_value(catalog: &Catalog) -> Value {
    let types: Vec<Value> = catalog.instance_types.iter().map(instance_type).collect();
    json!({"region": catalog.region, "instanceTypes": types})
}

fn instance_type(it: &InstanceType) -> Value {
    // Readers of labels alone find the architecture among them, as on a node.
    let mut labels = it.labels.clone();
    labels.insert(label::ARCH.to_owned(), it.architecture.clone());
    json!({
        "name": it.name,
        "architecture": it.architecture,
        "operatingSystems": it.operating_systems,
        "capacity": amounts(&it.capacity),
        "overhead": amounts(&it.overhead),
        "labels": labels,
        "offerings": it.offerings.iter().map(offering).collect::<Vec<_>>(),
    })
}

fn amounts(resources: &Resources) -> Value {
    let entries = resources.iter().map(|(name, amount)| (name.to_owned(), format_amount(name, amount).into()));
    Value::Object(entries.collect::<Map<_, _>>())
}

fn offering(offering: &Offering) -> Value {
    json!({
        "zone": offering.zone,
        "zoneId": offering.zone_id,
        "capacityType": offering.capacity_type.as_str(),
        "price": offering.price.usd(),
        "available": offering.available,
    })
}

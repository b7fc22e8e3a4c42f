//! Parses catalogs from JSON. Values are checked by hand, so that errors name the instance type and the field.

use plimsoll_model::catalog::{CapacityReservation, CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::resources::{CPU, MEMORY, PODS, Resources};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Maximum file size: about ten times a catalog of one region with all its types.
pub const MAX_FILE_BYTES: usize = 64 << 20;

/// Reason why a catalog file is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogFileError {
    /// The file is larger than [`MAX_FILE_BYTES`].
    #[error("the file has {0} bytes, at most {MAX_FILE_BYTES} are read")]
    TooLarge(usize),
    /// The file is not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// A value is invalid.
    #[error("{path}: {problem}")]
    Field {
        /// Path of the value, such as `instanceTypes[3] m5.large: offerings[0].price`.
        path: String,
        /// Description of the error.
        problem: String,
    },
}

type Parsed<T> = Result<T, CatalogFileError>;

/// Parses a catalog. The result is sorted: types by name, offerings by zone, capacity type and capacity reservation.
///
/// ```
/// use plimsoll_catalog::file;
///
/// let catalog = file::parse(r#"{"region": "test-1", "instanceTypes": [{
///     "name": "small", "architecture": "amd64", "operatingSystems": ["linux"],
///     "capacity": {"cpu": "2", "memory": "4Gi", "pods": "20"}, "overhead": {"cpu": "100m"}, "labels": {},
///     "offerings": [{"zone": "test-1a", "zoneId": "t1", "capacityType": "on-demand", "price": 0.1, "available": true}]
/// }]}"#)?;
/// assert_eq!(catalog.instance_types[0].offerings[0].price.usd(), 0.1);
/// assert_eq!(file::parse(&file::render(&catalog))?, catalog);
/// # Ok::<(), file::CatalogFileError>(())
/// ```
pub fn parse(text: &str) -> Parsed<Catalog> {
    if text.len() > MAX_FILE_BYTES {
        return Err(CatalogFileError::TooLarge(text.len()));
    }
    let root: Value = serde_json::from_str(text).map_err(|error| CatalogFileError::Syntax(error.to_string()))?;
    let root = Object::of(&root, "the file", String::new())?;
    let region = root.text("region")?.to_owned();
    let mut instance_types = Vec::new();
    for (position, value) in root.list("instanceTypes")?.iter().enumerate() {
        instance_types.push(instance_type(value, position, &region)?);
    }
    instance_types.sort_by(|left, right| left.name.cmp(&right.name));
    for pair in instance_types.windows(2) {
        if let [first, second] = pair
            && first.name == second.name
        {
            return Err(field("instanceTypes", format!("{} is there twice", first.name)));
        }
    }
    Ok(Catalog { region, instance_types })
}

fn instance_type(value: &Value, position: usize, region: &str) -> Parsed<InstanceType> {
    let path = format!("instanceTypes[{position}]");
    let name = Object::of(value, &path, format!("{path}."))?.text("name")?;
    let path = format!("{path} {name}");
    let object = Object::of(value, &path, format!("{path}: "))?;
    let architecture = object.text("architecture")?;
    if !["amd64", "arm64"].contains(&architecture) {
        return Err(object.error("architecture", format!("{architecture:?} is neither amd64 nor arm64")));
    }
    let capacity = amounts(&object, "capacity", true)?;
    for required in [CPU, MEMORY, PODS] {
        if !capacity.contains(required) {
            return Err(object.error(&format!("capacity.{required}"), "is missing"));
        }
    }
    let operating_systems = operating_systems(&object)?;
    let mut instance_type = InstanceType {
        name: name.to_owned(),
        architecture: architecture.to_owned(),
        operating_systems,
        capacity,
        overhead: amounts(&object, "overhead", false)?,
        labels: labels(&object)?,
        offerings: offerings(&object)?,
    };
    remove_redundant_labels(&object, &mut instance_type, region)?;
    Ok(instance_type)
}

fn operating_systems(object: &Object<'_>) -> Parsed<Vec<String>> {
    let mut systems = Vec::new();
    for (position, value) in object.list("operatingSystems")?.iter().enumerate() {
        match value.as_str() {
            Some(system @ ("linux" | "windows")) => systems.push(system.to_owned()),
            _ => {
                let field = format!("operatingSystems[{position}]");
                return Err(object.error(&field, format!("{value} is neither \"linux\" nor \"windows\"")));
            }
        }
    }
    Ok(systems)
}

fn amounts(object: &Object<'_>, field: &str, required: bool) -> Parsed<Resources> {
    let Some(entries) = object.map(field, required)? else { return Ok(Resources::new()) };
    let mut amounts = Resources::new();
    for (name, value) in entries {
        let path = format!("{field}.{name}");
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => return Err(object.error(&path, format!("a quantity is needed, not {}", type_name(other)))),
        };
        let amount = crate::settings::amount(name, &text)
            .ok_or_else(|| object.error(&path, format!("{text:?} is not a quantity that can be counted")))?;
        if amount < 0 {
            return Err(object.error(&path, format!("{text:?} is negative")));
        }
        amounts.set(name, amount);
    }
    Ok(amounts)
}

fn labels(object: &Object<'_>) -> Parsed<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for (key, value) in object.map("labels", false)?.into_iter().flatten() {
        let text = value.as_str().ok_or_else(|| {
            object.error(&format!("labels.{key}"), format!("text is needed, not {}", type_name(value)))
        })?;
        labels.insert(key.clone(), text.to_owned());
    }
    Ok(labels)
}

/// Removes labels that repeat other fields. They must not contradict those fields.
fn remove_redundant_labels(object: &Object<'_>, instance_type: &mut InstanceType, region: &str) -> Parsed<()> {
    let redundant = [
        (label::ARCH, vec![instance_type.architecture.clone()]),
        (label::INSTANCE_TYPE, vec![instance_type.name.clone()]),
        (label::OS, instance_type.operating_systems.clone()),
        (label::REGION, vec![region.to_owned()]),
    ];
    for (key, expected) in redundant {
        if let Some(value) = instance_type.labels.remove(key)
            && !expected.contains(&value)
        {
            let problem = format!("{value:?} contradicts {:?} of the other fields", expected.join(", "));
            return Err(object.error(&format!("labels.{key}"), problem));
        }
    }
    for key in [label::ZONE, label::ZONE_ID, label::CAPACITY_TYPE] {
        if instance_type.labels.contains_key(key) {
            return Err(object.error(&format!("labels.{key}"), "belongs to an offering"));
        }
    }
    Ok(())
}

fn offerings(object: &Object<'_>) -> Parsed<Vec<Offering>> {
    let mut offerings = Vec::new();
    for (position, value) in object.list("offerings")?.iter().enumerate() {
        let path = format!("{}offerings[{position}]", object.prefix);
        offerings.push(offering(&Object::of(value, &path, format!("{path}."))?)?);
    }
    offerings.sort_by(|left: &Offering, right| left.key().cmp(&right.key()));
    for pair in offerings.windows(2) {
        if let [first, second] = pair
            && first.key() == second.key()
        {
            let id = first.reservation_id().map(|id| format!(" ({id})")).unwrap_or_default();
            let problem = format!("{}{id} in {} is there twice", first.capacity_type, first.zone);
            return Err(object.error("offerings", problem));
        }
    }
    Ok(offerings)
}

fn offering(object: &Object<'_>) -> Parsed<Offering> {
    let capacity_type = object.text("capacityType")?;
    let capacity_type = CapacityType::parse(capacity_type).ok_or_else(|| {
        object.error("capacityType", format!("{capacity_type:?} is none of reserved, spot, on-demand"))
    })?;
    let price = object.required("price")?;
    let usd = price.as_f64().and_then(MicroUsdPerHour::from_usd);
    let available = match object.optional("available") {
        None => true,
        Some(_) => object.boolean("available")?,
    };
    let zone_id = match object.optional("zoneId") {
        None => "",
        Some(_) => object.any_text("zoneId")?,
    };
    Ok(Offering {
        zone: object.text("zone")?.to_owned(),
        zone_id: zone_id.to_owned(),
        capacity_type,
        price: usd
            .ok_or_else(|| object.error("price", format!("{price} is not a price in USD per hour (0 to 1000000)")))?,
        available,
        list_price: None,
        reservation: reservation(object, capacity_type)?,
    })
}

/// The capacity reservation of a reserved offering. Others have none.
fn reservation(object: &Object<'_>, capacity_type: CapacityType) -> Parsed<Option<CapacityReservation>> {
    match (object.optional("reservation"), capacity_type) {
        (None, CapacityType::Reserved) => Err(object.error("reservation", "is missing")),
        (None, _) => Ok(None),
        (Some(_), CapacityType::Spot | CapacityType::OnDemand) => {
            Err(object.error("reservation", format!("belongs to reserved offerings, this one is {capacity_type}")))
        }
        (Some(value), CapacityType::Reserved) => {
            let path = format!("{}reservation", object.prefix);
            let object = Object::of(value, &path, format!("{path}."))?;
            let kind = object.optional("type").map_or(Ok("default"), |_| object.text("type"))?;
            if !["default", "capacity-block"].contains(&kind) {
                return Err(object.error("type", format!("{kind:?} is neither default nor capacity-block")));
            }
            let count = object.required("count")?;
            let free = count.as_u64().and_then(|count| u32::try_from(count).ok());
            Ok(Some(CapacityReservation {
                id: object.text("id")?.to_owned(),
                capacity_block: kind == "capacity-block",
                interruptible: object.optional("interruptible").is_some() && object.boolean("interruptible")?,
                count: Some(
                    free.ok_or_else(|| object.error("count", format!("{count} is not a number of instances")))?,
                ),
            }))
        }
    }
}

/// A JSON object and the prefix of its fields in error messages.
struct Object<'value> {
    fields: &'value Map<String, Value>,
    prefix: String,
}

impl<'value> Object<'value> {
    fn of(value: &'value Value, name: &str, prefix: String) -> Parsed<Self> {
        let fields =
            value.as_object().ok_or_else(|| field(name, format!("an object is needed, not {}", type_name(value))))?;
        Ok(Self { fields, prefix })
    }

    fn error(&self, name: &str, problem: impl Into<String>) -> CatalogFileError {
        field(&format!("{}{name}", self.prefix), problem)
    }

    /// The field, if it exists and is not null.
    fn optional(&self, name: &str) -> Option<&'value Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn required(&self, name: &str) -> Parsed<&'value Value> {
        self.optional(name).ok_or_else(|| self.error(name, "is missing"))
    }

    fn boolean(&self, name: &str) -> Parsed<bool> {
        let value = self.required(name)?;
        let problem = || self.error(name, format!("true or false is needed, not {}", type_name(value)));
        value.as_bool().ok_or_else(problem)
    }

    fn any_text(&self, name: &str) -> Parsed<&'value str> {
        let value = self.required(name)?;
        value.as_str().ok_or_else(|| self.error(name, format!("text is needed, not {}", type_name(value))))
    }

    fn text(&self, name: &str) -> Parsed<&'value str> {
        match self.any_text(name)? {
            "" => Err(self.error(name, "is empty")),
            text => Ok(text),
        }
    }

    fn list(&self, name: &str) -> Parsed<&'value [Value]> {
        let value = self.required(name)?;
        let list = value.as_array().map(Vec::as_slice);
        list.ok_or_else(|| self.error(name, format!("a list is needed, not {}", type_name(value))))
    }

    fn map(&self, name: &str, required: bool) -> Parsed<Option<&'value Map<String, Value>>> {
        match self.optional(name) {
            None if required => Err(self.error(name, "is missing")),
            None => Ok(None),
            Some(Value::Object(entries)) => Ok(Some(entries)),
            Some(other) => Err(self.error(name, format!("an object is needed, not {}", type_name(other)))),
        }
    }
}

fn field(path: &str, problem: impl Into<String>) -> CatalogFileError {
    CatalogFileError::Field { path: path.to_owned(), problem: problem.into() }
}

fn type_name(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

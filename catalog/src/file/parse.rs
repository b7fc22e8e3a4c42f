//! From JSON. Every value is looked at by hand, so that an error names the type and the field.

use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::resources::{CPU, MEMORY, PODS, Resources};
use serde_json::{Map, Value};
use std::collections::BTreeMap;

/// Largest file that is read: some ten times a catalog of one region with all its types.
pub const MAX_FILE_BYTES: usize = 64 << 20;

/// Why a catalog file cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum CatalogFileError {
    /// Larger than [`MAX_FILE_BYTES`].
    #[error("the file has {0} bytes, at most {MAX_FILE_BYTES} are read")]
    TooLarge(usize),
    /// Not JSON.
    #[error("not JSON: {0}")]
    Syntax(String),
    /// A value that is not as it has to be.
    #[error("{path}: {problem}")]
    Field {
        /// Such as `instanceTypes[3] m5.large: offerings[0].price`.
        path: String,
        /// What is wrong with it.
        problem: String,
    },
}

type Parsed<T> = Result<T, CatalogFileError>;

/// Reads a catalog. Types come back sorted by name, offerings by zone and capacity type.
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
        if let [one, other] = pair
            && one.name == other.name
        {
            return Err(field("instanceTypes", format!("{} is there twice", one.name)));
        }
    }
    Ok(Catalog { region, instance_types })
}

fn instance_type(value: &Value, position: usize, region: &str) -> Parsed<InstanceType> {
    let here = format!("instanceTypes[{position}]");
    let name = Object::of(value, &here, format!("{here}."))?.text("name")?;
    let here = format!("{here} {name}");
    let object = Object::of(value, &here, format!("{here}: "))?;
    let architecture = object.text("architecture")?;
    if !["amd64", "arm64"].contains(&architecture) {
        return Err(object.wrong("architecture", format!("{architecture:?} is neither amd64 nor arm64")));
    }
    let capacity = amounts(&object, "capacity", true)?;
    for needed in [CPU, MEMORY, PODS] {
        if !capacity.contains(needed) {
            return Err(object.wrong(&format!("capacity.{needed}"), "is missing"));
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
    take_own_labels(&object, &mut instance_type, region)?;
    Ok(instance_type)
}

fn operating_systems(object: &Object<'_>) -> Parsed<Vec<String>> {
    let mut found = Vec::new();
    for (position, value) in object.list("operatingSystems")?.iter().enumerate() {
        match value.as_str() {
            Some(known @ ("linux" | "windows")) => found.push(known.to_owned()),
            _ => {
                let field = format!("operatingSystems[{position}]");
                return Err(object.wrong(&field, format!("{value} is neither \"linux\" nor \"windows\"")));
            }
        }
    }
    Ok(found)
}

fn amounts(object: &Object<'_>, field: &str, needed: bool) -> Parsed<Resources> {
    let Some(entries) = object.map(field, needed)? else { return Ok(Resources::new()) };
    let mut amounts = Resources::new();
    for (name, value) in entries {
        let path = format!("{field}.{name}");
        let text = match value {
            Value::String(text) => text.clone(),
            Value::Number(number) => number.to_string(),
            other => return Err(object.wrong(&path, format!("a quantity is needed, not {}", kind(other)))),
        };
        let amount = crate::settings::amount(name, &text)
            .ok_or_else(|| object.wrong(&path, format!("{text:?} is not a quantity that can be counted")))?;
        if amount < 0 {
            return Err(object.wrong(&path, format!("{text:?} is negative")));
        }
        amounts.set(name, amount);
    }
    Ok(amounts)
}

fn labels(object: &Object<'_>) -> Parsed<BTreeMap<String, String>> {
    let mut labels = BTreeMap::new();
    for (key, value) in object.map("labels", false)?.into_iter().flatten() {
        let text = value
            .as_str()
            .ok_or_else(|| object.wrong(&format!("labels.{key}"), format!("text is needed, not {}", kind(value))))?;
        labels.insert(key.clone(), text.to_owned());
    }
    Ok(labels)
}

/// Labels that other fields say already may be there, but may not say anything else.
fn take_own_labels(object: &Object<'_>, instance_type: &mut InstanceType, region: &str) -> Parsed<()> {
    let said = [
        (label::ARCH, vec![instance_type.architecture.clone()]),
        (label::INSTANCE_TYPE, vec![instance_type.name.clone()]),
        (label::OS, instance_type.operating_systems.clone()),
        (label::REGION, vec![region.to_owned()]),
    ];
    for (key, expected) in said {
        if let Some(found) = instance_type.labels.remove(key)
            && !expected.contains(&found)
        {
            let problem = format!("{found:?} contradicts {:?} of the other fields", expected.join(", "));
            return Err(object.wrong(&format!("labels.{key}"), problem));
        }
    }
    for key in [label::ZONE, label::ZONE_ID, label::CAPACITY_TYPE] {
        if instance_type.labels.contains_key(key) {
            return Err(object.wrong(&format!("labels.{key}"), "belongs to an offering"));
        }
    }
    Ok(())
}

fn offerings(object: &Object<'_>) -> Parsed<Vec<Offering>> {
    let mut offerings = Vec::new();
    for (position, value) in object.list("offerings")?.iter().enumerate() {
        let here = format!("{}offerings[{position}]", object.prefix);
        offerings.push(offering(&Object::of(value, &here, format!("{here}."))?)?);
    }
    offerings.sort_by(|left, right| (&left.zone, left.capacity_type).cmp(&(&right.zone, right.capacity_type)));
    for pair in offerings.windows(2) {
        if let [one, other] = pair
            && (&one.zone, one.capacity_type) == (&other.zone, other.capacity_type)
        {
            return Err(object.wrong("offerings", format!("{} in {} is there twice", one.capacity_type, one.zone)));
        }
    }
    Ok(offerings)
}

fn offering(object: &Object<'_>) -> Parsed<Offering> {
    let capacity_type = object.text("capacityType")?;
    let price = object.needed("price")?;
    let usd = price.as_f64().and_then(MicroUsdPerHour::from_usd);
    let available = match object.optional("available") {
        None => true,
        Some(Value::Bool(available)) => *available,
        Some(other) => return Err(object.wrong("available", format!("true or false is needed, not {}", kind(other)))),
    };
    let zone_id = match object.optional("zoneId") {
        None => "",
        Some(_) => object.any_text("zoneId")?,
    };
    Ok(Offering {
        zone: object.text("zone")?.to_owned(),
        zone_id: zone_id.to_owned(),
        capacity_type: CapacityType::parse(capacity_type).ok_or_else(|| {
            object.wrong("capacityType", format!("{capacity_type:?} is none of reserved, spot, on-demand"))
        })?,
        price: usd
            .ok_or_else(|| object.wrong("price", format!("{price} is not a price in USD per hour (0 to 1000000)")))?,
        available,
    })
}

/// An object, and how errors name its fields.
struct Object<'value> {
    fields: &'value Map<String, Value>,
    prefix: String,
}

impl<'value> Object<'value> {
    fn of(value: &'value Value, name: &str, prefix: String) -> Parsed<Self> {
        let fields =
            value.as_object().ok_or_else(|| field(name, format!("an object is needed, not {}", kind(value))))?;
        Ok(Self { fields, prefix })
    }

    fn wrong(&self, name: &str, problem: impl Into<String>) -> CatalogFileError {
        field(&format!("{}{name}", self.prefix), problem)
    }

    /// The field, if it is there and not null.
    fn optional(&self, name: &str) -> Option<&'value Value> {
        self.fields.get(name).filter(|value| !value.is_null())
    }

    fn needed(&self, name: &str) -> Parsed<&'value Value> {
        self.optional(name).ok_or_else(|| self.wrong(name, "is missing"))
    }

    fn any_text(&self, name: &str) -> Parsed<&'value str> {
        let value = self.needed(name)?;
        value.as_str().ok_or_else(|| self.wrong(name, format!("text is needed, not {}", kind(value))))
    }

    fn text(&self, name: &str) -> Parsed<&'value str> {
        match self.any_text(name)? {
            "" => Err(self.wrong(name, "is empty")),
            text => Ok(text),
        }
    }

    fn list(&self, name: &str) -> Parsed<&'value [Value]> {
        let value = self.needed(name)?;
        let list = value.as_array().map(Vec::as_slice);
        list.ok_or_else(|| self.wrong(name, format!("a list is needed, not {}", kind(value))))
    }

    fn map(&self, name: &str, needed: bool) -> Parsed<Option<&'value Map<String, Value>>> {
        match self.optional(name) {
            None if needed => Err(self.wrong(name, "is missing")),
            None => Ok(None),
            Some(Value::Object(entries)) => Ok(Some(entries)),
            Some(other) => Err(self.wrong(name, format!("an object is needed, not {}", kind(other)))),
        }
    }
}

fn field(path: &str, problem: impl Into<String>) -> CatalogFileError {
    CatalogFileError::Field { path: path.to_owned(), problem: problem.into() }
}

fn kind(value: &Value) -> &'static str {
    match value {
        Value::Null => "null",
        Value::Bool(_) => "true or false",
        Value::Number(_) => "a number",
        Value::String(_) => "text",
        Value::Array(_) => "a list",
        Value::Object(_) => "an object",
    }
}

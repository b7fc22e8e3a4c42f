//! Builds catalogs from JSON output of the AWS CLI (`--output json`), for any region with current prices.

mod describe;

use crate::{InstanceTypeFacts, NodeClassSettings, Prices, SpotPrices, Zone, builtin};
use describe::Description;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::money::MicroUsdPerHour;
use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};
use std::collections::{BTreeMap, BTreeSet};

/// Maximum size of one output: several times the Spot price history of a region for a day.
pub const MAX_BYTES: usize = 256 << 20;
/// Lists that are read, with the commands that print them.
const LISTS: [(&str, &str); 5] = [
    ("InstanceTypes", "aws ec2 describe-instance-types"),
    ("InstanceTypeOfferings", "aws ec2 describe-instance-type-offerings --location-type availability-zone"),
    ("SpotPriceHistory", "aws ec2 describe-spot-price-history"),
    ("AvailabilityZones", "aws ec2 describe-availability-zones"),
    ("PriceList", "aws pricing get-products"),
];

/// Reason why output of the AWS CLI cannot be used.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AwsCliError {
    /// The output is larger than [`MAX_BYTES`].
    #[error("{0} bytes are more than {MAX_BYTES}")]
    TooLarge(usize),
    /// The output is not JSON.
    #[error("not JSON: {0}; use --output json")]
    Syntax(String),
    /// The output contains none of the lists that are read.
    #[error("no known list; the output of these commands is read: {}", commands())]
    Unknown,
    /// A value is invalid.
    #[error("{path}: {problem}")]
    Field {
        /// Path of the value, such as `InstanceTypes[3].MemoryInfo.SizeInMiB`.
        path: String,
        /// Description of the error.
        problem: String,
    },
    /// Neither the outputs nor the built-in catalog contain the instance types that the zones of the region offer.
    #[error("the offerings of region {0:?} are unknown: add the output of {command}", command = LISTS[1].1)]
    NoOfferings(String),
    /// Neither the outputs nor the caller name the region, or the outputs belong to several regions.
    #[error("the region is not clear ({0}): specify it, or use the output of a single region")]
    NoRegion(String),
}

fn commands() -> String {
    LISTS.map(|(_, command)| command).join(", ")
}

/// Combined outputs of the AWS CLI.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct AwsCliOutput {
    facts: BTreeMap<String, InstanceTypeFacts>,
    /// Instance types by zone.
    offered: BTreeMap<String, BTreeSet<String>>,
    zones: BTreeMap<String, AvailabilityZone>,
    /// Latest price and its time, by type and zone.
    spot: BTreeMap<String, BTreeMap<String, (String, MicroUsdPerHour)>>,
    /// On-Demand prices by region and type.
    on_demand: BTreeMap<String, BTreeMap<String, MicroUsdPerHour>>,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct Offered {
    instance_type: String,
    location_type: Option<String>,
    location: String,
}

#[derive(Debug, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct SpotPrice {
    availability_zone: String,
    instance_type: String,
    #[serde(default)]
    product_description: String,
    spot_price: String,
    #[serde(default)]
    timestamp: String,
}

#[derive(Debug, Clone, PartialEq, Deserialize)]
#[serde(rename_all = "PascalCase")]
struct AvailabilityZone {
    zone_name: String,
    #[serde(default)]
    zone_id: String,
    #[serde(default)]
    region_name: String,
}

impl AwsCliOutput {
    /// Adds one output. The lists in an output determine its kind. Outputs may be added in any order and in several
    /// parts.
    ///
    /// # Errors
    /// The output contains none of the lists that are read, or a value is invalid. The error names the path of the
    /// value.
    pub fn add(&mut self, text: &str) -> Result<(), AwsCliError> {
        if text.len() > MAX_BYTES {
            return Err(AwsCliError::TooLarge(text.len()));
        }
        let root: Value = serde_json::from_str(text).map_err(|error| AwsCliError::Syntax(error.to_string()))?;
        let lists: Vec<(&str, &Vec<Value>)> =
            LISTS.iter().filter_map(|(name, _)| Some((*name, root.get(*name)?.as_array()?))).collect();
        if lists.is_empty() {
            return Err(AwsCliError::Unknown);
        }
        for (name, items) in lists {
            for (index, item) in items.iter().enumerate() {
                self.add_item(name, item, &format!("{name}[{index}]"))?;
            }
        }
        Ok(())
    }

    fn add_item(&mut self, list: &str, item: &Value, path: &str) -> Result<(), AwsCliError> {
        match list {
            "InstanceTypes" => {
                let facts = InstanceTypeFacts::from(read::<Description>(item, path)?);
                self.facts.insert(facts.name.clone(), facts);
            }
            "InstanceTypeOfferings" => {
                let it: Offered = read(item, path)?;
                if it.location_type.as_deref().is_some_and(|kind| kind != "availability-zone") {
                    return Err(field(format!("{path}.LocationType"), "use --location-type availability-zone"));
                }
                self.offered.entry(it.location).or_default().insert(it.instance_type);
            }
            "SpotPriceHistory" => self.add_spot_price(read(item, path)?, path)?,
            "AvailabilityZones" => {
                let it: AvailabilityZone = read(item, path)?;
                self.zones.insert(it.zone_name.clone(), it);
            }
            _ => self.add_product(item, path)?,
        }
        Ok(())
    }

    /// Keeps the latest price. Prices of other operating systems than Linux are ignored.
    fn add_spot_price(&mut self, it: SpotPrice, path: &str) -> Result<(), AwsCliError> {
        if !it.product_description.is_empty() && !it.product_description.starts_with("Linux/UNIX") {
            return Ok(());
        }
        let price = price(&it.spot_price).ok_or_else(|| {
            field(format!("{path}.SpotPrice"), format!("{:?} is not a price in USD per hour", it.spot_price))
        })?;
        let known = self.spot.entry(it.instance_type).or_default().entry(it.availability_zone).or_default();
        // Timestamps sort by time, since the CLI prints them in RFC 3339 and UTC.
        if known.0 <= it.timestamp {
            *known = (it.timestamp, price);
        }
        Ok(())
    }

    /// A product of the price list is a JSON text within JSON. Only On-Demand products for Linux are read: those with
    /// shared tenancy, and bare metal, which is sold with dedicated tenancy alone.
    fn add_product(&mut self, item: &Value, path: &str) -> Result<(), AwsCliError> {
        let product = match item.as_str() {
            Some(text) => serde_json::from_str(text).map_err(|error| field(path.to_owned(), error.to_string()))?,
            None => item.clone(),
        };
        let attribute = |name: &str| {
            product.pointer(&format!("/product/attributes/{name}")).and_then(Value::as_str).unwrap_or_default()
        };
        let is_metal =
            product.pointer("/product/productFamily").and_then(Value::as_str) == Some("Compute Instance (bare metal)");
        let tenancy = if is_metal { "Dedicated" } else { "Shared" };
        let counted =
            [("operatingSystem", "Linux"), ("tenancy", tenancy), ("preInstalledSw", "NA"), ("capacitystatus", "Used")];
        // Capacity Blocks have products of their own.
        let is_on_demand = ["", "OnDemand"].contains(&attribute("marketoption"));
        if !is_on_demand || counted.iter().any(|(name, value)| attribute(name) != *value) {
            return Ok(());
        }
        let values = |value: Option<&Value>| {
            value.and_then(Value::as_object).into_iter().flat_map(Map::values).cloned().collect::<Vec<_>>()
        };
        let terms = values(product.pointer("/terms/OnDemand"));
        let dimensions = terms.iter().flat_map(|term| values(term.get("priceDimensions")));
        // Prices in China are in yuan.
        let in_currency = |it: &Value| {
            let amount = it.pointer("/pricePerUnit/USD").or_else(|| it.pointer("/pricePerUnit/CNY"))?;
            price(amount.as_str()?)
        };
        let prices = dimensions.filter_map(|it| in_currency(&it));
        if let Some(price) = prices.filter(|price| price.0 > 0).min() {
            let region = self.on_demand.entry(attribute("regionCode").to_owned()).or_default();
            region.insert(attribute("instanceType").to_owned(), price);
        }
        Ok(())
    }

    /// Computes the catalog of a node class with these `settings` in `region`. If `region` is `None`, the region of the
    /// zones is used. Zones, types and prices that the outputs do not contain are taken from the built-in catalog of
    /// the region, if there is one. Types without a price are omitted.
    ///
    /// # Errors
    /// The region is ambiguous, or the instance types that its zones offer are unknown.
    pub fn catalog(&self, region: Option<&str>, settings: &NodeClassSettings) -> Result<Catalog, AwsCliError> {
        let region = match region {
            Some(region) => region.to_owned(),
            None => self.region()?,
        };
        let (zones, prices) = (self.zones(&region)?, self.prices(&region));
        let facts = if self.facts.is_empty() {
            builtin::facts().iter().collect()
        } else {
            self.facts.values().collect::<Vec<_>>()
        };
        Ok(crate::build(&region, facts, settings, &zones, &prices))
    }

    /// The region of all zones.
    fn region(&self) -> Result<String, AwsCliError> {
        let of_zone = |zone: &str| zone.trim_end_matches(|letter: char| letter.is_ascii_lowercase()).to_owned();
        let named = self.zones.values().map(|zone| zone.region_name.clone()).filter(|name| !name.is_empty());
        let of_prices = self.spot.values().flat_map(BTreeMap::keys);
        let regions: BTreeSet<String> =
            named.chain(self.offered.keys().chain(of_prices).map(|zone| of_zone(zone))).collect();
        let mut all = regions.iter();
        match (all.next(), all.next()) {
            (Some(region), None) => Ok(region.clone()),
            (None, _) => Err(AwsCliError::NoRegion("no output names one".to_owned())),
            _ => Err(AwsCliError::NoRegion(regions.into_iter().collect::<Vec<_>>().join(", "))),
        }
    }

    fn zones(&self, region: &str) -> Result<Vec<Zone>, AwsCliError> {
        if self.offered.is_empty() {
            let built_in = builtin::zones(region).map_err(|_unknown| AwsCliError::NoOfferings(region.to_owned()))?;
            return Ok(built_in.to_vec());
        }
        let zone = |(name, instance_types): (&String, &BTreeSet<String>)| Zone {
            name: name.clone(),
            id: self.zones.get(name).map(|zone| zone.zone_id.clone()).unwrap_or_default(),
            instance_types: instance_types.clone(),
            usable: true,
        };
        Ok(self.offered.iter().filter(|(name, _)| name.starts_with(region)).map(zone).collect())
    }

    fn prices(&self, region: &str) -> Prices {
        let mut prices = builtin::prices(region).unwrap_or_default();
        prices.on_demand.extend(self.on_demand.get(region).cloned().unwrap_or_default());
        if !self.spot.is_empty() {
            let of_zones = |zones: &BTreeMap<String, (String, MicroUsdPerHour)>| {
                zones.iter().map(|(zone, (_, price))| (zone.clone(), *price)).collect()
            };
            let spot = self.spot.iter().map(|(instance_type, zones)| (instance_type.clone(), of_zones(zones)));
            prices.spot = SpotPrices::Known(spot.collect());
        }
        prices
    }
}

fn price(text: &str) -> Option<MicroUsdPerHour> {
    text.parse().ok().and_then(MicroUsdPerHour::from_usd)
}

fn read<T: DeserializeOwned>(item: &Value, path: &str) -> Result<T, AwsCliError> {
    serde_path_to_error::deserialize(item).map_err(|error| {
        let below = error.path().to_string();
        let path = if below == "." { path.to_owned() } else { format!("{path}.{below}") };
        field(path, error.into_inner().to_string())
    })
}

fn field(path: String, problem: impl Into<String>) -> AwsCliError {
    AwsCliError::Field { path, problem: problem.into() }
}

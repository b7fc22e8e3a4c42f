//! The built-in catalog: EC2's descriptions of instance types, zones and on-demand prices of four regions.
//! `catalog/README.md` documents the source of each value. Spot prices are synthetic, see [`spot_price`].

use crate::{InstanceTypeFacts, NodeClassSettings, Prices, SpotPrices, Zone};
use flate2::read::GzDecoder;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::money::MicroUsdPerHour;
use serde::de::DeserializeOwned;
use sha2::{Digest, Sha256};
use std::collections::{BTreeMap, BTreeSet};
use std::io::Read as _;
use std::sync::LazyLock;

mod price_table;

pub use price_table::PriceSource;

/// Month of EC2's published prices.
pub const PRICES_AS_OF: &str = "2026-07";

static FACTS: LazyLock<Vec<InstanceTypeFacts>> = LazyLock::new(|| read(include_bytes!("../data/facts.json.gz")));
static ZONES: LazyLock<BTreeMap<String, Vec<Zone>>> = LazyLock::new(|| read(include_bytes!("../data/zones.json.gz")));

/// The data is embedded and fully tested, so errors cannot occur and result in an empty value.
fn read<T: DeserializeOwned + Default>(compressed: &[u8]) -> T {
    // Decompress first: parsing JSON directly from the decoder is several times slower.
    let mut text = Vec::new();
    let decompressed = GzDecoder::new(compressed).read_to_end(&mut text).is_ok();
    Some(text).filter(|_| decompressed).and_then(|text| serde_json::from_slice(&text).ok()).unwrap_or_default()
}

/// The region has no built-in catalog.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("there is no built-in catalog of region {region:?}; there is one of {}", regions().join(", "))]
pub struct UnknownRegion {
    /// The requested region.
    pub region: String,
}

/// Regions with a built-in catalog, sorted.
#[must_use]
pub fn regions() -> Vec<&'static str> {
    ZONES.keys().map(String::as_str).collect()
}

/// EC2's descriptions of all instance types in these regions, sorted by name.
#[must_use]
pub fn facts() -> &'static [InstanceTypeFacts] {
    &FACTS
}

/// Zones of a region with their instance types.
pub fn zones(region: &str) -> Result<&'static [Zone], UnknownRegion> {
    ZONES.get(region).map(Vec::as_slice).ok_or_else(|| UnknownRegion { region: region.to_owned() })
}

/// On-demand prices of a region, and spot prices derived from them.
pub fn prices(region: &str) -> Result<Prices, UnknownRegion> {
    let zones = zones(region)?;
    let on_demand: BTreeMap<String, MicroUsdPerHour> =
        price_table::of_region(region).map(|row| (row.instance_type.to_owned(), row.price)).collect();
    let spot = on_demand.iter().map(|(instance_type, price)| {
        let zone_price = |zone: &Zone| (zone.name.clone(), spot_price(*price, instance_type, &zone.name));
        (instance_type.clone(), zones.iter().map(zone_price).collect())
    });
    Ok(Prices { spot: SpotPrices::Known(spot.collect()), on_demand })
}

/// Source of the on-demand price of each priced instance type in a region.
pub fn price_sources(region: &str) -> Result<BTreeMap<String, PriceSource>, UnknownRegion> {
    let offered: BTreeSet<&str> =
        zones(region)?.iter().flat_map(|zone| zone.instance_types.iter().map(String::as_str)).collect();
    let rows = price_table::of_region(region).filter(|row| offered.contains(row.instance_type));
    Ok(rows.map(|row| (row.instance_type.to_owned(), row.source)).collect())
}

/// Computes the catalog of a node class with these `settings` in `region`, with all zones usable. Types without a price
/// are omitted.
///
/// ```
/// use plimsoll_catalog::{NodeClassSettings, builtin};
///
/// let catalog = builtin::catalog("eu-west-1", &NodeClassSettings::default())?;
/// let large = catalog.get("m5.large").ok_or("not sold there")?;
/// assert_eq!((large.architecture.as_str(), large.capacity.get("cpu")), ("amd64", 2000));
/// assert!(large.offerings.iter().all(|offering| offering.zone.starts_with("eu-west-1")));
/// # Ok::<(), Box<dyn std::error::Error>>(())
/// ```
pub fn catalog(region: &str, settings: &NodeClassSettings) -> Result<Catalog, UnknownRegion> {
    Ok(crate::build(region, facts(), settings, zones(region)?, &prices(region)?))
}

/// Returns a synthetic spot price between 25% and 60% of the on-demand price, which is the typical range. It depends
/// only on type and zone, so that it is the same on every machine: 0.25 + 0.35 x, where x is the first 8 bytes of the
/// SHA-256 of `spot|<type>|<zone>` as a fraction.
#[must_use]
pub fn spot_price(on_demand: MicroUsdPerHour, instance_type: &str, zone: &str) -> MicroUsdPerHour {
    const LEAST_PERCENT: u128 = 25;
    const SPREAD_PERCENT: u128 = 35;
    let digest = Sha256::digest(format!("spot|{instance_type}|{zone}"));
    let hash = digest.iter().take(8).fold(0_u64, |hash, byte| (hash << 8) | u64::from(*byte));
    let price = u128::from(on_demand.0.unsigned_abs());
    // Computed with a scale of 100 x 2^64; adding half of the scale rounds to nearest.
    let scaled = price * ((LEAST_PERCENT << 64) + SPREAD_PERCENT * u128::from(hash));
    let rounded = (scaled + (50 << 64)) / (100 << 64);
    MicroUsdPerHour(i64::try_from(rounded).unwrap_or(i64::MAX))
}

#[cfg(test)]
mod tests;

//! EC2 facts of a region, independent of node classes: types, where they are offered, prices.

use crate::io::CloudReads;
use crate::ports::CloudError;
use plimsoll_catalog::{InstanceTypeFacts, Prices, SpotPrices, builtin};
use plimsoll_model::money::MicroUsdPerHour;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Built-in prices of this region approximate those of regions without built-in prices.
const FALLBACK_REGION: &str = "us-east-1";

/// All facts that catalogs are built from, besides the node classes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    /// `None` if EC2 has not answered yet and the region has no built-in catalog.
    pub(super) region: Option<Region>,
    pub(super) prices: Prices,
}

/// Instance types and the zones where they are offered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Region {
    pub(super) types: Arc<Vec<InstanceTypeFacts>>,
    pub(super) zones: Arc<BTreeMap<String, BTreeSet<String>>>,
    /// From the built-in catalog, since EC2 has not answered yet: types and zones may be missing.
    pub(super) builtin: bool,
}

impl Facts {
    /// The built-in facts, used until EC2 answers. Only prices are approximated by those of another region.
    pub(super) fn builtin(region: &str) -> Self {
        let prices = builtin::prices(region).or_else(|_| builtin::prices(FALLBACK_REGION));
        let on_demand = prices.map(|prices| prices.on_demand).unwrap_or_default();
        let zones = builtin::zones(region).ok();
        let region = zones.map(|zones| Region {
            types: Arc::new(builtin::facts().to_vec()),
            zones: Arc::new(zones.iter().map(|zone| (zone.name.clone(), zone.instance_types.clone())).collect()),
            builtin: true,
        });
        Self { region, prices: Prices { on_demand, ..Prices::default() } }
    }
}

/// Reads the region's facts from EC2.
pub(super) async fn region(cloud: &CloudReads) -> Result<Region, CloudError> {
    let (types, offerings) = tokio::try_join!(cloud.instance_types(), cloud.type_offerings())?;
    let mut zones: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for offering in offerings {
        zones.entry(offering.zone).or_default().insert(offering.instance_type);
    }
    Ok(Region { types: Arc::new(types), zones: Arc::new(zones), builtin: false })
}

/// Reads On-Demand prices.
pub(super) async fn on_demand_prices(cloud: &CloudReads) -> Result<BTreeMap<String, MicroUsdPerHour>, CloudError> {
    let read = cloud.on_demand_prices().await?;
    Ok(read.into_iter().map(|price| (price.instance_type, price.price)).collect())
}

/// Reads Spot prices.
pub(super) async fn spot_prices(cloud: &CloudReads) -> Result<SpotPrices, CloudError> {
    let mut spot: BTreeMap<String, BTreeMap<String, MicroUsdPerHour>> = BTreeMap::new();
    for price in cloud.spot_prices().await? {
        spot.entry(price.instance_type).or_default().insert(price.zone, price.price);
    }
    Ok(SpotPrices::Known(spot))
}

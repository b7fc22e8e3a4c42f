//! EC2 facts of a region, independent of node classes: types, where they are offered, prices.

use crate::io::CloudReads;
use crate::ports::CloudError;
use plimsoll_catalog::{InstanceTypeFacts, Prices, SpotPrices, builtin};
use plimsoll_model::money::MicroUsdPerHour;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Built-in prices of this region approximate those of regions without built-in prices.
const FALLBACK_REGION: &str = "us-east-1";

/// Instance types and the zones where they are offered.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Region {
    pub(super) types: Arc<Vec<InstanceTypeFacts>>,
    pub(super) zones: Arc<BTreeMap<String, BTreeSet<String>>>,
}

/// Reads the region's facts from EC2.
pub(super) async fn region(cloud: &CloudReads) -> Result<Region, CloudError> {
    let types = cloud.instance_types().await?;
    let mut zones: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for offering in cloud.type_offerings().await? {
        zones.entry(offering.zone).or_default().insert(offering.instance_type);
    }
    Ok(Region { types: Arc::new(types), zones: Arc::new(zones) })
}

/// Built-in On-Demand prices, used until prices can be read.
pub(super) fn builtin(region: &str) -> Prices {
    let known = builtin::prices(region).or_else(|_| builtin::prices(FALLBACK_REGION));
    Prices { on_demand: known.map(|prices| prices.on_demand).unwrap_or_default(), ..Prices::default() }
}

/// Reads On-Demand prices. A type without a price in the answer keeps its price.
pub(super) async fn read_on_demand(cloud: &CloudReads, prices: &mut Prices) -> Result<(), CloudError> {
    let read = cloud.on_demand_prices().await?;
    prices.on_demand.extend(read.into_iter().map(|price| (price.instance_type, price.price)));
    Ok(())
}

/// Reads Spot prices.
pub(super) async fn read_spot(cloud: &CloudReads, prices: &mut Prices) -> Result<(), CloudError> {
    let mut spot: BTreeMap<String, BTreeMap<String, MicroUsdPerHour>> = BTreeMap::new();
    for price in cloud.spot_prices().await? {
        spot.entry(price.instance_type).or_default().insert(price.zone, price.price);
    }
    prices.spot = SpotPrices::Known(spot);
    Ok(())
}

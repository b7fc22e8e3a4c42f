//! EC2 facts of a region, independent of node classes: types, where they are offered, prices.

use crate::io::CloudReads;
use crate::ports::{CloudError, SpotPrice};
use plimsoll_catalog::{InstanceTypeFacts, Prices, SpotPrices, builtin};
use plimsoll_model::money::MicroUsdPerHour;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Built-in prices of this region approximate those of regions without built-in prices.
const FALLBACK_REGION: &str = "us-east-1";
/// Yuan per dollar, roughly. AWS' prices in China are in yuan, also those of Spot capacity: above On-Demand prices in
/// dollars, no Spot capacity would be launched until the price list answers, which some VPCs cannot reach.
const YUAN_PER_DOLLAR: i64 = 7;
/// Successive answers without a Spot price after which the offering counts as withdrawn. One answer may have gaps, and
/// the next one is hours later.
const WITHDRAWN_AFTER: u32 = 2;

/// All facts that catalogs are built from, besides the node classes.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Facts {
    /// `None` if EC2 has not answered yet and the region has no built-in catalog.
    pub(super) region: Option<Region>,
    pub(super) prices: Prices,
    /// Type and zone of the Spot prices that the last answers lacked, with the number of these answers.
    missed_spot: BTreeMap<(String, String), u32>,
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
        let mut on_demand = prices.map(|prices| prices.on_demand).unwrap_or_default();
        if region.starts_with("cn-") {
            on_demand.values_mut().for_each(|price| price.0 = price.0.saturating_mul(YUAN_PER_DOLLAR));
        }
        let zones = builtin::zones(region).ok();
        let region = zones.map(|zones| Region {
            types: Arc::new(builtin::facts().to_vec()),
            zones: Arc::new(zones.iter().map(|zone| (zone.name.clone(), zone.instance_types.clone())).collect()),
            builtin: true,
        });
        Self { region, prices: Prices { on_demand, ..Prices::default() }, missed_spot: BTreeMap::new() }
    }

    /// Adds Spot prices to those that were read before. Prices that the answer lacks stay, since existing nodes need
    /// them. What is no longer offered in a zone has no offering, whatever its price.
    pub(super) fn add_spot_prices(&mut self, read: Vec<SpotPrice>) {
        let mut spot = match std::mem::take(&mut self.prices.spot) {
            SpotPrices::Known(spot) => spot,
            SpotPrices::Unknown => BTreeMap::new(),
        };
        let mut before = std::mem::take(&mut self.missed_spot);
        let listed: BTreeSet<(&str, &str)> =
            read.iter().map(|price| (price.instance_type.as_str(), price.zone.as_str())).collect();
        for (name, zones) in &spot {
            for zone in zones.keys().filter(|zone| !listed.contains(&(name.as_str(), zone.as_str()))) {
                let key = (name.clone(), zone.clone());
                let missed = before.remove(&key).unwrap_or(0).saturating_add(1);
                self.missed_spot.insert(key, missed.min(WITHDRAWN_AFTER));
            }
        }
        for price in read {
            spot.entry(price.instance_type).or_default().insert(price.zone, price.price);
        }
        self.prices.spot = SpotPrices::Known(spot);
    }

    /// Type and zone of Spot offerings that EC2 no longer has a price for.
    pub(super) fn withdrawn_spot(&self) -> BTreeSet<(&str, &str)> {
        let withdrawn = self.missed_spot.iter().filter(|(_, missed)| **missed >= WITHDRAWN_AFTER);
        withdrawn.map(|((name, zone), _)| (name.as_str(), zone.as_str())).collect()
    }

    /// Adds On-Demand and Spot prices of instance types that have none. A type that has Spot prices in some zones is
    /// not sold as Spot in the others.
    pub(super) fn add_missing_prices(&mut self, prices: &BTreeMap<String, MicroUsdPerHour>) {
        for (name, price) in prices {
            self.prices.on_demand.entry(name.clone()).or_insert(*price);
            let (Some(region), SpotPrices::Known(spot)) = (&self.region, &mut self.prices.spot) else { continue };
            if spot.get(name).is_none_or(BTreeMap::is_empty) {
                let zones = region.zones.iter().filter(|(_, types)| types.contains(name));
                spot.insert(name.clone(), zones.map(|(zone, _)| (zone.clone(), *price)).collect());
            }
        }
    }
}

/// Reads the region's facts from EC2.
///
/// # Errors
/// EC2 does not answer, or with an empty list: an empty catalog could launch nothing.
pub(super) async fn region(cloud: &CloudReads) -> Result<Region, CloudError> {
    let (types, offerings) = tokio::try_join!(cloud.instance_types(), cloud.type_offerings())?;
    let types = not_empty("instance types", types)?;
    let offerings = not_empty("offerings of instance types", offerings)?;
    let mut zones: BTreeMap<String, BTreeSet<String>> = BTreeMap::new();
    for offering in offerings {
        zones.entry(offering.zone).or_default().insert(offering.instance_type);
    }
    Ok(Region { types: Arc::new(types), zones: Arc::new(zones), builtin: false })
}

/// Reads On-Demand prices.
///
/// # Errors
/// The price list does not answer, or without a price.
pub(super) async fn on_demand_prices(cloud: &CloudReads) -> Result<BTreeMap<String, MicroUsdPerHour>, CloudError> {
    let read = not_empty("On-Demand prices", cloud.on_demand_prices().await?)?;
    Ok(read.into_iter().map(|price| (price.instance_type, price.price)).collect())
}

/// Reads Spot prices, by instance type and zone.
///
/// # Errors
/// EC2 does not answer, or without a price.
pub(super) async fn spot_prices(cloud: &CloudReads) -> Result<Vec<SpotPrice>, CloudError> {
    not_empty("Spot prices", cloud.spot_prices().await?)
}

fn not_empty<T>(what: &str, list: Vec<T>) -> Result<Vec<T>, CloudError> {
    if list.is_empty() { Err(CloudError::Unavailable { message: format!("empty list of {what}") }) } else { Ok(list) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::CapacityType;

    #[test]
    fn spot_prices_that_an_answer_lacks_stay() {
        let price = |instance_type: &str, zone: &str, price: i64| SpotPrice {
            instance_type: instance_type.to_owned(),
            zone: zone.to_owned(),
            price: MicroUsdPerHour(price),
        };
        let prices = |facts: &Facts| -> Vec<String> {
            let SpotPrices::Known(spot) = &facts.prices.spot else { panic!("prices have been read") };
            let all =
                spot.iter().flat_map(|(kind, zones)| zones.iter().map(move |(zone, price)| (kind, zone, price.0)));
            all.map(|(kind, zone, price)| format!("{kind} {zone} {price}")).collect()
        };
        let withdrawn = |facts: &Facts| -> Vec<String> {
            facts.withdrawn_spot().into_iter().map(|(kind, zone)| format!("{kind} {zone}")).collect()
        };
        let mut facts = Facts::builtin("nowhere");
        facts.add_spot_prices(vec![price("m.large", "a", 10), price("m.large", "b", 20), price("c.large", "a", 30)]);
        let later = || vec![price("m.large", "b", 25), price("r.large", "a", 40)];
        let expected = ["c.large a 30", "m.large a 10", "m.large b 25", "r.large a 40"];
        facts.add_spot_prices(later());
        assert_eq!((prices(&facts), withdrawn(&facts)), (expected.map(str::to_owned).to_vec(), vec![]));
        facts.add_spot_prices(later());
        assert_eq!(prices(&facts), expected, "existing nodes need them");
        assert_eq!(withdrawn(&facts), ["c.large a", "m.large a"]);
        facts.add_spot_prices(vec![price("c.large", "a", 35)]);
        assert_eq!(withdrawn(&facts), ["m.large a"], "it is sold again");
    }

    #[test]
    fn prices_in_china_are_in_yuan() {
        let price = |region: &str| Facts::builtin(region).prices.on_demand["m5.large"].0;
        assert_eq!((price("us-east-1"), price("eu-north-1")), (96_000, 96_000));
        assert_eq!(price("cn-north-1"), 672_000);
    }

    #[test]
    fn only_missing_prices_are_added() {
        let price = MicroUsdPerHour;
        let types = |names: &[&str]| -> BTreeSet<String> { names.iter().map(|name| (*name).to_owned()).collect() };
        let zones = [("a".to_owned(), types(&["m.large", "new.large"])), ("b".to_owned(), types(&["m.large"]))];
        let spot: BTreeMap<_, BTreeMap<_, _>> = [("m.large".to_owned(), [("a".to_owned(), price(10))].into())].into();
        let mut facts = Facts {
            region: Some(Region { types: Arc::default(), zones: Arc::new(zones.into()), builtin: false }),
            prices: Prices { on_demand: [("m.large".to_owned(), price(30))].into(), spot: SpotPrices::Known(spot) },
            missed_spot: BTreeMap::new(),
        };
        facts.add_missing_prices(&[("m.large".to_owned(), price(50)), ("new.large".to_owned(), price(70))].into());
        let of = |name: &str, zone: &str| {
            let both = [CapacityType::OnDemand, CapacityType::Spot];
            both.map(|capacity_type| facts.prices.of(name, zone, capacity_type).map(|price| price.0))
        };
        assert_eq!(of("m.large", "a"), [Some(30), Some(10)]);
        assert_eq!(of("m.large", "b"), [Some(30), None], "EC2 does not sell it as Spot there");
        assert_eq!(of("new.large", "a"), [Some(70), Some(70)]);
        assert_eq!(of("new.large", "b"), [Some(70), None], "it is not offered there");
    }
}

//! Metrics of instance types and their offerings, from the catalogs.

use super::view::{ClusterView, units};
use crate::state::insufficient_capacity::Wanted;
use plimsoll_model::catalog::{CapacityType, InstanceType};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::time::Timestamp;
use plimsoll_runtime::metrics::scrape::{Labels, Samples, Scraped};
use plimsoll_runtime::metrics::{Metrics, MetricsError};
use std::collections::{BTreeMap, BTreeSet};

/// Metrics of offerings. Clones share them.
#[derive(Debug, Clone)]
pub struct OfferingMetrics {
    cores: Scraped,
    memory: Scraped,
    available: Scraped,
    price: Scraped,
    zonal_shift: Scraped,
}

/// Offering: instance type, capacity type, zone.
type Key<'a> = (&'a str, CapacityType, &'a str);

impl OfferingMetrics {
    pub(super) fn new(metrics: &Metrics) -> Result<Self, MetricsError> {
        let karpenter = metrics.karpenter();
        let offering = ["instance_type", "capacity_type", "zone"];
        Ok(Self {
            cores: karpenter.scraped(
                "cloudprovider_instance_type_cpu_cores",
                "vCPUs of an instance type.",
                &["instance_type"],
            )?,
            memory: karpenter.scraped(
                "cloudprovider_instance_type_memory_bytes",
                "Memory of an instance type in bytes.",
                &["instance_type"],
            )?,
            available: karpenter.scraped(
                "cloudprovider_instance_type_offering_available",
                "1 if a node class can request the offering and it is not known to lack capacity.",
                &offering,
            )?,
            price: karpenter.scraped(
                "cloudprovider_instance_type_offering_price_estimate",
                "Price of an offering in US dollars per hour.",
                &offering,
            )?,
            zonal_shift: metrics.scraped(
                "zonal_shift_active",
                "1 for a zone that the cluster is shifted away from (AWS ARC zonal shift).",
                &["zone_id"],
            )?,
        })
    }

    /// Writes the gauges.
    pub(super) fn collect(&self, view: &ClusterView, samples: &mut Samples) {
        let catalogs: BTreeMap<_, _> = view
            .catalogs
            .values()
            .filter_map(|entry| entry.catalog.as_ref())
            .map(|(id, catalog)| (id, catalog))
            .collect();
        let mut types: BTreeSet<&str> = BTreeSet::new();
        let mut offerings: BTreeMap<Key<'_>, (bool, MicroUsdPerHour)> = BTreeMap::new();
        for instance_type in catalogs.values().flat_map(|catalog| &catalog.instance_types) {
            if types.insert(&instance_type.name) {
                self.size(instance_type, samples);
            }
            for offering in &instance_type.offerings {
                let key = (instance_type.name.as_str(), offering.capacity_type, offering.zone.as_str());
                let entry = offerings.entry(key).or_insert((false, offering.price));
                entry.0 |= offering.available;
            }
        }
        let now = Timestamp(view.now.as_millisecond());
        for ((instance_type, capacity_type, zone), (available, price)) in offerings {
            let pairs = [("instance_type", instance_type), ("capacity_type", capacity_type.as_str()), ("zone", zone)];
            let labels = Labels::of(&pairs);
            let wanted = Wanted { instance_type, zone, capacity_type, placement_group: None };
            let available = available && !view.unavailable.contains(wanted, now);
            samples.put(&self.available, &labels, if available { 1.0 } else { 0.0 });
            samples.put(&self.price, &labels, price.usd());
        }
        for zone_id in &view.shifted_zones {
            samples.put(&self.zonal_shift, &Labels::of(&[("zone_id", zone_id)]), 1.0);
        }
    }

    fn size(&self, instance_type: &InstanceType, samples: &mut Samples) {
        let labels = Labels::of(&[("instance_type", &instance_type.name)]);
        samples.put(&self.cores, &labels, units("cpu", instance_type.capacity.get("cpu")));
        samples.put(&self.memory, &labels, units("memory", instance_type.capacity.get("memory")));
    }
}

#[cfg(test)]
mod tests;

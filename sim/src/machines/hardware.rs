//! Capacity of a machine by instance type, as its kubelet reports it.

use super::user_data::UserData;
use plimsoll_catalog::builtin::UnknownRegion;
use plimsoll_catalog::{NodeClassSettings, Prices, Zone, builtin};
use plimsoll_model::resources::{MEMORY, Resources};
use std::collections::BTreeMap;

/// Instance types of a region.
#[derive(Debug, Clone)]
pub struct Hardware {
    region: String,
    zones: &'static [Zone],
    prices: Prices,
    /// Memory in bytes that machines lack compared to the estimate of catalogs.
    missing_memory: i64,
}

/// Node resources of one machine.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Built {
    /// `amd64` or `arm64`.
    pub(super) architecture: String,
    /// Node capacity.
    pub(super) capacity: BTreeMap<String, String>,
    /// Capacity available to pods.
    pub(super) allocatable: BTreeMap<String, String>,
}

impl Hardware {
    /// Instance types of a region with a built-in catalog.
    ///
    /// # Errors
    /// If the region has no built-in catalog.
    pub fn of_region(region: &str) -> Result<Self, UnknownRegion> {
        Ok(Self {
            region: region.to_owned(),
            zones: builtin::zones(region)?,
            prices: builtin::prices(region)?,
            missing_memory: 0,
        })
    }

    /// The same types, whose machines have this many MiB less memory than catalogs estimate.
    #[must_use]
    pub fn with_less_memory(self, mib: i64) -> Self {
        Self { missing_memory: mib << 20, ..self }
    }

    /// Node resources of an instance type with the kubelet settings of `data`.
    pub(super) fn build(&self, instance_type: &str, data: &UserData) -> Result<Built, String> {
        let facts = builtin::facts().iter().find(|facts| facts.name == instance_type);
        let settings = NodeClassSettings {
            ami_family: data.family,
            max_pods: data.max_pods,
            kube_reserved: data.kube_reserved.clone(),
            system_reserved: data.system_reserved.clone(),
            ..NodeClassSettings::default()
        };
        let catalog = plimsoll_catalog::build(&self.region, facts, &settings, self.zones, &self.prices);
        let built = catalog.instance_types.into_iter().next();
        let mut built = built.ok_or_else(|| format!("unknown instance type {instance_type:?}"))?;
        built.capacity.set(MEMORY, built.capacity.get(MEMORY) - self.missing_memory);
        let allocatable: Resources = built
            .capacity
            .iter()
            .map(|(name, amount)| (name, amount.saturating_sub(built.overhead.get(name)).max(0)))
            .collect();
        Ok(Built {
            architecture: built.architecture,
            capacity: texts(&built.capacity),
            allocatable: texts(&allocatable),
        })
    }
}

fn texts(amounts: &Resources) -> BTreeMap<String, String> {
    let text = |name: &str, amount: i64| if name == "cpu" { format!("{amount}m") } else { amount.to_string() };
    amounts.iter().map(|(name, amount)| (name.to_owned(), text(name, amount))).collect()
}

//! NodeOverlays: prices and capacity that the cloud does not know of (spec: Karpenter core section 4.18), and what pools say that their nodes cost.

mod repriced;

use crate::catalog::{Catalog, InstanceType, Offering};
use crate::identity::CatalogId;
use crate::money::MicroUsdPerHour;
use crate::names::label;
use crate::requirements::{NodeSelectorRequirement, Requirement};
use crate::resources::Resources;
use crate::snapshot::{NodePool, Snapshot};
pub use repriced::Repriced;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};

/// Millionths in one.
const MILLION: i128 = 1_000_000;

/// What is different about some instance types.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeOverlay {
    /// Its name.
    pub name: String,
    /// Of several about one thing, the one of the highest weight counts.
    pub weight: i32,
    /// Which types and offerings are meant.
    pub requirements: Vec<NodeSelectorRequirement>,
    /// What it does to their prices.
    pub price: Option<PriceChange>,
    /// What their nodes have besides, or instead.
    pub capacity: Resources,
}

/// What an overlay does to a price; never below nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PriceChange {
    /// It is this.
    To(MicroUsdPerHour),
    /// So much more, or less.
    By(MicroUsdPerHour),
    /// So many millionths of it more, or less.
    ByShare(i64),
}

impl PriceChange {
    /// The new price.
    #[must_use]
    pub fn of(self, price: MicroUsdPerHour) -> MicroUsdPerHour {
        let changed = match self {
            Self::To(price) => i128::from(price.0),
            Self::By(amount) => i128::from(price.0) + i128::from(amount.0),
            Self::ByShare(share) => (i128::from(price.0) * (MILLION + i128::from(share)) + MILLION / 2) / MILLION,
        };
        MicroUsdPerHour(i64::try_from(changed.max(0)).unwrap_or(i64::MAX))
    }
}

/// The snapshot with a catalog of its own for each pool that overlays are about, or whose nodes cost more than their price, and all
/// catalogs; `None` if nothing changes. Of two overlays of one weight about one thing, the later by name counts and the other is left out as a whole.
#[must_use]
pub fn applied(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
) -> Option<(Snapshot, BTreeMap<CatalogId, Catalog>)> {
    let mut overlays: Vec<&NodeOverlay> = snapshot.node_pools.iter().flat_map(|pool| &pool.overlays).collect();
    overlays.sort_by_key(|overlay| (Reverse(overlay.weight), Reverse(&overlay.name)));
    overlays.dedup();
    if overlays.is_empty() && snapshot.node_pools.iter().all(|pool| pool.costs.is_none()) {
        return None;
    }
    let pools: Vec<(&NodePool, &Catalog)> =
        snapshot.node_pools.iter().filter_map(|pool| Some((pool, catalogs.get(pool.catalog.as_ref()?)?))).collect();
    let mut changes = Changes::default();
    for overlay in overlays {
        let read: Result<Vec<Requirement>, _> = overlay.requirements.iter().map(Requirement::new).collect();
        if let Ok(requirements) = read {
            changes.add(overlay, &requirements, &pools);
        }
    }
    let counted = |(pool, _): &(&NodePool, &Catalog)| !pool.costs.is_none();
    if changes.prices.is_empty() && changes.capacity.is_empty() && !pools.iter().any(counted) {
        return None;
    }
    let (mut snapshot, mut all) = (snapshot.clone(), catalogs.clone());
    for (pool, catalog) in pools {
        if let Some(overlaid) = changes.catalog(pool, catalog) {
            let id = CatalogId(format!("{} of {}", overlaid.id(), pool.name));
            let own = snapshot.node_pools.iter_mut().filter(|other| other.name == pool.name);
            own.for_each(|own| own.catalog = Some(id.clone()));
            all.insert(id, overlaid);
        }
    }
    Some((snapshot, all))
}

/// Pool and type, both by name, and the number of the offering.
type OfferingKey<'a> = (&'a str, &'a str, usize);
/// Pool, type and resource.
type ResourceKey<'a> = (&'a str, &'a str, &'a str);

/// What overlays do, each with the weight that it has.
#[derive(Debug, Default)]
struct Changes<'a> {
    prices: BTreeMap<OfferingKey<'a>, (i32, PriceChange)>,
    capacity: BTreeMap<ResourceKey<'a>, (i32, i64)>,
}

impl<'a> Changes<'a> {
    /// Adds an overlay, after all of a higher weight; not at all if another of its weight is about one of the same things.
    fn add(&mut self, overlay: &'a NodeOverlay, requirements: &[Requirement], pools: &[(&'a NodePool, &'a Catalog)]) {
        let (mut prices, mut capacity) = (Vec::new(), BTreeSet::new());
        for (pool, catalog) in pools {
            for kind in &catalog.instance_types {
                for (number, offering) in kind.offerings.iter().enumerate() {
                    if is_meant(requirements, pool, catalog, kind, offering) {
                        prices.push((pool.name.as_str(), kind.name.as_str(), number));
                        let names = overlay.capacity.iter();
                        capacity.extend(
                            names.map(|(name, amount)| ((pool.name.as_str(), kind.name.as_str(), name), amount)),
                        );
                    }
                }
            }
        }
        let same = |known: Option<i32>| known == Some(overlay.weight);
        let clash = overlay.price.is_some() && prices.iter().any(|key| same(self.prices.get(key).map(|one| one.0)));
        if clash || capacity.iter().any(|(key, _)| same(self.capacity.get(key).map(|one| one.0))) {
            return;
        }
        if let Some(change) = overlay.price {
            for key in prices {
                self.prices.entry(key).or_insert((overlay.weight, change));
            }
        }
        for (key, amount) in capacity {
            self.capacity.entry(key).or_insert((overlay.weight, amount));
        }
    }

    /// The catalog of a pool, with what its nodes cost besides; `None` if it is as it was.
    fn catalog(&self, pool: &NodePool, catalog: &Catalog) -> Option<Catalog> {
        let (pool, costs) = (pool.name.as_str(), &pool.costs);
        let mut changed = catalog.clone();
        for kind in &mut changed.instance_types {
            for (number, offering) in kind.offerings.iter_mut().enumerate() {
                if let Some((_, change)) = self.prices.get(&(pool, kind.name.as_str(), number)) {
                    offering.price = change.of(offering.price);
                }
            }
        }
        for ((_, kind, resource), (_, amount)) in self.capacity.iter().filter(|((of, _, _), _)| *of == pool) {
            if let Ok(place) = changed.instance_types.binary_search_by(|known| known.name.as_str().cmp(kind)) {
                changed.instance_types[place].capacity.set(resource, *amount);
            }
        }
        if !costs.is_none() {
            costs.apply(&mut changed);
        }
        (changed != *catalog).then_some(changed)
    }
}

/// Whether a node that `pool` makes of the offering has the labels that an overlay asks for. Unlike a pod's, its requirements are not
/// met by what is merely left open.
fn is_meant(
    requirements: &[Requirement],
    pool: &NodePool,
    catalog: &Catalog,
    kind: &InstanceType,
    offering: &Offering,
) -> bool {
    requirements.iter().all(|requirement| {
        let own = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let value = match requirement.key.as_str() {
            label::OS => return kind.operating_systems.iter().any(|system| requirement.has(system)),
            label::NODE_POOL => own(pool.name.as_str()),
            label::EC2_NODE_CLASS => own(&pool.node_class),
            label::INSTANCE_TYPE => own(&kind.name),
            label::ARCH => own(&kind.architecture),
            label::REGION => own(&catalog.region),
            label::ZONE => own(&offering.zone),
            label::ZONE_ID => own(&offering.zone_id),
            label::CAPACITY_TYPE => own(offering.capacity_type.as_str()),
            key => kind.labels.get(key).or_else(|| pool.labels.get(key)).cloned(),
        };
        value.map_or_else(|| requirement.allows_absence(), |value| requirement.has(&value))
    })
}

#[cfg(test)]
mod tests;

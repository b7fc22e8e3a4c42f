//! Applies NodeOverlays, which override prices and capacity, and the additional costs of pools.

mod repriced;

use crate::catalog::{Catalog, InstanceType, Offering};
use crate::identity::CatalogId;
use crate::money::MicroUsdPerHour;
use crate::names::label;
use crate::requirements::{NodeSelectorRequirement, Requirement};
use crate::resources::{MEMORY, Resources};
use crate::snapshot::{Node, NodePool, NodeState, Snapshot};
pub use repriced::Repriced;
use serde::{Deserialize, Serialize};
use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Millionths in one.
const MILLION: i128 = 1_000_000;

/// Overrides for some instance types.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct NodeOverlay {
    /// Name of the NodeOverlay.
    pub name: String,
    /// If several overlays set the same value, the one with the highest weight wins.
    pub weight: i32,
    /// Instance types and offerings that the overlay applies to.
    pub requirements: Vec<NodeSelectorRequirement>,
    /// Change of the price.
    pub price: Option<PriceChange>,
    /// Additional or replaced capacity.
    pub capacity: Resources,
}

/// Change of a price; the result is never negative.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum PriceChange {
    /// Replaces the price.
    To(MicroUsdPerHour),
    /// Adds an amount, which may be negative.
    By(MicroUsdPerHour),
    /// Adds a share of the price in millionths, which may be negative.
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

/// Applies overlays and costs. Returns the snapshot, with a separate catalog for each affected pool, and all catalogs.
/// Returns `None` if nothing changes. If two overlays of equal weight set the same value, the one that is later by name
/// wins and the other is ignored entirely ([`conflicts`]).
#[must_use]
pub fn applied(
    snapshot: &Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
) -> Option<(Snapshot, BTreeMap<CatalogId, Catalog>)> {
    let overlays = by_precedence(snapshot);
    if overlays.is_empty() && snapshot.node_pools.iter().all(|pool| pool.costs.is_none()) {
        return None;
    }
    let pools: Vec<(&NodePool, &Catalog)> =
        snapshot.node_pools.iter().filter_map(|pool| Some((pool, catalogs.get(pool.catalog.as_ref()?)?))).collect();
    let mut changes = Changes::default();
    for overlay in overlays {
        changes.add(overlay, &pools);
    }
    let has_costs = |(pool, _): &(&NodePool, &Catalog)| !pool.costs.is_none();
    if changes.prices.is_empty() && changes.capacity.is_empty() && !pools.iter().any(has_costs) {
        return None;
    }
    let (mut snapshot, mut all_catalogs) = (snapshot.clone(), catalogs.clone());
    for (pool, catalog) in pools {
        if let Some(overlaid) = changes.catalog(pool, catalog) {
            let id = CatalogId(format!("{} of {}", overlaid.id(), pool.name));
            let target = snapshot.node_pools.iter_mut().filter(|other| other.name == pool.name);
            target.for_each(|target| target.catalog = Some(id.clone()));
            all_catalogs.insert(id, overlaid);
        }
    }
    raise_amounts(&mut snapshot.nodes, &snapshot.node_pools, &all_catalogs);
    Some((snapshot, all_catalogs))
}

/// Raises the amounts of nodes to what the overlays of their pools define, which the cloud does not report: what each
/// node counts against limits, and what nodes that are not in service yet have for pods, since a device plugin has yet
/// to start. `pools` and `catalogs` have overlays applied.
pub fn raise_amounts(nodes: &mut [Node], pools: &[NodePool], catalogs: &BTreeMap<CatalogId, Catalog>) {
    let mut defining: BTreeMap<&str, (BTreeSet<&str>, &Catalog)> = BTreeMap::new();
    for pool in pools {
        let defined = pool.overlays.iter().flat_map(|overlay| overlay.capacity.iter()).map(|(name, _)| name).collect();
        if let Some(catalog) = pool.catalog.as_ref().and_then(|id| catalogs.get(id)) {
            defining.insert(pool.name.as_str(), (defined, catalog));
        }
    }
    defining.retain(|_, (defined, _)| !defined.is_empty());
    for node in nodes {
        let of_pool = node.node_pool.as_ref().and_then(|name| defining.get(name.as_str()));
        let Some((defined, catalog)) = of_pool else { continue };
        let kind = node.labels.get(label::INSTANCE_TYPE).and_then(|name| catalog.get(name));
        // Nothing is known of a node without any amounts.
        if !node.limit_usage.is_empty() {
            for name in defined {
                // Before the launch, the type may not be known.
                let amount = kind.map_or_else(|| node.allocatable.get(name), |kind| kind.capacity.get(name));
                raise(&mut node.limit_usage, name, amount);
            }
        }
        if let Some(kind) = kind.filter(|_| node.state != NodeState::Initialized && !node.allocatable.is_empty()) {
            raise_allocatable(&mut node.allocatable, defined, &kind.allocatable());
        }
    }
}

fn raise_allocatable(allocatable: &mut Resources, defined: &BTreeSet<&str>, expected: &Resources) {
    for name in defined {
        let amount = expected.get(name);
        if amount > 0 && name.starts_with("hugepages-") {
            // Huge pages are taken from the memory, also if the claim requests all of them.
            allocatable.set(MEMORY, expected.get(MEMORY).min(allocatable.get(MEMORY)));
        }
        raise(allocatable, name, amount);
    }
}

fn raise(amounts: &mut Resources, name: &str, amount: i64) {
    if amounts.get(name) < amount {
        amounts.set(name, amount);
    }
}

/// The overlays that are ignored because another one of equal weight sets the same value, each with the name of the
/// other one.
#[must_use]
pub fn conflicts<'a>(
    snapshot: &'a Snapshot,
    catalogs: &'a BTreeMap<CatalogId, Arc<Catalog>>,
) -> BTreeMap<&'a str, &'a str> {
    let catalog = |pool: &NodePool| catalogs.get(pool.catalog.as_ref()?).map(AsRef::as_ref);
    let pools: Vec<(&NodePool, &Catalog)> =
        snapshot.node_pools.iter().filter_map(|pool| Some((pool, catalog(pool)?))).collect();
    let mut changes = Changes::default();
    let overlays = by_precedence(snapshot).into_iter();
    overlays.filter_map(|overlay| Some((overlay.name.as_str(), changes.add(overlay, &pools)?))).collect()
}

/// The overlays of all pools in the order in which they apply.
fn by_precedence(snapshot: &Snapshot) -> Vec<&NodeOverlay> {
    let mut overlays: Vec<&NodeOverlay> = snapshot.node_pools.iter().flat_map(|pool| &pool.overlays).collect();
    overlays.sort_by_key(|overlay| (Reverse(overlay.weight), Reverse(&overlay.name)));
    overlays.dedup();
    overlays
}

/// Pool name, instance type name and index of the offering.
type OfferingKey<'a> = (&'a str, &'a str, usize);
/// Pool, instance type and resource.
type ResourceKey<'a> = (&'a str, &'a str, &'a str);

/// Changes of all overlays: those of the heaviest overlay for each value, with the last overlay that sets the value.
#[derive(Debug, Default)]
struct Changes<'a> {
    prices: BTreeMap<OfferingKey<'a>, (&'a NodeOverlay, PriceChange)>,
    capacity: BTreeMap<ResourceKey<'a>, (&'a NodeOverlay, i64)>,
}

impl<'a> Changes<'a> {
    /// Adds an overlay. Overlays must be added by descending weight. An overlay that conflicts with another of equal
    /// weight is ignored; the name of the other one is returned.
    fn add(&mut self, overlay: &'a NodeOverlay, pools: &[(&'a NodePool, &'a Catalog)]) -> Option<&'a str> {
        let parsed: Result<Vec<Requirement>, _> = overlay.requirements.iter().map(Requirement::new).collect();
        let requirements = &parsed.ok()?;
        let (mut prices, mut capacity) = (Vec::new(), BTreeSet::new());
        for (pool, catalog) in pools {
            for instance_type in &catalog.instance_types {
                for (number, offering) in instance_type.offerings.iter().enumerate() {
                    if is_selected(requirements, pool, catalog, instance_type, offering) {
                        prices.push((pool.name.as_str(), instance_type.name.as_str(), number));
                        let names = overlay.capacity.iter();
                        capacity.extend(
                            names.map(|(name, amount)| {
                                ((pool.name.as_str(), instance_type.name.as_str(), name), amount)
                            }),
                        );
                    }
                }
            }
        }
        if overlay.price.is_none() {
            prices.clear();
        }
        let of_prices = prices.iter().filter_map(|key| self.prices.get(key)).map(|(other, _)| *other);
        let of_capacity = capacity.iter().filter_map(|(key, _)| self.capacity.get(key)).map(|(other, _)| *other);
        let conflict = of_prices.chain(of_capacity).find(|other| other.weight == overlay.weight);
        if let Some(other) = conflict {
            return Some(&other.name);
        }
        if let Some(change) = overlay.price {
            for key in prices {
                self.prices.entry(key).and_modify(|(last, _)| *last = overlay).or_insert((overlay, change));
            }
        }
        for (key, amount) in capacity {
            self.capacity.entry(key).and_modify(|(last, _)| *last = overlay).or_insert((overlay, amount));
        }
        None
    }

    /// Returns the changed catalog of a pool, including its node costs; `None` if nothing changes.
    fn catalog(&self, pool: &NodePool, catalog: &Catalog) -> Option<Catalog> {
        let (pool, costs) = (pool.name.as_str(), &pool.costs);
        let mut changed = catalog.clone();
        for instance_type in &mut changed.instance_types {
            for (number, offering) in instance_type.offerings.iter_mut().enumerate() {
                if let Some((_, change)) = self.prices.get(&(pool, instance_type.name.as_str(), number)) {
                    offering.price = change.of(offering.price);
                }
            }
        }
        for ((_, instance_type, resource), (_, amount)) in
            self.capacity.iter().filter(|((pool_name, _, _), _)| *pool_name == pool)
        {
            let types = &mut changed.instance_types;
            let index = types.binary_search_by(|candidate| candidate.name.as_str().cmp(instance_type));
            if let Some(changed) = index.ok().and_then(|index| types.get_mut(index)) {
                changed.capacity.set(resource, *amount);
            }
        }
        if !costs.is_none() {
            costs.apply(&mut changed);
        }
        for (instance_type, original) in changed.instance_types.iter_mut().zip(&catalog.instance_types) {
            for (offering, original) in instance_type.offerings.iter_mut().zip(&original.offerings) {
                offering.list_price = Some(original.list_price()).filter(|list_price| *list_price != offering.price);
            }
        }
        (changed != *catalog).then_some(changed)
    }
}

/// Whether the node that `pool` would launch with the offering has the labels that the overlay requires. Unlike for
/// pods, labels that are left open do not satisfy the requirements.
fn is_selected(
    requirements: &[Requirement],
    pool: &NodePool,
    catalog: &Catalog,
    instance_type: &InstanceType,
    offering: &Offering,
) -> bool {
    requirements.iter().all(|requirement| {
        let non_empty = |text: &str| Some(text.to_owned()).filter(|text| !text.is_empty());
        let value = match requirement.key.as_str() {
            label::OS => return instance_type.operating_systems.iter().any(|system| requirement.has(system)),
            label::NODE_POOL => non_empty(pool.name.as_str()),
            label::EC2_NODE_CLASS => non_empty(&pool.node_class),
            label::INSTANCE_TYPE => non_empty(&instance_type.name),
            label::ARCH => non_empty(&instance_type.architecture),
            label::REGION => non_empty(&catalog.region),
            label::ZONE => non_empty(&offering.zone),
            label::ZONE_ID => non_empty(&offering.zone_id),
            label::CAPACITY_TYPE => non_empty(offering.capacity_type.as_str()),
            key => {
                let of_offering = offering.reservation_label(key).map(str::to_owned);
                of_offering.or_else(|| instance_type.labels.get(key).or_else(|| pool.labels.get(key)).cloned())
            }
        };
        value.map_or_else(|| requirement.allows_absence(), |value| requirement.has(&value))
    })
}

#[cfg(test)]
mod tests;

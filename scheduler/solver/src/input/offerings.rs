//! A pool as a list of offerings (type x zone x capacity type x reservation), cheapest first. Requirements are sets of
//! offerings.

mod exotic;
mod fitting_offerings;
mod kinds;
mod labels;
mod limit_usage;

use crate::input::capacity_quotas;
use crate::input::custom_labels::{CustomKeys, Narrowed};
use crate::input::daemon_sets::Daemon;
use crate::input::intern::{Amounts, Bits, ResourceTable};
use crate::input::pool_requirements::one_of;
use exotic::Exotic;
use fitting_offerings::FittingOfferings;
pub(crate) use kinds::CatalogView;
use kinds::TypeView;
use labels::ByValue;
use limit_usage::counted;
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::label;
use plimsoll_model::plan::MinValuesPolicy;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::resources::PODS;
use plimsoll_model::snapshot::{CapacityQuota, HostPort, NodePool, PodShape};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Deref;
use std::sync::Arc;

/// Maximum number of requirements and of request sizes whose offerings a pool caches from one plan to the next. An
/// entry has some kilobytes.
const LOOKED_UP: usize = 4_096;

/// Maximum price: a million USD per hour. Higher prices, which NodeOverlays and node costs can make, are clamped, so
/// that the sum of a million of them does not overflow.
pub(crate) const MOST_PRICE: i64 = 1_000_000_000_000;

#[derive(Debug)]
pub(crate) struct OfferingView {
    pub(crate) type_index: Id<InstanceType>,
    /// Index in the type's list of offerings.
    place: usize,
    /// Price in micro-USD per hour, clamped to [`MOST_PRICE`].
    price: i64,
    /// Capacity for pods in addition to the pool's DaemonSets.
    pub(crate) room: Amounts,
    /// Host ports of the DaemonSets that run on each node of the offering.
    pub(crate) ports: Vec<HostPort>,
    /// Usage of limits, if it differs from that of the type: an instance of a capacity reservation, the price, or a
    /// CapacityQuota.
    counted: Option<Amounts>,
}

impl OfferingView {
    /// Whether DaemonSets alone request more than the node has.
    pub(crate) fn is_overfull(&self) -> bool {
        self.room.iter().any(|amount| *amount < 0)
    }
}

/// Offerings of a pool: the data that stays valid from one plan to the next.
#[derive(Debug, Default)]
pub(crate) struct PoolData {
    pub(crate) types: Arc<IndexVec<InstanceType, TypeView>>,
    /// Sorted by (price, type, zone, capacity type).
    pub(crate) offerings: IndexVec<Offering, OfferingView>,
    pub(crate) custom: CustomKeys,
    /// Offerings that the pool's own requirements allow.
    pub(crate) allowed: Bits<Offering>,
    /// Offerings that the catalog marks as available.
    pub(crate) offered: Bits<Offering>,
    /// Offerings that are allowed, offered and not known to lack capacity.
    pub(crate) usable: Bits<Offering>,
    exotic: Exotic,
    type_keys: Arc<BTreeSet<String>>,
    /// DaemonSets that tolerate the taints of the pool.
    pub(crate) daemons: Vec<Daemon>,
    /// Whether a requirement of the pool sets `minValues`, and `minValues` is strict.
    pub(crate) strict_min_values: bool,
    /// Whether `minValues` that cannot be met are lowered to the available number of values.
    pub(crate) min_values_best_effort: bool,
    values: RefCell<ByValue>,
    /// Cache of offerings by request size, after DaemonSets are subtracted.
    fitting_offerings: RefCell<FittingOfferings>,
    /// Cache of offerings by requirement.
    known: RefCell<BTreeMap<NodeSelectorRequirement, Bits<Offering>>>,
}

/// A pool that can launch.
#[derive(Clone, Copy)]
pub(crate) struct PoolView<'a> {
    pub(crate) pool: &'a NodePool,
    pub(crate) catalog: &'a Catalog,
    data: &'a PoolData,
}

impl Deref for PoolView<'_> {
    type Target = PoolData;

    fn deref(&self) -> &PoolData {
        self.data
    }
}

/// Inputs that determine a pool's offerings, in addition to the pool and its catalog.
#[derive(Debug, Clone, PartialEq)]
pub(crate) struct Terms {
    pub(crate) table: ResourceTable,
    /// Type, zone and capacity type of offerings that lack capacity; `None` stands for any.
    pub(crate) unavailable: BTreeSet<(Option<String>, Option<String>, CapacityType)>,
    pub(crate) daemons: Vec<PodShape>,
    pub(crate) min_values: MinValuesPolicy,
    /// Maximum number of pods on a new node, in addition to pods of DaemonSets.
    pub(crate) most_pods: Option<i64>,
    pub(crate) quotas: Vec<CapacityQuota>,
}

/// Offerings on which a pod can run, with the pod's requirements on custom labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alternative {
    pub(crate) offerings: Bits<Offering>,
    pub(crate) custom: Narrowed,
}

impl Alternative {
    /// Whether this value of a custom label is allowed.
    pub(crate) fn admits(&self, key: &str, value: &str) -> bool {
        self.custom.get(key).is_none_or(|left| left.has(value))
    }
}

impl PoolData {
    /// Creates the data of a pool with `catalog`, whose indexed form is `sold`.
    pub(crate) fn new(pool: &NodePool, catalog: &Catalog, sold: &CatalogView, terms: &Terms) -> Self {
        let min_values_best_effort = terms.min_values == MinValuesPolicy::BestEffort;
        let CatalogView { types, order, keys } = sold;
        let offering = |(type_index, place, price): &(Id<InstanceType>, usize, MicroUsdPerHour)| OfferingView {
            type_index: *type_index,
            place: *place,
            price: price.0.clamp(-MOST_PRICE, MOST_PRICE),
            room: types[*type_index].allocatable.clone(),
            ports: Vec::new(),
            counted: counted(catalog, (*type_index, *place), &terms.table),
        };
        let offerings: IndexVec<Offering, OfferingView> = order.iter().map(offering).collect();
        let size = offerings.len();
        let mut data = Self {
            types: Arc::clone(types),
            offerings,
            type_keys: Arc::clone(keys),
            strict_min_values: !min_values_best_effort && pool.requirements.iter().any(|one| one.min_values.is_some()),
            min_values_best_effort,
            ..Self::default()
        };
        let open = pool.requirements.iter();
        let is_open = |key: &str| !data.on_offerings(key) && !pool.labels.contains_key(key);
        let mut open: Vec<&NodeSelectorRequirement> = open.filter(|one| is_open(&one.key)).collect();
        let tenancies = one_of(label::INSTANCE_TENANCY, label::TENANCIES.map(str::to_owned).to_vec());
        open.extend(is_open(label::INSTANCE_TENANCY).then_some(&tenancies));
        data.custom = CustomKeys::new(&open);
        let view = PoolView { pool, catalog, data: &data };
        let mut allowed = if view.custom.impossible { Bits::none(size) } else { Bits::all(size) };
        for requirement in pool.requirements.iter().filter(|one| !view.custom.has(&one.key)) {
            allowed.keep(&view.satisfying(requirement));
        }
        for (key, value) in pool.labels.iter().filter(|(key, _)| view.on_offerings(key)) {
            allowed.keep(&view.satisfying(&crate::input::pool_requirements::equals(key, value)));
        }
        let offered = Bits::of(size, |index| view.offering(index).available);
        let usable = allowed.and(&offered).and(&view.with_capacity(&terms.unavailable));
        let counted: Vec<Bits<Offering>> =
            terms.quotas.iter().map(|quota| capacity_quotas::counted_by(&view, quota)).collect();
        let exotic = Exotic::new(&view);
        (data.allowed, data.offered, data.usable, data.exotic) = (allowed, offered, usable, exotic);
        for quota in terms.quotas.iter().zip(&counted) {
            capacity_quotas::charge(&mut data, catalog, &terms.table, quota);
        }
        crate::input::daemon_sets::reserve(&mut data, pool, catalog, terms);
        if let Some((pods, most)) = terms.table.place(PODS).zip(terms.most_pods) {
            let rooms = data.offerings.iter_mut().filter_map(|offering| offering.room.get_mut(pods));
            rooms.for_each(|room| *room = most.min(*room));
        }
        // The kubelet would not start all pods of the DaemonSets there.
        let offerings = &data.offerings;
        data.usable.retain(|offering| !offerings[offering].is_overfull());
        data.fitting_offerings = RefCell::new(FittingOfferings::new(&data.offerings, terms.table.len()));
        data
    }

    pub(crate) fn price(&self, offering: Id<Offering>) -> i64 {
        self.offerings[offering].price
    }

    /// Union of the offerings of all `alternatives`.
    pub(crate) fn any_of(&self, alternatives: &[Alternative]) -> Bits<Offering> {
        let mut any = Bits::none(self.offerings.len());
        alternatives.iter().for_each(|one| any.join(&one.offerings));
        any
    }

    fn on_offerings(&self, key: &str) -> bool {
        let key = label::normalized(key);
        // The launch chooses tenancy and partition, like the value of a custom label.
        (label::is_well_known(key) && !label::is_of_launch(key)) || self.type_keys.contains(key)
    }

    /// Offerings on which `requests` fit in addition to the DaemonSets.
    pub(crate) fn roomy(&self, requests: &[i64]) -> Arc<Bits<Offering>> {
        self.fitting_offerings.borrow_mut().fitting(&self.offerings, requests)
    }

    /// Clears caches that have become too large.
    pub(crate) fn trim(&mut self) {
        if self.known.get_mut().len() > LOOKED_UP {
            self.known.take();
        }
        self.fitting_offerings.get_mut().trim();
    }
}

impl<'a> PoolView<'a> {
    /// Creates a view. `data` must have been created from this pool, apart from its disruption settings, and from this
    /// catalog.
    pub(crate) fn new(pool: &'a NodePool, catalog: &'a Catalog, data: &'a PoolData) -> Self {
        Self { pool, catalog, data }
    }

    /// Offerings that are not known to be out of capacity.
    fn with_capacity(&self, out: &BTreeSet<(Option<String>, Option<String>, CapacityType)>) -> Bits<Offering> {
        if out.is_empty() {
            return Bits::all(self.offerings.len());
        }
        Bits::of(self.offerings.len(), |id| {
            let offering = self.offering(id);
            let zones = [None, Some(offering.zone.clone())];
            let names = [None, Some(self.type_name(id).to_owned())];
            !names.iter().any(|name| {
                zones.iter().any(|zone| out.contains(&(name.clone(), zone.clone(), offering.capacity_type)))
            })
        })
    }

    #[expect(clippy::indexing_slicing, reason = "`data` was created from this catalog, so its type indices exist")]
    fn kind(&self, offering: Id<Offering>) -> &'a InstanceType {
        &self.catalog.instance_types[self.data.offerings[offering].type_index.number()]
    }

    #[expect(clippy::indexing_slicing, reason = "`data` was created from this catalog, so its offering indices exist")]
    pub(crate) fn offering(&self, offering: Id<Offering>) -> &'a Offering {
        &self.kind(offering).offerings[self.data.offerings[offering].place]
    }

    pub(crate) fn type_name(&self, offering: Id<Offering>) -> &'a str {
        &self.kind(offering).name
    }

    pub(crate) fn is_reserved(&self, offering: Id<Offering>) -> bool {
        self.offering(offering).reservation.is_some()
    }

    /// Offerings on which a pod of `shape` can run according to its node selector and required affinity. There is one
    /// entry per combination of requirements on custom labels.
    pub(crate) fn alternatives(&self, shape: &PodShape) -> Vec<Alternative> {
        let mut base = Alternative { offerings: Bits::all(self.offerings.len()), custom: Narrowed::new() };
        for (key, value) in &shape.node_selector {
            if !self.apply(&mut base, &crate::input::pool_requirements::equals(key, value)) {
                return Vec::new();
            }
        }
        if shape.required_node_affinity.is_empty() {
            return vec![base];
        }
        let mut all: Vec<Alternative> = Vec::new();
        for term in &shape.required_node_affinity {
            if let Some(one) = self.within(&base, term) {
                join(&mut all, one);
            }
        }
        all
    }

    /// Like [`Self::alternatives`], restricted to offerings to which the pod's volumes can be attached. A volume with a
    /// problem cannot be attached anywhere.
    pub(crate) fn attachable(&self, shape: &PodShape) -> Vec<Alternative> {
        if shape.volumes.iter().any(|volume| volume.problem.is_some()) {
            return Vec::new();
        }
        let mut all = self.alternatives(shape);
        for volume in shape.volumes.iter().filter(|volume| !volume.alternatives.is_empty()) {
            let mut kept = Vec::new();
            for one in &all {
                let near = volume.alternatives.iter().filter_map(|term| self.within(one, term));
                near.for_each(|near| join(&mut kept, near));
            }
            all = kept;
        }
        all
    }

    /// Like [`Self::attachable`], restricted to offerings on which no DaemonSet's pod excludes the pod.
    pub(crate) fn reachable(&self, shape: &PodShape) -> Vec<Alternative> {
        let mut all = self.attachable(shape);
        self.daemons.iter().for_each(|daemon| daemon.remove_offerings(self, shape, &mut all));
        all.retain(|one| !one.offerings.is_empty());
        all
    }

    /// Restricts `base` by `term`.
    fn within(&self, base: &Alternative, term: &NodeSelectorTerm) -> Option<Alternative> {
        // The name of a new node is unknown, but differs from the names of all existing nodes.
        let named = |one: &NodeSelectorRequirement| one.operator != Operator::NotIn;
        if !term.is_valid() || term.fields.iter().any(named) {
            return None;
        }
        let mut one = base.clone();
        term.expressions.iter().all(|requirement| self.apply(&mut one, requirement)).then_some(one)
    }

    /// Restricts `alternatives` to `only`: a set of offerings, and requirements on labels, some of which may be custom.
    pub(crate) fn narrowed(
        &self,
        alternatives: &[Alternative],
        only: Option<(&Bits<Offering>, &[NodeSelectorRequirement])>,
    ) -> Vec<Alternative> {
        let mut all = alternatives.to_vec();
        if let Some((offerings, demands)) = only {
            all.retain_mut(|one| {
                one.offerings.keep(offerings);
                let mut open = demands.iter().filter(|demand| self.custom.has(&demand.key));
                open.all(|demand| self.custom.narrow(&mut one.custom, demand)) && !one.offerings.is_empty()
            });
        }
        all
    }

    pub(super) fn apply(&self, alternative: &mut Alternative, requirement: &NodeSelectorRequirement) -> bool {
        if self.custom.has(&requirement.key) {
            return self.custom.narrow(&mut alternative.custom, requirement);
        }
        alternative.offerings.keep(&self.satisfying(requirement));
        !alternative.offerings.is_empty()
    }

    /// The price of a node of this pool with these labels, if the catalog has it.
    pub(crate) fn price_of(&self, labels: &BTreeMap<String, String>) -> Option<i64> {
        self.catalog.offering_of(labels).map(|one| one.price.0.clamp(-MOST_PRICE, MOST_PRICE))
    }
}

/// Adds an alternative. Alternatives with equal requirements on custom labels are merged.
fn join(all: &mut Vec<Alternative>, one: Alternative) {
    match all.iter_mut().find(|known| known.custom == one.custom) {
        Some(known) => known.offerings.join(&one.offerings),
        None => all.push(one),
    }
}

//! A pool as a list of offerings (type x zone x capacity type), cheapest first, and requirements as sets of them.

use crate::custom::{CustomKeys, Narrowed};
use crate::facts::holds;
use crate::intern::{Amounts, Bits, ResourceTable, fits};
use crate::volumes;
use plimsoll_model::catalog::{CapacityType, Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::plan::MinValuesPolicy;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::snapshot::{HostPort, NodePool, PodShape, UnavailableOffering};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// An instance type with its amounts as numbers.
pub(crate) struct TypeView<'a> {
    pub(crate) instance_type: &'a InstanceType,
    pub(crate) allocatable: Amounts,
    /// What it counts against limits.
    pub(crate) capacity: Amounts,
}

/// One way to buy a type.
pub(crate) struct OfferingView<'a> {
    pub(crate) type_index: usize,
    pub(crate) offering: &'a Offering,
    /// What pods may use once the pool's DaemonSets run.
    pub(crate) room: Amounts,
    /// Ports that those take.
    pub(crate) ports: Vec<HostPort>,
}

/// A pool that can launch.
pub(crate) struct PoolView<'a> {
    pub(crate) pool: &'a NodePool,
    region: &'a str,
    pub(crate) types: Vec<TypeView<'a>>,
    /// Sorted by (price, type, zone, capacity type).
    pub(crate) offerings: Vec<OfferingView<'a>>,
    pub(crate) custom: CustomKeys,
    /// Allowed by the pool's own requirements.
    pub(crate) allowed: Bits,
    /// Offered at all.
    pub(crate) offered: Bits,
    /// Allowed, offered and not known to be out of capacity.
    pub(crate) usable: Bits,
    type_keys: BTreeSet<&'a str>,
    /// DaemonSets, and the offerings on which they run.
    pub(crate) daemons: Vec<(&'a PodShape, Bits)>,
    /// Some requirement of the pool sets `minValues`, and that is strict.
    pub(crate) flexible: bool,
    /// `minValues` that cannot be met are lowered to what there is.
    pub(crate) lenient: bool,
    values: RefCell<ByValue>,
    /// Once DaemonSets took their room.
    rooms: RefCell<Option<Rooms>>,
    /// Requirements that were looked at before.
    known: RefCell<BTreeMap<NodeSelectorRequirement, Bits>>,
}

/// Offerings on which a pod can run, with what it asks of the pool's open labels.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Alternative {
    pub(crate) offerings: Bits,
    pub(crate) custom: Narrowed,
}

impl Alternative {
    /// Whether it leaves this value of an open label.
    pub(crate) fn admits(&self, key: &str, value: &str) -> bool {
        self.custom.get(key).is_none_or(|left| left.has(value))
    }
}

impl<'a> PoolView<'a> {
    pub(crate) fn new(
        pool: &'a NodePool,
        catalog: &'a Catalog,
        unavailable: &[UnavailableOffering],
        table: &ResourceTable,
        min_values: MinValuesPolicy,
    ) -> Self {
        let lenient = min_values == MinValuesPolicy::BestEffort;
        let types: Vec<TypeView<'a>> = catalog.instance_types.iter().map(|one| type_view(one, table)).collect();
        let mut offerings: Vec<OfferingView<'a>> = Vec::new();
        for (type_index, view) in types.iter().enumerate() {
            offerings.extend(view.instance_type.offerings.iter().map(|offering| OfferingView {
                type_index,
                offering,
                room: view.allocatable.clone(),
                ports: Vec::new(),
            }));
        }
        offerings.sort_by(|a, b| {
            let key = |view: &OfferingView<'a>| (view.offering.price, view.type_index);
            key(a).cmp(&key(b)).then_with(|| {
                (&a.offering.zone, a.offering.capacity_type).cmp(&(&b.offering.zone, b.offering.capacity_type))
            })
        });
        let type_keys = types.iter().flat_map(|view| view.instance_type.labels.keys().map(String::as_str)).collect();
        let size = offerings.len();
        let mut view = Self {
            pool,
            region: &catalog.region,
            types,
            offerings,
            custom: CustomKeys::default(),
            allowed: Bits::none(size),
            offered: Bits::none(size),
            usable: Bits::none(size),
            type_keys,
            daemons: Vec::new(),
            flexible: !lenient && pool.requirements.iter().any(|one| one.min_values.is_some()),
            lenient,
            values: RefCell::default(),
            rooms: RefCell::default(),
            known: RefCell::default(),
        };
        let open: Vec<&NodeSelectorRequirement> = pool
            .requirements
            .iter()
            .filter(|one| !view.on_offerings(&one.key) && !pool.labels.contains_key(&one.key))
            .collect();
        view.custom = CustomKeys::new(&open);
        let mut allowed = if view.custom.impossible { Bits::none(size) } else { Bits::all(size) };
        for requirement in pool.requirements.iter().filter(|one| !view.custom.has(&one.key)) {
            allowed.keep(&view.satisfying(requirement));
        }
        for (key, value) in pool.labels.iter().filter(|(key, _)| view.on_offerings(key)) {
            allowed.keep(&view.satisfying(&crate::facts::equals(key, value)));
        }
        view.offered = Bits::of(size, |index| view.offerings[index].offering.available);
        let mut usable = allowed.clone();
        usable.keep(&view.offered);
        usable.keep(&view.with_capacity(unavailable));
        view.allowed = allowed;
        view.usable = usable;
        view
    }

    /// Offerings that are not known to be out of capacity.
    fn with_capacity(&self, unavailable: &[UnavailableOffering]) -> Bits {
        let out: BTreeSet<(Option<&str>, Option<&str>, CapacityType)> = unavailable
            .iter()
            .map(|one| (one.instance_type.as_deref(), one.zone.as_deref(), one.capacity_type))
            .collect();
        Bits::of(self.offerings.len(), |index| {
            let (name, offering) = (self.type_name(index), self.offerings[index].offering);
            let zones = [None, Some(offering.zone.as_str())];
            let names = [None, Some(name)];
            !names.iter().any(|name| zones.iter().any(|zone| out.contains(&(*name, *zone, offering.capacity_type))))
        })
    }

    pub(crate) fn type_name(&self, offering: usize) -> &'a str {
        &self.types[self.offerings[offering].type_index].instance_type.name
    }

    pub(crate) fn price(&self, offering: usize) -> i64 {
        self.offerings[offering].offering.price.0
    }

    fn on_offerings(&self, key: &str) -> bool {
        let key = label::normalized(key);
        label::is_well_known(key) || self.type_keys.contains(key)
    }

    /// The value of a label of a node made of that offering, except of open ones.
    pub(crate) fn label(&self, offering: usize, key: &str) -> Option<&str> {
        let view = &self.offerings[offering];
        let kind = self.types[view.type_index].instance_type;
        let filled = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        match key {
            label::ZONE => Some(&view.offering.zone),
            label::ZONE_ID => filled(&view.offering.zone_id),
            label::CAPACITY_TYPE => Some(view.offering.capacity_type.as_str()),
            label::INSTANCE_TYPE => Some(&kind.name),
            label::ARCH => Some(&kind.architecture),
            label::REGION => filled(self.region),
            label::NODE_POOL => Some(self.pool.name.as_str()),
            label::EC2_NODE_CLASS => Some(&self.pool.node_class),
            label::OS => self.operating_system(kind),
            // Every node gets these two once it is in service; DaemonSets may wait for them.
            label::REGISTERED | label::INITIALIZED => Some("true"),
            _ => kind.labels.get(key).or_else(|| self.pool.labels.get(key)).map(String::as_str),
        }
    }

    /// The first system that the type can run and the pool allows.
    fn operating_system(&self, kind: &'a InstanceType) -> Option<&'a str> {
        let own = |requirement: &&NodeSelectorRequirement| label::normalized(&requirement.key) == label::OS;
        let allowed = |system: &&String| self.pool.requirements.iter().filter(own).all(|one| holds(one, Some(system)));
        kind.operating_systems.iter().find(allowed).or_else(|| kind.operating_systems.first()).map(String::as_str)
    }

    /// All offerings by their value of a label, `None` where they have none; open labels are not looked at.
    pub(crate) fn by_value(&self, key: &str) -> Rc<Vec<(Option<String>, Bits)>> {
        let mut known = self.values.borrow_mut();
        if let Some(found) = known.get(key) {
            return Rc::clone(found);
        }
        let mut parts: BTreeMap<Option<&str>, Bits> = BTreeMap::new();
        for index in 0..self.offerings.len() {
            let part = parts.entry(self.label(index, key)).or_insert_with(|| Bits::none(self.offerings.len()));
            part.insert(index);
        }
        let parts = Rc::new(parts.into_iter().map(|(value, bits)| (value.map(str::to_owned), bits)).collect());
        known.insert(key.to_owned(), Rc::clone(&parts));
        parts
    }

    /// Offerings whose nodes satisfy `requirement`; for open labels all of them.
    pub(crate) fn satisfying(&self, requirement: &NodeSelectorRequirement) -> Bits {
        let size = self.offerings.len();
        if self.custom.has(&requirement.key) {
            return Bits::all(size);
        }
        if let Some(known) = self.known.borrow().get(requirement) {
            return known.clone();
        }
        let key = label::normalized(&requirement.key);
        let found = Bits::of(size, |index| {
            holds(requirement, self.label(index, key).or_else(|| self.label(index, &requirement.key)))
        });
        self.known.borrow_mut().insert(requirement.clone(), found.clone());
        found
    }

    /// Where a pod of `shape` can run by selector and required affinity alone: one entry for each different demand on open labels.
    pub(crate) fn alternatives(&self, shape: &PodShape) -> Vec<Alternative> {
        let mut base = Alternative { offerings: Bits::all(self.offerings.len()), custom: Narrowed::new() };
        for (key, value) in &shape.node_selector {
            if !self.apply(&mut base, &crate::facts::equals(key, value)) {
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

    /// The same where its volumes can be attached as well.
    pub(crate) fn reachable(&self, shape: &PodShape) -> Vec<Alternative> {
        let mut all = self.alternatives(shape);
        for volume in shape.volumes.iter().filter(|volume| !volume.alternatives.is_empty()) {
            let mut kept = Vec::new();
            for one in &all {
                let near = volume.alternatives.iter().filter_map(|term| self.within(one, term));
                near.for_each(|near| join(&mut kept, near));
            }
            all = kept;
        }
        self.without_daemons(shape, &mut all);
        all
    }

    /// Takes out where the pod would meet a DaemonSet's that it has to keep away from.
    fn without_daemons(&self, shape: &PodShape, all: &mut Vec<Alternative>) {
        if !shape.pod_affinity.iter().any(|term| term.anti && term.weight.is_none()) {
            return;
        }
        for (daemon, there) in &self.daemons {
            for one in all.iter_mut().filter(|one| one.offerings.meets(there)) {
                one.offerings.retain(|index| !there.has(index) || !crate::daemon::avoids(self, shape, daemon, index));
            }
        }
        all.retain(|one| !one.offerings.is_empty());
    }

    /// What is left of `base` where `term` holds.
    fn within(&self, base: &Alternative, term: &NodeSelectorTerm) -> Option<Alternative> {
        // The name of a node to come is not known, but it is none of those that there are.
        let named = |one: &NodeSelectorRequirement| one.key != "metadata.name" || one.operator != Operator::NotIn;
        if (term.expressions.is_empty() && term.fields.is_empty()) || term.fields.iter().any(named) {
            return None;
        }
        let mut one = base.clone();
        term.expressions.iter().all(|requirement| self.apply(&mut one, requirement)).then_some(one)
    }

    /// `alternatives` within `only`: offerings, and demands on labels of which some may be open.
    pub(crate) fn narrowed(
        &self,
        alternatives: &[Alternative],
        only: Option<(&Bits, &[NodeSelectorRequirement])>,
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

    fn apply(&self, alternative: &mut Alternative, requirement: &NodeSelectorRequirement) -> bool {
        if self.custom.has(&requirement.key) {
            return self.custom.narrow(&mut alternative.custom, requirement);
        }
        alternative.offerings.keep(&self.satisfying(requirement));
        !alternative.offerings.is_empty()
    }

    /// Where `requests` fit beside the DaemonSets.
    pub(crate) fn roomy(&self, requests: &[i64]) -> Rc<Bits> {
        let mut rooms = self.rooms.borrow_mut();
        let rooms = rooms.get_or_insert_with(|| Rooms::new(&self.offerings, requests.len()));
        let key = rooms.key(requests);
        let found = || Rc::new(Bits::of(self.offerings.len(), |index| fits(requests, &self.offerings[index].room)));
        Rc::clone(rooms.known.entry(key).or_insert_with(found))
    }

    /// The price of a node of this pool with these labels, if the catalog knows it.
    pub(crate) fn price_of(&self, labels: &BTreeMap<String, String>) -> Option<i64> {
        let kind = labels.get(label::INSTANCE_TYPE)?;
        let zone = labels.get(label::ZONE)?;
        let bought = labels.get(label::CAPACITY_TYPE).and_then(|text| CapacityType::parse(text))?;
        let view = self.types.iter().find(|view| view.instance_type.name == *kind)?;
        let found = |one: &&Offering| one.zone == *zone && one.capacity_type == bought;
        view.instance_type.offerings.iter().find(found).map(|one| one.price.0)
    }
}

/// Per label: offerings by value.
type ByValue = BTreeMap<String, Rc<Vec<(Option<String>, Bits)>>>;

/// Requests between the same two rooms, in each resource, fit in the same places: looked up once.
struct Rooms {
    /// Per resource: the different amounts of room that there are, ascending.
    steps: Vec<Vec<i64>>,
    known: BTreeMap<Vec<usize>, Rc<Bits>>,
}

impl Rooms {
    fn new(offerings: &[OfferingView<'_>], width: usize) -> Self {
        let steps = |resource: usize| {
            let rooms: BTreeSet<i64> = offerings.iter().filter_map(|one| one.room.get(resource).copied()).collect();
            rooms.into_iter().collect()
        };
        Self { steps: (0..width).map(steps).collect(), known: BTreeMap::new() }
    }

    /// How many of the steps are too small, per resource; none are for what is not requested.
    fn key(&self, requests: &[i64]) -> Vec<usize> {
        let small = |(steps, need): (&Vec<i64>, &i64)| {
            if *need <= 0 { 0 } else { steps.partition_point(|room| room < need) }
        };
        self.steps.iter().zip(requests).map(small).collect()
    }
}

/// Adds an alternative to those that there are.
fn join(all: &mut Vec<Alternative>, one: Alternative) {
    match all.iter_mut().find(|known| known.custom == one.custom) {
        Some(known) => known.offerings.join(&one.offerings),
        None => all.push(one),
    }
}

fn type_view<'a>(instance_type: &'a InstanceType, table: &ResourceTable) -> TypeView<'a> {
    let mut capacity = instance_type.capacity.clone();
    capacity.set(plimsoll_model::names::NODES_RESOURCE, 1);
    TypeView {
        instance_type,
        allocatable: table
            .room(&instance_type.allocatable(), |driver| volumes::usual_limit(driver, Some(instance_type), false)),
        capacity: table.vector(&capacity),
    }
}

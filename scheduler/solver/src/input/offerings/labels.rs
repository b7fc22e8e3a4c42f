//! Labels of the nodes that offerings would become, and requirements on labels as sets of offerings.

use super::PoolView;
use crate::input::intern::Bits;
use crate::input::pool_requirements::holds;
use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::names::label;
use plimsoll_model::requirements::NodeSelectorRequirement;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Offerings by value, per label.
pub(super) type ByValue = BTreeMap<String, Arc<Vec<(Option<String>, Bits<Offering>)>>>;

impl<'a> PoolView<'a> {
    /// The value of a label of a node of the offering. Custom labels are not included.
    pub(crate) fn label(&self, offering: Id<Offering>, key: &str) -> Option<&'a str> {
        let kind = self.kind(offering);
        let bought = self.offering(offering);
        let filled = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        match key {
            label::ZONE => Some(&bought.zone),
            label::ZONE_ID => filled(&bought.zone_id),
            label::CAPACITY_TYPE => Some(bought.capacity_type.as_str()),
            _ => bought.reservation_label(key).or_else(|| self.label_of_type(kind, key)),
        }
    }

    /// The value of a label that is the same for all offerings of a type.
    fn label_of_type(&self, kind: &'a InstanceType, key: &str) -> Option<&'a str> {
        let filled = |text: &'a str| Some(text).filter(|text| !text.is_empty());
        match key {
            label::INSTANCE_TYPE => Some(&kind.name),
            label::ARCH => Some(&kind.architecture),
            label::REGION => filled(&self.catalog.region),
            label::NODE_POOL => Some(self.pool.name.as_str()),
            label::EC2_NODE_CLASS => Some(&self.pool.node_class),
            label::OS => self.operating_system(kind),
            // Every node gets these two labels when it is initialized. DaemonSets may select them.
            label::REGISTERED | label::INITIALIZED => Some("true"),
            label::HOSTNAME => Some(label::NEW_HOSTNAME),
            _ => kind.labels.get(key).or_else(|| self.pool.labels.get(key)).map(String::as_str),
        }
    }

    /// The first operating system of the type that the pool allows.
    fn operating_system(&self, kind: &'a InstanceType) -> Option<&'a str> {
        let own = |requirement: &&NodeSelectorRequirement| label::normalized(&requirement.key) == label::OS;
        let allowed = |system: &&String| self.pool.requirements.iter().filter(own).all(|one| holds(one, Some(system)));
        kind.operating_systems.iter().find(allowed).or_else(|| kind.operating_systems.first()).map(String::as_str)
    }

    /// Offerings by value of a label; `None` for offerings without the label. Custom labels are not included.
    pub(crate) fn by_value(&self, key: &str) -> Arc<Vec<(Option<String>, Bits<Offering>)>> {
        let mut known = self.values.borrow_mut();
        if let Some(found) = known.get(key) {
            return Arc::clone(found);
        }
        let mut parts: BTreeMap<Option<&str>, Bits<Offering>> = BTreeMap::new();
        for offering in self.offerings.ids() {
            let part = parts.entry(self.label(offering, key)).or_insert_with(|| Bits::none(self.offerings.len()));
            part.insert(offering);
        }
        let parts = Arc::new(parts.into_iter().map(|(value, bits)| (value.map(str::to_owned), bits)).collect());
        known.insert(key.to_owned(), Arc::clone(&parts));
        parts
    }

    /// Offerings whose nodes satisfy `requirement`; all offerings if its key is a custom label.
    pub(crate) fn satisfying(&self, requirement: &NodeSelectorRequirement) -> Bits<Offering> {
        let size = self.offerings.len();
        if self.custom.has(&requirement.key) {
            return Bits::all(size);
        }
        if let Some(known) = self.known.borrow().get(requirement) {
            return known.clone();
        }
        let key = label::normalized(&requirement.key);
        let found = match key {
            label::ZONE
            | label::ZONE_ID
            | label::CAPACITY_TYPE
            | label::CAPACITY_RESERVATION_ID
            | label::CAPACITY_RESERVATION_TYPE
            | label::CAPACITY_RESERVATION_INTERRUPTIBLE => {
                // These labels have few values, each with thousands of offerings.
                let mut found = Bits::none(size);
                let by_value = self.by_value(key);
                let good = by_value.iter().filter(|(value, _)| holds(requirement, value.as_deref()));
                good.for_each(|(_, bits)| found.join(bits));
                found
            }
            _ => {
                let value = |kind| self.label_of_type(kind, key).or_else(|| self.label_of_type(kind, &requirement.key));
                let kinds: IndexVec<InstanceType, bool> =
                    self.catalog.instance_types.iter().map(|kind| holds(requirement, value(kind))).collect();
                Bits::of(size, |offering| kinds[self.offerings[offering].type_index])
            }
        };
        self.known.borrow_mut().insert(requirement.clone(), found.clone());
        found
    }
}

/// Labels that at least one type has.
pub(super) fn of_types(catalog: &Catalog) -> BTreeSet<String> {
    let mut kinds: Vec<&InstanceType> = catalog.instance_types.iter().collect();
    // Nearly all types have the same labels as the type before.
    kinds.dedup_by(|kind, last| kind.labels.keys().eq(last.labels.keys()));
    let keys: BTreeSet<&String> = kinds.into_iter().flat_map(|kind| kind.labels.keys()).collect();
    keys.into_iter().cloned().collect()
}

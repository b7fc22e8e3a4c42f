//! Nodes that offerings would become: looked at once, however many launches list them.

use crate::labels::{self, pool_problem};
use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::Operator;
use plimsoll_model::snapshot::NodePool;
use std::cell::RefCell;
use std::collections::{BTreeMap, HashMap};
use std::rc::Rc;

/// Labels of a node.
pub(crate) type Labels = BTreeMap<String, String>;

/// A node of a pool as one offering makes it.
pub(crate) struct Ware<'a> {
    pub(crate) kind: &'a InstanceType,
    pub(crate) offering: &'a Offering,
    pub(crate) labels: Labels,
    /// The first requirement of the pool that it does not meet.
    pub(crate) problem: Option<String>,
}

/// Pool, type, zone and capacity type; and values of labels that the pool leaves open.
type Key<'a> = (&'a str, &'a str, &'a str, &'a str, Vec<(String, String)>);

/// All that were looked at. Only looked up, never walked.
#[derive(Default)]
pub(crate) struct Shelf<'a>(RefCell<HashMap<Key<'a>, Rc<Ware<'a>>>>);

impl<'a> Shelf<'a> {
    /// What `launch` makes of `choice`.
    ///
    /// # Errors
    /// If the catalog has no such type or offering.
    pub(crate) fn get(
        &self,
        catalog: &'a Catalog,
        pool: &'a NodePool,
        launch: &Launch,
        choice: &OfferingChoice,
    ) -> Result<Rc<Ware<'a>>, &'static str> {
        let kind = catalog.get(&choice.instance_type).ok_or("no such type")?;
        let same = |one: &&Offering| one.zone == choice.zone && one.capacity_type == choice.capacity_type;
        let offering = kind.offerings.iter().find(same).ok_or("no such offering")?;
        let bought = offering.capacity_type.as_str();
        let key = (pool.name.as_str(), kind.name.as_str(), offering.zone.as_str(), bought, open(pool, kind, launch));
        if let Some(known) = self.0.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let labels = labels::of_offering(catalog, pool, launch, kind, offering);
        let ware = Rc::new(Ware { kind, offering, problem: pool_problem(pool, &labels), labels });
        self.0.borrow_mut().insert(key, Rc::clone(&ware));
        Ok(ware)
    }
}

/// Labels that every node has whatever its launch asks for.
const ALWAYS: [&str; 10] = [
    label::ZONE,
    label::CAPACITY_TYPE,
    label::INSTANCE_TYPE,
    label::ARCH,
    label::OS,
    label::REGION,
    label::NODE_POOL,
    label::EC2_NODE_CLASS,
    label::REGISTERED,
    label::INITIALIZED,
];

/// The values that the launch asks for of labels that neither pool nor type have.
fn open(pool: &NodePool, kind: &InstanceType, launch: &Launch) -> Vec<(String, String)> {
    let asked = launch.requirements.iter().filter(|one| one.operator == Operator::In && one.values.len() == 1);
    let asked = asked.filter(|one| {
        let settled = |key: &str| ALWAYS.contains(&key) || kind.labels.contains_key(key);
        !settled(&one.key) && !pool.labels.contains_key(&one.key)
    });
    asked.map(|one| (one.key.clone(), one.values[0].clone())).collect()
}

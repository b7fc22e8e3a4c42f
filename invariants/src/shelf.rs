//! Nodes that offerings would become: looked at once, however many launches list them.

use crate::labels::{OfferingLabels, pool_problem};
use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::{Operator, Requirement};
use plimsoll_model::snapshot::NodePool;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// A node of a pool as one offering makes it.
pub(crate) struct Ware<'a> {
    pub(crate) kind: &'a InstanceType,
    pub(crate) offering: &'a Offering,
    pub(crate) labels: OfferingLabels<'a>,
    /// The first requirement of the pool that it does not meet.
    pub(crate) problem: Option<String>,
}

/// Addresses of the pool and of the offering, which live as long as the check; and values of labels that the pool leaves open.
type Key<'a> = (usize, usize, Vec<(&'a str, &'a str)>);

/// What a pool asks for, or the first requirement that cannot be read.
type Asked = Rc<Result<Vec<Requirement>, String>>;

/// All that were looked at. Only looked up, never walked.
#[derive(Default)]
pub(crate) struct Shelf<'a> {
    wares: RefCell<HashMap<Key<'a>, Rc<Ware<'a>>>>,
    pools: RefCell<HashMap<&'a str, Asked>>,
}

/// What one launch of a pool can choose from.
pub(crate) struct Choice<'s, 'a> {
    shelf: &'s Shelf<'a>,
    catalog: &'a Catalog,
    pool: &'a NodePool,
    asked: Asked,
    /// The one value that the launch asks for, of each label of which it asks for one value.
    single: Rc<[(&'a str, &'a str)]>,
    /// Of these, labels that the launch gives nodes whose type does not have them: all but those that every node has, or the pool.
    open: Vec<(&'a str, &'a str)>,
}

impl<'a> Shelf<'a> {
    /// For a launch of the pool, which buys from the catalog.
    pub(crate) fn choice(&self, catalog: &'a Catalog, pool: &'a NodePool, launch: &'a Launch) -> Choice<'_, 'a> {
        let single = launch.requirements.iter().filter(|one| one.operator == Operator::In && one.values.len() == 1);
        let single: Rc<[_]> = single.map(|one| (one.key.as_str(), one.values[0].as_str())).collect();
        let open = |(key, _): &&(&str, &str)| !ALWAYS.contains(key) && !pool.labels.contains_key(*key);
        let open = single.iter().filter(open).copied().collect();
        Choice { shelf: self, catalog, pool, asked: self.asked(pool), single, open }
    }

    fn asked(&self, pool: &'a NodePool) -> Asked {
        let read = || pool.requirements.iter().map(Requirement::new).collect::<Result<_, _>>();
        let asked = || Rc::new(read().map_err(|error| error.to_string()));
        Rc::clone(self.pools.borrow_mut().entry(pool.name.as_str()).or_insert_with(asked))
    }
}

impl<'a> Choice<'_, 'a> {
    /// What the launch makes of `choice`.
    ///
    /// # Errors
    /// If the catalog has no such type or offering.
    pub(crate) fn get(&self, choice: &OfferingChoice) -> Result<Rc<Ware<'a>>, &'static str> {
        let kind = self.catalog.get(&choice.instance_type).ok_or("no such type")?;
        let same = |one: &&Offering| one.zone == choice.zone && one.capacity_type == choice.capacity_type;
        let offering = kind.offerings.iter().find(same).ok_or("no such offering")?;
        let open = self.open.iter().filter(|(key, _)| !kind.labels.contains_key(*key)).copied().collect();
        let key = (std::ptr::from_ref(self.pool) as usize, std::ptr::from_ref(offering) as usize, open);
        if let Some(known) = self.shelf.wares.borrow().get(&key) {
            return Ok(Rc::clone(known));
        }
        let requirements = self.asked.as_ref().as_ref();
        let read = requirements.map_or(&[][..], Vec::as_slice);
        let labels = OfferingLabels::new(self.catalog, self.pool, read, (kind, offering), Rc::clone(&self.single));
        let problem = match requirements {
            Ok(requirements) => pool_problem(self.pool, requirements, &labels),
            Err(problem) => Some(problem.clone()),
        };
        let ware = Rc::new(Ware { kind, offering, problem, labels });
        self.shelf.wares.borrow_mut().insert(key, Rc::clone(&ware));
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

//! Nodes that offerings would become. Each is computed once, even if many launches list the offering.

use crate::labels::{OfferingLabels, pool_problem};
use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator, Requirement};
use plimsoll_model::snapshot::NodePool;
use std::cell::RefCell;
use std::collections::HashMap;
use std::rc::Rc;

/// The node of a pool that an offering would become.
pub(crate) struct OfferingNode<'a> {
    pub(crate) instance_type: &'a InstanceType,
    pub(crate) offering: &'a Offering,
    pub(crate) labels: OfferingLabels<'a>,
    /// First requirement of the pool that the node does not meet.
    pub(crate) problem: Option<String>,
}

/// Addresses of pool and offering, which outlive the check, and the values of labels that the pool leaves open.
type CacheKey<'a> = (usize, usize, Vec<(&'a str, &'a str)>);

/// Parsed requirements of a pool, or the error of the first invalid requirement.
type PoolRequirements = Rc<Result<Vec<Requirement>, String>>;

/// Cache of computed nodes. Never iterated, so hash order does not matter.
#[derive(Default)]
pub(crate) struct OfferingNodeCache<'a> {
    nodes: RefCell<HashMap<CacheKey<'a>, Rc<OfferingNode<'a>>>>,
    pools: RefCell<HashMap<&'a str, PoolRequirements>>,
}

/// Resolves the offerings of one launch.
pub(crate) struct LaunchOfferings<'s, 'a> {
    cache: &'s OfferingNodeCache<'a>,
    catalog: &'a Catalog,
    pool: &'a NodePool,
    requirements: PoolRequirements,
    /// Labels for which the launch requires exactly one value.
    pinned_labels: Rc<[(&'a str, &'a str)]>,
    /// Pinned labels that nodes get from the launch unless their instance type has the label. Excludes built-in labels
    /// and labels of the pool.
    open_labels: Vec<(&'a str, &'a str)>,
}

impl<'a> OfferingNodeCache<'a> {
    /// Returns the resolver for a launch of `pool`, which uses `catalog`.
    pub(crate) fn launch_offerings(
        &self,
        catalog: &'a Catalog,
        pool: &'a NodePool,
        launch: &'a Launch,
    ) -> LaunchOfferings<'_, 'a> {
        let pinned_label = |requirement: &'a NodeSelectorRequirement| match requirement.values.as_slice() {
            [value] if requirement.operator == Operator::In => Some((requirement.key.as_str(), value.as_str())),
            _ => None,
        };
        let pinned_labels: Rc<[_]> = launch.requirements.iter().filter_map(pinned_label).collect();
        let open_labels = |(key, _): &&(&str, &str)| !BUILT_IN_LABELS.contains(key) && !pool.labels.contains_key(*key);
        let open_labels = pinned_labels.iter().filter(open_labels).copied().collect();
        LaunchOfferings {
            cache: self,
            catalog,
            pool,
            requirements: self.requirements(pool),
            pinned_labels,
            open_labels,
        }
    }

    fn requirements(&self, pool: &'a NodePool) -> PoolRequirements {
        let read = || pool.requirements.iter().map(Requirement::new).collect::<Result<_, _>>();
        let requirements = || Rc::new(read().map_err(|error| error.to_string()));
        Rc::clone(self.pools.borrow_mut().entry(pool.name.as_str()).or_insert_with(requirements))
    }
}

impl<'a> LaunchOfferings<'_, 'a> {
    /// Returns the node that `choice` would become.
    ///
    /// # Errors
    /// If the catalog does not have the instance type or offering.
    pub(crate) fn get(&self, choice: &OfferingChoice) -> Result<Rc<OfferingNode<'a>>, &'static str> {
        let instance_type = self.catalog.get(&choice.instance_type).ok_or("no such type")?;
        let offering = instance_type.offerings.iter().find(|offering| offering.is(choice)).ok_or("no such offering")?;
        let open_labels =
            self.open_labels.iter().filter(|(key, _)| !instance_type.labels.contains_key(*key)).copied().collect();
        let key = (std::ptr::from_ref(self.pool) as usize, std::ptr::from_ref(offering) as usize, open_labels);
        if let Some(cached) = self.cache.nodes.borrow().get(&key) {
            return Ok(Rc::clone(cached));
        }
        let requirements = self.requirements.as_ref().as_ref();
        let parsed = requirements.map_or(&[][..], Vec::as_slice);
        let labels = OfferingLabels::new(
            self.catalog,
            self.pool,
            parsed,
            (instance_type, offering),
            Rc::clone(&self.pinned_labels),
        );
        let problem = match requirements {
            Ok(requirements) => pool_problem(self.pool, requirements, &labels),
            Err(problem) => Some(problem.clone()),
        };
        let node = Rc::new(OfferingNode { instance_type, offering, problem, labels });
        self.cache.nodes.borrow_mut().insert(key, Rc::clone(&node));
        Ok(node)
    }
}

/// Labels that every node has regardless of its launch.
const BUILT_IN_LABELS: [&str; 10] = [
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

//! Launches: as their pool allows, offerings as in the catalog, pods fit on each of them, limits hold.

use crate::labels::{label_problem, of_offering, pool_problem, taint_problem};
use crate::{Facts, Violation};
use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::{NODES_RESOURCE, label};
use plimsoll_model::plan::{Launch, OfferingChoice, Plan, PodRef};
use plimsoll_model::requirements::NodeSelectorRequirement;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{HostPort, NodePool, PodShape};
use std::collections::{BTreeMap, BTreeSet};

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let mut growth: BTreeMap<&str, Resources> = BTreeMap::new();
    for launch in &plan.launches {
        // Static pools launch for their number of nodes alone, others for pods alone.
        let serves = |pool: &NodePool| pool.replicas.is_none() || launch.pods.is_empty();
        let usable = |pool: &&&NodePool| pool.not_ready.is_none() && !pool.deleting && serves(pool);
        let Some(pool) = facts.pools.get(launch.node_pool.as_str()).filter(usable) else {
            found.push(Violation::UnknownPool(launch.node_pool.0.clone()));
            continue;
        };
        if (launch.pods.is_empty() && pool.replicas.is_none()) || launch.offerings.is_empty() {
            found.push(Violation::EmptyLaunch(launch.action_id.0.clone()));
        }
        if let Some(problem) = deviation(pool, launch) {
            found.push(Violation::BadLaunch { launch: launch.action_id.0.clone(), problem });
        }
        let most = one(facts, pool, launch, found);
        growth.entry(pool.name.as_str()).or_default().add(&most);
    }
    limits(facts, &growth, found);
    replicas(facts, plan, found);
}

/// No static pool grows beyond its number of nodes.
fn replicas(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    for pool in &facts.snapshot.node_pools {
        let Some(replicas) = pool.replicas else { continue };
        let own = facts.snapshot.nodes.iter().filter(|node| node.node_pool.as_ref() == Some(&pool.name));
        let stay = own.filter(|node| !facts.leaving.contains(node.name.as_str())).count();
        let more = plan.launches.iter().filter(|launch| launch.node_pool == pool.name).count();
        if more > 0 && u64::try_from(stay + more).unwrap_or(u64::MAX) > replicas {
            found.push(Violation::LimitExceeded { pool: pool.name.0.clone(), resource: "replicas".to_owned() });
        }
    }
}

/// Where a launch is not what its pool says: it may only narrow.
fn deviation(pool: &NodePool, launch: &Launch) -> Option<String> {
    if launch.node_class != pool.node_class {
        return Some(format!("the node class of the pool is {}, not {}", pool.node_class, launch.node_class));
    }
    if launch.taints != pool.taints || launch.labels != pool.labels {
        return Some("taints or labels are not those of the pool".to_owned());
    }
    let dropped = pool.requirements.iter().find(|wanted| kept(wanted, launch).is_none())?;
    Some(format!("the requirement of the pool on {} is dropped", dropped.key))
}

/// The pool's requirement as the launch has it: `minValues` may have been lowered, to what the launch must then have.
fn kept<'l>(wanted: &NodeSelectorRequirement, launch: &'l Launch) -> Option<&'l NodeSelectorRequirement> {
    let same = |one: &&NodeSelectorRequirement| {
        (&one.key, one.operator, &one.values) == (&wanted.key, wanted.operator, &wanted.values)
            && (one.min_values == wanted.min_values
                || one.min_values.zip(wanted.min_values).is_some_and(|(mine, pools)| mine < pools))
    };
    launch.requirements.iter().filter(same).max_by_key(|one| one.min_values)
}

/// Checks one launch; the most that it may count against limits.
fn one(facts: &Facts<'_>, pool: &NodePool, launch: &Launch, found: &mut Vec<Violation>) -> Resources {
    let mut most = Resources::new();
    let mut bad = |problem| found.push(Violation::BadOffering { launch: launch.action_id.0.clone(), problem });
    if launch.offerings.windows(2).any(|pair| pair[0].price > pair[1].price) {
        bad("offerings are not cheapest first".to_owned());
    }
    let Some(catalog) = pool.catalog.as_ref().and_then(|id| facts.catalogs.get(id)) else {
        bad("the pool has no catalog".to_owned());
        return most;
    };
    let load = Load::new(facts, launch);
    let mut values: BTreeMap<&str, BTreeSet<String>> = BTreeMap::new();
    for choice in &launch.offerings {
        let place = format!("{} in {} ({})", choice.instance_type, choice.zone, choice.capacity_type);
        let (kind, offering) = match known(facts, catalog, choice) {
            Ok(known) => known,
            Err(problem) => {
                let problem = format!("{place}: {problem}");
                found.push(Violation::BadOffering { launch: launch.action_id.0.clone(), problem });
                continue;
            }
        };
        most.raise_to(&kind.capacity);
        let labels = of_offering(catalog, pool, launch, kind, offering);
        if let Some(problem) = pool_problem(pool, &labels) {
            let problem = format!("{place}: {problem}");
            found.push(Violation::BadOffering { launch: launch.action_id.0.clone(), problem });
        }
        for wanted in pool.requirements.iter().filter(|one| one.min_values.is_some()) {
            let value = labels.get(label::normalized(&wanted.key)).cloned();
            values.entry(&wanted.key).or_default().extend(value);
        }
        load.check(pool, kind, &labels, &place, found);
    }
    for wanted in &pool.requirements {
        let count = |one: &NodeSelectorRequirement| one.min_values.and_then(|least| usize::try_from(least).ok());
        let least = kept(wanted, launch).and_then(count).or_else(|| count(wanted)).unwrap_or(0);
        let have = values.get(wanted.key.as_str()).map_or(0, BTreeSet::len);
        let lowered = count(wanted).is_some_and(|wanted| least < wanted);
        if have < least || (lowered && have > least) {
            let problem = format!("{have} values of {}, at least {least} are wanted", wanted.key);
            found.push(Violation::BadLaunch { launch: launch.action_id.0.clone(), problem });
        }
    }
    most.set(NODES_RESOURCE, 1);
    most
}

fn limits(facts: &Facts<'_>, growth: &BTreeMap<&str, Resources>, found: &mut Vec<Violation>) {
    for pool in &facts.snapshot.node_pools {
        let Some(more) = growth.get(pool.name.as_str()) else { continue };
        let mut used = more.clone();
        let nodes = facts.snapshot.nodes.iter().filter(|node| node.node_pool.as_ref() == Some(&pool.name));
        nodes.for_each(|node| used.add(&node.limit_usage));
        // What was over before is not this plan's doing, unless it adds to it.
        let over = pool.limits.iter().filter(|(name, limit)| more.get(name) > 0 && used.get(name) > *limit);
        found.extend(
            over.map(|(name, _)| Violation::LimitExceeded { pool: pool.name.0.clone(), resource: name.to_owned() }),
        );
    }
}

/// The offering in the catalog, if it can be bought at that price.
fn known<'a>(
    facts: &Facts<'_>,
    catalog: &'a Catalog,
    choice: &OfferingChoice,
) -> Result<(&'a InstanceType, &'a Offering), String> {
    let kind = catalog.get(&choice.instance_type).ok_or("no such type")?;
    let offering = kind
        .offerings
        .iter()
        .find(|one| one.zone == choice.zone && one.capacity_type == choice.capacity_type)
        .ok_or("no such offering")?;
    let refused = facts.snapshot.unavailable_offerings.iter().any(|one| {
        one.capacity_type == choice.capacity_type
            && one.zone.as_ref().is_none_or(|zone| *zone == choice.zone)
            && one.instance_type.as_ref().is_none_or(|name| *name == choice.instance_type)
    });
    if !offering.available || refused {
        return Err("not available".to_owned());
    }
    if offering.price != choice.price {
        return Err(format!("costs {}, the plan says {}", offering.price, choice.price));
    }
    Ok((kind, offering))
}

/// What is to run on the node of a launch.
struct Load<'a, 'p> {
    daemons: Vec<&'a PodShape>,
    shapes: Vec<(&'a PodShape, i64, &'p PodRef)>,
    requests: Resources,
}

impl<'a, 'p> Load<'a, 'p> {
    fn new(facts: &Facts<'a>, launch: &'p Launch) -> Self {
        let daemons = facts.snapshot.daemon_sets.iter();
        let mut requests = Resources::new();
        let shapes = facts.by_shape(&launch.pods);
        for pod in &launch.pods {
            if let Some(shape) = facts.shape(pod.uid.as_str()) {
                requests.add(&shape.requests);
            }
        }
        let daemons = daemons.filter_map(|daemon| facts.shapes.get(daemon.shape.as_str()).copied()).collect();
        Self { daemons, shapes, requests }
    }

    fn check(
        &self,
        pool: &NodePool,
        kind: &InstanceType,
        labels: &BTreeMap<String, String>,
        place: &str,
        found: &mut Vec<Violation>,
    ) {
        let mut load = self.requests.clone();
        let mut ports: Vec<&HostPort> = Vec::new();
        for shape in &self.daemons {
            if taint_problem(shape, &pool.taints).is_none() && label_problem(shape, "", labels).is_none() {
                load.add(&shape.requests);
                ports.extend(&shape.host_ports);
            }
        }
        for (shape, count, pod) in &self.shapes {
            let mut problem = taint_problem(shape, &pool.taints).or_else(|| label_problem(shape, "", labels));
            let clash = shape.host_ports.iter().any(|port| ports.iter().any(|other| other.conflicts(port)));
            if clash || (*count > 1 && !shape.host_ports.is_empty()) {
                problem = problem.or_else(|| Some("host port".to_owned()));
            }
            if let Some(problem) = problem {
                let (pod, place) = (pod.name.clone(), place.to_owned());
                found.push(Violation::PodDoesNotFit { pod, place, problem });
            }
            ports.extend(&shape.host_ports);
        }
        if let Some(resource) = load.first_excess(&kind.allocatable()) {
            found.push(Violation::Overcommitted { place: place.to_owned(), resource: resource.to_owned() });
        }
    }
}

//! Launches: offerings as in the catalog, pods fit on each of them, limits hold.

use crate::pods::{label_problem, taint_problem};
use crate::{Facts, Violation};
use plimsoll_model::catalog::InstanceType;
use plimsoll_model::names::{NODES_RESOURCE, label};
use plimsoll_model::plan::{Launch, OfferingChoice, Plan};
use plimsoll_model::requirements::{Operator, Requirement};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{HostPort, NodePool, PodShape};
use std::collections::BTreeMap;

pub(crate) fn check(facts: &Facts<'_>, plan: &Plan, found: &mut Vec<Violation>) {
    let mut growth: BTreeMap<&str, Resources> = BTreeMap::new();
    for launch in &plan.launches {
        if launch.pods.is_empty() || launch.offerings.is_empty() {
            found.push(Violation::EmptyLaunch(launch.action_id.0.clone()));
        }
        let Some(pool) = facts.snapshot.node_pools.iter().find(|pool| {
            pool.name == launch.node_pool && pool.not_ready.is_none() && !pool.deleting && pool.replicas.is_none()
        }) else {
            found.push(Violation::UnknownPool(launch.node_pool.0.clone()));
            continue;
        };
        let mut most = Resources::new();
        if launch.offerings.windows(2).any(|pair| pair[0].price > pair[1].price) {
            let problem = "offerings are not cheapest first".to_owned();
            found.push(Violation::BadOffering { launch: launch.action_id.0.clone(), problem });
        }
        for choice in &launch.offerings {
            let problem = match offering(facts, pool, launch, choice, found) {
                Ok(kind) => {
                    most.raise_to(&kind.capacity);
                    continue;
                }
                Err(problem) => problem,
            };
            let problem = format!("{} in {} ({}): {problem}", choice.instance_type, choice.zone, choice.capacity_type);
            found.push(Violation::BadOffering { launch: launch.action_id.0.clone(), problem });
        }
        most.set(NODES_RESOURCE, 1);
        growth.entry(pool.name.as_str()).or_default().add(&most);
    }
    limits(facts, &growth, found);
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

fn offering<'a>(
    facts: &Facts<'a>,
    pool: &NodePool,
    launch: &Launch,
    choice: &OfferingChoice,
    found: &mut Vec<Violation>,
) -> Result<&'a InstanceType, String> {
    let catalog = pool.catalog.as_ref().and_then(|id| facts.catalogs.get(id)).ok_or("the pool has no catalog")?;
    let kind = catalog.get(&choice.instance_type).ok_or("no such type")?;
    let known = kind
        .offerings
        .iter()
        .find(|one| one.zone == choice.zone && one.capacity_type == choice.capacity_type)
        .ok_or("no such offering")?;
    let refused = facts.snapshot.unavailable_offerings.iter().any(|one| {
        one.capacity_type == choice.capacity_type
            && one.zone.as_ref().is_none_or(|zone| *zone == choice.zone)
            && one.instance_type.as_ref().is_none_or(|name| *name == choice.instance_type)
    });
    if !known.available || refused {
        return Err("not available".to_owned());
    }
    if known.price != choice.price {
        return Err(format!("costs {}, the plan says {}", known.price, choice.price));
    }
    let mut labels = kind.labels.clone();
    labels.extend(pool.labels.clone());
    for (key, value) in [
        (label::ZONE, known.zone.as_str()),
        (label::ZONE_ID, &known.zone_id),
        (label::CAPACITY_TYPE, known.capacity_type.as_str()),
        (label::INSTANCE_TYPE, &kind.name),
        (label::ARCH, &kind.architecture),
        (label::REGION, &catalog.region),
        (label::NODE_POOL, pool.name.as_str()),
        (label::EC2_NODE_CLASS, &pool.node_class),
        (label::OS, kind.operating_systems.first().map_or("", String::as_str)),
    ] {
        labels.insert(key.to_owned(), value.to_owned());
    }
    labels.retain(|_, value| !value.is_empty());
    // Open labels of the pool get the one value that the launch asks for.
    for asked in launch.requirements.iter().filter(|one| one.operator == Operator::In && one.values.len() == 1) {
        labels.entry(asked.key.clone()).or_insert_with(|| asked.values[0].clone());
    }
    for wanted in &pool.requirements {
        let read = Requirement::new(wanted).map_err(|error| format!("requirement on {}: {error}", wanted.key))?;
        if labels.get(label::normalized(&wanted.key)).is_some_and(|value| !read.has(value)) && wanted.key != label::OS {
            return Err(format!("requirement of the pool on {}", wanted.key));
        }
    }
    fill(facts, pool, launch, choice, kind, &labels, found);
    Ok(kind)
}

fn fill(
    facts: &Facts<'_>,
    pool: &NodePool,
    launch: &Launch,
    choice: &OfferingChoice,
    kind: &InstanceType,
    labels: &BTreeMap<String, String>,
    found: &mut Vec<Violation>,
) {
    let place = format!("{} in {} ({})", choice.instance_type, choice.zone, choice.capacity_type);
    let mut load = Resources::new();
    let mut ports: Vec<&HostPort> = Vec::new();
    let shapes = |id: &str| facts.shapes.get(id).copied();
    let daemons: Vec<&PodShape> =
        facts.snapshot.daemon_sets.iter().filter_map(|daemon| shapes(daemon.shape.as_str())).collect();
    for shape in daemons {
        if taint_problem(shape, &pool.taints).is_none() && label_problem(shape, "", labels).is_none() {
            load.add(&shape.requests);
            ports.extend(&shape.host_ports);
        }
    }
    for pod in &launch.pods {
        let Some(shape) = facts.shape(pod.uid.as_str()) else { continue };
        let mut problem = taint_problem(shape, &pool.taints).or_else(|| label_problem(shape, "", labels));
        if shape.host_ports.iter().any(|port| ports.iter().any(|other| other.conflicts(port))) {
            problem = problem.or_else(|| Some("host port".to_owned()));
        }
        if let Some(problem) = problem {
            found.push(Violation::PodDoesNotFit { pod: pod.name.clone(), place: place.clone(), problem });
        }
        load.add(&shape.requests);
        ports.extend(&shape.host_ports);
    }
    if let Some(resource) = load.first_excess(&kind.allocatable()) {
        found.push(Violation::Overcommitted { place, resource: resource.to_owned() });
    }
}

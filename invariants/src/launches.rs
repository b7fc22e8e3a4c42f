//! Checks launches: they match their pool, offerings match the catalog, pods fit on each offering, and limits hold.

mod offering_list;

use crate::Violation;
use crate::capacity_quotas;
use crate::facts::Facts;
use offering_list::{NodeCapacities, OfferingList};
use plimsoll_model::catalog::reservation_resource;
use plimsoll_model::names::USD_PER_HOUR_RESOURCE;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::requirements::NodeSelectorRequirement;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, NodePool, free_reservations};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

pub(crate) fn check<'a>(facts: &Facts<'a>, plan: &'a Plan, violations: &mut Vec<Violation>) {
    let mut growth: BTreeMap<&str, Resources> = BTreeMap::new();
    let mut quota_growth = vec![Resources::new(); facts.snapshot.capacity_quotas.len()];
    let mut lists: BTreeMap<(&str, usize, usize), OfferingList<'_>> = BTreeMap::new();
    let mut capacities = NodeCapacities::new();
    for launch in &plan.launches {
        // Static pools launch nodes without pods; other pools launch only for pods.
        let serves = |pool: &NodePool| pool.replicas.is_none() || launch.pods.is_empty();
        let usable = |pool: &&NodePool| pool.not_ready.is_none() && !pool.deleting && serves(pool);
        let Some(pool) = facts.pool(launch.node_pool.as_str()).filter(usable) else {
            violations.push(Violation::UnknownPool(launch.node_pool.0.clone()));
            continue;
        };
        if (launch.pods.is_empty() && pool.replicas.is_none()) || launch.offerings.is_empty() {
            violations.push(Violation::EmptyLaunch(launch.action_id.0.clone()));
        }
        if let Some(problem) = deviation(pool, launch) {
            violations.push(Violation::BadLaunch { launch: launch.action_id.0.clone(), problem });
        }
        // Launches with the same offerings are checked once; the solver shares one list among them.
        let key =
            (pool.name.as_str(), Arc::as_ptr(&launch.requirements) as usize, Arc::as_ptr(&launch.offerings) as usize);
        let list = lists.entry(key).or_insert_with(|| OfferingList::new(facts, &mut capacities, pool, launch));
        list.check(facts, launch, violations);
        growth.entry(pool.name.as_str()).or_default().add(&list.max_usage);
        quota_growth.iter_mut().zip(&list.max_quota_usage).for_each(|(growth, usage)| growth.add(usage));
    }
    check_limits(facts, &growth, violations);
    capacity_quotas::check(facts.snapshot, &quota_growth, violations);
    check_reservations(facts, plan, violations);
    check_replicas(facts, plan, violations);
}

/// Checks that no capacity reservation is listed by more launches than it has free instances.
fn check_reservations(facts: &Facts<'_>, plan: &Plan, violations: &mut Vec<Violation>) {
    let mut listed: BTreeMap<String, i64> = BTreeMap::new();
    for launch in &plan.launches {
        let ids = launch.offerings.iter().filter_map(|choice| choice.reservation.as_deref());
        for id in ids.collect::<BTreeSet<&str>>() {
            *listed.entry(reservation_resource(id)).or_default() += 1;
        }
    }
    if listed.is_empty() {
        return;
    }
    let free = free_reservations(facts.snapshot, facts.catalogs);
    let exceeded = listed.into_iter().filter(|(resource, count)| *count > free.get(resource).copied().unwrap_or(0));
    violations.extend(exceeded.map(|(resource, launches)| Violation::ReservationExceeded { resource, launches }));
}

/// Checks that no static pool exceeds its number of replicas.
fn check_replicas(facts: &Facts<'_>, plan: &Plan, violations: &mut Vec<Violation>) {
    for pool in &facts.snapshot.node_pools {
        let Some(replicas) = pool.replicas else { continue };
        let pool_nodes = facts.snapshot.nodes.iter().filter(|node| node.node_pool.as_ref() == Some(&pool.name));
        let remaining = pool_nodes.filter(|node| !facts.leaving.contains(node.name.as_str())).count();
        let launched = plan.launches.iter().filter(|launch| launch.node_pool == pool.name).count();
        if launched > 0 && u64::try_from(remaining + launched).unwrap_or(u64::MAX) > replicas {
            violations.push(Violation::LimitExceeded { pool: pool.name.0.clone(), resource: "replicas".to_owned() });
        }
    }
}

/// Returns how a launch contradicts its pool. A launch may only narrow the pool's requirements.
fn deviation(pool: &NodePool, launch: &Launch) -> Option<String> {
    if launch.node_class != pool.node_class {
        return Some(format!("the node class of the pool is {}, not {}", pool.node_class, launch.node_class));
    }
    if launch.taints != pool.taints || launch.labels != pool.labels {
        return Some("taints or labels are not those of the pool".to_owned());
    }
    let missing = pool.requirements.iter().find(|wanted| launch_requirement(wanted, launch).is_none())?;
    Some(format!("the requirement of the pool on {} is dropped", missing.key))
}

/// Returns the launch's version of a pool requirement. The launch may have lowered `minValues` to the number of values
/// it has.
fn launch_requirement<'l>(wanted: &NodeSelectorRequirement, launch: &'l Launch) -> Option<&'l NodeSelectorRequirement> {
    let matches = |requirement: &&NodeSelectorRequirement| {
        (&requirement.key, requirement.operator, &requirement.values) == (&wanted.key, wanted.operator, &wanted.values)
            && (requirement.min_values == wanted.min_values
                || requirement.min_values.zip(wanted.min_values).is_some_and(|(lowered, original)| lowered < original))
    };
    launch.requirements.iter().filter(matches).max_by_key(|requirement| requirement.min_values)
}

/// What the nodes of a pool count against its limits.
pub(crate) fn pool_usage(facts: &Facts<'_>, pool: &NodePool) -> Resources {
    let mut used = Resources::new();
    let nodes = facts.snapshot.nodes.iter().filter(|node| node.node_pool.as_ref() == Some(&pool.name));
    nodes.for_each(|node| used.add(&usage(facts, pool, node)));
    used
}

/// What a node counts against limits. If nobody recorded its price, the catalog's counts.
pub(crate) fn usage(facts: &Facts<'_>, pool: &NodePool, node: &Node) -> Resources {
    let mut usage = node.limit_usage.clone();
    if pool.limits.contains(USD_PER_HOUR_RESOURCE) && !usage.contains(USD_PER_HOUR_RESOURCE) {
        let catalog = pool.catalog.as_ref().and_then(|id| facts.catalogs.get(id));
        let offering = catalog.and_then(|catalog| catalog.offering_of(&node.labels));
        offering.into_iter().for_each(|offering| usage.set(USD_PER_HOUR_RESOURCE, offering.list_price().0));
    }
    usage
}

fn check_limits(facts: &Facts<'_>, growth: &BTreeMap<&str, Resources>, violations: &mut Vec<Violation>) {
    for pool in &facts.snapshot.node_pools {
        let Some(added) = growth.get(pool.name.as_str()) else { continue };
        let mut used = pool_usage(facts, pool);
        used.add(added);
        // A limit that was exceeded before is only reported if the plan adds to it.
        let exceeded = pool.limits.iter().filter(|(name, limit)| added.get(name) > 0 && used.get(name) > *limit);
        violations.extend(
            exceeded.map(|(name, _)| Violation::LimitExceeded { pool: pool.name.0.clone(), resource: name.to_owned() }),
        );
    }
}

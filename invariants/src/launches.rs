//! Launches: as their pool allows, offerings as in the catalog, pods fit on each of them, limits hold.

mod wares;

use crate::Violation;
use crate::facts::Facts;
use plimsoll_model::plan::{Launch, Plan};
use plimsoll_model::requirements::NodeSelectorRequirement;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::NodePool;
use std::collections::BTreeMap;
use std::sync::Arc;
use wares::{Bares, Wares};

pub(crate) fn check<'a>(facts: &Facts<'a>, plan: &'a Plan, found: &mut Vec<Violation>) {
    let mut growth: BTreeMap<&str, Resources> = BTreeMap::new();
    let mut wares: BTreeMap<(&str, usize, usize), Wares<'_>> = BTreeMap::new();
    let mut bares = Bares::new();
    for launch in &plan.launches {
        // Static pools launch for their number of nodes alone, others for pods alone.
        let serves = |pool: &NodePool| pool.replicas.is_none() || launch.pods.is_empty();
        let usable = |pool: &&NodePool| pool.not_ready.is_none() && !pool.deleting && serves(pool);
        let Some(pool) = facts.pool(launch.node_pool.as_str()).filter(usable) else {
            found.push(Violation::UnknownPool(launch.node_pool.0.clone()));
            continue;
        };
        if (launch.pods.is_empty() && pool.replicas.is_none()) || launch.offerings.is_empty() {
            found.push(Violation::EmptyLaunch(launch.action_id.0.clone()));
        }
        if let Some(problem) = deviation(pool, launch) {
            found.push(Violation::BadLaunch { launch: launch.action_id.0.clone(), problem });
        }
        // Launches that buy the same are looked at once; the solver gives them one list.
        let key =
            (pool.name.as_str(), Arc::as_ptr(&launch.requirements) as usize, Arc::as_ptr(&launch.offerings) as usize);
        let wares = wares.entry(key).or_insert_with(|| Wares::new(facts, &mut bares, pool, launch));
        wares.check(facts, launch, found);
        growth.entry(pool.name.as_str()).or_default().add(&wares.most);
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

//! All ways to fill a node with pods of an instance, with their costs, derived only from the snapshot and the catalog.

use anyhow::{Result, bail};
use plimsoll_model::catalog::{Catalog, InstanceType, Offering};
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{NodePool, PodShape, Snapshot};
use plimsoll_workloads::Question;
use std::collections::{BTreeMap, BTreeSet};

/// Maximum number of combinations of the pods of an instance; above it, the instance is not small.
const MOST: usize = 2_000_000;

/// Price in micro-USD per hour, and number of pods of each kind on such a node.
pub(super) type Filling = (i64, Vec<usize>);

/// Number of pods of each kind, and the fillings that no other filling dominates: one more pod of any kind would cost
/// more.
pub(super) fn all(question: &Question) -> Result<(Vec<usize>, Vec<Filling>)> {
    let snapshot = &question.snapshot;
    let ([pool], Some(catalog), true) =
        (snapshot.node_pools.as_slice(), question.catalogs.values().next(), snapshot.nodes.is_empty())
    else {
        bail!("not one pool with one catalog and no nodes");
    };
    let (kinds, demand) = kinds(snapshot)?;
    let names: BTreeSet<&str> = kinds.iter().flat_map(|kind| kind.iter().map(|(name, _)| name)).collect();
    let vector = |of: &Resources| names.iter().map(|name| of.get(name)).collect::<Vec<i64>>();
    let requests: Vec<Vec<i64>> = kinds.iter().map(vector).collect();
    // Cheapest first: a more expensive node without more of any resource is of no use.
    let mut nodes: Vec<(i64, Vec<i64>)> = Vec::new();
    for (price, room) in offers(snapshot, pool, catalog)? {
        let room = vector(&room);
        if !nodes.iter().any(|(_, other)| fits(&room, other)) {
            nodes.push((price, room));
        }
    }
    let size = demand.iter().try_fold(1_usize, |size, count| size.checked_mul(count + 1));
    let Some(size) = size.filter(|size| *size <= MOST) else { bail!("too many combinations of {demand:?}") };
    let mut prices = Vec::with_capacity(size);
    let mut take = vec![0; demand.len()];
    loop {
        let mut load = vec![0; names.len()];
        for (one, count) in requests.iter().zip(&take) {
            let count = i64::try_from(*count)?;
            load.iter_mut().zip(one).for_each(|(sum, amount)| *sum += amount * count);
        }
        prices.push(nodes.iter().find(|(_, room)| fits(&load, room)).map(|(price, _)| *price));
        if !count_up(&mut take, &demand) {
            break;
        }
    }
    Ok((demand.clone(), undominated(&prices, &demand)))
}

fn fits(load: &[i64], room: &[i64]) -> bool {
    load.iter().zip(room).all(|(need, room)| need <= room)
}

/// The next combination; the first kind changes fastest.
fn count_up(take: &mut [usize], demand: &[usize]) -> bool {
    for (count, most) in take.iter_mut().zip(demand) {
        if *count < *most {
            *count += 1;
            return true;
        }
        *count = 0;
    }
    false
}

fn undominated(prices: &[Option<i64>], demand: &[usize]) -> Vec<Filling> {
    let mut kept = Vec::new();
    let mut take = vec![0; demand.len()];
    for (number, price) in prices.iter().enumerate() {
        if let Some(price) = price
            && number > 0
        {
            let mut step = 1;
            let mut larger = demand.iter().zip(&take).map(|(most, count)| {
                let next = (count < most).then(|| prices.get(number + step).copied().flatten());
                step *= most + 1;
                next.flatten()
            });
            if !larger.any(|next| next == Some(*price)) {
                kept.push((*price, take.clone()));
            }
        }
        count_up(&mut take, demand);
    }
    kept
}

/// Requests and number of pods of each kind. Only plain pods are supported.
fn kinds(snapshot: &Snapshot) -> Result<(Vec<Resources>, Vec<usize>)> {
    let shapes: BTreeMap<_, &PodShape> = snapshot.shapes.iter().map(|shape| (&shape.id, shape)).collect();
    let mut counts: BTreeMap<Vec<(&str, i64)>, (Resources, usize)> = BTreeMap::new();
    for pod in &snapshot.pods {
        let Some(shape) = shapes.get(&pod.shape) else { bail!("{}: no shape", pod.full_name()) };
        if !is_plain(shape) {
            bail!("{}: not a plain pod", pod.full_name());
        }
        let entry = counts.entry(shape.requests.iter().collect()).or_insert_with(|| (shape.requests.clone(), 0));
        entry.1 += 1;
    }
    Ok(counts.into_values().unzip())
}

/// Whether placement depends only on the requests.
fn is_plain(shape: &PodShape) -> bool {
    let bare = PodShape {
        id: shape.id.clone(),
        namespace: shape.namespace.clone(),
        labels: shape.labels.clone(),
        requests: shape.requests.clone(),
        tolerations: shape.tolerations.clone(),
        priority: shape.priority,
        ..PodShape::default()
    };
    *shape == bare
}

/// Offerings of the pool, cheapest first: price, and capacity for pods after DaemonSets.
fn offers(snapshot: &Snapshot, pool: &NodePool, catalog: &Catalog) -> Result<Vec<(i64, Resources)>> {
    let bare = pool.taints.is_empty() && pool.limits.is_empty() && pool.labels.is_empty() && pool.overlays.is_empty();
    if !bare || !snapshot.unavailable_offerings.is_empty() {
        bail!("pool {}: more than requirements", pool.name.as_str());
    }
    let mut daemons = Resources::new();
    for daemon in &snapshot.daemon_sets {
        match snapshot.shapes.iter().find(|shape| shape.id == daemon.shape) {
            Some(shape) if is_plain(shape) => daemons.add(&shape.requests),
            _ => bail!("DaemonSet {}: runs on some nodes alone", daemon.name),
        }
    }
    let mut offers = Vec::new();
    for kind in &catalog.instance_types {
        for offering in kind.offerings.iter().filter(|candidate| candidate.available) {
            if allowed(pool, kind, offering)? {
                let mut room = kind.allocatable();
                room.subtract(&daemons);
                offers.push((offering.price.0, room));
            }
        }
    }
    offers.sort_by_key(|offer| offer.0);
    Ok(offers)
}

/// Whether the requirements of the pool, which are all lists of values, allow the offering.
fn allowed(pool: &NodePool, kind: &InstanceType, offering: &Offering) -> Result<bool> {
    let allows = |requirement: &NodeSelectorRequirement| {
        if requirement.operator != Operator::In || requirement.min_values.is_some() {
            bail!("pool {}: {} is no list of values", pool.name.as_str(), requirement.key);
        }
        let has = |value: &str| requirement.values.iter().any(|listed| listed == value);
        Ok(match label::normalized(&requirement.key) {
            label::OS => kind.operating_systems.iter().any(|system| has(system)),
            label::ARCH => has(&kind.architecture),
            label::INSTANCE_TYPE => has(&kind.name),
            label::ZONE => has(&offering.zone),
            label::CAPACITY_TYPE => has(offering.capacity_type.as_str()),
            key => kind.labels.get(key).is_some_and(|value| has(value)),
        })
    };
    let mut all = true;
    for requirement in &pool.requirements {
        all &= allows(requirement)?;
    }
    Ok(all)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_workloads::bench::{Types, sizes};

    #[test]
    fn combinations_are_counted_through() {
        let (demand, mut take, mut seen) = ([1, 2], [0, 0], vec![[0, 0]]);
        while count_up(&mut take, &demand) {
            seen.push(take);
        }
        assert_eq!(seen, [[0, 0], [1, 0], [0, 1], [1, 1], [0, 2], [1, 2]]);
    }

    #[test]
    fn a_filling_that_could_take_more_for_the_same_price_is_left_out() {
        // Fillings with two kinds of pods, of which there are 1 and 2: none, a, b, ab, bb, abb.
        let prices = [Some(1), Some(3), Some(3), Some(5), Some(4), None];
        let kept = undominated(&prices, &[1, 2]);
        assert_eq!(kept, [(3, vec![1, 0]), (3, vec![0, 1]), (5, vec![1, 1]), (4, vec![0, 2])]);
        let cheaper = [Some(1), Some(5), Some(3), Some(5), Some(4), None];
        assert_eq!(undominated(&cheaper, &[1, 2]), [(3, vec![0, 1]), (5, vec![1, 1]), (4, vec![0, 2])]);
    }

    #[test]
    fn one_pod_takes_the_cheapest_type_that_the_pool_allows() {
        let question = sizes(3, 1, Types::BuiltIn).question().unwrap();
        let (demand, fillings) = all(&question).unwrap();
        assert_eq!(demand, [1]);
        let plan = plimsoll_solver::solve(&question.snapshot, &question.catalogs, &Default::default());
        assert_eq!(fillings, [(plan.hourly.0, vec![1])]);
    }
}

//! Cells: the combinations of domains in which pods of a shape could be.

use super::Kind;
use crate::facts::{equals, lookup};
use crate::intern::Bits;
use crate::lots::Only;
use crate::world::{Welcome, World, tolerated};
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// One value for each key that binds a shape.
#[derive(Debug)]
pub(crate) struct Cell {
    /// By key.
    pub(crate) values: BTreeMap<String, String>,
    /// The cheapest offering there; `None` if there are existing nodes only.
    pub(super) price: Option<i64>,
    pub(super) only: Rc<Only>,
}

/// Where the pods of a shape could be.
#[derive(Debug, Default)]
pub(crate) struct Cells {
    pub(super) all: Vec<Cell>,
    /// Per spread group that the shape owns: the domains that count.
    pub(super) eligible: BTreeMap<usize, BTreeSet<String>>,
}

impl Cells {
    pub(crate) fn new(world: &World<'_>, shape: usize) -> Self {
        let relevant = world.topology.relevant(shape);
        let keys: BTreeSet<&str> = relevant.iter().map(|group| world.topology.groups[*group].key.as_str()).collect();
        if keys.is_empty() {
            return Self::default();
        }
        let mut found: BTreeMap<Vec<String>, Option<i64>> = BTreeMap::new();
        for (number, pool) in world.pools.iter().enumerate() {
            let mut any = Bits::none(pool.offerings.len());
            world.shapes[shape].fits[number].iter().for_each(|one| any.join(&one.offerings));
            let open: Vec<Vec<String>> = keys.iter().map(|key| pool.custom.values(key)).collect();
            for offering in any.iter() {
                let values = keys.iter().zip(&open).map(|(key, open)| {
                    pool.label(offering, key).map_or_else(|| open.clone(), |value| vec![value.to_owned()])
                });
                for combination in product(values) {
                    let price = found.entry(combination).or_default();
                    *price = price.iter().copied().chain([pool.price(offering)]).min();
                }
            }
        }
        for (node, view) in world.nodes.iter().enumerate() {
            if world.welcome(shape, node) != Welcome::No {
                let values: Option<Vec<String>> =
                    keys.iter().map(|key| lookup(&view.node.labels, key).map(str::to_owned)).collect();
                if let Some(values) = values {
                    found.entry(values).or_default();
                }
            }
        }
        let cell = |(values, price): (Vec<String>, Option<i64>)| {
            let values: BTreeMap<String, String> = keys.iter().map(|key| (*key).to_owned()).zip(values).collect();
            Cell { price, only: Rc::new(only(world, &values)), values }
        };
        let spread = relevant.into_iter().filter(|group| world.topology.shapes[shape].owns.contains(group));
        Self {
            all: found.into_iter().map(cell).collect(),
            eligible: spread.map(|group| (group, eligible(world, shape, group))).collect(),
        }
    }
}

fn product(lists: impl Iterator<Item = Vec<String>>) -> Vec<Vec<String>> {
    lists.fold(vec![Vec::new()], |all, values| {
        let extend = |one: &Vec<String>| {
            values
                .iter()
                .map(|value| one.iter().cloned().chain([value.clone()]).collect())
                .collect::<Vec<Vec<String>>>()
        };
        all.iter().flat_map(extend).collect()
    })
}

fn only(world: &World<'_>, values: &BTreeMap<String, String>) -> Only {
    let demands: Vec<_> = values.iter().map(|(key, value)| equals(key, value)).collect();
    let offerings = world.pools.iter().map(|pool| {
        let mut bits = Bits::all(pool.offerings.len());
        demands.iter().for_each(|demand| bits.keep(&pool.satisfying(demand)));
        bits
    });
    let holds = |node: usize| {
        let labels = &world.nodes[node].node.labels;
        values.iter().all(|(key, value)| lookup(labels, key) == Some(value))
    };
    Only { offerings: offerings.collect(), nodes: Bits::of(world.nodes.len(), holds), demands: demands.clone() }
}

/// Domains that a spread counts: those of offerings and nodes that its policies let it look at.
fn eligible(world: &World<'_>, shape: usize, group: usize) -> BTreeSet<String> {
    let group = &world.topology.groups[group];
    let Kind::Spread { honor_affinity, honor_taints, .. } = group.kind else { return BTreeSet::new() };
    let view = &world.shapes[shape];
    let mut domains = BTreeSet::new();
    for pool in &world.pools {
        if honor_taints && !tolerated(&pool.pool.taints, &view.shape.tolerations, true) {
            continue;
        }
        let mut counted = Bits::all(pool.offerings.len());
        if honor_affinity {
            counted = Bits::none(pool.offerings.len());
            pool.alternatives(view.shape).iter().for_each(|one| counted.join(&one.offerings));
        }
        counted.keep(&pool.allowed);
        counted.keep(&pool.offered);
        domains.extend(counted.iter().filter_map(|offering| pool.label(offering, &group.key)).map(str::to_owned));
        if !counted.is_empty() {
            domains.extend(pool.custom.values(&group.key));
        }
    }
    for node in &world.nodes {
        let passes = (!honor_affinity || crate::facts::selects(view.shape, node.node.name.as_str(), &node.node.labels))
            && (!honor_taints || tolerated(&node.node.taints, &view.shape.tolerations, true));
        if passes {
            domains.extend(lookup(&node.node.labels, &group.key).map(str::to_owned));
        }
    }
    domains
}

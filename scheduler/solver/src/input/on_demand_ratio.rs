//! Applies ratios of On-Demand to Spot capacity: pods that must run On-Demand get a requirement before planning starts.
//!
//! Pods that run On-Demand already are chosen first, so that they stay. Pending pods come next. Pods on Spot come last:
//! they change over when they are moved for another reason. Among equals, pods that can only run On-Demand come first,
//! and pods that can only run on Spot come last. Among the others, pods are taken from all shapes in proportion: the
//! names of workloads must not decide what a plan costs.

use crate::input::capacity_quotas;
use crate::input::context::tolerated;
use crate::input::intern::{Amounts, Bits};
use crate::input::offerings::PoolView;
use crate::input::pool_requirements::one_of;
use crate::input::solve_index::{Originals, SolveIndex};
use crate::place::limits::{self, Headroom};
use crate::place::market;
use plimsoll_model::catalog::{CapacityType, Catalog, Offering};
use plimsoll_model::identity::{CatalogId, NodeName, PodUid, ShapeId};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::names::label;
use plimsoll_model::plan::{MinValuesPolicy, PlanOptions, PreferencePolicy};
use plimsoll_model::requirements::NodeSelectorTerm;
use plimsoll_model::snapshot::{
    Node, NodePool, OnDemandMix, Pod, PodShape, PodState, Snapshot, SnapshotIndex, free_reservations, quota_usage,
};
use std::cmp::Reverse;
use std::collections::BTreeMap;

/// Number of parts that the pods of one shape are divided into, to compare places in lists of different lengths.
const PARTS: usize = 1 << 20;

/// Pods to which a ratio applies together.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
enum Group<'a> {
    /// Pods of one workload: namespace and name.
    Workload(&'a str, &'a str),
    /// Pods on nodes of one pool, or pending pods for which this pool is the first choice.
    Pool(&'a str),
}

/// The capacity that the pools sell to pods of a shape, in the order in which these pods are chosen.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Choice {
    OnDemandOnly,
    Any,
    SpotOnly,
}

/// The pools that launch nodes for pods, whether or not they lack capacity at the moment.
struct Pools<'a> {
    solve_index: &'a SolveIndex,
    views: IndexVec<NodePool, PoolView<'a>>,
    /// What limits, CapacityQuotas and capacity reservations leave.
    headroom: IndexVec<NodePool, Headroom>,
    /// By resource, the cheapest way to get it On-Demand; `None` if no pool sells it.
    unit_prices: Vec<Option<UnitPrice>>,
}

/// Price of an offering in micro-USD per hour, and how much of a resource a node of it has for pods.
type UnitPrice = (i64, i64);

/// The snapshot in which the pods that must run On-Demand require it, with the original shapes of these pods; `None` if
/// no pod must.
pub(crate) fn applied(
    snapshot: &Snapshot,
    index: &SnapshotIndex,
    catalogs: &BTreeMap<CatalogId, Catalog>,
) -> Option<(Snapshot, Originals)> {
    let has_ratios = snapshot.shapes.iter().any(|shape| shape.on_demand.is_some());
    if !has_ratios && snapshot.node_pools.iter().all(|pool| pool.on_demand.is_none()) {
        return None;
    }
    let shapes: BTreeMap<&ShapeId, &PodShape> = snapshot.shapes.iter().map(|shape| (&shape.id, shape)).collect();
    let nodes: BTreeMap<&NodeName, &Node> = snapshot.nodes.iter().map(|node| (&node.name, node)).collect();
    let options = PlanOptions {
        preference_policy: PreferencePolicy::Ignore,
        min_values_policy: MinValuesPolicy::BestEffort,
        ..PlanOptions::default()
    };
    let (solve_index, _) = SolveIndex::new(None, snapshot, index, catalogs, &options, None);
    let pools = Pools::new(&solve_index, snapshot, catalogs);
    let mut choices: BTreeMap<&ShapeId, Choice> = BTreeMap::new();
    let mut bound: BTreeMap<&PodUid, ShapeId> = BTreeMap::new();
    let mut more: BTreeMap<ShapeId, PodShape> = BTreeMap::new();
    let mut originals = Originals::new();
    for (group, (mix, mut pods)) in groups(snapshot, &pools, &shapes, &nodes) {
        let least = mix.least(pods.len());
        if least == 0 {
            continue;
        }
        let may_leave_out = pools.may_leave_out(&group);
        // If all pods must run On-Demand, their order does not matter.
        if may_leave_out || least < pods.len() {
            for pod in &pods {
                choices.entry(&pod.shape).or_insert_with(|| pools.choice(&pod.shape));
            }
        }
        let choice = |pod: &Pod| choices.get(&pod.shape).copied().unwrap_or(Choice::Any);
        if may_leave_out {
            pods.retain(|pod| choice(pod) != Choice::SpotOnly || rank(pod, &nodes) == 0);
        }
        let pods = in_proportion(pods, |shape| pools.cost(shape), |pod| (rank(pod, &nodes), choice(pod)));
        for pod in pods.into_iter().take(least) {
            let Some(original) = shapes.get(&pod.shape).copied() else { continue };
            let shape = on_demand(original);
            bound.insert(&pod.uid, shape.id.clone());
            // Other pods may have this shape already.
            if !shapes.contains_key(&shape.id) {
                originals.insert(shape.id.clone(), original.clone());
                more.insert(shape.id.clone(), shape);
            }
        }
    }
    if bound.is_empty() {
        return None;
    }
    let mut mixed = snapshot.clone();
    for pod in &mut mixed.pods {
        if let Some(shape) = bound.get(&pod.uid) {
            pod.shape = shape.clone();
        }
    }
    mixed.shapes.extend(more.into_values());
    mixed.sort();
    Some((mixed, originals))
}

/// The pods by `key`. Among equals, any first part of the list has about the same share of the pods of each shape. If
/// that is not possible, pods with a lower `cost` come first. Shape ids decide last, so that the order is the same in
/// each plan.
fn in_proportion(
    mut pods: Vec<&Pod>,
    cost: impl Fn(&ShapeId) -> i128,
    key: impl Fn(&Pod) -> (u8, Choice),
) -> Vec<&Pod> {
    pods.sort_by_key(|pod| (key(pod), &pod.shape, &pod.namespace, &pod.name, &pod.uid));
    let mut order = Vec::with_capacity(pods.len());
    for same in pods.chunk_by(|a, b| (key(a), &a.shape) == (key(b), &b.shape)) {
        let cost = same.first().map_or(0, |pod| cost(&pod.shape));
        for (number, pod) in same.iter().copied().enumerate() {
            let middle = (2 * number + 1) * PARTS / (2 * same.len());
            order.push(((key(pod), middle, cost), pod));
        }
    }
    order.sort_by_key(|(place, _)| *place);
    order.into_iter().map(|(_, pod)| pod).collect()
}

/// Pods by group, with the ratio of the group.
fn groups<'a>(
    snapshot: &'a Snapshot,
    pools: &Pools<'a>,
    shapes: &BTreeMap<&ShapeId, &'a PodShape>,
    nodes: &BTreeMap<&NodeName, &'a Node>,
) -> BTreeMap<Group<'a>, (OnDemandMix, Vec<&'a Pod>)> {
    let mixes: BTreeMap<&str, OnDemandMix> =
        snapshot.node_pools.iter().filter_map(|pool| Some((pool.name.as_str(), pool.on_demand?))).collect();
    // Virtual pods do not count for a ratio.
    let counts = |pod: &&Pod| !pod.stays_with_node && !pod.terminating && !pod.is_virtual();
    let mut pending: BTreeMap<&ShapeId, usize> = BTreeMap::new();
    // Only pods without a ratio of their own need a first choice, and only if pools have ratios.
    let has_own = |pod: &&Pod| shapes.get(&pod.shape).is_none_or(|shape| shape.on_demand.is_some());
    let by_pool = |pod: &&Pod| !mixes.is_empty() && node_of(pod, nodes).is_none() && !has_own(pod);
    for pod in snapshot.pods.iter().filter(counts).filter(by_pool) {
        *pending.entry(&pod.shape).or_default() += 1;
    }
    let first = |(shape, count): (&&'a ShapeId, &usize)| Some((*shape, pools.first_choice(shape, *count)?));
    let first: BTreeMap<&ShapeId, &NodePool> = pending.iter().filter_map(first).collect();
    let mut groups: BTreeMap<Group<'a>, (OnDemandMix, Vec<&'a Pod>)> = BTreeMap::new();
    for pod in snapshot.pods.iter().filter(counts) {
        let Some(shape) = shapes.get(&pod.shape).copied() else { continue };
        let group = match (&shape.on_demand, node_of(pod, nodes)) {
            (Some(ratio), _) => Some((Group::Workload(&shape.namespace, &ratio.workload), ratio.mix)),
            (None, Some(node)) => {
                let pool = node.node_pool.as_ref().map(|pool| pool.as_str());
                pool.and_then(|pool| Some((Group::Pool(pool), *mixes.get(pool)?)))
            }
            (None, None) => {
                first.get(&pod.shape).and_then(|pool| Some((Group::Pool(pool.name.as_str()), pool.on_demand?)))
            }
        };
        if let Some((group, mix)) = group {
            // While a workload is rolled out, its pods may have different ratios. The largest applies.
            let entry = groups.entry(group).or_insert((mix, Vec::new()));
            entry.0 = entry.0.max(mix);
            entry.1.push(pod);
        }
    }
    groups
}

impl<'a> Pools<'a> {
    fn new(solve_index: &'a SolveIndex, snapshot: &'a Snapshot, catalogs: &'a BTreeMap<CatalogId, Catalog>) -> Self {
        let (views, table) = (solve_index.views(snapshot, catalogs), solve_index.table());
        let quotas = &snapshot.capacity_quotas;
        let quota_usages = snapshot.nodes.iter().filter(|_| !quotas.is_empty()).map(|node| quota_usage(quotas, node));
        let quota_usages: Vec<Amounts> = quota_usages.map(|usage| table.vector(&usage)).collect();
        let quotas = capacity_quotas::left(quotas, table, &quota_usages.iter());
        let reservations = free_reservations(snapshot, catalogs).into_iter();
        let reservations: Vec<(usize, i64)> =
            reservations.filter_map(|(name, free)| Some((table.place(&name)?, free))).collect();
        let left = |view: &PoolView<'a>| {
            let nodes = snapshot.nodes.iter().filter(|node| node.node_pool.as_ref() == Some(&view.pool.name));
            let own = limits::left(table, view.pool, nodes.map(|node| view.usage_of(node, table)));
            limits::with_shared(view, own, &reservations, &quotas)
        };
        let headroom = views.iter().map(left).collect();
        let unit_prices = unit_prices(&views, table.len());
        Self { solve_index, views, headroom, unit_prices }
    }

    /// What the most expensive request of a shape costs On-Demand, in micro-USD per hour. Zero if no pool sells it.
    fn cost(&self, shape: &ShapeId) -> i128 {
        let Some(number) = self.solve_index.shape_number(shape) else { return 0 };
        let requests = self.solve_index.shapes[number].requests.iter().zip(&self.unit_prices);
        let costs = requests.filter_map(|(request, unit_price)| {
            let (price, amount) = (*unit_price)?;
            (i128::from(*request) * i128::from(price)).checked_div(i128::from(amount))
        });
        costs.max().unwrap_or(0)
    }

    /// The pool in which `count` pods of a shape would be placed first: the cheapest of those with the highest weight.
    /// A pool that no longer can launch a node for them is used only if no pool can.
    fn first_choice(&self, shape: &ShapeId, count: usize) -> Option<&'a NodePool> {
        let data = &self.solve_index.shapes[self.solve_index.shape_number(shape)?];
        let cheapest = |limited: bool| {
            let price = |(id, view): (Id<NodePool>, &PoolView<'a>)| {
                let room: &[Option<i64>] = if limited { &self.headroom[id] } else { &[] };
                Some((view.pool, market::price(view, &data.fits[id], (&data.requests, count), room)?))
            };
            let pools = self.views.iter_enumerated().filter_map(price);
            // Among equals, the first by the order of the pools.
            pools.min_by_key(|(pool, price)| (Reverse(pool.weight), *price))
        };
        cheapest(true).or_else(|| cheapest(false)).map(|(pool, _)| pool)
    }

    fn choice(&self, shape: &ShapeId) -> Choice {
        let Some(number) = self.solve_index.shape_number(shape) else { return Choice::Any };
        let (shape, requests) = (self.solve_index.shape(number), &self.solve_index.shapes[number].requests);
        let (mut on_demand, mut spot) = (false, false);
        for view in self.views.iter().filter(|view| tolerated(&view.pool.taints, &shape.tolerations, true)) {
            let fits = view.any_of(&view.reachable(shape)).and(&view.roomy(requests));
            let sold = sold(view, &fits);
            (on_demand, spot) = (on_demand || sold.0, spot || sold.1);
        }
        match (on_demand, spot) {
            (true, false) => Choice::OnDemandOnly,
            (false, true) => Choice::SpotOnly,
            _ => Choice::Any,
        }
    }

    /// Whether pods of the group that can only run on Spot may do so. A workload or a pool that has a ratio and permits
    /// no On-Demand capacity contradicts itself. Unschedulable pods show this.
    fn may_leave_out(&self, group: &Group<'_>) -> bool {
        let Group::Pool(name) = group else { return false };
        let pool = self.views.iter().find(|view| view.pool.name.as_str() == *name);
        pool.is_none_or(|view| sold(view, &view.allowed).0)
    }
}

/// By resource, the cheapest way to get it On-Demand. Limits and a lack of capacity do not count: they must not change
/// the order of pods from plan to plan.
fn unit_prices(views: &IndexVec<NodePool, PoolView<'_>>, resources: usize) -> Vec<Option<UnitPrice>> {
    let mut cheapest: Vec<Option<UnitPrice>> = vec![None; resources];
    for view in views {
        let is_on_demand = |one: &Id<Offering>| view.offering(*one).capacity_type == CapacityType::OnDemand;
        for offering in view.allowed.iter().filter(is_on_demand) {
            let price = view.price(offering);
            for (known, amount) in cheapest.iter_mut().zip(&view.offerings[offering].room) {
                let is_cheaper = |(other, most): UnitPrice| {
                    i128::from(price) * i128::from(most) < i128::from(other) * i128::from(*amount)
                };
                if *amount > 0 && known.is_none_or(is_cheaper) {
                    *known = Some((price, *amount));
                }
            }
        }
    }
    cheapest
}

/// Whether the pool sells some of these offerings On-Demand, and some as Spot.
fn sold(view: &PoolView<'_>, offerings: &Bits<Offering>) -> (bool, bool) {
    let sold = offerings.and(&view.allowed).and(&view.offered);
    let is_spot = |one: Id<Offering>| view.offering(one).capacity_type == CapacityType::Spot;
    (sold.iter().any(|one| !is_spot(one)), sold.iter().any(is_spot))
}

/// The node to which a pod is bound or on which it is reserved; `None` if the pod must be placed.
fn node_of<'a>(pod: &Pod, nodes: &BTreeMap<&NodeName, &'a Node>) -> Option<&'a Node> {
    match &pod.state {
        PodState::Bound(name) | PodState::Reserved(name) => nodes.get(name).copied().filter(|node| !node.deleting),
        PodState::Pending => None,
    }
}

/// Sort key of pods that must run On-Demand: pods that do already, then pending pods, then pods on Spot.
fn rank(pod: &Pod, nodes: &BTreeMap<&NodeName, &Node>) -> u8 {
    match node_of(pod, nodes) {
        Some(node) if node.labels.get(label::CAPACITY_TYPE).is_some_and(|value| is_on_demand(value)) => 0,
        None => 1,
        Some(_) => 2,
    }
}

/// Whether the capacity type is one that EC2 does not interrupt. This includes reserved capacity.
fn is_on_demand(value: &str) -> bool {
    matches!(CapacityType::parse(value), Some(CapacityType::OnDemand | CapacityType::Reserved))
}

/// The shape, restricted to On-Demand and reserved capacity.
fn on_demand(shape: &PodShape) -> PodShape {
    let values = [CapacityType::OnDemand, CapacityType::Reserved].map(|value| value.as_str().to_owned());
    let demand = one_of(label::CAPACITY_TYPE, values.to_vec());
    let mut shape = shape.clone();
    if shape.required_node_affinity.is_empty() {
        shape.required_node_affinity.push(NodeSelectorTerm::default());
    } else {
        // An empty term selects nothing. With the added requirement, it would select nodes.
        shape.required_node_affinity.retain(|term| !term.expressions.is_empty() || !term.fields.is_empty());
        if shape.required_node_affinity.is_empty() {
            return shape;
        }
    }
    shape.required_node_affinity.iter_mut().for_each(|term| term.expressions.push(demand.clone()));
    shape.id = shape.content_id();
    shape
}

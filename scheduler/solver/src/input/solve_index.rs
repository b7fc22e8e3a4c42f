//! Index of shapes, pools and rules between pods, independent of pods and nodes. It is reused from one plan to the next
//! until one of these changes.

mod previous;

use crate::input::context::tolerated;
use crate::input::intern::{Amounts, ResourceTable};
use crate::input::max_node_share;
use crate::input::nodes::Pools;
use crate::input::offerings::{Alternative, CatalogView, PoolData, PoolView, Terms};
use crate::input::volumes;
use crate::place::relaxation::{self, RelaxationLevels};
use crate::place::topology::{self, Group, Rules};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{CatalogId, ShapeId};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::plan::{MinValuesPolicy, PlanOptions, PreferencePolicy};
use plimsoll_model::requirements::NodeSelectorTerm;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::free_reservations;
use plimsoll_model::snapshot::{
    CapacityQuota, ConsolidationPolicy, Disruption, NodePool, PodShape, Snapshot, SnapshotIndex,
};
use plimsoll_model::taints::Taint;
use previous::{PreviousShapes, Shapes, Unchanged};
use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;

/// Requests and constraints of a shape.
#[derive(Debug)]
pub(crate) struct ShapeData {
    pub(crate) requests: Amounts,
    /// Per launchable pool: offerings that can run the shape; empty if there are none.
    pub(crate) fits: IndexVec<NodePool, Vec<Alternative>>,
    /// Topology constraints of the shape.
    pub(crate) groups: Vec<Arc<Group>>,
}

/// A pool that can launch.
#[derive(Debug)]
struct CachedPool {
    /// The pool without its disruption settings.
    pool: NodePool,
    /// Index in the snapshot.
    number: usize,
    data: PoolData,
}

/// Inputs of a solve index in addition to shapes and pools.
#[derive(Debug, PartialEq)]
struct IndexKey {
    terms: Terms,
    /// All PreferNoSchedule taints.
    unwanted: Vec<Taint>,
    preferences: PreferencePolicy,
}

/// Difference between a solve index and the previous one.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Change {
    None,
    /// Shapes differ. Everything that node data depends on is the same: pools, resources, labels, DaemonSets, and rules
    /// between pods. Contains the previous number of each shape, if it existed.
    Shapes(IndexVec<PodShape, Option<Id<PodShape>>>),
    /// Anything may differ.
    All,
}

/// Shapes as the cluster has them, by the ids of the shapes into which On-Demand ratios changed them.
pub(crate) type Originals = BTreeMap<ShapeId, PodShape>;

/// Index of shapes, pools and rules between pods.
#[derive(Debug)]
pub(crate) struct SolveIndex {
    given: IndexKey,
    /// Launchable pools: heavier first, then by name descending.
    pools: IndexVec<NodePool, CachedPool>,
    /// Static pools. They launch nothing for pods.
    static_pools: Vec<CachedPool>,
    /// Shapes of the snapshot.
    own: Vec<PodShape>,
    /// Revisions of these shapes, from the snapshot's index.
    revisions: Vec<u64>,
    /// Relaxation levels of preferences.
    levels: Vec<PodShape>,
    pub(crate) relaxation: RelaxationLevels,
    /// Data of the snapshot's shapes, followed by that of the levels.
    pub(crate) shapes: IndexVec<PodShape, ShapeData>,
    pub(crate) rules: Rules,
    /// Used only for lookups and never iterated, so hash order does not matter.
    numbers: HashMap<ShapeId, Id<PodShape>>,
    /// Node labels that shapes select by.
    pub(crate) keys: Vec<String>,
    /// Whether a shape selects nodes by name.
    pub(crate) by_name: bool,
}

impl SolveIndex {
    /// Creates the index of `snapshot`, reusing valid parts of `former`. Returns the difference to `former` as well.
    /// `index` belongs to the snapshot and has been updated with all changes since `former` was created with it. With
    /// `originals`, there is no `former`.
    pub(crate) fn new(
        former: Option<Self>,
        snapshot: &Snapshot,
        index: &SnapshotIndex,
        catalogs: &BTreeMap<CatalogId, Catalog>,
        options: &PlanOptions,
        originals: Option<&Originals>,
    ) -> (Self, Change) {
        let preferences = options.preference_policy;
        let most_pods = max_node_share::bound(snapshot, index, options);
        let terms = Terms { most_pods, ..terms(snapshot, catalogs, options.min_values_policy) };
        let given = IndexKey { terms, unwanted: relaxation::unwanted(snapshot), preferences };
        let (pools, static_pools) = launchable(snapshot, catalogs);
        // What node data depends on in addition to resources and DaemonSets.
        let mut looked = None;
        let (former, mut old, same_preferences) = match former {
            Some(former) if former.is_of(&given, &pools, &static_pools, index) => return (former, Change::None),
            Some(mut former) if former.given.terms == given.terms => {
                looked = Some((std::mem::take(&mut former.rules), std::mem::take(&mut former.keys), former.by_name));
                let same = former.given == given;
                let (former, pools) = former.dismantle();
                (former, pools, same)
            }
            _ => (PreviousShapes::default(), BTreeMap::new(), false),
        };
        let mut kept = 0;
        let mut sold: BTreeMap<&CatalogId, CatalogView> = BTreeMap::new();
        let mut cached_pools = |pools: &[PlacedPool<'_>]| -> Vec<CachedPool> {
            let cached = |(number, pool): &(usize, &NodePool)| {
                let pool = neutral(pool);
                let known = old.remove(pool.name.as_str()).filter(|known| known.pool == pool);
                kept += usize::from(known.is_some());
                let (id, catalog) = catalogs.get_key_value(pool.catalog.as_ref()?)?;
                let fresh = || {
                    let sold = sold.entry(id).or_insert_with(|| CatalogView::new(catalog, &given.terms.table));
                    PoolData::new(&pool, catalog, sold, &given.terms)
                };
                let data = known.map_or_else(fresh, |known| known.data);
                Some(CachedPool { pool, number: *number, data })
            };
            pools.iter().filter_map(cached).collect()
        };
        let (mut pools, mut static_pools) = (cached_pools(&pools), cached_pools(&static_pools));
        pools.iter_mut().chain(&mut static_pools).for_each(|cached| cached.data.trim());
        let same_pools = kept == pools.len() + static_pools.len()
            && old.is_empty()
            && former.pools.iter().eq(pools.iter().map(|cached| &cached.pool.name));
        let same = Unchanged { pools: same_pools, preferences: same_preferences };
        let levels = |shape: &PodShape| relaxation::levels(shape, &given.unwanted, preferences);
        let Shapes { own, levels, above, data, numbers } = former.shapes(snapshot, index, same, levels);
        let relaxation = RelaxationLevels::new(&above);
        let views: IndexVec<NodePool, PoolView<'_>> = views(&pools, snapshot, catalogs).into();
        let all: IndexVec<PodShape, &PodShape> = own.iter().chain(&levels).collect();
        let shapes = fitted(&all, originals, &views, &given.terms.table, &relaxation, data);
        let mut rules = Rules::new(&all, &shapes, &relaxation);
        rules.compute_uncounted(&views, &shapes, &relaxation);
        let keys = asked_keys(&all);
        let by_name = all.iter().any(|shape| terms_of(shape).any(|term| !term.fields.is_empty()));
        let as_before = |(known, known_keys, was_by_name): (Rules, Vec<String>, bool)| {
            known.has_groups_of(&rules) && known_keys == keys && was_by_name == by_name
        };
        let same = same_pools && looked.is_some_and(as_before);
        let change = if same { Change::Shapes(numbers.into()) } else { Change::All };
        let solve_index = Self {
            numbers: own.iter().enumerate().map(|(number, shape)| (shape.id.clone(), Id::new(number))).collect(),
            given,
            pools: pools.into(),
            static_pools,
            own,
            revisions: index.shape_revisions().to_vec(),
            levels,
            relaxation,
            shapes,
            rules,
            keys,
            by_name,
        };
        (solve_index, change)
    }

    /// Whether all inputs are unchanged.
    fn is_of(
        &self,
        given: &IndexKey,
        pools: &[PlacedPool<'_>],
        static_pools: &[PlacedPool<'_>],
        index: &SnapshotIndex,
    ) -> bool {
        let same = |cached_pools: &[CachedPool], pools: &[PlacedPool<'_>]| {
            let mut pairs = cached_pools.iter().zip(pools);
            cached_pools.len() == pools.len()
                && pairs.all(|(cached, (number, pool))| cached.number == *number && cached.pool == neutral(pool))
        };
        let same_shapes = self.revisions == index.shape_revisions();
        same_shapes
            && self.given == *given
            && same(self.pools.as_slice(), pools)
            && same(&self.static_pools, static_pools)
    }

    pub(crate) fn quotas(&self) -> &[CapacityQuota] {
        &self.given.terms.quotas
    }

    pub(crate) fn table(&self) -> &ResourceTable {
        &self.given.terms.table
    }

    #[expect(clippy::indexing_slicing, reason = "levels are numbered after the last own shape")]
    pub(crate) fn shape(&self, id: Id<PodShape>) -> &PodShape {
        let number = id.number();
        self.own.get(number).unwrap_or_else(|| &self.levels[number - self.own.len()])
    }

    pub(crate) fn shape_number(&self, id: &ShapeId) -> Option<Id<PodShape>> {
        self.numbers.get(id).copied()
    }

    /// Pools that launch nodes for pods.
    pub(crate) fn views<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        catalogs: &'a BTreeMap<CatalogId, Catalog>,
    ) -> IndexVec<NodePool, PoolView<'a>> {
        views(self.pools.as_slice(), snapshot, catalogs).into()
    }

    /// All pools.
    pub(crate) fn all_views<'a>(
        &'a self,
        snapshot: &'a Snapshot,
        catalogs: &'a BTreeMap<CatalogId, Catalog>,
    ) -> Pools<'a> {
        let static_pools = views(&self.static_pools, snapshot, catalogs);
        Pools { launching: self.views(snapshot, catalogs), static_pools }
    }
}

fn views<'a>(
    cached_pools: &'a [CachedPool],
    snapshot: &'a Snapshot,
    catalogs: &'a BTreeMap<CatalogId, Catalog>,
) -> Vec<PoolView<'a>> {
    let view = |cached: &'a CachedPool| {
        let pool = snapshot.node_pools.get(cached.number)?;
        Some(PoolView::new(pool, catalogs.get(pool.catalog.as_ref()?)?, &cached.data))
    };
    cached_pools.iter().filter_map(view).collect()
}

/// A pool with its index in the snapshot.
type PlacedPool<'a> = (usize, &'a NodePool);

/// Returns the pools that launch nodes for pods, in order of preference, and the static pools.
fn launchable<'a>(
    snapshot: &'a Snapshot,
    catalogs: &BTreeMap<CatalogId, Catalog>,
) -> (Vec<PlacedPool<'a>>, Vec<PlacedPool<'a>>) {
    let ready = |pool: &NodePool| {
        pool.not_ready.is_none() && !pool.deleting && pool.catalog.as_ref().is_some_and(|id| catalogs.contains_key(id))
    };
    let mut all: Vec<(usize, &NodePool)> =
        snapshot.node_pools.iter().enumerate().filter(|(_, pool)| ready(pool)).collect();
    all.sort_by(|(_, a), (_, b)| b.weight.cmp(&a.weight).then_with(|| b.name.cmp(&a.name)));
    all.into_iter().partition(|(_, pool)| pool.replicas.is_none())
}

/// The pool without its disruption settings, which change with time.
fn neutral(pool: &NodePool) -> NodePool {
    let disruption = Disruption {
        policy: ConsolidationPolicy::WhenEmpty,
        consolidate_after: None,
        allowed: BTreeMap::new(),
        rollout_limit: None,
        next_budget_change: None,
    };
    NodePool { disruption, ..pool.clone() }
}

fn terms(snapshot: &Snapshot, catalogs: &BTreeMap<CatalogId, Catalog>, min_values: MinValuesPolicy) -> Terms {
    let requests = snapshot.shapes.iter().map(|shape| &shape.requests);
    let limits = snapshot.node_pools.iter().map(|pool| &pool.limits);
    let reservations: Resources =
        free_reservations(snapshot, catalogs).keys().map(|resource| (resource.as_str(), 1)).collect();
    let quotas: Resources =
        snapshot.capacity_quotas.iter().flat_map(|quota| quota.resources().map(|(name, _, _)| (name, 1))).collect();
    let shared = [&reservations, &quotas];
    let table = ResourceTable::new(requests.chain(limits).chain(shared), volumes::limited_drivers(snapshot, catalogs));
    let find = |id: &ShapeId| snapshot.shapes.iter().find(|shape| shape.id == *id);
    let out = snapshot.unavailable_offerings.iter();
    Terms {
        table,
        unavailable: out.map(|one| (one.instance_type.clone(), one.zone.clone(), one.capacity_type)).collect(),
        daemons: snapshot.daemon_sets.iter().filter_map(|daemon| find(&daemon.shape)).cloned().collect(),
        min_values,
        most_pods: None,
        quotas: snapshot.capacity_quotas.clone(),
    }
}

/// All node selector terms of a shape, including those of its volumes.
fn terms_of(shape: &PodShape) -> impl Iterator<Item = &NodeSelectorTerm> {
    shape.required_node_affinity.iter().chain(shape.volumes.iter().flat_map(|volume| &volume.alternatives))
}

/// Labels that shapes select by.
fn asked_keys(shapes: &IndexVec<PodShape, &PodShape>) -> Vec<String> {
    let mut keys = BTreeSet::new();
    for shape in shapes {
        keys.extend(shape.node_selector.keys().map(String::as_str));
        keys.extend(terms_of(shape).flat_map(|term| &term.expressions).map(|one| one.key.as_str()));
    }
    keys.into_iter().map(str::to_owned).collect()
}

/// Data of each shape, computed unless it is `known`.
fn fitted(
    shapes: &IndexVec<PodShape, &PodShape>,
    originals: Option<&Originals>,
    pools: &IndexVec<NodePool, PoolView<'_>>,
    table: &ResourceTable,
    relaxation: &RelaxationLevels,
    known: Vec<Option<ShapeData>>,
) -> IndexVec<PodShape, ShapeData> {
    let data = |((id, shape), known): ((Id<PodShape>, &&PodShape), Option<ShapeData>)| {
        let base = shapes[relaxation.base(id)];
        // kube-scheduler knows only the original, so the original determines the nodes that a spread counts.
        let base = originals.and_then(|originals| originals.get(&base.id)).unwrap_or(base);
        known.unwrap_or_else(|| ShapeData::new(shape, (base, relaxation.is_required_only(id)), pools, table))
    };
    shapes.iter_enumerated().zip(known).map(data).collect()
}

impl ShapeData {
    /// Computes the data of a shape. The shape is `base` itself, or a relaxation level of it. PreferNoSchedule taints
    /// are ignored only if the shape is `required_only`.
    fn new(
        shape: &PodShape,
        (base, required_only): (&PodShape, bool),
        pools: &IndexVec<NodePool, PoolView<'_>>,
        table: &ResourceTable,
    ) -> Self {
        let requests = table.request(shape);
        let fits = pools
            .iter()
            .map(|pool| {
                if !tolerated(&pool.pool.taints, &shape.tolerations, required_only) {
                    return Vec::new();
                }
                let roomy = pool.roomy(&requests);
                let mut all = pool.reachable(shape);
                for one in &mut all {
                    one.offerings.keep(&pool.usable);
                    one.offerings.keep(&roomy);
                }
                all.retain(|one| !one.offerings.is_empty());
                all
            })
            .collect();
        let groups = topology::constraints(shape, base, !required_only).into_iter().map(Arc::new).collect();
        Self { requests, fits, groups }
    }
}

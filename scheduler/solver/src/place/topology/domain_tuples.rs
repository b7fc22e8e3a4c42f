//! Domain tuples: the combinations of domains in which pods of a shape can run.

use super::{Group, GroupKind, NodeFilter};
use crate::input::context::{Admission, Column, SolveContext};
use crate::input::intern::Bits;
use crate::input::pool_requirements::equals;
use crate::place::pod_groups::DomainRestriction;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::snapshot::{Node, PodShape};
use std::cell::RefCell;
use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

/// One value for each topology key that is relevant to a shape.
#[derive(Debug)]
pub(crate) struct DomainTuple {
    /// Domain by key.
    pub(crate) values: BTreeMap<String, String>,
    /// Price of the cheapest offering; `None` if the tuple has existing nodes only.
    pub(super) price: Option<i64>,
    pub(crate) only: Rc<DomainRestriction>,
}

#[derive(Debug, Default)]
pub(crate) struct DomainTuples {
    pub(super) all: IndexVec<DomainTuple, DomainTuple>,
    /// Per spread group: the domains that count.
    pub(super) eligible: BTreeMap<Id<Group>, Rc<BTreeSet<String>>>,
    /// Per relevant group: its domains.
    pub(super) views: BTreeMap<Id<Group>, View>,
}

/// A domain of one group.
#[derive(Debug)]
pub(super) enum Domain {}

/// Domains of one group.
#[derive(Debug, Default)]
pub(super) struct View {
    pub(super) names: IndexVec<Domain, String>,
    /// Whether a domain counts for a spread.
    pub(super) counts: IndexVec<Domain, bool>,
    /// `None` if the tuple lacks the label.
    pub(super) of_tuple: IndexVec<DomainTuple, Option<Id<Domain>>>,
}

/// Maximum cached variants per [`TupleKey`], one for each set of fitting offerings. Others are recomputed.
const MAX_VARIANTS: usize = 32;

/// Cache key: everything except the fitting offerings that determines a shape's domain tuples.
#[derive(Debug, PartialEq, Eq, PartialOrd, Ord)]
struct TupleKey {
    /// Relevant groups, and whether the shape owns each of them.
    relevant: Vec<(Id<Group>, bool)>,
    /// Domains of the existing nodes that admit the shape.
    there: BTreeSet<Vec<Option<u32>>>,
}

/// Cached results, each with a shape that it was computed for.
type KnownTuples = Vec<(Id<PodShape>, Rc<DomainTuples>)>;

/// Cache of domain tuples, shared by similar shapes.
#[derive(Debug, Default)]
pub(crate) struct DomainTupleCache(RefCell<BTreeMap<TupleKey, KnownTuples>>);

impl DomainTupleCache {
    pub(crate) fn tuples(&self, context: &SolveContext<'_>, shape: Id<PodShape>) -> Rc<DomainTuples> {
        let relevant = context.topology.relevant(shape);
        let keys: BTreeSet<&str> = relevant.iter().map(|group| context.topology.groups[*group].key.as_str()).collect();
        if keys.is_empty() {
            return Rc::default();
        }
        let owns = &context.topology.shapes[shape].owns;
        let columns: Vec<Rc<Column>> = keys.iter().map(|key| context.column(key)).collect();
        let open = context.nodes.ids().filter(|node| context.admission(shape, *node) != Admission::No);
        // Many nodes share few combinations.
        let there: BTreeSet<Vec<Option<u32>>> =
            open.map(|node| columns.iter().map(|column| column.number(node)).collect()).collect();
        let relevant = relevant.into_iter().map(|group| (group, owns.contains(&group))).collect();
        let key = TupleKey { relevant, there };
        let fits = |shape: Id<PodShape>| context.shapes[shape].fits;
        let known = self.0.borrow().get(&key).and_then(|known| {
            let same = known.iter().find(|(other, _)| fits(*other) == fits(shape));
            same.map(|(_, tuples)| Rc::clone(tuples))
        });
        known.unwrap_or_else(|| {
            let tuples = Rc::new(DomainTuples::new(context, shape, &keys, &columns, &key));
            let mut all = self.0.borrow_mut();
            let entries = all.entry(key).or_default();
            if entries.len() < MAX_VARIANTS {
                entries.push((shape, Rc::clone(&tuples)));
            }
            tuples
        })
    }

    /// Clears the cache, because the relevant groups of shapes change.
    pub(crate) fn clear(&self) {
        self.0.borrow_mut().clear();
    }
}

impl DomainTuples {
    fn new(
        context: &SolveContext<'_>,
        shape: Id<PodShape>,
        keys: &BTreeSet<&str>,
        columns: &[Rc<Column>],
        key: &TupleKey,
    ) -> Self {
        let TupleKey { relevant, there } = key;
        // Only owners of a spread or of an affinity require the label. Other members and owners of an anti-affinity do
        // not.
        let needs = |(group, owned): &(Id<Group>, bool)| {
            *owned && !matches!(context.topology.groups[*group].kind, GroupKind::PodAntiAffinity { .. })
        };
        let optional: Vec<bool> = keys
            .iter()
            .map(|key| relevant.iter().all(|one| context.topology.groups[one.0].key != *key || !needs(one)))
            .collect();
        let missing = |optional: bool| if optional { vec![None] } else { Vec::new() };
        let mut found: BTreeMap<Vec<Option<String>>, Option<i64>> = BTreeMap::new();
        for (id, pool) in context.pools.iter_enumerated() {
            let fits = &context.shapes[shape].fits[id];
            let mut parts: Vec<(Vec<Option<String>>, Bits<Offering>)> = vec![(Vec::new(), pool.any_of(fits))];
            for (key, optional) in keys.iter().zip(&optional) {
                let wanted = |value: &String| fits.iter().any(|one| one.admits(key, value));
                let listed: Vec<Option<String>> =
                    pool.custom.values(key).into_iter().filter(wanted).map(Some).collect();
                let open = if listed.is_empty() { missing(*optional) } else { listed };
                parts = split(&parts, &pool.by_value(key), &open);
            }
            for (values, offerings) in parts {
                let Some(cheapest) = pool.preferred(&offerings, &context.ordinary[id]).first() else { continue };
                let price = found.entry(values).or_default();
                *price = price.iter().copied().chain([pool.price(cheapest)]).min();
            }
        }
        for numbers in there {
            let values = columns.iter().zip(numbers).zip(&optional).map(|((column, number), optional)| {
                number.map_or_else(|| missing(*optional), |number| vec![Some(column.value(number).to_owned())])
            });
            for combination in product(values) {
                found.entry(combination).or_default();
            }
        }
        let tuple = |(values, price): (Vec<Option<String>>, Option<i64>)| {
            let only = context.restriction(keys, &values);
            let named = keys.iter().zip(values).filter_map(|(key, value)| Some(((*key).to_owned(), value?)));
            DomainTuple { price, only, values: named.collect() }
        };
        let counts = |(group, owned): &&(Id<Group>, bool)| *owned || context.topology.assigned_spreads.contains(group);
        let spread = relevant.iter().filter(counts);
        let eligible: BTreeMap<Id<Group>, Rc<BTreeSet<String>>> =
            spread.map(|(group, _)| (*group, context.eligible(*group))).collect();
        let all: IndexVec<DomainTuple, DomainTuple> = found.into_iter().map(tuple).collect();
        let view = |(group, _): &(Id<Group>, bool)| {
            let key = &context.topology.groups[*group].key;
            (*group, View::new(key, &all, eligible.get(group).map(Rc::as_ref)))
        };
        let views = relevant.iter().map(view).collect();
        Self { all, eligible, views }
    }
}

impl View {
    fn new(key: &str, tuples: &IndexVec<DomainTuple, DomainTuple>, eligible: Option<&BTreeSet<String>>) -> Self {
        let mut view = Self::default();
        let mut ids: BTreeMap<&str, Id<Domain>> = BTreeMap::new();
        let of_cells = tuples.iter().filter_map(|tuple| tuple.values.get(key));
        for name in of_cells.chain(eligible.into_iter().flatten()) {
            ids.entry(name).or_insert_with(|| {
                view.counts.push(eligible.is_some_and(|all| all.contains(name)));
                view.names.push(name.clone())
            });
        }
        let id = |tuple: &DomainTuple| tuple.values.get(key).and_then(|name| ids.get(name.as_str()).copied());
        view.of_tuple = tuples.iter().map(id).collect();
        view
    }
}

/// Splits each part by the values that its offerings have. Offerings without a value get every value in `open`.
fn split(
    parts: &[(Vec<Option<String>>, Bits<Offering>)],
    by_value: &[(Option<String>, Bits<Offering>)],
    open: &[Option<String>],
) -> Vec<(Vec<Option<String>>, Bits<Offering>)> {
    let mut all = Vec::new();
    for (values, bits) in parts {
        for (value, with) in by_value {
            let both = bits.and(with);
            if both.is_empty() {
                continue;
            }
            let own = [value.clone()];
            let names = if value.is_some() { own.as_slice() } else { open };
            all.extend(names.iter().map(|one| (values.iter().cloned().chain([one.clone()]).collect(), both.clone())));
        }
    }
    all
}

fn product(lists: impl Iterator<Item = Vec<Option<String>>>) -> Vec<Vec<Option<String>>> {
    lists.fold(vec![Vec::new()], |all, values| {
        let extend = |one: &Vec<Option<String>>| {
            let with = |value: &Option<String>| one.iter().cloned().chain([value.clone()]).collect();
            values.iter().map(with).collect::<Vec<Vec<Option<String>>>>()
        };
        all.iter().flat_map(extend).collect()
    })
}

/// Offerings and nodes with these values of `keys`. `None` means that the label is absent.
pub(crate) fn restriction(
    context: &SolveContext<'_>,
    keys: &BTreeSet<&str>,
    values: &[Option<String>],
) -> DomainRestriction {
    let demand = |(key, value): (&&str, &Option<String>)| match value {
        Some(value) => equals(key, value),
        None => NodeSelectorRequirement::new(*key, Operator::DoesNotExist, Vec::<String>::new()),
    };
    let demands: Vec<NodeSelectorRequirement> = keys.iter().zip(values).map(demand).collect();
    let offerings = context.pools.iter().map(|pool| {
        let mut bits = Bits::all(pool.offerings.len());
        demands.iter().for_each(|demand| bits.keep(&pool.satisfying(demand)));
        bits
    });
    let sought: Vec<(Rc<Column>, Option<&str>)> =
        keys.iter().zip(values).map(|(key, value)| (context.column(key), value.as_deref())).collect();
    // A value that no node has must not match nodes without the label.
    let possible = sought.iter().all(|(column, value)| value.is_none_or(|value| column.find(value).is_some()));
    let wanted: Vec<Option<u32>> =
        sought.iter().map(|(column, value)| value.and_then(|value| column.find(value))).collect();
    let holds = |node: Id<Node>| {
        possible && sought.iter().zip(&wanted).all(|((column, _), number)| column.number(node) == *number)
    };
    DomainRestriction { offerings: offerings.collect(), nodes: Bits::of(context.nodes.len(), holds), demands }
}

/// Domains that a spread over `key` counts: those of offerings and nodes that its node affinity and taints policies
/// include.
pub(crate) fn eligible(context: &SolveContext<'_>, key: &str, nodes: &NodeFilter) -> BTreeSet<String> {
    let mut domains = BTreeSet::new();
    for pool in &context.pools {
        for mut one in nodes.alternatives(pool) {
            one.offerings.keep(&pool.allowed);
            one.offerings.keep(&pool.offered);
            let by_value = pool.by_value(key);
            let there = by_value.iter().filter(|(_, bits)| bits.meets(&one.offerings));
            domains.extend(there.filter_map(|(value, _)| value.clone()));
            if !one.offerings.is_empty() {
                domains.extend(pool.custom.values(key).into_iter().filter(|value| one.admits(key, value)));
            }
        }
    }
    let column = context.column(key);
    if nodes.is_all() {
        domains.extend(column.values().iter().cloned());
        return domains;
    }
    let passing = context.nodes.iter_enumerated().filter(|(_, view)| nodes.passes(view.node));
    let numbers: BTreeSet<u32> = passing.filter_map(|(node, _)| column.number(node)).collect();
    domains.extend(numbers.into_iter().map(|number| column.value(number).to_owned()));
    domains
}

//! A bound that respects spreads over zones. In each zone, pods have worths of their own, and no filling of a node of
//! the zone is worth more than the node costs. So a plan costs at least what its pods are worth in their zones. Pods
//! of a spread are worth at least as much as in the cheapest distribution that the spread permits. All other pods are
//! worth at least as much as in their cheapest zone.
//!
//! A spread counts every zone that could get nodes, as for the planner. Plans that give up a zone are not covered.

use super::{Component, Places, Program, free_instances, places_of, program, resource_prices, rows, shared};
use crate::input::context::SolveContext;
use crate::input::intern::{Amounts, Bits, add};
use crate::place::columns::{self, number, rules};
use crate::place::draft;
use crate::place::topology::{Group, GroupKind};
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::names::label;
use plimsoll_model::snapshot::PodShape;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::rc::Rc;

/// Work budget, in addition to that of the bound without zones. Divided evenly over the zones of a component.
pub(super) const WORK: u64 = 6_000_000;
/// Maximum number of zones. Each needs worths of its own, and no region has more than six.
const MAX_ZONES: usize = 16;
/// Spreads with a larger `maxSkew` are ignored, since up to this many kinds of distributions are compared.
const MAX_SKEW: usize = 64;

/// A required spread over zones that counts the pods of one shape only, all of which are on launches of the plan.
pub(super) struct Spread {
    skew: usize,
    /// Zones that count.
    zones: Rc<BTreeSet<String>>,
    /// Whether at least `minDomains` zones count. Otherwise no zone may have more than `skew` pods.
    enough: bool,
}

/// Spreads by the shape of their pods.
pub(super) type Spreads = BTreeMap<Id<PodShape>, Spread>;

/// The spreads that every plan for these pods keeps. Pods that are counted elsewhere could have other places in another
/// plan, so there must be none: on nodes, of other shapes, or pending pods that the plan does not launch nodes for.
pub(super) fn spreads(context: &SolveContext<'_>, demand: &draft::Demand) -> Spreads {
    let topology = &context.topology;
    let over_zones = |group: &Id<Group>| topology.groups[*group].key == label::ZONE;
    if !topology.groups.ids().any(|group| over_zones(&group)) {
        return Spreads::new();
    }
    let mut members: BTreeMap<Id<Group>, usize> = BTreeMap::new();
    let shapes = topology.shapes.iter_enumerated().filter(|(shape, _)| context.relaxation.is_required_only(*shape));
    for group in shapes.flat_map(|(_, membership)| &membership.matches) {
        *members.entry(*group).or_default() += 1;
    }
    // Number of pending pods, and whether some of them are virtual: no spread binds these.
    let mut pending: IndexVec<PodShape, (usize, bool)> = IndexVec::filled((0, false), topology.shapes.len());
    for (pod, shape) in context.pending() {
        if let Some((count, some_virtual)) = shape.and_then(|shape| pending.try_get_mut(shape)) {
            *count += 1;
            *some_virtual |= pod.is_virtual();
        }
    }
    let spread = |(shape, launched): (&Id<PodShape>, &draft::Launched)| {
        if pending.try_get(*shape) != Some(&(launched.pods, false)) {
            return None;
        }
        let membership = &topology.shapes[*shape];
        let counts_no_others =
            |group: &Id<Group>| members.get(group) == Some(&1) && !context.known.counts.any_member(*group);
        let mut own = membership.owns.iter().filter(|group| over_zones(group) && membership.matches.contains(group));
        let found = own.find_map(|group| Spread::new(context, *group).filter(|_| counts_no_others(group)));
        // A plan may place more pods by giving up a zone.
        found.filter(|spread| spread.permits(&launched.by_zone)).map(|spread| (*shape, spread))
    };
    demand.iter().filter_map(spread).collect()
}

impl Spread {
    /// `None` if the group is no spread, or permits nearly everything.
    fn new(context: &SolveContext<'_>, group: Id<Group>) -> Option<Self> {
        let GroupKind::TopologySpread { skew, min_domains, .. } = &context.topology.groups[group].kind else {
            return None;
        };
        let skew = usize::try_from(*skew).ok().filter(|skew| *skew <= MAX_SKEW)?;
        let zones = context.eligible(group);
        Some(Self { skew, enough: zones.len() >= *min_domains, zones })
    }

    /// Whether the zones may have these numbers of pods.
    fn permits(&self, by_zone: &BTreeMap<String, usize>) -> bool {
        let pods = |zone: &String| by_zone.get(zone).copied().unwrap_or(0);
        let least = if self.enough { self.zones.iter().map(pods).min().unwrap_or(0) } else { 0 };
        by_zone.iter().all(|(zone, pods)| self.zones.contains(zone) && *pods <= least + self.skew)
    }

    /// For each permitted distribution over `open` zones, one of these levels is such that each zone has at least that
    /// many pods, and at most `skew` more. `open` is how many of the zones that count can run the pods: any other zone
    /// stays empty.
    fn levels(&self, pods: usize, open: usize) -> RangeInclusive<usize> {
        let most = if self.enough && open == self.zones.len() { pods / open.max(1) } else { 0 };
        pods.div_ceil(open.max(1)).saturating_sub(self.skew)..=most
    }

    /// The least worth of the pods in any permitted distribution. `worths` has the worth of one pod in each zone that
    /// can run the pods, in ascending order. `None` if no distribution is permitted.
    fn cheapest(&self, pods: usize, worths: &[f64]) -> Option<f64> {
        let on_level = |level: usize| -> f64 {
            let mut rest = pods.saturating_sub(level * worths.len());
            let in_zone = |worth: &f64| {
                let more = rest.min(self.skew);
                rest -= more;
                worth * number(level + more)
            };
            worths.iter().map(in_zone).sum()
        };
        self.levels(pods, worths.len()).map(on_level).min_by(f64::total_cmp)
    }

    /// Maximum number of the pods in one of `open` zones, in any permitted distribution.
    fn most(&self, pods: usize, open: usize) -> usize {
        let on_level = |level: usize| (level + self.skew).min(pods.saturating_sub(level * open.saturating_sub(1)));
        self.levels(pods, open).map(on_level).max().unwrap_or(pods)
    }
}

/// A zone with offerings of a component.
enum Zone {}

/// Pods of one shape.
struct Pods<'s> {
    shape: Id<PodShape>,
    count: usize,
    /// Zones that can run the pods.
    zones: Bits<Zone>,
    spread: Option<&'s Spread>,
}

impl Pods<'_> {
    /// Maximum number of the pods in one zone.
    fn most(&self) -> usize {
        self.spread.map_or(self.count, |spread| spread.most(self.count, self.zones.iter().count()))
    }

    /// The least worth of all the pods. `worths` has the worth of one pod in each of the zones.
    fn worth(&self, mut worths: Vec<f64>) -> f64 {
        worths.sort_by(f64::total_cmp);
        let spread = self.spread.and_then(|spread| spread.cheapest(self.count, &worths));
        spread.unwrap_or_else(|| worths.first().copied().unwrap_or(0.0) * number(self.count))
    }
}

/// Bounds the cost of a component by the worth of pods per zone. Zero if no spread concerns the component.
#[expect(clippy::cast_possible_truncation, reason = "with a margin for rounding errors")]
pub(super) fn least(
    context: &SolveContext<'_>,
    component: &Component,
    unreserved: &Places,
    spreads: &Spreads,
    work: &mut u64,
) -> i64 {
    if *work == 0 || !component.demand.iter().any(|(shape, _)| spreads.contains_key(shape)) {
        return 0;
    }
    // The worth of free capacity reservations is known for the offerings of all zones together only.
    if !free_instances(context, component).is_empty() {
        return 0;
    }
    let zones: IndexVec<Zone, (String, Places)> = by_zone(context, component).into_iter().collect();
    if zones.is_empty() || zones.len() > MAX_ZONES {
        return 0;
    }
    let pods = |(shape, count): &(Id<PodShape>, usize)| {
        let spread = spreads.get(shape);
        let places = places_of(context, *shape, unreserved);
        let can_run = |zone: Id<Zone>| {
            let (name, offerings) = &zones[zone];
            spread.is_none_or(|spread| spread.zones.contains(name))
                && places.iter().zip(offerings).any(|(mine, there)| mine.meets(there))
        };
        Pods { shape: *shape, count: *count, zones: Bits::of(zones.len(), can_run), spread }
    };
    let all: Vec<Pods<'_>> = component.demand.iter().map(pods).collect();
    let mut worths: Vec<Vec<f64>> = vec![Vec::new(); all.len()];
    let part = *work / u64::try_from(zones.len()).unwrap_or(u64::MAX);
    for (zone, (_, offerings)) in zones.iter_enumerated() {
        let here = all.iter().filter(|pods| pods.zones.has(zone)).map(|pods| (pods.shape, pods.most())).collect();
        let mut left = part;
        let found = worths_of(context, &super::component(context, offerings.clone(), here), unreserved, &mut left);
        // The offerings of each shape are looked up in each pool.
        let looked_up = u64::try_from(component.demand.len() * context.pools.len()).unwrap_or(u64::MAX);
        *work = work.saturating_sub((part - left).saturating_add(looked_up));
        let lists = worths.iter_mut().zip(&all).filter(|(_, pods)| pods.zones.has(zone));
        lists.zip(found).for_each(|((list, _), worth)| list.push(worth));
    }
    let total: f64 = all.iter().zip(worths).map(|(pods, worths)| pods.worth(worths)).sum();
    (total * (1.0 - 1e-9)).max(0.0).ceil() as i64
}

/// The worth of a pod of each shape of `zone`, the most pods and all offerings of a zone. No filling of a node of the
/// zone is worth more than the price of the node.
fn worths_of(context: &SolveContext<'_>, zone: &Component, unreserved: &Places, work: &mut u64) -> Vec<f64> {
    let shared = shared(context, zone);
    let requests = |(shape, _): &(Id<PodShape>, usize)| {
        let view = &context.shapes[*shape];
        rules::requests(view.requests, view.hosts, &shared)
    };
    let requests: Vec<Amounts> = zone.demand.iter().map(requests).collect();
    let mut load = vec![0; context.table.len() + shared.len()];
    for (requests, (_, count)) in requests.iter().zip(&zone.demand) {
        add(&mut load, requests, i64::try_from(*count).unwrap_or(i64::MAX));
    }
    // Which pods can run on an offering is ignored.
    let prices = columns::prices_of(&rows(context, zone, &shared, |_, _| Bits::default()), &load);
    let by_resource: Vec<f64> = requests.iter().map(|requests| resource_prices::worth(&prices, requests)).collect();
    let Some(Program { kinds, rows }) = program(context, zone, unreserved) else { return by_resource };
    let Some(found) = columns::solve(&kinds, &rows, work) else { return by_resource };
    if found.bound <= resource_prices::worth(&prices, &load) {
        return by_resource;
    }
    // Kinds with equal requests differ in their offerings. The least of their worths holds for all of them.
    let by_kind = |requests: &Amounts| {
        let same = kinds.iter().zip(&found.worths).filter(|(kind, _)| kind.requests == *requests);
        same.map(|(_, worth)| *worth).min_by(f64::total_cmp).unwrap_or(0.0)
    };
    requests.iter().map(by_kind).collect()
}

/// The offerings of a component by zone. Every offering has a zone.
fn by_zone(context: &SolveContext<'_>, component: &Component) -> BTreeMap<String, Places> {
    let mut zones: BTreeMap<String, Places> = BTreeMap::new();
    for ((id, pool), own) in context.pools.iter_enumerated().zip(&component.offerings) {
        let by_value = pool.by_value(label::ZONE);
        for (zone, offerings) in by_value.iter().filter(|(_, offerings)| offerings.meets(own)) {
            let none = || -> Places { context.pools.iter().map(|pool| Bits::none(pool.offerings.len())).collect() };
            zones.entry(zone.clone().unwrap_or_default()).or_insert_with(none)[id] = offerings.and(own);
        }
    }
    zones
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;

    /// All ways to distribute pods over zones.
    fn distributions(pods: usize, zones: usize) -> Vec<Vec<usize>> {
        if zones == 1 {
            return vec![vec![pods]];
        }
        let with_last = |last: usize| {
            let mut all = distributions(pods - last, zones - 1);
            all.iter_mut().for_each(|one| one.push(last));
            all
        };
        (0..=pods).flat_map(with_last).collect()
    }

    fn name(zone: usize) -> String {
        format!("zone-{zone}")
    }

    fn spread(skew: usize, zones: usize, enough: bool) -> Spread {
        Spread { skew, zones: Rc::new((0..zones).map(name).collect()), enough }
    }

    #[test]
    fn each_zone_gets_its_share_and_the_rest_goes_to_the_cheapest_zones() {
        let worths = [1.0, 10.0, 100.0];
        assert_eq!(spread(1, 3, true).cheapest(6, &worths), Some(222.0));
        assert_eq!(spread(1, 3, true).cheapest(8, &worths), Some(2.0 * 111.0 + 11.0));
        // Three, two and one.
        assert_eq!(spread(2, 3, true).cheapest(6, &worths), Some(3.0 + 20.0 + 100.0));
        // A zone that counts but runs no pods holds the others back, and so do missing domains.
        for held_back in [spread(2, 4, true), spread(2, 3, false)] {
            assert_eq!(held_back.cheapest(3, &worths), Some(2.0 + 10.0));
            assert_eq!(held_back.cheapest(7, &worths), None);
        }
    }

    proptest! {
        #[test]
        fn no_permitted_distribution_is_cheaper_or_has_more_pods_in_a_zone(
            mut worths in prop::collection::vec((0..100_u32).prop_map(f64::from), 1..5),
            pods in 1..9_usize,
            skew in 1..4_usize,
            closed in 0..2_usize,
            enough in any::<bool>(),
        ) {
            worths.sort_by(f64::total_cmp);
            let spread = spread(skew, worths.len() + closed, enough);
            let permitted = |one: &Vec<usize>| spread.permits(&(0..).map(name).zip(one.iter().copied()).collect());
            let all: Vec<Vec<usize>> = distributions(pods, worths.len()).into_iter().filter(permitted).collect();
            let worth = |one: &Vec<usize>| one.iter().zip(&worths).map(|(n, worth)| number(*n) * worth).sum::<f64>();
            prop_assert_eq!(spread.cheapest(pods, &worths), all.iter().map(worth).min_by(f64::total_cmp));
            let most = all.iter().flatten().max().copied();
            prop_assert_eq!(spread.most(pods, worths.len()), most.unwrap_or(pods));
        }
    }
}

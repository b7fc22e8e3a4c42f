//! What kube-scheduler asks about where other pods are: spreads, affinity and anti-affinity.

use crate::facts::{lookup, selects};
use crate::topology::matches;
use crate::world::tolerated;
use plimsoll_model::names::label;
use plimsoll_model::snapshot::{
    LabelSelector, Node, PodAffinityTerm, PodShape, PodState, Snapshot, SnapshotIndex, TopologySpread,
};
use plimsoll_model::turns::Kind;
use std::collections::BTreeMap;
use std::rc::Rc;

/// What a required term of a pod that runs counts for one that waits: kube-scheduler's default.
const REQUIRED: i32 = 1;

/// A spread of one shape.
#[derive(Debug, Clone)]
struct Spread {
    skew: i64,
    least_domains: usize,
    /// By node: its domain, if it has one.
    domains: Rc<[Option<usize>]>,
    /// By node: whether its pods count.
    counted: Rc<[bool]>,
    /// By shape: whether its pods count.
    members: Rc<[bool]>,
    /// By domain.
    counts: Vec<i64>,
    /// By domain: whether a node of it counts.
    open: Rc<[bool]>,
    /// The least of the counts of those, and how many have it.
    least: (i64, usize),
    required: bool,
}

/// Whom pods of one shape must be near.
#[derive(Debug, Clone)]
struct Near {
    /// By term and node.
    domains: Rc<[Rc<[Option<usize>]>]>,
    /// By term and domain.
    counts: Vec<Vec<i64>>,
    members: Rc<[bool]>,
    total: i64,
}

/// Whom pods of one shape must not be near.
#[derive(Debug, Clone)]
struct Apart {
    owner: usize,
    domains: Rc<[Option<usize>]>,
    members: Rc<[bool]>,
    /// By domain: members and owners.
    counts: Vec<(i64, i64)>,
    /// Owners in all domains.
    owners: i64,
}

/// A wish to be near others, or not: of pods that wait, and of those that run, for whom a rule to be near others counts as one as well.
#[derive(Debug, Clone)]
struct Pull {
    owner: usize,
    /// What it counts for pods that run.
    weight: i64,
    /// It is a wish of pods that wait, too.
    wished: bool,
    domains: Rc<[Option<usize>]>,
    members: Rc<[bool]>,
    /// By domain: members and owners.
    counts: Vec<(i64, i64)>,
}

/// All rules, and who is where. Shapes and nodes by number, as in the snapshot. What does not change is shared by all performances.
#[derive(Debug, Clone)]
pub(super) struct Rules {
    spreads: Vec<Spread>,
    near: Vec<Option<Near>>,
    apart: Vec<Apart>,
    pulls: Vec<Pull>,
    /// By shape: its spreads.
    own: Rc<[Vec<usize>]>,
    /// By shape: those of [`Self::apart`] that it owns or is a member of.
    concerned: Rc<[Vec<usize>]>,
    /// By shape and other shape: whether a term of the first selects the second.
    follows: Rc<[Vec<bool>]>,
    priorities: Rc<[i32]>,
}

/// Pods of other shapes that are nominated to a node: how many of each, which are few.
#[derive(Debug, Clone, Default)]
pub(super) struct Guests(Vec<(usize, i64)>);

impl Guests {
    /// One more of that shape.
    pub(super) fn add(&mut self, shape: usize) {
        match self.0.iter_mut().find(|(known, _)| *known == shape) {
            Some((_, count)) => *count += 1,
            None => self.0.push((shape, 1)),
        }
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (usize, i64)> {
        self.0.iter().copied()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    fn of(&self, shape: usize) -> i64 {
        self.iter().find(|(known, _)| *known == shape).map_or(0, |(_, count)| count)
    }
}

impl Rules {
    pub(super) fn new(after: &Snapshot, index: &SnapshotIndex) -> Self {
        let shapes = &after.shapes;
        let nodes = &after.nodes;
        let mut own = vec![Vec::new(); shapes.len()];
        let mut spreads = Vec::new();
        for (number, shape) in shapes.iter().enumerate() {
            for one in &shape.topology_spread {
                own[number].push(spreads.len());
                spreads.push(Spread::new(shape, one, shapes, nodes));
            }
        }
        let near: Vec<Option<Near>> = shapes.iter().map(|shape| Near::new(shape, shapes, nodes)).collect();
        let (mut apart, mut pulls) = (Vec::new(), Vec::new());
        for (owner, shape) in shapes.iter().enumerate() {
            for term in &shape.pod_affinity {
                let (domains, count) = domains(&term.topology_key, nodes);
                let members = shapes.iter().map(|other| selected(term, other)).collect();
                let counts = vec![(0, 0); count];
                if term.anti && term.weight.is_none() {
                    apart.push(Apart { owner, domains, members, counts, owners: 0 });
                    continue;
                }
                let weight = i64::from(term.weight.unwrap_or(REQUIRED)) * if term.anti { -1 } else { 1 };
                pulls.push(Pull { owner, weight, wished: term.weight.is_some(), domains, members, counts });
            }
        }
        let concerned = (0..shapes.len())
            .map(|shape| {
                let concerns = |one: &Apart| one.owner == shape || one.members[shape];
                apart.iter().enumerate().filter(|(_, one)| concerns(one)).map(|(number, _)| number).collect()
            })
            .collect();
        let follows = shapes
            .iter()
            .map(|shape| {
                let terms = || shape.pod_affinity.iter().filter(|one| !one.anti && one.weight.is_none());
                shapes.iter().map(|other| terms().any(|term| selected(term, other))).collect()
            })
            .collect();
        let priorities = shapes.iter().map(|shape| shape.priority).collect();
        let mut rules = Self { spreads, near, apart, pulls, own: own.into(), concerned, follows, priorities };
        let numbers: BTreeMap<_, usize> = nodes.iter().enumerate().map(|(number, node)| (&node.name, number)).collect();
        for (place, pod) in after.pods.iter().enumerate().filter(|(_, pod)| !pod.terminating && !pod.is_virtual()) {
            if let PodState::Bound(node) | PodState::Reserved(node) = &pod.state
                && let (Some(node), Some(shape)) = (numbers.get(node), index.shape_of(place))
            {
                rules.add(shape, *node);
            }
        }
        rules
    }

    /// A pod of `shape` is on `node` now.
    pub(super) fn add(&mut self, shape: usize, node: usize) {
        for one in &mut self.spreads {
            if let (true, true, Some(domain)) = (one.members[shape], one.counted[node], one.domains[node]) {
                one.add(domain);
            }
        }
        for one in self.near.iter_mut().flatten().filter(|one| one.members[shape]) {
            for (domains, counts) in one.domains.iter().zip(&mut one.counts) {
                if let Some(domain) = domains[node] {
                    counts[domain] += 1;
                    one.total += 1;
                }
            }
        }
        for one in self.pulls.iter_mut().filter(|one| one.owner == shape || one.members[shape]) {
            if let Some(domain) = one.domains[node] {
                one.counts[domain].0 += i64::from(one.members[shape]);
                one.counts[domain].1 += i64::from(one.owner == shape);
            }
        }
        for number in &self.concerned[shape] {
            let one = &mut self.apart[*number];
            if let Some(domain) = one.domains[node] {
                one.counts[domain].0 += i64::from(one.members[shape]);
                one.counts[domain].1 += i64::from(one.owner == shape);
                one.owners += i64::from(one.owner == shape);
            }
        }
    }

    /// Whether a pod of `shape` may be on `node` beside the others, and `guests` there.
    pub(super) fn permit(&self, shape: usize, node: usize, guests: &Guests) -> bool {
        let count = |members: &[bool]| -> i64 {
            guests.iter().filter(|(shape, _)| members[*shape]).map(|(_, count)| count).sum()
        };
        let spread = |number: &usize| {
            let one = &self.spreads[*number];
            !one.required || one.permits(shape, node, count(&one.members))
        };
        let near = |one: &Near| one.permits(shape, node, count(&one.members));
        let sees = guests.is_empty() || self.sees_who_keeps_apart(shape);
        let apart = |number: &usize| {
            let one = &self.apart[*number];
            let Some(domain) = one.domains[node] else { return true };
            let (members, owners) = one.counts[domain];
            let owned = one.owner != shape || members + count(&one.members) == 0;
            let coming = if sees { guests.of(one.owner) } else { 0 };
            owned && (!one.members[shape] || owners + coming == 0)
        };
        self.own[shape].iter().all(spread)
            && self.near[shape].as_ref().is_none_or(near)
            && self.concerned[shape].iter().all(apart)
    }

    /// Whether kube-scheduler looks at what pods that are nominated to a node keep away from it. It does not for a pod without such rules of its own, as
    /// long as no pod that runs keeps it away from anywhere: then its plugin has nothing to do (`PreFilter` returns `Skip`), and is not told of nominated pods either.
    fn sees_who_keeps_apart(&self, shape: usize) -> bool {
        let any = |number: &usize| {
            let one = &self.apart[*number];
            one.owner == shape || (one.members[shape] && one.owners > 0)
        };
        self.near[shape].is_some() || self.concerned[shape].iter().any(any)
    }

    /// Whether pods of `shape` may be nominated to one node at once, however many they are.
    pub(super) fn is_plain(&self, shape: usize) -> bool {
        !self.own[shape].iter().map(|one| &self.spreads[*one]).any(|one| one.required && one.has_several())
    }

    /// What decides which pods of these shapes are nominated to one node at once.
    pub(super) fn kinds(&self, shapes: &[usize]) -> Vec<Kind> {
        let required = |shape: usize| self.own[shape].iter().map(|one| &self.spreads[*one]).filter(|one| one.required);
        let waits = |pod: usize, other: usize| required(pod).any(|one| one.members[other]) || self.follows[pod][other];
        let kind = |shape: &usize| {
            let locks = |other: usize, spread: &Spread| {
                self.priorities[other] >= self.priorities[*shape] && spread.members[other] && waits(other, *shape)
            };
            let counted = |spread: &Spread| {
                let all = shapes.iter().enumerate().filter(|(_, other)| locks(**other, spread));
                (spread.skew, all.map(|(number, _)| number).collect())
            };
            Kind { spreads: required(*shape).filter(|one| one.has_several()).map(counted).collect() }
        };
        shapes.iter().map(kind).collect()
    }

    /// How much a pod of `shape` is drawn to `node` by others, and others by it.
    pub(super) fn pull(&self, shape: usize, node: usize) -> i64 {
        let of = |one: &Pull| {
            let Some((members, owners)) = one.domains[node].map(|domain| one.counts[domain]) else { return 0 };
            let own = if one.wished && one.owner == shape { members } else { 0 };
            one.weight * (own + if one.members[shape] { owners } else { 0 })
        };
        self.pulls.iter().map(of).sum()
    }

    /// Pods that a wish of `shape` to be spread counts in the domain of `node`: fewer are better.
    pub(super) fn crowd(&self, shape: usize, node: usize) -> i64 {
        let soft = self.own[shape].iter().map(|number| &self.spreads[*number]).filter(|one| !one.required);
        soft.map(|one| one.domains[node].map_or(0, |domain| one.counts[domain])).sum()
    }
}

impl Spread {
    fn new(owner: &PodShape, one: &TopologySpread, shapes: &[PodShape], nodes: &[Node]) -> Self {
        let (domains, count) = domains(&one.topology_key, nodes);
        let selected = |shape: &PodShape| {
            let fits = |selector: &LabelSelector| matches(selector, shape);
            shape.namespace == owner.namespace && one.selector.as_ref().is_some_and(fits)
        };
        let keys = owner.topology_spread.iter().filter(|other| other.required == one.required);
        let keys: Vec<&str> = keys.map(|other| other.topology_key.as_str()).collect();
        let counts = |node: &Node| {
            keys.iter().all(|key| domain(key, node).is_some())
                && (!one.honor_node_affinity || selects(owner, node.name.as_str(), &node.labels))
                && (!one.honor_node_taints || tolerated(&node.taints, &owner.tolerations, true))
        };
        let counted: Rc<[bool]> = nodes.iter().map(counts).collect();
        let mut open = vec![false; count];
        for (domain, counted) in domains.iter().zip(counted.iter()) {
            if let (Some(domain), true) = (domain, counted) {
                open[*domain] = true;
            }
        }
        Self {
            skew: i64::from(one.max_skew),
            least_domains: one.min_domains.and_then(|least| usize::try_from(least).ok()).unwrap_or(1),
            domains,
            counted,
            members: shapes.iter().map(selected).collect(),
            counts: vec![0; count],
            least: (0, open.iter().filter(|open| **open).count()),
            open: open.into(),
            required: one.required,
        }
    }

    fn add(&mut self, domain: usize) {
        self.counts[domain] += 1;
        if self.open[domain] && self.counts[domain] == self.least.0 + 1 {
            self.least.1 -= 1;
            if self.least.1 == 0 {
                self.least = self.level(domain, 0);
            }
        }
    }

    /// The least count of the domains that count, with so many more in one of them, and how many have it.
    fn level(&self, own: usize, more: i64) -> (i64, usize) {
        let open = || (0..self.counts.len()).filter(|domain| self.open[*domain]);
        let count = |domain: usize| self.counts[domain] + if domain == own { more } else { 0 };
        let least = open().map(count).min().unwrap_or(0);
        (least, open().filter(|domain| count(*domain) == least).count())
    }

    /// How many domains count.
    fn open(&self) -> usize {
        self.open.iter().filter(|open| **open).count()
    }

    /// Whether there is more than one domain, or has to be.
    fn has_several(&self) -> bool {
        self.least_domains > 1 || self.open() > 1
    }

    fn permits(&self, shape: usize, node: usize, guests: i64) -> bool {
        let Some(own) = self.domains[node] else { return false };
        let guests = if self.counted[node] { guests } else { 0 };
        let alone = guests > 0 && self.least == (self.counts[own], 1);
        let least = if alone { self.level(own, guests).0 } else { self.least.0 };
        let least = if self.least_domains > 1 && self.open() < self.least_domains { 0 } else { least };
        self.counts[own] + guests + i64::from(self.members[shape]) - least <= self.skew
    }
}

impl Near {
    fn new(owner: &PodShape, shapes: &[PodShape], nodes: &[Node]) -> Option<Self> {
        let terms: Vec<&PodAffinityTerm> =
            owner.pod_affinity.iter().filter(|one| !one.anti && one.weight.is_none()).collect();
        if terms.is_empty() {
            return None;
        }
        let (domains, counts): (Vec<_>, _) = terms
            .iter()
            .map(|term| {
                let (domains, count) = domains(&term.topology_key, nodes);
                (domains, vec![0; count])
            })
            .unzip();
        let members = shapes.iter().map(|shape| terms.iter().all(|term| selected(term, shape))).collect();
        Some(Self { domains: domains.into(), counts, members, total: 0 })
    }

    fn permits(&self, shape: usize, node: usize, guests: i64) -> bool {
        let there = |(domains, counts): (&Rc<[Option<usize>]>, &Vec<i64>)| {
            domains[node].is_some_and(|domain| guests > 0 || counts[domain] > 0)
        };
        let labelled = self.domains.iter().all(|domains| domains[node].is_some());
        let first = self.total == 0 && guests == 0 && self.members[shape];
        labelled && (first || self.domains.iter().zip(&self.counts).all(there))
    }
}

fn selected(term: &PodAffinityTerm, shape: &PodShape) -> bool {
    term.namespaces.contains(&shape.namespace) && term.selector.as_ref().is_some_and(|one| matches(one, shape))
}

/// The domain of each node, by number, and how many there are.
fn domains(key: &str, nodes: &[Node]) -> (Rc<[Option<usize>]>, usize) {
    let mut numbers: BTreeMap<&str, usize> = BTreeMap::new();
    let of_nodes = nodes
        .iter()
        .map(|node| {
            let next = numbers.len();
            domain(key, node).map(|domain| *numbers.entry(domain).or_insert(next))
        })
        .collect();
    (of_nodes, numbers.len())
}

fn domain<'n>(key: &str, node: &'n Node) -> Option<&'n str> {
    let key = label::normalized(key);
    if key == label::HOSTNAME { Some(node.name.as_str()) } else { lookup(&node.labels, key) }
}

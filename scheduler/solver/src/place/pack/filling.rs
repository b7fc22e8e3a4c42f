//! Fills one node of an offering with pods.

use super::Packer;
use super::items::{Class, ClassId, Entry, Take};
use super::left::Left;
use crate::input::custom_labels::{Narrowed, combine};
use crate::input::intern::{Amounts, Bits, add, fits, how_many};
use crate::place::hostname_topology::Tally;
use crate::place::launch;
use plimsoll_kubesched::ports_conflict;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::HostPort;

/// Number of consecutive items that do not fit after which a filling ends. Little capacity is left by then. With tens
/// of thousands of different pods, most of the time would otherwise be spent on it.
pub(super) const MAX_MISSES: usize = 4_000;
/// Maximum number of passes over the items: one, and one for each link of a chain of pods that follow each other to
/// their host.
const PASSES: usize = 4;
/// Work of a filling in addition to the visited items, and for each item that is placed. An item that does not fit
/// counts one.
const COST: (u64, u64) = (10, 4);

/// Content of one node.
#[derive(Debug, Clone)]
pub(super) struct Filled {
    pub(super) take: Take,
    pub(super) load: Amounts,
    pub(super) custom: Narrowed,
    /// Worth per price, once computed.
    pub(super) rate: f64,
}

/// A node while it is filled.
pub(super) struct Open<'v> {
    pub(super) offering: Id<Offering>,
    pub(super) room: Amounts,
    /// Host ports of DaemonSets.
    reserved: &'v [HostPort],
    ports: Vec<&'v HostPort>,
    tally: Tally,
    pub(super) filled: Filled,
    /// Whether the node accepts no more pods of each class.
    closed: IndexVec<Class<'static>, bool>,
    /// For pools with strict `minValues`: offerings that accept the current pods, regardless of capacity.
    accept: Option<Bits<Offering>>,
}

impl Filled {
    pub(super) fn takes(&self, item: Id<Entry>) -> bool {
        self.take.iter().any(|(one, _)| *one == item)
    }
}

impl Packer<'_, '_> {
    /// Fills a node with as many pods of `left` as fit, in the order of items. An exotic node is filled with pods that
    /// need one first, and gets no others without them.
    pub(super) fn fill(&self, offering: Id<Offering>, left: &Left, work: &mut u64) -> Filled {
        let mut node = self.open(offering);
        let is_exotic = self.view.is_exotic(offering);
        if is_exotic {
            self.fill_needing(&mut node, left, work);
        }
        self.fill_further(node, left, is_exotic, work)
    }

    /// Fills a node with one pod of each item that others must join, then with those others, then with all other items.
    pub(super) fn fill_joiners_first(&self, offering: Id<Offering>, left: &Left, work: &mut u64) -> Filled {
        let mut node = self.open(offering);
        for joiner in left.items().filter(|item| self.class(*item).seeks_host) {
            *work = work.saturating_sub(1);
            if node.filled.takes(joiner) {
                continue;
            }
            let is_alone = node.tally.limit(&self.context.topology.host_rules, self.class(joiner).hosts, false) == 0;
            let mut joined = self.joined_by(joiner, left).filter(|item| !node.filled.takes(*item));
            if let Some(item) = joined.next().filter(|_| is_alone) {
                let count = if self.items[item].on_one_node { left.counts[item] } else { 1 };
                self.put(&mut node, item, count);
            }
            self.put(&mut node, joiner, left.counts[joiner]);
        }
        self.fill_further(node, left, true, work)
    }

    /// Items without which `joiner` has no place on a new node, and which depend on no others themselves.
    pub(super) fn joined_by<'l>(&'l self, joiner: Id<Entry>, left: &'l Left) -> impl Iterator<Item = Id<Entry>> + 'l {
        let owns = &self.class(joiner).hosts.owns;
        left.items().filter(move |item| {
            let class = self.class(*item);
            let is_first = !class.seeks_host || self.items[*item].on_one_node;
            *item != joiner && is_first && class.hosts.matches.iter().any(|group| owns.contains(group))
        })
    }

    fn open(&self, offering: Id<Offering>) -> Open<'_> {
        let view = &self.view.offerings[offering];
        Open {
            offering,
            room: view.room.clone(),
            reserved: &view.ports,
            ports: Vec::new(),
            tally: Tally::default(),
            filled: Filled { take: Vec::new(), load: vec![0; self.width], custom: Narrowed::new(), rate: 0.0 },
            closed: IndexVec::filled(false, self.classes.len()),
            accept: self.view.strict_min_values.then(|| self.view.usable.clone()),
        }
    }

    /// Fills the node with as many of `left` as it takes, items in order. With `again`, without more pods of the items
    /// that it has.
    fn fill_further<'p>(&'p self, mut node: Open<'p>, left: &Left, again: bool, work: &mut u64) -> Filled {
        for pass in 0..PASSES {
            let before = node.filled.take.len();
            // Pods that need other pods on their host are placed in a later pass.
            if !self.pass(&mut node, left, again || pass > 0, work) || node.filled.take.len() == before {
                break;
            }
        }
        let taken = u64::try_from(node.filled.take.len()).unwrap_or(u64::MAX);
        *work = work.saturating_sub(COST.0.saturating_add(COST.1.saturating_mul(taken)));
        if self.view.is_exotic(node.offering) && !self.any_needs_exotic(&node.filled.take) {
            return self.open(node.offering).filled;
        }
        node.filled
    }

    /// Makes one pass over the remaining items. If `again`, some items may be on the node already. Returns whether pods
    /// wait for others.
    fn pass<'p>(&'p self, node: &mut Open<'p>, left: &Left, again: bool, work: &mut u64) -> bool {
        let (mut waiting, mut misses) = (false, 0);
        let (mut visited, mut fresh) = (0, true);
        let mut rest = left.live.as_slice();
        loop {
            if fresh {
                // An item that is larger than the remaining capacity, relative to the maximum capacity, cannot fit.
                let part = self.size(&node.room);
                let too_large = |item: &Id<Entry>| self.items[*item].size > part;
                rest = rest.split_at(rest.partition_point(too_large)).1;
                fresh = false;
            }
            let Some((item, behind)) = rest.split_first() else { break };
            let item = *item;
            rest = behind;
            visited += 1;
            let entry = &self.items[item];
            if self.refuses(node, entry.class) || left.counts[item] == 0 || !fits(self.requests(item), &node.room) {
                misses += usize::from(!node.filled.take.is_empty());
                if misses > MAX_MISSES
                    || self.least.row(item).iter().zip(&node.room).any(|(least, room)| *least > 0 && least > room)
                {
                    break;
                }
                continue;
            }
            if again && node.filled.takes(item) {
                continue;
            }
            if self.put(node, item, left.counts[item]) > 0 {
                (misses, fresh) = (0, true);
            } else {
                waiting |= self.classes[entry.class].seeks_host;
            }
        }
        *work = work.saturating_sub(visited);
        waiting
    }

    /// Whether the node accepts no pods of the class, or no more.
    fn refuses(&self, node: &Open<'_>, class: ClassId) -> bool {
        node.closed[class] || !self.classes[class].any.has(node.offering)
    }

    /// Places up to `count` pods of `item` on the node. Returns the number of placed pods.
    pub(super) fn put<'p>(&'p self, node: &mut Open<'p>, item: Id<Entry>, count: usize) -> usize {
        let (on_one_node, number) = (self.items[item].on_one_node, self.items[item].class);
        let class = &self.classes[number];
        let requests = self.requests(item);
        let mut n = how_many(requests, &node.room, count);
        if n == 0 || (on_one_node && n < count) || self.refuses(node, number) {
            return 0;
        }
        if !class.hosts.is_free() {
            let limit = node.tally.limit(&self.context.topology.host_rules, class.hosts, on_one_node);
            // Pods that wait for others may fit later. For all other pods the limit only decreases.
            node.closed[number] = limit == 0 && !class.seeks_host;
            n = n.min(limit);
        }
        if !class.ports.is_empty() {
            let taken = ports_conflict(class.ports, node.reserved) || ports_conflict(class.ports, &node.ports);
            node.closed[number] |= taken;
            n = if taken { 0 } else { n.min(1) };
        }
        let mut custom = None;
        if !class.plain {
            let fitting = class.alternatives.iter().filter(|one| one.offerings.has(node.offering));
            custom = fitting.filter_map(|one| combine(&node.filled.custom, &one.custom)).next();
            if custom.is_none() {
                return 0;
            }
        }
        n = self.within_min_values(node, item, n);
        if n == 0 || (on_one_node && n < count) {
            return 0;
        }
        let times = i64::try_from(n).unwrap_or(i64::MAX);
        add(&mut node.room, requests, -times);
        add(&mut node.filled.load, requests, times);
        node.ports.extend(class.ports);
        if !class.hosts.is_free() {
            node.tally.add(class.hosts, n);
        }
        if let Some(custom) = custom {
            node.filled.custom = custom;
        }
        if let Some(accept) = &mut node.accept {
            accept.keep(&class.any);
        }
        node.filled.take.push((item, n));
        n
    }

    /// How many of `n` pods the node can take so that the offerings that accept all its pods still meet `minValues`.
    fn within_min_values(&self, node: &Open<'_>, item: Id<Entry>, n: usize) -> usize {
        let Some(accept) = node.accept.as_ref().filter(|_| n > 0) else { return n };
        let accept = accept.and(&self.class(item).any);
        let meets = |n: usize| {
            let mut load = node.filled.load.clone();
            add(&mut load, self.requests(item), i64::try_from(n).unwrap_or(i64::MAX));
            let roomy = Bits::of(self.view.offerings.len(), |index| accept.has(index) && fits(&load, self.room(index)));
            launch::acceptable(self.view, &roomy).is_some()
        };
        if meets(n) {
            return n;
        }
        // More pods never leave more offerings. Each step halves the range.
        let (mut least, mut most) = (0, n.saturating_sub(1));
        while least < most {
            let middle = (least + most).div_ceil(2);
            if meets(middle) {
                least = middle;
            } else {
                most = middle - 1;
            }
        }
        least
    }
}

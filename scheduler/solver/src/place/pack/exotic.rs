//! Items that need exotic offerings, and nodes that are exotic because of them. Pods that others must join may need one
//! only together with these.

use super::filling::{MAX_MISSES, Open};
use super::items::Entry;
use super::left::Left;
use super::{Packer, Packing};
use crate::input::intern::fits;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::Id;

impl Packer<'_, '_> {
    /// Whether no ordinary offering can run the item.
    pub(super) fn needs_exotic(&self, item: Id<Entry>) -> bool {
        let entry = &self.items[item];
        let count = if entry.on_one_node { entry.count } else { 1 };
        self.view.needs_exotic(&self.class(item).any, (self.requests(item), count), self.ordinary)
    }

    /// Items that could run on an exotic offering, and of which `packing` left pods that need other pods on their host.
    /// Ordinary offerings may lack capacity for these pods together.
    pub(super) fn joiners_without_host(&self, left: &Left, packing: &Packing) -> Vec<Id<Entry>> {
        if packing.placed == left.pods {
            return Vec::new();
        }
        let mut rest = left.clone();
        packing.patterns.iter().for_each(|pattern| rest.take(self, &pattern.take, pattern.copies));
        let is_joiner = |item: &Id<Entry>| {
            let class = self.class(*item);
            class.seeks_host
                && !self.items[*item].needs_exotic
                && class.any.iter().any(|offering| self.view.is_exotic(offering))
        };
        rest.items().filter(is_joiner).collect()
    }

    /// Records that these items need an exotic offering.
    pub(super) fn note_needs(&mut self, items: &[Id<Entry>]) {
        for item in items {
            self.items[*item].needs_exotic = true;
            let requests = self.requests.row(*item);
            let least = self.least_needing.entry(self.items[*item].class).or_insert_with(|| requests.to_vec());
            least.iter_mut().zip(requests).for_each(|(least, need)| *least = (*least).min(*need));
        }
        self.needing.extend(items);
        // Items are sorted by size.
        self.needing.sort_unstable();
    }

    /// Whether a node with these pods may be exotic.
    pub(super) fn any_needs_exotic(&self, take: &[(Id<Entry>, usize)]) -> bool {
        take.iter().any(|(item, _)| self.items[*item].needs_exotic)
    }

    /// Whether the offering is ordinary, or could run an item that needs an exotic one.
    pub(super) fn is_needed(&self, offering: Id<Offering>) -> bool {
        let room = self.room(offering);
        let can_run =
            |item: &Id<Entry>| self.suits[offering].has(self.items[*item].class) && fits(self.requests(*item), room);
        !self.view.is_exotic(offering) || (self.may_run_needing(offering, room) && self.needing.iter().any(can_run))
    }

    /// False if no item that needs an exotic offering can run on `offering` within `room`. Takes no longer if there are
    /// many such items.
    fn may_run_needing(&self, offering: Id<Offering>, room: &[i64]) -> bool {
        self.least_needing.iter().any(|(class, least)| self.suits[offering].has(*class) && fits(least, room))
    }

    /// Fills an exotic node with pods that need one.
    pub(super) fn fill_needing<'p>(&'p self, node: &mut Open<'p>, left: &Left, work: &mut u64) {
        let (mut misses, mut fresh) = (0, true);
        for item in self.needing.iter().copied().filter(|item| left.counts[*item] > 0) {
            if misses > MAX_MISSES || (fresh && !self.may_run_needing(node.offering, &node.room)) {
                break;
            }
            *work = work.saturating_sub(1);
            fresh = self.put(node, item, left.counts[item]) > 0;
            misses = if fresh { 0 } else { misses + usize::from(!node.filled.take.is_empty()) };
        }
    }
}

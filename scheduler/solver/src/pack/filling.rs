//! What one node of an offering takes, and which other offerings could take the same.

use super::{Packer, Pattern};
use crate::custom::{Narrowed, combine};
use crate::hosts::Tally;
use crate::intern::{Amounts, Bits, add, fits, how_many};
use crate::limits::{self, Headroom};
use crate::select;
use plimsoll_model::snapshot::HostPort;

/// What one node would take.
#[derive(Debug, Clone)]
pub(super) struct Filled {
    /// Item and number of pods.
    pub(super) take: Vec<(usize, usize)>,
    load: Amounts,
    custom: Narrowed,
}

/// A node while it is filled.
struct Open {
    offering: usize,
    room: Amounts,
    ports: Vec<HostPort>,
    tally: Tally,
    filled: Filled,
    /// For pools with `minValues`: offerings that accept what is there, room not looked at.
    accept: Option<Bits>,
}

impl Filled {
    pub(super) fn takes(&self, item: usize) -> bool {
        self.take.iter().any(|(one, _)| *one == item)
    }

    #[expect(clippy::cast_precision_loss, reason = "weights of a heuristic")]
    pub(super) fn worth(&self, worth: &[f64]) -> f64 {
        self.take.iter().map(|(item, n)| worth[*item] * *n as f64).sum()
    }

    /// How many such nodes `left` is enough for.
    pub(super) fn times(&self, left: &[usize]) -> usize {
        self.take.iter().map(|(item, n)| left[*item] / n).min().unwrap_or(0)
    }
}

impl Packer<'_, '_, '_> {
    /// Fills a node with as many of `left` as it takes, items in order; `only` restricts it to one of them.
    pub(super) fn fill(&self, offering: usize, left: &[usize], only: Option<usize>) -> Filled {
        let view = &self.view.offerings[offering];
        let filled = Filled { take: Vec::new(), load: vec![0; view.room.len()], custom: Narrowed::new() };
        let mut node = Open {
            offering,
            room: view.room.clone(),
            ports: view.ports.clone(),
            tally: Tally::default(),
            filled,
            accept: self.view.flexible.then(|| self.view.usable.clone()),
        };
        let mut waiting = false;
        for (item, count) in left.iter().enumerate() {
            if *count > 0 && only.is_none_or(|one| one == item) && self.items[item].any.has(offering) {
                let taken = self.put(&mut node, item, *count);
                waiting |= taken == 0 && !self.world.shapes[self.items[item].item.shape].hosts.owns.is_empty();
            }
        }
        if waiting && !node.filled.take.is_empty() {
            // Those that wait for others to be there first.
            for (item, count) in left.iter().enumerate() {
                if *count > 0 && only.is_none() && self.items[item].any.has(offering) && !node.filled.takes(item) {
                    self.put(&mut node, item, *count);
                }
            }
        }
        node.filled
    }

    /// Puts up to `count` pods of `item` on the node; how many it took.
    fn put(&self, node: &mut Open, item: usize, count: usize) -> usize {
        let entry = &self.items[item];
        let shape = &self.world.shapes[entry.item.shape];
        let mut n = how_many(&shape.requests, &node.room, count);
        if n == 0 || (entry.item.whole && n < count) {
            return 0;
        }
        if !shape.hosts.is_free() {
            n = n.min(node.tally.limit(&self.world.topology.host_rules, &shape.hosts, entry.item.whole));
        }
        let ports = &shape.shape.host_ports;
        if !ports.is_empty() {
            let taken = ports.iter().any(|port| node.ports.iter().any(|other| other.conflicts(port)));
            n = if taken { 0 } else { n.min(1) };
        }
        if n == 0 || (entry.item.whole && n < count) {
            return 0;
        }
        let mut custom = None;
        if !entry.plain {
            let fitting = entry.alternatives.iter().filter(|one| one.offerings.has(node.offering));
            custom = fitting.filter_map(|one| combine(&node.filled.custom, &one.custom)).next();
            if custom.is_none() {
                return 0;
            }
        }
        if node.accept.is_some() {
            n = self.flexible(node, item, n);
        }
        if n == 0 || (entry.item.whole && n < count) {
            return 0;
        }
        let times = i64::try_from(n).unwrap_or(i64::MAX);
        add(&mut node.room, &shape.requests, -times);
        add(&mut node.filled.load, &shape.requests, times);
        node.ports.extend(ports.iter().cloned());
        node.tally.add(&shape.hosts, n);
        if let Some(custom) = custom {
            node.filled.custom = custom;
        }
        if let Some(accept) = &mut node.accept {
            accept.keep(&entry.any);
        }
        node.filled.take.push((item, n));
        n
    }

    /// How many of `n` pods the node may take so that `minValues` of the pool still holds for what accepts them all.
    fn flexible(&self, node: &Open, item: usize, n: usize) -> usize {
        let Some(accept) = &node.accept else { return n };
        let mut accept = accept.clone();
        accept.keep(&self.items[item].any);
        let requests = self.requests(item);
        let mut n = n;
        while n > 0 {
            let mut load = node.filled.load.clone();
            add(&mut load, requests, i64::try_from(n).unwrap_or(i64::MAX));
            let roomy = Bits::of(self.view.offerings.len(), |index| accept.has(index) && fits(&load, self.room(index)));
            if select::acceptable(self.view, &roomy).is_some() {
                return n;
            }
            n /= 2;
        }
        0
    }

    /// The pattern of nodes that are filled so; `None` if `minValues` or a limit rules it out.
    pub(super) fn pattern(&self, offering: usize, filled: Filled, copies: usize, limit: &Headroom) -> Option<Pattern> {
        let own = self.view.offerings[offering].type_index;
        let mut pattern = Pattern {
            copies,
            take: filled.take,
            load: filled.load,
            custom: filled.custom,
            charge: self.view.types[own].capacity.clone(),
            accept: Bits::default(),
            price: 0,
        };
        if self.view.flexible {
            pattern.accept = self.accept(&pattern);
            pattern.charge = limits::charge(self.view, &pattern.accept, own, limit)?;
            let within = limits::within(self.view, &pattern.accept, &pattern.charge, limit, 1, false);
            pattern.price = within.first().map(|cheapest| self.view.price(cheapest))?;
        } else {
            // Whatever is no candidate has one that is as good and no dearer.
            let counts = |index: usize| &self.view.types[self.view.offerings[index].type_index].capacity;
            let small = |index: usize| {
                let pairs = limit.iter().zip(counts(index).iter().zip(&pattern.charge));
                pairs.into_iter().all(|(limit, (theirs, mine))| limit.is_none() || theirs <= mine)
            };
            let cheapest = self.candidates.iter().find(|index| small(**index) && self.holds(**index, &pattern))?;
            pattern.price = self.view.price(*cheapest);
        }
        pattern.copies = limits::times(limit, &pattern.charge, copies);
        (pattern.copies > 0).then_some(pattern)
    }

    /// All offerings that could be a node of the pattern.
    pub(super) fn accept(&self, pattern: &Pattern) -> Bits {
        let mut accept = self.view.usable.clone();
        pattern.take.iter().for_each(|(item, _)| accept.keep(&self.items[*item].any));
        accept.retain(|index| self.holds(index, pattern));
        accept
    }

    /// Whether a node of that offering could hold the pattern's pods.
    fn holds(&self, offering: usize, pattern: &Pattern) -> bool {
        let view = &self.view.offerings[offering];
        fits(&pattern.load, &view.room)
            && pattern.take.iter().all(|(item, _)| {
                let entry = &self.items[*item];
                let ports = &self.world.shapes[entry.item.shape].shape.host_ports;
                let clash = ports.iter().any(|port| view.ports.iter().any(|other| other.conflicts(port)));
                // Only alternatives that the node's open labels, as narrowed so far, still satisfy.
                let agrees = |one: &crate::offerings::Alternative| {
                    one.offerings.has(offering)
                        && combine(&pattern.custom, &one.custom).as_ref() == Some(&pattern.custom)
                };
                !clash && if entry.plain { entry.any.has(offering) } else { entry.alternatives.iter().any(agrees) }
            })
    }
}

//! Determines which offerings could run a pattern, and the price of the cheapest.

use super::filling::Filled;
use super::items::{ClassId, Take};
use super::{Packer, Packing, Pattern};
use crate::input::custom_labels::{Narrowed, combine};
use crate::input::intern::{Bits, fits};
use crate::place::launch;
use crate::place::limits::{self, Headroom};
use plimsoll_kubesched::ports_conflict;
use plimsoll_model::catalog::Offering;
use plimsoll_model::index::{Id, IndexVec};
use std::collections::BTreeMap;

impl Packer<'_, '_> {
    /// Creates a pattern of nodes with this filling. `None` if `minValues` or a limit excludes it.
    pub(super) fn pattern(
        &self,
        offering: Id<Offering>,
        filled: &Filled,
        copies: usize,
        limit: &Headroom,
    ) -> Option<Pattern> {
        let mut pattern = Pattern {
            copies,
            take: filled.take.clone(),
            load: filled.load.clone(),
            custom: filled.custom.clone(),
            charge: self.view.capacity(offering).clone(),
            accept: Bits::default(),
            price: 0,
        };
        if self.view.strict_min_values {
            pattern.accept = self.accept(&pattern, usize::MAX);
            pattern.charge = limits::charge(self.view, &pattern.accept, offering, limit)?;
            let within = limits::within(self.view, &pattern.accept, &pattern.charge, limit);
            pattern.price = within.first().map(|cheapest| self.view.price(cheapest))?;
        } else {
            // For each offering that is not a candidate, there is a candidate that is as good and not more expensive.
            let small = |offering: Id<Offering>| self.counts_no_more(offering, &pattern.charge, limit);
            let cheapest = self.candidates.iter().find(|one| self.holds(**one, &pattern) && small(**one))?;
            pattern.price = self.view.price(*cheapest);
        }
        pattern.copies = limits::times(limit, &pattern.charge, copies);
        (pattern.copies > 0).then_some(pattern)
    }

    /// Sets the accepted offerings of each pattern: as many as a launch may list, or all of them if limits restrict the
    /// list later.
    pub(super) fn accept_all(&self, packing: &mut Packing) {
        let most = if self.view.strict_min_values || self.limited { usize::MAX } else { launch::MAX_TYPES };
        // By pods. Custom labels may differ between patterns with the same pods.
        let mut known: BTreeMap<Take, (Narrowed, Bits<Offering>)> = BTreeMap::new();
        for pattern in &mut packing.patterns {
            let found = known.get(&pattern.take).filter(|(custom, _)| *custom == pattern.custom);
            let accept = found.map(|(_, accept)| accept.clone()).unwrap_or_else(|| {
                let accept = self.accept(pattern, most);
                known.insert(pattern.take.clone(), (pattern.custom.clone(), accept.clone()));
                accept
            });
            pattern.accept = accept;
        }
    }

    /// Offerings that could run the pattern, from the `most` cheapest instance types.
    fn accept(&self, pattern: &Pattern, most: usize) -> Bits<Offering> {
        let mut any = self.view.usable.clone();
        let mut classes: Vec<ClassId> = pattern.take.iter().map(|(item, _)| self.items[*item].class).collect();
        classes.sort_unstable();
        classes.dedup();
        classes.iter().for_each(|class| any.keep(&self.classes[*class].any));
        let may_be_exotic = self.any_needs_exotic(&pattern.take);
        let mut accept = Bits::none(self.view.offerings.len());
        let (mut known, mut types) = (IndexVec::filled(false, self.view.types.len()), 0);
        for index in any.iter() {
            let kind = self.view.offerings[index].type_index;
            if self.view.is_exotic(index) && !may_be_exotic {
                continue;
            }
            if (types < most || known[kind]) && self.agrees(index, pattern, &classes) {
                types += usize::from(!std::mem::replace(&mut known[kind], true));
                accept.insert(index);
            }
        }
        accept
    }

    /// Whether a node of the offering could run the pattern's pods.
    fn holds(&self, offering: Id<Offering>, pattern: &Pattern) -> bool {
        let is_allowed = !self.view.is_exotic(offering) || self.any_needs_exotic(&pattern.take);
        is_allowed && fits(&pattern.load, self.room(offering)) && {
            let classes: Vec<ClassId> = pattern.take.iter().map(|(item, _)| self.items[*item].class).collect();
            classes.iter().all(|class| self.classes[*class].any.has(offering))
                && self.agrees(offering, pattern, &classes)
        }
    }

    /// Like [`Self::holds`], for an offering that all classes accept.
    fn agrees(&self, offering: Id<Offering>, pattern: &Pattern, classes: &[ClassId]) -> bool {
        let view = &self.view.offerings[offering];
        fits(&pattern.load, &view.room)
            && classes.iter().all(|class| {
                let class = &self.classes[*class];
                let clash = ports_conflict(class.ports, &view.ports);
                // Only alternatives that are compatible with the narrowed custom labels of the node.
                let agrees = |one: &crate::input::offerings::Alternative| {
                    one.offerings.has(offering)
                        && combine(&pattern.custom, &one.custom).as_ref() == Some(&pattern.custom)
                };
                !clash && (class.plain || class.alternatives.iter().any(agrees))
            })
    }
}

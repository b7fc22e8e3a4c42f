//! Rules about pods that share a host: how many at most, none beside each other, only beside others.

use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::HostPort;
use std::collections::BTreeMap;

/// What a group of pods says about one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostRule {
    /// Owners may come as long as at most so many members are there, themselves included.
    MaxMembers(usize),
    /// Owners and members exclude each other.
    Exclusive,
    /// Owners avoid members, who need not care.
    AvoidMembers,
    /// Owners come only where members are.
    NeedsMember,
}

/// Of which groups a shape is an owner (it has the constraint) and a member (the selector matches it), by group.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership<G> {
    pub(crate) owns: Vec<Id<G>>,
    pub(crate) matches: Vec<Id<G>>,
}

/// Members and owners on one host, by group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally(BTreeMap<Id<HostRule>, (usize, usize)>);

// Derived, it would ask the same of `G`.
impl<G> Default for Membership<G> {
    fn default() -> Self {
        Self { owns: Vec::new(), matches: Vec::new() }
    }
}

impl<G> Membership<G> {
    pub(crate) fn is_free(&self) -> bool {
        self.owns.is_empty() && self.matches.is_empty()
    }
}

/// Pods per host where nothing but capacity limits them; far above what any host takes.
const UNLIMITED: usize = usize::MAX >> 16;

/// How many pods with these rules and host ports a host takes at most if it has no others.
pub(crate) fn most_alone(
    rules: &IndexVec<HostRule, HostRule>,
    hosts: &Membership<HostRule>,
    ports: &[HostPort],
) -> usize {
    let most = if ports.is_empty() { UNLIMITED } else { 1 };
    most.min(Tally::default().limit(rules, hosts, true))
}

impl Tally {
    fn get(&self, group: Id<HostRule>) -> (usize, usize) {
        self.0.get(&group).copied().unwrap_or_default()
    }

    /// How many pods of such a shape the host may still take; `first` says that of their own kind nobody needs to be there before them.
    pub(crate) fn limit(
        &self,
        rules: &IndexVec<HostRule, HostRule>,
        shape: &Membership<HostRule>,
        first: bool,
    ) -> usize {
        let mut most = usize::MAX;
        for group in &shape.owns {
            let (members, _) = self.get(*group);
            let itself = shape.matches.contains(group);
            most = most.min(match rules.try_get(*group) {
                Some(HostRule::MaxMembers(limit)) if itself => limit.saturating_sub(members),
                Some(HostRule::MaxMembers(limit)) if members > *limit => 0,
                Some(HostRule::Exclusive | HostRule::AvoidMembers) if members > 0 => 0,
                Some(HostRule::Exclusive | HostRule::AvoidMembers) if itself => 1,
                Some(HostRule::NeedsMember) if members == 0 && !(first && itself) => 0,
                _ => usize::MAX,
            });
        }
        for group in &shape.matches {
            let (members, owners) = self.get(*group);
            most = most.min(match rules.try_get(*group) {
                Some(HostRule::Exclusive) if owners > 0 => 0,
                // Whichever comes first, those that count them must find no more than they bear.
                Some(HostRule::MaxMembers(limit)) if owners > 0 => limit.saturating_sub(members),
                _ => usize::MAX,
            });
        }
        most
    }

    /// Notes `count` pods that run there: how many others there are they no longer care, only whom they keep away.
    pub(crate) fn add_bound(
        &mut self,
        rules: &IndexVec<HostRule, HostRule>,
        shape: &Membership<HostRule>,
        count: usize,
    ) {
        for group in &shape.matches {
            self.0.entry(*group).or_default().0 += count;
        }
        for group in shape.owns.iter().filter(|group| rules.try_get(**group) == Some(&HostRule::Exclusive)) {
            self.0.entry(*group).or_default().1 += count;
        }
    }

    /// Notes `count` more pods of such a shape.
    pub(crate) fn add(&mut self, shape: &Membership<HostRule>, count: usize) {
        for group in &shape.matches {
            self.0.entry(*group).or_default().0 += count;
        }
        for group in &shape.owns {
            self.0.entry(*group).or_default().1 += count;
        }
    }
}

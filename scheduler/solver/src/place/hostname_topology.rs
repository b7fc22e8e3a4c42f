//! Topology rules within one host: spread, anti-affinity and affinity by hostname.

use plimsoll_kubesched::ports_conflict;
use plimsoll_model::index::{Id, IndexVec};
use plimsoll_model::snapshot::HostPort;
use std::borrow::Borrow;
use std::collections::BTreeMap;

/// A rule of a group of pods for one host.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum HostRule {
    /// At most this many members may run on the owner's host, including the owner if it is a member.
    MaxMembers(usize),
    /// Owners and members exclude each other.
    Exclusive,
    /// Owners avoid members, but members do not avoid owners.
    AvoidMembers,
    /// Owners need a member on their host.
    NeedsMember,
}

/// Groups of a shape: it is an owner if it has the constraint, and a member if the selector matches it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Membership<G> {
    pub(crate) owns: Vec<Id<G>>,
    pub(crate) matches: Vec<Id<G>>,
}

/// Numbers of members and owners on one host, by group.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(crate) struct Tally(BTreeMap<Id<HostRule>, (usize, usize)>);

impl<G> Membership<G> {
    pub(crate) fn is_free(&self) -> bool {
        self.owns.is_empty() && self.matches.is_empty()
    }
}

/// Number of pods per host without rules: far more than any host can run.
const UNLIMITED: usize = usize::MAX >> 16;

/// Maximum number of pods with these rules and host ports on an otherwise empty host. If they need other pods beside
/// them, these are there.
pub(crate) fn most_alone(
    rules: &IndexVec<HostRule, HostRule>,
    hosts: &Membership<HostRule>,
    ports: &[HostPort],
) -> usize {
    let most = if ports.is_empty() { UNLIMITED } else { 1 };
    let alone = |group: &Id<HostRule>| match rules.try_get(*group) {
        Some(HostRule::MaxMembers(limit)) => *limit,
        Some(HostRule::Exclusive | HostRule::AvoidMembers) => 1,
        Some(HostRule::NeedsMember) | None => UNLIMITED,
    };
    hosts.owns.iter().filter(|group| hosts.matches.contains(group)).map(alone).fold(most, usize::min)
}

impl Tally {
    fn get(&self, group: Id<HostRule>) -> (usize, usize) {
        self.0.get(&group).copied().unwrap_or_default()
    }

    /// How many more pods of the shape the host may run. If `first`, a pod that matches its own affinity needs no
    /// member before it.
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
                // The order of placement is open, so owners must not have too many members even if the members come
                // last.
                Some(HostRule::MaxMembers(limit)) if owners > 0 => limit.saturating_sub(members),
                _ => usize::MAX,
            });
        }
        most
    }

    /// How many of `most` more pods with these rules and host ports the host may run, beside pods with the ports
    /// `taken`. See [`Self::limit`] for `first`.
    pub(crate) fn most_beside(
        &self,
        rules: &IndexVec<HostRule, HostRule>,
        (hosts, ports): (&Membership<HostRule>, &[HostPort]),
        taken: &[impl Borrow<HostPort>],
        first: bool,
        most: usize,
    ) -> usize {
        let most = match ports {
            [] => most,
            _ if ports_conflict(ports, taken) => 0,
            _ => most.min(1),
        };
        if hosts.is_free() { most } else { most.min(self.limit(rules, hosts, first)) }
    }

    /// Adds `count` running pods. Their own limits no longer apply, only their exclusion of other pods.
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

    /// Adds `count` pods of the shape.
    pub(crate) fn add(&mut self, shape: &Membership<HostRule>, count: usize) {
        for group in &shape.matches {
            self.0.entry(*group).or_default().0 += count;
        }
        for group in &shape.owns {
            self.0.entry(*group).or_default().1 += count;
        }
    }
}

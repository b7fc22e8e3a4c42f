//! The actuator's ledger as the watcher knows it.

use plimsoll_model::execution::{InFlightClaim, LedgerUpdate};
use plimsoll_model::snapshot::{LedgerPosition, UnavailableOffering};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;

/// Offerings without capacity, each with the time at which it may be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct Unavailable(Vec<(UnavailableOffering, Timestamp)>);

impl Unavailable {
    /// As told at `now`.
    #[must_use]
    pub fn told(offerings: Vec<UnavailableOffering>, now: Timestamp) -> Self {
        Self(offerings.into_iter().map(|offering| (offering.clone(), now.plus(offering.remaining))).collect())
    }

    /// Those that are still to be left alone at `now`, with what remains of their time (rule 23).
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Vec<UnavailableOffering> {
        let left = self.0.iter().filter(|(_, until)| *until > now);
        left.map(|(offering, until)| UnavailableOffering { remaining: until.since(now), ..offering.clone() }).collect()
    }
}

/// Claims by name.
type Claims = BTreeMap<String, InFlightClaim>;

/// What is in flight. Nothing is known before the first whole ledger has come.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    position: Option<LedgerPosition>,
    claims: Claims,
    unavailable: Option<Unavailable>,
    /// What a new stream has sent of its whole ledger so far; what was known holds until it is complete.
    staged: Option<(Claims, Option<Unavailable>)>,
}

impl Ledger {
    /// Of which nothing is known.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A new stream begins: it sends the whole ledger first.
    pub fn restart(&mut self) {
        self.staged = Some((Claims::new(), None));
    }

    /// Takes an update that came at `now`. Returns whether what is known changed.
    pub fn apply(&mut self, update: LedgerUpdate, now: Timestamp) -> bool {
        let told = update.unavailable_offerings.map(|offerings| Unavailable::told(offerings, now));
        let (claims, unavailable) = match &mut self.staged {
            Some((claims, unavailable)) => (claims, unavailable),
            None => (&mut self.claims, &mut self.unavailable),
        };
        for name in &update.removed {
            claims.remove(name);
        }
        claims.extend(update.upserted.into_iter().map(|claim| (claim.name.clone(), claim)));
        if told.is_some() {
            *unavailable = told;
        }
        if let Some((claims, unavailable)) = self.staged.take_if(|_| update.complete) {
            self.claims = claims;
            self.unavailable = unavailable;
        }
        if self.staged.is_some() {
            return false;
        }
        self.position = Some(update.position);
        true
    }

    /// Up to which change it is known; `None` before the first whole ledger.
    #[must_use]
    pub fn position(&self) -> Option<LedgerPosition> {
        self.position
    }

    /// Claims in flight, by name.
    pub fn claims(&self) -> impl Iterator<Item = &InFlightClaim> {
        self.claims.values()
    }

    /// Offerings without capacity; `None` if it does not say.
    #[must_use]
    pub fn unavailable(&self) -> Option<&Unavailable> {
        self.unavailable.as_ref()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::CapacityType;
    use plimsoll_model::execution::ClaimState;
    use plimsoll_model::time::Millis;

    fn claim(name: &str) -> InFlightClaim {
        InFlightClaim {
            name: name.to_owned(),
            uid: String::new(),
            node_pool: "default".into(),
            action_id: None,
            pods: Vec::new(),
            limit_usage: Default::default(),
            labels: Default::default(),
            taints: Vec::new(),
            allocatable: Default::default(),
            state: ClaimState::Launching,
            launched: None,
        }
    }

    fn update(sequence: u64, upserted: &[&str], complete: bool) -> LedgerUpdate {
        LedgerUpdate {
            position: LedgerPosition { epoch: 1, sequence },
            upserted: upserted.iter().map(|name| claim(name)).collect(),
            complete,
            ..LedgerUpdate::default()
        }
    }

    fn names(ledger: &Ledger) -> Vec<&str> {
        ledger.claims().map(|claim| claim.name.as_str()).collect()
    }

    #[test]
    fn nothing_is_known_before_the_whole_has_come() {
        let mut ledger = Ledger::new();
        ledger.restart();
        assert!(!ledger.apply(update(5, &["a"], false), Timestamp(0)));
        assert_eq!((ledger.position(), names(&ledger).len()), (None, 0));
        assert!(ledger.apply(update(5, &["b"], true), Timestamp(0)));
        assert_eq!(ledger.position(), Some(LedgerPosition { epoch: 1, sequence: 5 }));
        assert_eq!(names(&ledger), ["a", "b"]);
        let change = LedgerUpdate { removed: vec!["a".to_owned()], ..update(6, &["c"], false) };
        assert!(ledger.apply(change, Timestamp(0)));
        assert_eq!(names(&ledger), ["b", "c"]);
    }

    #[test]
    fn a_new_stream_replaces_what_was_known_in_one_step() {
        let mut ledger = Ledger::new();
        ledger.restart();
        ledger.apply(update(5, &["a", "b"], true), Timestamp(0));
        ledger.restart();
        ledger.apply(update(9, &["c"], false), Timestamp(0));
        assert_eq!(names(&ledger), ["a", "b"], "half a ledger is not known");
        assert_eq!(ledger.position().map(|position| position.sequence), Some(5));
        ledger.apply(update(9, &["b"], true), Timestamp(0));
        assert_eq!(names(&ledger), ["b", "c"], "what has not come again is gone");
    }

    #[test]
    fn what_is_left_alone_is_so_for_the_rest_of_its_time() {
        let offering = UnavailableOffering {
            instance_type: Some("c5.large".to_owned()),
            zone: None,
            capacity_type: CapacityType::Spot,
            remaining: Millis(3000),
        };
        let unavailable = Unavailable::told(vec![offering], Timestamp(10_000));
        assert_eq!(unavailable.at(Timestamp(12_000))[0].remaining, Millis(1000));
        assert_eq!(unavailable.at(Timestamp(13_000)), []);
    }
}

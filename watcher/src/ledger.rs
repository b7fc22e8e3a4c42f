//! The watcher's copy of the actuator's ledger.

use plimsoll_model::execution::{InFlightClaim, LedgerUpdate};
use plimsoll_model::snapshot::{LedgerPosition, ReservationCount, UnavailableOffering};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Offerings without capacity, each with the time at which it may be tried again.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct UnavailableOfferings(Vec<(UnavailableOffering, Timestamp)>);

impl UnavailableOfferings {
    /// Converts the remaining durations of offerings received at `now` to expiry times.
    #[must_use]
    pub fn received(offerings: Vec<UnavailableOffering>, now: Timestamp) -> Self {
        Self(offerings.into_iter().map(|offering| (offering.clone(), now.plus(offering.remaining))).collect())
    }

    /// Offerings that are still unavailable at `now`, with their remaining durations.
    #[must_use]
    pub fn at(&self, now: Timestamp) -> Vec<UnavailableOffering> {
        let active = self.0.iter().filter(|(_, until)| *until > now);
        active
            .map(|(offering, until)| UnavailableOffering { remaining: until.since(now), ..offering.clone() })
            .collect()
    }
}

/// What a stream has told so far.
#[derive(Debug, Clone, Default)]
struct Content {
    /// In-flight claims by name. Each build of a snapshot shares them.
    claims: BTreeMap<String, Arc<InFlightClaim>>,
    unavailable: Option<UnavailableOfferings>,
    reservations: Vec<ReservationCount>,
}

/// In-flight claims, offerings without capacity and free instances of capacity reservations. The ledger is unknown
/// until the first full ledger is complete.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    position: Option<LedgerPosition>,
    content: Content,
    /// Content of a new stream. The previous content stays valid until the stream is complete.
    staged: Option<Content>,
}

impl Ledger {
    /// Marks the start of a new stream, which begins with a full ledger.
    pub fn restart(&mut self) {
        self.staged = Some(Content::default());
    }

    /// Applies an update received at `now`. Returns whether the visible ledger changed.
    pub fn apply(&mut self, update: LedgerUpdate, now: Timestamp) -> bool {
        let content = self.staged.as_mut().unwrap_or(&mut self.content);
        for name in &update.removed {
            content.claims.remove(name);
        }
        content.claims.extend(update.upserted.into_iter().map(|claim| (claim.name.clone(), Arc::new(claim))));
        if let Some(offerings) = update.unavailable_offerings {
            content.unavailable = Some(UnavailableOfferings::received(offerings, now));
        }
        if let Some(reservations) = update.reservations {
            content.reservations = reservations;
        }
        if let Some(complete) = self.staged.take_if(|_| update.complete) {
            self.content = complete;
        }
        if self.staged.is_some() {
            return false;
        }
        self.position = Some(update.position);
        true
    }

    /// Position of the last applied change; `None` until the first full ledger is complete.
    #[must_use]
    pub fn position(&self) -> Option<LedgerPosition> {
        self.position
    }

    /// In-flight claims, ordered by name.
    pub fn claims(&self) -> impl Iterator<Item = &Arc<InFlightClaim>> {
        self.content.claims.values()
    }

    /// Offerings without capacity; `None` if the ledger does not report them.
    #[must_use]
    pub fn unavailable(&self) -> Option<&UnavailableOfferings> {
        self.content.unavailable.as_ref()
    }

    /// Free instances of capacity reservations.
    #[must_use]
    pub fn reservations(&self) -> &[ReservationCount] {
        &self.content.reservations
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
            node_pool: "default".into(),
            state: ClaimState::Launching,
            ..InFlightClaim::default()
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
    fn the_ledger_is_unknown_until_the_first_full_ledger_is_complete() {
        let mut ledger = Ledger::default();
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
    fn free_instances_of_reservations_stay_until_they_change() {
        let counts = |free: &[u32]| -> Vec<ReservationCount> {
            free.iter().map(|free| ReservationCount { id: "cr-1".to_owned(), free: *free }).collect()
        };
        let mut ledger = Ledger::default();
        let told = |sequence, free: Option<&[u32]>| LedgerUpdate {
            reservations: free.map(counts),
            ..update(sequence, &[], true)
        };
        for (sequence, free, expected) in [(1, Some(&[2][..]), &[2][..]), (2, None, &[2]), (3, Some(&[]), &[])] {
            assert!(ledger.apply(told(sequence, free), Timestamp(0)));
            assert_eq!(ledger.reservations(), counts(expected), "{sequence}");
        }
    }

    #[test]
    fn a_new_stream_replaces_the_ledger_in_one_step() {
        let mut ledger = Ledger::default();
        ledger.restart();
        ledger.apply(update(5, &["a", "b"], true), Timestamp(0));
        ledger.restart();
        ledger.apply(update(9, &["c"], false), Timestamp(0));
        assert_eq!(names(&ledger), ["a", "b"], "half a ledger is not known");
        assert_eq!(ledger.position().map(|position| position.sequence), Some(5));
        ledger.apply(update(9, &["b"], true), Timestamp(0));
        assert_eq!(names(&ledger), ["b", "c"], "what has not come again is gone");
    }

    /// An offering without capacity for another three seconds.
    fn offering() -> UnavailableOffering {
        UnavailableOffering {
            instance_type: Some("c5.large".to_owned()),
            zone: None,
            capacity_type: CapacityType::Spot,
            remaining: Millis(3000),
        }
    }

    #[test]
    fn offerings_without_capacity_stay_until_they_change() {
        let mut ledger = Ledger::default();
        assert_eq!(ledger.unavailable(), None);
        for (told, expected) in
            [(Some(vec![offering()]), vec![offering()]), (None, vec![offering()]), (Some(vec![]), vec![])]
        {
            ledger.apply(LedgerUpdate { unavailable_offerings: told, ..update(1, &[], true) }, Timestamp(0));
            assert_eq!(ledger.unavailable().map(|list| list.at(Timestamp(0))), Some(expected));
        }
    }

    #[test]
    fn unavailable_offerings_expire() {
        let unavailable = UnavailableOfferings::received(vec![offering()], Timestamp(10_000));
        assert_eq!(unavailable.at(Timestamp(12_000))[0].remaining, Millis(1000));
        assert_eq!(unavailable.at(Timestamp(13_000)), []);
    }
}

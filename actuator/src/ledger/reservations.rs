//! Free instances of capacity reservations. An admitted launch holds one instance of each reservation that it lists, as
//! a reserved resource, until its instance is launched. So plans of several schedulers together never exceed a
//! reservation.

use super::Ledger;
use super::rejection::Rejection;
use plimsoll_model::catalog::{reservation_of_resource, reservation_resource};
use plimsoll_model::identity::ActionId;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::ReservationCount;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::BTreeMap;

/// How long a count is used while EC2 does not answer, as in Karpenter.
const VALID: Millis = Millis::from_seconds(24 * 3600);

/// What EC2 last said about a reservation, and what happened since.
#[derive(Debug, Clone)]
struct Count {
    free: u32,
    read: Timestamp,
}

/// Counts by id of the reservation.
#[derive(Debug, Clone, Default)]
pub(super) struct Reservations(BTreeMap<String, Count>);

impl Ledger {
    /// Records how many instances EC2 could launch in a reservation.
    pub fn set_reservation(&mut self, id: &str, free: u32, now: Timestamp) {
        self.reservations.0.retain(|_, count| now.since(count.read) < VALID);
        self.reservations.0.insert(id.to_owned(), Count { free, read: now });
    }

    /// Records that EC2 has no capacity in a reservation, or takes it back. Returns whether that is news.
    pub fn reservation_exhausted(&mut self, id: &str) -> bool {
        self.reservations.0.get_mut(id).is_some_and(|count| std::mem::take(&mut count.free) > 0)
    }

    /// Records that an instance was launched in a reservation.
    pub fn reservation_used(&mut self, id: &str) {
        if let Some(count) = self.reservations.0.get_mut(id) {
            count.free = count.free.saturating_sub(1);
        }
    }

    /// Records that an instance of a reservation is gone.
    pub fn reservation_freed(&mut self, id: &str) {
        if let Some(count) = self.reservations.0.get_mut(id) {
            count.free = count.free.saturating_add(1);
        }
    }

    /// Free instances of all reservations. Those held by launches that are not launched yet are among them.
    #[must_use]
    pub fn capacity_reservations(&self) -> Vec<ReservationCount> {
        let counts = self.reservations.0.iter();
        counts.map(|(id, count)| ReservationCount { id: id.clone(), free: count.free }).collect()
    }

    /// Instances of a reservation that no launch holds; zero if the reservation is unknown.
    #[must_use]
    pub fn free_in_reservation(&self, id: &str) -> i64 {
        let free = self.reservations.0.get(id).map_or(0, |count| i64::from(count.free));
        free.saturating_sub(self.held(&reservation_resource(id)))
    }

    /// Instances of a reservation that no other launch holds: an earlier attempt of `action` does not count.
    #[must_use]
    pub fn free_in_reservation_for(&self, action: &ActionId, id: &str) -> i64 {
        let resource = reservation_resource(id);
        let own = self.claims.values().filter(|claim| claim.action.as_ref() == Some(action));
        own.map(|claim| claim.counted.get(&resource)).fold(self.free_in_reservation(id), i64::saturating_add)
    }

    /// The amounts are from annotations, which others may have written.
    fn held(&self, resource: &str) -> i64 {
        self.claims.values().map(|claim| claim.counted.get(resource)).fold(0, i64::saturating_add)
    }

    /// Whether each reservation of `reserve` has a free instance that no other launch holds.
    pub(super) fn check_reservations(&self, reserve: &Resources) -> Result<(), Rejection> {
        for (resource, asked) in reserve.iter() {
            let Some(id) = reservation_of_resource(resource) else { continue };
            if self.free_in_reservation(id) < asked {
                return Err(Rejection::ReservationFull(id.to_owned()));
            }
        }
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::{Admission, ClaimSeed, PoolFacts, reserved_text};
    use plimsoll_model::identity::NodePoolName;
    use plimsoll_model::names::annotation;

    const NOW: Timestamp = Timestamp(1_000);

    fn holding(id: &str) -> Resources {
        Resources::from([(reservation_resource(id).as_str(), 1), ("nodes", 1)])
    }

    #[test]
    fn launches_of_all_pools_together_never_exceed_a_reservation() {
        let (mut ledger, _) = Ledger::from_claims(1, &[]);
        let pools = ["a", "b"].map(NodePoolName::from);
        pools.iter().for_each(|pool| ledger.set_pool(pool, PoolFacts::default()));
        ledger.set_reservation("cr-1", 2, NOW);
        let admit = |ledger: &mut Ledger, pool: &NodePoolName, action: &str| {
            ledger.admit_replacement(pool, &action.into(), holding("cr-1"))
        };
        let admitted = |answer: &Admission| matches!(answer, Admission::Admitted { .. });
        let first = admit(&mut ledger, &pools[0], "one");
        assert!(admitted(&first) && admitted(&admit(&mut ledger, &pools[1], "two")));
        let full = Admission::Rejected(Rejection::ReservationFull("cr-1".to_owned()));
        assert_eq!(admit(&mut ledger, &pools[0], "three"), full);
        let Admission::Admitted { claim, .. } = first else { panic!("{first:?}") };
        ledger.launched(&claim, Resources::from([("nodes", 1)]));
        ledger.reservation_used("cr-1");
        assert_eq!(admit(&mut ledger, &pools[0], "three"), full, "its instance is launched, not gone");
        ledger.reservation_freed("cr-1");
        assert!(admitted(&admit(&mut ledger, &pools[0], "three")));
    }

    #[test]
    fn unknown_exhausted_and_old_reservations_have_no_free_instance() {
        let (mut ledger, _) = Ledger::from_claims(1, &[]);
        assert_eq!(ledger.free_in_reservation("cr-1"), 0);
        ledger.set_reservation("cr-1", 3, NOW);
        assert_eq!(ledger.free_in_reservation("cr-1"), 3);
        assert!(ledger.reservation_exhausted("cr-1") && !ledger.reservation_exhausted("cr-1"));
        assert_eq!(ledger.free_in_reservation("cr-1"), 0);
        ledger.set_reservation("cr-1", 3, NOW);
        ledger.set_reservation("cr-2", 1, NOW.plus(VALID));
        assert_eq!(ledger.capacity_reservations(), [ReservationCount { id: "cr-2".to_owned(), free: 1 }]);
    }

    #[test]
    fn amounts_that_nobody_admitted_do_no_harm() {
        let half = reserved_text(&Resources::from([(reservation_resource("cr-1").as_str(), 1 << 62)]));
        let forged = ["a", "b"].map(|name| ClaimSeed {
            name: name.to_owned(),
            annotations: BTreeMap::from([
                (annotation::RESERVED.to_owned(), half.clone()),
                (annotation::ACTION_ID.to_owned(), name.to_owned()),
            ]),
            ..ClaimSeed::default()
        });
        let (mut ledger, problems) = Ledger::from_claims(1, &forged);
        assert_eq!(problems, []);
        ledger.set_reservation("cr-1", 1, NOW);
        assert!(ledger.free_in_reservation("cr-1") < 0 && ledger.free_in_reservation_for(&"a".into(), "cr-1") <= 1);
    }

    #[test]
    fn an_earlier_attempt_of_a_standalone_claim_does_not_count_against_it() {
        let (mut ledger, _) = Ledger::from_claims(1, &[]);
        ledger.set_reservation("cr-1", 1, NOW);
        let admit = |ledger: &mut Ledger, name: &str| ledger.admit_standalone(name, &name.into(), holding("cr-1"));
        let admitted = |answer: &Admission| matches!(answer, Admission::Admitted { .. });
        assert!(admitted(&admit(&mut ledger, "one")));
        assert_eq!(ledger.free_in_reservation_for(&"one".into(), "cr-1"), 1);
        assert_eq!(ledger.free_in_reservation_for(&"two".into(), "cr-1"), 0);
        assert!(admitted(&admit(&mut ledger, "one")));
        let full = Admission::Rejected(Rejection::ReservationFull("cr-1".to_owned()));
        assert_eq!(admit(&mut ledger, "two"), full);
        assert!(ledger.reservation_exhausted("cr-1"));
        assert_eq!(admit(&mut ledger, "one"), full);
        assert_eq!(ledger.free_in_reservation("cr-1"), -1, "the earlier attempt may have been written");
    }
}

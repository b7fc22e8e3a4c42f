//! The zones that the cluster is shifted away from (AWS ARC zonal shift), as ARC last said. In memory only: a process
//! reads them before it does anything else.

use crate::ports::ZonalShift;
use crate::stores::Stores;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::label;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// How long an autoshift counts after the last read that reported it. AWS ends autoshifts, so the report has no end; a
/// read every 30 s renews this. Without a bound, a lost permission would keep instances running forever.
pub const AUTOSHIFT_VALID: Millis = Millis::from_seconds(3600);

/// Zone ids, each with the end of its shift.
type Shifts = BTreeMap<String, Timestamp>;

/// The shifted zones. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub struct ZonalShifts {
    shifts: watch::Sender<Arc<Shifts>>,
}

impl ZonalShifts {
    /// Replaces all shifts by those of an answer. A cancelled shift is no longer in the answer. Notifies subscribers if
    /// the set of zones changes.
    pub fn replace(&self, answer: &[ZonalShift], now: Timestamp) {
        let mut shifts = Shifts::new();
        for shift in answer {
            let end = shift.expires.unwrap_or_else(|| now.plus(AUTOSHIFT_VALID));
            let longest = shifts.entry(shift.zone_id.clone()).or_insert(end);
            *longest = end.max(*longest);
        }
        self.set(shifts, now);
    }

    /// Forgets shifts that are over. Notifies subscribers if there were any.
    pub fn expire(&self, now: Timestamp) {
        // The lock must be released before the change.
        let shifts = Shifts::clone(&self.shifts.borrow());
        self.set(shifts, now);
    }

    fn set(&self, mut shifts: Shifts, now: Timestamp) {
        shifts.retain(|_, end| *end > now);
        self.shifts.send_if_modified(|current| {
            let differs = !current.keys().eq(shifts.keys());
            *current = Arc::new(shifts);
            differs
        });
    }

    /// Ids of the shifted zones, each with the end of its shift as far as it is known.
    #[must_use]
    pub fn ids(&self, now: Timestamp) -> BTreeMap<String, Timestamp> {
        let shifts = self.shifts.borrow();
        shifts.iter().filter(|(_, end)| **end > now).map(|(id, end)| (id.clone(), *end)).collect()
    }

    /// When the first shift is over, unless an answer changes that.
    #[must_use]
    pub fn next_end(&self) -> Option<Timestamp> {
        self.shifts.borrow().values().min().copied()
    }

    /// Subscribes to changes of the set of zones.
    #[must_use]
    pub fn subscribe(&self) -> watch::Receiver<Arc<BTreeMap<String, Timestamp>>> {
        self.shifts.subscribe()
    }

    /// Names of the shifted zones. Node classes know the id of each zone that they have a subnet in, and NodeClaims
    /// that of their own zone.
    #[must_use]
    pub fn zones(&self, stores: &Stores, now: Timestamp) -> BTreeSet<String> {
        let ids = self.ids(now);
        if ids.is_empty() {
            return BTreeSet::new();
        }
        let mut zones = BTreeSet::new();
        for class in stores.classes.state() {
            let subnets = class.status.iter().flat_map(|status| &status.subnets);
            let shifted = subnets.filter(|subnet| subnet.zone_id.as_ref().is_some_and(|id| ids.contains_key(id)));
            zones.extend(shifted.map(|subnet| subnet.zone.clone()));
        }
        for claim in stores.claims.state() {
            let of_claim = |key| claim.metadata.labels.as_ref().and_then(|labels| labels.get(key));
            if of_claim(label::ZONE_ID).is_some_and(|id| ids.contains_key(id)) {
                zones.extend(of_claim(label::ZONE).cloned());
            }
        }
        zones
    }
}

/// The zone of a claim, if it is one of `zones`.
#[must_use]
pub fn shifted_zone<'a>(claim: &NodeClaim, zones: &'a BTreeSet<String>) -> Option<&'a str> {
    zones.get(claim.metadata.labels.as_ref()?.get(label::ZONE)?).map(String::as_str)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    fn after(seconds: u64) -> Timestamp {
        NOW.plus(Millis::from_seconds(seconds))
    }

    fn shift(zone_id: &str, expires: Option<Timestamp>) -> ZonalShift {
        ZonalShift { zone_id: zone_id.to_owned(), expires }
    }

    fn ids(shifts: &ZonalShifts, now: Timestamp) -> Vec<String> {
        shifts.ids(now).into_keys().collect()
    }

    #[test]
    fn a_shift_counts_until_it_expires_or_an_answer_lacks_it() {
        let shifts = ZonalShifts::default();
        shifts.replace(&[shift("az1", Some(after(60))), shift("az2", Some(after(120)))], NOW);
        assert_eq!(ids(&shifts, NOW), ["az1", "az2"]);
        assert_eq!(ids(&shifts, after(60)), ["az2"], "expired without another read");
        assert_eq!(shifts.next_end(), Some(after(60)));
        shifts.replace(&[shift("az1", Some(after(60)))], after(30));
        assert_eq!(ids(&shifts, after(30)), ["az1"], "the other one was cancelled");
        shifts.replace(&[shift("az1", Some(NOW))], after(30));
        assert_eq!(ids(&shifts, after(30)), Vec::<String>::new(), "ARC still lists an expired shift");
    }

    #[test]
    fn an_autoshift_has_no_end_and_each_read_renews_it() {
        let shifts = ZonalShifts::default();
        shifts.replace(&[shift("az1", None), shift("az1", Some(after(60)))], NOW);
        assert_eq!(ids(&shifts, after(3599)), ["az1"], "the longer one of two counts");
        shifts.replace(&[shift("az1", None)], after(3000));
        assert_eq!(ids(&shifts, after(6599)), ["az1"]);
        assert_eq!(ids(&shifts, after(6600)), Vec::<String>::new());
    }

    #[test]
    fn subscribers_hear_of_other_zones_only() {
        let shifts = ZonalShifts::default();
        let mut heard = shifts.subscribe();
        shifts.replace(&[shift("az1", Some(after(60)))], NOW);
        assert!(heard.has_changed().unwrap());
        heard.mark_unchanged();
        shifts.replace(&[shift("az1", Some(after(90)))], NOW);
        shifts.expire(after(60));
        assert!(!heard.has_changed().unwrap(), "the shift is extended");
        shifts.expire(after(90));
        assert!(heard.has_changed().unwrap());
    }
}

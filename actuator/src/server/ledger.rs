//! WatchLedger: sends the whole ledger first, then only differences from what this watcher received.

use super::Leader;
use super::{Responses, streaming};
use crate::ledger::{Ledger, view};
use plimsoll_model::execution::{InFlightClaim, LedgerUpdate};
use plimsoll_model::snapshot::{LedgerPosition, ReservationCount, UnavailableOffering};
use plimsoll_proto::actuator::v1 as wire;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval between passes without a signal, since offerings become available and reservations expire by time alone.
const TICK: Duration = Duration::from_secs(5);
/// Claims per message; far below the size limit.
const CHUNK: usize = 500;

/// The state that one watcher has received.
#[derive(Default)]
struct SentState {
    position: Option<LedgerPosition>,
    claims: BTreeMap<String, InFlightClaim>,
    unavailable: Vec<UnavailableOffering>,
    reservations: Vec<ReservationCount>,
}

pub(super) fn watch(deps: &Leader, stop: CancellationToken) -> Responses<wire::WatchLedgerResponse> {
    let inner = deps.clone();
    streaming(deps, stop, move |sender| async move {
        let deps = inner;
        let mut changed = deps.ledger.subscribe();
        let mut sent = SentState::default();
        loop {
            changed.mark_unchanged();
            for update in sent.differences(&deps) {
                if sender.send(Ok((&update).into())).await.is_err() {
                    return Ok(());
                }
            }
            tokio::select! {
                biased;
                () = changed.changed() => {}
                () = tokio::time::sleep(TICK) => {}
            }
        }
    })
}

impl SentState {
    /// Messages that bring the watcher up to date. The position is in the last message, since earlier ones carry what
    /// it covers.
    fn differences(&mut self, deps: &Leader) -> Vec<LedgerUpdate> {
        // Read the position first: all state read afterwards is at least as new.
        let position = deps.ledger.position();
        let claims = view::in_flight(&deps.view);
        let unavailable = view::unavailable(&deps.view);
        let counts = deps.ledger.read(Ledger::capacity_reservations);
        let first = self.position.is_none();
        let upserted: Vec<InFlightClaim> = claims
            .iter()
            .filter(|(name, claim)| self.claims.get(*name) != Some(*claim))
            .map(|(_, claim)| claim.clone())
            .collect();
        let removed: Vec<String> = self.claims.keys().filter(|name| !claims.contains_key(*name)).cloned().collect();
        let offerings = (first || !same_offerings(&self.unavailable, &unavailable)).then(|| unavailable.clone());
        let reservations = (first || self.reservations != counts).then(|| counts.clone());
        let nothing = upserted.is_empty()
            && removed.is_empty()
            && offerings.is_none()
            && reservations.is_none()
            && self.position == Some(position);
        if nothing {
            return Vec::new();
        }
        let before = self.position.unwrap_or_default();
        let mut updates: Vec<LedgerUpdate> = upserted
            .chunks(CHUNK)
            .map(|chunk| LedgerUpdate { position: before, upserted: chunk.to_vec(), ..LedgerUpdate::default() })
            .collect();
        let mut last = updates.pop().unwrap_or_default();
        last.position = position;
        last.removed = removed;
        last.complete = first;
        if offerings.is_some() {
            self.unavailable = unavailable;
        }
        last.unavailable_offerings = offerings;
        last.reservations = reservations;
        self.reservations = counts;
        updates.push(last);
        self.claims = claims;
        self.position = Some(position);
        updates
    }
}

/// Whether both name the same offerings. Remaining times are ignored, since they pass on their own.
fn same_offerings(a: &[UnavailableOffering], b: &[UnavailableOffering]) -> bool {
    let key = |it: &UnavailableOffering| (it.instance_type.clone(), it.zone.clone(), it.capacity_type);
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| key(a) == key(b) && a.remaining >= b.remaining)
}

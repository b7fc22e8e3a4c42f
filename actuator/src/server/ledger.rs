//! WatchLedger: sends the whole ledger first, then only differences from what this watcher received.

use super::Leader;
use super::{Responses, streaming};
use crate::ledger::{Ledger, view};
use crate::pacing::pause_after;
use plimsoll_model::execution::{InFlightClaim, LedgerUpdate};
use plimsoll_model::snapshot::{LedgerPosition, ReservationCount, UnavailableOffering};
use plimsoll_proto::actuator::v1 as wire;
use plimsoll_proto::convert::encoded_size;
use plimsoll_runtime::signal;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval between passes without a signal, since offerings become available and reservations expire by time alone.
const TICK: Duration = Duration::from_secs(5);
/// Maximum claims per message.
const CHUNK: usize = 500;
/// Maximum size of the claims of a message, unless it is a single claim. A watcher accepts 16 MiB. Most claims have a
/// few kilobytes, but a claim lists the pods that are reserved on it.
const CHUNK_BYTES: usize = 4 << 20;

/// The state that one watcher has received.
#[derive(Default)]
struct SentState {
    position: Option<LedgerPosition>,
    claims: BTreeMap<String, InFlightClaim>,
    unavailable: Vec<UnavailableOffering>,
    reservations: Vec<ReservationCount>,
}

pub(super) fn watch(deps: Leader, stop: CancellationToken) -> Responses<wire::WatchLedgerResponse> {
    streaming(deps, stop, move |deps, sender| async move {
        let mut changed = deps.ledger.subscribe();
        let mut sent = SentState::default();
        loop {
            changed.mark_unchanged();
            let began = Instant::now();
            let updates = sent.differences(&deps);
            let pass = began.elapsed();
            for update in updates {
                if sender.send(Ok((&update).into())).await.is_err() {
                    return Ok(());
                }
            }
            next_pass(&mut changed, pass).await;
        }
    })
}

/// Waits until the next pass is due, after one that took this long. Changes during the pause share a pass: each reads
/// all claims.
async fn next_pass(changed: &mut signal::Receiver, pass: Duration) {
    tokio::time::sleep(pause_after(pass)).await;
    tokio::select! {
        biased;
        () = changed.changed() => {}
        () = tokio::time::sleep(TICK) => {}
    }
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
        let mut updates: Vec<LedgerUpdate> = chunks(upserted)
            .into_iter()
            .map(|upserted| LedgerUpdate { position: before, upserted, ..LedgerUpdate::default() })
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

/// The claims by message.
fn chunks(claims: Vec<InFlightClaim>) -> Vec<Vec<InFlightClaim>> {
    let mut chunks: Vec<Vec<InFlightClaim>> = Vec::new();
    let mut bytes = 0;
    for claim in claims {
        let size = encoded_size(&wire::InFlightClaim::from(&claim));
        match chunks.last_mut() {
            Some(chunk) if chunk.len() < CHUNK && bytes + size <= CHUNK_BYTES => {
                chunk.push(claim);
                bytes += size;
            }
            _ => {
                chunks.push(vec![claim]);
                bytes = size;
            }
        }
    }
    chunks
}

/// Whether both name the same offerings. Remaining times are ignored, since they pass on their own.
fn same_offerings(a: &[UnavailableOffering], b: &[UnavailableOffering]) -> bool {
    let key = |it: &UnavailableOffering| (it.instance_type.clone(), it.zone.clone(), it.capacity_type);
    a.len() == b.len() && a.iter().zip(b).all(|(a, b)| key(a) == key(b) && a.remaining >= b.remaining)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::execution::ClaimState;

    fn claim(name: &str, bytes: usize) -> InFlightClaim {
        InFlightClaim {
            name: name.to_owned(),
            node_pool: "p".into(),
            labels: [("example.com/long".to_owned(), "x".repeat(bytes))].into(),
            state: ClaimState::Launching,
            ..InFlightClaim::default()
        }
    }

    #[tokio::test(start_paused = true)]
    async fn changes_within_a_pause_share_a_pass() {
        let (sender, start) = (signal::Sender::default(), Instant::now());
        let mut changed = sender.subscribe();
        let burst = async {
            for _ in 0..100 {
                tokio::time::sleep(Duration::from_millis(1)).await;
                sender.notify();
            }
        };
        let pass = Duration::from_millis(50);
        tokio::join!(burst, next_pass(&mut changed, pass));
        assert_eq!(start.elapsed(), Duration::from_millis(200), "the burst has ended");
        changed.mark_unchanged();
        next_pass(&mut changed, pass).await;
        assert_eq!(start.elapsed(), Duration::from_millis(400) + TICK, "nothing was left for another pass");
        // An idle ledger shows a change at once.
        let late = async {
            tokio::time::sleep(Duration::from_secs(1)).await;
            sender.notify();
        };
        let start = Instant::now();
        tokio::join!(late, next_pass(&mut changed, pass));
        assert_eq!(start.elapsed(), Duration::from_secs(1));
    }

    #[test]
    fn messages_are_bounded_in_claims_and_bytes() {
        let sizes = |claims: Vec<InFlightClaim>| chunks(claims).iter().map(Vec::len).collect::<Vec<_>>();
        assert_eq!(sizes(Vec::new()), [0; 0]);
        assert_eq!(sizes(vec![claim("a", 10); 2 * CHUNK + 1]), [CHUNK, CHUNK, 1]);
        assert_eq!(sizes(vec![claim("a", CHUNK_BYTES / 4); 7]), [3, 3, 1]);
        let large = claim("large", 2 * CHUNK_BYTES);
        assert_eq!(sizes(vec![claim("a", 10), large.clone(), large, claim("b", 10)]), [1, 1, 1, 1]);
    }
}

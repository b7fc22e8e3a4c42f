//! Bounds how many connections or handshakes one peer has at a time.

use parking_lot::Mutex;
use std::{collections::BTreeMap, net::IpAddr, sync::Arc};

/// Counts by peer. Clones share the counts.
#[derive(Clone, Debug)]
pub(crate) struct PeerLimit {
    max: usize,
    counts: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
}

/// One of the places of a peer, until it is dropped.
#[derive(Debug)]
pub(crate) struct PeerPermit {
    counts: Arc<Mutex<BTreeMap<IpAddr, usize>>>,
    peer: IpAddr,
}

impl PeerLimit {
    /// At most `max` places for each peer.
    pub(crate) fn new(max: usize) -> Self {
        Self { max, counts: Arc::default() }
    }

    /// Takes a place unless the peer has all that it may have.
    pub(crate) fn take(&self, peer: IpAddr) -> Option<PeerPermit> {
        let mut counts = self.counts.lock();
        let count = counts.entry(peer).or_default();
        if *count >= self.max {
            return None;
        }
        *count += 1;
        Some(PeerPermit { counts: Arc::clone(&self.counts), peer })
    }
}

impl Drop for PeerPermit {
    fn drop(&mut self) {
        let mut counts = self.counts.lock();
        if let Some(count) = counts.get_mut(&self.peer) {
            *count -= 1;
            if *count == 0 {
                counts.remove(&self.peer);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn places_are_counted_by_peer() {
        let limit = PeerLimit::new(3);
        let [one, other] = [[10_u8, 0, 0, 1], [10, 0, 0, 2]].map(IpAddr::from);
        let mut taken: Vec<_> = (0..3).map(|_| limit.take(one).unwrap()).collect();
        assert!(limit.take(one).is_none());
        assert!(limit.take(other).is_some());
        taken.pop();
        assert!(limit.take(one).is_some(), "the last one was dropped at once");
        drop(taken);
        assert!(limit.counts.lock().is_empty());
    }
}

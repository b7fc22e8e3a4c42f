//! Limits the number of open requests per outside caller.

use parking_lot::Mutex;
use plimsoll_runtime::connection::Peer;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Open requests by certificate name or, without a certificate, by address.
#[derive(Debug, Clone)]
pub(super) struct Callers {
    open: Arc<Mutex<BTreeMap<String, usize>>>,
    max_per_caller: usize,
}

/// An open request of a caller; dropped when the request ends.
#[derive(Debug)]
pub(super) struct RequestPermit {
    callers: Callers,
    caller: Option<String>,
}

impl Callers {
    /// Allows `max_per_caller` open requests per caller.
    pub(super) fn new(max_per_caller: usize) -> Self {
        Self { open: Arc::default(), max_per_caller }
    }

    /// Admits a request of `peer`, unless the peer has too many. Callers within the process are not counted.
    pub(super) fn enter(&self, peer: Option<&Peer>) -> Option<RequestPermit> {
        let caller = peer.and_then(name);
        if let Some(caller) = &caller {
            let mut open = self.open.lock();
            let count = open.entry(caller.clone()).or_default();
            if *count >= self.max_per_caller {
                return None;
            }
            *count += 1;
        }
        Some(RequestPermit { callers: self.clone(), caller })
    }
}

fn name(peer: &Peer) -> Option<String> {
    let certificate_name = peer.names.as_ref().and_then(|names| names.first().cloned());
    certificate_name.or_else(|| peer.address.map(|address| address.ip().to_string()))
}

impl Drop for RequestPermit {
    fn drop(&mut self) {
        let Some(caller) = &self.caller else { return };
        let mut open = self.callers.open.lock();
        if let Some(count) = open.get_mut(caller) {
            *count -= 1;
            if *count == 0 {
                open.remove(caller);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn peer(address: &str, names: Option<&[&str]>) -> Peer {
        let names = names.map(|names| names.iter().map(|name| (*name).to_owned()).collect());
        Peer { address: address.parse().ok(), names }
    }

    #[test]
    fn each_caller_has_its_own_limit_and_ended_requests_are_released() {
        let callers = Callers::new(2);
        let (here, there) = (peer("10.0.0.1:1", None), peer("10.0.0.2:1", None));
        let first = callers.enter(Some(&here));
        let second = callers.enter(Some(&peer("10.0.0.1:2", None)));
        assert!(first.is_some() && second.is_some());
        assert!(callers.enter(Some(&here)).is_none() && callers.enter(Some(&there)).is_some());
        drop(first);
        assert!(callers.enter(Some(&here)).is_some());
        drop(second);
        assert!(callers.open.lock().is_empty());
    }

    #[test]
    fn requests_with_one_certificate_are_counted_across_addresses() {
        let callers = Callers::new(1);
        let _held = callers.enter(Some(&peer("10.0.0.1:1", Some(&["planner.test"]))));
        assert!(callers.enter(Some(&peer("10.0.0.2:1", Some(&["planner.test"])))).is_none());
        assert!(callers.enter(None).is_some());
    }
}

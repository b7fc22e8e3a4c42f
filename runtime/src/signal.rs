//! Signals a change to any number of waiters. Waiters wake in the order in which they began to wait, so that
//! simulations are deterministic; tokio's `watch` wakes them in random order.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use tokio::sync::Notify;

#[derive(Debug, Default)]
struct Shared {
    /// Number of changes.
    version: AtomicU64,
    waiters: Notify,
}

/// Sends change signals. Clones share their receivers.
#[derive(Debug, Clone, Default)]
pub struct Sender(Arc<Shared>);

/// Waits for changes that it has not observed yet.
#[derive(Debug, Clone)]
pub struct Receiver {
    shared: Arc<Shared>,
    seen_version: u64,
}

impl Sender {
    /// Signals a change.
    pub fn notify(&self) {
        self.0.version.fetch_add(1, Ordering::AcqRel);
        self.0.waiters.notify_waiters();
    }

    /// Subscribes to every change from now on. Several changes may be observed as one.
    #[must_use]
    pub fn subscribe(&self) -> Receiver {
        Receiver { shared: Arc::clone(&self.0), seen_version: self.0.version.load(Ordering::Acquire) }
    }
}

impl Receiver {
    /// Marks all changes so far as observed.
    pub fn mark_unchanged(&mut self) {
        self.seen_version = self.shared.version.load(Ordering::Acquire);
    }

    /// Resolves immediately if there is an unobserved change, otherwise at the next change. Cancel safe: a dropped
    /// future observes nothing.
    pub async fn changed(&mut self) {
        loop {
            let next = self.shared.waiters.notified();
            tokio::pin!(next);
            // From here on no change is missed, although the current version is read after this.
            next.as_mut().enable();
            let version = self.shared.version.load(Ordering::Acquire);
            if version != self.seen_version {
                self.seen_version = version;
                return;
            }
            next.await;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use futures::FutureExt;
    use parking_lot::Mutex;

    #[tokio::test]
    async fn a_change_is_observed_once_and_none_is_missed() {
        let sender = Sender::default();
        let mut receiver = sender.subscribe();
        assert!(receiver.changed().now_or_never().is_none());
        sender.notify();
        sender.notify();
        assert!(receiver.changed().now_or_never().is_some(), "changed before it waits");
        assert!(receiver.changed().now_or_never().is_none(), "both together");
        sender.notify();
        receiver.mark_unchanged();
        assert!(receiver.changed().now_or_never().is_none());
        assert!(sender.subscribe().changed().now_or_never().is_none(), "from now on");
    }

    #[tokio::test(start_paused = true)]
    async fn waiters_are_woken_in_order() {
        let (sender, order) = (Sender::default(), Arc::new(Mutex::new(Vec::new())));
        let waiters: Vec<_> = (0..50)
            .map(|number| {
                let (mut receiver, order) = (sender.subscribe(), Arc::clone(&order));
                tokio::spawn(async move {
                    receiver.changed().await;
                    order.lock().push(number);
                })
            })
            .collect();
        tokio::task::yield_now().await;
        sender.notify();
        for waiter in waiters {
            waiter.await.unwrap();
        }
        assert_eq!(*order.lock(), (0..50).collect::<Vec<_>>());
    }
}

//! Delays launches until all pods of an owner have been observed, or until no further pod arrives for a moment.

use plimsoll_model::identity::PodUid;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Launches go ahead once no further pod has arrived for this long.
pub const QUIET_PERIOD: Duration = Duration::from_secs(1);

/// Maximum delay of a launch, even if pods keep arriving.
pub const MAX_WAIT: Duration = Duration::from_secs(10);

/// Times of the first and last pod that wait together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct WaitWindow {
    first: Instant,
    last: Instant,
}

/// Pods whose launches are delayed. A pod is delayed only once: if its launch fails, the next launch is not delayed.
#[derive(Debug, Clone, Default)]
pub struct CommitWait {
    /// Pods of incomplete owners: true while they wait, false once their wait is over.
    pods: BTreeMap<PodUid, bool>,
    window: Option<WaitWindow>,
}

impl CommitWait {
    /// Updates the state at `now`. `present` are all unbound pods that may need a launch. `incomplete` are the pending
    /// pods of `present` whose owner wants more pods than have been observed.
    pub fn observe(&mut self, present: &BTreeSet<&PodUid>, incomplete: &BTreeSet<&PodUid>, now: Instant) {
        self.expire(now);
        // Pods that were deleted or are complete stop waiting. A pod whose wait is over keeps that mark while it is
        // present.
        self.pods.retain(|pod, waiting| present.contains(pod) && (!*waiting || incomplete.contains(pod)));
        for pod in incomplete {
            if !self.pods.contains_key(*pod) {
                self.pods.insert(PodUid::clone(pod), true);
                let window = self.window.get_or_insert(WaitWindow { first: now, last: now });
                window.last = now;
            }
        }
        if !self.pods.values().any(|waiting| *waiting) {
            self.window = None;
        }
    }

    /// Whether the pod's launch must wait at `now`.
    #[must_use]
    pub fn is_waiting(&self, pod: &PodUid, now: Instant) -> bool {
        self.pods.get(pod).copied().unwrap_or(false) && self.deadline().is_some_and(|deadline| now < deadline)
    }

    /// End of the wait if no further pod arrives; `None` if no pod waits.
    #[must_use]
    pub fn deadline(&self) -> Option<Instant> {
        self.window.map(|window| (window.last + QUIET_PERIOD).min(window.first + MAX_WAIT))
    }

    /// Number of waiting pods.
    #[must_use]
    pub fn waiting_pods(&self) -> usize {
        self.pods.values().filter(|waiting| **waiting).count()
    }

    /// Ends the wait if its deadline has passed.
    pub fn expire(&mut self, now: Instant) {
        if self.deadline().is_some_and(|deadline| deadline <= now) {
            self.window = None;
            for waiting in self.pods.values_mut() {
                *waiting = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Harness {
        wait: CommitWait,
        start: Instant,
    }

    impl Harness {
        fn new() -> Self {
            Self { wait: CommitWait::default(), start: Instant::now() }
        }

        fn at(&self, millis: u64) -> Instant {
            self.start + Duration::from_millis(millis)
        }

        /// Each letter is a pod. `present` pods exist, `incomplete` pods wait for others.
        fn observe(&mut self, millis: u64, present: &str, incomplete: &str) {
            let (present, incomplete) = (pods(present), pods(incomplete));
            let now = self.at(millis);
            self.wait.observe(&present.iter().collect(), &incomplete.iter().collect(), now);
        }

        fn waiting(&self, millis: u64, pods: &str) -> String {
            let now = self.at(millis);
            pods.chars().filter(|pod| self.wait.is_waiting(&PodUid(pod.to_string()), now)).collect()
        }
    }

    fn pods(letters: &str) -> BTreeSet<PodUid> {
        letters.chars().map(|letter| PodUid(letter.to_string())).collect()
    }

    #[test]
    fn a_pod_of_a_complete_owner_does_not_wait() {
        let mut harness = Harness::new();
        harness.observe(0, "ab", "");
        assert_eq!((harness.waiting(0, "ab").as_str(), harness.wait.deadline()), ("", None));
    }

    #[test]
    fn the_wait_ends_after_a_second_of_silence() {
        let mut harness = Harness::new();
        harness.observe(0, "a", "a");
        harness.observe(700, "ab", "ab");
        assert_eq!(harness.wait.waiting_pods(), 2);
        assert_eq!(harness.waiting(1600, "ab"), "ab");
        assert_eq!(harness.wait.deadline(), Some(harness.at(1700)));
        assert_eq!(harness.waiting(1700, "ab"), "");
    }

    #[test]
    fn the_wait_ends_after_ten_seconds_though_pods_keep_coming() {
        let mut harness = Harness::new();
        let mut seen = String::new();
        for step in 0..25_u8 {
            seen.push(char::from(b'a' + step));
            harness.observe(u64::from(step) * 400, &seen, &seen);
        }
        assert_eq!(harness.wait.deadline(), Some(harness.at(10_000)));
        assert_eq!((harness.waiting(9_999, "a").as_str(), harness.waiting(10_000, "a").as_str()), ("a", ""));
    }

    #[test]
    fn the_wait_ends_at_once_when_the_last_pod_is_seen() {
        let mut harness = Harness::new();
        harness.observe(0, "ab", "ab");
        harness.observe(100, "abc", "");
        assert_eq!((harness.waiting(100, "abc").as_str(), harness.wait.waiting_pods()), ("", 0));
        assert_eq!(harness.wait.deadline(), None);
    }

    #[test]
    fn a_pod_that_comes_when_the_wait_ends_waits_anew() {
        let mut harness = Harness::new();
        harness.observe(0, "a", "a");
        harness.observe(1000, "ab", "ab");
        assert_eq!(harness.waiting(1000, "ab"), "b");
        assert_eq!(harness.wait.deadline(), Some(harness.at(2000)));
    }

    #[test]
    fn a_pod_waits_only_once() {
        let mut harness = Harness::new();
        harness.observe(0, "a", "a");
        harness.observe(1200, "a", "a");
        assert_eq!(harness.waiting(1200, "a"), "", "its wait is over, though its owner is still incomplete");
        harness.observe(1300, "ab", "ab");
        assert_eq!(harness.waiting(1300, "ab"), "b", "a newcomer waits, the others go on");
        // The pod is reserved for a while, then its launch fails.
        harness.observe(3000, "ab", "");
        harness.observe(4000, "ab", "ab");
        assert_eq!(harness.waiting(4000, "a"), "");
        // A deleted pod is forgotten, so a pod with the same UID waits again.
        harness.observe(5000, "b", "b");
        harness.observe(5100, "ab", "ab");
        assert_eq!(harness.waiting(5100, "a"), "a");
    }
}

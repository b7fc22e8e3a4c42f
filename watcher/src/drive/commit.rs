//! When launches are committed: at once where all pods have been seen, else after a little silence (rule 6).

use plimsoll_model::identity::PodUid;
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::time::Instant;

/// Launches are committed once no further pod has come for so long.
pub const IDLE: Duration = Duration::from_secs(1);

/// And after so long in any case.
pub const LONGEST: Duration = Duration::from_secs(10);

/// The pods that wait together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Batch {
    first: Instant,
    last: Instant,
}

/// Which pods have been waited for. A pod is waited with once: one whose launch failed goes on at once.
#[derive(Debug, Clone, Default)]
pub struct CommitWait {
    /// Pods that wait for others of their owner; false once their wait is over.
    pods: BTreeMap<PodUid, bool>,
    batch: Option<Batch>,
}

impl CommitWait {
    /// Nothing waits.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Takes note of what is seen at `now`: all unbound pods whose launch may be asked for (`present`), and those of them
    /// to be placed now whose owner wants more than have been seen (`incomplete`).
    pub fn observe(&mut self, present: &BTreeSet<&PodUid>, incomplete: &BTreeSet<&PodUid>, now: Instant) {
        self.expire(now);
        // Those that are gone or complete wait no more; whoever is over its wait stays so while it is there.
        self.pods.retain(|pod, waiting| present.contains(pod) && (!*waiting || incomplete.contains(pod)));
        for pod in incomplete {
            if !self.pods.contains_key(*pod) {
                self.pods.insert(PodUid::clone(pod), true);
                let batch = self.batch.get_or_insert(Batch { first: now, last: now });
                batch.last = now;
            }
        }
        if !self.pods.values().any(|waiting| *waiting) {
            self.batch = None;
        }
    }

    /// Whether the pod's launch is to wait at `now`.
    #[must_use]
    pub fn holds(&self, pod: &PodUid, now: Instant) -> bool {
        self.pods.get(pod).copied().unwrap_or(false) && self.until().is_some_and(|until| now < until)
    }

    /// When the wait is over if no further pod comes; `None` if nothing waits.
    #[must_use]
    pub fn until(&self) -> Option<Instant> {
        self.batch.map(|batch| (batch.last + IDLE).min(batch.first + LONGEST))
    }

    /// How many pods wait.
    #[must_use]
    pub fn waiting(&self) -> usize {
        self.pods.values().filter(|waiting| **waiting).count()
    }

    /// Ends the wait of those that have waited long enough.
    pub fn expire(&mut self, now: Instant) {
        if self.until().is_some_and(|until| until <= now) {
            self.batch = None;
            for waiting in self.pods.values_mut() {
                *waiting = false;
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    struct Scene {
        wait: CommitWait,
        start: Instant,
    }

    impl Scene {
        fn new() -> Self {
            Self { wait: CommitWait::new(), start: Instant::now() }
        }

        fn at(&self, millis: u64) -> Instant {
            self.start + Duration::from_millis(millis)
        }

        /// Pods are single letters: `present` are there, `incomplete` wait for others.
        fn see(&mut self, millis: u64, present: &str, incomplete: &str) {
            let (present, incomplete) = (pods(present), pods(incomplete));
            let now = self.at(millis);
            self.wait.observe(&present.iter().collect(), &incomplete.iter().collect(), now);
        }

        fn held(&self, millis: u64, pods: &str) -> String {
            let now = self.at(millis);
            pods.chars().filter(|pod| self.wait.holds(&PodUid(pod.to_string()), now)).collect()
        }
    }

    fn pods(letters: &str) -> BTreeSet<PodUid> {
        letters.chars().map(|letter| PodUid(letter.to_string())).collect()
    }

    #[test]
    fn a_pod_whose_owner_is_complete_does_not_wait() {
        let mut scene = Scene::new();
        scene.see(0, "ab", "");
        assert_eq!((scene.held(0, "ab").as_str(), scene.wait.until()), ("", None));
    }

    #[test]
    fn the_wait_ends_after_a_second_of_silence() {
        let mut scene = Scene::new();
        scene.see(0, "a", "a");
        scene.see(700, "ab", "ab");
        assert_eq!(scene.held(1600, "ab"), "ab");
        assert_eq!(scene.wait.until(), Some(scene.at(1700)));
        assert_eq!(scene.held(1700, "ab"), "");
    }

    #[test]
    fn the_wait_ends_after_ten_seconds_though_pods_keep_coming() {
        let mut scene = Scene::new();
        let mut seen = String::new();
        for step in 0..25_u8 {
            seen.push(char::from(b'a' + step));
            scene.see(u64::from(step) * 400, &seen, &seen);
        }
        assert_eq!(scene.wait.until(), Some(scene.at(10_000)));
        assert_eq!((scene.held(9_999, "a").as_str(), scene.held(10_000, "a").as_str()), ("a", ""));
    }

    #[test]
    fn the_wait_ends_at_once_when_the_last_pod_is_seen() {
        let mut scene = Scene::new();
        scene.see(0, "ab", "ab");
        scene.see(100, "abc", "");
        assert_eq!((scene.held(100, "abc").as_str(), scene.wait.waiting()), ("", 0));
    }

    #[test]
    fn a_pod_is_waited_with_once() {
        let mut scene = Scene::new();
        scene.see(0, "a", "a");
        scene.see(1200, "a", "a");
        assert_eq!(scene.held(1200, "a"), "", "its wait is over, though its owner is still incomplete");
        scene.see(1300, "ab", "ab");
        assert_eq!(scene.held(1300, "ab"), "b", "a newcomer waits, the others go on");
        // Reserved for a while, then its launch fails.
        scene.see(3000, "ab", "");
        scene.see(4000, "ab", "ab");
        assert_eq!(scene.held(4000, "a"), "");
        // Another pod of that name and UID cannot come back: once gone, it is forgotten.
        scene.see(5000, "b", "b");
        scene.see(5100, "ab", "ab");
        assert_eq!(scene.held(5100, "a"), "a");
    }
}

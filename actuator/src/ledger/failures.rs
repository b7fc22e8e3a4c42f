//! Back-off after failures (safety rule 8), per pool and cause, and a cap on claims per minute.

use jiff::SignedDuration;
use plimsoll_model::identity::NodePoolName;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::{BTreeMap, VecDeque};

/// Claims that a pool may create per minute. Allows a burst of several hundred, but stops a loop that creates and fails
/// claims before it fills the API server.
pub const CLAIMS_PER_MINUTE: usize = 600;
const MINUTE: Millis = Millis::from_seconds(60);
/// Cause of a launch for which no offering had capacity, where EC2 named the refused offerings.
pub const INSUFFICIENT_CAPACITY: &str = "InsufficientCapacity";
/// The same where EC2 named none, so that the next launch would ask for the same ones.
pub const UNNAMED_CAPACITY: &str = "UnnamedInsufficientCapacity";
/// Cause of a launch whose instances EC2 throttled.
pub const THROTTLED: &str = "Throttled";
/// Cause of a claim whose instance did not register as a Node in time.
pub const NOT_REGISTERED: &str = "registration_timeout";
/// Cause of a claim whose instance ended before its Node registered.
pub const ENDED_EARLY: &str = "instance_ended";
/// Cause of a claim whose Node was not initialized in time.
pub const NOT_INITIALIZED: &str = "initialization_timeout";
/// Cause of a claim that was deleted before its launch. Nothing was refused, so no launch waits.
pub const DELETED: &str = "Deleted";
/// Pause after [`INSUFFICIENT_CAPACITY`], however often it repeats. Refused offerings are skipped, and afterwards tried
/// by one launch at a time, so the launches of a pool that accept other offerings need not wait.
const CAPACITY_PAUSE: Millis = Millis(100);
/// Pause after [`THROTTLED`], however often it repeats. EC2 allows two more instances per second, so each launch of a
/// large burst gets some, and a single pod does not wait long.
const THROTTLED_PAUSE: Millis = Millis::from_seconds(10);
/// First pause after any other cause. By then, the next plan knows of the failure.
const FIRST_PAUSE: Millis = Millis::from_seconds(1);
/// Longest pause: as long as a refused offering is skipped.
const LONGEST_PAUSE: Millis = Millis::from_seconds(180);
/// A Node that is not initialized this long after its registration is not waited for. As long as the registration
/// timeout: GPU drivers and agents that remove startup taints need minutes.
pub const INITIALIZATION_TIMEOUT: SignedDuration = SignedDuration::from_mins(15);
/// Time from a launch until [`NOT_INITIALIZED`], at least.
const UNTIL_OVERDUE: Millis = Millis::from_seconds(INITIALIZATION_TIMEOUT.as_secs().unsigned_abs());
/// Second pause after [`NOT_INITIALIZED`]; later ones double. The first is short, since one instance may be defective.
/// The nodes stay, so a shorter pause would buy one after another.
const SECOND_NODE_PAUSE: Millis = UNTIL_OVERDUE;
/// Longest pause after [`NOT_INITIALIZED`]. Pods of the pool wait for it that the cause may not concern.
const LONGEST_NODE_PAUSE: Millis = Millis::from_seconds(3600);
/// Causes kept per pool. Error codes come from outside, so their number must be bounded.
const MAX_CAUSES: usize = 32;

#[derive(Debug, Clone, Copy)]
struct Pause {
    count: u32,
    until: Timestamp,
}

/// Failures of all pools, and the last [`CLAIMS_PER_MINUTE`] claims of each. Kept in memory only: a restart costs one
/// failed call per cause.
#[derive(Debug, Clone, Default)]
pub struct Failures {
    pauses: BTreeMap<NodePoolName, BTreeMap<String, Pause>>,
    claims: BTreeMap<NodePoolName, VecDeque<Timestamp>>,
}

impl Failures {
    /// Records a failure. A failure during a pause belongs to a launch admitted before it and does not extend the
    /// pause. Nor does [`NOT_INITIALIZED`] so soon after it that the launch was admitted before.
    pub fn failed(&mut self, pool: &NodePoolName, cause: &str, now: Timestamp) {
        if cause == DELETED {
            return;
        }
        let causes = self.pauses.entry(pool.clone()).or_default();
        if causes.len() >= MAX_CAUSES && !causes.contains_key(cause) {
            let soonest = causes.iter().min_by_key(|(_, pause)| pause.until).map(|(cause, _)| cause.clone());
            soonest.map(|cause| causes.remove(&cause));
        }
        let pause = causes.entry(cause.to_owned()).or_insert(Pause { count: 0, until: now });
        let lag = if cause == NOT_INITIALIZED && pause.count > 0 { UNTIL_OVERDUE } else { Millis(0) };
        if pause.until.plus(lag) > now {
            return;
        }
        let doubled = |first: Millis, times: u32| first.0.saturating_mul(1 << times.min(16));
        let length = match (cause, pause.count) {
            (INSUFFICIENT_CAPACITY, _) => CAPACITY_PAUSE.0,
            (THROTTLED, _) => THROTTLED_PAUSE.0,
            (NOT_INITIALIZED, 1..) => doubled(SECOND_NODE_PAUSE, pause.count - 1).min(LONGEST_NODE_PAUSE.0),
            (_, count) => doubled(FIRST_PAUSE, count).min(LONGEST_PAUSE.0),
        };
        *pause = Pause { count: pause.count.saturating_add(1), until: now.plus(Millis(length)) };
    }

    /// Records that an instance of the pool was launched, which ends its pauses. Only a node in service ends the pauses
    /// after [`NOT_REGISTERED`], [`ENDED_EARLY`] and [`NOT_INITIALIZED`]: instances that never come into service can
    /// all be launched.
    /// The pause after [`THROTTLED`] lasts: EC2 launches a part of what it throttles.
    pub fn launched(&mut self, pool: &NodePoolName) {
        self.retain(pool, |cause| cause == THROTTLED || is_of_started(cause));
    }

    /// Records that a node of the pool is in service.
    pub fn initialized(&mut self, pool: &NodePoolName) {
        self.retain(pool, |cause| !is_of_started(cause));
    }

    fn retain(&mut self, pool: &NodePoolName, keep: impl Fn(&str) -> bool) {
        if let Some(causes) = self.pauses.get_mut(pool) {
            causes.retain(|cause, _| keep(cause));
        }
    }

    /// The longest remaining pause of a pool, with its cause.
    #[must_use]
    pub fn pause(&self, pool: &NodePoolName, now: Timestamp) -> Option<(&str, Millis)> {
        let (cause, pause) = self.pauses.get(pool)?.iter().max_by_key(|(_, pause)| pause.until)?;
        (pause.until > now).then(|| (cause.as_str(), pause.until.since(now)))
    }

    /// Records a new claim.
    pub fn claimed(&mut self, pool: &NodePoolName, now: Timestamp) {
        let recent = self.claims.entry(pool.clone()).or_default();
        if recent.len() >= CLAIMS_PER_MINUTE {
            recent.pop_front();
        }
        recent.push_back(now);
    }

    /// How long the pool must wait before its next claim, if it created too many recently.
    #[must_use]
    pub fn too_many(&self, pool: &NodePoolName, now: Timestamp) -> Option<Millis> {
        let recent = self.claims.get(pool)?;
        let oldest = recent.front().filter(|_| recent.len() >= CLAIMS_PER_MINUTE)?;
        Some(oldest.plus(MINUTE).since(now)).filter(|wait| wait.0 > 0)
    }
}

/// Whether the cause is one of instances that were launched.
fn is_of_started(cause: &str) -> bool {
    [NOT_REGISTERED, ENDED_EARLY, NOT_INITIALIZED].contains(&cause)
}

#[cfg(test)]
mod tests {
    use super::*;

    const NOW: Timestamp = Timestamp(1_000_000);

    #[test]
    fn pauses_double_per_cause_and_reset_on_success() {
        let (pool, mut failures) = (NodePoolName::from("a"), Failures::default());
        let mut now = NOW;
        // More often than a pause can double.
        for seconds in [1, 2, 4, 8, 16, 32, 64, 128].into_iter().chain(std::iter::repeat_n(180, 70)) {
            failures.failed(&pool, "Denied", now);
            failures.failed(&pool, "Denied", now);
            assert_eq!(failures.pause(&pool, now), Some(("Denied", Millis::from_seconds(seconds))));
            now = now.plus(Millis::from_seconds(seconds));
            assert_eq!(failures.pause(&pool, now), None);
        }
        for (cause, length) in [(INSUFFICIENT_CAPACITY, Millis(100)), (THROTTLED, Millis::from_seconds(10))] {
            for _ in 0..3 {
                failures.failed(&pool, cause, now);
                assert_eq!(failures.pause(&pool, now), Some((cause, length)), "it does not grow");
                now = now.plus(length);
            }
        }
        for millis in [1000, 2000] {
            failures.failed(&pool, UNNAMED_CAPACITY, now);
            assert_eq!(failures.pause(&pool, now), Some((UNNAMED_CAPACITY, Millis(millis))));
            now = now.plus(Millis(millis));
        }
        failures.failed(&pool, "Other", now);
        assert_eq!(failures.pause(&pool, now), Some(("Other", Millis::from_seconds(1))));
        assert_eq!(failures.pause(&NodePoolName::from("b"), now), None);
        failures.launched(&pool);
        assert_eq!(failures.pause(&pool, now), None);
    }

    #[test]
    fn a_launched_instance_does_not_end_the_pause_after_throttling() {
        let (pool, mut failures) = (NodePoolName::from("a"), Failures::default());
        failures.failed(&pool, THROTTLED, NOW);
        failures.launched(&pool);
        assert_eq!(failures.pause(&pool, NOW), Some((THROTTLED, THROTTLED_PAUSE)));
        assert_eq!(failures.pause(&pool, NOW.plus(THROTTLED_PAUSE)), None);
    }

    #[test]
    fn no_launch_waits_because_a_claim_was_deleted() {
        let (pool, mut failures) = (NodePoolName::from("a"), Failures::default());
        failures.failed(&pool, DELETED, NOW);
        assert_eq!(failures.pause(&pool, NOW), None);
    }

    #[test]
    fn only_a_node_in_service_ends_the_pause_after_instances_that_do_not_register() {
        for cause in [NOT_REGISTERED, ENDED_EARLY] {
            let (pool, mut failures) = (NodePoolName::from("a"), Failures::default());
            failures.failed(&pool, cause, NOW);
            failures.launched(&pool);
            assert_eq!(failures.pause(&pool, NOW), Some((cause, FIRST_PAUSE)));
            failures.failed(&pool, "Denied", NOW);
            failures.initialized(&pool);
            assert_eq!(failures.pause(&pool, NOW), Some(("Denied", FIRST_PAUSE)));
        }
    }

    #[test]
    fn nodes_that_are_never_initialized_are_launched_for_less_and_less() {
        let (pool, mut failures) = (NodePoolName::from("a"), Failures::default());
        let mut now = NOW;
        for seconds in [1, 900, 1800, 3600, 3600] {
            failures.failed(&pool, NOT_INITIALIZED, now);
            failures.launched(&pool);
            assert_eq!(failures.pause(&pool, now), Some((NOT_INITIALIZED, Millis::from_seconds(seconds))));
            now = now.plus(Millis::from_seconds(seconds));
            // Another node of the same burst, launched before the pause and registered later.
            let later = now.plus(Millis(899_999));
            failures.failed(&pool, NOT_INITIALIZED, later);
            assert_eq!(failures.pause(&pool, later), None);
            now = now.plus(Millis(900_000));
        }
        failures.failed(&pool, NOT_INITIALIZED, now);
        failures.initialized(&pool);
        assert_eq!(failures.pause(&pool, now), None);
        failures.failed(&pool, NOT_INITIALIZED, now);
        assert_eq!(failures.pause(&pool, now), Some((NOT_INITIALIZED, FIRST_PAUSE)), "a new series");
    }

    #[test]
    fn of_too_many_causes_the_one_whose_pause_ends_first_is_forgotten() {
        let (pool, mut failures) = (NodePoolName::from("a"), Failures::default());
        let name = |number: usize| format!("cause-{number:02}");
        let mut now = NOW;
        for number in 0..MAX_CAUSES {
            failures.failed(&pool, &name(number), now);
            now = now.plus(Millis(1));
        }
        failures.failed(&pool, &name(1), now);
        let known = |failures: &Failures| failures.pauses[&pool].keys().cloned().collect::<Vec<_>>();
        assert_eq!(known(&failures), (0..MAX_CAUSES).map(name).collect::<Vec<_>>(), "a known cause replaces none");
        failures.failed(&pool, &name(MAX_CAUSES), now);
        assert_eq!(known(&failures), (1..=MAX_CAUSES).map(name).collect::<Vec<_>>());
    }

    #[test]
    fn claims_per_minute_are_capped_by_pool() {
        let (pool, mut failures) = (NodePoolName::from("a"), Failures::default());
        for _ in 0..CLAIMS_PER_MINUTE {
            assert_eq!(failures.too_many(&pool, NOW), None);
            failures.claimed(&pool, NOW);
        }
        assert_eq!(failures.too_many(&pool, NOW.plus(Millis(1))), Some(Millis(59_999)));
        assert_eq!(failures.too_many(&NodePoolName::from("b"), NOW), None);
        assert_eq!(failures.too_many(&pool, NOW.plus(MINUTE)), None);
        // Of these, half are a minute old when the other half is made.
        let half = MINUTE.0 / 2;
        for number in 0..CLAIMS_PER_MINUTE {
            let at = NOW.plus(MINUTE).plus(Millis(if number < CLAIMS_PER_MINUTE / 2 { 0 } else { half }));
            assert_eq!(failures.too_many(&pool, at), None, "{number}");
            failures.claimed(&pool, at);
        }
        assert_eq!(failures.too_many(&pool, NOW.plus(MINUTE).plus(Millis(half))), Some(Millis(half)));
        let later = NOW.plus(MINUTE).plus(MINUTE);
        assert_eq!(failures.too_many(&pool, later), None);
        for _ in 0..CLAIMS_PER_MINUTE / 2 {
            assert_eq!(failures.too_many(&pool, later), None);
            failures.claimed(&pool, later);
        }
        assert_eq!(failures.too_many(&pool, later), Some(Millis(half)), "as many as within any other minute");
    }
}

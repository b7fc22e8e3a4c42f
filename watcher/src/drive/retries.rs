//! Backoff for actions that were rejected or failed.

use plimsoll_model::identity::{ActionId, NodeName};
use plimsoll_model::plan::Termination;
use plimsoll_model::snapshot::{DisruptionReason, Snapshot};
use plimsoll_runtime::backoff;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Pause after the second failure in a row. The first failure is retried immediately, on a snapshot that includes the
/// cause of the failure.
const FIRST_PAUSE: Duration = Duration::from_millis(200);

/// Maximum pause between retries.
const MAX_PAUSE: Duration = Duration::from_secs(30);

/// How long no removals are planned after a disruption budget rejected the removal of a node for the first time. The
/// ledger counts a removed node for some milliseconds longer than the snapshot. A plan in this time would be rejected,
/// too, and the one after it would remove another node, although the first was the better choice.
const BUDGET_LAG: Duration = Duration::from_millis(200);

/// How long a failure is remembered after its pause. A later failure starts again without a pause.
const MEMORY_AFTER_FAILURE: Duration = Duration::from_secs(60);

/// Pause after the first undone removal. It is long because replacements may have been bought already, and would be
/// bought again.
const FIRST_UNDONE_PAUSE: Duration = Duration::from_secs(10);

/// Maximum pause after an undone removal. Each attempt may buy replacements. If it takes the 20 minutes after which the
/// actuator undoes it, at most two replacements are bought per hour. Attempts that fail within seconds, such as those
/// of an expired node without capacity, are about seven launches in the first 20 minutes, and six per hour then.
const MAX_UNDONE_PAUSE: Duration = Duration::from_secs(600);

/// How long an undone removal is remembered after its pause. It exceeds the 20 minutes after which the actuator undoes
/// the next attempt.
const MEMORY_AFTER_UNDONE: Duration = Duration::from_secs(1800);

/// Maximum remembered removal keys: several plans' worth, as many as the actuator keeps outcomes.
const MAX_REMOVALS: usize = 20_000;

/// Key under which failures are counted. The id of a launch depends on its pods and on the ledger's position, so it
/// identifies the launch in plans for the same position: after a change of the ledger, it is sent at once. The id of a
/// removal differs in each plan, so a removal is identified by node and reason.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum RetryKey {
    /// A launch, by its action id.
    Action(ActionId),
    /// The removal of a node for a reason.
    Removal(NodeName, DisruptionReason),
    /// Any removal of a node, known only from snapshots.
    Node(NodeName),
}

impl From<&ActionId> for RetryKey {
    fn from(action: &ActionId) -> Self {
        Self::Action(action.clone())
    }
}

impl From<&Termination> for RetryKey {
    fn from(removal: &Termination) -> Self {
        Self::Removal(removal.node.clone(), removal.reason)
    }
}

#[derive(Debug, Clone, Copy)]
struct Failure {
    count: u32,
    undone: u32,
    until: Instant,
    forgotten: Instant,
    /// No attempt has been accepted since the failure.
    open: bool,
}

/// Consecutive failures by key.
#[derive(Debug, Clone, Default)]
pub struct Retries {
    failures: BTreeMap<RetryKey, Failure>,
    removal_keys: BTreeMap<ActionId, RetryKey>,
    removal_order: VecDeque<ActionId>,
    removals_wait_until: Option<Instant>,
}

impl Retries {
    /// Records a removal that is sent. Its outcomes contain only the action id.
    pub fn sent(&mut self, removal: &Termination) {
        if self.removal_keys.insert(removal.action_id.clone(), removal.into()).is_none() {
            self.removal_order.push_back(removal.action_id.clone());
        }
        while self.removal_order.len() > MAX_REMOVALS {
            if let Some(oldest) = self.removal_order.pop_front() {
                self.removal_keys.remove(&oldest);
            }
        }
    }

    fn key(&self, action: &ActionId) -> RetryKey {
        self.removal_keys.get(action).cloned().unwrap_or_else(|| action.into())
    }

    /// Records that an action was rejected or a launch failed.
    pub fn failed(&mut self, action: &ActionId, now: Instant) {
        let failure = self.entry(self.key(action), now);
        let pause = match failure.count {
            0 => Duration::ZERO,
            count => backoff::delay(FIRST_PAUSE, MAX_PAUSE, count - 1),
        };
        failure.count = failure.count.saturating_add(1);
        failure.until = failure.until.max(now + pause);
        failure.forgotten = failure.forgotten.max(failure.until + MEMORY_AFTER_FAILURE);
    }

    /// Records that an action was rejected because of a disruption budget.
    pub fn over_budget(&mut self, action: &ActionId, now: Instant) {
        if !self.has_failed(&self.key(action)) {
            self.pause_removals(now + BUDGET_LAG);
        }
        self.failed(action, now);
    }

    /// Plans no removals until this time.
    pub fn pause_removals(&mut self, until: Instant) {
        self.removals_wait_until = self.removals_wait_until.max(Some(until));
    }

    /// Until when no removals are planned, if that is after `now`.
    #[must_use]
    pub fn removals_wait(&self, now: Instant) -> Option<Instant> {
        self.removals_wait_until.filter(|until| *until > now)
    }

    /// Records that an accepted action failed. A removal is undone in this case.
    pub fn undone(&mut self, action: &ActionId, now: Instant) {
        match self.removal_keys.get(action).cloned() {
            Some(key) => self.undone_key(key, now),
            None => self.failed(action, now),
        }
    }

    /// Records that a node is not being removed any more, although it exists. This is counted separately from outcomes,
    /// so that a removal that is known from both is not counted twice.
    pub fn undone_node(&mut self, node: &NodeName, now: Instant) {
        self.undone_key(RetryKey::Node(node.clone()), now);
    }

    fn undone_key(&mut self, key: RetryKey, now: Instant) {
        let failure = self.entry(key, now);
        let pause = backoff::delay(FIRST_UNDONE_PAUSE, MAX_UNDONE_PAUSE, failure.undone);
        failure.undone = failure.undone.saturating_add(1);
        failure.until = failure.until.max(now + pause);
        failure.forgotten = failure.until + MEMORY_AFTER_UNDONE;
    }

    fn entry(&mut self, key: RetryKey, now: Instant) -> &mut Failure {
        self.failures.retain(|_, failure| now < failure.forgotten);
        let new = Failure { count: 0, undone: 0, until: now, forgotten: now, open: true };
        let failure = self.failures.entry(key).or_insert(new);
        failure.open = true;
        failure
    }

    /// Records that the action was admitted. The failures of a removal are kept, since it may still be undone.
    pub fn accepted(&mut self, action: &ActionId) {
        match self.removal_keys.get(action).and_then(|key| self.failures.get_mut(key)) {
            Some(failure) => (failure.open, failure.count) = (false, 0),
            None => self.succeeded(action),
        }
    }

    /// Records that the action succeeded.
    pub fn succeeded(&mut self, action: &ActionId) {
        self.failures.remove(&self.key(action));
    }

    /// Whether the last attempt failed.
    #[must_use]
    pub fn has_failed(&self, key: &RetryKey) -> bool {
        self.failures.get(key).is_some_and(|failure| failure.open)
    }

    /// Nodes of the snapshot whose removal pauses at `now`, each with the end of its longest pause. The removal of an
    /// expired node does not pause because it failed for another reason. It pauses if it was undone itself, as the
    /// actuator does if a replacement fails soon after the expiry.
    #[must_use]
    pub fn paused_nodes(&self, snapshot: &Snapshot, now: Instant) -> BTreeMap<NodeName, Instant> {
        let mut nodes = BTreeMap::new();
        for (key, failure) in self.failures.iter().filter(|(_, failure)| failure.until > now) {
            let (node, reason) = match key {
                RetryKey::Removal(node, reason) => (node, Some(*reason)),
                RetryKey::Node(node) => (node, None),
                RetryKey::Action(_) => continue,
            };
            let expires = snapshot.node(node).and_then(|node| node.expires);
            let has_expired = expires.is_some_and(|at| at <= snapshot.now);
            if has_expired && reason != Some(DisruptionReason::Expired) {
                continue;
            }
            let until = nodes.entry(node.clone()).or_insert(failure.until);
            *until = failure.until.max(*until);
        }
        nodes
    }

    /// End of the current pause, if there is one at `now`.
    #[must_use]
    pub fn until(&self, key: &RetryKey, now: Instant) -> Option<Instant> {
        self.failures.get(key).map(|failure| failure.until).filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::samples::node;
    use plimsoll_model::time::Timestamp;

    fn removal(action: &str) -> Termination {
        Termination {
            action_id: action.into(),
            node: "n".into(),
            reason: DisruptionReason::Drifted,
            ..Termination::default()
        }
    }

    #[test]
    fn the_first_retry_is_immediate_and_later_pauses_double_up_to_a_maximum() {
        let (mut retries, action, start) = (Retries::default(), ActionId::from("a"), Instant::now());
        let key = RetryKey::from(&action);
        let mut pause = || {
            retries.failed(&action, start);
            retries.until(&key, start).map_or(0, |until| (until - start).as_millis())
        };
        let pauses: Vec<_> = std::iter::repeat_with(&mut pause).take(11).collect();
        assert_eq!(pauses, [0, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(retries.until(&RetryKey::from(&ActionId::from("b")), start), None);
        retries.succeeded(&action);
        assert_eq!(retries.until(&key, start), None);
    }

    #[test]
    fn failures_of_a_removal_carry_over_to_the_next_plan() {
        let (mut retries, start) = (Retries::default(), Instant::now());
        for action in ["a", "b", "c"] {
            retries.sent(&removal(action));
            retries.failed(&action.into(), start);
        }
        let next = RetryKey::from(&removal("d"));
        assert_eq!(retries.until(&next, start), Some(start + 2 * FIRST_PAUSE));
        let other = Termination { reason: DisruptionReason::Empty, ..removal("e") };
        assert_eq!(retries.until(&RetryKey::from(&other), start), None);
    }

    #[test]
    fn the_pause_of_a_repeatedly_undone_removal_grows() {
        let (mut retries, mut now) = (Retries::default(), Instant::now());
        let key = RetryKey::from(&removal("next"));
        for seconds in [10, 20, 40, 80, 160, 320, 600, 600] {
            let action = ActionId::from(format!("{seconds}").as_str());
            retries.sent(&removal(action.as_str()));
            retries.accepted(&action);
            assert!(!retries.has_failed(&key), "it is under way");
            now += MAX_UNDONE_PAUSE;
            retries.undone(&action, now);
            assert_eq!(retries.until(&key, now), Some(now + Duration::from_secs(seconds)));
            assert!(retries.has_failed(&key), "it was undone");
            now += Duration::from_secs(seconds);
        }
        retries.succeeded(&"600".into());
        assert!(!retries.has_failed(&key));
    }

    #[test]
    fn a_rejection_shortens_neither_the_pause_after_an_undone_removal_nor_its_memory() {
        let (mut retries, start) = (Retries::default(), Instant::now());
        let key = RetryKey::from(&removal("next"));
        retries.sent(&removal("a"));
        retries.undone(&"a".into(), start);
        retries.failed(&"a".into(), start);
        assert_eq!(retries.until(&key, start), Some(start + FIRST_UNDONE_PAUSE));
        // The next attempt takes 20 minutes until it is undone.
        let later = start + Duration::from_secs(1200);
        retries.undone(&"a".into(), later);
        assert_eq!(retries.until(&key, later), Some(later + 2 * FIRST_UNDONE_PAUSE));
    }

    #[test]
    fn a_node_pauses_until_the_longest_of_its_pauses_ends() {
        let pauses = |fail: fn(&mut Retries, &ActionId, Instant)| {
            let (mut retries, start) = (Retries::default(), Instant::now());
            retries.undone_node(&"n".into(), start);
            retries.sent(&removal("a"));
            (0..2).for_each(|_| fail(&mut retries, &"a".into(), start));
            let ends = retries.paused_nodes(&Snapshot::default(), start).into_values();
            ends.map(|end| end - start).collect::<Vec<_>>()
        };
        assert_eq!(pauses(Retries::failed), [FIRST_UNDONE_PAUSE], "two rejections pause it for a moment");
        assert_eq!(pauses(Retries::undone), [2 * FIRST_UNDONE_PAUSE]);
    }

    #[test]
    fn a_short_pause_of_removals_does_not_end_a_longer_one() {
        let (mut retries, start) = (Retries::default(), Instant::now());
        let until = start + Duration::from_secs(60);
        retries.pause_removals(until);
        retries.over_budget(&"a".into(), start);
        assert_eq!(retries.removals_wait(start), Some(until));
    }

    #[test]
    fn rejections_from_before_a_removal_was_admitted_do_not_count() {
        let (mut retries, start) = (Retries::default(), Instant::now());
        let reject = |retries: &mut Retries, action: &str, now: Instant| {
            retries.sent(&removal(action));
            retries.failed(&action.into(), now);
            retries.until(&RetryKey::from(&removal("next")), now)
        };
        assert_eq!(reject(&mut retries, "a", start), None);
        let paused = start + FIRST_PAUSE;
        assert_eq!(reject(&mut retries, "b", start), Some(paused));
        retries.sent(&removal("c"));
        retries.accepted(&"c".into());
        assert_eq!(reject(&mut retries, "d", paused), None, "it is retried at once, as the first one was");
    }

    #[test]
    fn a_node_that_is_seen_to_stay_pauses_like_an_undone_removal() {
        let (mut retries, mut now, node) = (Retries::default(), Instant::now(), NodeName::from("n"));
        for seconds in [10, 20, 40] {
            retries.undone_node(&node, now);
            let until = now + Duration::from_secs(seconds);
            assert_eq!(retries.paused_nodes(&Snapshot::default(), now), [(node.clone(), until)].into());
            // The next attempt takes 20 minutes until it is undone.
            now += Duration::from_secs(seconds + 1200);
        }
        assert_eq!(retries.paused_nodes(&Snapshot::default(), now), BTreeMap::new());
    }

    #[test]
    fn an_expired_node_is_paused_only_after_failures_of_its_expiry() {
        let (mut retries, now) = (Retries::default(), Instant::now());
        let mut expired = node("n", "default");
        expired.expires = Some(Timestamp(5));
        let snapshot = |time| Snapshot { now: Timestamp(time), nodes: vec![expired.clone()], ..Snapshot::default() };
        retries.undone_node(&"n".into(), now);
        assert_eq!(retries.paused_nodes(&snapshot(4), now).len(), 1);
        assert_eq!(retries.paused_nodes(&snapshot(5), now), BTreeMap::new());
        let expiry = Termination { node: "n".into(), reason: DisruptionReason::Expired, ..removal("e") };
        retries.sent(&expiry);
        retries.failed(&expiry.action_id, now);
        retries.failed(&expiry.action_id, now);
        assert_eq!(retries.paused_nodes(&snapshot(5), now), [("n".into(), now + FIRST_PAUSE)].into());
    }

    #[test]
    fn of_too_many_removals_the_oldest_is_forgotten() {
        let (mut retries, start) = (Retries::default(), Instant::now());
        (0..=MAX_REMOVALS).for_each(|n| retries.sent(&removal(&n.to_string())));
        let key = RetryKey::from(&removal("next"));
        retries.undone(&"0".into(), start);
        assert_eq!(retries.until(&key, start), None, "which node it was about is not known any more");
        retries.undone(&"1".into(), start);
        assert_eq!(retries.until(&key, start), Some(start + FIRST_UNDONE_PAUSE));
    }

    #[test]
    fn old_failures_are_forgotten() {
        let (mut retries, start) = (Retries::default(), Instant::now());
        retries.failed(&ActionId::from("a"), start);
        retries.failed(&ActionId::from("b"), start + MEMORY_AFTER_FAILURE);
        assert_eq!(retries.failures.len(), 1);
    }
}

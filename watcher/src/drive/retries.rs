//! Actions that were rejected or failed are tried again, later each time.

use plimsoll_model::identity::{ActionId, NodeName};
use plimsoll_model::plan::Termination;
use plimsoll_model::snapshot::DisruptionReason;
use std::collections::{BTreeMap, VecDeque};
use std::time::Duration;
use tokio::time::Instant;

/// Pause after the second failure in a row; the first is followed at once, on the newer snapshot that its cause brings.
const FIRST: Duration = Duration::from_millis(200);

/// Longest pause: what stands in an action's way for so long will be there a little longer.
const LONGEST: Duration = Duration::from_secs(30);

/// How long a failure is remembered after its pause; an action that comes up again later begins anew.
const MEMORY: Duration = Duration::from_secs(60);

/// Pause after a removal was undone for the first time: its replacements may have been bought by then, and would be again.
const FIRST_UNDONE: Duration = Duration::from_secs(10);

/// Longest pause after a removal was undone: as long as the actuator waits for replacements.
const LONGEST_UNDONE: Duration = Duration::from_secs(600);

/// How long it is remembered that a removal was undone: another attempt may take as long as the longest pause until it is undone as well.
const MEMORY_UNDONE: Duration = Duration::from_secs(1800);

/// Removals of which it is remembered what they are about: some plans' worth, as many outcomes as the actuator keeps.
const MAX_REMOVALS: usize = 20_000;

/// What failures are counted by. A launch's id says what it is about: another plan for other pods has another one. The id of a removal is another
/// one with each plan, so node and reason say it.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub enum About {
    /// An action.
    Action(ActionId),
    /// The removal of a node.
    Removal(NodeName, DisruptionReason),
}

impl From<&ActionId> for About {
    fn from(action: &ActionId) -> Self {
        Self::Action(action.clone())
    }
}

impl From<&Termination> for About {
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
    /// Nothing came of it since.
    open: bool,
}

/// Failures in a row, by what they are about.
#[derive(Debug, Clone, Default)]
pub struct Retries {
    failures: BTreeMap<About, Failure>,
    removals: BTreeMap<ActionId, About>,
    order: VecDeque<ActionId>,
}

impl Retries {
    /// No failures.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// A removal is sent: what comes of it names the action alone.
    pub fn sent(&mut self, removal: &Termination) {
        if self.removals.insert(removal.action_id.clone(), removal.into()).is_none() {
            self.order.push_back(removal.action_id.clone());
        }
        while self.order.len() > MAX_REMOVALS {
            if let Some(oldest) = self.order.pop_front() {
                self.removals.remove(&oldest);
            }
        }
    }

    fn about(&self, action: &ActionId) -> About {
        self.removals.get(action).cloned().unwrap_or_else(|| action.into())
    }

    /// The action was rejected, or a launch failed.
    pub fn failed(&mut self, action: &ActionId, now: Instant) {
        let failure = self.entry(action, now);
        let pause = match failure.count {
            0 => Duration::ZERO,
            count => FIRST.saturating_mul(2_u32.saturating_pow(count - 1)).min(LONGEST),
        };
        failure.count = failure.count.saturating_add(1);
        failure.until = failure.until.max(now + pause);
        failure.forgotten = failure.forgotten.max(failure.until + MEMORY);
    }

    /// The action was carried out and did not come to its end. If it is a removal, it is undone.
    pub fn undone(&mut self, action: &ActionId, now: Instant) {
        if !self.removals.contains_key(action) {
            return self.failed(action, now);
        }
        let failure = self.entry(action, now);
        let pause = FIRST_UNDONE.saturating_mul(2_u32.saturating_pow(failure.undone)).min(LONGEST_UNDONE);
        failure.undone = failure.undone.saturating_add(1);
        failure.until = failure.until.max(now + pause);
        failure.forgotten = failure.until + MEMORY_UNDONE;
    }

    fn entry(&mut self, action: &ActionId, now: Instant) -> &mut Failure {
        self.failures.retain(|_, failure| now < failure.forgotten);
        let about = self.about(action);
        let new = Failure { count: 0, undone: 0, until: now, forgotten: now, open: true };
        let failure = self.failures.entry(about).or_insert(new);
        failure.open = true;
        failure
    }

    /// The action is admitted. A removal may be undone yet, and is not forgotten.
    pub fn accepted(&mut self, action: &ActionId) {
        match self.removals.get(action).and_then(|about| self.failures.get_mut(about)) {
            Some(failure) => (failure.open, failure.count) = (false, 0),
            None => self.succeeded(action),
        }
    }

    /// The action came to its end.
    pub fn succeeded(&mut self, action: &ActionId) {
        self.failures.remove(&self.about(action));
    }

    /// Whether the last attempt failed.
    #[must_use]
    pub fn has(&self, about: &About) -> bool {
        self.failures.get(about).is_some_and(|failure| failure.open)
    }

    /// Until when it is left alone, if it is.
    #[must_use]
    pub fn until(&self, about: &About, now: Instant) -> Option<Instant> {
        self.failures.get(about).map(|failure| failure.until).filter(|until| *until > now)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::money::MicroUsdPerHour;

    fn removal(action: &str) -> Termination {
        Termination {
            action_id: action.into(),
            node: "n".into(),
            reason: DisruptionReason::Drifted,
            pods: Vec::new(),
            replaced_by: Vec::new(),
            moved_to: Vec::new(),
            saving: MicroUsdPerHour(0),
        }
    }

    #[test]
    fn the_first_retry_is_at_once_and_later_ones_wait_longer_up_to_a_bound() {
        let (mut retries, action, start) = (Retries::new(), ActionId::from("a"), Instant::now());
        let about = About::from(&action);
        let mut pause = || {
            retries.failed(&action, start);
            retries.until(&about, start).map_or(0, |until| (until - start).as_millis())
        };
        let pauses: Vec<_> = std::iter::repeat_with(&mut pause).take(11).collect();
        assert_eq!(pauses, [0, 200, 400, 800, 1600, 3200, 6400, 12_800, 25_600, 30_000, 30_000]);
        assert_eq!(retries.until(&About::from(&ActionId::from("b")), start), None);
        retries.succeeded(&action);
        assert_eq!(retries.until(&about, start), None);
    }

    #[test]
    fn a_refused_removal_is_the_same_one_in_the_next_plan() {
        let (mut retries, start) = (Retries::new(), Instant::now());
        for action in ["a", "b", "c"] {
            retries.sent(&removal(action));
            retries.failed(&action.into(), start);
        }
        let next = About::from(&removal("d"));
        assert_eq!(retries.until(&next, start), Some(start + 2 * FIRST));
        let other = Termination { reason: DisruptionReason::Empty, ..removal("e") };
        assert_eq!(retries.until(&About::from(&other), start), None);
    }

    #[test]
    fn a_removal_that_is_admitted_and_undone_again_and_again_waits_longer_each_time() {
        let (mut retries, mut now) = (Retries::new(), Instant::now());
        let about = About::from(&removal("next"));
        for seconds in [10, 20, 40, 80, 160, 320, 600, 600] {
            let action = ActionId::from(format!("{seconds}").as_str());
            retries.sent(&removal(action.as_str()));
            retries.accepted(&action);
            assert!(!retries.has(&about), "it is under way");
            now += LONGEST_UNDONE;
            retries.undone(&action, now);
            assert_eq!(retries.until(&about, now), Some(now + Duration::from_secs(seconds)));
            now += Duration::from_secs(seconds);
        }
        retries.succeeded(&"600".into());
        assert!(!retries.has(&about));
    }

    #[test]
    fn old_failures_are_forgotten() {
        let (mut retries, start) = (Retries::new(), Instant::now());
        retries.failed(&ActionId::from("a"), start);
        retries.failed(&ActionId::from("b"), start + MEMORY + FIRST);
        assert_eq!(retries.failures.len(), 1);
    }
}

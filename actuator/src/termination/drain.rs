//! Which pods of a node are evicted now, and which are waited for. Pure functions.

use crate::pods;
use jiff::{SignedDuration, Timestamp};
use plimsoll_api::Pod;
use plimsoll_model::identity::PodUid;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Kubernetes' default grace period.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// The next step of a node's drain.
#[derive(Debug, Clone, Default)]
pub struct Drain {
    /// Pods to evict, subject to their budgets.
    pub evict: Vec<Arc<Pod>>,
    /// Pods to delete regardless of any protection, with the grace period in seconds: the node's deadline is near.
    pub force: Vec<(Arc<Pod>, u32)>,
    /// Number of pods that the node waits for, including those above.
    pub waiting: usize,
    /// Number of pods that have been asked to stop and still run within their grace period.
    pub stopping: usize,
    /// Pods that must not be disrupted, as `namespace/name`, and the annotations that say so.
    pub protected: Vec<(String, &'static str)>,
    /// When time alone changes the result.
    pub look_again: Option<Timestamp>,
}

/// Eviction order. A tier starts only when all pods of the tier before are gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Tier {
    Usual,
    Daemon,
    Critical,
    CriticalDaemon,
}

impl Tier {
    fn of(pod: &Pod) -> Self {
        match (pods::is_critical(pod), pod.is_daemon()) {
            (false, false) => Self::Usual,
            (false, true) => Self::Daemon,
            (true, false) => Self::Critical,
            (true, true) => Self::CriticalDaemon,
        }
    }
}

/// Whether the drain waits for the pod.
#[must_use]
pub fn is_waited_for(pod: &Pod, now: Timestamp) -> bool {
    !pod.is_terminal() && pod.is_drained() && !pods::is_stuck(pod, now)
}

/// Computes the next step of a drain, with an optional deadline. A `forced` drain is not a voluntary disruption.
#[must_use]
pub fn plan(pods: &[Arc<Pod>], deadline: Option<Timestamp>, forced: bool, now: Timestamp) -> Drain {
    let mut drain = Drain::default();
    let waiting: Vec<&Arc<Pod>> = pods.iter().filter(|pod| is_waited_for(pod, now)).collect();
    drain.waiting = waiting.len();
    let first = waiting.iter().map(|pod| Tier::of(pod)).min();
    for pod in waiting {
        let forced_from = deadline.map(|deadline| forced_from(pod, deadline));
        if let (Some(deadline), Some(from)) = (deadline, forced_from)
            && from <= now
        {
            if let Some(grace) = forced_grace(pod, deadline, now) {
                drain.force.push((Arc::clone(pod), grace));
            }
            continue;
        }
        drain.wake_by(forced_from);
        if pod.is_terminating() {
            drain.stopping += 1;
            let stuck = pod
                .metadata
                .deletion_timestamp
                .as_ref()
                .and_then(|at| at.0.checked_add(SignedDuration::from_secs(61)).ok());
            drain.wake_by(stuck);
        } else if let Some((until, annotation)) = pods::protection(pod, forced, now) {
            drain.protected.push((pods::full_name(pod), annotation));
            drain.wake_by(Some(until).filter(|until| *until < Timestamp::MAX));
        } else if Some(Tier::of(pod)) == first {
            drain.evict.push(Arc::clone(pod));
        }
    }
    drain
}

/// For each pod that has to move, the time from its eviction until it and the pods that are evicted after it have
/// stopped, by their grace periods. Later tiers count up to the last one with a pod that has to move.
#[must_use]
pub fn times_to_stop(pods: &[Arc<Pod>], now: Timestamp) -> BTreeMap<PodUid, SignedDuration> {
    let mut longest: BTreeMap<Tier, SignedDuration> = BTreeMap::new();
    for pod in pods.iter().filter(|pod| is_waited_for(pod, now)) {
        let of_tier = longest.entry(Tier::of(pod)).or_default();
        *of_tier = (*of_tier).max(grace(pod));
    }
    let moving = || pods.iter().filter(|pod| is_waited_for(pod, now) && pods::is_reschedulable(pod));
    let last = moving().map(|pod| Tier::of(pod)).max();
    let needed = moving().map(|pod| {
        let later = longest.iter().filter(|(tier, _)| **tier > Tier::of(pod) && Some(**tier) <= last);
        let needed = later.map(|(_, longest)| *longest).fold(grace(pod), SignedDuration::saturating_add);
        (PodUid(pods::uid(pod)), needed)
    });
    needed.collect()
}

impl Drain {
    /// Leaves out pods whose eviction starts later, at the given time at the latest.
    pub fn delay(&mut self, until: &BTreeMap<PodUid, Timestamp>) {
        let of = |pod: &Pod| until.get(&PodUid(pods::uid(pod))).copied();
        let wake_at: Vec<Timestamp> = self.evict.iter().filter_map(|pod| of(pod)).collect();
        wake_at.into_iter().for_each(|at| self.wake_by(Some(at)));
        self.evict.retain(|pod| of(pod).is_none());
    }

    fn wake_by(&mut self, at: Option<Timestamp>) {
        self.look_again = [self.look_again, at].into_iter().flatten().min();
    }
}

fn grace(pod: &Pod) -> SignedDuration {
    let seconds = pod.spec.as_ref().and_then(|spec| spec.termination_grace_period_seconds);
    SignedDuration::from_secs(seconds.unwrap_or(DEFAULT_GRACE_SECONDS).max(0))
}

/// When the pod must be deleted so that its grace period ends before the deadline.
fn forced_from(pod: &Pod, deadline: Timestamp) -> Timestamp {
    match &pod.metadata.deletion_timestamp {
        // The pod terminates in time on its own.
        Some(at) if at.0 <= deadline => Timestamp::MAX,
        Some(_) => Timestamp::MIN,
        None => deadline.saturating_sub(grace(pod)).unwrap_or(Timestamp::MIN),
    }
}

/// The remaining grace period, at least one second. `None` if the pod already terminates that fast.
fn forced_grace(pod: &Pod, deadline: Timestamp, now: Timestamp) -> Option<u32> {
    let left = deadline.duration_since(now).as_secs().max(1);
    let left = u32::try_from(left).unwrap_or(u32::MAX);
    let ends = now.saturating_add(SignedDuration::from_secs(i64::from(left))).unwrap_or(Timestamp::MAX);
    match &pod.metadata.deletion_timestamp {
        Some(at) if at.0 <= ends => None,
        _ => Some(left),
    }
}

#[cfg(test)]
mod tests;

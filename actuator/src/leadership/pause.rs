//! Only one autoscaler may be active (safety rule 20). While Karpenter's Lease is held, and while Karpenter may be
//! restarting, nothing is written except a condition on each NodePool, which reports the pause and the actions that
//! Plimsoll would take.

use crate::fencing::{CLUSTER_CALL, Fence};
use crate::io::{ObjectPart, Reads, WriteError, Writes};
use crate::settings::ObjectName;
use crate::state::unexecuted::{Intent, Unexecuted};
use crate::stores::{Stores, WatchedKind};
use k8s_openapi::api::coordination::v1::{Lease, LeaseSpec};
use kube::ResourceExt;
use plimsoll_api::NodePool;
use plimsoll_api::condition::node_pool::{CONDITIONS, PAUSED};
use plimsoll_api::condition::{self, Moment, Status};
use plimsoll_runtime::clock::Clock;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_util::sync::CancellationToken;

/// Interval between reads of the Lease: a few per lease duration.
const READ_INTERVAL: Duration = Duration::from_secs(5);
/// Assumed duration of a Lease without one.
const DEFAULT_LEASE_DURATION: Duration = Duration::from_secs(15);
/// How long the Lease of a Karpenter that was running must be free. Between two of its leaders it is free for seconds,
/// and during a restart of its only replica for up to a minute.
const RESTART_TIME: Duration = Duration::from_secs(60);

/// Reason for the pause until Karpenter's Lease is first read.
pub const UNKNOWN: &str = "Karpenter's Lease was not read yet";
/// Reason of the condition [`PAUSED`].
const REASON: &str = "KarpenterIsRunning";
/// Minimum interval between writes of the condition, since plans arrive several times a second.
const WRITE_INTERVAL: Duration = Duration::from_secs(1);
/// Delay before a failed write is retried.
const RETRY_DELAY: Duration = Duration::from_secs(10);

/// Reports the pause on each NodePool.
#[derive(Clone)]
pub(super) struct PausedStatus {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Writes to the cluster.
    pub writes: Writes,
    /// Actions of plans that were not executed while paused.
    pub unexecuted: Unexecuted,
    /// Fence of the term.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

/// While paused, keeps a condition on each NodePool that reports the pause and the skipped actions.
pub(super) async fn report_pause(deps: PausedStatus, stop: CancellationToken) {
    let mut fence = deps.fence.clone();
    let mut intents = deps.unexecuted.latest.subscribe();
    let mut pools = deps.stores.changes(&[WatchedKind::NodePool]);
    loop {
        let written = write_conditions(&deps).await;
        if let Err(error) = &written {
            tracing::warn!(%error, "condition Paused of NodePools not written");
        }
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = fence.pause_changed() => {}
            changed = intents.changed() => if changed.is_err() { return },
            () = pools.next() => {}
            () = tokio::time::sleep(RETRY_DELAY), if written.is_err() => {}
        }
        tokio::time::sleep(WRITE_INTERVAL).await;
    }
}

/// Writes the conditions that differ. A NodePool that cannot be written keeps no other from its condition.
///
/// # Errors
/// A condition was not written.
async fn write_conditions(deps: &PausedStatus) -> Result<(), WriteError> {
    let pause = deps.fence.paused();
    if pause.as_deref() == Some(UNKNOWN) {
        return Ok(());
    }
    let intent = deps.unexecuted.latest.borrow().clone();
    let (now, mut failure) = (deps.clock.now(), None);
    for pool in deps.stores.pools.state() {
        let message = pause.as_ref().map(|reason| message(reason, intent.as_ref(), &pool.name_any()));
        let change = |pool: &mut NodePool| {
            let moment = Moment::of(&pool.metadata, now);
            let conditions = &mut pool.status.get_or_insert_default().conditions;
            match &message {
                Some(message) => drop(CONDITIONS.set(conditions, moment, PAUSED, Status::True, REASON, message)),
                None => {
                    // No other condition depends on it, so it can be cleared.
                    let _cleared = CONDITIONS.clear(conditions, moment, PAUSED);
                }
            }
        };
        let condition = pool.status.as_ref().and_then(|status| condition::get(&status.conditions, PAUSED));
        if (condition.is_some() || message.is_some())
            && let Err(error) = deps.writes.update(pool.as_ref(), ObjectPart::Notice, change).await
        {
            failure.get_or_insert(error);
        }
    }
    failure.map_or(Ok(()), Err)
}

fn message(reason: &str, intent: Option<&Intent>, pool: &str) -> String {
    let Some(intent) = intent else { return format!("{reason}; Plimsoll takes no action") };
    let launches = intent.launches.get(pool).copied().unwrap_or(0);
    let removals = intent.removals;
    format!(
        "{reason}; Plimsoll takes no action. The last plan would launch {launches} node(s) of this NodePool and remove {removals} node(s) in total"
    )
}

/// Publishes the reason for a pause while there is one. An unknown state counts as held.
pub async fn watch_karpenter(reads: Reads, lease: Option<ObjectName>, pause: watch::Sender<Option<String>>) {
    let Some(name) = lease else {
        pause.send_replace(None);
        return pause.closed().await;
    };
    let mut karpenter = Karpenter::default();
    loop {
        let read = match tokio::time::timeout(CLUSTER_CALL, reads.lease(&name)).await {
            Ok(Ok(lease)) => Ok(karpenter.pause(&name, lease, Instant::now())),
            Ok(Err(error)) => Err(error.to_string()),
            Err(_) => Err(format!("no response within {CLUSTER_CALL:?}")),
        };
        match read {
            Ok(reason) => {
                pause.send_if_modified(|current| {
                    let differs = *current != reason;
                    if differs {
                        tracing::info!(lease = %name, reason, "pause changed");
                        *current = reason;
                    }
                    differs
                });
            }
            // The earlier result stays valid.
            Err(error) => {
                karpenter.not_read(Instant::now());
                tracing::warn!(lease = %name, error, "Lease of Karpenter not read, retrying");
            }
        }
        tokio::select! {
            biased;
            () = tokio::time::sleep(READ_INTERVAL) => {}
            () = pause.closed() => return,
        }
    }
}

/// What the reads of its Lease so far tell about Karpenter.
#[derive(Debug, Default)]
struct Karpenter {
    /// The last read.
    last: Option<LeaseSpec>,
    /// The last Lease with a holder, and since when it is unchanged.
    observed: Option<(LeaseSpec, Instant)>,
    /// The Lease has changed between two reads, so Karpenter was running.
    was_running: bool,
    /// Since when the Lease is free.
    free_since: Option<Instant>,
}

impl Karpenter {
    /// Why nothing may be written, if so. `lease` was read just now.
    fn pause(&mut self, name: &ObjectName, lease: Option<Lease>, now: Instant) -> Option<String> {
        let Some(lease) = lease else {
            // Karpenter does not delete its Lease, so a user did.
            *self = Self::default();
            return None;
        };
        let spec = lease.spec.unwrap_or_default();
        self.was_running |= self.last.as_ref().is_some_and(|last| *last != spec);
        self.last = Some(spec.clone());
        if let Some(holder) = held(Some(spec), &mut self.observed, now) {
            self.free_since = None;
            return Some(format!("Karpenter is running: Lease {name} is held by {holder}"));
        }
        let since = *self.free_since.get_or_insert(now);
        let may_return = self.was_running && now.duration_since(since) < RESTART_TIME;
        let reason = || format!("Karpenter may be restarting: Lease {name} is not yet free for {RESTART_TIME:?}");
        may_return.then(reason)
    }

    /// The Lease was not read. Perhaps nobody could acquire it, so the time in which Karpenter may return begins again.
    fn not_read(&mut self, now: Instant) {
        self.free_since.take_if(|since| now.duration_since(*since) < RESTART_TIME);
    }
}

/// The holder of the Lease. A Lease counts as expired once it was seen unchanged for its whole duration; timestamps of
/// other clocks are not compared.
fn held(lease: Option<LeaseSpec>, observed: &mut Option<(LeaseSpec, Instant)>, now: Instant) -> Option<String> {
    let Some(spec) = lease.filter(|spec| spec.holder_identity.as_deref().is_some_and(|holder| !holder.is_empty()))
    else {
        *observed = None;
        return None;
    };
    let since = match observed {
        Some((last, since)) if *last == spec => *since,
        _ => now,
    };
    let length = spec.lease_duration_seconds.and_then(|seconds| u64::try_from(seconds).ok()).map(Duration::from_secs);
    let holder = spec.holder_identity.clone();
    *observed = Some((spec, since));
    holder.filter(|_| now.duration_since(since) < length.unwrap_or(DEFAULT_LEASE_DURATION))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::apimachinery::pkg::apis::meta::v1::MicroTime;

    fn lease(holder: &str, renewed: i64) -> Option<LeaseSpec> {
        Some(LeaseSpec {
            holder_identity: Some(holder.to_owned()),
            lease_duration_seconds: Some(15),
            renew_time: Some(MicroTime(jiff::Timestamp::from_second(renewed).unwrap())),
            ..LeaseSpec::default()
        })
    }

    #[test]
    fn pause_condition_describes_the_skipped_actions() {
        let intent = Intent { launches: [("a".to_owned(), 2)].into(), removals: 1 };
        assert_eq!(
            message("Karpenter is running", Some(&intent), "a"),
            "Karpenter is running; Plimsoll takes no action. The last plan would launch 2 node(s) of this NodePool and remove 1 node(s) in total"
        );
        assert!(message("x", Some(&intent), "b").contains("would launch 0 node(s)"));
        assert_eq!(message("x", None, "a"), "x; Plimsoll takes no action");
    }

    #[tokio::test(start_paused = true)]
    async fn lease_is_held_until_unchanged_for_its_duration() {
        let (start, mut seen) = (Instant::now(), None);
        let after = |seconds| start + Duration::from_secs(seconds);
        let name = Some("karpenter-0".to_owned());
        assert_eq!(held(lease("karpenter-0", 1), &mut seen, after(0)), name);
        assert_eq!(held(lease("karpenter-0", 9), &mut seen, after(10)), name);
        assert_eq!(held(lease("karpenter-0", 9), &mut seen, after(24)), name);
        assert_eq!(held(lease("karpenter-0", 9), &mut seen, after(25)), None);
        assert_eq!(held(lease("karpenter-0", 30), &mut seen, after(30)), name);
        assert_eq!(held(lease("", 30), &mut seen, after(31)), None);
        assert_eq!(held(None, &mut seen, after(32)), None);
        assert_eq!(held(lease("karpenter-0", 30), &mut seen, after(60)), name, "not the Lease that was seen before");
    }

    /// The second of a read, and the Lease if there is one; `None` if the read fails.
    type Read = (u64, Option<Option<LeaseSpec>>);

    /// Whether nothing may be written after each of these reads.
    fn paused(reads: &[Read]) -> Vec<bool> {
        let (name, start) = (ObjectName::new("kube-system", "karpenter-leader-election"), Instant::now());
        let (mut karpenter, mut is_paused) = (Karpenter::default(), true);
        let after = |(second, read): &Read| {
            let now = start + Duration::from_secs(*second);
            match read.clone() {
                Some(spec) => {
                    let lease = spec.map(|spec| Lease { spec: Some(spec), ..Lease::default() });
                    is_paused = karpenter.pause(&name, lease, now).is_some();
                }
                None => karpenter.not_read(now),
            }
            is_paused
        };
        reads.iter().map(after).collect()
    }

    #[tokio::test(start_paused = true)]
    async fn a_karpenter_that_was_running_may_return_for_a_minute() {
        let holder = |renewed: i64| Some(lease("karpenter-0", renewed));
        let (released, standby) = (Some(lease("", 9)), Some(lease("karpenter-1", 12)));
        let running: Vec<Read> = vec![(0, holder(1)), (5, holder(5)), (10, released.clone())];
        let with = |more: &[Read]| paused(&[running.as_slice(), more].concat()).split_off(2);
        assert_eq!(with(&[(15, standby)]), [true, true], "the standby has acquired it");
        assert_eq!(with(&[(69, released.clone()), (70, released)]), [true, true, false], "it has ended");
        let touched = |renewed: i64| Some(lease("", renewed));
        assert_eq!(with(&[(40, touched(40)), (70, touched(70))]), [true, true, false], "somebody edits a free Lease");
        // Its leader crashed, and the API server answers nobody for half a minute.
        let crash = [(5, holder(5)), (9, holder(9)), (24, holder(9)), (30, None), (60, holder(9)), (119, holder(9))];
        assert_eq!(paused(&crash), [true; 6]);
        let later = [(120, holder(9)), (125, None)];
        assert_eq!(paused(&[crash.as_slice(), later.as_slice()].concat()).split_off(6), [false, false]);
    }

    #[tokio::test(start_paused = true)]
    async fn a_karpenter_that_was_not_running_is_not_waited_for() {
        let (left, released) = (Some(lease("karpenter-0", 1)), Some(lease("", 1)));
        assert_eq!(paused(&[(0, released.clone()), (5, released)]), [false, false], "it has ended before");
        assert_eq!(paused(&[(0, left.clone()), (14, left.clone()), (15, left)]), [true, true, false], "or crashed");
        assert_eq!(paused(&[(0, Some(None))]), [false], "or was never there");
        let deleted = [(0, Some(lease("karpenter-0", 1))), (5, Some(lease("karpenter-0", 5))), (10, Some(None))];
        assert_eq!(paused(&deleted), [true, true, false], "a user has deleted the Lease");
    }

    /// Its default in Kubernetes' own controllers.
    #[tokio::test(start_paused = true)]
    async fn lease_without_a_duration_is_held_for_fifteen_seconds() {
        let (start, mut seen) = (Instant::now(), None);
        let mut is_held = |seconds: u64, duration: Option<i32>| {
            let spec = lease("karpenter-0", 1).map(|spec| LeaseSpec { lease_duration_seconds: duration, ..spec });
            held(spec, &mut seen, start + Duration::from_secs(seconds)).is_some()
        };
        assert!(is_held(0, None) && is_held(14, None) && !is_held(15, None));
        assert!(is_held(20, Some(-1)) && is_held(34, Some(-1)) && !is_held(35, Some(-1)), "it cannot be negative");
    }
}

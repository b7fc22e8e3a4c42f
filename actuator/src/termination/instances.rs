//! Terminates instances in batches and waits until they are gone: a read shows them as terminated, or two independent
//! reads miss them (safety rule 14).

use super::early_end::EndReason;
use crate::clock::Timestamped;
use crate::io::TerminateResult;
use crate::metrics::view::label_of;
use crate::nodes;
use crate::ports::{CloudError, InstanceFilter, InstanceState, StateReason};
use crate::state::absence::{Absence, SETTLING};
use crate::state::zonal_shifts::shifted_zone;
use crate::termination::Termination;
use parking_lot::Mutex;
use plimsoll_api::NodeClaim;
use plimsoll_model::names::label;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;
use tokio::sync::Notify;
use tokio_util::sync::CancellationToken;

/// Instances per read; as many ids as fit into one filter.
const PER_CALL: usize = 200;
/// First pause after EC2 refuses to terminate an instance. Doubles, since somebody must change something first.
const FIRST_PAUSE: Millis = Millis::from_seconds(5);
/// Longest pause. Whoever removes a termination protection sees the instance go within minutes.
const LONGEST_PAUSE: Millis = Millis::from_seconds(300);
/// Reason of the condition InstanceTerminating while EC2 refuses to terminate the instance.
const TERMINATION_REFUSED: &str = "TerminationRefused";
/// Its reason while the cluster is shifted away from the zone of the instance.
const ZONAL_SHIFT: &str = "ZonalShift";
/// Delay that combines claims whose nodes are drained at about the same time into one call.
const COALESCE: Duration = Duration::from_millis(50);
/// Interval between reads of terminating instances. One call covers all of them.
const READ_EVERY: Duration = Duration::from_secs(2);

/// Phase of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum InstancePhase {
    /// Not read yet, or running.
    Running,
    /// Termination was requested, or has begun.
    Terminating,
    /// Terminated.
    Gone,
}

/// A refused termination.
#[derive(Debug, Clone, PartialEq, Eq)]
struct Refusal {
    error: CloudError,
    pause: Millis,
    again: Timestamp,
}

impl Refusal {
    fn of(error: CloudError, before: Option<&Self>, now: Timestamp) -> Self {
        let pause = before.map_or(FIRST_PAUSE, |before| Millis(before.pause.0.saturating_mul(2)).min(LONGEST_PAUSE));
        Self { error, pause, again: now.plus(pause) }
    }
}

#[derive(Debug, Default)]
struct TrackedInstance {
    end: bool,
    requested: bool,
    terminated: bool,
    refusal: Option<Refusal>,
    /// Why it ended, once a read has shown that it did.
    end_reason: EndReason,
    absence: Absence,
    claim_created: Timestamp,
}

impl TrackedInstance {
    fn phase(&self, now: Timestamp) -> InstancePhase {
        let settled = now.since(self.claim_created) > SETTLING;
        if self.terminated || (self.absence.is_confirmed() && settled) {
            InstancePhase::Gone
        } else if self.requested {
            InstancePhase::Terminating
        } else {
            InstancePhase::Running
        }
    }

    /// Records what a read shows of the instance.
    fn found(&mut self, state: InstanceState, reason: Option<StateReason>) {
        self.absence.found();
        self.terminated = state == InstanceState::Terminated;
        if !state.is_alive() {
            // A call that was not answered would be repeated, and keep the other batches waiting.
            self.requested = true;
            self.end_reason.note(reason);
        }
    }

    /// Whether EC2 is to be asked to terminate the instance now.
    fn is_due(&self, now: Timestamp) -> bool {
        let may_try = self.refusal.as_ref().is_none_or(|refusal| refusal.again <= now);
        self.end && !self.requested && may_try
    }
}

/// Instances that terminations wait for.
#[derive(Debug, Default)]
pub(super) struct Instances {
    watched: Mutex<BTreeMap<String, TrackedInstance>>,
    work: Notify,
}

impl Instances {
    /// The phase of an instance, without terminating it.
    pub(super) fn observe(&self, id: &str, claim_created: Timestamp, now: Timestamp) -> InstancePhase {
        self.watch(id, claim_created, false, now)
    }

    /// Requests termination. Must be called again until the instance is gone.
    fn request_termination(&self, id: &str, claim_created: Timestamp, now: Timestamp) -> InstancePhase {
        self.watch(id, claim_created, true, now)
    }

    fn watch(&self, id: &str, claim_created: Timestamp, end: bool, now: Timestamp) -> InstancePhase {
        let mut instances = self.watched.lock();
        let is_new = !instances.contains_key(id);
        let watched = instances.entry(id.to_owned()).or_default();
        watched.claim_created = claim_created;
        if is_new || (end && !watched.end) {
            self.work.notify_one();
        }
        watched.end |= end;
        watched.phase(now)
    }

    /// Requests termination of a claim's instance, unless its zone is shifted. Also returns why the instance is not
    /// terminated, as reason and message.
    pub(super) fn end(
        &self,
        deps: &Termination,
        claim: &NodeClaim,
        id: &str,
        created: Timestamp,
    ) -> (InstancePhase, Option<(&'static str, String)>) {
        let now = deps.clock.timestamp();
        if let Some(zone) = shifted_zone(claim, &deps.zonal_shifts.zones(&deps.stores, now)) {
            let message = format!("instance {id} is terminated after the zonal shift away from {zone}");
            return (self.observe(id, created, now), Some((ZONAL_SHIFT, message)));
        }
        let phase = self.request_termination(id, created, now);
        let refused = |error| (TERMINATION_REFUSED, format!("instance {id} is not terminated: {error}"));
        (phase, self.refusal(id).map(refused))
    }

    /// Uses the reason why an instance ended; `None` if the instance is not tracked.
    pub(super) fn with_end_reason<T>(&self, id: &str, step: impl FnOnce(&mut EndReason) -> T) -> Option<T> {
        self.watched.lock().get_mut(id).map(|watched| step(&mut watched.end_reason))
    }

    /// Why EC2 refuses to terminate the instance, if it does.
    fn refusal(&self, id: &str) -> Option<CloudError> {
        self.watched.lock().get(id)?.refusal.as_ref().map(|refusal| refusal.error.clone())
    }

    /// Makes the EC2 calls until `stop`.
    pub(super) async fn run(&self, deps: &Termination, stop: &CancellationToken) {
        loop {
            let idle = self.watched.lock().values().all(|watched| watched.terminated);
            let pause = if idle { Duration::MAX } else { READ_EVERY };
            tokio::select! {
                biased;
                () = stop.cancelled() => return,
                () = self.work.notified() => tokio::time::sleep(COALESCE).await,
                () = tokio::time::sleep(pause) => {}
            }
            self.terminate(deps).await;
            self.read(deps).await;
            let (claims, nodes) = (deps.stores.claims.state(), deps.stores.nodes.state());
            let deleted = nodes.iter().filter(|node| node.metadata.deletion_timestamp.is_some());
            let asked_for = claims.iter().filter_map(|claim| claim.instance_id());
            let asked_for = asked_for.chain(deleted.filter_map(|node| nodes::instance_id(node))).collect();
            self.retain(&asked_for, deps.clock.timestamp());
        }
    }

    /// Forgets instances that have neither a NodeClaim nor a deleted Node any more, since nobody asks for them again.
    /// Those that are to be terminated are forgotten once they are gone.
    fn retain(&self, asked_for: &BTreeSet<&str>, now: Timestamp) {
        let is_ending = |watched: &TrackedInstance| watched.end && watched.phase(now) != InstancePhase::Gone;
        self.watched.lock().retain(|id, watched| asked_for.contains(id.as_str()) || is_ending(watched));
    }

    fn ids(&self, wanted: impl Fn(&TrackedInstance) -> bool) -> Vec<String> {
        let tracked = self.watched.lock();
        tracked.iter().filter(|(_, watched)| wanted(watched)).map(|(id, _)| id.clone()).collect()
    }

    /// Instances that the next read is about.
    fn unfinished(&self) -> Vec<String> {
        self.ids(|watched| !watched.terminated)
    }

    async fn terminate(&self, deps: &Termination) {
        let now = deps.clock.timestamp();
        let mut ids = self.ids(|watched| watched.is_due(now));
        let shifted = in_shifted_zones(deps, now);
        ids.retain(|id| !shifted.contains(id));
        let report = |id: &str, answer: TerminateResult| {
            if answer.is_err() {
                let is_its = |claim: &&std::sync::Arc<NodeClaim>| claim.instance_id() == Some(id);
                let claims = deps.stores.claims.state();
                let labels = claims.iter().find(is_its).and_then(|claim| claim.metadata.labels.as_ref());
                deps.metrics.cloud.not_terminated(label_of(labels, label::ZONE));
            }
            self.answered(id, answer, deps.clock.timestamp());
        };
        if let Err(error) = deps.cloud.terminate(&ids, report).await {
            tracing::warn!(%error, "instances not terminated, retrying");
        }
    }

    fn answered(&self, id: &str, answer: TerminateResult, now: Timestamp) {
        let mut instances = self.watched.lock();
        let Some(watched) = instances.get_mut(id) else { return };
        match answer {
            Ok(Some(state)) => {
                watched.requested = true;
                // The reason of an end before this call is not in the answer, but in that of the next read.
                watched.terminated = state == InstanceState::Terminated && watched.end_reason != EndReason::Unread;
                watched.refusal = None;
                watched.absence.found();
            }
            // Reads are eventually consistent: an instance that was just launched may be unknown, and the call is
            // repeated.
            Ok(None) => watched.absence.missed(now),
            Err(error) if error.is_transient() => {
                tracing::warn!(instance = id, %error, "instance not terminated, retrying");
            }
            Err(error) => {
                let refusal = Refusal::of(error, watched.refusal.as_ref(), now);
                let (error, pause) = (&refusal.error, refusal.pause);
                tracing::warn!(instance = id, %error, ?pause, "EC2 refuses to terminate the instance");
                watched.refusal = Some(refusal);
            }
        }
    }

    async fn read(&self, deps: &Termination) {
        for ids in self.unfinished().chunks(PER_CALL) {
            let filter = InstanceFilter::Ids(ids.to_vec());
            let instances = match deps.cloud_reads.instances(&filter).await {
                Ok(instances) => instances,
                Err(error) => {
                    tracing::warn!(%error, "terminating instances not read, retrying");
                    continue;
                }
            };
            let now = deps.clock.timestamp();
            let shifted = in_shifted_zones(deps, now);
            let mut tracked = self.watched.lock();
            for id in ids {
                let Some(watched) = tracked.get_mut(id) else { continue };
                match instances.iter().find(|instance| instance.id == *id) {
                    Some(instance) => watched.found(instance.state, instance.state_reason.clone()),
                    // During a zonal shift, EC2 may not see all of the zone.
                    None if shifted.contains(id) => watched.absence.found(),
                    None => watched.absence.missed(now),
                }
            }
        }
    }
}

/// Instances of claims in zones that the cluster is shifted away from.
fn in_shifted_zones(deps: &Termination, now: Timestamp) -> BTreeSet<String> {
    let zones = deps.zonal_shifts.zones(&deps.stores, now);
    if zones.is_empty() {
        return BTreeSet::new();
    }
    let claims = deps.stores.claims.state();
    let there = claims.iter().filter(|claim| shifted_zone(claim, &zones).is_some());
    there.filter_map(|claim| claim.instance_id().map(str::to_owned)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A read shows the instance as terminated.
    fn show_terminated(instances: &Instances, id: &str) {
        let reason = StateReason { code: "Client.UserInitiatedShutdown".to_owned(), message: String::new() };
        instances.watched.lock().get_mut(id).unwrap().found(InstanceState::Terminated, Some(reason));
    }

    #[test]
    fn single_missed_read_does_not_mean_gone() {
        let instances = Instances::default();
        let time = |seconds: i64| Timestamp(seconds * 1000);
        assert_eq!(instances.request_termination("i-1", time(0), time(200)), InstancePhase::Running);
        instances.answered("i-1", Ok(None), time(200));
        assert_eq!(instances.request_termination("i-1", time(0), time(201)), InstancePhase::Running);
        instances.answered("i-1", Ok(None), time(211));
        assert_eq!(
            instances.request_termination("i-1", time(0), time(211)),
            InstancePhase::Gone,
            "two reads, 11 seconds apart"
        );
        assert_eq!(
            instances.request_termination("i-1", time(150), time(211)),
            InstancePhase::Running,
            "too young to be missing"
        );
        instances.answered("i-1", Ok(Some(InstanceState::ShuttingDown)), time(212));
        assert_eq!(instances.request_termination("i-1", time(0), time(212)), InstancePhase::Terminating);
        show_terminated(&instances, "i-1");
        assert_eq!(instances.request_termination("i-1", time(0), time(213)), InstancePhase::Gone);
    }

    #[test]
    fn one_read_tells_why_many_instances_ended_before_they_were_to_be_terminated() {
        let (instances, now) = (Instances::default(), Timestamp(0));
        let phase = |id: &String| instances.request_termination(id, now, now);
        let ids: Vec<String> = (0..PER_CALL).map(|number| format!("i-{number:03}")).collect();
        for id in &ids {
            phase(id);
            instances.answered(id, Ok(Some(InstanceState::Terminated)), now);
        }
        assert!(ids.iter().all(|id| phase(id) == InstancePhase::Terminating), "nobody looks for the reason alone");
        assert_eq!(instances.unfinished(), ids);
        ids.iter().for_each(|id| show_terminated(&instances, id));
        assert!(ids.iter().all(|id| phase(id) == InstancePhase::Gone));
        assert_eq!(instances.unfinished(), [""; 0]);
        // EC2 answers a call that was repeated.
        instances.answered("i-000", Ok(Some(InstanceState::Terminated)), now);
        assert_eq!(phase(&ids[0]), InstancePhase::Gone, "the reason is known");
    }

    #[test]
    fn ec2_is_asked_for_a_termination_until_it_has_accepted() {
        let instances = Instances::default();
        let due = |at: i64| instances.ids(|watched| watched.is_due(Timestamp(at)));
        instances.observe("i-1", Timestamp(0), Timestamp(0));
        assert_eq!(due(0), [""; 0], "it is only observed");
        instances.request_termination("i-1", Timestamp(0), Timestamp(0));
        instances.request_termination("i-1", Timestamp(0), Timestamp(0));
        instances.observe("i-1", Timestamp(0), Timestamp(0));
        assert_eq!(due(0), ["i-1"]);
        instances.answered("i-1", Err(CloudError::Throttled), Timestamp(0));
        assert_eq!(due(0), ["i-1"]);
        instances.answered("i-1", Err(CloudError::Denied { message: String::new() }), Timestamp(0));
        assert_eq!((due(4_999), due(5_000)), (vec![], vec!["i-1".to_owned()]));
        instances.answered("i-1", Ok(Some(InstanceState::ShuttingDown)), Timestamp(5_000));
        assert_eq!(due(600_000), [""; 0]);
    }

    #[test]
    fn instances_without_claim_are_forgotten_once_they_are_gone_or_if_they_stay() {
        let instances = Instances::default();
        let (start, later) = (Timestamp(0), Timestamp(600_000));
        for id in ["i-claimed", "i-gone", "i-running", "i-unknown"] {
            instances.request_termination(id, start, start);
        }
        for id in ["i-asked-for", "i-observed"] {
            instances.observe(id, start, start);
        }
        for id in ["i-claimed", "i-gone"] {
            show_terminated(&instances, id);
        }
        instances.answered("i-unknown", Ok(None), start);
        instances.answered("i-unknown", Ok(None), later);
        instances.retain(&["i-asked-for", "i-claimed"].into(), later);
        assert_eq!(instances.ids(|_| true), ["i-asked-for", "i-claimed", "i-running"]);
    }

    #[test]
    fn refused_termination_is_retried_with_backoff() {
        let instances = Instances::default();
        let refused = || Err(CloudError::Denied { message: "UnauthorizedOperation".to_owned() });
        let pause = || instances.watched.lock().get("i-1").and_then(|it| it.refusal.clone()).map(|it| it.pause);
        instances.request_termination("i-1", Timestamp(0), Timestamp(0));
        instances.answered("i-1", Err(CloudError::Throttled), Timestamp(0));
        assert_eq!(pause(), None, "says nothing of the instance");
        let mut pauses = Vec::new();
        for _ in 0..8 {
            instances.answered("i-1", refused(), Timestamp(0));
            pauses.extend(pause());
        }
        assert_eq!(pauses, [5, 10, 20, 40, 80, 160, 300, 300].map(Millis::from_seconds));
        assert!(instances.refusal("i-1").is_some());
        instances.answered("i-1", Ok(Some(InstanceState::ShuttingDown)), Timestamp(0));
        assert_eq!(
            (pause(), instances.request_termination("i-1", Timestamp(0), Timestamp(0))),
            (None, InstancePhase::Terminating)
        );
    }
}

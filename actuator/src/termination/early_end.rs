//! Instances that end before their Nodes register. EC2 launches an instance before it has its volumes, so a key that it
//! may not use or a quota of volumes ends the instance after a successful answer. The next launch would end as this one
//! did: the user learns why, launches of the NodePool back off (safety rule 8), and a rollout halts.

use super::TerminationFlow;
use super::instances::InstancePhase;
use crate::clock::Timestamped;
use crate::events::{Note, object, reason};
use crate::interruption::messages::NoticeKind;
use crate::interruption::notice_of;
use crate::launch::record;
use crate::ledger::failures::{ENDED_EARLY, INSUFFICIENT_CAPACITY};
use crate::ports::StateReason;
use crate::rollout::Halt;
use crate::state::insufficient_capacity::Wanted;
use kube::ResourceExt;
use plimsoll_api::condition::node_claim::REGISTERED;
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::label;

/// EC2's codes for instances that lost their capacity.
const NO_CAPACITY: [&str; 3] =
    ["Server.InsufficientInstanceCapacity", "Server.SpotInstanceShutdown", "Server.SpotInstanceTermination"];
/// EC2's codes for instances that somebody ended by a call, as Plimsoll does.
const ENDED_BY_CALL: [&str; 2] = ["Client.UserInitiatedHibernate", "Client.UserInitiatedShutdown"];
/// How EC2's codes begin, unless the end is due to an error of EC2 or a lack of capacity.
const OF_CLIENT: &str = "Client.";

/// Why an instance ended.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub(super) enum EndReason {
    /// No read has shown its end yet.
    #[default]
    Unread,
    /// EC2's reason.
    Read(StateReason),
    /// The reason was taken before.
    Taken,
}

impl EndReason {
    /// Records what a read shows. Each read shows it.
    pub(super) fn note(&mut self, reason: Option<StateReason>) {
        if *self == Self::Unread {
            *self = Self::Read(reason.unwrap_or_default());
        }
    }

    fn take(&mut self) -> Self {
        match self {
            Self::Unread => Self::Unread,
            Self::Read(_) | Self::Taken => std::mem::replace(self, Self::Taken),
        }
    }
}

/// What the end of an instance without a Node says about other launches.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum EarlyEnd {
    /// Its offering has no capacity.
    NoCapacity,
    /// The next launch of its NodePool may end in the same way.
    Failed,
}

/// Judges the end of an instance by EC2's code and the kind of the notice that its claim was deleted for. `None` if the
/// claim was deleted for another reason, after which Plimsoll ended the instance.
fn judge(code: &str, notice: Option<&str>) -> Option<EarlyEnd> {
    let state_changes = [NoticeKind::InstanceStopped, NoticeKind::InstanceTerminated].map(NoticeKind::as_str);
    let ended_first = notice.is_some_and(|kind| state_changes.contains(&kind));
    match notice {
        // The notice itself says what is known about capacity.
        Some(_) if !ended_first => None,
        _ if NO_CAPACITY.contains(&code) => Some(EarlyEnd::NoCapacity),
        None if code.is_empty() || ENDED_BY_CALL.contains(&code) => None,
        _ => Some(EarlyEnd::Failed),
    }
}

impl TerminationFlow<'_> {
    /// Tells the user why the instance ended before its Node registered, and records the failure, once.
    pub(super) async fn tell_early_end(&self, id: &str, phase: InstancePhase) {
        let (deps, claim) = (self.deps, &*self.subject.claim);
        if phase == InstancePhase::Running || claim.true_condition(REGISTERED).is_some() {
            return;
        }
        let Some(why) = self.end_reason(id, phase) else { return };
        let notice = notice_of(claim).map(|notice| notice.kind);
        let Some(end) = judge(&why.code, notice.as_deref()) else { return };
        let reservation = claim.labels().get(label::CAPACITY_RESERVATION_ID);
        let (cause, event) = match (end, reservation) {
            (EarlyEnd::NoCapacity, None) => {
                self.skip_offering();
                (INSUFFICIENT_CAPACITY, reason::INSUFFICIENT_CAPACITY)
            }
            // Nothing is skipped for long: once the instance is gone, its place in the reservation counts as free.
            (EarlyEnd::NoCapacity, Some(reservation)) => {
                deps.ledger.with(|ledger| ledger.reservation_exhausted(reservation));
                (ENDED_EARLY, reason::INSUFFICIENT_CAPACITY)
            }
            (EarlyEnd::Failed, _) => {
                deps.registrations.note(claim.node_pool(), false);
                (ENDED_EARLY, reason::LAUNCH_FAILED)
            }
        };
        let (name, now) = (claim.name_any(), deps.clock.timestamp());
        let message = format!("instance {id} ended before its Node registered: {why}");
        tracing::warn!(node_claim = name, cause, message, "launch failed");
        deps.events.publish(Note::warning(object(claim), event, message));
        deps.metrics.claims_failed.with_label_values(&[claim.node_pool(), cause]).inc();
        deps.ledger.with(|ledger| ledger.failed(&name, cause, now));
        if end == EarlyEnd::Failed {
            self.halt_rollout(&why).await;
        }
    }

    /// Halts the rollout that the claim is a canary of, unless EC2 itself is at fault. If that cannot be written, the
    /// next canary, which ends in the same way, halts the rollout.
    async fn halt_rollout(&self, why: &StateReason) {
        let (deps, claim) = (self.deps, &*self.subject.claim);
        if !why.code.starts_with(OF_CLIENT) {
            return;
        }
        let halt = Halt { stores: &deps.stores, writes: &deps.writes, events: &deps.events };
        let cause = format!("its instance ended before its Node registered: {why}");
        if let Err(error) = halt.not_registered(deps.clock, claim, &cause).await {
            tracing::warn!(node_claim = claim.name_any(), %error, "rollout not halted");
        }
    }

    /// Why the instance ended; `None` if that is not known yet, or was told before.
    fn end_reason(&self, id: &str, phase: InstancePhase) -> Option<StateReason> {
        let known = self.shared.instances.with_end_reason(id, |known| {
            if phase == InstancePhase::Gone {
                // If no read has shown its end, none will.
                known.note(None);
            }
            known.take()
        });
        match known? {
            EndReason::Read(why) => Some(why),
            EndReason::Unread | EndReason::Taken => None,
        }
    }

    /// Skips the offering of the claim's instance, as after a refusal.
    fn skip_offering(&self) {
        let (deps, claim) = (self.deps, &*self.subject.claim);
        let label = |key: &str| claim.labels().get(key).map(String::as_str);
        let capacity_type = label(label::CAPACITY_TYPE).and_then(CapacityType::parse);
        let offering = (label(label::INSTANCE_TYPE), label(label::ZONE), capacity_type);
        let (Some(instance_type), Some(zone), Some(capacity_type)) = offering else { return };
        let wanted = Wanted { instance_type, zone, capacity_type, placement_group: record::placement_group(claim) };
        let now = deps.clock.timestamp();
        deps.drain_delay.admission.insufficient_capacity.lock().skip(wanted, now);
        deps.ledger.wake();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_reason_of_an_end_is_taken_once() {
        let mut reason = EndReason::default();
        assert_eq!(reason.take(), EndReason::Unread);
        let why = StateReason { code: "Client.InternalError".to_owned(), message: String::new() };
        reason.note(Some(why.clone()));
        reason.note(None);
        assert_eq!(reason.take(), EndReason::Read(why.clone()));
        reason.note(Some(why));
        assert_eq!(reason.take(), EndReason::Taken, "each read shows it");
    }

    #[test]
    fn only_an_end_that_plimsoll_did_not_ask_for_is_a_failure() {
        let (failed, no_capacity) = (Some(EarlyEnd::Failed), Some(EarlyEnd::NoCapacity));
        let (stopped, ended) = (Some("instance_stopped"), Some("instance_terminated"));
        for (code, notice, expected) in [
            ("Client.InternalError", None, failed),
            ("Client.InternalError", ended, failed),
            ("Client.VolumeLimitExceeded", ended, failed),
            ("Client.InvalidSnapshot.NotFound", ended, failed),
            ("Client.InstanceInitiatedShutdown", ended, failed),
            ("Server.InternalError", ended, failed),
            ("Server.Unheard", None, failed),
            ("Server.InsufficientInstanceCapacity", ended, no_capacity),
            ("Server.InsufficientInstanceCapacity", None, no_capacity),
            ("Server.SpotInstanceTermination", None, no_capacity),
            // Plimsoll has ended the instance of a claim that was deleted for another reason.
            ("Client.UserInitiatedShutdown", None, None),
            ("", None, None),
            // Somebody else has.
            ("Client.UserInitiatedShutdown", ended, failed),
            ("Client.UserInitiatedShutdown", stopped, failed),
            ("", ended, failed),
            ("Server.SpotInstanceTermination", Some("spot_interrupted"), None),
            ("Client.UserInitiatedShutdown", Some("system_status"), None),
        ] {
            assert_eq!(judge(code, notice), expected, "{code} {notice:?}");
        }
    }
}

//! Garbage collection of claims without an instance and of instances without a claim (safety rule 14). Reads of EC2 and
//! of the cluster are eventually consistent, so a single read never proves absence.

pub mod run;

use crate::ports::{Instance, InstanceState};
use crate::state::absence::{Absence, SETTLING};
use plimsoll_model::names::{annotation, tag};
use plimsoll_model::time::Timestamp;

/// Facts about a claim whose instance was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClaimFacts {
    /// The claim records a launch attempt.
    pub attempted: bool,
    /// The claim has a providerID.
    pub has_provider_id: bool,
    /// The claim was written under an older epoch than the leader's.
    pub of_older_epoch: bool,
    /// The claim's Node is Ready.
    pub node_ready: bool,
    /// When the claim was created.
    pub created: Timestamp,
    /// Failed look-ups of the instance: by id, or by the launch group's tag while the claim has no id.
    pub instance: Absence,
}

/// Decision about a claim whose instance was not found.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum ClaimVerdict {
    /// Keep the claim and check again.
    Keep,
    /// The instance is gone or was never launched: delete the claim and remove its finalizer.
    Delete,
}

/// Decides about a claim whose instance was not found.
#[must_use]
pub fn judge_claim(facts: &ClaimFacts, now: Timestamp) -> ClaimVerdict {
    let delete = if facts.has_provider_id {
        // A Ready node is alive, whatever EC2's reads say.
        !facts.node_ready && facts.instance.is_confirmed() && now.since(facts.created) > SETTLING
    } else if facts.attempted {
        facts.instance.is_confirmed() && facts.instance.duration().is_some_and(|duration| duration >= SETTLING)
    } else {
        // Rule 16: the former leader cannot have launched the claim, since an attempt is recorded before the launch.
        facts.of_older_epoch
    };
    if delete { ClaimVerdict::Delete } else { ClaimVerdict::Keep }
}

/// Result of a live read of the cluster, by name and UID, for an instance's claim.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum LiveClaim {
    /// Not read yet.
    Unread,
    /// A claim of this instance or of its launch group exists.
    Present,
    /// No claim exists; reads so far.
    Absent(Absence),
}

/// Decision about an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum InstanceVerdict {
    /// Not ours, in use, already terminating, or too young to decide.
    Keep,
    /// Read the claim live first.
    ReadClaim,
    /// No claim refers to the instance.
    Terminate,
}

/// Whether the instance is tagged with our cluster *and* with Plimsoll as owner.
#[must_use]
pub fn is_ours(instance: &Instance, cluster: &str) -> bool {
    let is = |key: &str, value: &str| instance.tags.get(key).is_some_and(|found| found == value);
    let owned = is(&format!("{}{cluster}", tag::CLUSTER_PREFIX), "owned");
    owned && is(tag::OWNER, annotation::OWNER_VALUE)
}

/// Decides about an instance that no known claim refers to.
#[must_use]
pub fn judge_instance(instance: &Instance, cluster: &str, claim: LiveClaim, now: Timestamp) -> InstanceVerdict {
    let going = matches!(instance.state, InstanceState::ShuttingDown | InstanceState::Terminated);
    if going || !is_ours(instance, cluster) || now.since(instance.launched) <= SETTLING {
        return InstanceVerdict::Keep;
    }
    match claim {
        LiveClaim::Unread => InstanceVerdict::ReadClaim,
        LiveClaim::Present => InstanceVerdict::Keep,
        LiveClaim::Absent(reads) if reads.is_confirmed() => InstanceVerdict::Terminate,
        LiveClaim::Absent(_) => InstanceVerdict::ReadClaim,
    }
}

/// Unclaimed instances that are ended in any cluster, however small.
const ALWAYS_ENDED: usize = 5;
/// Share of the living instances that may be unclaimed. More of them have another cause than a crash: claims restored
/// from an old backup, or two clusters of one name in an account.
const BRAKE_PERCENT: usize = 20;

/// Whether so many instances are unclaimed that none must be ended.
#[must_use]
pub fn exceeds_brake(unclaimed: usize, living: usize) -> bool {
    unclaimed > ALWAYS_ENDED && unclaimed.saturating_mul(100) > living.saturating_mul(BRAKE_PERCENT)
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::CapacityType;
    use plimsoll_model::time::Millis;

    const START: Timestamp = Timestamp(1_000_000);

    fn after(seconds: u64) -> Timestamp {
        START.plus(Millis::from_seconds(seconds))
    }

    fn missed(at: &[u64]) -> Absence {
        let mut absence = Absence::default();
        for seconds in at {
            absence.missed(after(*seconds));
        }
        absence
    }

    fn claim() -> ClaimFacts {
        ClaimFacts {
            attempted: true,
            has_provider_id: true,
            of_older_epoch: false,
            node_ready: false,
            created: START,
            instance: missed(&[0, 130]),
        }
    }

    fn instance(tags: &[(&str, &str)]) -> Instance {
        Instance {
            id: "i-1".to_owned(),
            state: InstanceState::Running,
            instance_type: String::new(),
            zone: String::new(),
            image_id: String::new(),
            subnet_id: String::new(),
            security_group_ids: Vec::new(),
            capacity_type: CapacityType::Spot,
            capacity_reservation_id: None,
            partition: None,
            private_dns_name: String::new(),
            launched: START,
            tags: tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
        }
    }

    const OURS: [(&str, &str); 2] = [("kubernetes.io/cluster/c", "owned"), ("plimsoll.dev/owner", "plimsoll")];

    #[test]
    fn a_fifth_of_the_instances_is_ended_and_no_more() {
        assert!(!exceeds_brake(5, 5), "a small cluster");
        assert!(exceeds_brake(6, 29));
        assert!(!exceeds_brake(6, 30));
        assert!(exceeds_brake(1000, 1000));
    }

    #[test]
    fn claims_are_deleted_only_after_confirmed_absence_of_their_instance() {
        use ClaimVerdict::{Delete, Keep};
        let never_bought = ClaimFacts { has_provider_id: false, ..claim() };
        let unattempted = ClaimFacts { attempted: false, has_provider_id: false, ..claim() };
        for (name, facts, at, expected) in [
            ("gone", claim(), 131, Delete),
            ("young", claim(), 120, Keep),
            ("one read", ClaimFacts { instance: missed(&[130]), ..claim() }, 131, Keep),
            ("two reads at once", ClaimFacts { instance: missed(&[130, 131]), ..claim() }, 131, Keep),
            ("ready node", ClaimFacts { node_ready: true, ..claim() }, 131, Keep),
            ("never bought", never_bought, 131, Delete),
            ("looked up for too short", ClaimFacts { instance: missed(&[20, 130]), ..never_bought }, 131, Keep),
            ("unattempted of this epoch", unattempted, 131, Keep),
            ("unattempted of an older epoch", ClaimFacts { of_older_epoch: true, ..unattempted }, 1, Delete),
            (
                "attempted of an older epoch",
                ClaimFacts { of_older_epoch: true, instance: missed(&[1]), ..never_bought },
                1,
                Keep,
            ),
        ] {
            assert_eq!(judge_claim(&facts, after(at)), expected, "{name}");
        }
    }

    #[test]
    fn successful_read_resets_the_absence() {
        let mut absence = missed(&[0]);
        absence.found();
        absence.missed(after(130));
        assert!(!absence.is_confirmed());
    }

    #[test]
    fn instances_are_terminated_only_if_ours_old_and_unclaimed_on_two_live_reads() {
        use InstanceVerdict::{Keep, ReadClaim, Terminate};
        let ours = instance(&OURS);
        let gone = LiveClaim::Absent(missed(&[100, 130]));
        for (name, instance, claim, at, expected) in [
            ("unclaimed", ours.clone(), gone, 131, Terminate),
            ("young", ours.clone(), gone, 120, Keep),
            ("claimed", ours.clone(), LiveClaim::Present, 131, Keep),
            ("not read", ours.clone(), LiveClaim::Unread, 131, ReadClaim),
            ("one read", ours.clone(), LiveClaim::Absent(missed(&[130])), 131, ReadClaim),
            ("no owner tag", instance(&OURS[..1]), gone, 131, Keep),
            ("no cluster tag", instance(&OURS[1..]), gone, 131, Keep),
            ("going", Instance { state: InstanceState::ShuttingDown, ..ours.clone() }, gone, 131, Keep),
        ] {
            assert_eq!(judge_instance(&instance, "c", claim, after(at)), expected, "{name}");
        }
        assert_eq!(judge_instance(&ours, "other", gone, after(131)), Keep);
    }
}

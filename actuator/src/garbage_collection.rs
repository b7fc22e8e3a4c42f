//! Garbage collection of claims without an instance and of instances without a claim (safety rule 14). Reads of EC2 and
//! of the cluster are eventually consistent, so a single read never proves absence.

pub mod run;

use crate::ports::Instance;
use crate::state::absence::{Absence, SETTLING};
use plimsoll_model::names::{annotation, tag};
use plimsoll_model::time::Timestamp;

/// Whether the instance of a claim is gone or stopped, so that the claim is deleted. A Ready node is alive, whatever
/// EC2's reads say.
#[must_use]
pub fn is_instance_gone(absence: Absence, created: Timestamp, node_ready: bool, now: Timestamp) -> bool {
    !node_ready && absence.is_confirmed() && now.since(created) > SETTLING
}

/// Whether the instance is tagged with our cluster *and* with Plimsoll as owner.
#[must_use]
pub fn is_ours(instance: &Instance, cluster: &str) -> bool {
    let is = |key: &str, value: &str| instance.tags.get(key).is_some_and(|found| found == value);
    let owned = is(&format!("{}{cluster}", tag::CLUSTER_PREFIX), "owned");
    owned && is(tag::OWNER, annotation::OWNER_VALUE)
}

/// Whether an instance is terminated: it is ours, and live reads found no claim for it.
#[must_use]
pub fn is_unclaimed(instance: &Instance, cluster: &str, absence: Absence, now: Timestamp) -> bool {
    let is_due = instance.state.is_alive() && now.since(instance.launched) > SETTLING;
    is_due && is_ours(instance, cluster) && absence.is_confirmed()
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
    use crate::ports::InstanceState;
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

    fn instance(tags: &[(&str, &str)]) -> Instance {
        Instance {
            id: "i-1".to_owned(),
            state: InstanceState::Running,
            launched: START,
            tags: tags.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect(),
            ..Instance::default()
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
        for (name, absence, node_ready, at, expected) in [
            ("gone", missed(&[0, 130]), false, 131, true),
            ("young", missed(&[0, 110]), false, 120, false),
            ("one read", missed(&[130]), false, 131, false),
            ("two reads at once", missed(&[130, 131]), false, 131, false),
            ("ready node", missed(&[0, 130]), true, 131, false),
        ] {
            assert_eq!(is_instance_gone(absence, START, node_ready, after(at)), expected, "{name}");
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
        let ours = instance(&OURS);
        let gone = missed(&[100, 130]);
        for (name, instance, absence, at, expected) in [
            ("unclaimed", ours.clone(), gone, 131, true),
            ("young", ours.clone(), gone, 120, false),
            ("one read", ours.clone(), missed(&[130]), 131, false),
            ("no owner tag", instance(&OURS[..1]), gone, 131, false),
            ("no cluster tag", instance(&OURS[1..]), gone, 131, false),
            ("going", Instance { state: InstanceState::ShuttingDown, ..ours.clone() }, gone, 131, false),
        ] {
            assert_eq!(is_unclaimed(&instance, "c", absence, after(at)), expected, "{name}");
        }
        assert!(!is_unclaimed(&ours, "other", gone, after(131)));
    }
}

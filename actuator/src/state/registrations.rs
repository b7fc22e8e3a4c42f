//! Recent registration results of each pool: how many of the last instances failed to register. Reported in the status
//! only; no decision depends on it.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition;
use parking_lot::Mutex;
use plimsoll_api::condition::node_pool::{CONDITIONS, NODE_REGISTRATION_HEALTHY};
use plimsoll_api::condition::{self, AWAITING_RECONCILIATION, Moment, Status};
use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

/// Number of results that count, as in Karpenter.
const WINDOW: usize = 4;
/// Number of failures that make a pool unhealthy: half.
const UNHEALTHY_FAILURES: usize = 2;

/// Registration results by pool, the newest last. Clones share them.
#[derive(Debug, Clone, Default)]
pub struct Registrations(Arc<Mutex<BTreeMap<String, VecDeque<bool>>>>);

impl Registrations {
    /// Records whether an instance of the pool registered in time.
    pub fn note(&self, pool: &str, registered: bool) {
        let mut pools = self.0.lock();
        let outcomes = pools.entry(pool.to_owned()).or_default();
        outcomes.push_back(registered);
        while outcomes.len() > WINDOW {
            outcomes.pop_front();
        }
    }

    /// Whether the pool is healthy, if known.
    pub(crate) fn is_healthy(&self, pool: &str) -> Option<bool> {
        let pools = self.0.lock();
        let outcomes = pools.get(pool).filter(|outcomes| !outcomes.is_empty())?;
        Some(outcomes.iter().filter(|registered| !**registered).count() < UNHEALTHY_FAILURES)
    }

    /// Like [`Registrations::is_healthy`], but falls back to the pool's condition, which holds the knowledge of a
    /// former process. Results from before a change of the pool or its class (`changed`) do not count.
    pub(crate) fn judge(&self, pool: &str, condition: Option<&Condition>, changed: bool) -> Option<bool> {
        if changed {
            self.0.lock().remove(pool);
            return None;
        }
        let healthy = self.is_healthy(pool);
        if healthy.is_none() {
            match condition.map(|condition| condition.status.as_str()) {
                Some("True") => self.note(pool, true),
                Some("False") => (0..UNHEALTHY_FAILURES).for_each(|_| self.note(pool, false)),
                _ => {}
            }
        }
        healthy.or_else(|| self.is_healthy(pool))
    }
}

/// Sets the condition.
pub(crate) fn show(conditions: &mut Vec<Condition>, moment: Moment, healthy: Option<bool>) {
    let (status, reason, message) = match healthy {
        Some(true) => (Status::True, NODE_REGISTRATION_HEALTHY, ""),
        Some(false) => (Status::False, "RegistrationFailed", "instances of the pool do not become nodes in time"),
        None => {
            (Status::Unknown, AWAITING_RECONCILIATION, "no instance of the pool has become a node yet, or failed to")
        }
    };
    CONDITIONS.set(conditions, moment, NODE_REGISTRATION_HEALTHY, status, reason, message);
}

/// The current condition.
pub(crate) fn shown(conditions: &[Condition]) -> Option<&Condition> {
    condition::get(conditions, NODE_REGISTRATION_HEALTHY)
}

#[cfg(test)]
mod tests {
    use super::*;
    use jiff::Timestamp;

    const POOL: &str = "default";

    fn condition_of(healthy: Option<bool>) -> Condition {
        let moment =
            Moment { generation: 1, created: Timestamp::UNIX_EPOCH, deleting: false, now: Timestamp::UNIX_EPOCH };
        let mut conditions = Vec::new();
        show(&mut conditions, moment, healthy);
        shown(&conditions).unwrap().clone()
    }

    #[test]
    fn two_failures_of_the_last_four_are_too_many() {
        let registrations = Registrations::default();
        let mut after = |registered: bool| {
            registrations.note(POOL, registered);
            registrations.is_healthy(POOL).unwrap()
        };
        let seen: Vec<bool> = [true, false, false, true, true, true].into_iter().map(&mut after).collect();
        assert_eq!(seen, [true, true, false, false, false, true], "the first failure is forgotten with the sixth");
        assert_eq!(registrations.is_healthy("other"), None);
    }

    #[test]
    fn restart_uses_the_condition_and_a_change_resets_it() {
        let registrations = Registrations::default();
        assert_eq!(registrations.judge(POOL, None, false), None);
        assert_eq!(registrations.judge(POOL, Some(&condition_of(Some(false))), false), Some(false));
        registrations.note(POOL, true);
        assert_eq!(registrations.judge(POOL, Some(&condition_of(Some(true))), false), Some(false), "its memory counts");
        assert_eq!(registrations.judge(POOL, Some(&condition_of(Some(false))), true), None);
        assert_eq!(registrations.judge(POOL, Some(&condition_of(None)), false), None);
        assert_eq!(condition_of(None).status, "Unknown");
    }
}

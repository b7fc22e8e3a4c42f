//! Parameters of an election.

use std::time::Duration;

/// Lease, candidate, and timing.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// Namespace of the Lease.
    pub namespace: String,
    /// Name of the Lease.
    pub name: String,
    /// Name of this candidate. Unique per process, not per pod: a restarted container is another holder.
    pub holder: String,
    /// How long others must see the Lease unchanged before they acquire it. Whole seconds.
    pub duration: Duration,
    /// A leader that has not renewed for this long stops leading. Less than `duration`.
    pub renew_deadline: Duration,
    /// Delay between attempts to acquire or renew. Less than `renew_deadline`.
    pub retry_period: Duration,
    /// Maximum total deadline, including retries, of any call that the leader makes under the Lease.
    pub max_call_deadline: Duration,
}

impl LeaseConfig {
    /// The durations of Kubernetes' own controllers: 15 s, 10 s and 2 s. Calls take at most 5 s, because a lease must
    /// outlive them after a renewal and one missed renewal.
    #[must_use]
    pub fn new(namespace: impl Into<String>, name: impl Into<String>, holder: impl Into<String>) -> Self {
        Self {
            namespace: namespace.into(),
            name: name.into(),
            holder: holder.into(),
            duration: Duration::from_secs(15),
            renew_deadline: Duration::from_secs(10),
            retry_period: Duration::from_secs(2),
            max_call_deadline: Duration::from_secs(5),
        }
    }

    pub(super) fn check(&self) -> Result<(), LeaseError> {
        let wrong = |reason| Err(LeaseError::Config { name: self.name.clone(), reason });
        if self.holder.is_empty() {
            return wrong("the holder must not be empty");
        }
        if self.duration.subsec_nanos() != 0 || !(1..=3600).contains(&self.duration.as_secs()) {
            return wrong("the duration must be whole seconds, 1 to 3600");
        }
        if self.renew_deadline >= self.duration || self.retry_period >= self.renew_deadline {
            return wrong("retry period < renew deadline < duration must hold");
        }
        if self.retry_period.is_zero() {
            return wrong("the retry period must not be zero");
        }
        if self.max_call_deadline >= self.duration {
            return wrong("max call deadline < duration must hold");
        }
        Ok(())
    }
}

/// Why an election cannot be created.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LeaseError {
    /// The configuration is inconsistent.
    #[error("lease {name}: {reason}")]
    Config {
        /// The Lease.
        name: String,
        /// Description of the problem.
        reason: &'static str,
    },
}

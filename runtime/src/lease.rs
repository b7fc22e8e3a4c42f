//! Leader election by a Kubernetes Lease.
//!
//! A Lease fences nothing by itself: whoever leads must ask [`LeaseGuard::outlives`] before each side effect. Expiry is
//! judged on the local monotonic clock alone, by how long the Lease has been seen unchanged; clocks of other machines
//! are never compared.

use std::{sync::Arc, time::Duration};

use k8s_openapi::{
    api::coordination::v1::{Lease, LeaseSpec},
    apimachinery::pkg::apis::meta::v1::MicroTime,
};
use kube::{
    Api, Client,
    api::{ObjectMeta, PostParams},
};
use parking_lot::Mutex;
use tokio::{sync::watch, time::Instant};
use tokio_util::sync::CancellationToken;

use crate::clock::Clock;

/// Longest single request about the Lease. Two fit into the renew deadline; it also ends the client's own retries.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// Who contends for which Lease, and how patiently.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LeaseConfig {
    /// The Lease's namespace.
    pub namespace: String,
    /// The Lease's name.
    pub name: String,
    /// Who we are. Unique per process, not per pod: a restarted container is another holder.
    pub holder: String,
    /// How long others must see the Lease unchanged before they take it. Whole seconds.
    pub duration: Duration,
    /// A leader that could not renew for so long gives up. Less than `duration`.
    pub renew_deadline: Duration,
    /// Pause between attempts to acquire or renew. Less than `renew_deadline`.
    pub retry_period: Duration,
    /// The longest total deadline, retries included, of any call the leader makes under the Lease.
    pub max_call_deadline: Duration,
}

impl LeaseConfig {
    /// The durations that Kubernetes' own controllers use: 15 s, 10 s and 2 s; calls of at most 5 s, since a lease just
    /// renewed must outlive them and one missed renewal.
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

    fn check(&self) -> Result<(), LeaseError> {
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

/// Why an election cannot be held.
#[derive(Debug, thiserror::Error, PartialEq, Eq)]
pub enum LeaseError {
    /// The configuration contradicts itself.
    #[error("lease {name}: {reason}")]
    Config {
        /// The Lease.
        name: String,
        /// What is wrong.
        reason: &'static str,
    },
}

/// Who leads, as far as this process knows.
#[derive(Clone, Debug)]
pub enum LeaseState {
    /// Somebody else, or nobody yet.
    Following {
        /// The holder last seen, if any.
        holder: Option<String>,
        /// Its epoch: the Lease's count of transitions.
        epoch: u64,
    },
    /// This process.
    Leading(LeaseGuard),
}

impl LeaseState {
    /// The guard, if this process leads.
    #[must_use]
    pub fn guard(&self) -> Option<&LeaseGuard> {
        match self {
            Self::Leading(guard) => Some(guard),
            Self::Following { .. } => None,
        }
    }
}

/// The right to act as leader during one epoch. Clones follow the same lease.
#[derive(Clone, Debug)]
pub struct LeaseGuard {
    holder: Arc<str>,
    epoch: u64,
    quarantine_until: Instant,
    valid_until: Arc<Mutex<Instant>>,
    lost: CancellationToken,
}

impl LeaseGuard {
    /// Who leads: this process.
    #[must_use]
    pub fn holder(&self) -> &str {
        &self.holder
    }

    /// The Lease's count of transitions. Grows with every new leader.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// Whether the lease is still ours when a call that begins now and takes `deadline` in all ends. Ask before each
    /// side effect. Counted from *before* the last successful renewal was sent, so that it ends here first.
    #[must_use]
    pub fn outlives(&self, deadline: Duration) -> bool {
        !self.lost.is_cancelled()
            && Instant::now().checked_add(deadline).is_some_and(|end| end < *self.valid_until.lock())
    }

    /// Resolves once the lease is lost or released.
    #[must_use]
    pub fn lost(&self) -> CancellationToken {
        self.lost.clone()
    }

    /// Before this moment the former leader's calls may still take effect: the old lease plus the longest call.
    #[must_use]
    pub fn quarantine_until(&self) -> Instant {
        self.quarantine_until
    }

    /// Whether that moment has not come yet.
    #[must_use]
    pub fn in_quarantine(&self) -> bool {
        Instant::now() < self.quarantine_until
    }
}

/// A Lease as it was first seen in its present form.
struct Seen {
    lease: Lease,
    since: Instant,
}

/// One contender for a Lease.
pub struct Election {
    api: Api<Lease>,
    config: LeaseConfig,
    clock: Clock,
    seen: Option<Seen>,
    leading: Option<(LeaseGuard, Instant)>,
    state: watch::Sender<LeaseState>,
}

impl Election {
    /// A contender, and where its state can be watched. Nothing is sent before [`Election::run`].
    ///
    /// # Errors
    /// The configuration contradicts itself.
    pub fn new(
        client: Client,
        config: LeaseConfig,
        clock: Clock,
    ) -> Result<(Self, watch::Receiver<LeaseState>), LeaseError> {
        config.check()?;
        let (state, states) = watch::channel(LeaseState::Following { holder: None, epoch: 0 });
        let api = Api::namespaced(client, &config.namespace);
        Ok((Self { api, config, clock, seen: None, leading: None, state }, states))
    }

    /// Acquires the Lease, renews it, contends again when it is lost; releases it when `shutdown` is cancelled. Cancel
    /// only once nothing acts as leader any more.
    ///
    /// # Errors
    /// None at present: failures of the API server are retried for as long as the process lives.
    pub async fn run(mut self, shutdown: CancellationToken) -> Result<(), LeaseError> {
        loop {
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = self.attempt() => {}
            }
            tokio::select! {
                biased;
                () = shutdown.cancelled() => break,
                () = tokio::time::sleep(self.config.retry_period) => {}
            }
        }
        self.release().await;
        Ok(())
    }

    /// One attempt to renew or to acquire.
    async fn attempt(&mut self) {
        let Some((guard, renewed)) = self.leading.clone() else {
            if let Err(error) = self.contend().await {
                tracing::warn!(lease = %self.config.name, error, "lease not read or acquired");
            }
            return;
        };
        let give_up = renewed + self.config.renew_deadline;
        match tokio::time::timeout_at(give_up, self.renew(&guard)).await {
            Ok(Ok(true)) => {}
            Ok(Ok(false)) => self.lose("another holder has it"),
            Ok(Err(error)) if Instant::now() < give_up => {
                tracing::warn!(lease = %self.config.name, error, "lease not renewed, trying again");
            }
            Ok(Err(_)) | Err(_) => self.lose("not renewed in time"),
        }
        // The next attempt must not sleep past the deadline unnoticed.
        if let Some((_, renewed)) = &self.leading
            && *renewed + self.config.renew_deadline < Instant::now() + self.config.retry_period
        {
            tokio::time::sleep_until(*renewed + self.config.renew_deadline).await;
            self.lose("not renewed in time");
        }
    }

    /// Writes the Lease again. `false` if it is no longer ours.
    async fn renew(&mut self, guard: &LeaseGuard) -> Result<bool, String> {
        let Some(current) = self.read().await? else { return Ok(false) };
        let spec = current.spec.clone().unwrap_or_default();
        if spec.holder_identity.as_deref() != Some(&*self.config.holder) || epoch(&spec) != guard.epoch {
            return Ok(false);
        }
        let sent = Instant::now();
        let renewed = LeaseSpec { renew_time: Some(MicroTime(self.clock.now())), ..self.ours(&spec) };
        let written = self.write(Lease { spec: Some(renewed), ..current }).await?;
        self.observe(written);
        *guard.valid_until.lock() = sent + self.config.duration;
        self.leading = Some((guard.clone(), sent));
        Ok(true)
    }

    /// Looks at the Lease and takes it if it is free or has been seen unchanged for its whole duration.
    async fn contend(&mut self) -> Result<(), String> {
        let Some(current) = self.read().await? else {
            let sent = Instant::now();
            let spec = LeaseSpec { lease_transitions: Some(0), ..self.taken() };
            let metadata = ObjectMeta { name: Some(self.config.name.clone()), ..ObjectMeta::default() };
            let created = self.create(Lease { metadata, spec: Some(spec) }).await?;
            self.lead(created, sent, sent);
            return Ok(());
        };
        let spec = current.spec.clone().unwrap_or_default();
        let since = self.observe(current.clone());
        let old_duration = Duration::from_secs(spec.lease_duration_seconds.unwrap_or(0).max(0).unsigned_abs().into());
        // A holder of our own name is waited out too: it may be a second process that was given the same one.
        let free = spec.holder_identity.as_deref().is_none_or(str::is_empty);
        if !free && since.elapsed() < old_duration {
            let holder = spec.holder_identity.clone();
            self.publish(LeaseState::Following { holder, epoch: epoch(&spec) });
            return Ok(());
        }
        let sent = Instant::now();
        let transitions = spec.lease_transitions.unwrap_or(0).max(0).saturating_add(1);
        let taken = LeaseSpec { lease_transitions: Some(transitions), ..self.taken() };
        let written = self.write(Lease { spec: Some(taken), ..current }).await?;
        self.lead(written, sent, since + old_duration + self.config.max_call_deadline);
        Ok(())
    }

    fn lead(&mut self, lease: Lease, sent: Instant, quarantine_until: Instant) {
        let epoch = lease.spec.as_ref().map(epoch).unwrap_or_default();
        self.observe(lease);
        let guard = LeaseGuard {
            holder: self.config.holder.as_str().into(),
            epoch,
            quarantine_until,
            valid_until: Arc::new(Mutex::new(sent + self.config.duration)),
            lost: CancellationToken::new(),
        };
        tracing::info!(lease = %self.config.name, epoch, "leading");
        self.leading = Some((guard.clone(), sent));
        self.state.send_replace(LeaseState::Leading(guard));
    }

    fn lose(&mut self, reason: &'static str) {
        if let Some((guard, _)) = self.leading.take() {
            tracing::warn!(lease = %self.config.name, epoch = guard.epoch, reason, "lease lost");
            guard.lost.cancel();
            self.state.send_replace(LeaseState::Following { holder: None, epoch: guard.epoch });
        }
    }

    /// Gives the Lease up so that the next leader need not wait for its end.
    async fn release(&mut self) {
        let Some((guard, _)) = self.leading.take() else { return };
        // First here, then there: from now on nothing is done under it.
        guard.lost.cancel();
        self.state.send_replace(LeaseState::Following { holder: None, epoch: guard.epoch });
        let Some(Seen { lease, .. }) = self.seen.take() else { return };
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(self.clock.now())),
            ..lease.spec.clone().unwrap_or_default()
        };
        // The resource version makes sure that it is still ours.
        if let Err(error) = self.write(Lease { spec: Some(spec), ..lease }).await {
            tracing::warn!(lease = %self.config.name, error, "lease not released, it will expire");
        }
    }

    /// Notes the Lease; since when it has been seen just so.
    fn observe(&mut self, lease: Lease) -> Instant {
        let unchanged = self.seen.as_ref().filter(|seen| seen.lease.spec == lease.spec);
        let since = unchanged.map_or_else(Instant::now, |seen| seen.since);
        // The newest object in any case: a release needs its resource version.
        self.seen = Some(Seen { lease, since });
        since
    }

    fn publish(&self, state: LeaseState) {
        self.state.send_if_modified(|current| {
            let same = match (&*current, &state) {
                (
                    LeaseState::Following { holder, epoch },
                    LeaseState::Following { holder: new_holder, epoch: new_epoch },
                ) => holder == new_holder && epoch == new_epoch,
                _ => false,
            };
            *current = state;
            !same
        });
    }

    fn ours(&self, spec: &LeaseSpec) -> LeaseSpec {
        LeaseSpec {
            holder_identity: Some(self.config.holder.clone()),
            // Checked to fit when the election was made.
            lease_duration_seconds: i32::try_from(self.config.duration.as_secs()).ok(),
            ..spec.clone()
        }
    }

    fn taken(&self) -> LeaseSpec {
        let now = Some(MicroTime(self.clock.now()));
        LeaseSpec { acquire_time: now.clone(), renew_time: now, ..self.ours(&LeaseSpec::default()) }
    }

    async fn read(&self) -> Result<Option<Lease>, String> {
        request(self.api.get_opt(&self.config.name)).await
    }

    async fn create(&self, lease: Lease) -> Result<Lease, String> {
        request(self.api.create(&PostParams::default(), &lease)).await
    }

    async fn write(&self, lease: Lease) -> Result<Lease, String> {
        request(self.api.replace(&self.config.name, &PostParams::default(), &lease)).await
    }
}

async fn request<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, String> {
    match tokio::time::timeout(REQUEST_TIMEOUT, call).await {
        Ok(result) => result.map_err(|error| error.to_string()),
        Err(_) => Err(format!("no answer within {REQUEST_TIMEOUT:?}")),
    }
}

/// The Lease's count of transitions; a negative one counts as none.
fn epoch(spec: &LeaseSpec) -> u64 {
    spec.lease_transitions.unwrap_or(0).max(0).unsigned_abs().into()
}

#[cfg(test)]
mod tests;

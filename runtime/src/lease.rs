//! Leader election by a Kubernetes Lease.
//!
//! A Lease alone does not fence: a leader must check [`LeaseGuard::outlives`] before each side effect. Expiry depends
//! only on the clocks of this machine and on how long the Lease has been unchanged; clocks of other machines are never
//! compared.

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

mod config;
mod guard;

pub use config::{LeaseConfig, LeaseError};
pub use guard::{LeaseGuard, LeaseState};
use guard::{Moment, TransitionCount};

/// Timeout of a single request for the Lease. Two requests fit into the renew deadline; the timeout also ends the
/// client's own retries.
const REQUEST_TIMEOUT: Duration = Duration::from_secs(4);

/// How long a candidate waits for what it needs to lead. Lists of a large cluster take some seconds.
const READY_TIMEOUT: Duration = Duration::from_secs(30);

/// A Lease, and when its current state was first seen.
struct ObservedLease {
    lease: Lease,
    since: Instant,
}

/// A candidate for a Lease.
pub struct Election {
    api: Api<Lease>,
    config: LeaseConfig,
    clock: Clock,
    seen: Option<ObservedLease>,
    /// Whether a write got no response, so that `seen` may not be the newest object.
    unsure: bool,
    /// Highest transition count seen on any Lease of this name; kept when the Lease is deleted.
    highest: Option<u64>,
    leading: Option<(LeaseGuard, Instant)>,
    state: watch::Sender<LeaseState>,
}

impl Election {
    /// Creates a candidate and a receiver of its state. Sends nothing before [`Election::run`].
    ///
    /// # Errors
    /// If the configuration is inconsistent.
    pub fn new(
        client: Client,
        config: LeaseConfig,
        clock: Clock,
    ) -> Result<(Self, watch::Receiver<LeaseState>), LeaseError> {
        config.check()?;
        let (state, states) = watch::channel(LeaseState::Following { holder: None, epoch: 0 });
        let api = Api::namespaced(client, &config.namespace);
        Ok((Self { api, config, clock, seen: None, unsure: false, highest: None, leading: None, state }, states))
    }

    /// Acquires and renews the Lease, and tries again after losing it; releases it when `shutdown` is cancelled. Cancel
    /// only after all work as leader has stopped. Failures of the API server are retried as long as the process lives.
    pub async fn run(mut self, shutdown: CancellationToken) {
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
    }

    /// As [`Election::run`], but contends only once `ready` has resolved: a leader that cannot list the cluster does
    /// nothing, and keeps the Lease from candidates that can. After [`READY_TIMEOUT`] it contends all the same: if all
    /// candidates lack something, one of them should lead as soon as it comes.
    pub async fn run_when_ready(self, ready: impl Future<Output = ()>, shutdown: CancellationToken) {
        tokio::select! {
            biased;
            () = shutdown.cancelled() => {}
            () = ready => {}
            () = tokio::time::sleep(READY_TIMEOUT) => {
                tracing::warn!(lease = %self.config.name, "the cluster is not listed yet, contending all the same");
            }
        }
        self.run(shutdown).await;
    }

    /// Tries once to renew or acquire the Lease.
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
        // The next attempt must not miss the deadline while sleeping.
        if let Some((_, renewed)) = &self.leading
            && *renewed + self.config.renew_deadline < Instant::now() + self.config.retry_period
        {
            tokio::time::sleep_until(*renewed + self.config.renew_deadline).await;
            self.lose("not renewed in time");
        }
    }

    /// Renews the Lease. Returns `false` if another process holds it.
    ///
    /// A renewal is one request, so that a slow API server costs no leadership: it replaces the Lease that was written
    /// last. The API server refuses that if there is another object or none. Then, and after a write without a
    /// response, the Lease is read first.
    async fn renew(&mut self, guard: &LeaseGuard) -> Result<bool, String> {
        if !self.unsure
            && let Some(current) = self.seen.as_ref().map(|seen| seen.lease.clone())
        {
            match self.renew_from(guard, current).await {
                Err(error) if error.outdated => {}
                result => return result.map_err(String::from),
            }
        }
        let Some(current) = self.read().await? else { return Ok(false) };
        self.renew_from(guard, current).await.map_err(String::from)
    }

    /// Renews the Lease if `current` is what the API server has and this process holds it.
    async fn renew_from(&mut self, guard: &LeaseGuard, current: Lease) -> Result<bool, RequestError> {
        if !self.is_held(guard, &current) {
            return Ok(false);
        }
        let spec = current.spec.clone().unwrap_or_default();
        let sent = Moment::now(self.clock);
        let wanted = guard.count.borrow().wanted;
        let renewed = LeaseSpec {
            renew_time: Some(MicroTime(self.clock.now())),
            lease_transitions: transitions(wanted),
            ..self.ours(&spec)
        };
        // Until the response: this future may be dropped before.
        self.unsure = true;
        let written = self.write(Lease { spec: Some(renewed), ..current }).await?;
        self.observe(written);
        guard.count.send_modify(|count| count.written = wanted);
        *guard.end.lock() = self.end_of_lease(sent);
        self.leading = Some((guard.clone(), sent.monotonic));
        Ok(true)
    }

    /// Whether this process holds the Lease in the epoch of `guard`, whose count it may have raised.
    fn is_held(&self, guard: &LeaseGuard, lease: &Lease) -> bool {
        let spec = lease.spec.as_ref();
        let holder = spec.and_then(|spec| spec.holder_identity.as_deref());
        let counts = guard.epoch..=guard.count.borrow().wanted;
        holder == Some(&*self.config.holder) && counts.contains(&spec.map(epoch).unwrap_or_default())
    }

    /// Reads the Lease and acquires it if it is free or has been unchanged for its whole duration.
    async fn contend(&mut self) -> Result<(), String> {
        let Some(current) = self.read().await? else {
            return self.recreate().await;
        };
        let spec = current.spec.clone().unwrap_or_default();
        let since = self.observe(current.clone());
        let written = Duration::from_secs(spec.lease_duration_seconds.unwrap_or(0).max(0).unsigned_abs().into());
        // Waits for a holder of the same name too: it may be a second process with the same name.
        let free = spec.holder_identity.as_deref().is_none_or(str::is_empty);
        // Somebody may have edited the Lease since its holder wrote it. Only a released one has a short duration.
        let old_duration = if free { written } else { written.max(self.config.duration) };
        if !free && since.elapsed() < old_duration {
            let holder = spec.holder_identity.clone();
            self.publish(LeaseState::Following { holder, epoch: epoch(&spec) });
            return Ok(());
        }
        let sent = Moment::now(self.clock);
        let taken = LeaseSpec { lease_transitions: self.next_transitions(), ..self.taken() };
        let written = self.write(Lease { spec: Some(taken), ..current }).await?;
        self.lead(written, sent, since + old_duration + self.config.max_call_deadline);
        Ok(())
    }

    /// Creates the Lease. If it was deleted, its last leader may not know this yet: the new leader waits for its lease
    /// and its longest call as if the Lease had expired, and continues the transition count.
    async fn recreate(&mut self) -> Result<(), String> {
        let sent = Moment::now(self.clock);
        let spec = LeaseSpec { lease_transitions: self.next_transitions(), ..self.taken() };
        let metadata = ObjectMeta { name: Some(self.config.name.clone()), ..ObjectMeta::default() };
        let created = self.create(Lease { metadata, spec: Some(spec) }).await?;
        let wait = if self.highest.is_some() { self.longest_term() } else { Duration::ZERO };
        self.lead(created, sent, sent.monotonic + wait);
        Ok(())
    }

    /// Time from a leader's last renewal to the end of its last call.
    fn longest_term(&self) -> Duration {
        self.config.duration + self.config.max_call_deadline
    }

    /// One more than the highest seen count; 0 if no Lease was seen.
    fn next_transitions(&self) -> Option<i32> {
        transitions(self.highest.map_or(0, |highest| highest.saturating_add(1)))
    }

    /// The end of a lease whose renewal was sent then. [`LeaseConfig`] has no duration that is too long to add.
    fn end_of_lease(&self, sent: Moment) -> Moment {
        sent.after(self.config.duration).unwrap_or(sent)
    }

    fn lead(&mut self, lease: Lease, sent: Moment, quarantine_until: Instant) {
        let epoch = lease.spec.as_ref().map(epoch).unwrap_or_default();
        let first_known = self.highest.is_none();
        self.observe(lease);
        let guard = LeaseGuard {
            holder: self.config.holder.as_str().into(),
            epoch,
            first_known,
            quarantine_until,
            unknown_leader_until: sent.monotonic + self.longest_term(),
            end: Arc::new(Mutex::new(self.end_of_lease(sent))),
            clock: self.clock,
            count: watch::Sender::new(TransitionCount { wanted: epoch, written: epoch }),
            lost: CancellationToken::new(),
        };
        tracing::info!(lease = %self.config.name, epoch, "leading");
        self.leading = Some((guard.clone(), sent.monotonic));
        self.state.send_replace(LeaseState::Leading(guard));
    }

    fn lose(&mut self, reason: &'static str) {
        if let Some((guard, _)) = self.leading.take() {
            tracing::warn!(lease = %self.config.name, epoch = guard.epoch, reason, "lease lost");
            guard.lost.cancel();
            self.state.send_replace(LeaseState::Following { holder: None, epoch: guard.epoch });
        }
    }

    /// Releases the Lease so that the next leader does not have to wait for its expiry.
    async fn release(&mut self) {
        let Some((guard, _)) = self.leading.take() else { return };
        // Stops local work first: from now on nothing is done under the lease.
        guard.lost.cancel();
        self.state.send_replace(LeaseState::Following { holder: None, epoch: guard.epoch });
        let newest = match self.seen.take() {
            Some(ObservedLease { lease, .. }) if !self.unsure => Some(lease),
            // The last write may have taken effect: then the API server refuses to replace the object before it.
            _ => self.read().await.unwrap_or_default(),
        };
        let Some(lease) = newest.filter(|lease| self.is_held(&guard, lease)) else {
            tracing::warn!(lease = %self.config.name, "lease not released: it is not known to be held");
            return;
        };
        let spec = LeaseSpec {
            holder_identity: Some(String::new()),
            lease_duration_seconds: Some(1),
            renew_time: Some(MicroTime(self.clock.now())),
            ..lease.spec.clone().unwrap_or_default()
        };
        // The resource version ensures that the Lease is still held by this process.
        if let Err(RequestError { message: error, .. }) = self.write(Lease { spec: Some(spec), ..lease }).await {
            tracing::warn!(lease = %self.config.name, error, "lease not released, it will expire");
        }
    }

    /// Records the Lease; returns since when it has been unchanged.
    fn observe(&mut self, lease: Lease) -> Instant {
        let unchanged = self.seen.as_ref().filter(|seen| seen.lease.spec == lease.spec);
        let since = unchanged.map_or_else(Instant::now, |seen| seen.since);
        self.highest = self.highest.max(Some(lease.spec.as_ref().map(epoch).unwrap_or_default()));
        // Keeps the newest object in any case: a release needs its resource version.
        self.seen = Some(ObservedLease { lease, since });
        self.unsure = false;
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
            // The range was checked when the election was created.
            lease_duration_seconds: i32::try_from(self.config.duration.as_secs()).ok(),
            ..spec.clone()
        }
    }

    fn taken(&self) -> LeaseSpec {
        let now = Some(MicroTime(self.clock.now()));
        LeaseSpec { acquire_time: now.clone(), renew_time: now, ..self.ours(&LeaseSpec::default()) }
    }

    async fn read(&self) -> Result<Option<Lease>, RequestError> {
        request(self.api.get_opt(&self.config.name)).await
    }

    async fn create(&self, lease: Lease) -> Result<Lease, RequestError> {
        request(self.api.create(&PostParams::default(), &lease)).await
    }

    /// Replaces the Lease that was read or written last. `lease` has its UID and resource version. Both are
    /// preconditions: the API server refuses to replace another Lease. Without the UID it would create a Lease that
    /// does not exist, and a leader would not notice that its Lease was deleted.
    async fn write(&self, lease: Lease) -> Result<Lease, RequestError> {
        request(self.api.replace(&self.config.name, &PostParams::default(), &lease)).await
    }
}

/// Why a request for the Lease failed.
struct RequestError {
    message: String,
    /// The API server refused to replace an object that is no longer the newest one.
    outdated: bool,
}

impl From<RequestError> for String {
    fn from(error: RequestError) -> Self {
        error.message
    }
}

async fn request<T>(call: impl Future<Output = kube::Result<T>>) -> Result<T, RequestError> {
    match tokio::time::timeout(REQUEST_TIMEOUT, call).await {
        Ok(result) => result.map_err(|error| {
            let outdated = matches!(&error, kube::Error::Api(status) if matches!(status.code, 404 | 409));
            RequestError { message: error.to_string(), outdated }
        }),
        Err(_) => Err(RequestError { message: format!("no answer within {REQUEST_TIMEOUT:?}"), outdated: false }),
    }
}

/// Transition count of the Lease; a negative count is treated as absent.
fn epoch(spec: &LeaseSpec) -> u64 {
    spec.lease_transitions.unwrap_or(0).max(0).unsigned_abs().into()
}

/// The transition count of a Lease for an epoch.
fn transitions(epoch: u64) -> Option<i32> {
    Some(i32::try_from(epoch).unwrap_or(i32::MAX))
}

#[cfg(test)]
mod tests;

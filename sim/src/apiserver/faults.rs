//! Fault injection between clients and the API server, controlled by tests.

mod distortion;

pub use distortion::{Distortion, WatchMatcher};

use super::error::ApiError;
use super::request::Verb;
use crate::seed::Rng;
use parking_lot::Mutex;
use plimsoll_runtime::signal;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// Selects the requests that a rule applies to. Every field that is set must match.
#[derive(Debug, Clone, Default)]
pub struct Matcher {
    /// Name of the client.
    pub client: Option<String>,
    /// Request verb.
    pub verb: Option<Verb>,
    /// Plural name of the resource, such as `nodeclaims`.
    pub resource: Option<&'static str>,
    /// Subresource; `Some("")` matches only the object itself.
    pub subresource: Option<&'static str>,
    /// Name of the object.
    pub name: Option<String>,
}

impl Matcher {
    /// Matches every request of one client.
    pub fn client(name: impl Into<String>) -> Self {
        Self { client: Some(name.into()), ..Self::default() }
    }

    /// Matches every request with one verb for one resource.
    #[must_use]
    pub fn of(verb: Verb, resource: &'static str) -> Self {
        Self { verb: Some(verb), resource: Some(resource), ..Self::default() }
    }

    fn matches(&self, about: &About<'_>) -> bool {
        self.client.as_ref().is_none_or(|client| client == about.client)
            && self.verb.is_none_or(|verb| verb == about.verb)
            && self.resource.is_none_or(|resource| resource == about.resource)
            && self.subresource.is_none_or(|subresource| subresource == about.subresource)
            && self.name.as_ref().is_none_or(|name| name == about.name)
    }
}

/// Attributes of a request that the server is about to handle.
#[derive(Debug, Clone, Copy)]
pub struct About<'a> {
    /// Name of the client.
    pub client: &'a str,
    /// Request verb.
    pub verb: Verb,
    /// Plural name of the resource.
    pub resource: &'a str,
    /// Subresource, or empty.
    pub subresource: &'a str,
    /// Name of the object, or empty.
    pub name: &'a str,
}

/// Effect of a fault on a request.
#[derive(Debug, Clone)]
pub enum Effect {
    /// The request never reaches the server. The client sees a broken connection.
    Drop,
    /// The server executes the request. The client sees a broken connection.
    LoseAnswer,
    /// The server executes the request after a delay.
    Delay(Duration),
    /// The server executes the request. The response arrives after a delay: what a list says is older by then.
    DelayAnswer(Duration),
    /// The client sees a broken connection. The server executes the request after a delay, even if the client is dead
    /// by then.
    Late(Duration),
    /// The server rejects the request.
    Refuse(ApiError),
    /// The request waits until the gate opens, before the server executes it.
    HoldBefore(Gate),
    /// The server executes the request. The response waits until the gate opens.
    HoldAfter(Gate),
}

impl Effect {
    /// Rejects with 429 and a retry delay.
    #[must_use]
    pub fn throttle(retry_after_seconds: u32) -> Self {
        let mut error = ApiError::new(429, "TooManyRequests", "too many requests, try again later");
        error.retry_after_seconds = Some(retry_after_seconds);
        Self::Refuse(error)
    }

    /// Rejects with 500.
    #[must_use]
    pub fn internal_error() -> Self {
        Self::Refuse(ApiError::internal("an injected failure"))
    }

    /// Rejects with 409, as if another client had modified the object concurrently.
    #[must_use]
    pub fn conflict() -> Self {
        Self::Refuse(ApiError::new(409, "Conflict", "the object has been modified since it was read; read it again"))
    }
}

/// A gate at which requests wait until a test opens it.
#[derive(Debug, Clone, Default)]
pub struct Gate {
    open: Arc<watch::Sender<bool>>,
    arrived: Arc<watch::Sender<usize>>,
}

impl Gate {
    /// Releases all waiting requests and lets later ones pass.
    pub fn open(&self) {
        self.open.send_replace(true);
    }

    /// Waits until `count` requests have reached the gate.
    pub async fn reached(&self, count: usize) {
        let mut arrived = self.arrived.subscribe();
        // The sender lives as long as `self`, so this cannot fail.
        let _ = arrived.wait_for(|seen| *seen >= count).await;
    }

    pub(crate) async fn pass(&self) {
        self.arrived.send_modify(|count| *count += 1);
        let mut open = self.open.subscribe();
        let _ = open.wait_for(|open| *open).await;
    }
}

/// How a client is partitioned from the server.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Partition {
    /// Requests fail immediately and watches break.
    Refused,
    /// Requests and watches hang until the partition heals.
    Silent,
}

/// Identifies a rule, for its removal.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct RuleId(u64);

#[derive(Debug)]
struct Rule {
    matcher: Matcher,
    effect: Effect,
    /// Matching requests that still pass unaffected.
    skip: u32,
    /// Probability in per mille that a matching request is affected.
    per_mille: u32,
    /// Remaining requests to affect; `None` for no limit.
    left: Option<u32>,
}

impl Rule {
    fn once(matcher: Matcher, effect: Effect) -> Self {
        Self { matcher, effect, skip: 0, per_mille: 1000, left: Some(1) }
    }
}

#[derive(Debug, Default)]
struct State {
    rng: Rng,
    next: u64,
    rules: BTreeMap<RuleId, Rule>,
    partitions: BTreeMap<String, Partition>,
    watch_lag: BTreeMap<String, Duration>,
    /// Since when a delayed event is held back from a client, by resource and revision.
    held: BTreeMap<(String, &'static str, u64), Instant>,
    distortions: Vec<(WatchMatcher, Distortion)>,
    /// Cuts: the affected clients (empty for all) and the number of the last watch to cut.
    cuts: Vec<(BTreeSet<String>, u64)>,
    watches: u64,
}

/// Fault injection of one API server. Cheap to clone; clones share one state.
#[derive(Debug, Clone)]
pub struct Faults {
    state: Arc<Mutex<State>>,
    changed: signal::Sender,
}

impl Faults {
    /// Starts without faults. The seed determines random choices.
    #[must_use]
    pub fn new(seed: u64) -> Self {
        let state = State { rng: Rng::new(seed), ..State::default() };
        Self { state: Arc::new(Mutex::new(state)), changed: signal::Sender::default() }
    }

    fn change<T>(&self, change: impl FnOnce(&mut State) -> T) -> T {
        let result = change(&mut self.state.lock());
        self.changed.notify();
        result
    }

    fn add(&self, rule: Rule) -> RuleId {
        self.change(|state| {
            state.next += 1;
            let id = RuleId(state.next);
            state.rules.insert(id, rule);
            id
        })
    }

    /// Affects every matching request until the rule is removed.
    pub fn always(&self, matcher: Matcher, effect: Effect) -> RuleId {
        self.add(Rule { left: None, ..Rule::once(matcher, effect) })
    }

    /// Affects the next `count` matching requests.
    pub fn next(&self, count: u32, matcher: Matcher, effect: Effect) -> RuleId {
        self.add(Rule { left: Some(count), ..Rule::once(matcher, effect) })
    }

    /// Affects only the matching request with this number, counted from 1.
    pub fn nth(&self, number: u32, matcher: Matcher, effect: Effect) -> RuleId {
        self.add(Rule { skip: number.saturating_sub(1), ..Rule::once(matcher, effect) })
    }

    /// Affects matching requests with probability `per_mille` / 1000, determined by the seed.
    pub fn sometimes(&self, per_mille: u32, matcher: Matcher, effect: Effect) -> RuleId {
        self.add(Rule { per_mille, left: None, ..Rule::once(matcher, effect) })
    }

    /// Removes a rule.
    pub fn remove(&self, id: RuleId) {
        self.change(|state| state.rules.remove(&id));
    }

    /// Removes all rules, watch delays, distortions and partitions.
    pub fn clear(&self) {
        self.change(|state| {
            state.rules.clear();
            state.partitions.clear();
            state.watch_lag.clear();
            state.distortions.clear();
        });
    }

    /// Removes all rules. Partitions and watch delays stay.
    pub fn clear_rules(&self) {
        self.change(|state| state.rules.clear());
    }

    /// Partitions a client from the server.
    pub fn partition(&self, client: impl Into<String>, kind: Partition) {
        self.change(|state| state.partitions.insert(client.into(), kind));
    }

    /// Ends the partition of a client.
    pub fn heal(&self, client: &str) {
        self.change(|state| state.partitions.remove(client));
    }

    /// Breaks the open watches of the given clients, or of all clients if none is given. Clients can reopen them
    /// immediately.
    pub fn cut_watches<'a>(&self, clients: impl IntoIterator<Item = &'a str>) {
        let clients = clients.into_iter().map(str::to_owned).collect();
        self.change(|state| {
            let so_far = state.watches;
            state.cuts.retain(|(old, _)| *old != clients);
            state.cuts.push((clients, so_far));
        });
    }

    /// Delays the watch events of a client. Zero ends the delay.
    pub fn lag_watches(&self, client: impl Into<String>, lag: Duration) {
        self.change(|state| state.watch_lag.insert(client.into(), lag));
    }

    /// Distorts watches from now on.
    pub fn distort_watches(&self, watches: WatchMatcher, distortion: Distortion) {
        self.change(|state| state.distortions.push((watches, distortion)));
    }

    /// Ends all distortions of watches.
    pub fn end_distortions(&self) {
        self.change(|state| state.distortions.clear());
    }

    pub(crate) fn distortion(&self, client: &str, resource: &str) -> Option<Distortion> {
        let state = self.state.lock();
        let found = state.distortions.iter().find(|(watches, _)| watches.matches(client, resource));
        found.map(|(_, distortion)| *distortion)
    }

    /// Effects on one request, in the order of their rules. Counts against the limits of the rules.
    pub(crate) fn effects(&self, about: &About<'_>) -> Vec<Effect> {
        let mut state = self.state.lock();
        let State { rng, rules, .. } = &mut *state;
        let mut effects = Vec::new();
        for rule in rules.values_mut() {
            if rule.left == Some(0) || !rule.matcher.matches(about) {
                continue;
            }
            if rule.skip > 0 {
                rule.skip -= 1;
                continue;
            }
            // Rules with probability 1 draw no random number, so that adding one does not change the outcomes of
            // others.
            if rule.per_mille >= 1000 || rng.chance(rule.per_mille) {
                rule.left = rule.left.map(|left| left - 1);
                effects.push(rule.effect.clone());
            }
        }
        rules.retain(|_, rule| rule.left != Some(0));
        effects
    }

    pub(crate) fn partition_of(&self, client: &str) -> Option<Partition> {
        self.state.lock().partitions.get(client).copied()
    }

    /// Waits while a client is silently partitioned.
    ///
    /// # Errors
    /// If the partition refuses connections.
    pub(crate) async fn connected(&self, client: &str) -> Result<(), BrokenConnection> {
        let mut changed = self.changed.subscribe();
        loop {
            match self.partition_of(client) {
                None => return Ok(()),
                Some(Partition::Refused) => return Err(BrokenConnection),
                Some(Partition::Silent) => changed.changed().await,
            }
        }
    }

    /// Registers a new watch and returns its number.
    pub(crate) fn open_watch(&self) -> u64 {
        let mut state = self.state.lock();
        state.watches += 1;
        state.watches
    }

    pub(crate) fn is_cut(&self, client: &str, watch: u64) -> bool {
        let state = self.state.lock();
        state.partitions.get(client) == Some(&Partition::Refused)
            || state
                .cuts
                .iter()
                .any(|(clients, last)| watch <= *last && (clients.is_empty() || clients.contains(client)))
    }

    pub(crate) fn watch_lag(&self, client: &str) -> Duration {
        self.state.lock().watch_lag.get(client).copied().unwrap_or_default()
    }

    /// Since when the event is held back. A watch that the client opens again in the meantime does not make it later.
    pub(crate) fn held_since(&self, client: &str, resource: &'static str, revision: u64) -> Instant {
        *self.state.lock().held.entry((client.to_owned(), resource, revision)).or_insert_with(Instant::now)
    }

    /// Signals every change to the faults.
    pub(crate) fn subscribe(&self) -> signal::Receiver {
        self.changed.subscribe()
    }
}

/// The error that a client sees when a request or a response is lost.
#[derive(Debug, Clone, Copy, thiserror::Error)]
#[error("connection reset by peer")]
pub struct BrokenConnection;

#[cfg(test)]
mod tests;

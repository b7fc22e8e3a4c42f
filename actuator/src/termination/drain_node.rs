//! Drains the Nodes of a claim, and leaves PodDisruptionBudgets to other removals once their pods have been evicted.

use super::drain::Drain;
use super::evict::is_forced;
use super::{POLL_INTERVAL, Stage, TerminationFlow, condition_of, drain, live_pods};
use crate::interruption;
use crate::io::WriteError;
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::api::core::v1::Node;
use k8s_openapi::api::policy::v1::PodDisruptionBudget;
use kube::ResourceExt;
use plimsoll_api::Pod;
use plimsoll_api::condition::Status;
use plimsoll_api::condition::node_claim::DRAINED;
use std::collections::BTreeSet;
use std::sync::Arc;
use std::time::Duration;

/// Minimum drain time: kube-scheduler may not have seen the taint yet.
const MIN_DRAIN: SignedDuration = SignedDuration::from_secs(5);

impl TerminationFlow<'_> {
    /// Evicts the pods of the Nodes. Done once no pod is waited for.
    pub(super) async fn drain(&self, deadline: Option<Timestamp>) -> Result<Stage, WriteError> {
        let (deps, claim) = (self.deps, &*self.subject.claim);
        let registered = self.registered();
        let state = condition_of(claim, DRAINED);
        let now = deps.clock.now();
        if registered.is_empty() || state.as_ref().is_some_and(|(status, _)| status == "True") {
            self.release_budgets(&[], now);
            return Ok(Stage::Done);
        }
        let deleted = claim.metadata.deletion_timestamp.as_ref().map_or(now, |at| at.0);
        let started = match state {
            // The clock of a former leader was ahead. Instead, that of the API server counts.
            Some((_, since)) if since > now => deleted,
            Some((_, since)) => since,
            None => match self.set(DRAINED, Status::Unknown, "Draining", "pods are being evicted").await {
                Ok(true) => now,
                Ok(false) => deleted,
                Err(error) => return self.evict_if_urgent(error, deadline).await,
            },
        };
        if let Some(next) = self.evict(&registered, &self.subject.pods, deadline, now).await? {
            return Ok(Stage::Wait(next));
        }
        let min_until = started.saturating_add(MIN_DRAIN).unwrap_or(Timestamp::MAX);
        if now < min_until {
            return Ok(Stage::Wait(Duration::try_from(min_until.duration_since(now)).unwrap_or(POLL_INTERVAL)));
        }
        let live = live_pods::on(deps, &registered, deadline, now).await?;
        if let Some(next) = self.evict(&registered, &live, deadline, now).await? {
            return Ok(Stage::Wait(next));
        }
        if self.set(DRAINED, Status::True, DRAINED, "").await? {
            deps.metrics.nodes.drained(claim);
        }
        Ok(Stage::Done)
    }

    /// Evicts the pods that are due. Returns the time until the next step; `None` if no pod is waited for.
    pub(super) async fn evict(
        &self,
        nodes: &[&Arc<Node>],
        pods: &[Arc<Pod>],
        deadline: Option<Timestamp>,
        now: Timestamp,
    ) -> Result<Option<Duration>, WriteError> {
        let plan = self.next_step(pods, deadline, now).await;
        self.carry_out(nodes, &plan, now).await
    }

    /// The next step of the drain: all pods that are due.
    pub(super) async fn next_step(&self, pods: &[Arc<Pod>], deadline: Option<Timestamp>, now: Timestamp) -> Drain {
        let (deps, claim, pending) = (self.deps, &*self.subject.claim, &self.shared.pending_replacements);
        self.release_budgets(pods, now);
        let mut plan = drain::plan(pods, deadline, is_forced(deps, claim), now);
        let needed = drain::times_to_stop(pods, now);
        let delayed = interruption::delayed_pods(&deps.drain_delay, pending, claim, pods, &needed, deadline).await;
        plan.delay(&delayed);
        plan
    }

    /// Carries out a step of the drain. Returns as [`TerminationFlow::evict`].
    pub(super) async fn carry_out(
        &self,
        nodes: &[&Arc<Node>],
        plan: &Drain,
        now: Timestamp,
    ) -> Result<Option<Duration>, WriteError> {
        let (evictions, claim) = (&self.shared.evictions, &*self.subject.claim);
        let next_attempt = evictions.carry_out(self.deps, Some(claim), nodes.first().copied(), plan).await?;
        if plan.waiting == 0 {
            return Ok(None);
        }
        let until = |at: Timestamp| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO);
        let next = plan.look_again.map_or(POLL_INTERVAL, until).min(next_attempt.unwrap_or(POLL_INTERVAL));
        Ok(Some(next.clamp(Duration::from_millis(50), POLL_INTERVAL)))
    }

    /// Leaves the PodDisruptionBudgets of pods that are gone or terminating to other removals: the budgets themselves
    /// count these pods. `pods` are the pods of the Nodes.
    fn release_budgets(&self, pods: &[Arc<Pod>], now: Timestamp) {
        let (deps, name) = (self.deps, self.subject.claim.name_any());
        if deps.ledger.read(|ledger| ledger.removal(&name).is_none_or(|removal| removal.evictions.is_empty())) {
            return;
        }
        let is_left = |pod: &&Pod| drain::is_waited_for(pod, now) && !pod.is_terminating();
        let left: Vec<&Pod> = pods.iter().map(Arc::as_ref).filter(is_left).collect();
        let namespaces: BTreeSet<Option<&str>> = left.iter().map(|pod| pod.metadata.namespace.as_deref()).collect();
        let concerns = |budget: &&Arc<PodDisruptionBudget>| namespaces.contains(&budget.metadata.namespace.as_deref());
        let budgets = deps.stores.budgets.state();
        let budgets = budgets.iter().filter(concerns).map(|budget| (**budget).clone()).collect();
        let left = plimsoll_snapshot::evictions(left, budgets);
        deps.ledger.with(|ledger| ledger.evictions_left(&name, &left));
    }
}

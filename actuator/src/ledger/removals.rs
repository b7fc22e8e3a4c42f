//! Admission of removals (safety rules 9 and 11): pool budgets, PodDisruptionBudgets, and capacity at the destinations.

use super::changes::Subject;
use super::outcomes::Outcome;
use super::record::ClaimRecord;
use super::rejection::Rejection;
use super::{Admission, Ledger, PlanContext, Removal};
use plimsoll_model::identity::{ActionId, NodeName, NodePoolName, PodUid};
use plimsoll_model::plan::Termination;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::DisruptionReason;
use plimsoll_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Facts about a removal, from the watch cache at this moment.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RemovalFacts {
    /// The candidate claim.
    pub claim: String,
    /// Evictions by PodDisruptionBudget that covers pods of the node.
    pub evictions: BTreeMap<String, u32>,
    /// disruptionsAllowed by budget. A budget whose observedGeneration lags is missing, and counts as 0.
    pub disruptions_allowed: BTreeMap<String, u32>,
    /// Requests of the pods that move, by destination node.
    pub moves: BTreeMap<NodeName, Resources>,
    /// Free resources of the destination nodes, based on bound pods. A node that accepts no pods is missing.
    pub free: BTreeMap<NodeName, Resources>,
    /// Existing pods that the candidate was launched for, and that are not there yet.
    pub expected: BTreeSet<PodUid>,
    /// Claims in removal that need neither their replacements nor the destinations of their pods any longer, since
    /// their drain ended long ago.
    pub drained: BTreeSet<String>,
    /// A terminationGracePeriod bounds how long pods can delay the drain.
    pub bounded: bool,
    /// The node is not in service yet.
    pub starting: bool,
    /// The current time.
    pub now: Timestamp,
}

impl Ledger {
    /// Admits a removal, or rejects it with a reason. `replacements` are the launches that it waits for.
    pub fn admit_removal(
        &mut self,
        removal: &Termination,
        replacements: &[ActionId],
        plan: &PlanContext,
        facts: &RemovalFacts,
    ) -> Admission {
        if let Some(early) = self.early(&removal.action_id, plan) {
            return early;
        }
        if let Err(rejection) = self.judge_removal(removal, replacements, plan, facts) {
            return Admission::Rejected(rejection);
        }
        let admitted = Removal {
            action: removal.action_id.clone(),
            node: removal.node.clone(),
            reason: removal.reason,
            replacements: replacements.to_vec(),
            evictions: facts.evictions.clone(),
            rooms: facts.moves.clone(),
            pods: removal.pods.iter().map(|pod| pod.uid.clone()).collect(),
            admitted: facts.now,
        };
        self.removals.insert(facts.claim.clone(), admitted);
        let nodes = facts.moves.keys().chain([&removal.node]).cloned().map(Subject::Node);
        let pods = removal.pods.iter().map(|pod| Subject::Pod(pod.uid.clone()));
        self.note(nodes.chain(pods).collect::<Vec<_>>(), Some(self.key(plan)));
        self.outcomes.set(&removal.action_id, Outcome::Admitted);
        Admission::Admitted { claim: facts.claim.clone(), position: self.position }
    }

    fn judge_removal(
        &self,
        removal: &Termination,
        replacements: &[ActionId],
        plan: &PlanContext,
        facts: &RemovalFacts,
    ) -> Result<(), Rejection> {
        let node = &removal.node;
        let claim = self.claims.get(&facts.claim).ok_or_else(|| Rejection::UnknownNode(node.clone()))?;
        if claim.deleting || self.removals.contains_key(&facts.claim) {
            return Err(Rejection::AlreadyRemoving(node.clone()));
        }
        self.check_dependencies(replacements)?;
        let nodes = facts.moves.keys().chain([node]).cloned().map(Subject::Node);
        let pods = removal.pods.iter().map(|pod| Subject::Pod(pod.uid.clone()));
        self.check_unchanged(nodes.chain(pods), plan)?;
        if removal.reason.is_forced() {
            return Ok(());
        }
        // The pods of the other node may come late, such as those that a PodDisruptionBudget holds.
        let replaces = |other: &Removal| claim.action.as_ref().is_some_and(|it| other.replacements.contains(it));
        if self.moving(facts).any(|other| other.rooms.contains_key(node) || replaces(other)) {
            return Err(Rejection::NodeIsDestination(node.clone()));
        }
        if let Some(pod) = facts.expected.first() {
            return Err(Rejection::PodExpected { node: node.clone(), pod: pod.clone() });
        }
        if facts.starting {
            self.check_starting(&facts.claim, &claim.pool, node)?;
        } else {
            self.check_replicas(&facts.claim, &claim.pool, removal.reason)?;
            self.check_pool_budgets(&claim.pool, removal.reason)?;
        }
        self.check_pod_disruption_budgets(removal.reason, facts)?;
        self.check_capacity(facts)
    }

    /// Checks a removal in progress again before its node is deleted. The removal's own reservations do not count
    /// against it. Pool budgets are not checked again: they limit when a removal starts, and a window that closes, or
    /// another removal, is no reason to waste the replacements.
    ///
    /// # Errors
    /// Why the node must not be deleted.
    pub fn check_removal_again(&self, facts: &RemovalFacts) -> Result<(), Rejection> {
        let removal = self.removals.get(&facts.claim).ok_or_else(|| Rejection::NotAdmitted(facts.claim.clone()))?;
        if removal.reason.is_forced() {
            return Ok(());
        }
        if let Some(claim) = self.claims.get(&facts.claim).filter(|_| facts.starting) {
            self.check_starting(&facts.claim, &claim.pool, &removal.node)?;
        }
        self.check_pod_disruption_budgets(removal.reason, facts)?;
        self.check_capacity(facts)
    }

    /// A node that is not in service, that of claim `own`, is removed only if its static pool has more nodes than
    /// `replicas`. Budgets are about nodes in service.
    fn check_starting(&self, own: &str, pool: &NodePoolName, node: &NodeName) -> Result<(), Rejection> {
        let replicas = self.pools.get(pool).and_then(|facts| facts.replicas);
        let is_surplus = replicas.is_some_and(|replicas| self.staying(own, pool) > replicas);
        if is_surplus { Ok(()) } else { Err(Rejection::UnknownNode(node.clone())) }
    }

    /// A node of a static pool, that of claim `own`, is removed only if the pool has more nodes than `replicas`. A
    /// drifted one is replaced. Plans count a node until they see its taint, so that they may find another one for the
    /// same surplus.
    fn check_replicas(&self, own: &str, pool: &NodePoolName, reason: DisruptionReason) -> Result<(), Rejection> {
        let replicas = self.pools.get(pool).and_then(|facts| facts.replicas);
        let Some(replicas) = replicas.filter(|_| reason != DisruptionReason::Drifted) else { return Ok(()) };
        let staying = self.staying(own, pool);
        if staying > replicas { Ok(()) } else { Err(Rejection::NoSurplus { replicas, staying }) }
    }

    /// Number of nodes of the pool that stay if that of claim `own` does. Other nodes that are being removed do not
    /// count, so that the successor of a drifted node stays.
    fn staying(&self, own: &str, pool: &NodePoolName) -> u64 {
        let stays = |name: &str| name == own || !self.removals.contains_key(name);
        u64::from(self.count(pool, |name, claim| !claim.deleting && stays(name)))
    }

    /// Budgets count each node that is being removed, the limit of a rollout only those that are replaced for drift.
    fn check_pool_budgets(&self, pool: &NodePoolName, reason: DisruptionReason) -> Result<(), Rejection> {
        let facts = self.pools.get(pool).ok_or_else(|| Rejection::UnknownPool(pool.clone()))?;
        if let Some(allowed) = facts.allowed.get(&reason).copied() {
            // As in Karpenter, a claim that was never initialized, such as one whose launch failed, does not count.
            let removing = self
                .count(pool, |name, claim| (claim.initialized && claim.deleting) || self.removals.contains_key(name));
            if removing >= allowed {
                return Err(Rejection::BudgetExhausted { allowed, removing });
            }
        }
        if let Some(limit) = facts.rollout_limit.filter(|_| reason == DisruptionReason::Drifted) {
            let replacing = self.drift_replacements(pool);
            if replacing >= limit {
                return Err(Rejection::RolloutLimit { limit, replacing });
            }
        }
        Ok(())
    }

    /// Nodes of the pool that are being replaced for drift. Where the reason is unknown, drift is assumed, since a
    /// rollout must not exceed its limit: a drifted node may be in deletion without its command, and the command of an
    /// unreadable claim is unknown.
    fn drift_replacements(&self, pool: &NodePoolName) -> u32 {
        let known = self.count(pool, |name, claim| match self.removals.get(name) {
            Some(removal) => removal.reason == DisruptionReason::Drifted,
            None => claim.initialized && claim.deleting && claim.drifted,
        });
        let unreadable = self.unreadable.values().filter(|problem| problem.pool == *pool).count();
        known.saturating_add(u32::try_from(unreadable).unwrap_or(u32::MAX))
    }

    /// Claims of the pool whose instance is not being terminated and that `counts` accepts.
    fn count(&self, pool: &NodePoolName, counts: impl Fn(&str, &ClaimRecord) -> bool) -> u32 {
        let of_pool = self.claims.iter().filter(|(_, claim)| claim.pool == *pool && !claim.terminating);
        u32::try_from(of_pool.filter(|(name, claim)| counts(name, claim)).count()).unwrap_or(u32::MAX)
    }

    /// One free eviction per budget is enough: a node with two pods of a budget that allows one disruption at a time
    /// drains in two steps. Drift does not wait for a budget if the drain has a deadline.
    fn check_pod_disruption_budgets(&self, reason: DisruptionReason, facts: &RemovalFacts) -> Result<(), Rejection> {
        if reason == DisruptionReason::Drifted && facts.bounded {
            return Ok(());
        }
        for budget in facts.evictions.keys() {
            let allowed = facts.disruptions_allowed.get(budget).copied().unwrap_or(0);
            let others = self.other_removals(&facts.claim).filter_map(|other| other.evictions.get(budget));
            // The numbers are from annotations, which others may have written.
            let admitted = others.fold(0_u32, |sum, count| sum.saturating_add(*count));
            if admitted >= allowed {
                return Err(Rejection::NoDisruptionRoom(budget.clone()));
            }
        }
        Ok(())
    }

    fn check_capacity(&self, facts: &RemovalFacts) -> Result<(), Rejection> {
        for (node, requested) in &facts.moves {
            let leaving = self.other_removals(&facts.claim).any(|other| other.node == *node);
            let none = Resources::new();
            let mut free = facts.free.get(node).filter(|_| !leaving).unwrap_or(&none).clone();
            for taken in self.moving(facts).filter_map(|other| other.rooms.get(node)) {
                free.subtract(taken);
            }
            if let Some(resource) = requested.first_excess(&free) {
                return Err(Rejection::InsufficientResources { node: node.clone(), resource: resource.to_owned() });
            }
        }
        Ok(())
    }

    /// The removals in progress, except the removal of `claim`.
    fn other_removals<'a>(&'a self, claim: &'a str) -> impl Iterator<Item = &'a Removal> {
        self.removals.iter().filter(move |(name, _)| *name != claim).map(|(_, removal)| removal)
    }

    /// The other removals whose pods may still come to their destinations.
    fn moving<'a>(&'a self, facts: &'a RemovalFacts) -> impl Iterator<Item = &'a Removal> {
        let is_moving = move |name: &String| *name != facts.claim && !facts.drained.contains(name);
        self.removals.iter().filter(move |(name, _)| is_moving(name)).map(|(_, removal)| removal)
    }

    /// Whether an action was admitted and has no final outcome yet.
    #[must_use]
    pub fn is_under_way(&self, action: &ActionId) -> bool {
        self.outcomes.get(action) == Some(&Outcome::Admitted)
    }

    /// The removal of a claim, if it is in progress.
    #[must_use]
    pub fn removal(&self, claim: &str) -> Option<&Removal> {
        self.removals.get(claim)
    }

    /// The removals in progress, by claim.
    pub fn removals(&self) -> impl Iterator<Item = (&str, &Removal)> {
        self.removals.iter().map(|(claim, removal)| (claim.as_str(), removal))
    }

    /// Records the evictions of a removal that are still to come, by PodDisruptionBudget. The number never increases:
    /// pods that reach the node later were not admitted.
    pub fn evictions_left(&mut self, claim: &str, left: &BTreeMap<String, u32>) {
        if let Some(removal) = self.removals.get_mut(claim) {
            removal.evictions.retain(|budget, count| {
                *count = left.get(budget).copied().unwrap_or(0).min(*count);
                *count > 0
            });
        }
    }

    /// Records that a removal was undone: its node is untainted and stays.
    pub fn removal_undone(&mut self, claim: &str) {
        if let Some(removal) = self.removals.remove(claim) {
            self.outcomes.set(&removal.action, Outcome::Failed);
            self.note(removal.rooms.into_keys().chain([removal.node]).map(Subject::Node).collect::<Vec<_>>(), None);
        }
    }

    /// Records that the instance of a claim is being terminated: the node is drained and no longer counts towards
    /// budgets, as in Karpenter. It counts towards limits until it is gone.
    pub fn terminating(&mut self, claim: &str) {
        if let Some(record) = self.claims.get_mut(claim) {
            record.terminating = true;
        }
    }

    /// Records that anyone deleted a claim: it counts towards budgets until its instance is being terminated, and
    /// towards limits until it is gone. Its pods can be planned again, on a snapshot that includes the deletion.
    pub fn deleting(&mut self, claim: &str) {
        let Some(record) = self.claims.get_mut(claim) else { return };
        record.deleting = true;
        let pods = self.free_pods(claim);
        if !pods.is_empty() {
            self.note(pods, None);
        }
    }

    /// Records whether the node of a claim has drifted. See [`ClaimSeed::drifted`](super::ClaimSeed).
    pub fn drifted(&mut self, claim: &str, drifted: bool) {
        if let Some(record) = self.claims.get_mut(claim) {
            record.drifted = drifted;
        }
    }

    /// Records the Node of a claim.
    pub fn node_of(&mut self, claim: &str, node: NodeName) {
        if let Some(record) = self.claims.get_mut(claim) {
            record.node = Some(node);
        }
    }
}

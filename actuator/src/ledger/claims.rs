//! Claims in the ledger: those that others made, and what watchers of the ledger are shown.

use super::changes::Subject;
use super::outcomes::Outcome;
use super::rejection::Rejection;
use super::{Admission, ClaimSeed, Driver, Ledger, LedgerProblem, PoolFacts, record};
use crate::state::launch_group::claim_name;
use plimsoll_model::identity::{ActionId, NodeName, NodePoolName, PodUid};
use plimsoll_model::resources::Resources;
use plimsoll_model::time::Timestamp;
use record::ClaimRecord;
use std::collections::BTreeSet;

/// A claim as the ledger has it.
#[derive(Debug, Clone, Copy)]
pub struct ClaimView<'a> {
    /// Name.
    pub name: &'a str,
    /// Pool.
    pub pool: &'a NodePoolName,
    /// The action that made it.
    pub action: Option<&'a ActionId>,
    /// Its Node.
    pub node: Option<&'a NodeName>,
    /// What it counts against limits.
    pub counted: &'a Resources,
    /// Its instance is known.
    pub launched: bool,
    /// Its node is in service.
    pub initialized: bool,
    /// It is on its way out.
    pub deleting: bool,
    pods: &'a BTreeSet<PodUid>,
    pods_until: Option<Timestamp>,
}

impl<'a> ClaimView<'a> {
    /// The pods that are reserved for it now.
    pub fn pods(&self, now: Timestamp) -> impl Iterator<Item = &'a PodUid> + use<'a> {
        let over = self.pods_until.is_some_and(|until| until <= now);
        self.pods.iter().filter(move |_| !over)
    }
}

impl Ledger {
    /// The watcher that drives, as far as is known.
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// A pool as it was taken in last.
    #[must_use]
    pub fn pool(&self, name: &NodePoolName) -> Option<&PoolFacts> {
        self.pools.get(name)
    }

    /// Whether a claim of that name is counted.
    #[must_use]
    pub fn knows(&self, claim: &str) -> bool {
        self.claims.contains_key(claim) || self.unreadable.contains_key(claim)
    }

    /// All claims, by name.
    pub fn claims(&self) -> impl Iterator<Item = ClaimView<'_>> {
        self.claims.iter().map(|(name, claim)| view(name, claim))
    }

    /// A claim.
    #[must_use]
    pub fn claim(&self, name: &str) -> Option<ClaimView<'_>> {
        self.claims.get_key_value(name).map(|(name, claim)| view(name, claim))
    }

    /// Every pod that some claim is reserved for.
    pub fn reserved_pods(&self) -> impl Iterator<Item = &PodUid> {
        self.reserved.keys()
    }

    /// Every reserved pod with the claim that it is reserved for.
    pub fn reservations(&self) -> impl Iterator<Item = (&PodUid, &str)> {
        self.reserved.iter().map(|(pod, claim)| (pod, claim.as_str()))
    }

    /// Whether a claim could not be read when it was looked at last.
    #[must_use]
    pub fn is_unreadable(&self, claim: &str) -> bool {
        self.unreadable.contains_key(claim)
    }

    /// The term admits actions from now on. What a former leader wrote was read before.
    pub fn begin_admitting(&mut self) {
        self.admits = true;
    }

    /// Whether the stored launch request of a claim may be sent again: this term admitted it or read it before it admitted
    /// anything, so its pods are reserved for it, and nobody was told that it failed.
    #[must_use]
    pub fn may_send_again(&self, claim: &str) -> bool {
        self.claims.get(claim).is_some_and(|record| !record.late && !record.deleting)
    }

    /// Counts a claim that somebody else made, or a former leader's that came late. One that is known stays as it is; one
    /// that could not be read is read again.
    ///
    /// # Errors
    /// Its annotations cannot be read: its pool is closed to launches until they can, or until it is gone.
    pub fn adopt(&mut self, seed: &ClaimSeed) -> Result<(), LedgerProblem> {
        if self.claims.contains_key(&seed.name) {
            return Ok(());
        }
        let read = record::claim_record(seed).and_then(|claim| Ok((claim, record::removal(seed)?)));
        match read {
            Ok((claim, removal)) => {
                self.unreadable.remove(&seed.name);
                self.note([Subject::Pool(seed.pool.clone())], None);
                self.restore(&seed.name, claim, removal);
                Ok(())
            }
            Err(problem) => {
                let known = self.unreadable.insert(seed.name.clone(), problem.clone());
                if known.as_ref() != Some(&problem) {
                    self.note([Subject::Pool(seed.pool.clone())], None);
                }
                Err(problem)
            }
        }
    }

    /// Admits a launch that no plan asks for: the like-for-like replacement of a forced removal (rule 13). Limits hold.
    pub fn admit_replacement(&mut self, pool: &NodePoolName, action: &ActionId, reserve: Resources) -> Admission {
        let name = claim_name(pool, action);
        if self.claims.contains_key(&name) {
            return Admission::Repeated(self.outcome(action).cloned().unwrap_or(Outcome::Admitted));
        }
        let Some(facts) = self.pools.get(pool) else {
            return Admission::Rejected(Rejection::UnknownPool(pool.clone()));
        };
        let used = self.used(pool);
        for (resource, limit) in facts.limits.iter() {
            let (used, asked) = (used.get(resource), reserve.get(resource));
            if asked > 0 && used.saturating_add(asked) > limit {
                let resource = resource.to_owned();
                return Admission::Rejected(Rejection::LimitExceeded { resource, limit, used, asked });
            }
        }
        let record = ClaimRecord {
            pool: pool.clone(),
            action: Some(action.clone()),
            node: None,
            counted: reserve,
            pods: BTreeSet::new(),
            launched: false,
            initialized: false,
            deleting: false,
            pods_until: None,
            late: false,
        };
        self.claims.insert(name.clone(), record);
        self.note([Subject::Pool(pool.clone())], None);
        self.outcomes.set(action, Outcome::Admitted);
        Admission::Admitted { claim: name, position: self.position }
    }
}

fn view<'a>(name: &'a str, claim: &'a ClaimRecord) -> ClaimView<'a> {
    ClaimView {
        name,
        pool: &claim.pool,
        action: claim.action.as_ref(),
        node: claim.node.as_ref(),
        counted: &claim.counted,
        launched: claim.launched,
        initialized: claim.initialized,
        deleting: claim.deleting,
        pods: &claim.pods,
        pods_until: claim.pods_until,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn seed(name: &str, cpu: i64) -> ClaimSeed {
        let capacity = Some(Resources::from([("cpu", cpu), ("nodes", 1)]));
        ClaimSeed { name: name.to_owned(), pool: "pool".into(), capacity, ..ClaimSeed::default() }
    }

    #[test]
    fn a_claim_of_others_counts_once_and_outdates_plans_for_its_pool() {
        let (mut ledger, _) = Ledger::from_claims(1, &[]);
        let before = ledger.position();
        ledger.adopt(&seed("a", 4000)).unwrap();
        assert!(ledger.position() > before);
        let after = ledger.position();
        ledger.adopt(&seed("a", 9000)).unwrap();
        assert_eq!((ledger.position(), ledger.used(&"pool".into()).get("cpu")), (after, 4000));
    }

    #[test]
    fn a_replacement_keeps_to_the_limits_and_is_admitted_once() {
        let (mut ledger, _) = Ledger::from_claims(1, &[seed("a", 4000)]);
        let pool = NodePoolName::from("pool");
        ledger.set_pool(&pool, PoolFacts { limits: Resources::from([("cpu", 8000)]), ..PoolFacts::default() });
        let action = ActionId::from("replace-1");
        let reserve = Resources::from([("cpu", 4000)]);
        assert!(matches!(ledger.admit_replacement(&pool, &action, reserve.clone()), Admission::Admitted { .. }));
        assert_eq!(ledger.admit_replacement(&pool, &action, reserve.clone()), Admission::Repeated(Outcome::Admitted));
        let refused = ledger.admit_replacement(&pool, &"replace-2".into(), reserve);
        assert!(matches!(refused, Admission::Rejected(Rejection::LimitExceeded { used: 8000, .. })), "{refused:?}");
    }
}

//! Claims in the ledger: adoption of claims made by others, and read access for watchers of the ledger.

use super::changes::Subject;
use super::failures::INSUFFICIENT_CAPACITY;
use super::outcomes::Outcome;
use super::rejection::Rejection;
use super::{Admission, ClaimSeed, Driver, Ledger, LedgerProblem, PoolFacts, record};
use crate::state::launch_group::claim_name;
use plimsoll_model::identity::{ActionId, NodePoolName, PodUid};
use plimsoll_model::resources::Resources;
use plimsoll_model::time::Millis;
use record::ClaimRecord;
use std::collections::BTreeSet;

/// How long a CreateFleet call usually takes at most: when the outcome of a probe is known.
const PROBE_TIME: Millis = Millis::from_seconds(5);

impl Ledger {
    /// The current driver, as far as known.
    #[must_use]
    pub fn driver(&self) -> &Driver {
        &self.driver
    }

    /// The recorded facts of a pool.
    #[must_use]
    pub fn pool(&self, name: &NodePoolName) -> Option<&PoolFacts> {
        self.pools.get(name)
    }

    /// Whether a claim with that name is in the ledger.
    #[must_use]
    pub fn knows(&self, claim: &str) -> bool {
        self.claims.contains_key(claim) || self.unreadable.contains_key(claim)
    }

    /// All claims, by name.
    pub(crate) fn claims(&self) -> impl Iterator<Item = (&str, &ClaimRecord)> {
        self.claims.iter().map(|(name, claim)| (name.as_str(), claim))
    }

    /// A claim.
    #[must_use]
    pub(crate) fn claim(&self, name: &str) -> Option<&ClaimRecord> {
        self.claims.get(name)
    }

    /// All reserved pods.
    pub fn reserved_pods(&self) -> impl Iterator<Item = &PodUid> {
        self.reserved.keys()
    }

    /// All reserved pods, each with its claim.
    pub fn reservations(&self) -> impl Iterator<Item = (&PodUid, &str)> {
        self.reserved.iter().map(|(pod, claim)| (pod, claim.as_str()))
    }

    /// The claim that a pod is reserved for, also if the time of the reservation is over.
    #[must_use]
    pub fn reservation_of(&self, pod: &PodUid) -> Option<&str> {
        self.reserved.get(pod).map(String::as_str)
    }

    /// Whether the claim's annotations were unreadable at the last look.
    #[must_use]
    pub fn is_unreadable(&self, claim: &str) -> bool {
        self.unreadable.contains_key(claim)
    }

    /// Starts admitting actions. What a former leader wrote was read before.
    pub fn begin_admitting(&mut self) {
        self.admits = true;
    }

    /// Whether this term admits actions.
    #[must_use]
    pub fn is_admitting(&self) -> bool {
        self.admits
    }

    /// Whether the stored launch request of a claim may be sent again. True if this term admitted the claim, or read it
    /// before it admitted anything: then the claim's pods are reserved for it, and nobody was told that it failed.
    #[must_use]
    pub fn may_send_again(&self, claim: &str) -> bool {
        self.claims.get(claim).is_some_and(|record| !record.late && !record.deleting)
    }

    /// Adds a claim that this term did not admit: created by somebody else, or by a late write of a former leader. A
    /// known claim is unchanged; an unreadable one is read again.
    ///
    /// # Errors
    /// The annotations are unreadable. The pool admits no launches until they are readable or the claim is gone.
    pub fn adopt(&mut self, seed: &ClaimSeed) -> Result<(), LedgerProblem> {
        if self.claims.contains_key(&seed.name) {
            return Ok(());
        }
        let read = record::claim_record(seed).and_then(|claim| Ok((claim, record::removal(seed)?)));
        match read {
            Ok((claim, removal)) => {
                self.unreadable.remove(&seed.name);
                self.note([Subject::Pool(seed.pool.clone())], None);
                self.restore(&seed.name, claim, removal, &BTreeSet::new());
                Ok(())
            }
            Err(problem) => {
                let previous = self.unreadable.insert(seed.name.clone(), problem.clone());
                if previous.as_ref() != Some(&problem) {
                    self.note([Subject::Pool(seed.pool.clone())], None);
                }
                Err(problem)
            }
        }
    }

    /// Admits a launch that accepts only offerings which lacked capacity: one at a time per pool, since the others
    /// would probably fail with it.
    pub fn admit_probe(&mut self, pool: &NodePoolName, admit: impl FnOnce(&mut Self) -> Admission) -> Admission {
        let under_way = |claim: &ClaimRecord| claim.probe && claim.pool == *pool && !claim.launched && !claim.deleting;
        if self.claims.values().any(under_way) {
            let cause = INSUFFICIENT_CAPACITY.to_owned();
            return Admission::Rejected(Rejection::BackOff { cause, remaining: PROBE_TIME });
        }
        let admission = admit(self);
        if let Admission::Admitted { claim, .. } = &admission
            && let Some(record) = self.claims.get_mut(claim)
        {
            record.probe = true;
        }
        admission
    }

    /// Admits a launch without a plan: the like-for-like replacement of a forced removal (rule 13). Limits apply.
    pub fn admit_replacement(&mut self, pool: &NodePoolName, action: &ActionId, reserve: Resources) -> Admission {
        let name = claim_name(pool, action);
        if self.claims.contains_key(&name) {
            return Admission::Repeated(self.outcome(action).cloned().unwrap_or(Outcome::Admitted));
        }
        if !self.pools.contains_key(pool) {
            return Admission::Rejected(Rejection::UnknownPool(pool.clone()));
        }
        let checked = self.check_readable(pool).and_then(|()| self.check_lacks_node(pool, &BTreeSet::new()));
        let checked = checked.and_then(|()| self.check_reservations(&reserve));
        let checked = checked.and_then(|()| self.check_limits(pool, &reserve));
        if let Err(rejection) = checked.and_then(|()| self.check_quotas(&reserve)) {
            return Admission::Rejected(rejection);
        }
        self.claims.insert(name.clone(), ClaimRecord::without_plan(pool, action, reserve));
        self.note([Subject::Pool(pool.clone())], None);
        self.outcomes.set(action, Outcome::Admitted);
        Admission::Admitted { claim: name, position: self.position }
    }

    /// Admits the launch of a NodeClaim that a user created, under the claim's own name. No limits of a pool apply,
    /// since the claim has none. An admission that led to no launch is replaced, and does not count against the claim.
    pub fn admit_standalone(&mut self, claim: &str, action: &ActionId, reserve: Resources) -> Admission {
        let previous = self.claims.remove(claim);
        if let Err(rejection) = self.check_reservations(&reserve).and_then(|()| self.check_quotas(&reserve)) {
            self.claims.extend(previous.map(|record| (claim.to_owned(), record)));
            return Admission::Rejected(rejection);
        }
        let record = ClaimRecord::without_plan(&NodePoolName::default(), action, reserve);
        self.claims.insert(claim.to_owned(), record);
        self.outcomes.set(action, Outcome::Admitted);
        Admission::Admitted { claim: claim.to_owned(), position: self.position }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::names::annotation;
    use std::collections::BTreeMap;

    fn seed(name: &str, cpu: i64) -> ClaimSeed {
        let capacity = Some(Resources::from([("cpu", cpu), ("nodes", 1)]));
        ClaimSeed { name: name.to_owned(), pool: "pool".into(), capacity, ..ClaimSeed::default() }
    }

    #[test]
    fn adopted_claim_counts_once_and_outdates_plans_for_its_pool() {
        let (mut ledger, _) = Ledger::from_claims(1, &[]);
        let before = ledger.position();
        ledger.adopt(&seed("a", 4000)).unwrap();
        assert!(ledger.position() > before);
        let after = ledger.position();
        ledger.adopt(&seed("a", 9000)).unwrap();
        assert_eq!((ledger.position(), ledger.used(&"pool".into()).get("cpu")), (after, 4000));
    }

    #[test]
    fn replacement_respects_limits_and_is_admitted_once() {
        let (mut ledger, _) = Ledger::from_claims(1, &[seed("a", 4000)]);
        let pool = NodePoolName::from("pool");
        ledger.set_pool(&pool, PoolFacts { limits: Resources::from([("cpu", 8000)]), ..PoolFacts::default() });
        let action = ActionId::from("replace-1");
        let reserve = Resources::from([("cpu", 4000)]);
        let before = ledger.position();
        assert!(matches!(ledger.admit_replacement(&pool, &action, reserve.clone()), Admission::Admitted { .. }));
        assert!(ledger.position() > before, "plans from before do not know of it");
        assert_eq!(ledger.outcome(&action), Some(&Outcome::Admitted));
        assert_eq!(ledger.admit_replacement(&pool, &action, reserve.clone()), Admission::Repeated(Outcome::Admitted));
        let of_none = ledger.admit_replacement(&"gone".into(), &"replace-2".into(), reserve.clone());
        assert_eq!(of_none, Admission::Rejected(Rejection::UnknownPool("gone".into())));
        let refused = ledger.admit_replacement(&pool, &"replace-2".into(), reserve);
        assert!(matches!(refused, Admission::Rejected(Rejection::LimitExceeded { used: 8000, .. })), "{refused:?}");
    }

    /// A plan has launched the successor already, or a user has lowered `replicas`.
    #[test]
    fn a_replacement_does_not_exceed_the_replicas_of_a_static_pool() {
        let (mut ledger, _) = Ledger::from_claims(1, &[seed("a", 4000), seed("b", 4000)]);
        let pool = NodePoolName::from("pool");
        ledger.set_pool(&pool, PoolFacts { replicas: Some(2), ..PoolFacts::default() });
        let replace = |ledger: &mut Ledger| ledger.admit_replacement(&pool, &"replace".into(), Resources::new());
        let full = Rejection::LimitExceeded { resource: "replicas".to_owned(), limit: 2, used: 2, asked: 1 };
        assert_eq!(replace(&mut ledger), Admission::Rejected(full));
        ledger.deleting("a");
        assert!(matches!(replace(&mut ledger), Admission::Admitted { .. }));
    }

    #[test]
    fn a_claim_without_a_pool_is_admitted_until_it_is_gone() {
        let (mut ledger, _) = Ledger::from_claims(1, &[]);
        let action = ActionId::from("own");
        assert!(matches!(ledger.admit_standalone("mine", &action, Resources::new()), Admission::Admitted { .. }));
        assert_eq!(ledger.outcome(&action), Some(&Outcome::Admitted));
        assert_eq!(ledger.claim("mine").and_then(|claim| claim.action.as_ref()), Some(&action));
        ledger.gone("mine");
        assert_eq!(ledger.outcome(&action), Some(&Outcome::Failed));
    }

    #[test]
    fn a_replacement_waits_until_all_claims_of_its_pool_are_readable() {
        let annotations = BTreeMap::from([(annotation::RESERVED.to_owned(), "nonsense".to_owned())]);
        let broken = ClaimSeed { capacity: None, annotations, ..seed("x", 0) };
        let (mut ledger, _) = Ledger::from_claims(1, &[broken]);
        let pools = ["pool", "other"].map(NodePoolName::from);
        pools.iter().for_each(|pool| ledger.set_pool(pool, PoolFacts::default()));
        let replace = |ledger: &mut Ledger, pool| ledger.admit_replacement(pool, &"replace".into(), Resources::new());
        let refused = replace(&mut ledger, &pools[0]);
        assert!(matches!(refused, Admission::Rejected(Rejection::PoolUnreadable { .. })), "{refused:?}");
        assert!(matches!(replace(&mut ledger, &pools[1]), Admission::Admitted { .. }));
        ledger.gone("x");
        assert!(matches!(replace(&mut ledger, &pools[0]), Admission::Admitted { .. }));
    }
}

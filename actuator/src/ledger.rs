//! The ledger: actions in progress, and whether an action of a plan may be admitted (safety rules 7 to 11, 16 to 18).
//!
//! Every admission is one synchronous step that sees all earlier ones: two plans never launch for a pod twice, exceed a
//! limit or use the same free capacity twice. The claims' annotations are its durable form ([`Ledger::from_claims`]).

mod admission;
mod changes;
mod claims;
mod failed_claims;
pub mod failures;
pub mod feed;
pub mod handle;
mod outcomes;
mod quotas;
mod record;
mod rejection;
mod removals;
mod reservations;
pub mod view;

pub(crate) use admission::max_usage;
pub use admission::{Admission, Driver, PlanContext, PoolFacts};
pub use changes::Subject;
pub use outcomes::Outcome;
pub use quotas::UnmanagedNode;
pub use record::{ClaimSeed, LedgerProblem, Removal, reserved_text};
pub use rejection::Rejection;
pub use removals::RemovalFacts;

use crate::state::launch_group::claim_name;
use changes::{Changes, PlanKey};
use failures::Failures;
use outcomes::Outcomes;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::identity::{ActionId, NodePoolName, PodUid};
use plimsoll_model::money::MicroUsdPerHour;
use plimsoll_model::names::USD_PER_HOUR_RESOURCE;
use plimsoll_model::plan::Launch;
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_model::time::{Millis, Timestamp};
use quotas::Quotas;
use record::ClaimRecord;
use reservations::Reservations;
use std::collections::{BTreeMap, BTreeSet};

/// How long pods stay reserved after their node is initialized (rule 7): kube-scheduler binds or refuses them by then.
const RESERVED_AFTER_INITIALIZED: Millis = Millis::from_seconds(30);

/// Actions in progress, and the pods and resources reserved for them.
#[derive(Debug, Clone, Default)]
pub struct Ledger {
    position: LedgerPosition,
    driver: Driver,
    /// The term admits actions. A claim that appears after this point without an admission is late.
    admits: bool,
    /// Number of driver changes. Lease transitions are not unique: a Lease that is created again repeats them.
    driver_changes: u64,
    pools: BTreeMap<NodePoolName, PoolFacts>,
    unreadable: BTreeMap<String, LedgerProblem>,
    claims: BTreeMap<String, ClaimRecord>,
    reserved: BTreeMap<PodUid, String>,
    removals: BTreeMap<String, Removal>,
    outcomes: Outcomes,
    changes: Changes,
    failures: Failures,
    reservations: Reservations,
    quotas: Quotas,
}

impl Ledger {
    /// Builds the ledger of a new leader from all claims of the cluster. A claim with unreadable annotations blocks
    /// launches in its pool until the claim is gone, since the reserved resources are unknown.
    #[must_use]
    pub fn from_claims(epoch: u64, seeds: &[ClaimSeed]) -> (Self, Vec<LedgerProblem>) {
        let position = LedgerPosition { epoch, sequence: 0 };
        let mut ledger = Self { position, changes: Changes::starting_at(position), ..Self::default() };
        let mut problems = Vec::new();
        let launched: BTreeSet<PodUid> = seeds.iter().flat_map(record::pods_of_launched).collect();
        for seed in seeds {
            match (record::claim_record(seed), record::removal(seed)) {
                (Ok(claim), Ok(removal)) => ledger.restore(&seed.name, claim, removal, &launched),
                (Err(problem), _) | (_, Err(problem)) => {
                    ledger.unreadable.insert(seed.name.clone(), problem.clone());
                    problems.push(problem);
                }
            }
        }
        (ledger, problems)
    }

    /// `launched` has the pods that claims with an instance were launched for.
    fn restore(&mut self, name: &str, mut claim: ClaimRecord, removal: Option<Removal>, launched: &BTreeSet<PodUid>) {
        // The claim of a failed launch may appear late, or outlive its failure. Pods that another claim has meanwhile
        // stay with that claim.
        let (recorded, has_instance) = (claim.pods.len(), claim.launched);
        claim.pods.retain(|pod| !self.reserved.contains_key(pod) && (has_instance || !launched.contains(pod)));
        claim.late = self.admits || claim.pods.len() < recorded;
        for pod in &claim.pods {
            self.reserved.insert(pod.clone(), name.to_owned());
        }
        if let Some(action) = &claim.action {
            self.outcomes.set(action, Outcome::Admitted);
        }
        if let Some(removal) = removal {
            self.outcomes.set(&removal.action, Outcome::Admitted);
            self.removals.insert(name.to_owned(), removal);
        }
        self.claims.insert(name.to_owned(), claim);
    }

    /// The current position.
    #[must_use]
    pub fn position(&self) -> LedgerPosition {
        self.position
    }

    /// The outcome of an action, if it is still remembered.
    #[must_use]
    pub fn outcome(&self, action: &ActionId) -> Option<&Outcome> {
        self.outcomes.get(action)
    }

    /// Resources that a pool uses and has reserved, including claims being deleted until their instance is gone.
    #[must_use]
    pub fn used(&self, pool: &NodePoolName) -> Resources {
        let mut used = Resources::new();
        for claim in self.claims.values().filter(|claim| claim.pool == *pool) {
            used.add(&claim.counted);
        }
        used
    }

    /// Updates the facts of a pool. A change of limits outdates plans that rest on the old ones.
    pub fn set_pool(&mut self, pool: &NodePoolName, facts: PoolFacts) {
        let limits_changed = self.pools.get(pool).is_some_and(|previous| previous.limits != facts.limits);
        self.pools.insert(pool.clone(), facts);
        // Budgets open and close with time. They are checked at admission, so a change of budgets outdates no plan.
        if limits_changed {
            self.note([Subject::Pool(pool.clone())], None);
        }
    }

    /// Removes a pool. Nothing is launched for it any more.
    pub fn remove_pool(&mut self, pool: &NodePoolName) {
        self.pools.remove(pool);
    }

    /// Records a change seen in the cluster, so that older plans that rest on the former state are rejected.
    pub fn changed(&mut self, subject: Subject) -> LedgerPosition {
        self.note([subject], None);
        self.position
    }

    /// Records the watcher's Lease as read live from the API server. Reads must be reported in order. The read is
    /// trusted whatever its transitions: a Lease that was deleted and created again counts from 0.
    pub fn observe_driver(&mut self, driver: Driver) {
        if self.driver != driver {
            self.driver = driver;
            self.driver_changes = self.driver_changes.saturating_add(1);
        }
    }

    /// The key of a plan of the current driver.
    fn key(&self, plan: &PlanContext) -> PlanKey {
        (self.driver_changes, plan.snapshot_sequence)
    }

    /// Admits a launch, or rejects it with a reason. `catalog` is the catalog of its node class.
    pub fn admit_launch(
        &mut self,
        launch: &Launch,
        plan: &PlanContext,
        catalog: &Catalog,
        now: Timestamp,
    ) -> Admission {
        if let Some(early) = self.early(&launch.action_id, plan) {
            return early;
        }
        let reserve = match self.judge_launch(launch, plan, catalog, now) {
            Ok(reserve) => reserve,
            Err(rejection) => return Admission::Rejected(rejection),
        };
        let name = claim_name(&launch.node_pool, &launch.action_id);
        let record = ClaimRecord::admitted(launch, reserve, &plan.virtual_pods);
        for pod in &record.pods {
            // An expired reservation may still be on the former claim.
            self.release_pod(pod);
            self.reserved.insert(pod.clone(), name.clone());
        }
        self.failures.claimed(&launch.node_pool, now);
        let subjects: Vec<Subject> = record.pods.iter().cloned().map(Subject::Pod).collect();
        self.claims.insert(name.clone(), record);
        self.note(subjects, Some(self.key(plan)));
        self.outcomes.set(&launch.action_id, Outcome::Admitted);
        Admission::Admitted { claim: name, position: self.position }
    }

    fn judge_launch(
        &self,
        launch: &Launch,
        plan: &PlanContext,
        catalog: &Catalog,
        now: Timestamp,
    ) -> Result<Resources, Rejection> {
        let pool = &launch.node_pool;
        self.check_readable(pool)?;
        if !self.pools.contains_key(pool) {
            return Err(Rejection::UnknownPool(pool.clone()));
        }
        for pod in &launch.pods {
            if plan.virtual_pods.contains(&pod.uid) {
                self.check_virtual(pod, plan)?;
            } else if let Some(claim) = self.reserved_by(&pod.uid, now) {
                return Err(Rejection::PodReserved { pod: pod.uid.clone(), claim: claim.to_owned() });
            }
        }
        let pods = launch.pods.iter().map(|pod| Subject::Pod(pod.uid.clone()));
        self.check_unchanged(pods.chain([Subject::Pool(pool.clone())]), plan)?;
        let name = claim_name(pool, &launch.action_id);
        if self.claims.contains_key(&name) {
            return Err(Rejection::ClaimExists(name));
        }
        if let Some((cause, remaining)) = self.failures.pause(pool, now) {
            return Err(Rejection::BackOff { cause: cause.to_owned(), remaining });
        }
        if let Some(wait) = self.failures.too_many(pool, now) {
            return Err(Rejection::TooManyClaims(wait));
        }
        self.check_lacks_node(pool, &plan.replaced)?;
        let reserve = self.max_usage(launch, catalog)?;
        self.check_reservations(&reserve)?;
        self.check_limits(pool, &reserve)?;
        self.check_quotas(&reserve)?;
        Ok(reserve)
    }

    /// The claim that a pod is reserved for, if any.
    #[must_use]
    pub fn reserved_by(&self, pod: &PodUid, now: Timestamp) -> Option<&str> {
        let name = self.reserved.get(pod)?;
        let over = |claim: &ClaimRecord| claim.pods_until.is_some_and(|until| until <= now);
        self.claims.get(name).filter(|claim| !over(claim)).map(|_| name.as_str())
    }

    /// Records that a claim was launched: from now on its actual capacity counts. `capacity` includes `nodes: 1`, and
    /// the price if it is known; otherwise the reserved price still counts.
    pub fn launched(&mut self, claim: &str, capacity: Resources) {
        if let Some(record) = self.claims.get_mut(claim) {
            record.counted = record::launched_usage(capacity, &record.counted);
            // Later changes of the claim say nothing about launches.
            if !std::mem::replace(&mut record.launched, true) {
                self.failures.launched(&record.pool);
            }
        }
    }

    /// Records the price at which a launched claim counts.
    pub fn priced(&mut self, claim: &str, price: MicroUsdPerHour) {
        if let Some(record) = self.claims.get_mut(claim).filter(|record| record.launched) {
            record.counted.set(USD_PER_HOUR_RESOURCE, price.0);
        }
    }

    /// Records that a claim's node is initialized: its pods stay reserved for a short while.
    pub fn initialized(&mut self, claim: &str, now: Timestamp) {
        if let Some(record) = self.claims.get_mut(claim).filter(|record| !record.initialized) {
            record.initialized = true;
            record.pods_until = Some(now.plus(RESERVED_AFTER_INITIALIZED));
            self.failures.initialized(&record.pool);
            if let Some(action) = record.action.clone() {
                self.outcomes.set(&action, Outcome::Done);
            }
        }
    }

    /// Ends the reservation of a pod that is bound or gone.
    pub fn release_pod(&mut self, pod: &PodUid) {
        if let Some(record) = self.reserved.remove(pod).and_then(|claim| self.claims.get_mut(&claim)) {
            record.pods.remove(pod);
        }
    }

    /// Records that kube-scheduler marked a pod Unschedulable. Ends the reservation if the claim's node is initialized.
    pub fn marked_unschedulable(&mut self, pod: &PodUid) {
        let claim = self.reserved.get(pod).and_then(|name| self.claims.get(name));
        if claim.is_some_and(|claim| claim.initialized) {
            self.release_pod(pod);
        }
    }

    /// Records that a claim and its instance are gone.
    pub fn gone(&mut self, claim: &str) {
        self.unreadable.remove(claim);
        let pods = self.free_pods(claim);
        let Some(record) = self.claims.remove(claim) else { return };
        if let Some(action) = record.action.filter(|action| self.outcomes.get(action) == Some(&Outcome::Admitted)) {
            self.outcomes.set(&action, Outcome::Failed);
        }
        if let Some(removal) = self.removals.remove(claim) {
            self.outcomes.set(&removal.action, Outcome::Done);
        }
        self.note(pods.into_iter().chain(record.node.map(Subject::Node)), None);
    }

    fn early(&self, action: &ActionId, plan: &PlanContext) -> Option<Admission> {
        if self.driver != plan.driver {
            return Some(Admission::Rejected(Rejection::StaleDriver(self.driver.transitions)));
        }
        if let Some(outcome @ (Outcome::Admitted | Outcome::Done)) = self.outcomes.get(action) {
            return Some(Admission::Repeated(outcome.clone()));
        }
        let (known, here) = (plan.position, self.position);
        // Positions of other epochs are beyond one of these bounds.
        if known > here || known < self.changes.floor() {
            return Some(Admission::Rejected(Rejection::StalePosition { known, here }));
        }
        None
    }

    fn check_dependencies(&self, depends_on: &[ActionId]) -> Result<(), Rejection> {
        let under_way =
            |action: &&ActionId| matches!(self.outcomes.get(action), Some(Outcome::Admitted | Outcome::Done));
        match depends_on.iter().find(|action| !under_way(action)) {
            Some(action) => Err(Rejection::DependencyRejected(action.clone())),
            None => Ok(()),
        }
    }

    fn check_unchanged(
        &self,
        subjects: impl IntoIterator<Item = Subject>,
        plan: &PlanContext,
    ) -> Result<(), Rejection> {
        let changed = |subject: &Subject| self.changes.changed_after(subject, plan.position, self.key(plan));
        subjects.into_iter().find(changed).map_or(Ok(()), |subject| Err(Rejection::Changed(subject)))
    }

    fn note(&mut self, subjects: impl IntoIterator<Item = Subject>, plan: Option<(u64, u64)>) {
        self.position.sequence = self.position.sequence.saturating_add(1);
        for subject in subjects {
            self.changes.note(subject, self.position, plan);
        }
    }
}

#[cfg(test)]
mod tests;

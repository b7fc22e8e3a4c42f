//! Admission of launches: each launch is narrowed to what is allowed, admitted, and grouped with launches that request
//! the same.

use super::build::{self, Refusal};
use super::group::by_purchase;
use super::purchase::{Purchase, RequestError};
use super::{Admitted, LaunchGroup};
use crate::clock::Timestamped;
use crate::cluster_facts::Current;
use crate::fencing::Fence;
use crate::launch::LaunchQueue;
use crate::ledger::handle::LedgerHandle;
use crate::ledger::{Admission as LedgerAnswer, Ledger, Outcome as LedgerOutcome, PlanContext, Rejection};
use crate::overlays;
use crate::resolve::{Resolved, for_launch};
use crate::settings::Settings;
use crate::state::catalogs::Catalogs;
use crate::state::insufficient_capacity::{InsufficientCapacity, Wanted};
use crate::state::launch_group::GroupKey;
use crate::state::subnet_addresses::{HeldAddresses, SubnetAddresses};
use crate::stores::Stores;
use parking_lot::Mutex;
use plimsoll_api::{EC2NodeClass, NodeClaim, NodePool, hash};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::OutcomeReason;
use plimsoll_model::identity::{NodePoolName, PodUid};
use plimsoll_model::plan::{Launch, OfferingChoice};
use plimsoll_model::requirements::Requirements;
use plimsoll_model::resources::Resources;
use plimsoll_runtime::clock::Clock;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Dependencies of the admission of launches.
#[derive(Clone)]
pub struct Admission {
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Catalog of each node class.
    pub catalogs: Catalogs,
    /// Ledger of the term.
    pub ledger: LedgerHandle,
    /// Queue of admitted launch groups.
    pub launches: LaunchQueue,
    /// Offerings known to lack capacity.
    pub insufficient_capacity: Arc<Mutex<InsufficientCapacity>>,
    /// Free addresses of subnets.
    pub subnet_addresses: SubnetAddresses,
    /// Settings of the installation.
    pub settings: Arc<Settings>,
    /// Settings with the facts of the cluster.
    pub current: Current,
    /// Fence of the term.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

impl Admission {
    /// The part of `requests` that the types of a catalog must have.
    fn requests_of_catalog(&self, requests: &Resources) -> Resources {
        overlays::requests_of_catalog(&overlays::in_use(&self.stores, &self.settings), requests)
    }

    /// All offerings for a NodeClaim that lists none. What NodeOverlays may add is left out only if nothing fits
    /// otherwise.
    pub(super) fn offerings(
        &self,
        catalog: &Catalog,
        requirements: &Requirements,
        requests: &Resources,
    ) -> Vec<OfferingChoice> {
        let offerings = build::offerings(catalog, requirements, requests);
        if !offerings.is_empty() {
            return offerings;
        }
        build::offerings(catalog, requirements, &self.requests_of_catalog(requests))
    }
}

/// Pools, node classes and catalogs that launches rest on, looked up once per launch.
pub(super) type LaunchObjects = (Arc<NodePool>, Arc<EC2NodeClass>, Arc<Catalog>);

/// An admitted launch that cannot be requested, and why.
pub type NotRequested = (Admitted, RequestError);

/// Why a launch is not executed.
#[derive(Debug)]
pub enum NotAdmitted {
    /// The launch is already in progress or done.
    Repeated(LedgerOutcome),
    /// Pool or node class do not allow it, or its pods do not need it.
    Refused(Refusal),
    /// The ledger rejects it.
    Rejected(Rejection),
}

impl From<Refusal> for NotAdmitted {
    fn from(refusal: Refusal) -> Self {
        Self::Refused(refusal)
    }
}

/// Admits one launch, based on the actuator's own view (safety rules 5 to 8, 18, 24). `unneeded` has the reason why no
/// launch is needed, by pod.
///
/// # Errors
/// The launch is not executed; nothing changed.
pub fn admit_launch(
    deps: &Admission,
    launch: &Launch,
    plan: &PlanContext,
    unneeded: &BTreeMap<PodUid, String>,
) -> Result<Admitted, NotAdmitted> {
    if let Some(outcome @ (LedgerOutcome::Admitted | LedgerOutcome::Done)) =
        deps.ledger.read(|ledger| ledger.outcome(&launch.action_id).cloned())
    {
        return Err(NotAdmitted::Repeated(outcome));
    }
    let objects = look_up(deps, &launch.node_pool, &launch.node_class)?;
    if let Some(message) = launch.pods.iter().find_map(|pod| unneeded.get(&pod.uid)) {
        return Err(Refusal::new(OutcomeReason::PodChanged, message.as_str()).into());
    }
    let now = deps.clock.timestamp();
    let group = objects.1.placement_group().map(|group| group.id.clone());
    admit(deps, launch, objects, |ledger, launch, catalog, _| {
        let on_probation = {
            let memory = deps.insufficient_capacity.lock();
            let refused = |it: &OfferingChoice| memory.on_probation(Wanted::of(it, group.as_deref()), now);
            launch.offerings.iter().all(refused)
        };
        let admit = |ledger: &mut Ledger| ledger.admit_launch(launch, plan, catalog, now);
        let pool = &launch.node_pool;
        if on_probation { ledger.admit_probe(pool, admit) } else { admit(ledger) }
    })
}

/// The objects that a launch rests on, as this process sees them now.
pub(super) fn look_up(deps: &Admission, pool: &NodePoolName, class: &str) -> Result<LaunchObjects, Refusal> {
    let (class, catalog) = look_up_class(deps, class)?;
    let found = deps.stores.pools.get(pool.as_str());
    let found = found.ok_or_else(|| Refusal::pool(format!("NodePool {pool} not found")))?;
    Ok((found, class, catalog))
}

/// A node class and its catalog, as this process sees them now.
pub(super) fn look_up_class(deps: &Admission, name: &str) -> Result<(Arc<EC2NodeClass>, Arc<Catalog>), Refusal> {
    let Some(class) = deps.stores.classes.get(name) else {
        return Err(Refusal::pool(format!("EC2NodeClass {name} not found")));
    };
    let entry = deps.catalogs.get(name);
    let Some((_, catalog)) = entry.as_ref().and_then(|entry| entry.catalog.as_ref()) else {
        let problem =
            entry.and_then(|entry| entry.problem.clone()).unwrap_or_else(|| "it has no catalog yet".to_owned());
        return Err(Refusal::pool(format!("EC2NodeClass {name}: {problem}")));
    };
    Ok((class, Arc::clone(catalog)))
}

/// Narrows a launch to what its objects allow now, and asks the ledger. `ask` gets the narrowed launch, its catalog and
/// the most that it may add to the pool's usage. Watchers of the ledger never see an admitted claim without its labels
/// and resources: a plan would launch another node for pods that fit on it.
pub(super) fn admit(
    deps: &Admission,
    launch: &Launch,
    (pool, class, catalog): LaunchObjects,
    ask: impl FnOnce(&mut Ledger, &Launch, &Catalog, &Resources) -> LedgerAnswer,
) -> Result<Admitted, NotAdmitted> {
    let now = deps.clock.timestamp();
    let (mut launch, requirements) = {
        let free = |id: &str| deps.ledger.read(|ledger| ledger.free_in_reservation_for(&launch.action_id, id));
        let group = class.placement_group().map(|group| group.id.as_str());
        // Not locked while `free` locks the ledger: the admission of a launch takes the two locks in the other order.
        let closed =
            |choice: &OfferingChoice| deps.insufficient_capacity.lock().contains(Wanted::of(choice, group), now);
        let checked = Launch { requests: deps.requests_of_catalog(&launch.requests), ..launch.clone() };
        let (narrowed, requirements) = build::narrow(&checked, &pool, &class, &catalog, closed, free)?;
        (Launch { requests: launch.requests.clone(), ..narrowed }, requirements)
    };
    // CapacityQuotas select by all labels of the node, also by those that a plan left out.
    let template = pool.spec.template.labels();
    launch.labels.extend(template.map(|(key, value)| (key.to_owned(), value.to_owned())));
    let reserved = deps.ledger.read(|ledger| ledger.max_usage(&launch, &catalog)).map_err(NotAdmitted::Rejected)?;
    deps.ledger.with(|ledger| match ask(ledger, &launch, &catalog, &reserved) {
        LedgerAnswer::Admitted { claim, .. } => {
            let admitted = Admitted { launch, requirements, pool, class, catalog, claim, reserved };
            deps.ledger.launching(admitted.in_flight());
            Ok(admitted)
        }
        LedgerAnswer::Repeated(outcome) => Err(NotAdmitted::Repeated(outcome)),
        LedgerAnswer::Rejected(rejection) => Err(NotAdmitted::Rejected(rejection)),
    })
}

/// Converts a rejection to the wire's reason and a message.
#[must_use]
pub fn wire_reason(rejection: &Rejection) -> (OutcomeReason, String) {
    use crate::ledger::Subject;
    let reason = match rejection {
        Rejection::StaleDriver(_) | Rejection::StalePosition { .. } => OutcomeReason::StaleSnapshot,
        Rejection::Changed(Subject::Pod(_)) | Rejection::PodReserved { .. } => OutcomeReason::PodChanged,
        Rejection::Changed(Subject::Node(_))
        | Rejection::UnknownNode(_)
        | Rejection::NotAdmitted(_)
        | Rejection::AlreadyRemoving(_)
        | Rejection::NodeIsDestination(_)
        | Rejection::PodExpected { .. }
        | Rejection::InsufficientResources { .. } => OutcomeReason::NodeChanged,
        Rejection::Changed(Subject::Pool(_))
        | Rejection::UnknownPool(_)
        | Rejection::PoolUnreadable { .. }
        | Rejection::UnknownInstanceType(_)
        | Rejection::UnknownOffering(_)
        | Rejection::ClaimExists(_)
        | Rejection::BackOff { .. }
        | Rejection::TooManyClaims(_) => OutcomeReason::PoolChanged,
        Rejection::DependencyRejected(_) => OutcomeReason::Dependency,
        Rejection::LimitExceeded { .. }
        | Rejection::QuotaExceeded { .. }
        | Rejection::QuotaUnreadable { .. }
        | Rejection::PriceUnknown(_) => OutcomeReason::LimitReached,
        Rejection::ReservationFull(_) => OutcomeReason::NoCapacity,
        // As after a budget, the next plan waits until its snapshot shows the nodes that are being removed.
        Rejection::BudgetExhausted { .. } | Rejection::NoSurplus { .. } | Rejection::RolloutLimit { .. } => {
            OutcomeReason::BudgetExhausted
        }
        Rejection::NoDisruptionRoom(_) => OutcomeReason::Blocked,
    };
    (reason, rejection.to_string())
}

/// Groups admitted launches. Each launch holds the addresses that it needs, so the launches of a plan are spread over
/// the subnets of a zone. Launches with the same subnets share a group.
///
/// Each launch ends up in exactly one group, or is returned with the reason why it cannot be requested.
pub fn group(
    deps: &Admission,
    admitted: Vec<Admitted>,
    cycle_id: &str,
) -> (Vec<(LaunchGroup, Purchase)>, Vec<NotRequested>) {
    let (mut planned, mut refused) = (Vec::new(), Vec::new());
    for launch in admitted {
        match purchase(deps, &launch) {
            Ok((purchase, held)) => planned.push((purchase, (launch, held))),
            Err(error) => refused.push((launch, error)),
        }
    }
    let groups = by_purchase(planned).into_iter().filter_map(|(purchase, launches)| {
        let actions: Vec<_> = launches.iter().map(|(admitted, _)| admitted.launch.action_id.clone()).collect();
        // `None` only without launches, and no group is empty.
        let key = GroupKey::of(&actions, deps.ledger.position())?;
        let (mut claims, mut held) = (BTreeMap::new(), BTreeMap::new());
        for (admitted, addresses) in launches {
            claims.insert(admitted.claim.clone(), claim(deps, &admitted, &key));
            held.insert(admitted.claim, addresses);
        }
        Some((LaunchGroup { key, claims, held, cycle_id: cycle_id.to_owned() }, purchase))
    });
    (groups.collect(), refused)
}

/// What a launch requests of EC2, and the addresses that it holds in the subnets of the request.
pub(super) fn purchase(deps: &Admission, admitted: &Admitted) -> Result<(Purchase, HeldAddresses), RequestError> {
    let (resolved, now) = (for_launch(&admitted.class)?, deps.clock.timestamp());
    let held = {
        let memory = deps.insufficient_capacity.lock();
        hold(&deps.subnet_addresses, admitted, &resolved, |subnet| memory.subnet_is_full(subnet, now))
    };
    let purchase = Purchase::plan(admitted, &resolved, &deps.current.get(), |resolved, zone| {
        resolved.subnets.iter().find(|subnet| subnet.zone == zone && held.is_in(&subnet.id))
    })?;
    Ok((purchase, held))
}

/// Chooses a subnet in each zone of a launch, and holds the addresses that its node may need there.
pub(super) fn hold(
    subnets: &SubnetAddresses,
    admitted: &Admitted,
    resolved: &Resolved,
    is_full: impl Fn(&str) -> bool,
) -> HeldAddresses {
    subnets.hold(admitted.addresses().into_iter().map(|(zone, addresses)| {
        let in_zone = resolved.subnets.iter().filter(|subnet| subnet.zone == zone && !is_full(&subnet.id));
        (in_zone.map(|subnet| subnet.id.as_str()).collect(), addresses)
    }))
}

fn claim(deps: &Admission, admitted: &Admitted, group: &GroupKey) -> NodeClaim {
    let class_hash = hash::ec2_node_class(&admitted.class.spec, &deps.settings.cluster_ca_bundle);
    build::object(admitted, group, deps.fence.epoch(), &class_hash)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ledger::Subject;

    /// After a budget, the watcher waits until its snapshot shows the nodes that are being removed.
    #[test]
    fn a_rejection_says_what_the_next_plan_must_know() {
        use OutcomeReason::{
            Blocked, BudgetExhausted, Dependency, LimitReached, NoCapacity, NodeChanged, PodChanged, PoolChanged,
            StaleSnapshot,
        };
        let text = || "a".to_owned();
        for (rejection, reason) in [
            (Rejection::BudgetExhausted { allowed: 1, removing: 1 }, BudgetExhausted),
            (Rejection::NoSurplus { replicas: 2, staying: 2 }, BudgetExhausted),
            (Rejection::RolloutLimit { limit: 1, replacing: 1 }, BudgetExhausted),
            (Rejection::NoDisruptionRoom(text()), Blocked),
            (Rejection::DependencyRejected("a".into()), Dependency),
            (Rejection::PriceUnknown(text()), LimitReached),
            (Rejection::QuotaUnreadable { quota: text(), problem: text() }, LimitReached),
            (Rejection::ReservationFull(text()), NoCapacity),
            (Rejection::Changed(Subject::Node("a".into())), NodeChanged),
            (Rejection::NodeIsDestination("a".into()), NodeChanged),
            (Rejection::Changed(Subject::Pod("a".into())), PodChanged),
            (Rejection::Changed(Subject::Pool("a".into())), PoolChanged),
            (Rejection::ClaimExists(text()), PoolChanged),
            (Rejection::StaleDriver(1), StaleSnapshot),
        ] {
            assert_eq!(wire_reason(&rejection), (reason, rejection.to_string()));
        }
    }
}

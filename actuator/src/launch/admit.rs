//! Admission of launches: each launch is narrowed to what is allowed, admitted, and grouped with launches that request
//! the same.

use super::build::{self, GroupFacts, LiveObjects, NarrowedLaunch};
use super::record::{Group, Member};
use super::request::{self, Circumstances, Purchase, RequestError};
use crate::clock::Timestamped;
use crate::cluster_facts::Current;
use crate::fencing::Fence;
use crate::launch::LaunchQueue;
use crate::launch_template::LaunchTemplates;
use crate::ledger::handle::LedgerHandle;
use crate::ledger::{self, Admission as LedgerAnswer, Ledger, Outcome as LedgerOutcome, PlanContext, Rejection};
use crate::resolve::for_launch;
use crate::settings::Settings;
use crate::state::catalogs::Catalogs;
use crate::state::insufficient_capacity::InsufficientCapacity;
use crate::state::launch_group::LaunchGroup;
use crate::stores::Stores;
use k8s_openapi::api::core::v1::Pod;
use parking_lot::Mutex;
use plimsoll_api::{EC2NodeClass, NodeClaim, NodePool, hash};
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::{ClaimState, InFlightClaim, OutcomeReason};
use plimsoll_model::identity::ActionId;
use plimsoll_model::plan::{Launch, OfferingChoice, PodRef};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::LedgerPosition;
use plimsoll_runtime::clock::Clock;
use std::collections::{BTreeMap, BTreeSet};
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
    /// Settings of the installation.
    pub settings: Arc<Settings>,
    /// Settings with the facts of the cluster.
    pub current: Current,
    /// Fence of the term.
    pub fence: Fence,
    /// Time.
    pub clock: Clock,
}

/// Cluster state of the pods that launches are for.
#[derive(Debug, Default)]
pub struct LaunchPods {
    /// Pods by UID, from the watch cache.
    pub by_uid: BTreeMap<String, Arc<Pod>>,
    /// Nodes being removed. Pods bound to these nodes need another node.
    pub leaving: BTreeSet<String>,
}

/// An admitted launch.
#[derive(Debug)]
pub struct AdmittedLaunch {
    narrowed: NarrowedLaunch,
    reserved: Resources,
    catalog: Arc<Catalog>,
    pool: Arc<NodePool>,
    class: Arc<EC2NodeClass>,
    /// The claim's name.
    pub claim: String,
    /// The ledger position after the admission.
    pub position: LedgerPosition,
}

/// Decision on a launch.
#[derive(Debug)]
pub enum LaunchDecision {
    /// The launch is to be executed.
    Admitted(Box<AdmittedLaunch>),
    /// The launch is already in progress or done.
    Repeated(LedgerOutcome),
    /// The launch is rejected.
    Rejected(OutcomeReason, String),
}

/// Admits one launch, based on the actuator's own view (safety rules 5 to 8, 18, 24).
pub fn admit_launch(deps: &Admission, launch: &Launch, plan: &PlanContext, pods: &LaunchPods) -> LaunchDecision {
    if let Some(outcome @ (LedgerOutcome::Admitted | LedgerOutcome::Done)) =
        deps.ledger.read(|ledger| ledger.outcome(&launch.action_id).cloned())
    {
        return LaunchDecision::Repeated(outcome);
    }
    let rejected = |reason, message: String| LaunchDecision::Rejected(reason, message);
    let entry = deps.catalogs.get(&launch.node_class);
    let Some((_, catalog)) = entry.as_ref().and_then(|entry| entry.catalog.as_ref()) else {
        let problem = entry.and_then(|entry| entry.problem.clone()).unwrap_or_else(|| "it is not known".to_owned());
        return rejected(OutcomeReason::PoolChanged, format!("node class {}: {problem}", launch.node_class));
    };
    let live = (deps.stores.pools.get(launch.node_pool.as_str()), deps.stores.classes.get(&launch.node_class));
    let (Some(pool), Some(class)) = live else {
        let message = format!("NodePool {} or its node class {} is gone", launch.node_pool, launch.node_class);
        return rejected(OutcomeReason::PoolChanged, message);
    };
    if let Some(message) = launch.pods.iter().find_map(|pod| why_not_needed(pod, pods)) {
        return rejected(OutcomeReason::PodChanged, message);
    }
    let now = deps.clock.timestamp();
    let live = LiveObjects { pool: &pool, class: &class, catalog };
    let narrowed = {
        let unavailable = deps.insufficient_capacity.lock();
        let closed = |choice: &OfferingChoice| {
            unavailable.contains(&choice.instance_type, &choice.zone, choice.capacity_type, now)
        };
        match build::narrow(launch, live, closed) {
            Ok(narrowed) => narrowed,
            Err(refusal) => return rejected(refusal.reason, refusal.message),
        }
    };
    let Ok(reserved) = ledger::max_usage(&narrowed.launch, catalog) else {
        return rejected(OutcomeReason::Invalid, "an instance type is not in the catalog".to_owned());
    };
    let on_probation = {
        let memory = deps.insufficient_capacity.lock();
        let refused = |it: &OfferingChoice| memory.on_probation(&it.instance_type, &it.zone, it.capacity_type, now);
        narrowed.launch.offerings.iter().all(refused)
    };
    let admit = |ledger: &mut Ledger| ledger.admit_launch(&narrowed.launch, &[], plan, catalog, now);
    let admission = deps
        .ledger
        .with(|ledger| if on_probation { ledger.admit_probe(&launch.node_pool, admit) } else { admit(ledger) });
    match admission {
        LedgerAnswer::Admitted { claim, position } => {
            let catalog = Arc::clone(catalog);
            LaunchDecision::Admitted(Box::new(AdmittedLaunch {
                narrowed,
                reserved,
                catalog,
                pool,
                class,
                claim,
                position,
            }))
        }
        LedgerAnswer::Repeated(outcome) => LaunchDecision::Repeated(outcome),
        LedgerAnswer::Rejected(rejection) => {
            let (reason, message) = wire_reason(&rejection);
            rejected(reason, message)
        }
    }
}

/// Why no launch is needed for a pod, from the watch cache. `None` for an unknown pod, which may just be new.
fn why_not_needed(pod: &PodRef, pods: &LaunchPods) -> Option<String> {
    let cached = pods.by_uid.get(pod.uid.as_str())?;
    let node = cached.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    match node {
        Some(node) if pods.leaving.contains(node) => None,
        Some(node) => Some(format!("pod {} runs on node {node}", pod.name)),
        None => cached.metadata.deletion_timestamp.as_ref().map(|_| format!("pod {} is being deleted", pod.name)),
    }
}

/// Converts a rejection to the wire's reason and a message.
#[must_use]
pub fn wire_reason(rejection: &Rejection) -> (OutcomeReason, String) {
    use crate::ledger::Subject;
    let reason = match rejection {
        Rejection::StaleDriver(_) | Rejection::UnknownDriver(_) | Rejection::StalePosition { .. } => {
            OutcomeReason::StaleSnapshot
        }
        Rejection::Changed(Subject::Pod(_)) | Rejection::PodReserved { .. } => OutcomeReason::PodChanged,
        Rejection::Changed(Subject::Node(_))
        | Rejection::UnknownNode(_)
        | Rejection::NotAdmitted(_)
        | Rejection::AlreadyRemoving(_)
        | Rejection::NodeIsDestination(_)
        | Rejection::InsufficientResources { .. } => OutcomeReason::NodeChanged,
        Rejection::Changed(Subject::Pool(_))
        | Rejection::UnknownPool(_)
        | Rejection::PoolUnreadable { .. }
        | Rejection::UnknownInstanceType(_)
        | Rejection::ClaimExists(_)
        | Rejection::BackOff { .. }
        | Rejection::TooManyClaims(_) => OutcomeReason::PoolChanged,
        Rejection::DependencyRejected(_) => OutcomeReason::Dependency,
        Rejection::LimitExceeded { .. } => OutcomeReason::LimitReached,
        Rejection::BudgetExhausted { .. } => OutcomeReason::BudgetExhausted,
        Rejection::NoDisruptionRoom(_) => OutcomeReason::Blocked,
    };
    (reason, rejection.to_string())
}

/// Shows an admitted launch to watchers of the ledger until its claim is launched.
pub fn show_launching(deps: &Admission, admitted: &AdmittedLaunch) {
    let NarrowedLaunch { launch, requirements, allocatable, .. } = &admitted.narrowed;
    let mut labels = launch.labels.clone();
    for requirement in
        requirements.iter().filter(|requirement| !requirement.complement && requirement.values.len() == 1)
    {
        labels.extend(requirement.values.first().map(|value| (requirement.key.clone(), value.clone())));
    }
    deps.ledger.launching(InFlightClaim {
        name: admitted.claim.clone(),
        uid: String::new(),
        node_pool: launch.node_pool.clone(),
        action_id: Some(launch.action_id.clone()),
        pods: launch.pods.clone(),
        limit_usage: admitted.reserved.clone(),
        labels,
        taints: launch.taints.clone(),
        allocatable: allocatable.clone(),
        state: ClaimState::Launching,
        launched: None,
    });
}

/// Launches with the same request, and the NodeClaims for them.
struct Bundle {
    purchase: Purchase,
    launches: Vec<AdmittedLaunch>,
}

/// A group without its request. Building the request requires launch templates from EC2.
#[derive(Debug)]
pub struct PreparedGroup {
    /// Id and size.
    pub group: LaunchGroup,
    /// Claims by name.
    pub members: BTreeMap<String, Member>,
    /// Correlation id of the planning cycle, for logs.
    pub cycle_id: String,
    purchase: Purchase,
}

/// Groups admitted launches. Launches that cannot be requested are returned with the reason.
pub fn bundle(
    deps: &Admission,
    admitted: Vec<AdmittedLaunch>,
    cycle_id: &str,
) -> (Vec<PreparedGroup>, Vec<(AdmittedLaunch, RequestError)>) {
    let (mut planned, mut refused) = (Vec::new(), Vec::new());
    for launch in admitted {
        match purchase(deps, &launch) {
            Ok(purchase) => planned.push((purchase, launch)),
            Err(error) => refused.push((launch, error)),
        }
    }
    let bundles = request::together(planned).into_iter().map(|(purchase, launches)| Bundle { purchase, launches });
    let groups = bundles.filter_map(|bundle| prepare(deps, bundle, cycle_id)).collect();
    (groups, refused)
}

fn purchase(deps: &Admission, launch: &AdmittedLaunch) -> Result<Purchase, RequestError> {
    let now = Circumstances {
        settings: &deps.current.get(),
        insufficient_capacity: &deps.insufficient_capacity.lock(),
        time: deps.clock.timestamp(),
    };
    Purchase::plan(&now, &for_launch(&launch.class)?, launch.live(), &launch.narrowed)
}

fn claim_of(deps: &Admission, admitted: &AdmittedLaunch, group: &LaunchGroup) -> NodeClaim {
    let class_hash = hash::ec2_node_class(&admitted.class.spec, &deps.settings.cluster_ca_bundle);
    let facts = GroupFacts { group, epoch: deps.fence.epoch(), class_hash: &class_hash, reserved: &admitted.reserved };
    build::object(&admitted.claim, &admitted.narrowed, admitted.live(), &facts)
}

fn prepare(deps: &Admission, bundle: Bundle, cycle_id: &str) -> Option<PreparedGroup> {
    let actions: Vec<_> = bundle.launches.iter().map(|launch| launch.action().clone()).collect();
    let position = bundle.launches.iter().map(|launch| launch.position).max()?;
    let group = LaunchGroup::of(&actions, position)?;
    let member = |admitted: &AdmittedLaunch| {
        let claim = claim_of(deps, admitted, &group);
        (admitted.claim.clone(), Member { claim, action: Some(admitted.action().clone()) })
    };
    let members = bundle.launches.iter().map(member).collect();
    Some(PreparedGroup { group, members, cycle_id: cycle_id.to_owned(), purchase: bundle.purchase })
}

impl PreparedGroup {
    /// The group's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.group.id
    }

    /// Builds the request. Ensures that the launch templates exist.
    ///
    /// # Errors
    /// A launch template is missing. Nothing was written.
    pub async fn complete(self, templates: &LaunchTemplates) -> Result<Group, (Self, RequestError)> {
        let only = (self.members.len() == 1).then(|| self.members.keys().next().cloned()).flatten();
        match self.purchase.request(templates, &self.group, only.as_deref()).await {
            Ok(request) => {
                let Self { group, members, cycle_id, .. } = self;
                Ok(Group { group, request, members, cycle_id })
            }
            Err(error) => Err((self, error)),
        }
    }
}

impl AdmittedLaunch {
    /// A launch without a plan; `None` if an instance type is not in the catalog.
    #[must_use]
    pub(super) fn unplanned(
        narrowed: NarrowedLaunch,
        catalog: Arc<Catalog>,
        (pool, class): (Arc<NodePool>, Arc<EC2NodeClass>),
        claim: String,
        position: LedgerPosition,
    ) -> Option<Self> {
        let reserved = ledger::max_usage(&narrowed.launch, &catalog).ok()?;
        Some(Self { narrowed, reserved, catalog, pool, class, claim, position })
    }

    /// The objects that the launch was admitted on.
    fn live(&self) -> LiveObjects<'_> {
        LiveObjects { pool: &self.pool, class: &self.class, catalog: &self.catalog }
    }

    /// The offerings that the launch accepts.
    #[must_use]
    pub fn offerings(&self) -> &[OfferingChoice] {
        &self.narrowed.launch.offerings
    }

    /// The launch's action.
    #[must_use]
    pub fn action(&self) -> &ActionId {
        &self.narrowed.launch.action_id
    }
}

//! From a plan's launches to groups: narrowed to what is allowed, admitted one by one, put together by what they buy.

use super::build::{self, GroupFacts, Live, Narrowed};
use super::group::LaunchGroup;
use super::record::{Group, Member};
use super::request::{Purchase, RequestError};
use crate::context::Context;
use crate::ledger::{self, Admission, Outcome as LedgerOutcome, PlanContext, Rejection};
use k8s_openapi::api::core::v1::Pod;
use plimsoll_api::hash;
use plimsoll_model::catalog::Catalog;
use plimsoll_model::execution::{ClaimState, InFlightClaim, OutcomeReason};
use plimsoll_model::identity::ActionId;
use plimsoll_model::plan::{Launch, OfferingChoice, PodRef};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::LedgerPosition;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

/// Claims in one group: EC2 takes more, but what one answer decides should not be everything.
const MAX_GROUP: usize = 200;

/// What the cluster says of the pods that launches are for.
#[derive(Debug, Default)]
pub struct Pods {
    /// By UID, as our watch shows them.
    pub by_uid: BTreeMap<String, Arc<Pod>>,
    /// Nodes on their way out: their pods need another place.
    pub leaving: BTreeSet<String>,
}

/// A launch that was admitted.
#[derive(Debug)]
pub struct Admitted {
    narrowed: Narrowed,
    reserved: Resources,
    catalog: Arc<Catalog>,
    /// The claim's name.
    pub claim: String,
    /// The ledger after it.
    pub position: LedgerPosition,
}

/// What came of asking.
#[derive(Debug)]
pub enum Asked {
    /// It is to be carried out.
    Admitted(Box<Admitted>),
    /// It is under way, or done.
    Repeated(LedgerOutcome),
    /// It is refused.
    Rejected(OutcomeReason, String),
}

/// Admits one launch on the actuator's own view (safety rules 5 to 8, 18, 24).
pub fn ask(context: &Context, launch: &Launch, plan: &PlanContext, pods: &Pods) -> Asked {
    if let Some(known @ (LedgerOutcome::Admitted | LedgerOutcome::Done)) =
        context.ledger.read(|ledger| ledger.outcome(&launch.action_id).cloned())
    {
        return Asked::Repeated(known);
    }
    let rejected = |reason, message: String| Asked::Rejected(reason, message);
    let entry = context.catalogs.get(&launch.node_class);
    let Some((_, catalog)) = entry.as_ref().and_then(|entry| entry.catalog.as_ref()) else {
        let problem = entry.and_then(|entry| entry.problem.clone()).unwrap_or_else(|| "it is not known".to_owned());
        return rejected(OutcomeReason::PoolChanged, format!("node class {}: {problem}", launch.node_class));
    };
    let live = (super::pool_named(context, launch.node_pool.as_str()), super::class_named(context, &launch.node_class));
    let (Some(pool), Some(class)) = live else {
        let message = format!("NodePool {} or its node class {} is gone", launch.node_pool, launch.node_class);
        return rejected(OutcomeReason::PoolChanged, message);
    };
    if let Some(message) = launch.pods.iter().find_map(|pod| settled(pod, pods)) {
        return rejected(OutcomeReason::PodChanged, message);
    }
    let now = context.now();
    let live = Live { pool: &pool, class: &class, catalog };
    let narrowed = {
        let memory = context.unavailable.lock();
        let closed =
            |choice: &OfferingChoice| memory.contains(&choice.instance_type, &choice.zone, choice.capacity_type, now);
        match build::narrow(launch, live, closed) {
            Ok(narrowed) => narrowed,
            Err(refusal) => return rejected(refusal.reason, refusal.message),
        }
    };
    let Ok(reserved) = ledger::most(&narrowed.launch, catalog) else {
        return rejected(OutcomeReason::Invalid, "an instance type is not in the catalog".to_owned());
    };
    match context.ledger.with(|ledger| ledger.admit_launch(&narrowed.launch, &[], plan, catalog, now)) {
        Admission::Admitted { claim, position } => {
            let catalog = Arc::clone(catalog);
            Asked::Admitted(Box::new(Admitted { narrowed, reserved, catalog, claim, position }))
        }
        Admission::Repeated(outcome) => Asked::Repeated(outcome),
        Admission::Rejected(rejection) => {
            let (reason, message) = words(&rejection);
            rejected(reason, message)
        }
    }
}

/// Why nothing is to be launched for a pod, by our own watch. One that it does not show yet may just be new.
fn settled(pod: &PodRef, pods: &Pods) -> Option<String> {
    let found = pods.by_uid.get(pod.uid.as_str())?;
    let node = found.spec.as_ref().and_then(|spec| spec.node_name.as_deref());
    match node {
        Some(node) if pods.leaving.contains(node) => None,
        Some(node) => Some(format!("pod {} runs on node {node}", pod.name)),
        None => found.metadata.deletion_timestamp.as_ref().map(|_| format!("pod {} is being deleted", pod.name)),
    }
}

/// A rejection in the wire's words.
#[must_use]
pub fn words(rejection: &Rejection) -> (OutcomeReason, String) {
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
        | Rejection::NodeWanted(_)
        | Rejection::NoRoom { .. } => OutcomeReason::NodeChanged,
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

/// What watchers of the ledger are shown until the claim is launched.
pub fn show(context: &Context, admitted: &Admitted) {
    let Narrowed { launch, requirements, allocatable, .. } = &admitted.narrowed;
    let mut labels = launch.labels.clone();
    for requirement in requirements.iter().filter(|it| !it.complement && it.values.len() == 1) {
        labels.extend(requirement.values.first().map(|value| (requirement.key.clone(), value.clone())));
    }
    context.ledger.launching(InFlightClaim {
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

/// Launches that buy the same, with the objects of their claims.
struct Bundle {
    purchase: Purchase,
    launches: Vec<Admitted>,
}

/// A group without its request, which asks EC2 for templates.
#[derive(Debug)]
pub struct Prepared {
    /// The group with its claims.
    pub group: Group,
    purchase: Purchase,
}

/// Puts admitted launches together into groups. Those that cannot be bought at all come back with the reason.
pub fn bundle(
    context: &Context,
    admitted: Vec<Admitted>,
    cycle_id: &str,
) -> (Vec<Prepared>, Vec<(Admitted, RequestError)>) {
    let (mut bundles, mut refused): (Vec<Bundle>, Vec<_>) = (Vec::new(), Vec::new());
    for launch in admitted {
        match purchase(context, &launch) {
            Ok(purchase) => {
                let fits = |it: &&mut Bundle| it.launches.len() < MAX_GROUP && it.purchase == purchase;
                match bundles.iter_mut().find(fits) {
                    Some(bundle) => bundle.launches.push(launch),
                    None => bundles.push(Bundle { purchase, launches: vec![launch] }),
                }
            }
            Err(error) => refused.push((launch, error)),
        }
    }
    let groups = bundles.into_iter().filter_map(|bundle| prepare(context, bundle, cycle_id)).collect();
    (groups, refused)
}

fn purchase(context: &Context, admitted: &Admitted) -> Result<Purchase, RequestError> {
    let launch = &admitted.narrowed.launch;
    let gone = || RequestError::NoSubnet(launch.node_class.clone());
    let pool = super::pool_named(context, launch.node_pool.as_str()).ok_or_else(gone)?;
    let class = super::class_named(context, &launch.node_class).ok_or_else(gone)?;
    let group = LaunchGroup { id: String::new(), size: 1 };
    let claim = claim_of(context, admitted, &group, &pool, &class);
    Purchase::plan(context, &class, &admitted.catalog, &admitted.narrowed, &claim)
}

fn claim_of(
    context: &Context,
    admitted: &Admitted,
    group: &LaunchGroup,
    pool: &plimsoll_api::NodePool,
    class: &plimsoll_api::EC2NodeClass,
) -> plimsoll_api::NodeClaim {
    let class_hash = hash::ec2_node_class(&class.spec, &context.settings.cluster_ca_bundle);
    let facts =
        GroupFacts { group, epoch: context.fence.epoch(), class_hash: &class_hash, reserved: &admitted.reserved };
    build::object(&admitted.claim, &admitted.narrowed, Live { pool, class, catalog: &admitted.catalog }, &facts)
}

fn prepare(context: &Context, bundle: Bundle, cycle_id: &str) -> Option<Prepared> {
    let actions: Vec<_> = bundle.launches.iter().map(|it| it.narrowed.launch.action_id.clone()).collect();
    let position = bundle.launches.iter().map(|it| it.position).max()?;
    let group = LaunchGroup::of(&actions, position)?;
    let mut members = BTreeMap::new();
    for admitted in &bundle.launches {
        let launch = &admitted.narrowed.launch;
        let pool = super::pool_named(context, launch.node_pool.as_str())?;
        let class = super::class_named(context, &launch.node_class)?;
        let claim = claim_of(context, admitted, &group, &pool, &class);
        members.insert(admitted.claim.clone(), Member { claim, action: Some(launch.action_id.clone()) });
    }
    let request = bundle.purchase.unsent();
    let group = Group { group, request, members, cycle_id: cycle_id.to_owned() };
    Some(Prepared { group, purchase: bundle.purchase })
}

impl Prepared {
    /// The group's id.
    #[must_use]
    pub fn id(&self) -> &str {
        &self.group.group.id
    }

    /// The whole group: its templates exist from now on.
    ///
    /// # Errors
    /// A template is not there: nothing was written.
    pub async fn complete(mut self, context: &Context) -> Result<Group, (Group, RequestError)> {
        let only = (self.group.members.len() == 1).then(|| self.group.members.keys().next().cloned()).flatten();
        match self.purchase.request(context, &self.group.group, only.as_deref()).await {
            Ok(request) => {
                self.group.request = request;
                Ok(self.group)
            }
            Err(error) => Err((self.group, error)),
        }
    }
}

impl Admitted {
    /// The launch's action.
    #[must_use]
    pub fn action(&self) -> &ActionId {
        &self.narrowed.launch.action_id
    }

    /// One that no plan asks for.
    #[must_use]
    pub fn unplanned(
        narrowed: Narrowed,
        catalog: Arc<Catalog>,
        claim: String,
        position: LedgerPosition,
    ) -> Option<Self> {
        let reserved = ledger::most(&narrowed.launch, &catalog).ok()?;
        Some(Self { narrowed, reserved, catalog, claim, position })
    }
}

//! Conditions of NodeClaims: drift, the time of the last pod event, consolidatability, and consistency with the Node.

use crate::controller_loop::{Candidate, ControllerLoop, Requeue, version_of};
use crate::events::{Note, object, reason};
use crate::guarded;
use crate::io::{ObjectPart, WriteError};
use crate::node_pool_status::drift::{CAPACITY_RESERVATION_DRIFT, Drift, ProviderFacts, drift};
use crate::node_pool_status::{NodePoolStatus, consistency};
use crate::pods;
use crate::ports::InstanceFilter;
use crate::state::instances::InstanceFacts;
use crate::state::pod_events;
use crate::stores::{CachedObjects, Cursor, WatchedKind};
use jiff::{SignedDuration, Timestamp};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::Time;
use kube::ResourceExt;
use plimsoll_api::condition::node_claim::{CONDITIONS, CONSOLIDATABLE, DRIFTED, INITIALIZED, LAUNCHED};
use plimsoll_api::condition::{self, Moment, Status};
use plimsoll_api::{EC2NodeClass, NodeClaim, NodePool, Pod};
use plimsoll_model::names::annotation;
use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Interval of checks without a change of claim, pool or node class: facts of EC2 and of the Node come without one. As
/// in Karpenter, which compares with the Node half as often.
const CHECKED_EVERY: SignedDuration = SignedDuration::from_mins(5);

/// Reasons of drift that need no facts of EC2.
const STATIC_REASONS: [&str; 3] = ["NodePoolDrifted", "RequirementsDrifted", "NodeClassDrift"];

/// A claim with its pool and node class.
#[derive(Clone)]
struct ClaimWithPool {
    claim: Arc<NodeClaim>,
    pool: Option<Arc<NodePool>>,
    class: Option<Arc<EC2NodeClass>>,
    /// Hash of the node's pods.
    pods: u64,
}

pub(super) async fn run(deps: &NodePoolStatus, stop: &CancellationToken) {
    let kinds = [WatchedKind::NodePool, WatchedKind::NodeClaim, WatchedKind::Pod, WatchedKind::EC2NodeClass];
    let work = |subject: ClaimWithPool| reconcile(deps.clone(), subject);
    let mut on_nodes = PodsOnNodes::default();
    let list = move || candidates(deps, &mut on_nodes);
    let controller = ControllerLoop::new("node_claim_status", &deps.metrics, &deps.stores, &deps.fence);
    controller.run(stop, &kinds, list, work).await;
}

/// Hashes of the pods of each node. Only nodes whose pods changed are looked at again.
#[derive(Default)]
struct PodsOnNodes {
    read: Cursor,
    hashes: BTreeMap<String, u64>,
}

impl PodsOnNodes {
    fn update(&mut self, pods: &CachedObjects<Pod>) {
        let changed = pods.changed_nodes(&mut self.read).unwrap_or_else(|| {
            self.hashes.clear();
            pods.nodes()
        });
        for node in changed {
            match pods::hash_of_reschedulable(&pods.on_node(&node)) {
                0 => self.hashes.remove(&node),
                hash => self.hashes.insert(node, hash),
            };
        }
    }
}

fn candidates(deps: &NodePoolStatus, on_nodes: &mut PodsOnNodes) -> Vec<Candidate<ClaimWithPool>> {
    let stores = &deps.stores;
    let pools: BTreeMap<String, Arc<NodePool>> =
        stores.pools.state().into_iter().map(|pool| (pool.name_any(), pool)).collect();
    let classes: BTreeMap<String, Arc<EC2NodeClass>> =
        stores.classes.state().into_iter().map(|class| (class.name_any(), class)).collect();
    on_nodes.update(&stores.pods);
    // An unreadable claim might seem to have drifted.
    let readable = |claim: &Arc<NodeClaim>| guarded::unreadable(claim).is_none();
    let mut live = stores.claims.state();
    live.retain(|claim| claim.metadata.deletion_timestamp.is_none() && readable(claim));
    deps.pod_events.keep(live.iter().filter_map(|claim| claim.metadata.uid.as_deref()));
    let candidate = |claim: Arc<NodeClaim>| {
        let pool = pools.get(claim.node_pool()).cloned();
        let class = classes.get(&claim.spec.node_class_ref.name).cloned();
        let pods = claim.node_name().and_then(|node| on_nodes.hashes.get(node).copied()).unwrap_or_default();
        let version = (
            &claim.metadata.resource_version,
            pool.as_ref().and_then(|pool| pool.metadata.generation),
            pool.as_ref().and_then(|pool| pool.annotations().get(annotation::NODE_POOL_HASH)),
            class.as_ref().and_then(|class| class.metadata.resource_version.as_ref()),
            pods,
        );
        let version = Some(version_of(&version));
        Candidate { key: claim.name_any(), version, input: ClaimWithPool { claim, pool, class, pods } }
    };
    live.into_iter().map(candidate).collect()
}

async fn reconcile(deps: NodePoolStatus, subject: ClaimWithPool) -> Result<Requeue, WriteError> {
    let claim = &*subject.claim;
    let now = deps.clock.now();
    let status = claim.status.as_ref();
    let changed = deps.pod_events.observe(claim, subject.pods);
    let last = status.and_then(|status| status.last_pod_event_time.as_ref()).map(|time| time.0);
    let next_event = pod_events::next_write(claim, subject.pods).filter(|next| *next > now);
    let event = if changed && next_event.is_none() { Some(now) } else { None };
    let pool = subject.pool.as_deref();
    let class = subject.class.as_deref();
    let mut facts = provider_facts(&deps, claim);
    // As in Karpenter, a claim that is not launched has not drifted.
    let judged = pool.filter(|_| claim.true_condition(LAUNCHED).is_some());
    let judge = |facts: &ProviderFacts| judged.map_or(Drift::None, |pool| drift(claim, pool, class, facts, now));
    let mut drifted = judge(&facts);
    if drifted == Drift::Drifted(CAPACITY_RESERVATION_DRIFT) {
        facts.instance = read_instance(&deps, claim).await;
        drifted = judge(&facts);
    }
    let node = deps.stores.nodes_of(claim).into_iter().next().filter(|_| claim.is_initialized());
    let consistent = node.as_deref().map(|node| consistency::check(claim, node));
    let show = |claim: &mut NodeClaim| {
        let moment = Moment::of(&claim.metadata, now);
        let status = claim.status.get_or_insert_default();
        if let Some(event) = event {
            status.last_pod_event_time = Some(Time(event));
        }
        let (conditions, last) = (&mut status.conditions, status.last_pod_event_time.as_ref().map(|time| time.0));
        match drifted {
            Drift::Drifted(reason) => CONDITIONS.set(conditions, moment, DRIFTED, Status::True, reason, reason),
            Drift::Unknown if is_drifted_by_provider(conditions) => false,
            Drift::Unknown | Drift::None => clear(conditions, moment, DRIFTED),
        };
        match consolidatable(conditions, last, pool, now) {
            Ok(()) => CONDITIONS.set_true(conditions, moment, CONSOLIDATABLE),
            Err(_) => clear(conditions, moment, CONSOLIDATABLE),
        };
        if let Some(result) = &consistent {
            consistency::show(conditions, moment, result);
        }
    };
    deps.writes.update(claim, ObjectPart::Status, show).await?;
    if let Some(Err(message)) = &consistent {
        let note = Note::warning(object(claim), reason::FAILED_CONSISTENCY_CHECK, message.as_str());
        deps.events.publish(note.with_cause("capacity").with_long_window());
    }
    if event.is_some() {
        deps.pod_events.written(claim, deps.clock.now());
    }
    let last = event.or(last);
    let conditions = status.map(|status| status.conditions.clone()).unwrap_or_default();
    let idle = consolidatable(&conditions, last, pool, now).err().flatten();
    let pending = next_event.filter(|_| changed);
    let check = now.checked_add(CHECKED_EVERY).ok().filter(|_| pool.is_some() || node.is_some());
    let at = [idle, pending, check].into_iter().flatten().min();
    Ok(at.map(|at| Duration::try_from(at.duration_since(now)).unwrap_or(Duration::ZERO)))
}

fn provider_facts(deps: &NodePoolStatus, claim: &NodeClaim) -> ProviderFacts {
    let entry = deps.catalogs.get(&claim.spec.node_class_ref.name).filter(|entry| !entry.is_provisional);
    let offered = entry.as_ref().map(|entry| Arc::clone(&entry.offered)).unwrap_or_default();
    let catalog = entry.and_then(|entry| entry.catalog.as_ref().map(|(_, catalog)| Arc::clone(catalog)));
    let instance = claim.instance_id().and_then(|id| deps.instances.get(id));
    ProviderFacts { catalog, offered, instance }
}

/// The instance as EC2 describes it now: the list may be older than the status of the node class, and the instance may
/// have left its capacity reservation since.
async fn read_instance(deps: &NodePoolStatus, claim: &NodeClaim) -> Option<InstanceFacts> {
    let id = claim.instance_id()?;
    match deps.cloud_reads.all_instances(&InstanceFilter::Ids(vec![id.to_owned()])).await {
        Ok(instances) => instances.first().map(InstanceFacts::from),
        Err(error) => {
            tracing::warn!(node_claim = claim.name_any(), %error, "instance not read, drift is unknown");
            None
        }
    }
}

/// Whether the claim was found to have drifted from facts of EC2, which may be missing now.
fn is_drifted_by_provider(conditions: &Conditions) -> bool {
    let drifted = condition::get_true(conditions, DRIFTED);
    drifted.is_some_and(|drifted| !STATIC_REASONS.contains(&drifted.reason.as_str()))
}

type Conditions = Vec<k8s_openapi::apimachinery::pkg::apis::meta::v1::Condition>;

/// Clears a condition. No other condition depends on it.
fn clear(conditions: &mut Conditions, moment: Moment, name: &str) -> bool {
    CONDITIONS.clear(conditions, moment, name).unwrap_or(false)
}

/// Whether the node had no pod event for long enough; otherwise the time when it will have, if ever.
fn consolidatable(
    conditions: &Conditions,
    last_pod: Option<Timestamp>,
    pool: Option<&NodePool>,
    now: Timestamp,
) -> Result<(), Option<Timestamp>> {
    let pool = pool.filter(|pool| !pool.spec.is_static()).ok_or(None)?;
    let after = pool.spec.consolidate_after().value().ok_or(None)?;
    let in_service = condition::get_true(conditions, INITIALIZED).ok_or(None)?;
    let since = last_pod.unwrap_or(in_service.last_transition_time.0);
    let at = since.checked_add(SignedDuration::try_from(after).map_err(|_| None)?).map_err(|_| None)?;
    if at <= now { Ok(()) } else { Err(Some(at)) }
}

#[cfg(test)]
mod tests;

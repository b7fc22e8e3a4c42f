//! Merges Nodes and NodeClaims into one record per node, from the request to the deletion.

use crate::expiry::expires;
use crate::problems::{Fault, Problem};
use crate::volumes::attach_limits;
use crate::{Extra, Objects, Source, annotations, in_flight, kube_time, requests};
use k8s_openapi::api::core::v1::Node as KubeNode;
use plimsoll_api::condition::node_claim::INITIALIZATION_TIMED_OUT;
use plimsoll_api::{NodeClaim, NodePool, Operator};
use plimsoll_model::execution::InFlightClaim;
use plimsoll_model::identity::{NodeName, NodePoolName};
use plimsoll_model::names::{NODES_RESOURCE, annotation, label, taint};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{Node, NodeState};
use plimsoll_model::taints::{Taint, TaintEffect};
use plimsoll_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Prefixes of taints that are not of agents: whoever sets them has a reason to keep pods away.
const LIFECYCLE_PREFIXES: [&str; 4] =
    ["node.kubernetes.io/", "node.cloudprovider.kubernetes.io/", "karpenter.sh/", "plimsoll.dev/"];

pub(crate) fn build(objects: &Objects, extra: &Extra, problems: &mut Vec<Problem>) -> Vec<Node> {
    let mut by_provider = BTreeMap::new();
    let mut by_node = BTreeMap::new();
    for claim in &objects.node_claims {
        if let Some(id) = claim.provider_id() {
            by_provider.insert(id, claim);
        }
        if let Some(name) = claim.node_name() {
            by_node.insert(name, claim);
        }
    }
    let attach_limits = attach_limits(objects);
    let pools = pools_by_name(objects);
    let mut matched = BTreeSet::new();
    let mut nodes = Vec::new();
    for node in &objects.nodes {
        let name = node.metadata.name.as_deref().unwrap_or_default();
        let provider_id = node.spec.as_ref().and_then(|spec| spec.provider_id.as_deref());
        let claim = provider_id.and_then(|id| by_provider.get(id)).or_else(|| by_node.get(name)).copied();
        matched.extend(claim.and_then(|claim| claim.metadata.name.as_deref()));
        match read(name, node, claim, &pools, extra) {
            Ok(mut node) => {
                let limits = attach_limits.get(name).into_iter().flat_map(Resources::iter);
                limits.for_each(|(resource, count)| node.allocatable.set(resource, count));
                nodes.push(node);
            }
            Err(fault) => problems.push(Problem::of("Node", &node.metadata, fault)),
        }
    }
    let ledger: BTreeMap<&str, &InFlightClaim> =
        extra.in_flight.iter().map(|claim| (claim.name.as_str(), &**claim)).collect();
    let mut shown = BTreeSet::new();
    for claim in &objects.node_claims {
        let name = claim.metadata.name.as_deref().unwrap_or_default();
        shown.insert(name);
        if matched.contains(name) {
            continue;
        }
        match in_flight::from_claim(claim, ledger.get(name).copied()) {
            Ok(node) => nodes.push(node),
            Err(problem) => problems.push(problem),
        }
    }
    let only_in_ledger = extra.in_flight.iter().filter(|claim| !shown.contains(claim.name.as_str()));
    nodes.extend(only_in_ledger.map(|claim| in_flight::from_ledger(claim, extra.now)));
    drop_duplicates(nodes, problems)
}

/// Node names must be unique: if a Node and a claim have the same name, the first is kept.
fn drop_duplicates(nodes: Vec<Node>, problems: &mut Vec<Problem>) -> Vec<Node> {
    let mut names = BTreeSet::new();
    let (kept, duplicates): (Vec<_>, Vec<_>) = nodes.into_iter().partition(|node| names.insert(node.name.clone()));
    problems.extend(duplicates.into_iter().map(|node| Problem {
        kind: "NodeClaim".to_owned(),
        name: node.name.0,
        field: "metadata.name".to_owned(),
        message: "a Node that is not its own has the same name".to_owned(),
        left_out: true,
    }));
    kept
}

/// Reads a Node and its claim, if there is one.
fn read(
    name: &str,
    node: &KubeNode,
    claim: Option<&NodeClaim>,
    pools: &BTreeMap<&str, &NodePool>,
    extra: &Extra,
) -> Result<Node, Fault> {
    let (registered, initialized) = (has_label(node, label::REGISTERED), has_label(node, label::INITIALIZED));
    let labels = labels_of(node, claim);
    // Plans must not remove a Node without the label, even if its claim has it.
    let node_pool = pool_label(&labels).cloned();
    let pool_startup_taints = || {
        let pool = pools.get(node_pool.as_deref().unwrap_or_default());
        pool.map(|pool| pool.spec.template.spec.startup_taints.as_slice())
    };
    let startup =
        claim.map(|claim| claim.spec.startup_taints.as_slice()).or_else(pool_startup_taints).unwrap_or_default();
    let is_startup = |taint: &Taint| {
        taint.is_ephemeral()
            || startup.iter().any(|one| Taint::from(one).matches(taint))
            || claim.is_some_and(|claim| is_undeclared(taint, claim))
    };
    let mut taints = node_taints(node)?;
    // In files, the labels that Karpenter adds are often missing.
    let is_plain_file = extra.source == Source::Files && claim.is_none() && !labels.contains_key(label::REGISTERED);
    let is_initialized = initialized || (is_plain_file && !taints.iter().any(is_startup));
    let pool = node_pool.as_deref().and_then(|name| pools.get(name)).copied();
    // For us, nodes of another provider are nodes outside of pools.
    let is_foreign = pool.is_some_and(|pool| !pool.spec.template.spec.node_class_ref.is_ec2());
    let has_our_claim = claim.is_some_and(|claim| claim.spec.node_class_ref.is_ec2_node_class());
    let is_ours = !is_foreign && (node_pool.is_some() || has_our_claim);
    let state = if is_ours && !is_initialized { NodeState::Registered } else { NodeState::Initialized };
    if state != NodeState::Initialized {
        taints.retain(|taint| !is_startup(taint));
        for taint in claim.filter(|_| !registered).map(claim_taints).unwrap_or_default() {
            if !taints.iter().any(|existing| existing.matches(&taint)) {
                taints.push(taint);
            }
        }
    }
    let (allocatable, limit_usage) = resources(node, claim, state)?;
    // In a cluster, the claim of this Node is not matched yet and is a record of its own, which counts the resources.
    let is_unmatched = extra.source == Source::Cluster
        && claim.is_none()
        && (has_taint(node, taint::UNREGISTERED) || (node_pool.is_some() && !registered));
    let is_in_shifted_zone = labels.get(label::ZONE).is_some_and(|zone| extra.shifted_zones.contains(zone));
    let spec = node.spec.as_ref();
    let created = claim.map_or_else(|| kube_time::created(&node.metadata), |claim| kube_time::created(&claim.metadata));
    Ok(Node {
        name: NodeName::from(name),
        node_claim: claim.and_then(|claim| claim.metadata.name.clone()),
        node_pool: node_pool.filter(|_| !is_foreign).map(NodePoolName),
        state,
        labels,
        taints: sorted(taints),
        allocatable: if is_unmatched { Resources::new() } else { allocatable },
        limit_usage: if is_unmatched { Resources::new() } else { limit_usage },
        ready: ready_status(node).map_or(extra.source == Source::Files, |status| status == "True"),
        cordoned: is_unmatched
            || spec.and_then(|spec| spec.unschedulable) == Some(true)
            || (state == NodeState::Registered && claim.is_some_and(has_timed_out)),
        deleting: node.metadata.deletion_timestamp.is_some()
            || claim.is_some_and(is_leaving)
            || has_taint(node, taint::DISRUPTED),
        do_not_disrupt: protecting_annotation(node).is_some() || is_in_shifted_zone,
        created,
        expires: expires(claim, pool, created),
        // The Node's label is written before the claim's condition.
        idle_since: claim.map(|claim| idle_since(claim).unwrap_or(created)),
        drifted: claim.and_then(drifted),
        termination_grace_period: grace_period(claim, pool),
    })
}

/// Whether the label of the Node is `true`.
fn has_label(node: &KubeNode, key: &str) -> bool {
    let labels = node.metadata.labels.as_ref();
    labels.and_then(|labels| labels.get(key)).is_some_and(|value| value == "true")
}

/// The labels of a Node. Until it has registered, they include those of its claim.
fn labels_of(node: &KubeNode, claim: Option<&NodeClaim>) -> BTreeMap<String, String> {
    let mut labels = node.metadata.labels.clone().unwrap_or_default();
    if let Some(claim) = claim.filter(|_| !has_label(node, label::REGISTERED)) {
        labels.extend(claim_labels(claim));
    }
    labels
}

/// The name of the NodePool that plans have a Node in. `None` if it is in none.
#[must_use]
pub fn node_pool(node: &KubeNode, claim: &NodeClaim) -> Option<String> {
    pool_label(&labels_of(node, Some(claim))).cloned()
}

/// What a launched claim counts against limits and quotas: the same as in the actuator's ledger, which admits launches.
/// The Node may report another capacity, but the same node must not count twice as much in one place. Without the
/// price. `None` if the claim does not tell.
fn launched_usage(claim: &NodeClaim) -> Option<Resources> {
    claim.provider_id()?;
    amounts(&claim.status.as_ref()?.capacity, "status.capacity").ok().filter(|it| !it.is_empty())
}

/// Labels that the node of a claim is certain to get.
pub(crate) fn claim_labels(claim: &NodeClaim) -> BTreeMap<String, String> {
    let mut labels = BTreeMap::new();
    for requirement in &claim.spec.requirements {
        if let (Operator::In, [value]) = (requirement.operator, requirement.values.as_slice()) {
            labels.insert(requirement.key.clone(), value.clone());
        }
    }
    labels.extend(claim.metadata.labels.clone().unwrap_or_default());
    labels
}

/// The label that names the pool. An empty value, which the API server accepts, names none.
pub(crate) fn pool_label(labels: &BTreeMap<String, String>) -> Option<&String> {
    labels.get(label::NODE_POOL).filter(|name| !name.is_empty())
}

pub(crate) fn claim_taints(claim: &NodeClaim) -> Vec<Taint> {
    claim.spec.taints.iter().map(Taint::from).collect()
}

fn node_taints(node: &KubeNode) -> Result<Vec<Taint>, Fault> {
    let list = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    let read = |(index, taint): (usize, &k8s_openapi::api::core::v1::Taint)| {
        let effect = TaintEffect::parse(&taint.effect).ok_or_else(|| {
            let message = format!("{:?} is none of NoSchedule, PreferNoSchedule and NoExecute", taint.effect);
            Fault::new(format!("spec.taints[{index}].effect"), message)
        })?;
        Ok(Taint { key: taint.key.clone(), value: taint.value.clone().unwrap_or_default(), effect })
    };
    // The next plan decides anew which nodes to remove, so the result of the last one must not influence it.
    let list = list.into_iter().flatten().enumerate().filter(|(_, taint)| taint.key != taint::REMOVAL_POSTPONED);
    list.map(read).collect()
}

/// What pods may use of the node, and what it counts against limits. Until the Node is in service, its claim tells what
/// the kubelet does not report yet.
fn resources(node: &KubeNode, claim: Option<&NodeClaim>, state: NodeState) -> Result<(Resources, Resources), Fault> {
    let (mut capacity, mut allocatable) = node_resources(node)?;
    if let Some(claim) = claim.filter(|_| state != NodeState::Initialized) {
        if let Some(status) = &claim.status {
            fill_gaps(&mut capacity, &amounts(&status.capacity, "status.capacity")?);
            fill_gaps(&mut allocatable, &amounts(&status.allocatable, "status.allocatable")?);
        }
        // Only the requests have a resource that a NodeOverlay adds.
        fill_gaps(&mut allocatable, &in_flight::requested(claim)?);
    }
    let mut limit_usage = claim.and_then(launched_usage).unwrap_or(capacity);
    limit_usage.set(NODES_RESOURCE, 1);
    if let Some(claim) = claim {
        in_flight::count_price(claim, &mut limit_usage);
    }
    Ok((allocatable, limit_usage))
}

/// Returns capacity and allocatable. If only one is set, as in files, it is used for both.
fn node_resources(node: &KubeNode) -> Result<(Resources, Resources), Fault> {
    let status = node.status.as_ref();
    let capacity = requests::amounts(status.and_then(|status| status.capacity.as_ref()), "status.capacity")?;
    let allocatable = requests::amounts(status.and_then(|status| status.allocatable.as_ref()), "status.allocatable")?;
    match (capacity.is_empty(), allocatable.is_empty()) {
        (false, true) => Ok((capacity.clone(), capacity)),
        (true, false) => Ok((allocatable.clone(), allocatable)),
        _ => Ok((capacity, allocatable)),
    }
}

pub(crate) fn fill_gaps(amounts: &mut Resources, from: &Resources) {
    for (name, amount) in from.iter() {
        if amounts.get(name) == 0 {
            amounts.set(name, amount);
        }
    }
}

pub(crate) fn amounts(list: &plimsoll_api::ResourceList, field: &str) -> Result<Resources, Fault> {
    requests::amounts(Some(list), field)
}

/// Whether the claim does not declare a taint of its Node that keeps pods away. Until the Node is initialized, such a
/// taint is taken for that of an agent which starts, because users forget to declare these. The actuator does not wait
/// for it for long.
#[must_use]
pub fn is_undeclared(taint: &Taint, claim: &NodeClaim) -> bool {
    let mut declared = claim.spec.taints.iter().chain(&claim.spec.startup_taints).map(Taint::from);
    taint.effect != TaintEffect::PreferNoSchedule
        && !LIFECYCLE_PREFIXES.iter().any(|prefix| taint.key.starts_with(prefix))
        && !declared.any(|one| one.matches(taint))
}

/// The annotation that protects the Node from voluntary disruption, if there is one.
#[must_use]
pub fn protecting_annotation(node: &KubeNode) -> Option<&'static str> {
    let is_set = |key: &&str| annotations::text(&node.metadata, key) == Some("true");
    annotation::OF_NODES.into_iter().find(is_set)
}

/// Whether the kubelet reports the Node as Ready.
#[must_use]
pub fn is_ready(node: &KubeNode) -> bool {
    ready_status(node) == Some("True")
}

/// Status of the Node's condition Ready, if it has one.
fn ready_status(node: &KubeNode) -> Option<&str> {
    let conditions = node.status.as_ref()?.conditions.as_ref()?;
    conditions.iter().find(|condition| condition.type_ == "Ready").map(|condition| condition.status.as_str())
}

/// Whether the Node was not initialized in time, so that it may never be.
pub(crate) fn has_timed_out(claim: &NodeClaim) -> bool {
    claim.true_condition(INITIALIZATION_TIMED_OUT).is_some()
}

/// Whether the claim is being deleted or its instance is terminating.
pub(crate) fn is_deleting(claim: &NodeClaim) -> bool {
    claim.metadata.deletion_timestamp.is_some() || claim.is_instance_terminating()
}

/// Whether the pods of the claim must move: the claim is being deleted, or its instance is interrupted.
pub(crate) fn is_leaving(claim: &NodeClaim) -> bool {
    is_deleting(claim) || annotations::text(&claim.metadata, annotation::INTERRUPTED).is_some()
}

fn has_taint(node: &KubeNode, key: &str) -> bool {
    let taints = node.spec.as_ref().and_then(|spec| spec.taints.as_ref());
    taints.into_iter().flatten().any(|taint| taint.key == key)
}

pub(crate) fn idle_since(claim: &NodeClaim) -> Option<Timestamp> {
    let status = claim.status.as_ref()?;
    let initialized = claim.true_condition("Initialized");
    let moment =
        status.last_pod_event_time.as_ref().or_else(|| initialized.map(|condition| &condition.last_transition_time));
    moment.map(kube_time::timestamp)
}

pub(crate) fn drifted(claim: &NodeClaim) -> Option<String> {
    claim.true_condition("Drifted").map(|condition| condition.reason.clone())
}

/// The NodePools by name; the first of several.
fn pools_by_name(objects: &Objects) -> BTreeMap<&str, &NodePool> {
    objects.node_pools.iter().rev().filter_map(|pool| Some((pool.metadata.name.as_deref()?, pool))).collect()
}

pub(crate) fn grace_period(claim: Option<&NodeClaim>, pool: Option<&NodePool>) -> Option<plimsoll_model::time::Millis> {
    let period = match (claim, pool) {
        (Some(claim), _) => claim.spec.termination_grace_period.as_ref(),
        (None, Some(pool)) => pool.spec.template.spec.termination_grace_period.as_ref(),
        (None, None) => None,
    };
    period.map(|period| kube_time::millis(period.value()))
}

pub(crate) fn sorted(mut taints: Vec<Taint>) -> Vec<Taint> {
    taints.sort();
    taints
}

#[cfg(test)]
mod tests;

//! Reads NodePools: catalog, readiness and allowed disruptions.

use crate::checked_pools::CheckedPools;
use crate::nodes::is_deleting;
use crate::problems::{Fault, Problem};
use crate::rollout::{self, Rollout, RolloutObjects};
use crate::termination_delay::termination_delay;
use crate::{Extra, Objects, Source, annotations, costs, expiry, kube_time, on_demand, overlays, requests};
use k8s_openapi::api::core::v1::Node as KubeNode;
use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use plimsoll_api::budget::DisruptionReason as BudgetReason;
use plimsoll_api::ec2_node_class::PlacementStrategy;
use plimsoll_api::node_pool::ConsolidationPolicy as ApiPolicy;
use plimsoll_api::{EC2NodeClass, FieldError, NodeClaim, NodePool as ApiPool, Pod, condition};
use plimsoll_model::identity::{CatalogId, NodePoolName};
use plimsoll_model::names::{annotation, label};
use plimsoll_model::quantity::Quantity;
use plimsoll_model::requirements::{NodeSelectorRequirement, Requirements};
use plimsoll_model::resources::Resources;
use plimsoll_model::snapshot::{
    ConsolidationPolicy, Disruption, DisruptionReason, Node, NodePool, NodeState, PoolProblem,
};
use plimsoll_model::taints::Taint;
use plimsoll_model::time::Timestamp;
use std::collections::{BTreeMap, BTreeSet};

/// Disruption reasons of budgets in the API and in the model.
const REASONS: [(BudgetReason, DisruptionReason); 3] = [
    (BudgetReason::Empty, DisruptionReason::Empty),
    (BudgetReason::Underutilized, DisruptionReason::Underutilized),
    (BudgetReason::Drifted, DisruptionReason::Drifted),
];

pub(crate) fn build(
    objects: &Objects,
    extra: &Extra,
    nodes: &[Node],
    checked: &mut CheckedPools,
    problems: &mut Vec<Problem>,
) -> Vec<NodePool> {
    checked.limit(objects.node_pools.len());
    let overlays = overlays::build(objects, problems);
    let nodes = &budget_nodes(objects, nodes);
    let rollouts = &Rollouts::new(objects);
    let classes = classes_by_name(objects);
    let mut pools = Vec::new();
    // Pools of other providers are left to these.
    for pool in objects.node_pools.iter().filter(|pool| pool.spec.template.spec.node_class_ref.is_ec2()) {
        let reference = &pool.spec.template.spec.node_class_ref;
        let class = classes.get(reference.name.as_str()).copied().filter(|_| reference.kind == "EC2NodeClass");
        match read(pool, class, extra, (nodes, rollouts), checked) {
            Ok(pool) => pools.push(NodePool { overlays: overlays.clone(), ..pool }),
            Err(fault) => problems.push(Problem::of("NodePool", &pool.metadata, fault)),
        }
        let unreadable = pool.unreadable_schedules().into_iter();
        let faults = unreadable.map(|error| Fault::new(error.path, error.message));
        problems.extend(faults.map(|fault| Problem::of_field("NodePool", &pool.metadata, fault)));
    }
    pools
}

/// `class` is the node class that the pool refers to, if it exists.
fn read(
    pool: &ApiPool,
    class: Option<&EC2NodeClass>,
    extra: &Extra,
    (nodes, rollouts): (&BTreeMap<&str, BudgetNodes<'_>>, &Rollouts<'_>),
    checked: &mut CheckedPools,
) -> Result<NodePool, Fault> {
    let name = pool.metadata.name.clone().unwrap_or_default();
    let template = &pool.spec.template;
    let annotations =
        on_demand::mix(&pool.metadata).and_then(|on_demand| Ok((on_demand, costs::read(&pool.metadata, class)?)));
    let limits = limits(pool);
    let lifetime = lifetime_fault(&pool.metadata);
    let usable_catalog = match annotations.as_ref().err().or(limits.as_ref().err()).or(lifetime.as_ref()) {
        // An error in a file must be fixed by the user. In a cluster the pool is marked unusable, as for other invalid
        // fields. Its nodes are removed as before.
        Some(fault) if extra.source == Source::Files => return Err(fault.clone()),
        Some(fault) => Err(PoolProblem { code: "NodePoolInvalid".to_owned(), message: fault.to_string() }),
        None => usable_catalog_of(pool, class, extra, checked),
    };
    let (on_demand, costs) = annotations.unwrap_or_default();
    let (catalog, not_ready) = match usable_catalog {
        Ok(catalog) => (Some(catalog), None),
        Err(problem) => (None, Some(problem)),
    };
    Ok(NodePool {
        weight: pool.spec.weight(),
        labels: template.labels().map(|(key, value)| (key.to_owned(), value.to_owned())).collect(),
        taints: template.spec.taints.iter().map(Taint::from).collect(),
        startup_taints: template.spec.startup_taints.iter().map(Taint::from).collect(),
        requirements: template.spec.requirements.iter().map(NodeSelectorRequirement::from).collect(),
        limits: limits.unwrap_or_default(),
        replicas: pool.spec.replicas.and_then(|replicas| u64::try_from(replicas).ok()),
        node_class: template.spec.node_class_ref.name.clone(),
        catalog,
        not_ready,
        deleting: pool.metadata.deletion_timestamp.is_some(),
        disruption: disruption(pool, &name, extra.now, nodes, rollouts.of(pool, class, extra.now)),
        on_demand,
        overlays: Vec::new(),
        costs,
        name: NodePoolName(name),
    })
}

/// The invalid annotations of a NodePool, because of which it launches nothing.
#[must_use]
pub fn invalid_annotations(pool: &ApiPool) -> Vec<FieldError> {
    let on_demand = on_demand::mix(&pool.metadata).err();
    // The node class changes the costs only.
    let costs = costs::read(&pool.metadata, None).err();
    let lifetime = lifetime_fault(&pool.metadata);
    let faults = [on_demand, costs, lifetime].into_iter().flatten();
    faults.map(|fault| FieldError::new(fault.field, fault.message)).collect()
}

/// The first invalid annotation about the lifetime of nodes.
fn lifetime_fault(pool: &ObjectMeta) -> Option<Fault> {
    expiry::jitter(pool).err().or_else(|| termination_delay(pool).err())
}

/// Limits of a NodePool without those beyond 64 bits, such as `1E` of CPU, which no pool reaches.
///
/// # Errors
/// A limit is not a quantity, or negative.
pub fn limits(pool: &ApiPool) -> Result<Resources, Fault> {
    let is_reachable = |name: &str, text: &str| {
        Quantity::parse(text).map_or(true, |limit| limit.is_negative() || limit.amount_of(name).is_some())
    };
    let reachable = pool.spec.limits.iter().filter(|(name, limit)| is_reachable(name, &limit.0));
    let reachable = reachable.map(|(name, limit)| (name.clone(), limit.clone())).collect();
    requests::amounts(Some(&reachable), "spec.limits")
}

/// The node classes by name; the first of several.
fn classes_by_name(objects: &Objects) -> BTreeMap<&str, &EC2NodeClass> {
    objects.node_classes.iter().rev().filter_map(|class| Some((class.metadata.name.as_deref()?, class))).collect()
}

/// The catalog of the pool, or the reason why the pool cannot launch nodes.
fn usable_catalog_of(
    pool: &ApiPool,
    class: Option<&EC2NodeClass>,
    extra: &Extra,
    checked: &mut CheckedPools,
) -> Result<CatalogId, PoolProblem> {
    let problem = |code: &str, message: String| PoolProblem { code: code.to_owned(), message };
    if let Some(error) = checked.error(pool) {
        return Err(problem("NodePoolInvalid", error));
    }
    let reference = &pool.spec.template.spec.node_class_ref;
    let Some(class) = class else {
        return Err(problem("NodeClassNotFound", format!("{} {:?} not found", reference.kind, reference.name)));
    };
    if let Some(message) = not_ready(class, extra.source) {
        return Err(problem("NodeClassNotReady", format!("EC2NodeClass {:?} {message}", reference.name)));
    }
    if let Some(message) = missing_partition(pool, class) {
        return Err(problem("NodePoolInvalid", message));
    }
    extra.catalogs.get(&reference.name).cloned().ok_or_else(|| {
        let reason =
            extra.catalog_problems.get(&reference.name).map(|reason| format!(": {reason}")).unwrap_or_default();
        problem("CatalogMissing", format!("no instance types are known for EC2NodeClass {:?}{reason}", reference.name))
    })
}

fn not_ready(class: &EC2NodeClass, source: Source) -> Option<String> {
    if class.metadata.deletion_timestamp.is_some() {
        return Some("is being deleted".to_owned());
    }
    match condition::get(class.conditions(), "Ready") {
        Some(ready) if ready.status == "True" => None,
        Some(ready) => Some(format!("is not ready: {}", ready.message)),
        // No controller has processed a class from a file.
        None if source == Source::Files => None,
        None => Some("has not been looked at yet".to_owned()),
    }
}

/// Why the class has no partition of a placement group that the pool allows, so that the actuator would refuse each
/// launch. `None` also as long as the selected group is not known.
fn missing_partition(pool: &ApiPool, class: &EC2NodeClass) -> Option<String> {
    let template = &pool.spec.template;
    let own = template.spec.requirements.iter().filter(|one| one.key == label::PLACEMENT_GROUP_PARTITION);
    let own: Vec<NodeSelectorRequirement> = own.map(NodeSelectorRequirement::from).collect();
    let mut all = Requirements::from_api(&own).ok()?;
    let labels = template.labels().filter(|(key, _)| *key == label::PLACEMENT_GROUP_PARTITION);
    all.add_all(&Requirements::from_labels(labels));
    let required = all.find(label::PLACEMENT_GROUP_PARTITION)?;
    let name = format!("EC2NodeClass {:?}", template.spec.node_class_ref.name);
    match class.placement_group() {
        None if class.spec.placement_group_selector.is_some() => None,
        Some(group) if group.strategy == PlacementStrategy::Partition => {
            let (id, count) = (&group.id, group.partition_count.unwrap_or(0));
            let is_missing = !(1..=count).any(|number| required.has(&number.to_string()));
            is_missing
                .then(|| format!("it requires {required}, but placement group {id} of {name} has {count} partitions"))
        }
        _ if required.allows_absence() => None,
        _ => Some(format!("it requires {required}, but {name} selects no partition placement group")),
    }
}

fn disruption(
    pool: &ApiPool,
    name: &str,
    now: Timestamp,
    nodes: &BTreeMap<&str, BudgetNodes<'_>>,
    rollout: Option<Rollout>,
) -> Disruption {
    let counts = nodes.get(name).map(BudgetNodes::counts).unwrap_or_default();
    let time = jiff::Timestamp::from_millisecond(now.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let next_budget_change = pool.spec.next_budget_change(time).map(|time| Timestamp(time.as_millisecond()));
    // Other disruptions of the pool do not hold a canary back, only the budgets count them.
    let rollout_limit = rollout.as_ref().and_then(|rollout| Some(rollout.limit()?.saturating_sub(rollout.replacing)));
    Disruption {
        policy: match pool.spec.consolidation_policy() {
            ApiPolicy::WhenEmpty => ConsolidationPolicy::WhenEmpty,
            ApiPolicy::WhenEmptyOrUnderutilized => ConsolidationPolicy::WhenEmptyOrUnderutilized,
            ApiPolicy::Balanced => ConsolidationPolicy::Balanced,
        },
        consolidate_after: pool.spec.consolidate_after().value().map(kube_time::millis),
        allowed: allowed_disruptions(pool, now, counts),
        rollout_limit,
        next_budget_change: next_budget_change.into_iter().chain(rollout.and_then(|rollout| rollout.next_change)).min(),
    }
}

/// Nodes that budgets allow to remove at `now`, by reason, if `disrupted` of the pool's `total` nodes are disrupted
/// already. A missing reason has no limit.
#[must_use]
pub fn allowed_disruptions(
    pool: &ApiPool,
    now: Timestamp,
    (total, disrupted): (u32, u32),
) -> BTreeMap<DisruptionReason, u32> {
    let time = jiff::Timestamp::from_millisecond(now.0).unwrap_or(jiff::Timestamp::UNIX_EPOCH);
    let limits = REASONS.iter().map(|(budget, reason)| (*reason, pool.spec.allowed_disruptions(*budget, time, total)));
    let limits = limits.filter(|(_, limit)| *limit != u32::MAX);
    limits.map(|(reason, limit)| (reason, limit.saturating_sub(disrupted))).collect()
}

/// What rollouts of pools rest on: only pools with drifted claims are looked at.
struct Rollouts<'a> {
    claims: BTreeMap<&'a str, Vec<&'a NodeClaim>>,
    nodes: BTreeMap<&'a str, &'a KubeNode>,
    /// Pods by node, of all nodes that may be canaries.
    pods: BTreeMap<&'a str, Vec<&'a Pod>>,
}

impl<'a> Rollouts<'a> {
    fn new(objects: &'a Objects) -> Self {
        let by_pool = rollout::claims_of_drifted_pools(objects.node_claims.iter());
        let nodes = objects.nodes.iter().filter(|_| !by_pool.is_empty());
        let nodes = nodes.filter_map(|node| Some((node.metadata.name.as_deref()?, node))).collect();
        let mut pods: BTreeMap<&str, Vec<&Pod>> = BTreeMap::new();
        let canaries = by_pool.values().flatten().copied().filter(|claim| !rollout::is_drifted(claim));
        let canaries: BTreeSet<&str> = canaries.filter_map(NodeClaim::node_name).collect();
        for pod in objects.pods.iter().filter(|_| !canaries.is_empty()) {
            if let Some(node) = pod.node_name.as_deref().filter(|node| canaries.contains(node)) {
                pods.entry(node).or_default().push(pod);
            }
        }
        Self { claims: by_pool, nodes, pods }
    }

    fn of(&self, pool: &ApiPool, class: Option<&EC2NodeClass>, now: Timestamp) -> Option<Rollout> {
        let claims = self.claims.get(pool.metadata.name.as_deref()?)?;
        let objects_of_pool = RolloutObjects { pool, class, claims, nodes: &self.nodes, now };
        rollout::of(&objects_of_pool, |node| self.pods.get(node).cloned().unwrap_or_default())
    }
}

/// The nodes of a NodePool to which its budgets refer. A node whose instance is being terminated has no pods any more
/// and is not one of them, as in Karpenter.
#[derive(Debug, Default)]
pub struct BudgetNodes<'a> {
    /// Number of nodes, to which percentages refer.
    pub total: u32,
    /// Nodes that are disrupted already: not ready, deleting or selected for removal.
    pub disrupted: Vec<&'a Node>,
}

impl BudgetNodes<'_> {
    /// Number of all nodes, and of those that are disrupted already.
    #[must_use]
    pub fn counts(&self) -> (u32, u32) {
        (self.total, u32::try_from(self.disrupted.len()).unwrap_or(u32::MAX))
    }
}

/// The nodes to which budgets refer, by NodePool.
#[must_use]
pub fn budget_nodes<'a>(objects: &Objects, nodes: &'a [Node]) -> BTreeMap<&'a str, BudgetNodes<'a>> {
    let is_removing =
        |claim: &&NodeClaim| is_deleting(claim) || annotations::text(&claim.metadata, annotation::REMOVAL).is_some();
    let removing: BTreeSet<&str> =
        objects.node_claims.iter().filter(is_removing).filter_map(|claim| claim.metadata.name.as_deref()).collect();
    let claims = objects.node_claims.iter().filter(|claim| claim.is_instance_terminating());
    let terminating: BTreeSet<&str> = claims.filter_map(|claim| claim.metadata.name.as_deref()).collect();
    let mut pools: BTreeMap<&str, BudgetNodes<'_>> = BTreeMap::new();
    for node in nodes.iter().filter(|node| node.state == NodeState::Initialized) {
        let Some(pool) = &node.node_pool else { continue };
        if node.node_claim.as_deref().is_some_and(|claim| terminating.contains(claim)) {
            continue;
        }
        let is_removing = node.node_claim.as_deref().is_some_and(|claim| removing.contains(claim));
        let of_pool = pools.entry(pool.as_str()).or_default();
        of_pool.total += 1;
        of_pool.disrupted.extend((!node.ready || node.deleting || is_removing).then_some(node));
    }
    pools
}

#[cfg(test)]
mod tests;

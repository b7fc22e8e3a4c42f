//! Explains why a pod is unschedulable: for each pool the first check that no offering passes, with amounts, and the
//! obstacles on existing nodes.

pub(crate) mod launch_reason;

mod amounts;
mod nodes;
mod too_large;
mod unmet;

use crate::input::capacity_quotas::counted_resource;
use crate::input::context::{SolveContext, tolerated};
use crate::input::intern::{Amounts, Bits};
use crate::input::offerings::{Alternative, PoolView};
use crate::place::State;
use crate::place::launch;
use crate::place::limits::{self, Headroom};
use crate::place::topology;
use amounts::{at_least, at_most};
use plimsoll_kubesched::ports_conflict;
use plimsoll_model::catalog::{Offering, reservation_of_resource};
use plimsoll_model::index::Id;
use plimsoll_model::names::{NODES_RESOURCE, USD_PER_HOUR_RESOURCE, annotation, label};
use plimsoll_model::plan::{Reason, ReasonCode};
use plimsoll_model::snapshot::{NodePool, PodShape, quota_of_resource};
use plimsoll_model::taints::Taint;
use std::collections::BTreeSet;

/// A feature of the shape that is not supported, or a problem of its volumes.
pub(crate) fn unsupported(shape: &PodShape) -> Option<Reason> {
    let reason = |code, message: String| Some(Reason { node_pool: String::new(), code, message });
    if let Some((claim, problem)) = shape.volumes.iter().find_map(|one| Some((&one.claim, one.problem.as_ref()?))) {
        return reason(ReasonCode::VolumeProblem, format!("volume {claim}: {problem}"));
    }
    let claim = shape.resource_claims.first()?;
    reason(
        ReasonCode::NotSupported,
        format!("resource claim {claim}: dynamic resource allocation is not supported yet"),
    )
}

/// One reason per pool of the snapshot, sorted by name, or one reason that there is no pool. Followed by one reason
/// about existing nodes, if there are any.
pub(crate) fn explain(context: &SolveContext<'_>, state: &State, shape: Id<PodShape>) -> Vec<Reason> {
    let mut pools: Vec<&NodePool> = context.snapshot.node_pools.iter().collect();
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    let of_pool = |pool: &NodePool| {
        let (code, message) = match context.pool_id(&pool.name) {
            Some(id) => noting_ratio(context, (id, shape), of_pool(context, state, id, shape)),
            None => not_ready(pool),
        };
        Reason { node_pool: pool.name.0.clone(), code, message }
    };
    let own = |code, message| Reason { node_pool: String::new(), code, message };
    let mut all: Vec<Reason> = pools.into_iter().map(of_pool).collect();
    if all.is_empty() {
        all.push(own(ReasonCode::NoNodePool, "there is no NodePool".to_owned()));
    }
    all.extend(nodes::explain(context, state, shape).map(|message| own(ReasonCode::NoExistingNode, message)));
    all
}

/// Pools whose own requirements, or whose DaemonSets, leave no offering for any pod, sorted by name.
pub(crate) fn of_pools(context: &SolveContext<'_>) -> Vec<Reason> {
    let problem = |view: &PoolView<'_>| {
        let (code, message) = if view.allowed.is_empty() {
            (ReasonCode::RequirementsIncompatible, unmet::by_itself(view))
        } else if let Some(text) = too_large::by_daemon_sets(context, view, &view.allowed) {
            (ReasonCode::InsufficientResources, text)
        } else if view.strict_min_values && launch::acceptable(view, &view.allowed).is_none() {
            (ReasonCode::MinValuesNotMet, unmet::by_min_values(view, &view.allowed))
        } else {
            return None;
        };
        Some(Reason { node_pool: view.pool.name.0.clone(), code, message })
    };
    let mut all: Vec<Reason> = context.pools.iter().filter_map(problem).collect();
    all.sort();
    all
}

fn not_ready(pool: &NodePool) -> (ReasonCode, String) {
    match &pool.not_ready {
        Some(problem) if problem.code == "NodeClassNotFound" => {
            (ReasonCode::NodeClassNotFound, problem.message.clone())
        }
        Some(problem) => (ReasonCode::NodePoolNotReady, format!("{}: {}", problem.code, problem.message)),
        None if pool.deleting => (ReasonCode::NodePoolNotReady, "the NodePool is being deleted".to_owned()),
        None if pool.replicas.is_some() => {
            (ReasonCode::NodePoolNotReady, "the NodePool is static: it launches nothing for pods".to_owned())
        }
        None => (ReasonCode::NodePoolNotReady, "the catalog of the NodePool is missing".to_owned()),
    }
}

/// Adds to the reason that an On-Demand ratio requires On-Demand, if only this excludes all usable offerings.
fn noting_ratio(
    context: &SolveContext<'_>,
    (pool, shape): (Id<NodePool>, Id<PodShape>),
    (code, message): (ReasonCode, String),
) -> (ReasonCode, String) {
    let (view, pods) = (&context.pools[pool], &context.shapes[shape]);
    if code == ReasonCode::TaintNotTolerated || !pods.fits[pool].is_empty() {
        return (code, message);
    }
    let usable =
        |shape: &PodShape| view.any_of(&view.reachable(shape)).and(&view.usable).meets(&view.roomy(pods.requests));
    if !context.original(shape).is_some_and(usable) {
        return (code, message);
    }
    let annotations = format!("{} or {}", annotation::ON_DEMAND_BASE, annotation::ON_DEMAND_PERCENTAGE);
    (code, format!("{message}; {annotations} requires On-Demand for this pod"))
}

fn of_pool(context: &SolveContext<'_>, state: &State, pool: Id<NodePool>, shape: Id<PodShape>) -> (ReasonCode, String) {
    let (view, pods) = (&context.pools[pool], &context.shapes[shape]);
    if view.allowed.is_empty() {
        return (ReasonCode::RequirementsIncompatible, unmet::by_itself(view));
    }
    if !tolerated(&view.pool.taints, &pods.shape.tolerations, true) {
        return (ReasonCode::TaintNotTolerated, toleration_text(&view.pool.taints, pods.shape));
    }
    if !view.any_of(&view.alternatives(pods.shape)).meets(&view.allowed) {
        return (ReasonCode::RequirementsIncompatible, unmet::by_pod(view, pods.shape));
    }
    let mut near = view.attachable(pods.shape);
    near.iter_mut().for_each(|one| one.offerings.keep(&view.allowed));
    if near.iter().all(|one| one.offerings.is_empty()) {
        return (ReasonCode::VolumeProblem, unmet::by_volumes(view, pods.shape));
    }
    let selected = view.any_of(&view.reachable(pods.shape)).and(&view.allowed);
    if selected.is_empty() {
        if let Some(reason) = taken_ports(context, view, pods.shape, &near) {
            return reason;
        }
        let text = "podAntiAffinity excludes pods of a DaemonSet that runs on every matching node";
        return (ReasonCode::TopologyUnsatisfiable, text.to_owned());
    }
    let mut roomy = selected.and(&view.roomy(pods.requests));
    if roomy.is_empty() {
        return (ReasonCode::InsufficientResources, too_large::text(context, view, &selected, pods.requests));
    }
    roomy.retain(|offering| !ports_conflict(&pods.shape.host_ports, &view.offerings[offering].ports));
    if roomy.is_empty()
        && let Some(reason) = taken_ports(context, view, pods.shape, &near)
    {
        return reason;
    }
    let headroom = &state.headroom[pool];
    if let Some(reason) = unobtainable(context, pool, headroom, &roomy) {
        return reason;
    }
    if state.work == 0 {
        return (ReasonCode::BudgetExhausted, "the work budget was exhausted before this pod".to_owned());
    }
    if context.topology.concerns(shape) || !pods.hosts.is_free() {
        return by_topology(context, state, (pool, shape), &roomy);
    }
    if let Some(reason) = taken_ports(context, view, pods.shape, &near) {
        return reason;
    }
    if !headroom.iter().any(Option::is_some) {
        let message = "pods that are placed before it leave no place for it, since their constraints count it";
        return (ReasonCode::TopologyUnsatisfiable, message.to_owned());
    }
    let usable = view.preferred(&roomy.and(&view.usable), &context.ordinary[pool]);
    (ReasonCode::LimitReached, limit_text(context, view, headroom, &usable, None))
}

/// The first check of availability, capacity, limits and `minValues` that `fitting` offerings do not pass.
fn unobtainable(
    context: &SolveContext<'_>,
    pool: Id<NodePool>,
    headroom: &Headroom,
    fitting: &Bits<Offering>,
) -> Option<(ReasonCode, String)> {
    let view = &context.pools[pool];
    let offered = fitting.and(&view.offered);
    if offered.is_empty() {
        return Some((ReasonCode::NoOffering, unmet::by_availability(view, fitting)));
    }
    let usable = view.preferred(&offered.and(&view.usable), &context.ordinary[pool]);
    if usable.is_empty() {
        let count = offered.iter().count();
        return Some((ReasonCode::OutOfCapacity, format!("all {count} matching offerings are out of capacity")));
    }
    let mut within = usable.clone();
    within.retain(|offering| limits::allows(headroom, view.capacity(offering)));
    let has_values = |some: &Bits<Offering>| !view.strict_min_values || launch::acceptable(view, some).is_some();
    if !within.is_empty() && has_values(&within) {
        return None;
    }
    if !has_values(&usable) {
        return Some((ReasonCode::MinValuesNotMet, unmet::by_min_values(view, &usable)));
    }
    // A launch also counts the types that `minValues` needs.
    let cheapest = within.first().or_else(|| usable.first()).filter(|_| view.strict_min_values);
    let charge = cheapest.and_then(|cheapest| limits::charge(view, &usable, cheapest, headroom));
    let reserved = usable.iter().all(|offering| view.is_reserved(offering));
    let code = if reserved { ReasonCode::OutOfCapacity } else { ReasonCode::LimitReached };
    Some((code, limit_text(context, view, headroom, &usable, charge.as_ref())))
}

/// Explains why the topology constraints of the shape leave none of the `fitting` offerings: the domains that they
/// leave may lack capacity, or be beyond the limits.
fn by_topology(
    context: &SolveContext<'_>,
    state: &State,
    (pool, shape): (Id<NodePool>, Id<PodShape>),
    fitting: &Bits<Offering>,
) -> (ReasonCode, String) {
    let view = &context.pools[pool];
    let open = topology::open_offerings(context, state, (view, shape), fitting);
    if open.is_empty() {
        return (ReasonCode::TopologyUnsatisfiable, topology::explain(context, state, shape));
    }
    if let Some((code, text)) = unobtainable(context, pool, &state.headroom[pool], &open) {
        return (code, format!("{}: {text}", topology::left_text(context, (view, shape), &open)));
    }
    // All offerings of a launch for the pod are in one domain.
    let has_one_value = |key: &str| topology::assigns(context, shape, label::normalized(key));
    match unmet::min_values(view).find(|(key, wanted)| *wanted > 1 && has_one_value(key)) {
        Some((key, wanted)) => {
            let asked = format!("minValues of the NodePool asks for {wanted} values of {key}");
            (ReasonCode::MinValuesNotMet, format!("{asked}, but topology constraints permit one for each node"))
        }
        None => (ReasonCode::TopologyUnsatisfiable, topology::explain(context, state, shape)),
    }
}

/// Names the DaemonSets that take host ports of the shape on nodes of `near`, with these ports.
fn taken_ports(
    context: &SolveContext<'_>,
    view: &PoolView<'_>,
    shape: &PodShape,
    near: &[Alternative],
) -> Option<(ReasonCode, String)> {
    let mut taken: BTreeSet<String> = BTreeSet::new();
    for daemon in &view.daemons {
        let ports: BTreeSet<u16> = daemon.taken_ports(shape, near).into_iter().collect();
        if ports.is_empty() {
            continue;
        }
        let ports = ports.iter().map(ToString::to_string).collect::<Vec<String>>().join(", ");
        let sets = context.snapshot.daemon_sets.iter().filter(|one| one.shape == *daemon.shape_id());
        taken.extend(sets.map(|one| format!("DaemonSet {}/{} takes host port {ports}", one.namespace, one.name)));
    }
    let text = taken.into_iter().collect::<Vec<String>>().join("; ");
    (!text.is_empty()).then_some((ReasonCode::HostPortConflict, text))
}

fn taint_text(taints: &[Taint], shape: &PodShape) -> String {
    let all: Vec<String> = untolerated(taints, shape).map(taint_name).collect();
    format!("does not tolerate the taint {}", all.join(" and "))
}

/// Like [`taint_text`], with the tolerations to add.
fn toleration_text(taints: &[Taint], shape: &PodShape) -> String {
    let toleration = |taint: &Taint| {
        let value = match taint.value.as_str() {
            "" => "operator: Exists".to_owned(),
            value => format!("operator: Equal, value: {value:?}"),
        };
        format!("{{key: {}, {value}, effect: {}}}", taint.key, taint.effect.as_str())
    };
    let missing: Vec<String> = untolerated(taints, shape).map(toleration).collect();
    format!("{}; to tolerate it, add to spec.tolerations: [{}]", taint_text(taints, shape), missing.join(", "))
}

fn untolerated<'t>(taints: &'t [Taint], shape: &PodShape) -> impl Iterator<Item = &'t Taint> {
    taints.iter().filter(|taint| !tolerated(std::slice::from_ref(*taint), &shape.tolerations, true))
}

fn taint_name(taint: &Taint) -> String {
    let value = if taint.value.is_empty() { String::new() } else { format!("={}", taint.value) };
    format!("{}{value}:{}", taint.key, taint.effect.as_str())
}

/// Describes the limits that each exclude all of `usable`, or what a launch counts `with_min_values`, and the value
/// that would permit the smallest type, or this launch. If no single limit does, describes all of them.
fn limit_text(
    context: &SolveContext<'_>,
    view: &PoolView<'_>,
    headroom: &Headroom,
    usable: &Bits<Offering>,
    with_min_values: Option<&Amounts>,
) -> String {
    let least = |resource: usize| {
        if let Some(charge) = with_min_values {
            return charge.get(resource).copied().unwrap_or(0);
        }
        let amounts = usable.iter().filter_map(|offering| view.capacity(offering).get(resource));
        amounts.copied().min().unwrap_or(0)
    };
    let limited = || headroom.iter().enumerate().filter_map(|(resource, left)| Some((resource, *left.as_ref()?)));
    let usage = |resource: usize, left: i64| {
        let name = context.table.name(resource);
        if let Some(id) = reservation_of_resource(name) {
            return (0, format!("capacity reservation {id} has no free instance"));
        }
        if let Some((quota, resource)) = quota_of_resource(name) {
            let limit = context.snapshot.capacity_quotas.iter().find(|one| one.name == quota);
            let limit = limit.map_or(0, |one| one.limits.get(resource));
            let used = limit.saturating_sub(left);
            let (most, amount) = (at_most(resource, limit), at_least(resource, used));
            return (
                used,
                format!("CapacityQuota {quota}: spec.limits.resources.{resource} is {most}, {amount} in use"),
            );
        }
        let limit = view.pool.limits.get(name);
        let used = limit.saturating_sub(left);
        (used, format!("spec.limits.{name} is {}, {} in use", at_most(name, limit), at_least(name, used)))
    };
    let alone: Vec<String> = limited()
        .filter(|(resource, left)| least(*resource) > *left)
        .map(|(resource, left)| {
            let (name, least) = (counted_resource(context.table.name(resource)), least(resource));
            let (used, text) = usage(resource, left);
            if reservation_of_resource(name).is_some() {
                return text;
            }
            let smallest = match name {
                _ if with_min_values.is_some() => format!("with minValues a launch counts {}: ", at_least(name, least)),
                NODES_RESOURCE => String::new(),
                USD_PER_HOUR_RESOURCE => format!("the cheapest matching offering costs {}: ", at_least(name, least)),
                _ => format!("the smallest matching instance type has {}: ", at_least(name, least)),
            };
            format!("{text}; {smallest}raise it to {} or more", at_least(name, used.saturating_add(least)))
        })
        .collect();
    if !alone.is_empty() {
        return alone.join("; ");
    }
    let full = |(resource, left): &(usize, i64)| {
        reservation_of_resource(context.table.name(*resource)).is_none() || *left <= 0
    };
    let all: Vec<String> = limited().filter(full).map(|(resource, left)| usage(resource, left).1).collect();
    format!("no matching instance type is within all limits: {}", all.join(", "))
}

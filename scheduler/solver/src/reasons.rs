//! Why a pod has no place: one reason per pool, with figures.

use crate::intern::Bits;
use crate::limits::{self, Headroom};
use crate::offerings::PoolView;
use crate::place::State;
use crate::world::{World, tolerated};
use plimsoll_model::plan::{Reason, ReasonCode};
use plimsoll_model::resources::{CPU, Resources};
use plimsoll_model::snapshot::{NodePool, PodShape};

/// What a shape uses that is not done yet, or that cannot be done.
pub(crate) fn unsupported(shape: &PodShape) -> Option<Reason> {
    let reason = |code, message: String| Some(Reason { node_pool: String::new(), code, message });
    if let Some((claim, problem)) = shape.volumes.iter().find_map(|one| Some((&one.claim, one.problem.as_ref()?))) {
        return reason(ReasonCode::VolumeProblem, format!("volume {claim}: {problem}"));
    }
    if let Some(volume) = shape.volumes.iter().find(|one| !one.alternatives.is_empty()) {
        let text = format!("volume {} is bound to a topology, which is not supported yet", volume.claim);
        return reason(ReasonCode::NotSupported, text);
    }
    let claim = shape.resource_claims.first()?;
    reason(
        ReasonCode::NotSupported,
        format!("resource claim {claim}: dynamic resource allocation is not supported yet"),
    )
}

/// One reason per pool of the snapshot, by name, or one that there is none.
pub(crate) fn explain(world: &World<'_>, state: &State, shape: usize) -> Vec<Reason> {
    let mut pools: Vec<&NodePool> = world.snapshot.node_pools.iter().collect();
    pools.sort_by(|a, b| a.name.cmp(&b.name));
    if pools.is_empty() {
        let message = "there is no NodePool, and no node has room".to_owned();
        return vec![Reason { node_pool: String::new(), code: ReasonCode::NoNodePool, message }];
    }
    pools
        .into_iter()
        .map(|pool| {
            let (code, message) = match world.pools.iter().position(|view| view.pool.name == pool.name) {
                Some(index) => of_pool(world, state, index, shape),
                None => not_ready(pool),
            };
            Reason { node_pool: pool.name.0.clone(), code, message }
        })
        .collect()
}

fn not_ready(pool: &NodePool) -> (ReasonCode, String) {
    match &pool.not_ready {
        Some(problem) if problem.code == "NodeClassNotFound" => {
            (ReasonCode::NodeClassNotFound, format!("{}: {}", problem.code, problem.message))
        }
        Some(problem) => (ReasonCode::NodePoolNotReady, format!("{}: {}", problem.code, problem.message)),
        None if pool.deleting => (ReasonCode::NodePoolNotReady, "the NodePool is being deleted".to_owned()),
        None if pool.replicas.is_some() => {
            (ReasonCode::NodePoolNotReady, "the NodePool is static: it launches nothing for pods".to_owned())
        }
        None => (ReasonCode::NodePoolNotReady, "the catalog of the NodePool is missing".to_owned()),
    }
}

fn of_pool(world: &World<'_>, state: &State, pool: usize, shape: usize) -> (ReasonCode, String) {
    let (view, pods) = (&world.pools[pool], &world.shapes[shape]);
    if !tolerated(&view.pool.taints, &pods.shape.tolerations, true) {
        let taint = plimsoll_model::taints::untolerated(&view.pool.taints, &pods.shape.tolerations);
        let text = taint.map_or(String::new(), |one| format!("{}={}:{}", one.key, one.value, one.effect.as_str()));
        return (ReasonCode::TaintNotTolerated, format!("does not tolerate the taint {text}"));
    }
    let mut selected = Bits::none(view.offerings.len());
    view.alternatives(pods.shape).iter().for_each(|one| selected.join(&one.offerings));
    selected.keep(&view.allowed);
    if selected.is_empty() {
        return (ReasonCode::RequirementsIncompatible, incompatible(view, pods.shape));
    }
    let mut roomy = selected.clone();
    roomy.keep(&view.roomy(&pods.requests));
    if roomy.is_empty() {
        return (ReasonCode::InsufficientResources, too_large(world, view, &selected, &pods.requests));
    }
    let mut offered = roomy.clone();
    offered.keep(&view.offered);
    if offered.is_empty() {
        let count = roomy.iter().count();
        return (ReasonCode::NoOffering, format!("{count} offerings would do, but none of them can be asked for"));
    }
    let mut usable = offered.clone();
    usable.keep(&view.usable);
    if usable.is_empty() {
        let count = offered.iter().count();
        return (ReasonCode::OutOfCapacity, format!("all {count} offerings that would do are out of capacity"));
    }
    let headroom = &state.headroom[pool];
    let capacity = |index: usize| &view.types[view.offerings[index].type_index].capacity;
    if !usable.iter().any(|index| limits::allows(headroom, capacity(index))) {
        return (ReasonCode::LimitReached, limit_text(world, view, headroom));
    }
    if state.work == 0 {
        return (ReasonCode::BudgetExhausted, "the work budget was used up before this pod".to_owned());
    }
    if view.flexible {
        let text = "too few different instance types are left for minValues of the NodePool".to_owned();
        return (ReasonCode::RequirementsIncompatible, text);
    }
    if world.topology.concerns(shape) || !pods.hosts.is_free() {
        let text = "topology spread, affinity or anti-affinity of pods leaves no domain with room".to_owned();
        return (ReasonCode::RequirementsIncompatible, text);
    }
    if !pods.shape.host_ports.is_empty() {
        let ports: Vec<String> = pods.shape.host_ports.iter().map(|port| port.port.to_string()).collect();
        return (ReasonCode::HostPortConflict, format!("a DaemonSet takes host port {}", ports.join(", ")));
    }
    (ReasonCode::LimitReached, limit_text(world, view, headroom))
}

fn incompatible(view: &PoolView<'_>, shape: &PodShape) -> String {
    let mut asked: Vec<String> = shape.node_selector.iter().map(|(key, value)| format!("{key} In [{value}]")).collect();
    asked.extend(shape.required_node_affinity.iter().map(|term| {
        let all = term.expressions.iter();
        all.map(|one| format!("{} {} [{}]", one.key, one.operator.as_str(), one.values.join(", ")))
            .collect::<Vec<_>>()
            .join(" and ")
    }));
    let allowed = view.allowed.iter().count();
    if asked.is_empty() {
        return "the requirements of the NodePool leave no instance type".to_owned();
    }
    format!("none of the {allowed} offerings of the NodePool satisfies {}", asked.join("; "))
}

fn too_large(world: &World<'_>, view: &PoolView<'_>, among: &Bits, requests: &[i64]) -> String {
    let mut parts = Vec::new();
    for (resource, need) in requests.iter().enumerate().filter(|(_, need)| **need > 0) {
        let most = among.iter().map(|index| view.offerings[index].room[resource]).max().unwrap_or(0).max(0);
        if most < *need {
            let name = world.table.name(resource);
            let (need, most) = (shown(name, *need), shown(name, most));
            parts.push(format!("needs {need} {name}, the largest allowed type has {most} beside its DaemonSets"));
        }
    }
    if parts.is_empty() {
        let need = world.table.resources(requests);
        parts.push(format!("no allowed type has all of {} at once", listed(&need)));
    }
    parts.join("; ")
}

fn limit_text(world: &World<'_>, view: &PoolView<'_>, headroom: &Headroom) -> String {
    let left: Vec<String> = headroom
        .iter()
        .enumerate()
        .filter_map(|(index, left)| {
            let name = world.table.name(index);
            let limit = shown(name, view.pool.limits.get(name));
            left.map(|left| format!("{} of {limit} {name}", shown(name, left.max(0))))
        })
        .collect();
    format!("the limits of the NodePool leave {}, too little for any type that would do", left.join(" and "))
}

fn listed(resources: &Resources) -> String {
    resources.iter().map(|(name, amount)| format!("{} {name}", shown(name, amount))).collect::<Vec<_>>().join(", ")
}

/// Millicores as cores, everything else as it is.
fn shown(name: &str, amount: i64) -> String {
    if name != CPU {
        return amount.to_string();
    }
    let (whole, rest) = (amount / 1000, (amount % 1000).abs());
    if rest == 0 { whole.to_string() } else { format!("{whole}.{rest:03}").trim_end_matches('0').to_owned() }
}

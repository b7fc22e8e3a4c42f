//! Facts that the script asks a world for.

use jiff::Timestamp;
use plimsoll_model::names::label;
use plimsoll_model::quantity::Quantity;
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::Object;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Outcome};
use plimsoll_sim::world::{World, is_pending, is_running};
use serde_json::Value;
use std::sync::Arc;

/// Instance types and zones of the blog author's pool.
const BACKEND_TYPES: [&str; 6] = ["c6g.large", "c6g.xlarge", "c6g.medium", "m6g.xlarge", "m6g.medium", "m6g.large"];
const BACKEND_ZONES: [&str; 2] = ["ap-northeast-2a", "ap-northeast-2b"];

fn of_pool(world: &World, kind: ResourceId, pool: &str) -> Vec<Object> {
    let mut all = world.all(kind);
    all.retain(|object| object::label(object, label::NODE_POOL) == Some(pool));
    all
}

/// NodeClaims of a pool.
pub(super) fn claims_of(world: &World, pool: &str) -> Vec<Object> {
    of_pool(world, ResourceId::NODE_CLAIMS, pool)
}

/// Nodes of a pool.
pub(super) fn nodes_of(world: &World, pool: &str) -> Vec<Object> {
    of_pool(world, ResourceId::NODES, pool)
}

/// Whether a node is one that the blog author's pool allows.
pub(super) fn is_backend(node: &Object) -> bool {
    let allowed = |key, list: &[&str]| object::label(node, key).is_some_and(|value| list.contains(&value));
    allowed(label::INSTANCE_TYPE, &BACKEND_TYPES) && allowed(label::ZONE, &BACKEND_ZONES)
}

/// CPUs of a pool's NodeClaims in thousandths.
pub(super) fn cpu_of_claims(world: &World, pool: &str) -> i64 {
    let cpu = |claim: &Arc<Value>| {
        Quantity::parse(object::text(claim, &["status", "capacity", "cpu"])).ok().and_then(|cpu| cpu.amount_of("cpu"))
    };
    claims_of(world, pool).iter().filter_map(cpu).sum()
}

/// Pods of a Deployment that run.
pub(super) fn pods_on(world: &World, app: &str) -> usize {
    world.count(ResourceId::PODS, |pod| object::label(pod, "app") == Some(app) && is_running(pod))
}

/// An event of a pending pod of a Deployment, other than the scheduler's own, that has a word in it.
pub(super) fn pending_because(world: &World, app: &str, word: &str) -> Option<String> {
    let pods = world.all(ResourceId::PODS);
    let mut pending = pods.iter().filter(|pod| object::label(pod, "app") == Some(app) && is_pending(pod));
    pending.find_map(|pod| {
        let mut events = world.events_of("Pod", object::name(pod)).into_iter();
        let found = events.find(|event| event.contains(word) && !event.contains("nodes are available"))?;
        Some(format!("{}: {found}", object::name(pod)))
    })
}

/// When fleets were bought since a time.
pub(super) fn fleet_calls_since(world: &World, since: Timestamp) -> Vec<i64> {
    world.ec2.read(|cloud, _| {
        let calls =
            cloud.log.iter().filter(|call| call.action == Action::CreateFleet && call.outcome == Outcome::Served);
        calls.map(|call| call.at.0).filter(|at| *at >= since.as_millisecond()).collect()
    })
}

/// When the first eviction since a time was asked for.
pub(super) fn drain_began(world: &World, since: Timestamp) -> Option<i64> {
    let audit = world.server().audit();
    let evictions = audit.iter().filter(|entry| entry.verb == Verb::Create && entry.subresource == "eviction");
    evictions.map(|entry| entry.at).find(|at| *at >= since).map(|at| at.as_millisecond())
}

/// Evictions let through since a time.
pub(super) fn evictions_since(world: &World, since: Timestamp) -> usize {
    let audit = world.server().audit();
    audit.iter().filter(|entry| entry.subresource == "eviction" && entry.code == 201 && entry.at >= since).count()
}

//! Queries of the script on a world.

use jiff::Timestamp;
use plimsoll_model::names::label;
use plimsoll_model::quantity::Quantity;
use plimsoll_sim::apiserver::request::Verb;
use plimsoll_sim::apiserver::store::Object;
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::cloud::{Action, Outcome};
use plimsoll_sim::world::{World, is_pending, is_running};
use serde_json::Value;
use std::collections::BTreeSet;
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

/// Description of what the pool allows.
pub(super) fn backend() -> String {
    format!("{} in {}", BACKEND_TYPES.join(", "), BACKEND_ZONES.join(" and "))
}

/// Distinct pairs of type and zone of nodes.
pub(super) fn types_and_zones(nodes: &[Object]) -> String {
    let text = |node: &Object, key| object::label(node, key).unwrap_or("?").to_owned();
    let pairs = nodes.iter().map(|node| format!("{} in {}", text(node, label::INSTANCE_TYPE), text(node, label::ZONE)));
    pairs.collect::<BTreeSet<_>>().into_iter().collect::<Vec<_>>().join(", ")
}

/// CPUs of a pool's NodeClaims, in millicores.
pub(super) fn cpu_of_claims(world: &World, pool: &str) -> i64 {
    let cpu = |claim: &Arc<Value>| {
        Quantity::parse(object::text(claim, &["status", "capacity", "cpu"])).ok().and_then(|cpu| cpu.amount_of("cpu"))
    };
    claims_of(world, pool).iter().filter_map(cpu).sum()
}

/// Number of running pods of a Deployment.
pub(super) fn pods_on(world: &World, app: &str) -> usize {
    world.count(ResourceId::PODS, |pod| object::label(pod, "app") == Some(app) && is_running(pod))
}

/// A pending pod of a Deployment, and its event with a given word, except for events of the scheduler.
pub(super) fn pending_because(world: &World, app: &str, word: &str) -> Option<(String, String)> {
    let pods = world.all(ResourceId::PODS);
    let mut pending = pods.iter().filter(|pod| object::label(pod, "app") == Some(app) && is_pending(pod));
    pending.find_map(|pod| {
        let mut events = world.events_of("Pod", object::name(pod)).into_iter();
        let found = events.find(|event| event.contains(word) && !event.contains("nodes are available"))?;
        Some((object::name(pod).to_owned(), found))
    })
}

/// The part of an event about one NodePool. An event has a reason for each NodePool and for the existing nodes.
pub(super) fn reason_of_pool<'event>(event: &'event str, pool: &str) -> &'event str {
    let name = format!("NodePool \"{pool}\"");
    let reason = event.split("; ").find_map(|part| part.find(&name).and_then(|at| part.get(at..)));
    reason.unwrap_or(event)
}

/// Times of CreateFleet calls since a time.
pub(super) fn fleet_calls_since(world: &World, since: Timestamp) -> Vec<i64> {
    world.ec2.read(|cloud, _| {
        let calls =
            cloud.log.iter().filter(|call| call.action == Action::CreateFleet && call.outcome == Outcome::Served);
        calls.map(|call| call.at.0).filter(|at| *at >= since.as_millisecond()).collect()
    })
}

/// Time of the first eviction request since a time.
pub(super) fn drain_began(world: &World, since: Timestamp) -> Option<i64> {
    let audit = world.server().audit();
    let evictions = audit.iter().filter(|entry| entry.verb == Verb::Create && entry.subresource == "eviction");
    evictions.map(|entry| entry.at).find(|at| *at >= since).map(|at| at.as_millisecond())
}

/// Number of successful evictions since a time.
pub(super) fn evictions_since(world: &World, since: Timestamp) -> usize {
    let audit = world.server().audit();
    audit.iter().filter(|entry| entry.subresource == "eviction" && entry.code == 201 && entry.at >= since).count()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_pool_is_introduced_as_its_manifest_has_it() {
        let manifest = include_str!("../seed-000.yaml");
        for values in [BACKEND_TYPES.as_slice(), BACKEND_ZONES.as_slice()] {
            let list: Vec<String> = values.iter().map(|value| format!("\"{value}\"")).collect();
            let list = format!("values: [ {} ]", list.join(", "));
            assert!(manifest.contains(&list), "{list}");
            assert!(values.iter().all(|value| backend().contains(value)));
        }
    }

    #[test]
    fn of_an_event_only_what_is_said_about_the_pool_is_told() {
        let event = r#"FailedScheduling: no node: NodePool "a": Incompatible: arch; NodePool "b": LimitReached: 0 of 10 cpu; NoExistingNode: 1"#;
        assert_eq!(reason_of_pool(event, "a"), r#"NodePool "a": Incompatible: arch"#);
        assert_eq!(reason_of_pool(event, "b"), r#"NodePool "b": LimitReached: 0 of 10 cpu"#);
        assert_eq!(reason_of_pool(event, "c"), event);
    }
}

//! What happened in a world, read from the server's history, so that nothing between two looks is missed.

use plimsoll_model::names::label;
use plimsoll_model::quantity::Quantity;
use plimsoll_sim::apiserver::store::{ChangeKind, Store};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use serde_json::Value;
use std::collections::{BTreeMap, BTreeSet};

fn changes(store: &Store) -> Vec<(ChangeKind, Value)> {
    // The history goes back to the beginning in a run as short as these.
    let events = store.events_after(ResourceId::NODE_CLAIMS, 0).unwrap();
    events.map(|event| (event.kind, (*event.object).clone())).collect()
}

/// Instances that claims had at any time, by claim UID.
///
/// # Panics
/// The history does not go back to the beginning, or a claim had two instances.
#[must_use]
pub fn claims_ever_launched(world: &World) -> BTreeMap<String, String> {
    let mut launched: BTreeMap<String, String> = BTreeMap::new();
    for (_, claim) in world.server().read(changes) {
        let provider_id = object::text(&claim, &["status", "providerID"]);
        if provider_id.is_empty() {
            continue;
        }
        let instance = provider_id.rsplit('/').next().unwrap_or_default().to_owned();
        if let Some(before) = launched.insert(object::uid(&claim).to_owned(), instance.clone()) {
            assert_eq!(before, instance, "claim {} had two instances", object::name(&claim));
        }
    }
    launched
}

/// Every instance that was ever bought.
#[must_use]
pub fn instances_ever_launched(world: &World) -> BTreeSet<String> {
    world.ec2.read(|cloud, _| cloud.ever_launched().iter().cloned().collect())
}

/// The most CPU, in thousandths, that the claims of a pool had at any time, claims being deleted included.
///
/// # Panics
/// The history does not go back to the beginning.
#[must_use]
pub fn most_cpu_of_claims(world: &World, pool: &str) -> i64 {
    let mut present: BTreeMap<String, i64> = BTreeMap::new();
    let mut most = 0;
    for (kind, claim) in world.server().read(changes) {
        let uid = object::uid(&claim).to_owned();
        if object::label(&claim, label::NODE_POOL) != Some(pool) {
            continue;
        }
        if kind == ChangeKind::Deleted {
            present.remove(&uid);
        } else {
            let cpu = Quantity::parse(object::text(&claim, &["status", "capacity", "cpu"])).ok();
            present.insert(uid, cpu.and_then(|cpu| cpu.amount_of("cpu")).unwrap_or(0));
        }
        most = most.max(present.values().sum());
    }
    most
}

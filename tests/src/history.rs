//! Queries on the history of a world. The history includes states that polling would miss.

use plimsoll_model::names::label;
use plimsoll_model::quantity::Quantity;
use plimsoll_sim::apiserver::store::{ChangeKind, Object, Store};
use plimsoll_sim::apiserver::{ResourceId, object};
use plimsoll_sim::world::World;
use std::collections::{BTreeMap, BTreeSet};

fn changes(store: &Store) -> Vec<(ChangeKind, Object)> {
    // In short runs, the history is complete.
    let events = store.events_after(ResourceId::NODE_CLAIMS, 0).unwrap();
    events.map(|event| (event.kind, event.object.clone())).collect()
}

/// Instances of every claim that ever existed, by claim UID.
///
/// # Panics
/// If the history is not complete, or a claim had two instances.
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

/// Every instance that was ever launched.
#[must_use]
pub fn instances_ever_launched(world: &World) -> BTreeSet<String> {
    world.ec2.read(|cloud, _| cloud.ever_launched().iter().cloned().collect())
}

/// Maximum CPU, in millicores, of the claims of a pool at any time, including claims that are being deleted.
///
/// # Panics
/// If the history is not complete.
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

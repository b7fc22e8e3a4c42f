//! WatchCatalog: streams the catalog of each node class. Catalogs that the client already has are not sent again.

use super::Leader;
use super::{Responses, streaming};
use crate::clock::Timestamped;
use crate::ledger::view;
use crate::state::catalogs::{CatalogEntry, Entries};
use plimsoll_model::execution::CatalogUpdate;
use plimsoll_model::snapshot::UnavailableOffering;
use plimsoll_proto::actuator::v1 as wire;
use std::collections::BTreeSet;
use tokio_util::sync::CancellationToken;

/// Catalog ids that a client may declare as known. Further ids are ignored, so those catalogs are sent again.
const MAX_KNOWN: usize = 1024;

pub(super) fn watch(
    deps: Leader,
    request: wire::WatchCatalogRequest,
    stop: CancellationToken,
) -> Responses<wire::WatchCatalogResponse> {
    streaming(deps, stop, move |deps, sender| async move {
        let mut known_ids: BTreeSet<String> = request.known_catalog_ids.into_iter().take(MAX_KNOWN).collect();
        let mut entries = deps.catalogs.subscribe();
        let mut ledger = deps.ledger.subscribe();
        let mut shifts = deps.zonal_shifts.subscribe();
        let mut sent = Entries::default();
        let mut sent_unavailable: Option<Vec<UnavailableOffering>> = None;
        let mut sent_zones: Option<BTreeSet<String>> = None;
        let mut complete = false;
        loop {
            let now = entries.borrow_and_update().clone();
            ledger.mark_unchanged();
            shifts.mark_unchanged();
            let mut updates = differences(&sent, &now, &mut known_ids);
            let unavailable = view::unavailable(&deps.view);
            let unavailable_offerings =
                sent_unavailable.as_ref().is_none_or(|sent| has_new(sent, &unavailable)).then(|| unavailable.clone());
            // A new leader builds the catalogs first. Until all are built, a missing catalog does not mean that it is
            // gone.
            let first_complete = !complete && is_whole(&deps, &now);
            let zones = deps.zonal_shifts.zones(&deps.stores, deps.clock.timestamp());
            let shifted_zones = (sent_zones.as_ref() != Some(&zones)).then_some(zones);
            if unavailable_offerings.is_some() || shifted_zones.is_some() || first_complete {
                sent_zones = shifted_zones.clone().or(sent_zones);
                sent_unavailable = Some(unavailable);
                complete |= first_complete;
                updates.push(CatalogUpdate {
                    unavailable_offerings,
                    complete: first_complete,
                    shifted_zones,
                    ..CatalogUpdate::default()
                });
            }
            sent = now;
            if complete {
                keep_current(&mut known_ids, &sent);
            }
            for update in updates {
                if sender.send(Ok((&update).into())).await.is_err() {
                    return Ok(());
                }
            }
            tokio::select! {
                biased;
                result = entries.changed() => if result.is_err() { return Ok(()) },
                () = ledger.changed() => {}
                result = shifts.changed() => if result.is_err() { return Ok(()) },
            }
        }
    })
}

/// Whether every node class of the cluster has an entry.
fn is_whole(deps: &Leader, entries: &Entries) -> bool {
    let classes = deps.stores.classes.state();
    classes.iter().all(|class| class.metadata.name.as_ref().is_none_or(|name| entries.contains_key(name)))
}

/// Whether `now` contains an offering that `sent` does not.
fn has_new(sent: &[UnavailableOffering], now: &[UnavailableOffering]) -> bool {
    now.iter().any(|offering| {
        !sent.iter().any(|sent| {
            sent.instance_type == offering.instance_type
                && sent.zone == offering.zone
                && sent.capacity_type == offering.capacity_type
                && sent.remaining >= offering.remaining
        })
    })
}

fn differences(sent: &Entries, now: &Entries, known_ids: &mut BTreeSet<String>) -> Vec<CatalogUpdate> {
    let mut updates: Vec<CatalogUpdate> = sent
        .keys()
        .filter(|name| !now.contains_key(*name))
        .map(|name| CatalogUpdate { node_class: name.clone(), removed: true, ..CatalogUpdate::default() })
        .collect();
    for (name, entry) in now.iter().filter(|(name, entry)| sent.get(*name) != Some(*entry)) {
        updates.push(update(name, entry, known_ids));
    }
    updates
}

/// Forgets catalogs that no node class has any more: the client does not keep them either, and one may come back.
fn keep_current(known_ids: &mut BTreeSet<String>, entries: &Entries) {
    let ids = entries.values().filter_map(|entry| entry.catalog.as_ref());
    let current: BTreeSet<&str> = ids.map(|(id, _)| id.as_str()).collect();
    known_ids.retain(|id| current.contains(id.as_str()));
}

fn update(name: &str, entry: &CatalogEntry, known_ids: &mut BTreeSet<String>) -> CatalogUpdate {
    let id = entry.catalog.as_ref().map(|(id, _)| id.clone());
    let unknown = id.as_ref().is_some_and(|id| known_ids.insert(id.0.clone()));
    CatalogUpdate {
        node_class: name.to_owned(),
        generation: entry.generation,
        catalog_id: id,
        catalog: entry.catalog.as_ref().filter(|_| unknown).map(|(_, catalog)| catalog.as_ref().clone()),
        problem: entry.problem.clone(),
        ..CatalogUpdate::default()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::catalog::Catalog;
    use std::sync::Arc;

    #[test]
    fn a_catalog_that_comes_back_is_sent_again() {
        let mut known_ids = BTreeSet::new();
        let mut sent = Entries::default();
        for (region, is_sent) in [("a", true), ("a", false), ("b", true), ("a", true)] {
            let catalog = Catalog { region: region.to_owned(), instance_types: Vec::new() };
            let catalog = Some((catalog.id(), Arc::new(catalog)));
            let generation =
                i64::try_from(sent.len()).unwrap() + sent.values().map(|entry| entry.generation).sum::<i64>();
            let (is_provisional, offered, unsent) = (false, Arc::default(), None);
            let entry = CatalogEntry { generation, catalog, is_provisional, offered, unsent, problem: None };
            let now = Arc::new([("default".to_owned(), Arc::new(entry))].into());
            let [update] = differences(&sent, &now, &mut known_ids).try_into().unwrap();
            assert_eq!(update.catalog.is_some(), is_sent, "{region}");
            keep_current(&mut known_ids, &now);
            sent = now;
        }
    }
}

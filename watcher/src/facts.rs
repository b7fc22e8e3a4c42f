//! Shared state of the watcher: cluster index, ledger and catalogs, with change notification.

use crate::catalogs::Catalogs;
use crate::index::Index;
use crate::ledger::Ledger;
use parking_lot::{Mutex, RwLock};
use plimsoll_model::identity::PodUid;
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1 as wire;
use plimsoll_runtime::workers::in_place;
use plimsoll_snapshot::{Builder, Built, Extra, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// Cluster index, ledger and catalogs.
#[derive(Debug, Default)]
pub struct Facts {
    index: RwLock<Index>,
    ledger: Mutex<Ledger>,
    builder: Mutex<Builder>,
    catalogs: Mutex<Catalogs>,
    changes: watch::Sender<u64>,
}

impl Facts {
    /// Receiver of a change counter.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn notify(&self, changed: bool) {
        if changed {
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Reads the index.
    pub fn index<T>(&self, read: impl FnOnce(&Index) -> T) -> T {
        match self.index.try_read() {
            Some(index) => read(&index),
            None => in_place(|| read(&self.index.read())),
        }
    }

    /// Resolves once every kind has been listed.
    pub async fn wait_listed(&self) {
        let mut changes = self.changes();
        // No error: this value keeps the sender.
        while !self.index(Index::all_listed) && changes.changed().await.is_ok() {}
    }

    /// Changes the index. `change` returns whether anything relevant changed. Waits while a snapshot is built, which
    /// takes a part of a second in a large cluster.
    pub fn change_index(&self, change: impl FnOnce(&mut Index) -> bool) {
        let changed = match self.index.try_write() {
            Some(mut index) => change(&mut index),
            None => in_place(|| change(&mut self.index.write())),
        };
        self.notify(changed);
    }

    /// Reads or changes the ledger. `change` returns whether anything relevant changed.
    pub fn change_ledger(&self, change: impl FnOnce(&mut Ledger) -> bool) -> bool {
        let changed = change(&mut self.ledger.lock());
        self.notify(changed);
        changed
    }

    /// Reads or changes the catalogs. `change` returns whether anything relevant changed, and a result for the caller.
    pub fn change_catalogs<T>(&self, change: impl FnOnce(&mut Catalogs) -> (bool, T)) -> T {
        let (changed, result) = change(&mut self.catalogs.lock());
        self.notify(changed);
        result
    }

    /// Returns the content of a catalog.
    #[must_use]
    pub fn catalog(&self, id: &str) -> Option<Arc<wire::Catalog>> {
        self.catalogs.lock().content(&id.into())
    }

    /// Builds the snapshot with number `sequence` of the cluster at `now`. Returns `None` while required facts have not
    /// been received, because a plan on partial facts launches too much. Reads only the pods that have changed since
    /// the previous call. Also returns the pending pods whose owners want more pods than have been observed. Their
    /// launches wait for the others.
    #[must_use]
    pub fn build_snapshot(&self, now: Timestamp, sequence: u64) -> Option<(Built, BTreeSet<PodUid>)> {
        let index = self.index.read();
        if !index.all_listed() {
            return None;
        }
        let mut extra = Extra { sequence, ..self.extra(now)? };
        for class in &index.objects().node_classes {
            let name = class.metadata.name.clone().unwrap_or_default();
            match self.catalogs.lock().of_class(&name, class.metadata.generation.unwrap_or(0)) {
                Ok(id) => drop(extra.catalogs.insert(name, id)),
                Err(why) => drop(extra.catalog_problems.insert(name, why)),
            }
        }
        let mut builder = self.builder.lock();
        let failed_audits = builder.failed_audits();
        let built = builder.build(index.objects(), &extra);
        if builder.failed_audits() != failed_audits {
            tracing::error!("an incremental snapshot differed from a full build, which replaces it");
        }
        Some((built, index.incomplete()))
    }

    /// Drops what was remembered of the last snapshot. The next one reads every pod.
    pub fn forget_builds(&self) {
        let builder = std::mem::take(&mut *self.builder.lock());
        // It is large, and is not locked any more.
        drop(builder);
    }

    /// Snapshot inputs that do not come from Kubernetes objects; `None` until the ledger and the catalogs have been
    /// received.
    fn extra(&self, now: Timestamp) -> Option<Extra> {
        let catalogs = self.catalogs.lock();
        let ledger = self.ledger.lock();
        if !catalogs.is_complete() {
            return None;
        }
        // Prefer the ledger's list: it is consistent with the ledger's position and includes what the last outcome
        // reported.
        let unavailable = ledger.unavailable().or(catalogs.unavailable());
        Some(Extra {
            source: Source::Cluster,
            now,
            sequence: 0,
            ledger: ledger.position()?,
            catalogs: BTreeMap::new(),
            catalog_problems: BTreeMap::new(),
            unavailable_offerings: unavailable.map(|list| list.at(now)).unwrap_or_default(),
            shifted_zones: catalogs.shifted_zones().clone(),
            reservations: ledger.reservations().to_vec(),
            in_flight: ledger.claims().cloned().collect(),
            reserved_pods: BTreeMap::new(),
        })
    }
}

#[cfg(test)]
mod tests;

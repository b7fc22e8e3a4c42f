//! All that the watcher knows: the cluster, the ledger, the catalogs; and when any of it changes.

use crate::catalogs::Catalogs;
use crate::index::Index;
use crate::ledger::Ledger;
use parking_lot::{Mutex, RwLock};
use plimsoll_model::execution::BufferReport;
use plimsoll_model::identity::PodUid;
use plimsoll_model::snapshot::Snapshot;
use plimsoll_model::time::Timestamp;
use plimsoll_proto::catalog::v1 as wire;
use plimsoll_snapshot::{Extra, Problem, Source};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use tokio::sync::watch;

/// A snapshot with what belongs to it.
#[derive(Debug, Clone, Default)]
pub struct View {
    /// The snapshot; its sequence is for the caller to set.
    pub snapshot: Snapshot,
    /// Pods to be placed whose owners want more than have been seen (rule 6).
    pub incomplete: BTreeSet<PodUid>,
    /// Objects that were left out.
    pub problems: Vec<Problem>,
    /// What CapacityBuffers come to.
    pub buffers: Vec<BufferReport>,
}

/// All that the watcher knows.
#[derive(Debug)]
pub struct Facts {
    index: RwLock<Index>,
    ledger: Mutex<Ledger>,
    catalogs: Mutex<Catalogs>,
    changes: watch::Sender<u64>,
}

impl Default for Facts {
    fn default() -> Self {
        Self {
            index: RwLock::default(),
            ledger: Mutex::default(),
            catalogs: Mutex::default(),
            changes: watch::Sender::new(0),
        }
    }
}

impl Facts {
    /// Nothing.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Counts changes.
    #[must_use]
    pub fn changes(&self) -> watch::Receiver<u64> {
        self.changes.subscribe()
    }

    fn note(&self, changed: bool) {
        if changed {
            self.changes.send_modify(|count| *count = count.wrapping_add(1));
        }
    }

    /// Reads the index.
    pub fn index<T>(&self, read: impl FnOnce(&Index) -> T) -> T {
        read(&self.index.read())
    }

    /// Changes the index; `change` says whether anything that matters did.
    pub fn change_index(&self, change: impl FnOnce(&mut Index) -> bool) {
        let changed = change(&mut self.index.write());
        self.note(changed);
    }

    /// Reads or changes the ledger; `change` says whether anything that matters did.
    pub fn change_ledger(&self, change: impl FnOnce(&mut Ledger) -> bool) -> bool {
        let changed = change(&mut self.ledger.lock());
        self.note(changed);
        changed
    }

    /// Reads or changes the catalogs; the first part of what `change` returns says whether anything that matters did.
    pub fn change_catalogs<T>(&self, change: impl FnOnce(&mut Catalogs) -> (bool, T)) -> T {
        let (changed, result) = change(&mut self.catalogs.lock());
        self.note(changed);
        result
    }

    /// The content of a catalog.
    #[must_use]
    pub fn catalog(&self, id: &str) -> Option<Arc<wire::Catalog>> {
        self.catalogs.lock().content(&id.into())
    }

    /// The cluster at `now`; `None` while anything that a plan needs is unknown (rule 21). Costs CPU in proportion to the cluster.
    #[must_use]
    pub fn view(&self, now: Timestamp) -> Option<View> {
        let index = self.index.read();
        if !index.is_whole() {
            return None;
        }
        let mut extra = self.extra(now)?;
        for class in &index.objects().node_classes {
            let name = class.metadata.name.clone().unwrap_or_default();
            match self.catalogs.lock().of_class(&name, class.metadata.generation.unwrap_or(0)) {
                Ok(id) => drop(extra.catalogs.insert(name, id)),
                Err(why) => drop(extra.catalog_problems.insert(name, why)),
            }
        }
        let (snapshot, problems) = plimsoll_snapshot::build(index.objects(), &extra);
        let buffers = plimsoll_snapshot::buffers::reports(index.objects());
        Some(View { snapshot, incomplete: index.incomplete(), problems, buffers })
    }

    /// What the cluster does not show; `None` while it is unknown.
    fn extra(&self, now: Timestamp) -> Option<Extra> {
        let catalogs = self.catalogs.lock();
        let ledger = self.ledger.lock();
        if !catalogs.is_complete() {
            return None;
        }
        // The ledger's list goes with its position: after an outcome it has what that outcome taught.
        let unavailable = ledger.unavailable().or(catalogs.unavailable());
        Some(Extra {
            source: Source::Cluster,
            now,
            sequence: 0,
            ledger: ledger.position()?,
            catalogs: BTreeMap::new(),
            catalog_problems: BTreeMap::new(),
            unavailable_offerings: unavailable.map(|list| list.at(now)).unwrap_or_default(),
            in_flight: ledger.claims().cloned().collect(),
            reserved_pods: BTreeMap::new(),
        })
    }
}

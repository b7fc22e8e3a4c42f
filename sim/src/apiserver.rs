//! An in-memory Kubernetes API server, exposed as a tower service for `kube::Client`.
//!
//! [`store`] implements the API rules as plain function calls. This module adds the clock, clients, watches and fault
//! injection.

pub mod admission;
mod apply;
mod discovery;
pub mod error;
mod events;
pub mod faults;
mod fields;
pub mod object;
mod patch;
pub mod request;
pub mod resources;
mod respond;
mod schema;
pub mod selector;
mod service;
pub mod store;
mod structural;
#[cfg(test)]
mod tests;
mod validate;
mod watch;

pub use error::ApiError;
pub use patch::Patch;
pub use resources::ResourceId;
pub use service::Port;
pub use structural::SchemaError;

use faults::Faults;
use jiff::Timestamp;
use parking_lot::Mutex;
use plimsoll_runtime::clock::Clock;
use plimsoll_runtime::signal;
use request::Verb;
use std::collections::VecDeque;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use store::Store;

/// Capacity of the audit log that tests inspect. The oldest entries are dropped beyond it.
const AUDIT_MAX: usize = 100_000;

/// Audit log entry of one answered request.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Audit {
    /// Time at which the client sent the request.
    pub sent: Timestamp,
    /// Time of the response.
    pub at: Timestamp,
    /// Name of the client.
    pub client: String,
    /// Request verb.
    pub verb: Verb,
    /// Requested kind.
    pub resource: ResourceId,
    /// Subresource, or empty.
    pub subresource: String,
    /// Namespace, or empty.
    pub namespace: String,
    /// Object name, or empty.
    pub name: String,
    /// HTTP status code of the response.
    pub code: u16,
    /// Revision of the store after the request, if the request changed something.
    pub revision: Option<u64>,
}

#[derive(Debug, Default)]
struct AuditLog {
    entries: VecDeque<Audit>,
    /// Number of entries that were dropped.
    dropped: usize,
}

struct Inner {
    store: Mutex<Store>,
    /// Change signals, one per kind.
    changed: Vec<signal::Sender>,
    clock: Clock,
    faults: Faults,
    minor: AtomicU32,
    audit: Mutex<AuditLog>,
}

/// An in-memory Kubernetes API server. Cheap to clone; clones share one server.
#[derive(Clone)]
pub struct ApiServer {
    inner: Arc<Inner>,
}

impl std::fmt::Debug for ApiServer {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("ApiServer").finish_non_exhaustive()
    }
}

impl ApiServer {
    /// Creates an empty cluster. `seed` determines UIDs, generated names and which faults occur.
    #[must_use]
    pub fn new(seed: u64, clock: Clock) -> Self {
        let store = Mutex::new(Store::new(seed, clock.now()));
        let changed = ResourceId::all().map(|_| signal::Sender::default()).collect();
        let audit = Mutex::new(AuditLog::default());
        Self {
            inner: Arc::new(Inner {
                store,
                changed,
                clock,
                faults: Faults::new(seed),
                minor: AtomicU32::new(discovery::MINOR),
                audit,
            }),
        }
    }

    /// Returns a client whose faults are addressed by `name`. Its default namespace is `default`; it does not retry.
    ///
    /// Must be called within a tokio runtime.
    pub fn client(&self, name: impl Into<String>) -> ::kube::Client {
        ::kube::Client::new(self.port(name), "default")
    }

    /// Returns the tower service behind [`ApiServer::client`], for callers that add layers.
    pub fn port(&self, name: impl Into<String>) -> Port {
        Port::new(self.clone(), name.into())
    }

    /// Minor version of the control plane: `36` for 1.36.
    #[must_use]
    pub fn minor(&self) -> u32 {
        self.inner.minor.load(Ordering::Relaxed)
    }

    /// Sets the minor version of the control plane, as an upgrade does.
    pub fn upgrade(&self, minor: u32) {
        self.inner.minor.store(minor, Ordering::Relaxed);
    }

    /// Fault injection.
    #[must_use]
    pub fn faults(&self) -> &Faults {
        &self.inner.faults
    }

    /// Current time.
    #[must_use]
    pub fn now(&self) -> Timestamp {
        self.inner.clock.now()
    }

    /// Clock of the server.
    #[must_use]
    pub fn clock(&self) -> Clock {
        self.inner.clock
    }

    /// Reads the current state of the store.
    pub fn read<T>(&self, read: impl FnOnce(&Store) -> T) -> T {
        read(&self.inner.store.lock())
    }

    /// Changes the store in one step and notifies watchers. Faults do not apply: the cluster's own components use this
    /// path.
    pub fn write<T>(&self, write: impl FnOnce(&mut Store) -> T) -> T {
        let mut store = self.inner.store.lock();
        let result = write(&mut store);
        for resource in store.take_dirty() {
            self.inner.changed[resource.index()].notify();
        }
        result
    }

    /// Enforces the `openAPIV3Schema` of a CustomResourceDefinition for a kind: prunes unknown fields, sets defaults
    /// and validates values.
    ///
    /// # Errors
    /// If the schema is not usable.
    pub fn install_schema(&self, resource: ResourceId, schema: &serde_json::Value) -> Result<(), SchemaError> {
        let hook = structural::hook(schema)?;
        self.write(|store| store.admission_mut().add(resource, hook));
        Ok(())
    }

    /// Signals every change to objects of a kind.
    #[must_use]
    pub fn subscribe(&self, resource: ResourceId) -> signal::Receiver {
        self.inner.changed[resource.index()].subscribe()
    }

    /// Audit log, oldest entry first.
    #[must_use]
    pub fn audit(&self) -> Vec<Audit> {
        self.inner.audit.lock().entries.iter().cloned().collect()
    }

    /// Entries of the audit log after the first `seen` that pass a test, and the number of all entries so far.
    pub fn audit_since(&self, seen: usize, test: impl Fn(&Audit) -> bool) -> (Vec<Audit>, usize) {
        let log = self.inner.audit.lock();
        let AuditLog { entries, dropped } = &*log;
        let first = seen.saturating_sub(*dropped).min(entries.len());
        let passed = entries.range(first..).filter(|entry| test(entry)).cloned().collect();
        (passed, dropped + entries.len())
    }

    fn note(&self, entry: Audit) {
        let mut audit = self.inner.audit.lock();
        if audit.entries.len() == AUDIT_MAX {
            audit.entries.pop_front();
            audit.dropped += 1;
        }
        audit.entries.push_back(entry);
    }
}

//! State that the terms of leadership of a process share.

use crate::cluster_facts::Current;
use crate::events::Recorder;
use crate::io::Connections;
use crate::launch_template::KnownTemplates;
use crate::metrics::ActuatorMetrics;
use crate::settings::{ObjectName, Settings};
use crate::state::catalogs::Catalogs;
use crate::state::discovered_memory::DiscoveredMemory;
use crate::state::insufficient_capacity::InsufficientCapacity;
use crate::state::registrations::Registrations;
use crate::state::zonal_shifts::ZonalShifts;
use crate::stores::Stores;
use parking_lot::Mutex;
use plimsoll_runtime::clock::Clock;
use std::sync::Arc;

/// The input from which `leadership::term` builds the controllers of each term.
pub struct Process {
    /// Clients of the cluster and of the cloud.
    pub connections: Connections,
    /// Time.
    pub clock: Clock,
    /// Settings of the installation, with the cluster's facts at startup.
    pub settings: Arc<Settings>,
    /// Settings with the current facts of the cluster.
    pub current: Current,
    /// Watch cache of the cluster.
    pub stores: Stores,
    /// Offerings known to lack capacity.
    pub insufficient_capacity: Arc<Mutex<InsufficientCapacity>>,
    /// Zones that the cluster is shifted away from.
    pub zonal_shifts: ZonalShifts,
    /// Catalog of each node class.
    pub catalogs: Catalogs,
    /// Memory of instance types as nodes report it.
    pub memory: DiscoveredMemory,
    /// ConfigMap that keeps it.
    pub memory_config_map: ObjectName,
    /// Launch templates that are known to exist.
    pub templates: KnownTemplates,
    /// Recent registration results by pool.
    pub registrations: Registrations,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Events on objects.
    pub events: Recorder,
}

//! What the process shares between its terms of leadership.

use crate::catalogs::Catalogs;
use crate::cluster_facts::Current;
use crate::events::Recorder;
use crate::io::Connections;
use crate::launch_template::Templates;
use crate::metrics::ActuatorMetrics;
use crate::settings::Settings;
use crate::state::insufficient_capacity::InsufficientCapacity;
use crate::state::registrations::Registrations;
use crate::stores::Stores;
use parking_lot::Mutex;
use plimsoll_runtime::clock::Clock;
use std::sync::Arc;

/// From which [`super::term`] builds the controllers of each term.
pub struct Process {
    /// Clients of the cluster and of the cloud.
    pub connections: Connections,
    /// Time.
    pub clock: Clock,
    /// Settings of the installation, with the facts of the cluster as at the start.
    pub settings: Arc<Settings>,
    /// Settings with the facts of the cluster as they are now.
    pub current: Current,
    /// Cluster as the watches show it.
    pub stores: Stores,
    /// Offerings without capacity.
    pub insufficient_capacity: Arc<Mutex<InsufficientCapacity>>,
    /// What each node class can buy.
    pub catalogs: Catalogs,
    /// Launch templates that exist.
    pub templates: Templates,
    /// Whether instances became nodes of late.
    pub registrations: Registrations,
    /// Metrics.
    pub metrics: ActuatorMetrics,
    /// Events on objects.
    pub events: Recorder,
}

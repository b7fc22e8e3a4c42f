//! The actuator: the only service that writes to the cluster and spends money.
//!
//! Decisions are made in synchronous functions without clock or IO. The cloud is reached through the traits of
//! [`ports`].

pub mod args;
pub mod buffer_status;
pub mod catalogs;
mod clock;
pub mod cluster_facts;
mod controller_loop;
pub mod discovered_memory;
pub mod discovery;
mod drift_hash;
pub mod durable;
pub mod events;
pub mod fencing;
pub mod garbage_collection;
mod guarded;
pub mod interruption;
pub mod io;
pub mod launch;
pub mod launch_template;
pub mod leadership;
pub mod ledger;
pub mod lifecycle;
pub mod metrics;
mod namespace_selectors;
pub mod node_class;
pub mod node_pool_status;
mod nodes;
pub mod nomination;
pub mod overlay_status;
mod overlays;
mod pacing;
mod pods;
pub mod ports;
pub mod quota_status;
pub mod removal;
pub mod requests;
pub mod resolve;
mod rollout;
pub mod server;
pub mod service;
pub mod settings;
pub mod state;
pub mod stores;
pub mod termination;
pub mod user_data;
pub mod zonal_shift;

//! The actuator: the only service that writes to the cluster and spends money.
//!
//! What it decides is in synchronous cores without clock or IO; the cloud lies behind the traits of [`ports`].

pub mod authority;
pub mod collection;
pub mod context;
pub mod interruption;
pub mod launch;
pub mod ledger;
pub mod metrics;
pub mod outcomes;
pub mod ports;
pub mod settings;
pub mod stores;
pub mod unavailable;

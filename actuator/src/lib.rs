//! The actuator: the only service that writes to the cluster and spends money.
//!
//! What it decides is in synchronous cores without clock or IO; the cloud lies behind the traits of [`ports`].

pub mod collection;
pub mod interruption;
pub mod launch;
pub mod ledger;
pub mod ports;
pub mod unavailable;

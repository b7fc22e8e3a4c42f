//! Tests across services, on the in-memory cluster and cloud.
//!
//! [`TestCluster`] is a world with all services of Plimsoll, and the queries of the tests. The tests are in `tests/`.

#![expect(clippy::unwrap_used, clippy::panic, reason = "used only by tests, which fail by panicking")]

pub mod fake_watcher;
mod history;
mod test_cluster;

pub use history::{claims_ever_launched, instances_ever_launched, most_cpu_of_claims};
pub use test_cluster::{
    HOUR, MINUTE, Setup, TestCluster, instance_of, limit_disruptions, node_class, node_pool, running_on,
};

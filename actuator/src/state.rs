//! State that controllers share within a process or a term of leadership. It does not depend on any controller.

pub mod absence;
pub mod buffer_reports;
pub(crate) mod capacity;
pub mod catalogs;
pub mod discovered_memory;
pub mod instances;
pub mod insufficient_capacity;
pub mod launch_group;
pub mod nominations;
pub mod outcomes;
pub mod pod_events;
pub mod postponed_removals;
pub mod proposals;
pub mod registrations;
pub mod subnet_addresses;
pub mod unexecuted;
pub mod zonal_shifts;

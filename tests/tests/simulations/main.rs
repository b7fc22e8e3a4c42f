//! Simulations: the three services in one process, on the in-memory cluster and cloud, in virtual time. Each module
//! covers one topic; together they check the safety rules.

#![expect(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "test helpers fail by panicking, and a seed that fails must be known"
)]

mod actuator_dies;
mod buffers;
mod callers;
mod capacity;
mod capacity_reservations;
mod collection;
mod discovered_memory;
mod drift;
mod early_end;
mod ec2_calls;
mod enumeration;
mod expiry;
mod faulty_planner;
mod fence;
mod first_node;
mod initialization;
mod karpenter;
mod leaders;
mod leases_deleted;
mod limits;
mod nominations;
mod observer;
mod oracle;
mod placement_groups;
mod random_faults;
mod recordings;
mod removal;
mod replay;
mod reservations;
mod restarts;
mod rollout;
mod rollout_limits;
mod rollout_time;
mod spot;
mod spot_outage;
mod stale_plans;
mod standalone;
mod subnet_addresses;
mod swarm;
mod termination_refused;
mod tokens_and_tags;
mod unreadable;
mod watcher_dies;
mod zonal_shift;

/// With glibc's allocator, a seed takes a fifth more CPU time.
#[global_allocator]
static ALLOCATOR: mimalloc::MiMalloc = mimalloc::MiMalloc;

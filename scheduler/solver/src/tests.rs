//! Tests of the solver with small clusters, which are built by [`builder`].

mod bounds;
mod buffer_pods;
pub(crate) mod builder;
mod early_batch;
mod followers;
mod local_search;
mod market;
mod max_node_share;
mod offers;
mod on_demand_ratio;
mod placing;
mod planner;
mod pools;
mod preferences;
mod price_limits;
mod priority;
mod properties;
mod reasons;
mod removal;
mod repack;
mod replay;
mod reservations;
mod spread;
mod static_pools;
mod topology;
mod uneven;
mod volumes;

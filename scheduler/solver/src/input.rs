//! Input of a plan, indexed for fast lookup: shapes, pools with their offerings, nodes, and interned names and amounts.

pub(crate) mod capacity_quotas;
pub(crate) mod context;
pub(crate) mod custom_labels;
pub(crate) mod daemon_sets;
pub(crate) mod devices;
pub(crate) mod existing_nodes;
pub(crate) mod grid;
pub(crate) mod intern;
pub(crate) mod max_node_share;
pub(crate) mod nodes;
pub(crate) mod offerings;
pub(crate) mod on_demand_ratio;
pub(crate) mod pool_requirements;
pub(crate) mod solve_index;
pub(crate) mod volumes;

//! Defaults that the API server applies, for objects from files.

use crate::{
    CapacityBuffer, CapacityQuota, EC2NodeClass, NodeClaim, NodeOverlay, NodePool, NodePoolStatus,
    budget::Budget,
    capacity_buffer::ACTIVE_CAPACITY,
    node_pool::{Disruption, default_expire_after},
};

/// Objects whose schema has defaults.
pub trait Defaulted: Sized {
    /// The object as the API server would store it.
    #[must_use]
    fn defaulted(self) -> Self;
}

impl Defaulted for NodePool {
    fn defaulted(mut self) -> Self {
        let consolidate_after = self.spec.consolidate_after();
        let disruption = self
            .spec
            .disruption
            .get_or_insert_with(|| Disruption { consolidate_after: Some(consolidate_after), ..Disruption::default() });
        disruption.consolidation_policy.get_or_insert_default();
        disruption.budgets.get_or_insert_with(|| vec![Budget::default()]);
        self.spec.template.spec.expire_after.get_or_insert_with(default_expire_after);
        self.status = self.status.map(|status| NodePoolStatus { nodes: status.nodes.or(Some(0)), ..status });
        self
    }
}

impl Defaulted for NodeClaim {
    fn defaulted(mut self) -> Self {
        self.spec.expire_after.get_or_insert_with(default_expire_after);
        self
    }
}

impl Defaulted for NodeOverlay {
    fn defaulted(self) -> Self {
        self
    }
}

impl Defaulted for CapacityBuffer {
    fn defaulted(mut self) -> Self {
        self.spec.provisioning_strategy.get_or_insert_with(|| ACTIVE_CAPACITY.to_owned());
        self
    }
}

impl Defaulted for CapacityQuota {
    fn defaulted(self) -> Self {
        self
    }
}

impl Defaulted for EC2NodeClass {
    fn defaulted(mut self) -> Self {
        self.spec.metadata_options = Some(self.spec.metadata_options());
        self
    }
}

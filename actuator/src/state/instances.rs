//! What EC2 last said about the instances of the cluster. Drift compares these facts with the node class.

use crate::ports::Instance;
use parking_lot::Mutex;
use plimsoll_model::catalog::CapacityType;
use std::collections::BTreeMap;
use std::sync::Arc;

/// Facts about an instance that cannot change without somebody changing the instance.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct InstanceFacts {
    /// Subnet; empty if EC2 does not say.
    pub subnet_id: String,
    /// Security groups, sorted; empty if EC2 does not say.
    pub security_group_ids: Vec<String>,
    /// Capacity type.
    pub capacity_type: CapacityType,
    /// The capacity reservation that the instance runs in.
    pub capacity_reservation_id: Option<String>,
}

impl From<&Instance> for InstanceFacts {
    fn from(instance: &Instance) -> Self {
        Self {
            subnet_id: instance.subnet_id.clone(),
            security_group_ids: instance.security_group_ids.clone(),
            capacity_type: instance.capacity_type,
            capacity_reservation_id: instance.capacity_reservation_id.clone(),
        }
    }
}

/// Living instances by id, from the last complete list. Clones share the same state.
#[derive(Debug, Clone, Default)]
pub struct ListedInstances {
    by_id: Arc<Mutex<BTreeMap<String, InstanceFacts>>>,
}

impl ListedInstances {
    /// Replaces all facts by those of a complete list.
    pub fn replace(&self, instances: &[Instance]) {
        let alive = instances.iter().filter(|instance| instance.state.is_alive());
        *self.by_id.lock() = alive.map(|instance| (instance.id.clone(), InstanceFacts::from(instance))).collect();
    }

    /// Forgets all facts, since the list failed.
    pub fn clear(&self) {
        self.by_id.lock().clear();
    }

    /// The facts of an instance; `None` if it was not listed.
    #[must_use]
    pub fn get(&self, id: &str) -> Option<InstanceFacts> {
        self.by_id.lock().get(id).cloned()
    }
}

//! TerminateInstances as EC2 answers it, and what others do with instances.

use super::store::Cloud;
use plimsoll_actuator::ports::{CloudError, Termination};
use plimsoll_model::time::Timestamp;
use std::collections::BTreeSet;

impl Cloud {
    /// Takes a tag away from every instance, as somebody else may.
    pub fn remove_tag_of_all(&mut self, key: &str) {
        for machine in self.machines.values_mut() {
            machine.tags.remove(key);
        }
    }

    /// Stops an instance, as a user may.
    pub fn stop(&mut self, id: &str, now: Timestamp) {
        let Some(machine) = self.machines.get_mut(id) else { return };
        machine.stopped_from = Some(now);
        let machine = machine.clone();
        self.tell_state(&machine, "stopped", now);
    }

    /// Protects an instance from TerminateInstances, or ends that.
    pub fn protect(&mut self, id: &str, protected: bool) {
        if protected {
            self.protected.insert(id.to_owned());
        } else {
            self.protected.remove(id);
        }
    }

    /// The call as EC2 answers it: one instance that is unknown has the whole call refused. One that may not be
    /// terminated keeps those of its zone; those of other zones are terminated, although the call is refused.
    ///
    /// # Errors
    /// An instance is unknown, and nothing was done, or one is protected.
    pub fn try_terminate_instances(&mut self, ids: &[String], now: Timestamp) -> Result<Vec<Termination>, CloudError> {
        if let Some(id) = ids.iter().find(|id| !self.machines.contains_key(*id)) {
            return Err(CloudError::NotFound { message: format!("InvalidInstanceID.NotFound: {id}") });
        }
        if let Some(id) = ids.iter().find(|id| self.protected.contains(*id)) {
            let zone_of = |id: &String| self.machines.get(id).map(|machine| machine.zone.as_str());
            let protected = ids.iter().filter(|id| self.protected.contains(*id));
            let kept: BTreeSet<Option<&str>> = protected.map(zone_of).collect();
            let others: Vec<String> = ids.iter().filter(|id| !kept.contains(&zone_of(id))).cloned().collect();
            self.terminate_instances(&others, now);
            return Err(CloudError::InvalidRequest {
                code: "OperationNotPermitted".to_owned(),
                message: format!("The instance '{id}' may not be terminated."),
            });
        }
        Ok(self.terminate_instances(ids, now))
    }
}

//! TerminateInstances as EC2 answers it.

use super::store::Cloud;
use plimsoll_actuator::ports::{CloudError, Termination};
use plimsoll_model::time::Timestamp;

impl Cloud {
    /// Takes a tag away from every instance, as somebody else may.
    pub fn remove_tag_of_all(&mut self, key: &str) {
        for machine in self.machines.values_mut() {
            machine.tags.remove(key);
        }
    }

    /// Protects an instance from TerminateInstances, or ends that.
    pub fn protect(&mut self, id: &str, protected: bool) {
        if protected {
            self.protected.insert(id.to_owned());
        } else {
            self.protected.remove(id);
        }
    }

    /// The call as EC2 answers it: one instance that is unknown or may not be terminated has the whole call refused.
    ///
    /// # Errors
    /// An instance is unknown or protected. Nothing was done.
    pub fn try_terminate_instances(&mut self, ids: &[String], now: Timestamp) -> Result<Vec<Termination>, CloudError> {
        if let Some(id) = ids.iter().find(|id| !self.machines.contains_key(*id)) {
            return Err(CloudError::NotFound { message: format!("InvalidInstanceID.NotFound: {id}") });
        }
        if let Some(id) = ids.iter().find(|id| self.protected.contains(*id)) {
            return Err(CloudError::InvalidRequest {
                code: "OperationNotPermitted".to_owned(),
                message: format!("The instance '{id}' may not be terminated."),
            });
        }
        Ok(self.terminate_instances(ids, now))
    }
}

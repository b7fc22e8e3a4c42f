//! SSM parameters and IAM instance profiles.

use plimsoll_actuator::ports::{CloudError, InstanceProfile, Tags};
use std::collections::BTreeMap;

/// What the smaller services hold.
#[derive(Debug, Clone, Default)]
pub struct Support {
    /// SSM parameters by path.
    pub parameters: BTreeMap<String, String>,
    /// Instance profiles by name.
    pub profiles: BTreeMap<String, InstanceProfile>,
}

impl Support {
    /// A parameter's value.
    ///
    /// # Errors
    /// There is none.
    pub fn parameter(&self, path: &str) -> Result<String, CloudError> {
        let missing = || CloudError::NotFound { message: format!("the parameter `{path}` does not exist") };
        self.parameters.get(path).cloned().ok_or_else(missing)
    }

    /// A profile.
    ///
    /// # Errors
    /// There is none.
    pub fn profile(&self, name: &str) -> Result<InstanceProfile, CloudError> {
        self.profiles.get(name).cloned().ok_or_else(|| missing_profile(name))
    }

    /// Makes a profile unless there is one.
    pub fn create_profile(&mut self, name: &str, path: &str, tags: &Tags) {
        self.profiles.entry(name.to_owned()).or_insert_with(|| InstanceProfile {
            name: name.to_owned(),
            path: path.to_owned(),
            role: None,
            tags: tags.clone(),
        });
    }

    /// Sets a profile's role.
    ///
    /// # Errors
    /// There is no such profile.
    pub fn set_role(&mut self, name: &str, role: &str) -> Result<(), CloudError> {
        let profile = self.profiles.get_mut(name).ok_or_else(|| missing_profile(name))?;
        profile.role = Some(role.to_owned());
        Ok(())
    }

    /// Profiles under a path, by name.
    #[must_use]
    pub fn profiles_under(&self, path: &str) -> Vec<InstanceProfile> {
        self.profiles.values().filter(|profile| profile.path.starts_with(path)).cloned().collect()
    }
}

fn missing_profile(name: &str) -> CloudError {
    CloudError::NotFound { message: format!("the instance profile `{name}` does not exist") }
}

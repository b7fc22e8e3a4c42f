//! A conjunction of requirements on labels.

use super::{NodeSelectorRequirement, Requirement, RequirementError};
use crate::names::label;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// At most one requirement per label. A label without requirement may have any value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Requirements(BTreeMap<String, Requirement>);

impl Requirements {
    /// Converts requirements from the API. Several entries for one label must all hold.
    ///
    /// # Errors
    ///
    /// The first invalid entry.
    pub fn from_api<'api>(
        entries: impl IntoIterator<Item = &'api NodeSelectorRequirement>,
    ) -> Result<Self, RequirementError> {
        entries.into_iter().map(Requirement::new).collect()
    }

    /// Converts labels or a `nodeSelector`: each key must have its value.
    #[must_use]
    pub fn from_labels<'label, Text: AsRef<str> + ?Sized + 'label>(
        labels: impl IntoIterator<Item = (&'label Text, &'label Text)>,
    ) -> Self {
        labels.into_iter().map(|(key, value)| Requirement::one_of(key.as_ref(), [value.as_ref()])).collect()
    }

    /// Adds a requirement, intersecting it with an existing requirement on the same label.
    pub fn add(&mut self, requirement: Requirement) {
        if let Some(existing) = self.0.get_mut(&requirement.key) {
            *existing = existing.intersection(&requirement);
        } else {
            self.0.insert(requirement.key.clone(), requirement);
        }
    }

    /// Adds all requirements of `other`.
    pub fn add_all(&mut self, other: &Self) {
        for requirement in other.iter() {
            self.add(requirement.clone());
        }
    }

    /// Returns the requirement on `key`, or `Exists` if there is none.
    #[must_use]
    pub fn get(&self, key: &str) -> Cow<'_, Requirement> {
        self.find(key).map_or_else(|| Cow::Owned(Requirement::any(key)), Cow::Borrowed)
    }

    /// Returns the requirement on `key`, if there is one.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&Requirement> {
        self.0.get(label::normalized(key))
    }

    /// Whether there is a requirement on `key`.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Removes the requirement on `key`.
    pub fn remove(&mut self, key: &str) -> Option<Requirement> {
        self.0.remove(label::normalized(key))
    }

    /// Requirements in order of their labels.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.0.values()
    }

    /// Number of labels with a requirement.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are no requirements.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether something described by `self` can satisfy `incoming`: each label that it requires has a requirement
    /// here, too, and some value satisfies both, or both allow the label to be absent.
    #[must_use]
    pub fn is_compatible(&self, incoming: &Self) -> bool {
        incoming.iter().all(|requirement| match self.0.get(&requirement.key) {
            None => requirement.allows_absence(),
            Some(own) => own.has_intersection(requirement) || (own.allows_absence() && requirement.allows_absence()),
        })
    }

    /// Converts to the API form, in order of labels.
    #[must_use]
    pub fn to_api(&self) -> Vec<NodeSelectorRequirement> {
        self.iter().flat_map(Requirement::to_api).collect()
    }
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(requirements: I) -> Self {
        let mut set = Self::default();
        set.extend(requirements);
        set
    }
}

impl Extend<Requirement> for Requirements {
    fn extend<I: IntoIterator<Item = Requirement>>(&mut self, requirements: I) {
        for requirement in requirements {
            self.add(requirement);
        }
    }
}

/// Omits the hostname, which is never set by users.
impl fmt::Display for Requirements {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let shown = self.iter().filter(|requirement| requirement.key != label::HOSTNAME);
        for (index, requirement) in shown.enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{requirement}")?;
        }
        Ok(())
    }
}

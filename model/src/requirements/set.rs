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

/// Labels that the incoming side may require although this side does not define them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Undefined {
    /// Well-known labels: instance types determine labels that a template does not restrict.
    WellKnown,
    /// No labels: an existing node has exactly its labels.
    None,
}

/// Reason why two sets of requirements are incompatible.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incompatible {
    /// The incoming side requires a label that this side does not define.
    #[error("label {key} does not exist{}", hint.as_ref().map(|hint| format!(" (did you mean {hint}?)")).unwrap_or_default())]
    UndefinedLabel {
        /// Label key.
        key: String,
        /// A similar known label.
        hint: Option<String>,
        /// The incoming requirement.
        incoming: Box<Requirement>,
    },
    /// No value of a label satisfies both sides.
    #[error("{incoming} does not go with {existing}")]
    NoIntersection {
        /// Label key.
        key: String,
        /// The existing requirement.
        existing: Box<Requirement>,
        /// The incoming requirement.
        incoming: Box<Requirement>,
    },
}

impl Incompatible {
    /// Key of the label.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::UndefinedLabel { key, .. } | Self::NoIntersection { key, .. } => key,
        }
    }
}

impl Requirements {
    /// Creates an empty set.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

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

    /// Checks whether something described by `self` can satisfy `incoming`: every required label is defined or may be
    /// undefined, and the values intersect.
    ///
    /// # Errors
    ///
    /// The first undefined label in key order, otherwise the first label without a common value.
    pub fn compatible(&self, incoming: &Self, undefined: Undefined) -> Result<(), Incompatible> {
        if let Some(unknown) = self.first_undefined(incoming, undefined) {
            return Err(Incompatible::UndefinedLabel {
                key: unknown.key.clone(),
                hint: self.similar_label(&unknown.key),
                incoming: Box::new(unknown.clone()),
            });
        }
        self.intersects(incoming)
    }

    /// Like [`Requirements::compatible`], but without the reason, which is cheaper.
    #[must_use]
    pub fn is_compatible(&self, incoming: &Self, undefined: Undefined) -> bool {
        self.first_undefined(incoming, undefined).is_none() && self.first_conflict(incoming).is_none()
    }

    /// Checks that for each label in both sets some value satisfies both, or the label may be missing for both.
    ///
    /// # Errors
    ///
    /// The first label in key order for which this does not hold.
    pub fn intersects(&self, incoming: &Self) -> Result<(), Incompatible> {
        self.first_conflict(incoming).map_or(Ok(()), |(existing, incoming)| {
            Err(Incompatible::NoIntersection {
                key: existing.key.clone(),
                existing: Box::new(existing.clone()),
                incoming: Box::new(incoming.clone()),
            })
        })
    }

    /// Converts to the API form, in order of labels.
    #[must_use]
    pub fn to_api(&self) -> Vec<NodeSelectorRequirement> {
        self.iter().flat_map(Requirement::to_api).collect()
    }

    fn first_undefined<'incoming>(
        &self,
        incoming: &'incoming Self,
        undefined: Undefined,
    ) -> Option<&'incoming Requirement> {
        incoming.iter().find(|requirement| {
            let may_be_undefined = undefined == Undefined::WellKnown && label::is_well_known(&requirement.key);
            !may_be_undefined && !requirement.allows_absence() && !self.0.contains_key(&requirement.key)
        })
    }

    fn first_conflict<'sets>(&'sets self, incoming: &'sets Self) -> Option<(&'sets Requirement, &'sets Requirement)> {
        incoming.iter().filter_map(|requirement| Some((self.0.get(&requirement.key)?, requirement))).find(
            |(existing, requirement)| {
                let both_absent = existing.allows_absence() && requirement.allows_absence();
                !existing.has_intersection(requirement) && !both_absent
            },
        )
    }

    /// Finds a known label that contains `key` or has the same name in another domain.
    fn similar_label(&self, key: &str) -> Option<String> {
        let name = |key: &str| key.rsplit_once('/').map_or(key, |(_, name)| name).to_owned();
        let well_known = label::WELL_KNOWN.iter().chain(label::AWS_WELL_KNOWN).copied();
        well_known
            .chain(self.0.keys().map(String::as_str))
            .find(|candidate| *candidate != key && (candidate.contains(key) || name(candidate) == name(key)))
            .map(str::to_owned)
    }
}

impl FromIterator<Requirement> for Requirements {
    fn from_iter<I: IntoIterator<Item = Requirement>>(requirements: I) -> Self {
        let mut set = Self::new();
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

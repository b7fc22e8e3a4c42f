//! Requirements on several labels, all of which must hold.

use super::{NodeSelectorRequirement, Requirement, RequirementError};
use crate::names::label;
use serde::{Deserialize, Serialize};
use std::borrow::Cow;
use std::collections::BTreeMap;
use std::fmt;

/// At most one requirement for each label; a label without one may have any value.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Requirements(BTreeMap<String, Requirement>);

/// Which labels may be asked for though the other side does not name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Undefined {
    /// Well-known labels: what a template does not restrict, its instance types will settle.
    WellKnown,
    /// None: a node that exists has the labels it has.
    None,
}

/// Why two sets of requirements cannot both hold.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum Incompatible {
    /// One side asks for a label that the other does not know.
    #[error("label {key} does not exist{}", hint.as_ref().map(|hint| format!(" (did you mean {hint}?)")).unwrap_or_default())]
    UndefinedLabel {
        /// The label.
        key: String,
        /// A known label that looks like it.
        hint: Option<String>,
        /// What was asked.
        incoming: Box<Requirement>,
    },
    /// No value of a label satisfies both sides.
    #[error("{incoming} does not go with {existing}")]
    NoIntersection {
        /// The label.
        key: String,
        /// What was there.
        existing: Box<Requirement>,
        /// What was asked.
        incoming: Box<Requirement>,
    },
}

impl Incompatible {
    /// The label that it is about.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::UndefinedLabel { key, .. } | Self::NoIntersection { key, .. } => key,
        }
    }
}

impl Requirements {
    /// None.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// From the form of the API; several entries for a label must all hold.
    ///
    /// # Errors
    ///
    /// The first entry that has no meaning.
    pub fn from_api<'api>(
        entries: impl IntoIterator<Item = &'api NodeSelectorRequirement>,
    ) -> Result<Self, RequirementError> {
        entries.into_iter().map(Requirement::new).collect()
    }

    /// What labels, or a pod's `nodeSelector`, amount to: each key `In` its one value.
    #[must_use]
    pub fn from_labels<'label, Text: AsRef<str> + ?Sized + 'label>(
        labels: impl IntoIterator<Item = (&'label Text, &'label Text)>,
    ) -> Self {
        labels.into_iter().map(|(key, value)| Requirement::one_of(key.as_ref(), [value.as_ref()])).collect()
    }

    /// Adds a requirement; together with one that is there for the same label, both must hold.
    pub fn add(&mut self, requirement: Requirement) {
        if let Some(existing) = self.0.get_mut(&requirement.key) {
            *existing = existing.intersection(&requirement);
        } else {
            self.0.insert(requirement.key.clone(), requirement);
        }
    }

    /// Adds all of `other`'s.
    pub fn add_all(&mut self, other: &Self) {
        for requirement in other.iter() {
            self.add(requirement.clone());
        }
    }

    /// The requirement on `key`; if there is none, `Exists`.
    #[must_use]
    pub fn get(&self, key: &str) -> Cow<'_, Requirement> {
        self.find(key).map_or_else(|| Cow::Owned(Requirement::any(key)), Cow::Borrowed)
    }

    /// The requirement on `key`, if there is one.
    #[must_use]
    pub fn find(&self, key: &str) -> Option<&Requirement> {
        self.0.get(label::normalized(key))
    }

    /// Whether there is a requirement on `key`.
    #[must_use]
    pub fn contains(&self, key: &str) -> bool {
        self.find(key).is_some()
    }

    /// Takes the requirement on `key` out.
    pub fn remove(&mut self, key: &str) -> Option<Requirement> {
        self.0.remove(label::normalized(key))
    }

    /// All, by label.
    pub fn iter(&self) -> impl Iterator<Item = &Requirement> {
        self.0.values()
    }

    /// How many labels have one.
    #[must_use]
    pub fn len(&self) -> usize {
        self.0.len()
    }

    /// Whether there are none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Whether what these describe can satisfy `incoming`: every label asked for is known or may be undefined, and all values go together.
    ///
    /// # Errors
    ///
    /// The first label, in order of keys, that is unknown; else the first on which no value satisfies both.
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

    /// The answer of [`Requirements::compatible`] without its reason, for where it is asked often.
    #[must_use]
    pub fn is_compatible(&self, incoming: &Self, undefined: Undefined) -> bool {
        self.first_undefined(incoming, undefined).is_none() && self.first_conflict(incoming).is_none()
    }

    /// Whether, on every label that both name, some value satisfies both or the label may be missing for both.
    ///
    /// # Errors
    ///
    /// The first such label, in order of keys, on which none does.
    pub fn intersects(&self, incoming: &Self) -> Result<(), Incompatible> {
        self.first_conflict(incoming).map_or(Ok(()), |(existing, incoming)| {
            Err(Incompatible::NoIntersection {
                key: existing.key.clone(),
                existing: Box::new(existing.clone()),
                incoming: Box::new(incoming.clone()),
            })
        })
    }

    /// In the form of the API, by label.
    #[must_use]
    pub fn to_api(&self) -> Vec<NodeSelectorRequirement> {
        self.iter().flat_map(Requirement::to_api).collect()
    }

    fn first_undefined<'incoming>(
        &self,
        incoming: &'incoming Self,
        undefined: Undefined,
    ) -> Option<&'incoming Requirement> {
        incoming.iter().find(|asked| {
            let may_be_undefined = undefined == Undefined::WellKnown && label::is_well_known(&asked.key);
            !may_be_undefined && !asked.allows_absence() && !self.0.contains_key(&asked.key)
        })
    }

    fn first_conflict<'sets>(&'sets self, incoming: &'sets Self) -> Option<(&'sets Requirement, &'sets Requirement)> {
        incoming.iter().filter_map(|asked| Some((self.0.get(&asked.key)?, asked))).find(|(existing, asked)| {
            let both_absent = existing.allows_absence() && asked.allows_absence();
            !existing.has_intersection(asked) && !both_absent
        })
    }

    /// A known label that contains `key` or has the same name in another domain.
    fn similar_label(&self, key: &str) -> Option<String> {
        let name = |key: &str| key.rsplit_once('/').map_or(key, |(_, name)| name).to_owned();
        let well_known = label::WELL_KNOWN.iter().chain(label::AWS_WELL_KNOWN).copied();
        well_known
            .chain(self.0.keys().map(String::as_str))
            .find(|known| *known != key && (known.contains(key) || name(known) == name(key)))
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

/// All but the host name, which nobody asked for by hand.
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

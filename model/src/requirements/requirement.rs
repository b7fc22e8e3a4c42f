//! A requirement as the set of values it allows.

use super::{NodeSelectorRequirement, Operator};
use crate::names::label;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The set of allowed label values: either the listed values or, for a complement, all values except the listed ones,
/// optionally restricted to integers within bounds.
///
/// Values are normalized so that most equal sets compare equal: a set that is no complement has no bounds, and a
/// bounded complement lists no values outside its bounds. Contradictory bounds result in [`Requirement::never`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// Label key, under its current name.
    pub key: String,
    /// Whether `values` are excluded instead of allowed.
    pub complement: bool,
    /// The allowed values, or the excluded values of a complement.
    pub values: BTreeSet<String>,
    /// Minimum integer.
    pub gte: Option<i64>,
    /// Maximum integer.
    pub lte: Option<i64>,
    /// Minimum number of distinct values that a launch must allow.
    pub min_values: Option<u32>,
}

/// Reason why a requirement of the API is invalid.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// `In` without values.
    #[error("requirement on {key}: In needs at least one value")]
    NoValues {
        /// Label key.
        key: String,
    },
    /// A numeric operator without exactly one integer.
    #[error("requirement on {key}: {operator} needs exactly one integer, not [{}]", values.join(", "))]
    NotOneInteger {
        /// Label key.
        key: String,
        /// The operator.
        operator: Operator,
        /// The invalid values.
        values: Vec<String>,
    },
}

impl RequirementError {
    /// Key of the label.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::NoValues { key } | Self::NotOneInteger { key, .. } => key,
        }
    }
}

impl Requirement {
    /// Converts a requirement of the API. Deprecated label names are replaced by current names. Values of `Exists` and
    /// `DoesNotExist` are ignored.
    ///
    /// # Errors
    ///
    /// If `In` has no values or a numeric operator does not have exactly one integer.
    pub fn new(api: &NodeSelectorRequirement) -> Result<Self, RequirementError> {
        let listed = |complement| Self {
            complement,
            values: api.values.iter().cloned().collect(),
            min_values: api.min_values,
            ..Self::any(&api.key)
        };
        let bounded = |gte, lte| Self { gte, lte, min_values: api.min_values, ..Self::any(&api.key) };
        let bound = || {
            api.bound().ok_or_else(|| RequirementError::NotOneInteger {
                key: api.key.clone(),
                operator: api.operator,
                values: api.values.clone(),
            })
        };
        // No integer is beyond the largest or smallest one.
        let bounded_beyond = |adjusted: Option<i64>, requirement: &dyn Fn(i64) -> Self| {
            adjusted.map_or_else(|| Self::never(&api.key), requirement)
        };
        Ok(match api.operator {
            Operator::In if api.values.is_empty() => return Err(RequirementError::NoValues { key: api.key.clone() }),
            Operator::In => listed(false),
            Operator::NotIn => listed(true),
            Operator::Exists => bounded(None, None),
            Operator::DoesNotExist => Self { min_values: api.min_values, ..Self::never(&api.key) },
            Operator::Gt => bounded_beyond(bound()?.checked_add(1), &|min| bounded(Some(min), None)),
            Operator::Lt => bounded_beyond(bound()?.checked_sub(1), &|max| bounded(None, Some(max))),
            Operator::Gte => bounded(Some(bound()?), None),
            Operator::Lte => bounded(None, Some(bound()?)),
        })
    }

    /// Allows any value: `Exists`.
    #[must_use]
    pub fn any(key: &str) -> Self {
        Self {
            key: label::normalized(key).to_owned(),
            complement: true,
            values: BTreeSet::new(),
            gte: None,
            lte: None,
            min_values: None,
        }
    }

    /// Allows no value: `DoesNotExist`.
    #[must_use]
    pub fn never(key: &str) -> Self {
        Self { complement: false, ..Self::any(key) }
    }

    /// Allows `values`: `In`. Without values it equals [`Requirement::never`].
    #[must_use]
    pub fn one_of<Value: Into<String>>(key: &str, values: impl IntoIterator<Item = Value>) -> Self {
        Self { values: values.into_iter().map(Into::into).collect(), ..Self::never(key) }
    }

    /// Returns the values that both allow, under this requirement's key and with the larger `min_values`.
    ///
    /// As in Karpenter, the intersection of `Exists` and `NotIn` is `NotIn`, which no longer requires the label to
    /// exist.
    #[must_use]
    pub fn intersection(&self, other: &Self) -> Self {
        let min_values = self.min_values.max(other.min_values);
        let with = |complement, values| Self { complement, values, min_values, ..Self::any(&self.key) };
        match (self.complement, other.complement) {
            (true, true) => {
                let (gte, lte) = self.common_bounds(other);
                if crossed(gte, lte) {
                    return with(false, BTreeSet::new());
                }
                let excluded = self.values.union(&other.values).filter(|value| within(value, gte, lte));
                Self { gte, lte, ..with(true, excluded.cloned().collect()) }
            }
            (false, _) => with(false, self.values.iter().filter(|value| other.has(value)).cloned().collect()),
            (true, false) => with(false, other.values.iter().filter(|value| self.has(value)).cloned().collect()),
        }
    }

    /// Whether both allow a common value.
    #[must_use]
    pub fn has_intersection(&self, other: &Self) -> bool {
        match (self.complement, other.complement) {
            (true, true) => {
                let (gte, lte) = self.common_bounds(other);
                !crossed(gte, lte)
            }
            (false, _) => self.values.iter().any(|value| other.has(value)),
            (true, false) => other.values.iter().any(|value| self.has(value)),
        }
    }

    /// Whether `value` is allowed.
    #[must_use]
    pub fn has(&self, value: &str) -> bool {
        self.values.contains(value) != self.complement && within(value, self.gte, self.lte)
    }

    /// Whether no value is allowed.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.complement && self.values.is_empty()
    }

    /// Whether the label may be missing: `NotIn` without bounds, and `DoesNotExist`.
    ///
    /// Karpenter also allows the label to be missing if there are bounds and exclusions. kube-scheduler does not, so
    /// the pod would stay pending.
    #[must_use]
    pub fn allows_absence(&self) -> bool {
        match self.operator() {
            Operator::NotIn => self.gte.is_none() && self.lte.is_none(),
            operator => operator == Operator::DoesNotExist,
        }
    }

    /// Returns the operator without bounds: `In`, `NotIn`, `Exists` or `DoesNotExist`.
    #[must_use]
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, true) => Operator::Exists,
            (true, false) => Operator::NotIn,
            (false, true) => Operator::DoesNotExist,
            (false, false) => Operator::In,
        }
    }

    /// Converts to the API form with sorted values: one entry, or several that must all hold. Unlike Karpenter, keeps
    /// exclusions beside bounds.
    #[must_use]
    pub fn to_api(&self) -> Vec<NodeSelectorRequirement> {
        let entry = |operator, values| NodeSelectorRequirement {
            key: self.key.clone(),
            operator,
            values,
            min_values: self.min_values,
        };
        let bounds = [(Operator::Gte, self.gte), (Operator::Lte, self.lte)];
        let mut entries: Vec<NodeSelectorRequirement> = bounds
            .into_iter()
            .filter_map(|(operator, bound)| Some(entry(operator, vec![bound?.to_string()])))
            .collect();
        if entries.is_empty() || !self.values.is_empty() {
            entries.push(entry(self.operator(), self.values.iter().cloned().collect()));
        }
        entries
    }

    fn common_bounds(&self, other: &Self) -> (Option<i64>, Option<i64>) {
        let min = [self.lte, other.lte].into_iter().flatten().min();
        (self.gte.max(other.gte), min)
    }
}

impl fmt::Display for Requirement {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        for (index, entry) in self.to_api().iter().enumerate() {
            let separator = if index == 0 { "" } else { ", " };
            write!(f, "{separator}{entry}")?;
        }
        Ok(())
    }
}

fn crossed(gte: Option<i64>, lte: Option<i64>) -> bool {
    gte.zip(lte).is_some_and(|(min, max)| min > max)
}

/// Whether the bounds allow `value`. With any bound, only integers are allowed.
fn within(value: &str, gte: Option<i64>, lte: Option<i64>) -> bool {
    if gte.is_none() && lte.is_none() {
        return true;
    }
    value.parse::<i64>().is_ok_and(|number| gte.is_none_or(|min| min <= number) && lte.is_none_or(|max| number <= max))
}

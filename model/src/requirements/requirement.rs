//! One requirement, as the set of values it admits.

use super::{NodeSelectorRequirement, Operator};
use crate::names::label;
use serde::{Deserialize, Serialize};
use std::collections::BTreeSet;
use std::fmt;

/// The values that a label may have: either those listed, or (a complement) all but those listed, perhaps only integers within bounds.
///
/// Kept in one form, so that equal sets that were written differently are mostly equal here: what is not a complement has no bounds,
/// and a bounded complement lists no value that the bounds rule out anyway. Bounds that cross make it [`Requirement::never`].
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Requirement {
    /// The label, by its present name.
    pub key: String,
    /// Whether `values` are those excluded.
    pub complement: bool,
    /// The values admitted, or excluded if this is a complement.
    pub values: BTreeSet<String>,
    /// Least integer admitted.
    pub gte: Option<i64>,
    /// Greatest integer admitted.
    pub lte: Option<i64>,
    /// How many distinct values a launch must stay flexible over.
    pub min_values: Option<u32>,
}

/// Why a requirement in the form of the API has no meaning.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum RequirementError {
    /// `In` of nothing.
    #[error("requirement on {key}: In needs at least one value")]
    NoValues {
        /// The label.
        key: String,
    },
    /// A bound that is not one integer.
    #[error("requirement on {key}: {operator} needs exactly one integer, not [{}]", values.join(", "))]
    NotOneInteger {
        /// The label.
        key: String,
        /// The comparison.
        operator: Operator,
        /// What was given.
        values: Vec<String>,
    },
}

impl RequirementError {
    /// The label that it is about.
    #[must_use]
    pub fn key(&self) -> &str {
        match self {
            Self::NoValues { key } | Self::NotOneInteger { key, .. } => key,
        }
    }
}

impl Requirement {
    /// From the form of the API; labels with an older name get their present one. Values of `Exists` and `DoesNotExist` mean nothing.
    ///
    /// # Errors
    ///
    /// If `In` has no values or a bound is not one integer.
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
        // Beyond the last integer there is none.
        let bounded_beyond = |beyond: Option<i64>, requirement: &dyn Fn(i64) -> Self| {
            beyond.map_or_else(|| Self::never(&api.key), requirement)
        };
        Ok(match api.operator {
            Operator::In if api.values.is_empty() => return Err(RequirementError::NoValues { key: api.key.clone() }),
            Operator::In => listed(false),
            Operator::NotIn => listed(true),
            Operator::Exists => bounded(None, None),
            Operator::DoesNotExist => Self { min_values: api.min_values, ..Self::never(&api.key) },
            Operator::Gt => bounded_beyond(bound()?.checked_add(1), &|least| bounded(Some(least), None)),
            Operator::Lt => bounded_beyond(bound()?.checked_sub(1), &|greatest| bounded(None, Some(greatest))),
            Operator::Gte => bounded(Some(bound()?), None),
            Operator::Lte => bounded(None, Some(bound()?)),
        })
    }

    /// Any value: `Exists`.
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

    /// No value: `DoesNotExist`.
    #[must_use]
    pub fn never(key: &str) -> Self {
        Self { complement: false, ..Self::any(key) }
    }

    /// One of `values`: `In`. Of no values it is [`Requirement::never`].
    #[must_use]
    pub fn one_of<Value: Into<String>>(key: &str, values: impl IntoIterator<Item = Value>) -> Self {
        Self { values: values.into_iter().map(Into::into).collect(), ..Self::never(key) }
    }

    /// What both admit, under this requirement's key; the larger minimum of values.
    ///
    /// As in Karpenter, `Exists` and `NotIn` make `NotIn`, which forgets that the label must exist.
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

    /// Whether some value is admitted by both.
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

    /// Whether `value` is admitted.
    #[must_use]
    pub fn has(&self, value: &str) -> bool {
        self.values.contains(value) != self.complement && within(value, self.gte, self.lte)
    }

    /// Whether no value is admitted.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        !self.complement && self.values.is_empty()
    }

    /// Whether the label may be missing: `NotIn` without bounds, and `DoesNotExist`.
    ///
    /// Karpenter also lets a label be missing that has bounds and exclusions; kube-scheduler does not, and would leave the pod pending.
    #[must_use]
    pub fn allows_absence(&self) -> bool {
        match self.operator() {
            Operator::NotIn => self.gte.is_none() && self.lte.is_none(),
            operator => operator == Operator::DoesNotExist,
        }
    }

    /// `In`, `NotIn`, `Exists` or `DoesNotExist`; bounds do not show.
    #[must_use]
    pub fn operator(&self) -> Operator {
        match (self.complement, self.values.is_empty()) {
            (true, true) => Operator::Exists,
            (true, false) => Operator::NotIn,
            (false, true) => Operator::DoesNotExist,
            (false, false) => Operator::In,
        }
    }

    /// In the form of the API, values sorted: one entry, or several that mean this together. Karpenter loses exclusions beside bounds; here they are kept.
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
        let least = [self.lte, other.lte].into_iter().flatten().min();
        (self.gte.max(other.gte), least)
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
    gte.zip(lte).is_some_and(|(least, greatest)| least > greatest)
}

/// Whether bounds let `value` pass; with any bound, only integers do.
fn within(value: &str, gte: Option<i64>, lte: Option<i64>) -> bool {
    if gte.is_none() && lte.is_none() {
        return true;
    }
    value
        .parse::<i64>()
        .is_ok_and(|number| gte.is_none_or(|least| least <= number) && lte.is_none_or(|most| number <= most))
}

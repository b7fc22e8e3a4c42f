//! Custom labels: labels that no instance type has and for which the requirements of a pool allow several values (`team
//! In [a, b]`). Pods narrow the values. At least one value must remain for each node.

use crate::input::pool_requirements::{holds, one_of};
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator, Requirement};
use std::collections::{BTreeMap, BTreeSet};

/// What is left of custom labels by key. A key that is missing was not narrowed.
pub(crate) type Narrowed = BTreeMap<String, LabelValues>;

/// The values that a custom label may have on one node.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct LabelValues {
    values: Requirement,
    /// Whether the label may also be missing. `values` does not tell: as in Karpenter, `Exists` and `NotIn` together
    /// are `NotIn`.
    optional: bool,
}

impl LabelValues {
    /// The values that a requirement allows; `None` if it is invalid.
    fn new(requirement: &NodeSelectorRequirement) -> Option<Self> {
        let values = Requirement::new(requirement).ok()?;
        // A bound beyond the largest integer allows no value. This does not mean that the label may be missing.
        let optional = values.allows_absence() && !requirement.operator.is_bound();
        Some(Self { values, optional })
    }

    pub(crate) fn has(&self, value: &str) -> bool {
        self.values.has(value)
    }

    /// The possible values, if they are listed.
    pub(crate) fn listed(&self) -> Option<&BTreeSet<String>> {
        (!self.values.complement).then_some(&self.values.values)
    }

    /// The values that are listed or excluded.
    pub(crate) fn named(&self) -> impl Iterator<Item = &String> {
        self.values.values.iter()
    }

    /// Whether the label may have a value that is not named, or be missing.
    pub(crate) fn is_open(&self) -> bool {
        self.optional || self.values.complement
    }

    fn is_possible(&self) -> bool {
        let has_value = || self.values.lte.is_none() || value_of(&self.values).is_some();
        self.optional || (!self.values.is_empty() && has_value())
    }

    fn and(&self, other: &Self) -> Self {
        Self { values: self.values.intersection(&other.values), optional: self.optional && other.optional }
    }
}

/// The custom keys of one pool.
#[derive(Debug, Default)]
pub(crate) struct CustomKeys {
    domains: BTreeMap<String, LabelValues>,
    /// The requirements of the pool contradict each other, so it cannot have nodes.
    pub(crate) impossible: bool,
}

impl CustomKeys {
    /// Reads the pool's requirements on keys that neither types nor the template's labels have.
    pub(crate) fn new(requirements: &[&NodeSelectorRequirement]) -> Self {
        let mut keys = Self::default();
        let mut missing: Vec<String> = Vec::new();
        for requirement in requirements {
            let Some(own) = LabelValues::new(requirement) else {
                keys.impossible = true;
                continue;
            };
            if requirement.operator == Operator::DoesNotExist {
                missing.push(own.values.key);
                continue;
            }
            let both = keys.domains.get(&own.values.key).map_or_else(|| own.clone(), |known| known.and(&own));
            keys.impossible |= !both.is_possible();
            keys.domains.insert(own.values.key, both);
        }
        for key in missing {
            keys.impossible |= keys.domains.remove(&key).is_some_and(|domain| !domain.optional);
        }
        keys
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.domains.contains_key(label::normalized(key))
    }

    /// The values that the pool lists for a custom label. Empty if the label is not custom or any value is allowed.
    pub(crate) fn values(&self, key: &str) -> Vec<String> {
        let listed = self.domains.get(label::normalized(key)).and_then(LabelValues::listed);
        listed.map_or_else(Vec::new, |values| values.iter().cloned().collect())
    }

    /// Narrows `state` by one requirement on a custom key. Returns false if no value remains.
    pub(crate) fn narrow(&self, state: &mut Narrowed, requirement: &NodeSelectorRequirement) -> bool {
        let Some(asked) = LabelValues::new(requirement) else { return false };
        let key = &asked.values.key;
        let Some(domain) = self.domains.get(key) else { return holds(requirement, None) };
        let left = state.get(key).unwrap_or(domain).and(&asked);
        let is_possible = left.is_possible();
        if is_possible {
            state.insert(key.clone(), left);
        }
        is_possible
    }

    /// The requirements of a NodeClaim for the labels in `state`, and for those that the pool demands with any value.
    /// Each has one value, since a node has one, unless the label may be missing.
    pub(crate) fn pinned(&self, state: &Narrowed) -> Vec<NodeSelectorRequirement> {
        let one = |(key, left): (&String, &LabelValues)| match value_of(&left.values).filter(|_| !left.optional) {
            Some(value) => vec![one_of(key, vec![value])],
            None => left.values.to_api(),
        };
        // The values that a pool lists are known to the actuator. A node without a value of this label would drift.
        let is_open = |(key, domain): &(&String, &LabelValues)| {
            let demands_any = domain.listed().is_none() && !domain.optional;
            demands_any && !state.contains_key(*key) && !label::is_well_known(key)
        };
        state.iter().chain(self.domains.iter().filter(is_open)).flat_map(one).collect()
    }
}

/// Intersects both; `None` if a key has no value left.
pub(crate) fn combine(a: &Narrowed, b: &Narrowed) -> Option<Narrowed> {
    let mut all = a.clone();
    for (key, theirs) in b {
        let left = all.get(key).map_or_else(|| theirs.clone(), |mine| mine.and(theirs));
        if !left.is_possible() {
            return None;
        }
        all.insert(key.clone(), left);
    }
    Some(all)
}

/// The first allowed value: the first listed one, otherwise the least integer from zero and the lower bound on, because
/// no label is negative. If both tenancies are allowed, the default tenancy.
fn value_of(requirement: &Requirement) -> Option<String> {
    if requirement.key == label::INSTANCE_TENANCY {
        return label::TENANCIES.into_iter().find(|tenancy| requirement.has(tenancy)).map(str::to_owned);
    }
    if !requirement.complement {
        return requirement.values.first().cloned();
    }
    let least = requirement.gte.unwrap_or(0).max(0);
    // Tries one integer more than are excluded, so at least one is allowed unless there is an upper bound.
    let tries = i64::try_from(requirement.values.len()).unwrap_or(i64::MAX).saturating_add(1);
    let mut integers = least..least.saturating_add(tries);
    integers.find(|number| requirement.has(&number.to_string())).map(|number| number.to_string())
}

//! Custom labels: labels that no instance type has and for which the requirements of a pool allow several values (`team
//! In [a, b]`). Pods narrow the values. At least one value must remain for each node.

use crate::input::pool_requirements::{holds, one_of};
use plimsoll_model::names::label;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator, Requirement};
use std::collections::BTreeMap;

/// Remaining values of custom labels by key. A key that is missing was not narrowed. An empty set means that the label
/// must be missing.
pub(crate) type Narrowed = BTreeMap<String, Requirement>;

/// The custom keys of one pool.
#[derive(Debug, Default)]
pub(crate) struct CustomKeys {
    domains: BTreeMap<String, Requirement>,
    /// The requirements of the pool contradict each other, so it cannot have nodes.
    pub(crate) impossible: bool,
}

impl CustomKeys {
    /// Reads the pool's requirements on keys that neither types nor the template's labels have.
    pub(crate) fn new(requirements: &[&NodeSelectorRequirement]) -> Self {
        let mut keys = Self::default();
        let mut missing: Vec<String> = Vec::new();
        for requirement in requirements {
            let Ok(read) = Requirement::new(requirement) else {
                keys.impossible = true;
                continue;
            };
            if requirement.operator == Operator::DoesNotExist {
                missing.push(read.key);
                continue;
            }
            let known = keys.domains.get(&read.key);
            let both = known.map_or_else(|| read.clone(), |known| known.intersection(&read));
            keys.impossible |= both.is_empty();
            keys.domains.insert(read.key, both);
        }
        for key in missing {
            let contradicted = keys.domains.remove(&key).is_some_and(|domain| !domain.allows_absence());
            keys.impossible |= contradicted;
        }
        keys
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.domains.contains_key(label::normalized(key))
    }

    /// The values that the pool lists for a custom label. Empty if the label is not custom or any value is allowed.
    pub(crate) fn values(&self, key: &str) -> Vec<String> {
        let listed = self.domains.get(label::normalized(key)).filter(|domain| !domain.complement);
        listed.map_or_else(Vec::new, |domain| domain.values.iter().cloned().collect())
    }

    /// Narrows `state` by one requirement on a custom key. Returns false if no value remains.
    pub(crate) fn narrow(&self, state: &mut Narrowed, requirement: &NodeSelectorRequirement) -> bool {
        let Ok(read) = Requirement::new(requirement) else { return false };
        let Some(domain) = self.domains.get(&read.key) else { return holds(requirement, None) };
        let Some(left) = both(state.get(&read.key).unwrap_or(domain), &read) else { return false };
        state.insert(left.key.clone(), left);
        true
    }

    /// The requirements of a NodeClaim for the labels in `state`, and for those that the pool demands with any value.
    /// Each has one value, since a node has one, unless the label may be missing.
    pub(crate) fn pinned(&self, state: &Narrowed) -> Vec<NodeSelectorRequirement> {
        let one = |(key, left): (&String, &Requirement)| {
            let optional = self.domains.get(key).is_some_and(Requirement::allows_absence) && left.allows_absence();
            match value_of(left).filter(|_| !optional) {
                Some(value) => vec![one_of(key, vec![value])],
                None => left.to_api(),
            }
        };
        // The values that a pool lists are known to the actuator. A node without a value of this label would drift.
        let is_open = |(key, domain): &(&String, &Requirement)| {
            let demands_any = domain.complement && !domain.allows_absence();
            demands_any && !state.contains_key(*key) && !label::is_well_known(key)
        };
        state.iter().chain(self.domains.iter().filter(is_open)).flat_map(one).collect()
    }
}

fn both(a: &Requirement, b: &Requirement) -> Option<Requirement> {
    let left = a.intersection(b);
    (!left.is_empty() || (a.allows_absence() && b.allows_absence())).then_some(left)
}

/// Intersects both; `None` if a key has no value left.
pub(crate) fn combine(a: &Narrowed, b: &Narrowed) -> Option<Narrowed> {
    let mut all = a.clone();
    for (key, theirs) in b {
        let left = match all.get(key) {
            Some(mine) => both(mine, theirs)?,
            None => theirs.clone(),
        };
        all.insert(key.clone(), left);
    }
    Some(all)
}

/// The first allowed value: the first listed one, otherwise the least integer that is at least zero or the lower bound.
/// If both tenancies are allowed, the default tenancy.
fn value_of(requirement: &Requirement) -> Option<String> {
    if requirement.key == label::INSTANCE_TENANCY {
        return label::TENANCIES.into_iter().find(|tenancy| requirement.has(tenancy)).map(str::to_owned);
    }
    if !requirement.complement {
        return requirement.values.first().cloned();
    }
    let least = requirement.gte.unwrap_or(0);
    // Tries one integer more than are excluded, so at least one is allowed.
    let tries = i64::try_from(requirement.values.len()).unwrap_or(i64::MAX).saturating_add(1);
    let mut integers = least..least.saturating_add(tries);
    integers.find(|number| requirement.has(&number.to_string())).map(|number| number.to_string())
}

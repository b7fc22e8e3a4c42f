//! Labels that no instance type has and that a pool leaves open by its requirements (`team In [a, b]`): pods narrow them,
//! and what is left must not be empty for any node.

use crate::facts::holds;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use std::collections::{BTreeMap, BTreeSet};

/// Values that such labels may still take, by key; a key that is missing was not narrowed.
pub(crate) type Narrowed = BTreeMap<String, BTreeSet<String>>;

/// What a pool says about one such key.
#[derive(Debug)]
enum Domain {
    OneOf(BTreeSet<String>),
    /// Any value for which all of these hold.
    Open(Vec<NodeSelectorRequirement>),
}

/// The keys of one pool.
#[derive(Debug, Default)]
pub(crate) struct CustomKeys(BTreeMap<String, Domain>);

impl CustomKeys {
    /// From the pool's requirements on keys that neither types nor the template's labels have.
    pub(crate) fn new(requirements: &[&NodeSelectorRequirement]) -> Self {
        let mut by_key: BTreeMap<&str, Vec<&NodeSelectorRequirement>> = BTreeMap::new();
        for requirement in requirements {
            by_key.entry(&requirement.key).or_default().push(requirement);
        }
        let mut keys = BTreeMap::new();
        for (key, all) in by_key {
            if all.iter().any(|one| one.operator == Operator::DoesNotExist) {
                continue;
            }
            let listed = all.iter().find(|one| one.operator == Operator::In);
            let domain = match listed {
                Some(one) => Domain::OneOf(
                    one.values
                        .iter()
                        .filter(|value| all.iter().all(|each| holds(each, Some(value))))
                        .cloned()
                        .collect(),
                ),
                None => Domain::Open(all.into_iter().cloned().collect()),
            };
            keys.insert(key.to_owned(), domain);
        }
        Self(keys)
    }

    pub(crate) fn has(&self, key: &str) -> bool {
        self.0.contains_key(key)
    }

    /// Narrows `state` by one requirement on a key of these; false if nothing is left.
    pub(crate) fn narrow(&self, state: &mut Narrowed, requirement: &NodeSelectorRequirement) -> bool {
        let Some(domain) = self.0.get(&requirement.key) else { return holds(requirement, None) };
        let known = state.get(&requirement.key);
        let left: BTreeSet<String> = match (known, domain) {
            (Some(values), _) | (None, Domain::OneOf(values)) => {
                values.iter().filter(|value| holds(requirement, Some(value))).cloned().collect()
            }
            (None, Domain::Open(own)) => match requirement.operator {
                Operator::In => requirement
                    .values
                    .iter()
                    .filter(|value| own.iter().all(|each| holds(each, Some(value))))
                    .cloned()
                    .collect(),
                // The label will have no value, or one that nobody asked for.
                Operator::NotIn => return true,
                _ => return false,
            },
        };
        let possible = !left.is_empty();
        state.insert(requirement.key.clone(), left);
        possible
    }
}

/// Both at once; `None` if some key has no value left.
pub(crate) fn combine(a: &Narrowed, b: &Narrowed) -> Option<Narrowed> {
    let mut both = a.clone();
    for (key, values) in b {
        let left = match both.get(key) {
            Some(mine) => mine.intersection(values).cloned().collect(),
            None => values.clone(),
        };
        if left.is_empty() {
            return None;
        }
        both.insert(key.clone(), left);
    }
    Some(both)
}

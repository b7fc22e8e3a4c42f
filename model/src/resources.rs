//! Resource amounts, counted like in kube-scheduler.

use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// `cpu`, in millicores.
pub const CPU: &str = "cpu";
/// `memory`, in bytes.
pub const MEMORY: &str = "memory";
/// `pods`, a count.
pub const PODS: &str = "pods";
/// `ephemeral-storage`, in bytes.
pub const EPHEMERAL_STORAGE: &str = "ephemeral-storage";

/// Amounts by resource name: `cpu` in millicores, everything else in whole units (bytes, counts), as in kube-scheduler,
/// except for [`crate::names::USD_PER_HOUR_RESOURCE`].
/// A missing name means zero. Zero amounts are only stored if they were set.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
#[serde(transparent)]
pub struct Resources(BTreeMap<String, i64>);

impl Resources {
    /// Creates empty resources.
    #[must_use]
    pub fn new() -> Self {
        Self::default()
    }

    /// Returns the amount of `name`; zero if it is missing.
    #[must_use]
    pub fn get(&self, name: &str) -> i64 {
        self.0.get(name).copied().unwrap_or(0)
    }

    /// Whether `name` is set, possibly to zero.
    #[must_use]
    pub fn contains(&self, name: &str) -> bool {
        self.0.contains_key(name)
    }

    /// Sets the amount of `name`.
    pub fn set(&mut self, name: &str, amount: i64) {
        if let Some(slot) = self.0.get_mut(name) {
            *slot = amount;
        } else {
            self.0.insert(name.to_owned(), amount);
        }
    }

    /// Removes `name`.
    pub fn remove(&mut self, name: &str) -> Option<i64> {
        self.0.remove(name)
    }

    /// Names and amounts in order of names.
    pub fn iter(&self) -> impl Iterator<Item = (&str, i64)> {
        self.0.iter().map(|(name, amount)| (name.as_str(), *amount))
    }

    /// Whether nothing is set.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.0.is_empty()
    }

    /// Adds `other`, saturating.
    pub fn add(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).saturating_add(amount));
        }
    }

    /// Adds `other` multiplied by `times`, saturating.
    pub fn add_times(&mut self, other: &Self, times: i64) {
        for (name, amount) in &other.0 {
            self.set(name, self.get(name).saturating_add(amount.saturating_mul(times)));
        }
    }

    /// Subtracts `other`, saturating; amounts may become negative.
    pub fn subtract(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            self.set(name, self.get(name).saturating_sub(amount));
        }
    }

    /// Raises each amount to that of `other` if it is larger.
    pub fn raise_to(&mut self, other: &Self) {
        for (name, amount) in other.iter() {
            if !self.contains(name) || self.get(name) < amount {
                self.set(name, amount);
            }
        }
    }

    /// Whether each amount is at most that of `available`. A zero amount always fits, even if the resource is missing
    /// or negative.
    #[must_use]
    pub fn fits_in(&self, available: &Self) -> bool {
        self.first_excess(available).is_none()
    }

    /// Returns the first resource by name that exceeds `available`.
    #[must_use]
    pub fn first_excess(&self, available: &Self) -> Option<&str> {
        self.iter().find(|(name, amount)| *amount > 0 && *amount > available.get(name)).map(|(name, _)| name)
    }
}

impl FromIterator<(String, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (String, i64)>>(amounts: I) -> Self {
        Self(amounts.into_iter().collect())
    }
}

impl<'name> FromIterator<(&'name str, i64)> for Resources {
    fn from_iter<I: IntoIterator<Item = (&'name str, i64)>>(amounts: I) -> Self {
        amounts.into_iter().map(|(name, amount)| (name.to_owned(), amount)).collect()
    }
}

impl<const N: usize> From<[(&str, i64); N]> for Resources {
    fn from(amounts: [(&str, i64); N]) -> Self {
        amounts.into_iter().collect()
    }
}

#[cfg(test)]
mod tests;

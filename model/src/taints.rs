//! Taints and tolerations, with kube-scheduler's semantics.

use crate::names::taint;
use serde::{Deserialize, Serialize};

/// Effect of a taint on pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// Pods are not scheduled.
    NoSchedule,
    /// Pods are not scheduled if possible.
    PreferNoSchedule,
    /// Pods are not scheduled, and running pods are evicted.
    NoExecute,
}

impl TaintEffect {
    /// Name in the Kubernetes API.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// Parses the name in the Kubernetes API.
    #[must_use]
    pub fn parse(text: &str) -> Option<Self> {
        [Self::NoSchedule, Self::PreferNoSchedule, Self::NoExecute].into_iter().find(|effect| effect.as_str() == text)
    }
}

/// A taint of a node.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Taint {
    /// Key.
    pub key: String,
    /// Value, often empty.
    pub value: String,
    /// Effect.
    pub effect: TaintEffect,
}

impl Taint {
    /// Whether Kubernetes or a cloud controller removes the taint while a node starts (Karpenter's known ephemeral
    /// taints).
    #[must_use]
    pub fn is_ephemeral(&self) -> bool {
        let schedule = self.effect == TaintEffect::NoSchedule;
        let execute = self.effect == TaintEffect::NoExecute;
        match self.key.as_str() {
            taint::NOT_READY => schedule || execute,
            taint::UNREACHABLE | taint::UNINITIALIZED => schedule,
            taint::UNREGISTERED => execute,
            key => key.starts_with(taint::READINESS_PREFIX),
        }
    }

    /// Whether both taints have the same key and effect.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

/// Operator of a toleration.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TolerationOperator {
    /// Key and value must be equal.
    Equal,
    /// The key must be equal, or the toleration has no key.
    Exists,
}

/// A pod's toleration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// Key; empty with [`TolerationOperator::Exists`] means every key.
    pub key: String,
    /// Operator.
    pub operator: TolerationOperator,
    /// Value for [`TolerationOperator::Equal`].
    pub value: String,
    /// Effect; `None` means every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// Whether this toleration tolerates `taint`.
    #[must_use]
    pub fn tolerates(&self, taint: &Taint) -> bool {
        if self.effect.is_some_and(|effect| effect != taint.effect) {
            return false;
        }
        if !self.key.is_empty() && self.key != taint.key {
            return false;
        }
        match self.operator {
            TolerationOperator::Exists => true,
            TolerationOperator::Equal => !self.key.is_empty() && self.value == taint.value,
        }
    }
}

/// Returns the first of `taints` that is not tolerated. Includes PreferNoSchedule, as in Karpenter, where relaxation
/// adds a toleration for it.
#[must_use]
pub fn untolerated<'taint>(taints: &'taint [Taint], tolerations: &[Toleration]) -> Option<&'taint Taint> {
    taints.iter().find(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

/// Returns the first of `taints` that is not tolerated and prevents scheduling. PreferNoSchedule only discourages it.
#[must_use]
pub fn repelling<'taint>(taints: &'taint [Taint], tolerations: &[Toleration]) -> Option<&'taint Taint> {
    let mut hard_taints = taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    hard_taints.find(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

#[cfg(test)]
mod tests;

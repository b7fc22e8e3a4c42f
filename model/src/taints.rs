//! Taints and tolerations, with kube-scheduler's meaning.

use crate::names::taint;
use serde::{Deserialize, Serialize};

/// What a taint does to pods that do not tolerate it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TaintEffect {
    /// Keeps new pods away.
    NoSchedule,
    /// Keeps new pods away where possible.
    PreferNoSchedule,
    /// Keeps new pods away and evicts running ones.
    NoExecute,
}

impl TaintEffect {
    /// Kubernetes' word for it.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::NoSchedule => "NoSchedule",
            Self::PreferNoSchedule => "PreferNoSchedule",
            Self::NoExecute => "NoExecute",
        }
    }

    /// From Kubernetes' word.
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
    /// Whether Kubernetes or a cloud controller takes this taint away by itself while a node comes up
    /// (spec: core section 2, known ephemeral taints).
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

    /// Whether this taint and `other` are about the same key and effect.
    #[must_use]
    pub fn matches(&self, other: &Self) -> bool {
        self.key == other.key && self.effect == other.effect
    }
}

/// How a toleration compares.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub enum TolerationOperator {
    /// Key and value are the same.
    Equal,
    /// The key is the same, or the toleration has none.
    Exists,
}

/// A pod's toleration.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
pub struct Toleration {
    /// Key; empty with [`TolerationOperator::Exists`] means every key.
    pub key: String,
    /// How key and value are compared.
    pub operator: TolerationOperator,
    /// Value for [`TolerationOperator::Equal`].
    pub value: String,
    /// Effect; `None` means every effect.
    pub effect: Option<TaintEffect>,
}

impl Toleration {
    /// Whether this toleration covers `taint`.
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

/// The first of `taints` that none of `tolerations` covers. PreferNoSchedule counts, as in Karpenter: giving way on it is relaxation's business.
#[must_use]
pub fn untolerated<'taint>(taints: &'taint [Taint], tolerations: &[Toleration]) -> Option<&'taint Taint> {
    taints.iter().find(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

/// The first of `taints` that keeps a pod with these tolerations away for good: PreferNoSchedule only discourages.
#[must_use]
pub fn repelling<'taint>(taints: &'taint [Taint], tolerations: &[Toleration]) -> Option<&'taint Taint> {
    let mut hard = taints.iter().filter(|taint| taint.effect != TaintEffect::PreferNoSchedule);
    hard.find(|taint| !tolerations.iter().any(|toleration| toleration.tolerates(taint)))
}

#[cfg(test)]
mod tests;

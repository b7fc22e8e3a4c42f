//! Matches a requirement against a label like `labels.Requirement` of Kubernetes.

use super::{NodeSelectorRequirement, Operator};

/// Whether Kubernetes accepts the requirement in a selector. Gte and Lte exist only in Karpenter.
pub(super) fn is_valid(requirement: &NodeSelectorRequirement) -> bool {
    match requirement.operator {
        Operator::In | Operator::NotIn => !requirement.values.is_empty(),
        Operator::Exists | Operator::DoesNotExist => requirement.values.is_empty(),
        Operator::Gt | Operator::Lt => requirement.bound().is_some(),
        Operator::Gte | Operator::Lte => false,
    }
}

/// Whether a label with this value (`None` if it is missing) satisfies the requirement. An invalid requirement is never
/// satisfied.
#[must_use]
pub fn satisfies(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|listed| listed == value);
    let compared = |holds: fn(&i64, &i64) -> bool| {
        let number = value.and_then(|value| value.parse().ok());
        number.zip(requirement.bound()).is_some_and(|(number, bound)| holds(&number, &bound))
    };
    is_valid(requirement)
        && match requirement.operator {
            Operator::In => value.is_some_and(listed),
            Operator::NotIn => !value.is_some_and(listed),
            Operator::Exists => value.is_some(),
            Operator::DoesNotExist => value.is_none(),
            Operator::Gt => compared(i64::gt),
            Operator::Lt => compared(i64::lt),
            Operator::Gte | Operator::Lte => false,
        }
}

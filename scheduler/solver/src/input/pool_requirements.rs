//! Requirements of pools, with Karpenter's semantics. Selectors of pods have different semantics: see
//! `plimsoll_model::requirements`.

pub(crate) use plimsoll_model::names::label::lookup;
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};

/// Whether a label with this value, or `None` for a missing label, satisfies a requirement of a pool.
pub(crate) fn holds(requirement: &NodeSelectorRequirement, value: Option<&str>) -> bool {
    let listed = |value: &str| requirement.values.iter().any(|one| one == value);
    let compared = |test: fn(i64, i64) -> bool| {
        let bound = requirement.values.first().and_then(|text| text.parse::<i64>().ok());
        let value = value.and_then(|text| text.parse::<i64>().ok());
        value.zip(bound).is_some_and(|(value, bound)| test(value, bound))
    };
    match requirement.operator {
        Operator::In => value.is_some_and(listed),
        Operator::NotIn => !value.is_some_and(listed),
        Operator::Exists => value.is_some(),
        Operator::DoesNotExist => value.is_none(),
        Operator::Gt => compared(|value, bound| value > bound),
        Operator::Lt => compared(|value, bound| value < bound),
        Operator::Gte => compared(|value, bound| value >= bound),
        Operator::Lte => compared(|value, bound| value <= bound),
    }
}

/// The requirement `key In [value]`.
pub(crate) fn equals(key: &str, value: &str) -> NodeSelectorRequirement {
    one_of(key, vec![value.to_owned()])
}

/// The requirement `key In values`.
pub(crate) fn one_of(key: &str, values: Vec<String>) -> NodeSelectorRequirement {
    NodeSelectorRequirement { key: key.to_owned(), operator: Operator::In, values, min_values: None }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_requirement_of_a_pool_means_what_karpenter_reads() {
        let requirement =
            |operator, values: &[&str]| NodeSelectorRequirement::new("size", operator, values.iter().copied());
        // Neither requirement is valid in the affinity of a pod, where `NodeSelectorTerm` matches nothing.
        assert!(
            holds(&requirement(Operator::Gte, &["2"]), Some("2"))
                && holds(&requirement(Operator::Lte, &["2"]), Some("2"))
        );
        assert!(
            holds(&requirement(Operator::NotIn, &[]), Some("2")) && holds(&requirement(Operator::NotIn, &[]), None)
        );
        assert!(
            holds(&requirement(Operator::Exists, &["7"]), Some("2"))
                && !holds(&requirement(Operator::Exists, &["7"]), None)
        );
    }
}

//! Label selectors.

use super::matching::satisfies;
use super::{NodeSelectorRequirement, Operator};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;

/// A label selector.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Hash, Default, Serialize, Deserialize)]
pub struct LabelSelector {
    /// Labels that must be equal.
    pub match_labels: BTreeMap<String, String>,
    /// Expressions that must hold (In, NotIn, Exists, DoesNotExist).
    pub match_expressions: Vec<NodeSelectorRequirement>,
}

impl LabelSelector {
    /// Whether the selector has no condition.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.match_labels.is_empty() && self.match_expressions.is_empty()
    }

    /// Whether the selector matches an object with these labels. An empty selector matches everything. A selector with
    /// an expression that Kubernetes rejects (a comparison, `In` without values, `Exists` with values) matches nothing.
    #[must_use]
    pub fn matches(&self, labels: &BTreeMap<String, String>) -> bool {
        let equal = |(key, value): (&String, &String)| labels.get(key) == Some(value);
        let holds = |expression: &NodeSelectorRequirement| {
            !matches!(expression.operator, Operator::Gt | Operator::Lt)
                && satisfies(expression, labels.get(&expression.key).map(String::as_str))
        };
        self.match_labels.iter().all(equal) && self.match_expressions.iter().all(holds)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn selector(expressions: &[(Operator, &[&str])]) -> LabelSelector {
        let expression = |(operator, values): &(Operator, &[&str])| {
            NodeSelectorRequirement::new("tier", *operator, values.iter().copied())
        };
        LabelSelector { match_expressions: expressions.iter().map(expression).collect(), ..LabelSelector::default() }
    }

    fn labels(pairs: &[(&str, &str)]) -> BTreeMap<String, String> {
        pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
    }

    #[test]
    fn all_conditions_must_match() {
        let mut web = selector(&[(Operator::In, &["front", "back"])]);
        web.match_labels = labels(&[("app", "web")]);
        assert!(web.matches(&labels(&[("app", "web"), ("tier", "back")])));
        assert!(!web.matches(&labels(&[("app", "web"), ("tier", "middle")])));
        assert!(!web.matches(&labels(&[("app", "db"), ("tier", "back")])));
        assert!(!web.matches(&labels(&[("app", "web")])));
        assert!(LabelSelector::default().matches(&labels(&[])), "no condition");
        assert!(LabelSelector::default().is_empty() && !web.is_empty());
    }

    #[test]
    fn a_missing_label_satisfies_only_negative_operators() {
        let (none, front) = (labels(&[]), labels(&[("tier", "front")]));
        for (operator, values, missing, present) in [
            (Operator::In, &["front"][..], false, true),
            (Operator::NotIn, &["front"][..], true, false),
            (Operator::Exists, &[][..], false, true),
            (Operator::DoesNotExist, &[][..], true, false),
        ] {
            let selector = selector(&[(operator, values)]);
            assert_eq!((selector.matches(&none), selector.matches(&front)), (missing, present), "{operator}");
        }
    }

    #[test]
    fn an_invalid_expression_matches_nothing() {
        for (operator, values) in [
            (Operator::In, &[][..]),
            (Operator::NotIn, &[][..]),
            (Operator::Exists, &["7"][..]),
            (Operator::DoesNotExist, &["7"][..]),
            (Operator::Gt, &["1"][..]),
            (Operator::Lt, &["9"][..]),
            (Operator::Gte, &["7"][..]),
            (Operator::Lte, &["7"][..]),
        ] {
            let selector = selector(&[(operator, values)]);
            assert!(!selector.matches(&labels(&[("tier", "7")])), "{operator}");
            assert!(!selector.matches(&labels(&[])), "{operator}");
        }
    }
}

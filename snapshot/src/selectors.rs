//! Parses node selectors and label selectors.

use crate::problems::Fault;
use k8s_openapi::api::core::v1::{
    NodeAffinity, NodeSelectorRequirement as KubeRequirement, NodeSelectorTerm as KubeTerm, TopologySelectorTerm,
};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::LabelSelector as KubeSelector;
use plimsoll_model::requirements::{NodeSelectorRequirement, NodeSelectorTerm, Operator};
use plimsoll_model::snapshot::{LabelSelector, PreferredTerm};
use std::collections::BTreeMap;

const REQUIRED: &str = "spec.affinity.nodeAffinity.requiredDuringSchedulingIgnoredDuringExecution.nodeSelectorTerms";
const PREFERRED: &str = "spec.affinity.nodeAffinity.preferredDuringSchedulingIgnoredDuringExecution";

/// Parses the terms of required node affinity, which are alternatives. Beside others, terms that compare with something
/// other than an integer are left out: the API server accepts them, and to kube-scheduler they match no node.
pub(crate) fn required_terms(affinity: Option<&NodeAffinity>) -> Result<Vec<NodeSelectorTerm>, Fault> {
    let required = affinity.and_then(|affinity| affinity.required_during_scheduling_ignored_during_execution.as_ref());
    let terms = || required.into_iter().flat_map(|required| &required.node_selector_terms).enumerate();
    let only_texts = terms().all(|(_, kube_term)| compares_text(kube_term));
    terms()
        .filter(|(_, kube_term)| only_texts || !compares_text(kube_term))
        .map(|(index, kube_term)| term(kube_term).map_err(|fault| fault.below(&format!("{REQUIRED}[{index}]"))))
        .collect()
}

/// Whether the term has a valid `Gt` or `Lt`, except that its value is no integer.
fn compares_text(term: &KubeTerm) -> bool {
    term.match_expressions.iter().flatten().any(|one| {
        matches!(one.operator.as_str(), "Gt" | "Lt")
            && matches!(one.values.as_deref(), Some([value]) if value.parse::<i64>().is_err())
    })
}

pub(crate) fn preferred_terms(affinity: Option<&NodeAffinity>) -> Result<Vec<PreferredTerm>, Fault> {
    let list = affinity.and_then(|affinity| affinity.preferred_during_scheduling_ignored_during_execution.as_ref());
    let read = |(index, preferred): (usize, &k8s_openapi::api::core::v1::PreferredSchedulingTerm)| {
        let term =
            term(&preferred.preference).map_err(|fault| fault.below(&format!("{PREFERRED}[{index}].preference")))?;
        Ok(PreferredTerm { weight: preferred.weight, term })
    };
    list.into_iter().flatten().enumerate().map(read).collect()
}

/// Parses a term of a volume's node affinity without `ignored_key`; `None` if the term has no other requirement.
pub(crate) fn volume_term(kube_term: &KubeTerm, ignored_key: Option<&str>) -> Result<Option<NodeSelectorTerm>, Fault> {
    let mut term = term(kube_term)?;
    if let Some(key) = ignored_key {
        term.expressions.retain(|expression| expression.key != key);
        if term.expressions.is_empty() && term.fields.is_empty() {
            return Ok(None);
        }
    }
    Ok(Some(term))
}

/// Parses the allowed topologies of a storage class, which are alternatives.
pub(crate) fn allowed_topologies(terms: Option<&Vec<TopologySelectorTerm>>) -> Result<Vec<NodeSelectorTerm>, Fault> {
    let mut node_terms = Vec::new();
    for (term_index, term) in terms.into_iter().flatten().enumerate() {
        let mut expressions = Vec::new();
        for (index, expression) in term.match_label_expressions.iter().flatten().enumerate() {
            let path = || format!("allowedTopologies[{term_index}].matchLabelExpressions[{index}]");
            check_key(&expression.key).map_err(|fault| fault.below(&path()))?;
            expressions.push(NodeSelectorRequirement::new(
                expression.key.as_str(),
                Operator::In,
                expression.values.iter().cloned(),
            ));
        }
        node_terms.push(NodeSelectorTerm { expressions, fields: Vec::new() });
    }
    Ok(node_terms)
}

/// Rejects an empty label key, as the API server does.
fn check_key(key: &str) -> Result<(), Fault> {
    if key.is_empty() { Err(Fault::new("key", "must not be empty")) } else { Ok(()) }
}

fn term(term: &KubeTerm) -> Result<NodeSelectorTerm, Fault> {
    Ok(NodeSelectorTerm {
        expressions: requirements(term.match_expressions.as_ref(), "matchExpressions")?,
        fields: requirements(term.match_fields.as_ref(), "matchFields")?,
    })
}

fn requirements(list: Option<&Vec<KubeRequirement>>, field: &str) -> Result<Vec<NodeSelectorRequirement>, Fault> {
    let read = |(index, requirement): (usize, &KubeRequirement)| {
        check_key(&requirement.key).map_err(|fault| fault.below(&format!("{field}[{index}]")))?;
        // Only pools may use Gte and Lte; the API server rejects them in pods.
        let operator = Operator::parse(&requirement.operator)
            .filter(|operator| !matches!(operator, Operator::Gte | Operator::Lte));
        let operator = operator.ok_or_else(|| {
            let message = format!("{:?} is none of In, NotIn, Exists, DoesNotExist, Gt and Lt", requirement.operator);
            Fault::new(format!("{field}[{index}].operator"), message)
        })?;
        let values = requirement.values.clone().unwrap_or_default();
        check_values(operator, &values).map_err(|message| Fault::new(format!("{field}[{index}].values"), message))?;
        Ok(NodeSelectorRequirement::new(requirement.key.as_str(), operator, values))
    };
    list.into_iter().flatten().enumerate().map(read).collect()
}

fn check_values(operator: Operator, values: &[String]) -> Result<(), &'static str> {
    match operator {
        Operator::In | Operator::NotIn if values.is_empty() => Err("must name at least one value"),
        Operator::Exists | Operator::DoesNotExist if !values.is_empty() => Err("must be empty for this operator"),
        Operator::Gt | Operator::Lt if !matches!(values, [value] if value.parse::<i64>().is_ok()) => {
            Err("must be one integer")
        }
        _ => Ok(()),
    }
}

/// Parses a label selector.
pub(crate) fn label_selector(selector: &KubeSelector) -> Result<LabelSelector, Fault> {
    for key in selector.match_labels.iter().flat_map(BTreeMap::keys) {
        check_key(key).map_err(|fault| fault.below("matchLabels"))?;
    }
    let mut match_expressions = Vec::new();
    for (index, requirement) in selector.match_expressions.iter().flatten().enumerate() {
        let path = format!("matchExpressions[{index}]");
        check_key(&requirement.key).map_err(|fault| fault.below(&path))?;
        let operator = match requirement.operator.as_str() {
            "In" => Operator::In,
            "NotIn" => Operator::NotIn,
            "Exists" => Operator::Exists,
            "DoesNotExist" => Operator::DoesNotExist,
            other => {
                let message = format!("{other:?} is none of In, NotIn, Exists and DoesNotExist");
                return Err(Fault::new(format!("{path}.operator"), message));
            }
        };
        let values = requirement.values.clone().unwrap_or_default();
        check_values(operator, &values).map_err(|message| Fault::new(format!("{path}.values"), message))?;
        match_expressions.push(NodeSelectorRequirement::new(requirement.key.as_str(), operator, values));
    }
    Ok(LabelSelector { match_labels: selector.match_labels.clone().unwrap_or_default(), match_expressions })
}

/// Restricts a selector to pods with the same (`same`) or different values of `keys` as `labels`, like the API server
/// does for matchLabelKeys and mismatchLabelKeys. Requirements that the API server has added already are not repeated.
pub(crate) fn add_label_keys<'key>(
    selector: &mut LabelSelector,
    keys: impl Iterator<Item = &'key String>,
    labels: &BTreeMap<String, String>,
    same: bool,
) {
    let operator = if same { Operator::In } else { Operator::NotIn };
    for key in keys {
        let Some(value) = labels.get(key) else { continue };
        let requirement = NodeSelectorRequirement::new(key.as_str(), operator, [value.as_str()]);
        if !selector.match_expressions.contains(&requirement) {
            selector.match_expressions.push(requirement);
        }
    }
}

/// Whether the selector matches the labels. An empty selector matches everything.
pub(crate) fn matches(selector: &KubeSelector, labels: &BTreeMap<String, String>) -> Result<bool, Fault> {
    Ok(label_selector(selector)?.matches(labels))
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn one(operator: &str, values: &[&str]) -> Value {
        json!({"matchExpressions": [{"key": "rev", "operator": operator, "values": values}]})
    }

    /// The number of terms of a required node affinity, or what is wrong with it.
    fn required(terms: &[Value]) -> Result<usize, (String, String)> {
        let affinity = json!({"requiredDuringSchedulingIgnoredDuringExecution": {"nodeSelectorTerms": terms}});
        let affinity: NodeAffinity = serde_json::from_value(affinity).unwrap();
        required_terms(Some(&affinity)).map(|terms| terms.len()).map_err(|fault| (fault.field, fault.message))
    }

    /// As in kube-scheduler, which matches the other terms.
    #[test]
    fn a_term_that_compares_with_a_text_is_left_out_beside_others() {
        let (number, text) = (one("Gt", &["5"]), one("Lt", &["five"]));
        assert_eq!(required(&[number.clone(), text.clone()]), Ok(1));
        assert_eq!(required(&[one("In", &["five"]), number.clone()]), Ok(2));
        let fault = |index: usize| -> Result<usize, (String, String)> {
            Err((format!("{REQUIRED}[{index}].matchExpressions[0].values"), "must be one integer".to_owned()))
        };
        assert_eq!(required(&[text.clone(), text]), fault(0), "no other term is left");
        assert_eq!(required(&[number, one("Gt", &["5", "6"])]), fault(1), "the API server refuses it");
    }

    #[test]
    fn each_operator_has_its_values() {
        let integer = Some("must be one integer");
        let (some, none) = (Some("must name at least one value"), Some("must be empty for this operator"));
        for (operator, values, expected) in [
            ("In", &["a"][..], None),
            ("In", &[], some),
            ("NotIn", &["a", "b"], None),
            ("NotIn", &[], some),
            ("Exists", &[], None),
            ("Exists", &["a"], none),
            ("DoesNotExist", &[], None),
            ("DoesNotExist", &["a"], none),
            ("Gt", &["-1"], None),
            ("Gt", &[], integer),
            ("Lt", &["1"], None),
            ("Lt", &["a"], integer),
            ("Gte", &["1"], Some("\"Gte\" is none of In, NotIn, Exists, DoesNotExist, Gt and Lt")),
        ] {
            let found = required(&[one(operator, values)]).err().map(|(_, message)| message);
            assert_eq!(found.as_deref(), expected, "{operator} {values:?}");
        }
        let of_labels: KubeSelector = serde_json::from_value(one("Gt", &["1"])).unwrap();
        let fault = label_selector(&of_labels).unwrap_err();
        assert_eq!(fault.field, "matchExpressions[0].operator");
        assert_eq!(fault.message, "\"Gt\" is none of In, NotIn, Exists and DoesNotExist");
    }

    #[test]
    fn preferences_keep_their_weights_and_name_what_is_wrong() {
        let preferred = |term: Value| {
            let affinity =
                json!({"preferredDuringSchedulingIgnoredDuringExecution": [{"weight": 7, "preference": term}]});
            let affinity: NodeAffinity = serde_json::from_value(affinity).unwrap();
            preferred_terms(Some(&affinity)).map_err(|fault| fault.field)
        };
        let weights = preferred(one("In", &["a"])).map(|terms| terms.iter().map(|it| it.weight).collect::<Vec<_>>());
        assert_eq!(weights, Ok(vec![7]));
        let field = format!("{PREFERRED}[0].preference.matchExpressions[0].values");
        assert_eq!(preferred(one("In", &[])).err(), Some(field));
    }

    #[test]
    fn keys_of_labels_become_requirements_once() {
        let labels = BTreeMap::from([("rev".to_owned(), "7".to_owned())]);
        let keys = ["rev".to_owned(), "missing".to_owned()];
        for (same, operator) in [(true, Operator::In), (false, Operator::NotIn)] {
            let mut selector = label_selector(&KubeSelector::default()).unwrap();
            (0..2).for_each(|_| add_label_keys(&mut selector, keys.iter(), &labels, same));
            assert_eq!(selector.match_expressions, [NodeSelectorRequirement::new("rev", operator, ["7"])]);
        }
    }

    #[test]
    fn an_ignored_key_leaves_the_rest_of_a_term() {
        let of = |keys: &[&str]| {
            let expressions = keys.iter().map(|key| json!({"key": key, "operator": "Exists"}));
            let term = json!({"matchExpressions": expressions.collect::<Vec<_>>()});
            let term = volume_term(&serde_json::from_value(term).unwrap(), Some("host")).unwrap();
            term.map(|term| term.expressions.into_iter().map(|it| it.key).collect::<Vec<_>>())
        };
        assert_eq!(of(&["host"]), None);
        assert_eq!(of(&["host", "zone"]), Some(vec!["zone".to_owned()]));
    }
}

//! Reads CapacityQuotas.

use crate::Objects;
use crate::problems::{Fault, Problem};
use crate::{requests, selectors};
use plimsoll_api::{CapacityQuota as ApiQuota, Validate};
use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};
use plimsoll_model::snapshot::CapacityQuota;

/// Returns all valid quotas. A quota that is being deleted still limits.
pub(crate) fn build(objects: &Objects, problems: &mut Vec<Problem>) -> Vec<CapacityQuota> {
    let mut quotas = Vec::new();
    for quota in &objects.capacity_quotas {
        match read(quota) {
            Ok(quota) => quotas.push(quota),
            Err(fault) => problems.push(Problem::of("CapacityQuota", &quota.metadata, fault)),
        }
    }
    quotas
}

/// Reads a quota.
///
/// # Errors
/// The first invalid field.
pub fn read(quota: &ApiQuota) -> Result<CapacityQuota, Fault> {
    if let Some(error) = quota.validate().into_iter().next() {
        return Err(Fault::new(error.path, error.message));
    }
    let selector = selectors::label_selector(&quota.spec.selector()).map_err(|fault| fault.below("spec.selector"))?;
    let equal = selector.match_labels.into_iter();
    let mut requirements: Vec<NodeSelectorRequirement> =
        equal.map(|(key, value)| NodeSelectorRequirement::new(key.as_str(), Operator::In, [value])).collect();
    requirements.extend(selector.match_expressions);
    Ok(CapacityQuota {
        name: quota.metadata.name.clone().unwrap_or_default(),
        selector: requirements,
        limits: requests::amounts(Some(quota.spec.limits()), "spec.limits.resources")?,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::{Value, json};

    fn quota(spec: &Value) -> Result<CapacityQuota, Fault> {
        read(&serde_json::from_value(json!({"metadata": {"name": "team-a"}, "spec": spec})).unwrap())
    }

    #[test]
    fn labels_and_expressions_become_requirements() {
        let read = quota(&json!({
            "selector": {
                "matchLabels": {"team": "a"},
                "matchExpressions": [{"key": "zone", "operator": "NotIn", "values": ["x", "y"]}],
            },
            "limits": {"resources": {"cpu": 4, "memory": "32Gi", "nodes": "10"}},
        }));
        let read = read.unwrap();
        let expected = [
            NodeSelectorRequirement::new("team", Operator::In, ["a"]),
            NodeSelectorRequirement::new("zone", Operator::NotIn, ["x", "y"]),
        ];
        assert_eq!((read.name.as_str(), read.selector.as_slice()), ("team-a", &expected[..]));
        let limits: Vec<_> = read.limits.iter().collect();
        assert_eq!(limits, [("cpu", 4000), ("memory", 32 << 30), ("nodes", 10)]);
    }

    #[test]
    fn a_quota_without_selector_matches_all_nodes() {
        for spec in
            [json!({"limits": {"resources": {"nodes": 1}}}), json!({"selector": {}, "limits": {"resources": {}}})]
        {
            assert_eq!(quota(&spec).unwrap().selector, []);
        }
    }

    #[test]
    fn an_empty_name_of_a_label_or_resource_is_an_error() {
        let field = |spec: Value| quota(&spec).unwrap_err().field;
        let selector = json!({"matchLabels": {"": "a"}});
        let label = field(json!({"selector": selector, "limits": {"resources": {"nodes": 1}}}));
        let resource = field(json!({"limits": {"resources": {"": 1}}}));
        assert_eq!([label.as_str(), resource.as_str()], ["spec.selector.matchLabels.key", "spec.limits.resources."]);
    }

    #[test]
    fn an_invalid_quota_is_left_out_and_reported() {
        let bad = json!({"metadata": {"name": "bad"}, "spec": {
            "selector": {"matchExpressions": [{"key": "a", "operator": "In"}]}, "limits": {"resources": {}},
        }});
        let good = json!({"metadata": {"name": "good"}, "spec": {"limits": {"resources": {"nodes": 1}}}});
        let objects = Objects {
            capacity_quotas: [bad, good].map(|one| serde_json::from_value(one).unwrap()).into(),
            ..Objects::default()
        };
        let (snapshot, problems) = crate::build(&objects, &crate::Extra::default());
        let names: Vec<&str> = snapshot.capacity_quotas.iter().map(|one| one.name.as_str()).collect();
        assert_eq!(names, ["good"]);
        let shown: Vec<String> = problems.iter().map(ToString::to_string).collect();
        let message = "operators In and NotIn need a value";
        assert_eq!(shown, [format!("CapacityQuota bad: spec.selector.matchExpressions[0].values: {message}")]);
    }
}

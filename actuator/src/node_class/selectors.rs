//! Converts the selector terms of a node class to those of the ports.
//!
//! If a term sets several fields, its id wins, then its name. An empty term selects nothing.

use crate::ports::{ReservationTerm, SelectorTerm, Tags};
use plimsoll_api::EC2NodeClassSpec;
use plimsoll_api::ec2_node_class::CapacityReservationSelectorTerm;

/// Selector terms for subnets.
pub(super) fn subnets(spec: &EC2NodeClassSpec) -> Vec<SelectorTerm> {
    spec.subnet_selector_terms.iter().filter_map(|it| term(it.id.as_ref(), None, &it.tags)).collect()
}

/// Selector terms for security groups.
pub(super) fn security_groups(spec: &EC2NodeClassSpec) -> Vec<SelectorTerm> {
    let terms = spec.security_group_selector_terms.iter();
    terms.filter_map(|it| term(it.id.as_ref(), it.name.as_ref(), &it.tags)).collect()
}

/// Selector terms for capacity reservations.
pub(super) fn reservations(spec: &EC2NodeClassSpec) -> Vec<ReservationTerm> {
    let term = |it: &CapacityReservationSelectorTerm| {
        if let Some(id) = it.id.as_ref().filter(|id| !id.is_empty()) {
            return Some(ReservationTerm { id: Some(id.clone()), ..ReservationTerm::default() });
        }
        let selects = !it.tags.is_empty() || it.instance_match_criteria.is_some();
        selects.then(|| ReservationTerm {
            id: None,
            owner_id: it.owner_id.clone(),
            match_criteria: it.instance_match_criteria,
            tags: it.tags.clone(),
        })
    };
    spec.capacity_reservation_selector_terms.iter().filter_map(term).collect()
}

fn term(id: Option<&String>, name: Option<&String>, tags: &Tags) -> Option<SelectorTerm> {
    let some = |text: Option<&String>| text.filter(|text| !text.is_empty()).cloned();
    if let Some(id) = some(id) {
        return Some(SelectorTerm { id: Some(id), ..SelectorTerm::default() });
    }
    if let Some(name) = some(name) {
        return Some(SelectorTerm { name: Some(name), ..SelectorTerm::default() });
    }
    (!tags.is_empty()).then(|| SelectorTerm { tags: tags.clone(), ..SelectorTerm::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use serde_json::json;

    #[test]
    fn an_owner_alone_selects_no_reservation() {
        let terms = json!([
            {"ownerID": "123456789012"},
            {"id": "cr-1", "tags": {"a": "b"}},
            {"ownerID": "123456789012", "instanceMatchCriteria": "open", "tags": {"team": "*"}},
        ]);
        let spec = EC2NodeClassSpec {
            capacity_reservation_selector_terms: serde_json::from_value(terms).unwrap(),
            ..EC2NodeClassSpec::default()
        };
        let both = ReservationTerm {
            id: None,
            owner_id: Some("123456789012".to_owned()),
            match_criteria: Some(plimsoll_api::ec2_node_class::InstanceMatchCriteria::Open),
            tags: [("team".to_owned(), "*".to_owned())].into(),
        };
        let by_id = ReservationTerm { id: Some("cr-1".to_owned()), ..ReservationTerm::default() };
        assert_eq!(reservations(&spec), [by_id, both]);
    }

    #[test]
    fn empty_term_selects_nothing_and_id_takes_precedence() {
        let spec = EC2NodeClassSpec {
            subnet_selector_terms: serde_json::from_value(json!([
                {"tags": {}},
                {"id": "subnet-1", "tags": {"a": "b"}},
                {"tags": {"karpenter.sh/discovery": "*", "tier": "private"}},
            ]))
            .unwrap(),
            security_group_selector_terms: serde_json::from_value(json!([
                {"name": "nodes", "tags": {"a": "b"}},
                {"id": "", "tags": {"a": "b"}},
            ]))
            .unwrap(),
            ..EC2NodeClassSpec::default()
        };
        let tags = |pairs: &[(&str, &str)]| -> Tags {
            pairs.iter().map(|(key, value)| ((*key).to_owned(), (*value).to_owned())).collect()
        };
        let by_tags = |pairs| SelectorTerm { tags: tags(pairs), ..SelectorTerm::default() };
        assert_eq!(
            subnets(&spec),
            [
                SelectorTerm { id: Some("subnet-1".to_owned()), ..SelectorTerm::default() },
                by_tags(&[("karpenter.sh/discovery", "*"), ("tier", "private")]),
            ]
        );
        assert_eq!(
            security_groups(&spec),
            [SelectorTerm { name: Some("nodes".to_owned()), ..SelectorTerm::default() }, by_tags(&[("a", "b")])]
        );
    }
}

//! The placement group of a node class.

use super::controller::NodeClasses;
use super::dry_run::{is_of_class, names_dedicated};
use super::status::LookUpResult;
use crate::io::WriteError;
use crate::launch_template::check_dedicated;
use crate::ports::{PlacementGroup as Described, PlacementGroupTerm};
use plimsoll_api::ec2_node_class::{PlacementGroup, PlacementGroupSelector};
use plimsoll_api::{EC2NodeClass, NodePool};
use std::sync::Arc;

/// Reason if no group can be used.
const NOT_FOUND: &str = "PlacementGroupNotFound";
/// Reason if it is not known which group is selected, or how it places instances.
pub(super) const RESOLUTION_FAILED: &str = "PlacementGroupResolutionFailed";

/// Looks up the group that the class selects.
pub(super) async fn resolve(
    deps: &NodeClasses,
    class: &EC2NodeClass,
    group: &mut Option<PlacementGroup>,
) -> Result<LookUpResult, WriteError> {
    let Some(selector) = &class.spec.placement_group_selector else {
        *group = None;
        return Ok(LookUpResult::Yes);
    };
    let described = match term(selector) {
        Some(term) => deps.cloud_reads.placement_groups(&term).await?,
        None => Vec::new(),
    };
    let (selected, result) = select(&described);
    *group = selected;
    Ok(result)
}

/// The id wins, as in other selectors.
fn term(selector: &PlacementGroupSelector) -> Option<PlacementGroupTerm> {
    let some = |text: &Option<String>| text.clone().filter(|text| !text.is_empty());
    some(&selector.id).map(PlacementGroupTerm::Id).or_else(|| some(&selector.name).map(PlacementGroupTerm::Name))
}

/// The first group that can be used. A deleted group may have the same name as its successor.
fn select(described: &[Described]) -> (Option<PlacementGroup>, LookUpResult) {
    let no = |reason, message: String| (None, LookUpResult::No(reason, message));
    let is_available = |group: &&Described| group.state == Described::AVAILABLE;
    let Some(found) = described.iter().find(is_available).or(described.first()) else {
        return no(NOT_FOUND, "spec.placementGroupSelector selects no placement group".to_owned());
    };
    let id = &found.id;
    if !is_available(&found) {
        let message = format!("spec.placementGroupSelector: placement group {id} is in state {}", found.state);
        return no(NOT_FOUND, message);
    }
    let Some(strategy) = found.strategy else {
        let message = format!("spec.placementGroupSelector: placement group {id} has a strategy that is not known");
        return no(RESOLUTION_FAILED, message);
    };
    let name = Some(found.name.clone()).filter(|name| !name.is_empty());
    let group = PlacementGroup { id: id.clone(), name, strategy, partition_count: found.partition_count };
    (Some(group), LookUpResult::Yes)
}

/// Why EC2 would launch no instances of the class' NodePools in its placement group. Says so before EC2 is asked.
pub(super) fn tenancy_problem(class: &EC2NodeClass, pools: &[Arc<NodePool>]) -> Option<String> {
    let error = check_dedicated(class.placement_group()?).err()?;
    let class_name = class.metadata.name.as_deref().unwrap_or_default();
    let of_class = pools.iter().filter(|pool| is_of_class(pool, class_name) && names_dedicated(pool));
    let pool = of_class.filter_map(|pool| pool.metadata.name.as_deref()).min()?;
    Some(format!("{error}, as NodePool {pool} demands in spec.template"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::PlacementStrategy;
    use plimsoll_api::ec2_node_class::EC2NodeClassStatus;
    use serde_json::{Value, json};

    fn described(id: &str, state: &str) -> Described {
        Described {
            id: id.to_owned(),
            name: "own".to_owned(),
            state: state.to_owned(),
            strategy: Some(PlacementStrategy::Spread),
            partition_count: None,
        }
    }

    /// Id of the selected group, or reason and message.
    fn selected(described: &[Described]) -> Result<String, (&'static str, String)> {
        match select(described) {
            (Some(group), LookUpResult::Yes) => Ok(group.id),
            (None, LookUpResult::No(reason, message)) => Err((reason, message)),
            _ => panic!("group and result disagree"),
        }
    }

    #[test]
    fn a_group_is_used_only_if_it_is_available_and_its_strategy_is_known() {
        let path = "spec.placementGroupSelector";
        assert_eq!(selected(&[described("pg-1", "available")]), Ok("pg-1".to_owned()));
        let both = vec![described("pg-1", "deleted"), described("pg-2", "available")];
        assert_eq!(selected(&both), Ok("pg-2".to_owned()));
        assert_eq!(selected(&[]), Err((NOT_FOUND, format!("{path} selects no placement group"))));
        let message = format!("{path}: placement group pg-1 is in state deleting");
        assert_eq!(selected(&[described("pg-1", "deleting")]), Err((NOT_FOUND, message)));
        let unknown = Described { strategy: None, ..described("pg-1", "available") };
        let message = format!("{path}: placement group pg-1 has a strategy that is not known");
        assert_eq!(selected(&[unknown]), Err((RESOLUTION_FAILED, message)));
    }

    #[test]
    fn a_selector_names_one_group() {
        let term = |selector: Value| term(&serde_json::from_value(selector).unwrap());
        assert_eq!(term(json!({"name": "own"})), Some(PlacementGroupTerm::Name("own".to_owned())));
        assert_eq!(term(json!({"id": "pg-1", "name": ""})), Some(PlacementGroupTerm::Id("pg-1".to_owned())));
        assert_eq!(term(json!({"name": ""})), None);
    }

    #[test]
    fn dedicated_tenancy_in_a_spread_group_is_reported_with_field_and_pool() {
        let pool = |name: &str, class: &str, tenancy: &str| {
            let reference = json!({"group": "karpenter.k8s.aws", "kind": "EC2NodeClass", "name": class});
            let key = "karpenter.k8s.aws/instance-tenancy";
            let requirements = json!([{"key": key, "operator": "In", "values": [tenancy]}]);
            let spec = json!({"template": {"spec": {"nodeClassRef": reference, "requirements": requirements}}});
            Arc::new(NodePool::new(name, serde_json::from_value(spec).unwrap()))
        };
        let class = |strategy| {
            let spec = json!({"subnetSelectorTerms": [], "securityGroupSelectorTerms": [],
                              "placementGroupSelector": {"id": "pg-1"}});
            let mut class = EC2NodeClass::new("default", serde_json::from_value(spec).unwrap());
            let group = PlacementGroup { id: "pg-1".to_owned(), name: None, strategy, partition_count: None };
            class.status = Some(EC2NodeClassStatus { placement_group: Some(group), ..EC2NodeClassStatus::default() });
            class
        };
        let pools =
            [pool("a", "other", "dedicated"), pool("b", "default", "dedicated"), pool("c", "default", "default")];
        let message = tenancy_problem(&class(PlacementStrategy::Spread), &pools).unwrap();
        assert!(message.starts_with("spec.placementGroupSelector: spread placement group pg-1 "), "{message}");
        assert!(message.ends_with("as NodePool b demands in spec.template"), "{message}");
        assert_eq!(tenancy_problem(&class(PlacementStrategy::Cluster), &pools), None);
        assert_eq!(tenancy_problem(&class(PlacementStrategy::Spread), &pools[2..]), None);
    }
}

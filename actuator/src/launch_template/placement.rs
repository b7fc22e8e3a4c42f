//! Limits of placement groups that EC2 documents: partitions, and tenancy by strategy. Pure functions.
//! See <https://docs.aws.amazon.com/AWSEC2/latest/UserGuide/placement-groups.html>.

use plimsoll_api::ec2_node_class::{PlacementGroup, PlacementStrategy};
use plimsoll_model::requirements::Requirement;

/// Partitions in each zone of a group that has instances of dedicated tenancy, at most.
const DEDICATED_PARTITIONS: i32 = 2;

/// Why EC2 launches no such instance in a placement group. Each message names the field of the node class.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PlacementError {
    /// A partition is required, but the group has none.
    #[error("spec.placementGroupSelector: a partition is required, but no partition placement group is selected: {0}")]
    NoPartitions(String),
    /// None of the group's partitions is allowed.
    #[error(
        "spec.placementGroupSelector: placement group {id} has {count} partitions, and none is allowed: {required}"
    )]
    NoSuchPartition {
        /// The group.
        id: String,
        /// Its number of partitions.
        count: i32,
        /// The requirement.
        required: String,
    },
    /// Spread placement groups take no instances of dedicated tenancy.
    #[error("spec.placementGroupSelector: spread placement group {0} takes no instances of dedicated tenancy")]
    DedicatedInSpread(String),
    /// The group has too many partitions for instances of dedicated tenancy.
    #[error(
        "spec.placementGroupSelector: placement group {id} has {count} partitions, and instances of dedicated tenancy \
         may have at most {DEDICATED_PARTITIONS}"
    )]
    DedicatedInPartitions {
        /// The group.
        id: String,
        /// Its number of partitions.
        count: i32,
    },
}

/// The partition that a launch with this requirement on the partition requests: of those that are allowed the first by
/// name, as in Karpenter. `None` if EC2 chooses one, since all are allowed.
///
/// # Errors
/// The group has no allowed partition.
pub fn partition(
    group: Option<&PlacementGroup>,
    requirement: Option<&Requirement>,
) -> Result<Option<u32>, PlacementError> {
    let Some(requirement) = requirement else { return Ok(None) };
    let Some(group) = group.filter(|group| group.strategy == PlacementStrategy::Partition) else {
        let is_met = requirement.allows_absence();
        return if is_met { Ok(None) } else { Err(PlacementError::NoPartitions(requirement.to_string())) };
    };
    let count = group.partition_count.unwrap_or(0);
    let all = 1..=u32::try_from(count).unwrap_or(0);
    let allowed: Vec<u32> = all.clone().filter(|number| requirement.has(&number.to_string())).collect();
    let first = allowed.iter().copied().min_by_key(u32::to_string);
    match first {
        None => {
            let (id, required) = (group.id.clone(), requirement.to_string());
            Err(PlacementError::NoSuchPartition { id, count, required })
        }
        Some(_) if allowed.len() == all.count() => Ok(None),
        Some(first) => Ok(Some(first)),
    }
}

/// Checks that EC2 launches instances of dedicated tenancy in a group.
///
/// # Errors
/// EC2 launches none.
pub fn check_dedicated(group: &PlacementGroup) -> Result<(), PlacementError> {
    let count = group.partition_count.unwrap_or(0);
    match group.strategy {
        PlacementStrategy::Spread => Err(PlacementError::DedicatedInSpread(group.id.clone())),
        PlacementStrategy::Partition if count > DEDICATED_PARTITIONS => {
            Err(PlacementError::DedicatedInPartitions { id: group.id.clone(), count })
        }
        PlacementStrategy::Partition | PlacementStrategy::Cluster => Ok(()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use plimsoll_model::names::label;
    use plimsoll_model::requirements::{NodeSelectorRequirement, Operator};

    fn group(strategy: PlacementStrategy, partition_count: Option<i32>) -> PlacementGroup {
        PlacementGroup { id: "pg-1".to_owned(), name: None, strategy, partition_count }
    }

    fn chosen(group: Option<&PlacementGroup>, operator: Operator, values: &[&str]) -> Result<Option<u32>, String> {
        let key = label::PLACEMENT_GROUP_PARTITION;
        let requirement = Requirement::new(&NodeSelectorRequirement::new(key, operator, values.iter().copied()));
        partition(group, Some(&requirement.unwrap())).map_err(|error| error.to_string())
    }

    #[test]
    fn the_first_allowed_partition_by_name_is_requested_and_ec2_chooses_among_all() {
        let many = group(PlacementStrategy::Partition, Some(12));
        let of = |operator, values: &[&str]| chosen(Some(&many), operator, values);
        assert_eq!(of(Operator::In, &["3", "2"]), Ok(Some(2)));
        assert_eq!(of(Operator::In, &["9", "10"]), Ok(Some(10)), "in the order of texts");
        assert_eq!(of(Operator::NotIn, &["1", "10", "11"]), Ok(Some(12)));
        assert_eq!(of(Operator::Exists, &[]), Ok(None));
        assert_eq!(partition(Some(&many), None), Ok(None));
        let two = group(PlacementStrategy::Partition, Some(2));
        assert_eq!(chosen(Some(&two), Operator::In, &["1", "2", "3"]), Ok(None), "all that the group has are allowed");
    }

    #[test]
    fn a_partition_that_the_group_does_not_have_is_an_error() {
        let three = group(PlacementStrategy::Partition, Some(3));
        let error = chosen(Some(&three), Operator::In, &["4", "0"]).unwrap_err();
        assert!(error.starts_with("spec.placementGroupSelector: placement group pg-1 has 3 partitions"), "{error}");
        assert!(error.contains(label::PLACEMENT_GROUP_PARTITION), "{error}");
        assert!(chosen(Some(&three), Operator::DoesNotExist, &[]).is_err(), "each node of the group has a partition");
        let spread = group(PlacementStrategy::Spread, None);
        for without in [None, Some(&spread)] {
            let error = chosen(without, Operator::In, &["1"]).unwrap_err();
            assert!(error.contains("no partition placement group is selected"), "{error}");
            assert_eq!(chosen(without, Operator::DoesNotExist, &[]), Ok(None));
            assert_eq!(chosen(without, Operator::NotIn, &["1"]), Ok(None));
        }
    }

    #[test]
    fn dedicated_tenancy_needs_a_cluster_or_at_most_two_partitions() {
        let of = |strategy, count| check_dedicated(&group(strategy, count));
        assert_eq!(of(PlacementStrategy::Cluster, None), Ok(()));
        assert_eq!(of(PlacementStrategy::Partition, Some(2)), Ok(()));
        let id = "pg-1".to_owned();
        let refused = PlacementError::DedicatedInPartitions { id: id.clone(), count: 3 };
        assert_eq!(of(PlacementStrategy::Partition, Some(3)), Err(refused));
        assert_eq!(of(PlacementStrategy::Spread, None), Err(PlacementError::DedicatedInSpread(id)));
    }
}

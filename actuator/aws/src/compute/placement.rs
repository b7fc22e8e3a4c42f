//! Placement groups. EC2 answers DescribePlacementGroups in one page: the call has neither page size nor token.

use super::filter;
use crate::error::{classify, is_missing};
use aws_sdk_ec2::types::{PlacementGroup as Described, PlacementStrategy as Strategy};
use plimsoll_actuator::ports::{CloudError, PlacementGroup, PlacementGroupTerm, PlacementStrategy};

/// Code by which EC2 refuses an id or a name that it does not know.
const UNKNOWN: &str = "InvalidPlacementGroup.Unknown";
/// Code of an id that no group can have. EC2 documents it for other resources.
const MALFORMED: &str = "InvalidPlacementGroupId.Malformed";

pub(super) async fn describe(
    client: &aws_sdk_ec2::Client,
    term: &PlacementGroupTerm,
) -> Result<Vec<PlacementGroup>, CloudError> {
    let call = client.describe_placement_groups();
    let answer = match term {
        // There is no filter on ids.
        PlacementGroupTerm::Id(id) => call.group_ids(id).send().await.map_err(classify),
        // A filter rather than the call's name parameter, which would fail for an unknown name.
        PlacementGroupTerm::Name(name) => {
            call.filters(filter("group-name", [name.as_str()])).send().await.map_err(classify)
        }
    };
    let groups = match answer {
        Ok(answer) => answer.placement_groups.unwrap_or_default(),
        Err(error) if is_missing(&error, &[UNKNOWN, MALFORMED]) => Vec::new(),
        Err(error) => return Err(error),
    };
    // EC2 takes wildcards in the values of filters.
    let is_wanted = |group: &PlacementGroup| match term {
        PlacementGroupTerm::Id(id) => group.id == *id,
        PlacementGroupTerm::Name(name) => group.name == *name,
    };
    let mut found: Vec<PlacementGroup> = groups.into_iter().filter_map(group).filter(is_wanted).collect();
    found.sort();
    found.dedup_by(|left, right| left.id == right.id);
    Ok(found)
}

/// `None` for a group without an id.
fn group(item: Described) -> Option<PlacementGroup> {
    let strategy = match item.strategy {
        Some(Strategy::Cluster) => Some(PlacementStrategy::Cluster),
        Some(Strategy::Partition) => Some(PlacementStrategy::Partition),
        Some(Strategy::Spread) => Some(PlacementStrategy::Spread),
        _ => None,
    };
    Some(PlacementGroup {
        id: item.group_id?,
        name: item.group_name.unwrap_or_default(),
        state: item.state.map(|state| state.as_str().to_owned()).unwrap_or_default(),
        strategy,
        partition_count: item.partition_count,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::compute::tests::ec2;
    use crate::stub::{Reply, Stub};
    use plimsoll_actuator::ports::{Compute, InstanceFilter};

    fn item(id: &str, name: &str, more: &str) -> String {
        format!("<item><groupId>{id}</groupId><groupName>{name}</groupName><state>available</state>{more}</item>")
    }

    fn answer(items: &str) -> Reply {
        let set = format!("<placementGroupSet>{items}</placementGroupSet>");
        Reply::ok(&format!("<DescribePlacementGroupsResponse>{set}</DescribePlacementGroupsResponse>"))
    }

    #[tokio::test]
    async fn groups_are_described_by_id_or_by_name() {
        let partitions = "<strategy>partition</strategy><partitionCount>3</partitionCount>";
        let by_name = item("pg-2", "own*", "<strategy>spread</strategy>") + &item("pg-3", "own-2", partitions);
        let stub = Stub::new(vec![answer(&item("pg-1", "own", partitions)), answer(&by_name)]).await;
        let found = ec2(&stub).describe_placement_groups(&PlacementGroupTerm::Id("pg-1".to_owned())).await.unwrap();
        let expected = PlacementGroup {
            id: "pg-1".to_owned(),
            name: "own".to_owned(),
            state: "available".to_owned(),
            strategy: Some(PlacementStrategy::Partition),
            partition_count: Some(3),
        };
        assert_eq!(found, [expected]);
        let term = PlacementGroupTerm::Name("own*".to_owned());
        let found = ec2(&stub).describe_placement_groups(&term).await.unwrap();
        let ids: Vec<_> = found.iter().map(|group| (group.id.as_str(), group.strategy)).collect();
        assert_eq!(ids, [("pg-2", Some(PlacementStrategy::Spread))], "a name has no wildcards");
        let sent = stub.requests();
        assert!(
            sent[0].contains("Action=DescribePlacementGroups&") && sent[0].contains("&GroupId.1=pg-1"),
            "{}",
            sent[0]
        );
        assert!(sent[1].contains("&Filter.1.Name=group-name&Filter.1.Value.1=own"), "{}", sent[1]);
    }

    #[tokio::test]
    async fn an_unknown_group_is_missing_and_other_errors_are_told() {
        let refusals = ["InvalidPlacementGroup.Unknown", "InvalidPlacementGroupId.NotFound"];
        let mut replies: Vec<Reply> = refusals.into_iter().map(|code| Reply::ec2_error(400, code)).collect();
        replies.push(Reply::ec2_error(403, "UnauthorizedOperation"));
        let stub = Stub::new(replies).await;
        let term = PlacementGroupTerm::Id("pg-1".to_owned());
        for code in refusals {
            assert_eq!(ec2(&stub).describe_placement_groups(&term).await, Ok(Vec::new()), "{code}");
        }
        let denied = ec2(&stub).describe_placement_groups(&term).await;
        assert!(matches!(denied, Err(CloudError::Denied { .. })), "{denied:?}");
    }

    #[tokio::test]
    async fn an_instance_has_the_partition_that_ec2_chose() {
        let placement = |more: &str| format!("<placement><availabilityZone>a</availabilityZone>{more}</placement>");
        let instance = |id: &str, more: &str| format!("<item><instanceId>{id}</instanceId>{}</item>", placement(more));
        let items =
            instance("i-1", "<groupId>pg-1</groupId><partitionNumber>2</partitionNumber>") + &instance("i-2", "");
        let set = format!("<reservationSet><item><instancesSet>{items}</instancesSet></item></reservationSet>");
        let text = format!("<DescribeInstancesResponse>{set}</DescribeInstancesResponse>");
        let stub = Stub::new(vec![Reply::ok(&text)]).await;
        let filter = InstanceFilter::Cluster { cluster: "demo".to_owned() };
        let found = ec2(&stub).describe_instances(&filter).await.unwrap();
        let partitions: Vec<_> = found.iter().map(|it| (it.zone.as_str(), it.partition)).collect();
        assert_eq!(partitions, [("a", Some(2)), ("a", None)]);
    }
}

//! Describes and terminates instances.

use super::{FILTER_VALUES, ITEMS, filter, from_tags};
use crate::error::classify;
use aws_sdk_ec2::types::{CapacityReservationPreference, Filter, InstanceLifecycleType, InstanceStateName};
use plimsoll_actuator::ports::{CloudError, Instance, InstanceFilter, InstanceState, StateReason, Termination};
use plimsoll_model::catalog::CapacityType;
use plimsoll_model::names::{annotation, tag};
use plimsoll_model::time::Timestamp;

pub(super) async fn describe(
    client: &aws_sdk_ec2::Client,
    wanted: &InstanceFilter,
) -> Result<Vec<Instance>, CloudError> {
    let ours = |cluster: &str| {
        vec![
            filter(&format!("tag:{}{cluster}", tag::CLUSTER_PREFIX), ["owned"]),
            filter(&format!("tag:{}", tag::OWNER), [annotation::OWNER_VALUE]),
        ]
    };
    let queries: Vec<Vec<Filter>> = match wanted {
        // A filter rather than the call's id parameter, which would fail the whole call for one unknown id.
        InstanceFilter::Ids(ids) => {
            ids.chunks(FILTER_VALUES).map(|ids| vec![filter("instance-id", ids.iter().map(String::as_str))]).collect()
        }
        InstanceFilter::Cluster { cluster } => vec![ours(cluster)],
        InstanceFilter::LaunchGroup { cluster, group } => {
            let mut filters = ours(cluster);
            filters.push(filter(&format!("tag:{}", tag::LAUNCH_GROUP), [group.as_str()]));
            vec![filters]
        }
    };
    let mut described = Vec::new();
    for filters in queries {
        let call = client.describe_instances().set_filters(Some(filters)).max_results(ITEMS);
        let mut reservations = call.into_paginator().items().send();
        while let Some(reservation) = reservations.next().await {
            let instances = reservation.map_err(classify)?.instances.unwrap_or_default();
            described.extend(instances.into_iter().filter_map(instance));
        }
    }
    described.sort_by(|left: &Instance, right| left.id.cmp(&right.id));
    described.dedup_by(|left, right| left.id == right.id);
    Ok(described)
}

fn instance(item: aws_sdk_ec2::types::Instance) -> Option<Instance> {
    let spot = item.instance_lifecycle == Some(InstanceLifecycleType::Spot) || item.spot_instance_request_id.is_some();
    let preference = item.capacity_reservation_specification.and_then(|it| it.capacity_reservation_preference);
    // An instance may also be in an open reservation that nobody asked for.
    let reserved = item.capacity_reservation_id.is_some()
        && preference == Some(CapacityReservationPreference::CapacityReservationsOnly);
    let mut groups: Vec<String> =
        item.security_groups.unwrap_or_default().into_iter().filter_map(|group| group.group_id).collect();
    groups.sort();
    let partition = item.placement.as_ref().and_then(|it| it.partition_number);
    Some(Instance {
        id: item.instance_id?,
        state: item.state.and_then(|state| state.name).map_or(InstanceState::Pending, |name| state(&name)),
        state_reason: item.state_reason.map(|reason| StateReason {
            code: reason.code.unwrap_or_default(),
            message: reason.message.unwrap_or_default(),
        }),
        instance_type: item.instance_type.map(|it| it.as_str().to_owned()).unwrap_or_default(),
        zone: item.placement.and_then(|it| it.availability_zone).unwrap_or_default(),
        image_id: item.image_id.unwrap_or_default(),
        subnet_id: item.subnet_id.unwrap_or_default(),
        security_group_ids: groups,
        capacity_type: match (reserved, spot) {
            (true, _) => CapacityType::Reserved,
            (false, true) => CapacityType::Spot,
            (false, false) => CapacityType::OnDemand,
        },
        capacity_reservation_id: item.capacity_reservation_id,
        partition: partition.and_then(|number| u32::try_from(number).ok()).filter(|number| *number > 0),
        launched: Timestamp(item.launch_time.and_then(|at| at.to_millis().ok()).unwrap_or(0)),
        tags: from_tags(item.tags),
    })
}

/// An unknown state counts as alive, so that no living instance is taken for terminated.
fn state(name: &InstanceStateName) -> InstanceState {
    match name {
        InstanceStateName::Pending => InstanceState::Pending,
        InstanceStateName::Stopping => InstanceState::Stopping,
        InstanceStateName::Stopped => InstanceState::Stopped,
        InstanceStateName::ShuttingDown => InstanceState::ShuttingDown,
        InstanceStateName::Terminated => InstanceState::Terminated,
        _ => InstanceState::Running,
    }
}

/// A single call. EC2 rejects the whole call if one instance is unknown or may not be terminated.
pub(super) async fn terminate(client: &aws_sdk_ec2::Client, ids: &[String]) -> Result<Vec<Termination>, CloudError> {
    if ids.is_empty() {
        return Ok(Vec::new());
    }
    let call = client.terminate_instances().set_instance_ids(Some(ids.to_vec()));
    let changes = call.send().await.map_err(classify)?.terminating_instances.unwrap_or_default();
    let state_of = |id: &String| {
        let change = changes.iter().find(|change| change.instance_id.as_ref() == Some(id))?;
        change.current_state.as_ref()?.name.as_ref().map(state)
    };
    Ok(ids.iter().map(|id| Termination { instance_id: id.clone(), state: state_of(id) }).collect())
}

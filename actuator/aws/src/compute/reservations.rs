//! Capacity reservations: one query for each id and for each other term, always in state `active`.

use super::{ITEMS, filter, tag_filters};
use crate::error::{classify, is_missing};
use aws_sdk_ec2::types::{CapacityReservation as Described, CapacityReservationType, Filter};
use plimsoll_actuator::ports::{
    CapacityReservation, CloudError, InstanceMatchCriteria, ReservationTerm, ReservationType,
};
use plimsoll_model::time::Timestamp;

/// Code of an id that no reservation can have.
const MALFORMED: &str = "InvalidCapacityReservationId.Malformed";

fn active() -> Filter {
    filter("state", ["active"])
}

/// The filters of the terms without an id.
fn queries(terms: &[ReservationTerm]) -> Vec<Vec<Filter>> {
    let mut queries = Vec::new();
    for term in terms.iter().filter(|term| term.id.is_none()) {
        let mut filters = tag_filters(&term.tags);
        filters.extend(term.owner_id.as_deref().map(|owner| filter("owner-id", [owner])));
        filters.extend(term.match_criteria.map(|criteria| filter("instance-match-criteria", [word(criteria)])));
        // A query without filters would match everything.
        if !filters.is_empty() {
            filters.push(active());
            queries.push(filters);
        }
    }
    queries
}

fn word(criteria: InstanceMatchCriteria) -> &'static str {
    match criteria {
        InstanceMatchCriteria::Open => "open",
        InstanceMatchCriteria::Targeted => "targeted",
    }
}

pub(super) async fn describe(
    client: &aws_sdk_ec2::Client,
    terms: &[ReservationTerm],
) -> Result<Vec<CapacityReservation>, CloudError> {
    let mut described = Vec::new();
    for id in terms.iter().filter_map(|term| term.id.as_deref()) {
        described.extend(with_id(client, id).await?);
    }
    for filters in queries(terms) {
        let call = client.describe_capacity_reservations().set_filters(Some(filters)).max_results(ITEMS);
        let mut items = call.into_paginator().items().send();
        while let Some(item) = items.next().await {
            described.push(item.map_err(classify)?);
        }
    }
    let mut reservations = Vec::new();
    for item in described {
        let id = item.capacity_reservation_id.clone();
        match reservation(item) {
            Some(reservation) => reservations.push(reservation),
            None => tracing::warn!(id, "capacity reservation left out: its type or match criteria are unknown"),
        }
    }
    reservations.sort();
    reservations.dedup_by(|left: &mut CapacityReservation, right| left.id == right.id);
    Ok(reservations)
}

/// The active reservation with this id. There is no filter on ids. EC2 fails the whole call for an unknown id, so each
/// id has a call of its own. A page size is not allowed with ids.
async fn with_id(client: &aws_sdk_ec2::Client, id: &str) -> Result<Vec<Described>, CloudError> {
    let call = client.describe_capacity_reservations().capacity_reservation_ids(id).filters(active());
    match call.send().await.map_err(classify) {
        Ok(answer) => Ok(answer.capacity_reservations.unwrap_or_default()),
        Err(error) if is_missing(&error, &[MALFORMED]) => Ok(Vec::new()),
        Err(error) => Err(error),
    }
}

/// `None` if a field is missing, or has a value of which it is not known what it means.
fn reservation(item: Described) -> Option<CapacityReservation> {
    let match_criteria = match item.instance_match_criteria?.as_str() {
        "open" => InstanceMatchCriteria::Open,
        "targeted" => InstanceMatchCriteria::Targeted,
        _ => return None,
    };
    let kind = match item.reservation_type {
        None | Some(CapacityReservationType::Default) => ReservationType::Default,
        Some(CapacityReservationType::CapacityBlock) => ReservationType::CapacityBlock,
        Some(_) => return None,
    };
    Some(CapacityReservation {
        id: item.capacity_reservation_id?,
        owner_id: item.owner_id?,
        instance_type: item.instance_type?,
        zone: item.availability_zone?,
        platform: item.instance_platform.map(|it| it.as_str().to_owned()).unwrap_or_default(),
        match_criteria,
        kind,
        interruptible: item.interruptible.unwrap_or(false),
        ends: item.end_date.and_then(|at| at.to_millis().ok()).map(Timestamp),
        free: item.available_instance_count.and_then(|count| u32::try_from(count).ok()).unwrap_or(0),
        tags: super::from_tags(item.tags),
    })
}

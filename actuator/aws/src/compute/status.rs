//! Instances that EC2 reports as impaired or with scheduled events.

use super::ITEMS;
use crate::error::classify;
use aws_sdk_ec2::types::{InstanceStatusSummary, SummaryStatus};
use plimsoll_actuator::ports::{CloudError, InstanceEvent, InstanceStatus, StatusCheck};
use plimsoll_model::time::Timestamp;

/// Prefixes of the descriptions of events that are over.
const OVER: [&str; 2] = ["[Completed]", "[Canceled]"];

pub(super) async fn unhealthy(client: &aws_sdk_ec2::Client) -> Result<Vec<InstanceStatus>, CloudError> {
    let mut items = client.describe_instance_status().max_results(ITEMS).into_paginator().items().send();
    let mut statuses = Vec::new();
    while let Some(item) = items.next().await {
        let item = item.map_err(classify)?;
        let Some(instance_id) = item.instance_id else { continue };
        let events = item.events.unwrap_or_default().into_iter().filter(|event| {
            let description = event.description.as_deref().unwrap_or_default();
            !OVER.iter().any(|prefix| description.starts_with(prefix))
        });
        let status = InstanceStatus {
            instance_id,
            instance: check(item.instance_status),
            system: check(item.system_status),
            events: events
                .map(|event| InstanceEvent {
                    code: event.code.map(|code| code.as_str().to_owned()).unwrap_or_default(),
                    not_before: event.not_before.as_ref().and_then(timestamp),
                })
                .collect(),
        };
        let is_well = status.instance == StatusCheck::Ok && status.system == StatusCheck::Ok;
        if !is_well || !status.events.is_empty() {
            statuses.push(status);
        }
    }
    statuses.sort_by(|left: &InstanceStatus, right| left.instance_id.cmp(&right.instance_id));
    Ok(statuses)
}

fn check(summary: Option<InstanceStatusSummary>) -> StatusCheck {
    let Some(summary) = summary.filter(|it| it.status == Some(SummaryStatus::Impaired)) else { return StatusCheck::Ok };
    let since = summary
        .details
        .unwrap_or_default()
        .iter()
        .filter_map(|it| it.impaired_since.as_ref())
        .filter_map(timestamp)
        .min();
    StatusCheck::Impaired { since }
}

fn timestamp(at: &aws_sdk_ec2::primitives::DateTime) -> Option<Timestamp> {
    at.to_millis().ok().map(Timestamp)
}

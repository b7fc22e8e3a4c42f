//! Instances that EC2 reports as impaired or that have a scheduled event (spec: AWS provider section 7.2).

use super::claims_by_instance;
use super::mark::{self, Urgency};
use super::messages::NoticeKind;
use super::repair_limit::RepairLimit;
use crate::clock::Timestamped;
use crate::events::{Note, object, reason};
use crate::interruption::Interruptions;
use crate::ports::{CloudError, InstanceStatus, StatusCheck};
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::BTreeMap;
use std::time::Duration;
use tokio_util::sync::CancellationToken;

/// Polling interval.
const POLL_INTERVAL: Duration = Duration::from_secs(60);
/// A check must fail for this long; shorter failures may be transient.
const IMPAIRED_FOR: Millis = Millis::from_seconds(120);
/// Scheduled events that stop, restart or retire the instance.
const EVENTS: [&str; 5] =
    ["instance-reboot", "system-reboot", "system-maintenance", "instance-retirement", "instance-stop"];

/// A health problem of an instance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum HealthProblem {
    /// A status check has been failing for long enough.
    Impaired(&'static str),
    /// An event is scheduled, with its earliest start.
    Event(Option<Timestamp>),
}

impl HealthProblem {
    /// Value of the metrics' label `category`.
    fn category(self) -> &'static str {
        match self {
            Self::Impaired("instance_status") => "InstanceStatus",
            Self::Impaired(_) => "SystemStatus",
            Self::Event(_) => "EventStatus",
        }
    }
}

/// When failing checks were first seen, for checks without a time from EC2.
type FirstSeen = BTreeMap<String, Timestamp>;

pub(super) async fn run(deps: &Interruptions, stop: &CancellationToken) {
    let mut first_seen = FirstSeen::new();
    loop {
        tokio::select! {
            biased;
            () = stop.cancelled() => return,
            () = tokio::time::sleep(POLL_INTERVAL) => {}
        }
        let statuses = match deps.cloud_reads.instance_status().await {
            Ok(statuses) => statuses,
            Err(CloudError::Denied { message }) => {
                tracing::warn!(message, "instance status not checked: allow ec2:DescribeInstanceStatus");
                return;
            }
            Err(error) => {
                tracing::warn!(%error, "instance status not read");
                continue;
            }
        };
        first_seen.retain(|id, _| statuses.iter().any(|status| status.instance_id == *id));
        let claims = claims_by_instance(deps);
        let now = deps.clock.timestamp();
        let problems: BTreeMap<&str, HealthProblem> = statuses
            .iter()
            .filter_map(|status| Some((status.instance_id.as_str(), health_problem(status, &mut first_seen, now)?)))
            .collect();
        let is_impaired = |id: &str| matches!(problems.get(id), Some(HealthProblem::Impaired(_)));
        let limit = RepairLimit::new(claims.iter().map(|(id, claim)| (&**claim, is_impaired(id))));
        for (instance, problem) in &problems {
            let Some(claim) = claims.get(*instance) else { continue };
            if claim.metadata.deletion_timestamp.is_none() {
                deps.metrics.interruption.unhealthy(problem.category());
            }
            let result = match problem {
                HealthProblem::Event(starts) => {
                    mark::publish_notice(deps, claim, NoticeKind::ScheduledChange);
                    mark::mark_and_delete(deps, claim, "event_status", *starts, Urgency::Drain).await
                }
                HealthProblem::Impaired(check) => {
                    if let Some(message) = limit.blocked(claim) {
                        tracing::warn!(instance, message, "impaired instance not replaced");
                        deps.events.publish(Note::warning(object(&**claim), reason::NODE_REPAIR_BLOCKED, message));
                        continue;
                    }
                    let message = format!("EC2 status check {check} failed, replacing the node");
                    deps.events.publish(Note::warning(object(&**claim), reason::NODE_REPAIR, message));
                    mark::mark_and_delete(deps, claim, check, None, Urgency::Force).await
                }
            };
            if let Err(error) = result {
                tracing::warn!(instance, %error, "unhealthy instance not replaced");
            }
        }
    }
}

fn health_problem(status: &InstanceStatus, first_seen: &mut FirstSeen, now: Timestamp) -> Option<HealthProblem> {
    let events: Vec<_> = status.events.iter().filter(|event| EVENTS.contains(&event.code.as_str())).collect();
    if !events.is_empty() {
        return Some(HealthProblem::Event(events.iter().filter_map(|event| event.not_before).min()));
    }
    let checks = [("instance_status", status.instance), ("system_status", status.system)];
    let failing: Vec<_> = checks.into_iter().filter(|(_, check)| *check != StatusCheck::Ok).collect();
    if failing.is_empty() {
        first_seen.remove(&status.instance_id);
        return None;
    }
    let first_failure = *first_seen.entry(status.instance_id.clone()).or_insert(now);
    let failed_long_enough = |check: StatusCheck| match check {
        StatusCheck::Impaired { since: Some(since) } => now.since(since) >= IMPAIRED_FOR,
        StatusCheck::Impaired { since: None } => now.since(first_failure) >= IMPAIRED_FOR,
        StatusCheck::Ok => false,
    };
    failing.into_iter().find(|(_, check)| failed_long_enough(*check)).map(|(name, _)| HealthProblem::Impaired(name))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ports::InstanceEvent;

    fn status(since: Option<Option<i64>>, event: &str) -> InstanceStatus {
        status_with(since, &[(event, None)])
    }

    fn status_with(since: Option<Option<i64>>, events: &[(&str, Option<i64>)]) -> InstanceStatus {
        let check = since.map_or(StatusCheck::Ok, |since| StatusCheck::Impaired { since: since.map(Timestamp) });
        let event = |(code, at): &(&str, Option<i64>)| InstanceEvent {
            code: (*code).to_owned(),
            not_before: at.map(Timestamp),
        };
        let events = events.iter().map(event).collect();
        InstanceStatus { instance_id: "i-1".to_owned(), instance: StatusCheck::Ok, system: check, events }
    }

    #[test]
    fn status_check_must_fail_for_two_minutes() {
        let mut seen = FirstSeen::new();
        let mut at = |status: &InstanceStatus, now: i64| health_problem(status, &mut seen, Timestamp(now));
        let impaired = Some(HealthProblem::Impaired("system_status"));
        assert_eq!(at(&status(Some(Some(1_000)), ""), 120_999), None);
        assert_eq!(at(&status(Some(Some(1_000)), ""), 121_000), impaired);
        assert_eq!(at(&status(None, ""), 122_000), None, "it is well again");
        assert_eq!(at(&status(Some(None), ""), 200_000), None, "counted from when it was seen");
        assert_eq!(at(&status(Some(None), ""), 320_000), impaired);
    }

    #[test]
    fn events_that_stop_the_instance_count_at_once() {
        let mut seen = FirstSeen::new();
        let mut of = |event: &str| health_problem(&status(None, event), &mut seen, Timestamp(0));
        assert_eq!(of("instance-retirement"), Some(HealthProblem::Event(None)));
        assert_eq!(of("something-else"), None);
        let several = [("instance-stop", Some(9)), ("instance-reboot", Some(7)), ("something-else", Some(5))];
        let problem = health_problem(&status_with(None, &several), &mut FirstSeen::new(), Timestamp(0));
        assert_eq!(problem, Some(HealthProblem::Event(Some(Timestamp(7)))), "the first that stops the instance");
    }
}

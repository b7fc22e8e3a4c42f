//! Instances that EC2 reports as impaired or that have a scheduled event.

use super::claims_by_instance;
use super::mark::{self, Urgency};
use super::messages::NoticeKind;
use super::repair_limit::RepairLimit;
use crate::clock::Timestamped;
use crate::events::{Note, object, reason};
use crate::fencing::CLUSTER_CALL;
use crate::interruption::Interruptions;
use crate::io::WriteError;
use crate::pacing::interval_passed;
use crate::ports::{CloudError, InstanceStatus, StatusCheck};
use plimsoll_api::NodeClaim;
use plimsoll_model::time::{Millis, Timestamp};
use std::collections::{BTreeMap, BTreeSet};
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

/// The problems of our instances at the last poll: instance and category.
#[derive(Debug, Default)]
struct Episodes(BTreeSet<(String, &'static str)>);

impl Episodes {
    /// Replaces the problems. Returns the categories of those that are new.
    fn replace(&mut self, problems: BTreeSet<(String, &'static str)>) -> Vec<&'static str> {
        let categories = problems.difference(&self.0).map(|(_, category)| *category).collect();
        self.0 = problems;
        categories
    }
}

/// Whether EC2 denied the last poll. Polling goes on: credentials that have expired are denied too, and an
/// administrator may grant the right.
#[derive(Debug, Default)]
struct Access {
    denied: bool,
}

/// A change that is logged. Not each denied poll is.
#[derive(Debug, PartialEq, Eq)]
enum AccessChange<'a> {
    /// EC2 denies the polls from now on, with this message.
    Denied(&'a str),
    /// EC2 answers again.
    Granted,
}

impl Access {
    /// Takes the answer to a poll into account. Returns what has changed. Other errors say nothing about the right.
    fn change<'a, T>(&mut self, answer: &'a Result<T, CloudError>) -> Option<AccessChange<'a>> {
        let before = self.denied;
        match answer {
            Ok(_) => {
                self.denied = false;
                before.then_some(AccessChange::Granted)
            }
            Err(CloudError::Denied { message }) => {
                self.denied = true;
                (!before).then_some(AccessChange::Denied(message))
            }
            Err(_) => None,
        }
    }
}

pub(super) async fn run(deps: &Interruptions, stop: &CancellationToken) {
    let (mut first_seen, mut episodes, mut access) = (FirstSeen::new(), Episodes::default(), Access::default());
    while interval_passed(stop, POLL_INTERVAL).await {
        // While another autoscaler leads, only Events would be written, which would say that instances are replaced.
        if deps.fence.check(CLUSTER_CALL).is_err() {
            first_seen.clear();
            continue;
        }
        let answer = deps.cloud_reads.instance_status().await;
        match access.change(&answer) {
            Some(AccessChange::Denied(message)) => {
                tracing::warn!(message, "instance status not checked: allow ec2:DescribeInstanceStatus");
            }
            Some(AccessChange::Granted) => tracing::info!("instance status is checked again"),
            None => {}
        }
        let statuses = match answer {
            Ok(statuses) => statuses,
            Err(CloudError::Denied { .. }) => continue,
            Err(error) => {
                tracing::warn!(%error, "instance status not read");
                continue;
            }
        };
        first_seen.retain(|id, _| statuses.iter().any(|status| status.instance_id == *id));
        let claims = claims_by_instance(deps);
        let now = deps.clock.timestamp();
        let problems: BTreeMap<&str, Vec<HealthProblem>> = statuses
            .iter()
            .map(|status| (status.instance_id.as_str(), health_problems(status, &mut first_seen, now)))
            .collect();
        let ours = problems.iter().filter(|(id, _)| claims.contains_key(**id));
        let found = ours.flat_map(|(id, problems)| problems.iter().map(|it| ((*id).to_owned(), it.category())));
        for category in episodes.replace(found.collect()) {
            deps.metrics.interruption.unhealthy(category);
        }
        let is_impaired = |id: &str| problems.get(id).is_some_and(|problems| failed_check(problems).is_some());
        let limit = RepairLimit::new(claims.iter().map(|(id, claim)| (&**claim, is_impaired(id))));
        for (instance, problems) in &problems {
            let Some(claim) = claims.get(*instance) else { continue };
            if let Err(error) = replace(deps, claim, problems, &limit).await {
                tracing::warn!(instance, %error, "unhealthy instance not replaced");
            }
        }
    }
}

/// Deletes the claim of an instance with problems: by force if a status check has failed, and otherwise with a drain.
async fn replace(
    deps: &Interruptions,
    claim: &NodeClaim,
    problems: &[HealthProblem],
    limit: &RepairLimit,
) -> Result<(), WriteError> {
    if let Some(check) = failed_check(problems) {
        let Some(message) = limit.blocked(claim) else {
            mark::publish_unhealthy(deps, claim, &format!("EC2 status check {check} failed, replacing the node"));
            return mark::mark_and_delete(deps, claim, check, None, Urgency::Force).await;
        };
        tracing::warn!(node_claim = claim.metadata.name, message, "impaired instance not replaced by force");
        deps.events.publish(Note::warning(object(claim), reason::NODE_REPAIR_BLOCKED, message));
    }
    // The limit does not apply to events: EC2 stops the instance in any case.
    let event = problems.iter().find_map(|problem| match problem {
        HealthProblem::Event(starts) => Some(*starts),
        HealthProblem::Impaired(_) => None,
    });
    let Some(starts) = event else { return Ok(()) };
    mark::publish_notice(deps, claim, NoticeKind::ScheduledChange);
    mark::mark_and_delete(deps, claim, "event_status", starts, Urgency::Drain).await
}

/// The first status check that has failed for long enough.
fn failed_check(problems: &[HealthProblem]) -> Option<&'static str> {
    problems.iter().find_map(|problem| match problem {
        HealthProblem::Impaired(check) => Some(*check),
        HealthProblem::Event(_) => None,
    })
}

/// All problems of an instance. One does not hide another: a drain that waits for an event cannot end on a broken
/// instance.
fn health_problems(status: &InstanceStatus, first_seen: &mut FirstSeen, now: Timestamp) -> Vec<HealthProblem> {
    let checks = [("instance_status", status.instance), ("system_status", status.system)];
    let failing: Vec<_> = checks.into_iter().filter(|(_, check)| *check != StatusCheck::Ok).collect();
    let first_failure = if failing.is_empty() {
        first_seen.remove(&status.instance_id);
        now
    } else {
        *first_seen.entry(status.instance_id.clone()).or_insert(now)
    };
    let failed_long_enough = |check: StatusCheck| match check {
        StatusCheck::Impaired { since: Some(since) } => now.since(since) >= IMPAIRED_FOR,
        StatusCheck::Impaired { since: None } => now.since(first_failure) >= IMPAIRED_FOR,
        StatusCheck::Ok => false,
    };
    let impaired = failing.into_iter().filter(|(_, check)| failed_long_enough(*check));
    let mut problems: Vec<HealthProblem> = impaired.map(|(name, _)| HealthProblem::Impaired(name)).collect();
    let events: Vec<_> = status.events.iter().filter(|event| EVENTS.contains(&event.code.as_str())).collect();
    if !events.is_empty() {
        problems.push(HealthProblem::Event(events.iter().filter_map(|event| event.not_before).min()));
    }
    problems
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
        let mut at = |status: &InstanceStatus, now: i64| health_problems(status, &mut seen, Timestamp(now));
        let impaired = [HealthProblem::Impaired("system_status")];
        assert_eq!(at(&status(Some(Some(1_000)), ""), 120_999), []);
        assert_eq!(at(&status(Some(Some(1_000)), ""), 121_000), impaired);
        assert_eq!(at(&status(None, ""), 122_000), [], "it is well again");
        // More than two minutes after the check was first seen to fail.
        assert_eq!(at(&status(Some(None), ""), 300_000), [], "counted from when it was seen to fail again");
        assert_eq!(at(&status(Some(None), ""), 419_999), []);
        assert_eq!(at(&status(Some(None), ""), 420_000), impaired);
    }

    #[test]
    fn events_that_stop_the_instance_count_at_once() {
        let mut seen = FirstSeen::new();
        let mut of = |event: &str| health_problems(&status(None, event), &mut seen, Timestamp(0));
        assert_eq!(of("instance-retirement"), [HealthProblem::Event(None)]);
        assert_eq!(of("something-else"), []);
        let several = [("instance-stop", Some(9)), ("instance-reboot", Some(7)), ("something-else", Some(5))];
        let problems = health_problems(&status_with(None, &several), &mut FirstSeen::new(), Timestamp(0));
        assert_eq!(problems, [HealthProblem::Event(Some(Timestamp(7)))], "the first that stops the instance");
    }

    #[test]
    fn a_failed_check_counts_beside_an_event() {
        let mut seen = FirstSeen::new();
        let mut at = |now: i64| health_problems(&status(Some(None), "instance-stop"), &mut seen, Timestamp(now));
        let event = HealthProblem::Event(None);
        assert_eq!(at(0), [event], "the check may recover");
        let problems = at(120_000);
        assert_eq!(problems, [HealthProblem::Impaired("system_status"), event]);
        assert_eq!(failed_check(&problems), Some("system_status"));
        assert_eq!(failed_check(&[event]), None);
    }

    /// The names of Karpenter's metric.
    #[test]
    fn each_problem_has_a_category() {
        let problems = [
            HealthProblem::Impaired("instance_status"),
            HealthProblem::Impaired("system_status"),
            HealthProblem::Event(None),
        ];
        assert_eq!(problems.map(HealthProblem::category), ["InstanceStatus", "SystemStatus", "EventStatus"]);
    }

    #[test]
    fn a_problem_is_counted_once_until_it_is_over() {
        let mut episodes = Episodes::default();
        let mut poll = |problems: &[(&str, &'static str)]| {
            episodes.replace(problems.iter().map(|(id, category)| ((*id).to_owned(), *category)).collect())
        };
        assert_eq!(poll(&[("i-1", "EventStatus")]), ["EventStatus"]);
        assert!(poll(&[("i-1", "EventStatus")]).is_empty(), "the same episode");
        let both = [("i-1", "EventStatus"), ("i-1", "SystemStatus"), ("i-2", "EventStatus")];
        assert_eq!(poll(&both), ["SystemStatus", "EventStatus"], "another category, and another instance");
        assert!(poll(&[]).is_empty());
        assert_eq!(poll(&[("i-1", "EventStatus")]), ["EventStatus"], "another episode");
    }

    #[test]
    fn a_denial_is_reported_once_until_ec2_answers_again() {
        let mut access = Access::default();
        let denied: Result<(), _> = Err(CloudError::Denied { message: "ExpiredToken: renew it".to_owned() });
        assert_eq!(access.change(&Ok(())), None);
        assert_eq!(access.change(&denied), Some(AccessChange::Denied("ExpiredToken: renew it")));
        assert_eq!(access.change(&denied), None);
        assert_eq!(access.change::<()>(&Err(CloudError::Throttled)), None, "this says nothing about the right");
        assert_eq!(access.change(&denied), None);
        assert_eq!(access.change(&Ok(())), Some(AccessChange::Granted));
        assert_eq!(access.change(&denied), Some(AccessChange::Denied("ExpiredToken: renew it")));
    }
}

//! EventBridge envelopes from the interruption queue.

use jiff::fmt::rfc2822;
use plimsoll_model::time::{Millis, Timestamp};
use serde::Deserialize;
use serde_json::Value;

/// Maximum number of instances per message; EventBridge limits a message to 256 KiB.
const MAX_INSTANCES: usize = 1000;

/// From the notice to the end of an instance that is taken back (AWS: Spot Instance interruption notices; interruptible
/// capacity reservations).
const TWO_MINUTES: Millis = Millis::from_seconds(120);

/// Kind of a notice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum NoticeKind {
    /// Spot capacity is reclaimed in two minutes.
    SpotInterrupted,
    /// Spot capacity may be reclaimed soon.
    RebalanceRecommendation,
    /// Maintenance is scheduled.
    ScheduledChange,
    /// The instance is stopping or stopped.
    InstanceStopped,
    /// The instance is terminating or terminated.
    InstanceTerminated,
    /// Interruptible reserved capacity is reclaimed.
    CapacityReservationInterrupted,
}

impl NoticeKind {
    /// The label value in metrics and the reason of the disruption.
    #[must_use]
    pub fn as_str(self) -> &'static str {
        match self {
            Self::SpotInterrupted => "spot_interrupted",
            Self::RebalanceRecommendation => "rebalance_recommendation",
            Self::ScheduledChange => "scheduled_change",
            Self::InstanceStopped => "instance_stopped",
            Self::InstanceTerminated => "instance_terminated",
            Self::CapacityReservationInterrupted => "capacity_reservation_interrupted",
        }
    }

    /// When the instance stops, if that is known. `sent` is when the notice was sent, `heard` when it was received.
    #[must_use]
    pub fn ends(self, sent: Option<Timestamp>, heard: Timestamp) -> Option<Timestamp> {
        match self {
            // The clock of this machine may be behind that of the sender.
            Self::SpotInterrupted | Self::CapacityReservationInterrupted => {
                Some(sent.map_or(heard, |sent| sent.min(heard)).plus(TWO_MINUTES))
            }
            Self::InstanceStopped | Self::InstanceTerminated => Some(heard),
            Self::ScheduledChange | Self::RebalanceRecommendation => None,
        }
    }

    /// Whether the notice tells of a change of state, which every instance of the account causes.
    #[must_use]
    pub fn is_state_change(self) -> bool {
        matches!(self, Self::InstanceStopped | Self::InstanceTerminated)
    }

    /// Whether the node is drained; otherwise only an Event is published.
    #[must_use]
    pub fn drains(self) -> bool {
        self != Self::RebalanceRecommendation
    }
}

/// A parsed message.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Message {
    /// A notice about instances, which may belong to another cluster.
    Notice {
        /// The kind of notice.
        kind: NoticeKind,
        /// Instance ids, sorted and without duplicates; at least one.
        instance_ids: Vec<String>,
        /// When the notice was sent, if it tells.
        sent: Option<Timestamp>,
        /// When the announced change starts, if the notice tells.
        starts: Option<Timestamp>,
    },
    /// The message does not concern nodes. It is deleted without a log message.
    NotForUs,
}

/// The message cannot be parsed. It is logged and deleted, since a redelivery would not help.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum MessageError {
    /// The body is not JSON, or not an EventBridge envelope.
    #[error("not an EventBridge envelope: {0}")]
    NotAnEnvelope(String),
    /// The detail lacks a required field.
    #[error("{detail_type}: field {field} is missing")]
    MissingField {
        /// The envelope's detail-type.
        detail_type: String,
        /// The field.
        field: &'static str,
    },
}

#[derive(Deserialize)]
struct Envelope {
    #[serde(default)]
    version: String,
    #[serde(default)]
    source: String,
    #[serde(default, rename = "detail-type")]
    detail_type: String,
    #[serde(default)]
    time: String,
    #[serde(default)]
    detail: Value,
}

impl Envelope {
    fn text(&self, field: &'static str) -> Result<&str, MessageError> {
        let text = self.detail.get(field).and_then(Value::as_str).filter(|text| !text.is_empty());
        text.ok_or_else(|| self.missing(field))
    }

    fn sent(&self) -> Option<Timestamp> {
        self.time.parse().ok().map(of_jiff)
    }

    fn missing(&self, field: &'static str) -> MessageError {
        MessageError::MissingField { detail_type: self.detail_type.clone(), field }
    }
}

fn of_jiff(at: jiff::Timestamp) -> Timestamp {
    Timestamp(at.as_millisecond())
}

/// Parses a message.
///
/// # Errors
/// The body is not an envelope, or lacks a required field.
pub fn parse(body: &str) -> Result<Message, MessageError> {
    if body.trim().is_empty() {
        return Ok(Message::NotForUs);
    }
    let envelope: Envelope =
        serde_json::from_str(body).map_err(|error| MessageError::NotAnEnvelope(error.to_string()))?;
    if envelope.version != "0" {
        return Ok(Message::NotForUs);
    }
    let kind = match (envelope.source.as_str(), envelope.detail_type.as_str()) {
        ("aws.ec2", "EC2 Spot Instance Interruption Warning") => NoticeKind::SpotInterrupted,
        ("aws.ec2", "EC2 Instance Rebalance Recommendation") => NoticeKind::RebalanceRecommendation,
        ("aws.ec2", "EC2 Capacity Reservation Instance Interruption Warning") => {
            NoticeKind::CapacityReservationInterrupted
        }
        ("aws.ec2", "EC2 Instance State-change Notification") => {
            match envelope.text("state")?.to_ascii_lowercase().as_str() {
                "stopping" | "stopped" => NoticeKind::InstanceStopped,
                "shutting-down" | "terminated" => NoticeKind::InstanceTerminated,
                _ => return Ok(Message::NotForUs),
            }
        }
        ("aws.health", "AWS Health Event") => return health(&envelope),
        _ => return Ok(Message::NotForUs),
    };
    let instance_ids = vec![envelope.text("instance-id")?.to_owned()];
    Ok(Message::Notice { kind, instance_ids, sent: envelope.sent(), starts: None })
}

/// When the event of a message happened, if it tells.
#[must_use]
pub fn event_time(body: &str) -> Option<jiff::Timestamp> {
    serde_json::from_str::<Envelope>(body).ok()?.time.parse().ok()
}

fn health(envelope: &Envelope) -> Result<Message, MessageError> {
    if envelope.text("service")? != "EC2" || envelope.text("eventTypeCategory")? != "scheduledChange" {
        return Ok(Message::NotForUs);
    }
    // Health also tells that a change is over or was called off. The instance then needs no other one.
    if envelope.detail.get("statusCode").and_then(Value::as_str) == Some("closed") {
        return Ok(Message::NotForUs);
    }
    let entities = envelope.detail.get("affectedEntities").and_then(Value::as_array);
    let entities = entities.ok_or_else(|| envelope.missing("affectedEntities"))?;
    let value = |entity: &Value| entity.get("entityValue").and_then(Value::as_str).map(str::to_owned);
    let mut instance_ids: Vec<String> =
        entities.iter().filter_map(value).filter(|id| id.starts_with("i-")).take(MAX_INSTANCES).collect();
    instance_ids.sort_unstable();
    instance_ids.dedup();
    if instance_ids.is_empty() {
        // Events about volumes, hosts and whole accounts are ignored.
        return Ok(Message::NotForUs);
    }
    // AWS Health: `startTime` is in the format of RFC 2822.
    let starts = envelope.detail.get("startTime").and_then(Value::as_str);
    let starts = starts.and_then(|text| rfc2822::parse(text).ok()).map(|at| of_jiff(at.timestamp()));
    Ok(Message::Notice { kind: NoticeKind::ScheduledChange, instance_ids, sent: envelope.sent(), starts })
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use serde_json::json;

    fn envelope(source: &str, detail_type: &str, detail: &Value) -> String {
        json!({"version": "0", "id": "1", "source": source, "detail-type": detail_type, "account": "123456789012",
            "time": "2026-01-02T03:04:05Z", "region": "eu-west-1", "resources": [], "detail": detail})
        .to_string()
    }

    fn kind_of(source: &str, detail_type: &str, detail: &Value) -> Option<(NoticeKind, Vec<String>)> {
        match parse(&envelope(source, detail_type, detail)).unwrap() {
            Message::Notice { kind, instance_ids, sent, starts: None } => {
                assert_eq!(sent, Some(at("2026-01-02T03:04:05Z")));
                Some((kind, instance_ids))
            }
            Message::Notice { starts, .. } => panic!("{starts:?}"),
            Message::NotForUs => None,
        }
    }

    fn at(text: &str) -> Timestamp {
        of_jiff(text.parse().unwrap())
    }

    #[test]
    fn spot_instance_ends_two_minutes_after_the_notice_was_sent() {
        let heard = at("2026-01-02T03:05:00Z");
        let of = |kind: NoticeKind, sent: Option<&str>| kind.ends(sent.map(at), heard);
        let sent = Some("2026-01-02T03:04:05Z");
        assert_eq!(of(NoticeKind::SpotInterrupted, sent), Some(at("2026-01-02T03:06:05Z")));
        assert_eq!(of(NoticeKind::CapacityReservationInterrupted, sent), Some(at("2026-01-02T03:06:05Z")));
        assert_eq!(of(NoticeKind::SpotInterrupted, None), Some(at("2026-01-02T03:07:00Z")), "not told");
        let ahead = Some("2026-01-02T03:09:00Z");
        assert_eq!(
            of(NoticeKind::SpotInterrupted, ahead),
            Some(at("2026-01-02T03:07:00Z")),
            "no more than two minutes"
        );
        assert_eq!(of(NoticeKind::InstanceStopped, sent), Some(heard), "it is no longer in service");
        assert_eq!(of(NoticeKind::RebalanceRecommendation, sent), None);
    }

    #[test]
    fn scheduled_change_tells_when_it_starts() {
        let starts = |text: &str| {
            let entities = json!([{"entityValue": "i-1"}]);
            let detail = json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "startTime": text,
                "affectedEntities": entities});
            match parse(&envelope("aws.health", "AWS Health Event", &detail)).unwrap() {
                Message::Notice { starts, .. } => starts,
                Message::NotForUs => panic!("it is for us"),
            }
        };
        assert_eq!(starts("Sat, 03 Jan 2026 15:10:09 GMT"), Some(at("2026-01-03T15:10:09Z")));
        assert_eq!(starts("soon"), None);
    }

    #[test]
    fn every_kind_of_notice_is_parsed() {
        let id = json!({"instance-id": "i-1", "instance-action": "terminate"});
        let state = |state: &str| json!({"instance-id": "i-1", "state": state});
        let change = "EC2 Instance State-change Notification";
        for (detail_type, detail, expected) in [
            ("EC2 Spot Instance Interruption Warning", id.clone(), Some(NoticeKind::SpotInterrupted)),
            ("EC2 Instance Rebalance Recommendation", id.clone(), Some(NoticeKind::RebalanceRecommendation)),
            (
                "EC2 Capacity Reservation Instance Interruption Warning",
                id.clone(),
                Some(NoticeKind::CapacityReservationInterrupted),
            ),
            (change, state("stopping"), Some(NoticeKind::InstanceStopped)),
            (change, state("Stopped"), Some(NoticeKind::InstanceStopped)),
            (change, state("shutting-down"), Some(NoticeKind::InstanceTerminated)),
            (change, state("terminated"), Some(NoticeKind::InstanceTerminated)),
            (change, state("running"), None),
            ("EC2 Something New", id.clone(), None),
        ] {
            let expected = expected.map(|kind| (kind, vec!["i-1".to_owned()]));
            assert_eq!(kind_of("aws.ec2", detail_type, &detail), expected, "{detail_type} {detail}");
        }
        assert_eq!(kind_of("aws.fake", "EC2 Spot Instance Interruption Warning", &id), None);
    }

    #[test]
    fn health_events_name_several_instances() {
        let detail = |service: &str, category: &str| {
            json!({"service": service, "eventTypeCategory": category,
                "affectedEntities": [{"entityValue": "i-2"}, {"entityValue": "i-1"}, {"entityValue": "i-2"}, {"entityValue": "vol-1"}]})
        };
        let of = |detail| kind_of("aws.health", "AWS Health Event", &detail);
        let expected = (NoticeKind::ScheduledChange, vec!["i-1".to_owned(), "i-2".to_owned()]);
        assert_eq!(of(detail("EC2", "scheduledChange")), Some(expected));
        assert_eq!(of(detail("RDS", "scheduledChange")), None);
        assert_eq!(of(detail("EC2", "issue")), None);
        for (status, is_for_us) in [("upcoming", true), ("open", true), ("closed", false)] {
            let mut detail = detail("EC2", "scheduledChange");
            detail["statusCode"] = json!(status);
            assert_eq!(of(detail).is_some(), is_for_us, "{status}");
        }
        let named = |ids: Vec<String>| {
            let entities: Vec<Value> = ids.into_iter().map(|id| json!({ "entityValue": id })).collect();
            of(json!({"service": "EC2", "eventTypeCategory": "scheduledChange", "affectedEntities": entities}))
        };
        assert_eq!(named(vec!["vol-1".to_owned()]), None, "no instance");
        let many = named((0..=MAX_INSTANCES).map(|number| format!("i-{number}")).collect());
        assert_eq!(many.map(|(_, ids)| ids.len()), Some(MAX_INSTANCES));
    }

    #[test]
    fn the_time_of_an_event_is_that_of_its_envelope() {
        let time = |body: &str| event_time(body).map(of_jiff);
        let body = envelope("aws.other", "Something", &json!({}));
        assert_eq!(time(&body), Some(at("2026-01-02T03:04:05Z")), "whoever sent it");
        assert_eq!((time("hello"), time("{}")), (None, None));
    }

    #[test]
    fn unparsable_messages_differ_from_foreign_messages() {
        assert_eq!(parse(" "), Ok(Message::NotForUs));
        assert_eq!(parse(r#"{"version": "1", "source": "aws.ec2"}"#), Ok(Message::NotForUs));
        assert!(matches!(parse("hello"), Err(MessageError::NotAnEnvelope(_))));
        assert!(matches!(parse("[1]"), Err(MessageError::NotAnEnvelope(_))));
        for detail in [json!({}), json!({"instance-id": ""}), json!({"instance-id": 1})] {
            let error = parse(&envelope("aws.ec2", "EC2 Spot Instance Interruption Warning", &detail)).unwrap_err();
            assert_eq!(error.to_string(), "EC2 Spot Instance Interruption Warning: field instance-id is missing");
        }
    }

    /// A recommendation does not drain. Every instance of the account causes changes of state, and no other notices.
    #[test]
    fn what_is_done_follows_from_the_kind() {
        for (kind, drains, is_state_change) in [
            (NoticeKind::SpotInterrupted, true, false),
            (NoticeKind::RebalanceRecommendation, false, false),
            (NoticeKind::ScheduledChange, true, false),
            (NoticeKind::InstanceStopped, true, true),
            (NoticeKind::InstanceTerminated, true, true),
            (NoticeKind::CapacityReservationInterrupted, true, false),
        ] {
            assert_eq!((kind.drains(), kind.is_state_change()), (drains, is_state_change), "{kind:?}");
        }
    }

    proptest! {
        #[test]
        fn parse_never_panics(body in ".*") {
            let _ = parse(&body);
        }
    }
}

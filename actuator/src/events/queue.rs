//! The task that writes Events, with deduplication.

use super::{COMPONENT, MAX_MESSAGE, Note, Severity};
use crate::fencing::CLUSTER_CALL;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::{Event, EventSource};
use k8s_openapi::apimachinery::pkg::apis::meta::v1::{ObjectMeta, Time};
use kube::api::{Patch, PatchParams, PostParams};
use kube::{Api, Client};
use plimsoll_model::identity::ContentHasher;
use plimsoll_runtime::clock::Clock;
use serde_json::json;
use std::collections::BTreeMap;
use std::time::Duration;
use tokio::sync::mpsc;
use tokio::time::Instant;

/// Causes remembered: one for each pod of a large cluster. Events of further causes are not written. A cause that is
/// forgotten early would be published at each pass, without end.
pub(super) const MAX_REMEMBERED: usize = 100_000;
/// Minimum interval between searches for causes whose window is over: each reads all causes.
const FORGET_INTERVAL: Duration = Duration::from_secs(1);
/// Bytes of the object's name within the Event's name: 253 in total, minus the hash.
const MAX_OBJECT_NAME: usize = 236;
/// Hexadecimal digits of the hash in an Event's name.
const DIGITS: usize = 16;

/// Published Events, by the Event's name.
#[derive(Debug, Default)]
pub(super) struct EventCache {
    published: BTreeMap<String, PublishedEvent>,
    /// When causes were last forgotten.
    forgotten: Option<Instant>,
    /// It is logged that there are too many causes.
    reported: bool,
}

#[derive(Debug)]
struct PublishedEvent {
    until: Instant,
    first: Timestamp,
    count: i32,
}

/// What to do with an Event.
#[derive(Debug, PartialEq)]
pub(super) enum Publication {
    /// Suppress: it was published recently.
    Suppress,
    /// Write the Event with this count and the time of its first occurrence.
    Publish { count: i32, first: Timestamp },
}

impl EventCache {
    /// Decides what to do with an Event.
    pub(super) fn next(&mut self, name: &str, now: Instant, time: Timestamp) -> Publication {
        match self.published.get(name) {
            Some(published) if published.until > now => return Publication::Suppress,
            Some(published) => {
                return Publication::Publish { count: published.count.saturating_add(1), first: published.first };
            }
            None => {}
        }
        if self.is_full(now) { Publication::Suppress } else { Publication::Publish { count: 1, first: time } }
    }

    /// Whether there is no room for another cause. Forgets those whose window is over.
    fn is_full(&mut self, now: Instant) -> bool {
        if self.published.len() < MAX_REMEMBERED {
            return false;
        }
        if self.forgotten.is_none_or(|last| last + FORGET_INTERVAL <= now) {
            self.forgotten = Some(now);
            self.published.retain(|_, published| published.until > now);
        }
        let is_full = self.published.len() >= MAX_REMEMBERED;
        if is_full && !std::mem::replace(&mut self.reported, true) {
            tracing::warn!(causes = MAX_REMEMBERED, "too many causes of events, some events are not written");
        }
        is_full
    }

    /// Suppresses the Event for this window. Called only after the write has succeeded: the cause of an Event that was
    /// not written must be published when it is noted again.
    pub(super) fn written(&mut self, name: String, window: Duration, now: Instant, count: i32, first: Timestamp) {
        self.published.insert(name, PublishedEvent { until: now + window, first, count });
    }
}

/// The Event's name: the object's name and a hash of the cause. Deterministic, so that a later leader uses the same
/// name.
pub(super) fn event_name(note: &Note) -> String {
    let mut hasher = ContentHasher::new("event");
    hasher.text(note.object.uid.as_deref().unwrap_or_default());
    hasher.text(note.object.kind.as_deref().unwrap_or_default());
    hasher.text(note.reason);
    hasher.text(note.cause.as_deref().unwrap_or(&note.message));
    let object: String = note.object.name.as_deref().unwrap_or_default().chars().take(MAX_OBJECT_NAME).collect();
    format!("{object}.{}", hasher.hex(DIGITS))
}

pub(super) fn event(note: &Note, name: &str, count: i32, first: Timestamp, now: Timestamp) -> Event {
    let severity = match note.severity {
        Severity::Normal => "Normal",
        Severity::Warning => "Warning",
    };
    Event {
        metadata: ObjectMeta {
            name: Some(name.to_owned()),
            namespace: Some(namespace(note).to_owned()),
            ..ObjectMeta::default()
        },
        involved_object: note.object.clone(),
        reason: Some(note.reason.to_owned()),
        message: Some(bounded(&note.message)),
        type_: Some(severity.to_owned()),
        count: Some(count),
        first_timestamp: Some(Time(first)),
        last_timestamp: Some(Time(now)),
        source: Some(EventSource { component: Some(COMPONENT.to_owned()), host: None }),
        reporting_component: Some(COMPONENT.to_owned()),
        ..Event::default()
    }
}

/// Events about cluster-scoped objects go to `default`.
fn namespace(note: &Note) -> &str {
    note.object.namespace.as_deref().filter(|namespace| !namespace.is_empty()).unwrap_or("default")
}

fn bounded(message: &str) -> String {
    if message.len() <= MAX_MESSAGE {
        return message.to_owned();
    }
    format!("{}...", &message[..message.floor_char_boundary(MAX_MESSAGE - 3)])
}

/// Writes Events until all senders are dropped.
pub(super) async fn write(client: Client, clock: Clock, mut notes: mpsc::Receiver<Note>) {
    let mut cache = EventCache::default();
    while let Some(note) = notes.recv().await {
        let name = event_name(&note);
        let now = clock.now();
        if let Publication::Publish { count, first } = cache.next(&name, Instant::now(), now) {
            let event = event(&note, &name, count, first, now);
            let api: Api<Event> = Api::namespaced(client.clone(), namespace(&note));
            match tokio::time::timeout(CLUSTER_CALL, put(&api, &name, &event)).await {
                Ok(Ok(())) => cache.written(name, note.window, Instant::now(), count, first),
                Ok(Err(error)) => tracing::debug!(reason = note.reason, %error, "an event could not be written"),
                Err(_) => tracing::debug!(reason = note.reason, "an event could not be written in time"),
            }
        }
    }
}

/// Creates the Event, or updates the count of an existing one.
async fn put(api: &Api<Event>, name: &str, event: &Event) -> Result<(), kube::Error> {
    if event.count == Some(1) {
        match api.create(&PostParams::default(), event).await {
            // A former leader published it.
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            other => return other.map(|_| ()),
        }
    }
    let patch = json!({ "count": event.count.unwrap_or(1).max(2), "lastTimestamp": event.last_timestamp, "message": event.message });
    match api.patch(name, &PatchParams::default(), &Patch::Merge(&patch)).await {
        // The Event expired; the API server keeps Events for an hour.
        Err(kube::Error::Api(status)) if status.code == 404 => {
            api.create(&PostParams::default(), event).await.map(|_| ())
        }
        other => other.map(|_| ()),
    }
}

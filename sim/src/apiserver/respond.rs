//! Encodes objects, lists and events as response bodies.

use super::error::ApiError;
use super::events;
use super::resources::ResourceId;
use super::service::Answer;
use super::store::{ChangeKind, Event, Listing, Object, Store};
use bytes::Bytes;
use http::{HeaderMap, Response, StatusCode, header};
use http_body_util::{BodyExt, Full};
use serde::ser::SerializeMap;
use serde::{Serialize, Serializer};
use serde_json::{Value, json};
use std::sync::Arc;

/// Requested form of an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// The complete object.
    Whole,
    /// `PartialObjectMetadata`.
    Metadata,
}

impl Form {
    pub(super) fn of(headers: &HeaderMap) -> Self {
        let accept = headers.get(header::ACCEPT).and_then(|value| value.to_str().ok()).unwrap_or_default();
        if accept.contains("as=PartialObjectMetadata") { Self::Metadata } else { Self::Whole }
    }
}

pub(super) fn json_answer(code: u16, body: impl Into<Bytes>) -> Response<Answer> {
    let body = Full::new(body.into()).map_err(|never| match never {}).boxed_unsync();
    let mut response = Response::new(body);
    *response.status_mut() = StatusCode::from_u16(code).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    response.headers_mut().insert(header::CONTENT_TYPE, header::HeaderValue::from_static("application/json"));
    response
}

pub(super) fn error_answer(error: &ApiError) -> Response<Answer> {
    let mut response = json_answer(error.code, error.status().to_string());
    if let Some(seconds) = error.retry_after_seconds {
        response.headers_mut().insert(header::RETRY_AFTER, seconds.into());
    }
    response
}

pub(super) fn success() -> Value {
    json!({"kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Success"})
}

fn metadata_only(object: &Value) -> Value {
    json!({"kind": "PartialObjectMetadata", "apiVersion": "meta.k8s.io/v1", "metadata": object.get("metadata")})
}

pub(super) fn object_bytes(resource: ResourceId, form: Form, object: &Object) -> Bytes {
    let shown = events::shown(resource, object);
    match form {
        Form::Whole => shown.to_string().into(),
        Form::Metadata => metadata_only(&shown).to_string().into(),
    }
}

/// Like [`object_bytes`], of an object of the store. If it was just written, its watchers get the same bytes.
pub(super) fn stored_bytes(store: &Store, resource: ResourceId, form: Form, object: &Object) -> Bytes {
    if form == Form::Whole
        && let Ok(mut newest) = store.events_after(resource, store.revision().saturating_sub(1))
        && let Some(event) = newest.next().filter(|event| Arc::ptr_eq(&event.object, object))
    {
        return event.json();
    }
    object_bytes(resource, form, object)
}

/// Item of a list of a built-in kind, without `apiVersion` and `kind`.
struct Untyped<'a>(&'a Value);

impl Serialize for Untyped<'_> {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let Some(fields) = self.0.as_object() else { return self.0.serialize(serializer) };
        let mut map = serializer.serialize_map(None)?;
        for (key, value) in fields.iter().filter(|(key, _)| *key != "apiVersion" && *key != "kind") {
            map.serialize_entry(key, value)?;
        }
        map.end()
    }
}

pub(super) fn list_bytes(resource: ResourceId, form: Form, listing: &Listing) -> Result<Bytes, ApiError> {
    #[derive(Serialize)]
    struct List<I> {
        kind: String,
        #[serde(rename = "apiVersion")]
        api_version: String,
        metadata: Value,
        items: Vec<I>,
    }
    let row = resource.get();
    let mut metadata = json!({"resourceVersion": listing.revision.to_string()});
    if let Some(next) = &listing.next {
        metadata["continue"] = json!(format!("{}/{}/{}", listing.revision, next.namespace, next.name));
        metadata["remainingItemCount"] = json!(listing.remaining);
    }
    let shown: Vec<_> = listing.items.iter().map(|object| events::shown(resource, object)).collect();
    let bytes = if form == Form::Metadata {
        let (kind, api_version) = ("PartialObjectMetadataList".to_owned(), "meta.k8s.io/v1".to_owned());
        serde_json::to_vec(&List {
            kind,
            api_version,
            metadata,
            items: shown.iter().map(|object| metadata_only(object)).collect(),
        })
    } else {
        let (kind, api_version) = (format!("{}List", row.kind), row.api_version());
        if row.custom {
            serde_json::to_vec(&List { kind, api_version, metadata, items: shown })
        } else {
            serde_json::to_vec(&List {
                kind,
                api_version,
                metadata,
                items: shown.iter().map(|object| Untyped(object)).collect(),
            })
        }
    };
    bytes.map(Bytes::from).map_err(|error| ApiError::internal(error.to_string()))
}

/// One line of a watch response.
pub(super) fn event_line(kind: &str, object: &[u8]) -> Bytes {
    const AROUND: usize = 32;
    let mut line = Vec::with_capacity(object.len() + AROUND);
    line.extend_from_slice(b"{\"type\":\"");
    line.extend_from_slice(kind.as_bytes());
    line.extend_from_slice(b"\",\"object\":");
    line.extend_from_slice(object);
    line.extend_from_slice(b"}\n");
    line.into()
}

/// A change as one line of a watch response. `kind` is the type of the change for this watcher.
pub(super) fn change_line(resource: ResourceId, form: Form, event: &Event, kind: ChangeKind) -> Bytes {
    let leaves = kind == ChangeKind::Deleted && event.kind != ChangeKind::Deleted;
    let object = match &event.previous {
        // The object no longer matches: the watcher gets the last matching state with the new resource version.
        Some(previous) if leaves => {
            let mut last = (**previous).clone();
            last["metadata"]["resourceVersion"] = json!(event.revision.to_string());
            object_bytes(resource, form, &last.into())
        }
        _ if form == Form::Whole && events::storage(resource) == resource => event.json(),
        _ => object_bytes(resource, form, &event.object),
    };
    event_line(kind.as_str(), &object)
}

pub(super) fn bookmark_line(resource: ResourceId, form: Form, revision: u64, ends_initial: bool) -> Bytes {
    let row = resource.get();
    let (kind, api_version) = match form {
        Form::Whole => (row.kind, row.api_version()),
        Form::Metadata => ("PartialObjectMetadata", "meta.k8s.io/v1".to_owned()),
    };
    let mut object =
        json!({"kind": kind, "apiVersion": api_version, "metadata": {"resourceVersion": revision.to_string()}});
    if ends_initial {
        object["metadata"]["annotations"] = json!({"k8s.io/initial-events-end": "true"});
    }
    event_line("BOOKMARK", object.to_string().as_bytes())
}

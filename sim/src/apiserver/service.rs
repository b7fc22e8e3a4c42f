//! The API server as a tower service: returns a response or a watch for each request.

use super::error::ApiError;
use super::faults::{About, BrokenConnection, Effect, Gate};
use super::patch::Patch;
use super::request::{Query, Route, Target, Verb, verb};
use super::resources::ResourceId;
use super::respond::{Form, error_answer, json_answer, list_bytes, stored_bytes, success};
use super::store::{DeleteOptions, Deleted, Eviction, Key, Object, Page, Part, Store, Write};
use super::watch::Watch;
use super::{ApiServer, Audit, discovery, events, object};
use ::kube::client::Body;
use bytes::Bytes;
use futures::future::BoxFuture;
use futures::{FutureExt, TryStreamExt};
use http::{Request, Response, header};
use http_body::Frame;
use http_body_util::combinators::UnsyncBoxBody;
use http_body_util::{BodyExt, StreamBody};
use jiff::Timestamp;
use serde_json::{Value, json};
use std::task::{Context, Poll};
use std::time::Duration;
use tower::BoxError;

/// Body of a response.
pub(super) type Answer = UnsyncBoxBody<Bytes, BoxError>;

/// Connection of one client to the server.
#[derive(Debug, Clone)]
pub struct Port {
    server: ApiServer,
    client: String,
}

impl Port {
    pub(super) fn new(server: ApiServer, client: String) -> Self {
        Self { server, client }
    }
}

impl tower::Service<Request<Body>> for Port {
    type Response = Response<Answer>;
    type Error = BoxError;
    type Future = BoxFuture<'static, Result<Response<Answer>, BoxError>>;

    fn poll_ready(&mut self, _: &mut Context<'_>) -> Poll<Result<(), BoxError>> {
        Poll::Ready(Ok(()))
    }

    fn call(&mut self, request: Request<Body>) -> Self::Future {
        let port = self.clone();
        async move { port.serve(request).await }.boxed()
    }
}

/// A request with its context.
struct Call {
    sent: Timestamp,
    target: Target,
    verb: Verb,
    query: Query,
    form: Form,
    content_type: String,
    body: Bytes,
}

impl Port {
    async fn serve(&self, request: Request<Body>) -> Result<Response<Answer>, BoxError> {
        let faults = self.server.faults();
        let sent = self.server.now();
        faults.connected(&self.client).await?;
        let (parts, body) = request.into_parts();
        let body = body.collect_bytes().await?;
        let query = Query::parse(parts.uri.query().unwrap_or_default());
        let target = match Route::parse(parts.uri.path()) {
            Ok(Route::Target(target)) => target,
            Ok(Route::Other(path)) => {
                let answer = discovery::answer(&path, self.server.minor());
                return Ok(answer_of(answer.map(|found| json_answer(200, found.to_string()))));
            }
            Err(error) => return Ok(error_answer(&error)),
        };
        let verb = match verb(&parts.method, &target, &query) {
            Ok(verb) => verb,
            Err(error) => return Ok(error_answer(&error)),
        };
        let content_type = parts
            .headers
            .get(header::CONTENT_TYPE)
            .and_then(|value| value.to_str().ok())
            .unwrap_or_default()
            .to_owned();
        let call = Call { sent, target, verb, query, form: Form::of(&parts.headers), content_type, body };
        let name = call.name();
        let about = About {
            client: &self.client,
            verb,
            resource: call.target.resource.get().plural,
            subresource: &call.target.subresource,
            name: &name,
        };
        let after = match self.before(faults.effects(&about)).await? {
            Before::Proceed(after) => after,
            Before::Refused(error) => {
                self.note(&call, name, error.code, None);
                return Ok(error_answer(&error));
            }
            Before::Late(time) => {
                let port = self.clone();
                tokio::spawn(async move {
                    tokio::time::sleep(time).await;
                    drop(port.handle_and_note(&call, name));
                });
                return Err(BrokenConnection.into());
            }
        };
        let answer = self.handle_and_note(&call, name);
        if !after.delay.is_zero() {
            tokio::time::sleep(after.delay).await;
        }
        if let Some(gate) = after.gate {
            gate.pass().await;
        }
        faults.connected(&self.client).await?;
        if after.lost { Err(BrokenConnection.into()) } else { Ok(answer) }
    }

    async fn before(&self, effects: Vec<Effect>) -> Result<Before, BoxError> {
        let mut after = After::default();
        for effect in effects {
            match effect {
                Effect::Drop => return Err(BrokenConnection.into()),
                Effect::Refuse(error) => return Ok(Before::Refused(error)),
                Effect::Late(time) => return Ok(Before::Late(time)),
                Effect::Delay(time) => tokio::time::sleep(time).await,
                Effect::DelayAnswer(time) => after.delay = time,
                Effect::HoldBefore(gate) => gate.pass().await,
                Effect::HoldAfter(gate) => after.gate = Some(gate),
                Effect::LoseAnswer => after.lost = true,
            }
        }
        Ok(Before::Proceed(after))
    }

    fn handle_and_note(&self, call: &Call, name: String) -> Response<Answer> {
        let before = self.server.read(Store::revision);
        let answer = answer_of(self.handle(call));
        let revision = Some(self.server.read(Store::revision)).filter(|after| *after > before);
        self.note(call, name, answer.status().as_u16(), revision);
        answer
    }

    fn note(&self, call: &Call, name: String, code: u16, revision: Option<u64>) {
        self.server.note(Audit {
            sent: call.sent,
            at: self.server.now(),
            client: self.client.clone(),
            verb: call.verb,
            resource: call.target.resource,
            subresource: call.target.subresource.clone(),
            namespace: call.target.namespace.clone(),
            name,
            code,
            revision,
        });
    }

    fn handle(&self, call: &Call) -> Result<Response<Answer>, ApiError> {
        let target = &call.target;
        if call.verb == Verb::Watch {
            let watch = Watch::open(&self.server, &self.client, target, &call.query, call.form)?;
            let frames = watch.lines().map_ok(Frame::data).map_err(BoxError::from);
            let mut answer = json_answer(200, Bytes::new());
            *answer.body_mut() = StreamBody::new(frames).boxed_unsync();
            return Ok(answer);
        }
        if target.resource.get().namespaced && target.namespace.is_empty() && call.verb != Verb::List {
            return Err(ApiError::method_not_allowed());
        }
        let manager = match call.query.get("fieldManager") {
            "" if call.content_type.starts_with("application/apply-patch") => {
                return Err(ApiError::new(422, "Invalid", "fieldManager: is required for an apply"));
            }
            "" => &self.client,
            manager => manager,
        };
        let write = Write { now: self.server.now(), manager, dry_run: call.is_dry_run() };
        match target.subresource.as_str() {
            "" => self.object(call, Part::Main, &write),
            "status" if target.resource.get().status => self.object(call, Part::Status, &write),
            "scale" => self.scale(call, &write),
            "eviction" if target.resource == ResourceId::PODS => self.evict(call, &write),
            "binding" if target.resource == ResourceId::PODS => self.bind(call, &write),
            _ => Err(ApiError::no_such_path()),
        }
    }

    fn object(&self, call: &Call, part: Part, write: &Write<'_>) -> Result<Response<Answer>, ApiError> {
        let Target { resource, namespace, name, .. } = &call.target;
        let stored = events::storage(*resource);
        let shown = |code, object: &Object| {
            Ok(json_answer(code, self.server.read(|store| stored_bytes(store, *resource, call.form, object))))
        };
        match call.verb {
            Verb::Get => {
                self.check_not_ahead(&call.query)?;
                shown(200, &self.server.read(|store| store.get(stored, namespace, name))?)
            }
            Verb::List => self.list(call),
            Verb::Create => {
                let body = events::stored(*resource, call.json()?);
                if !name.is_empty() || part == Part::Status {
                    return Err(ApiError::method_not_allowed());
                }
                shown(201, &self.server.write(|store| store.create(stored, namespace, body, write))?)
            }
            Verb::Update => {
                let body = events::stored(*resource, call.json()?);
                shown(200, &self.server.write(|store| store.update(stored, namespace, name, part, body, write))?)
            }
            Verb::Patch => {
                let patch = call.patch()?;
                let (is_new, object) = self.server.write(|store| {
                    let is_new = store.find(stored, &Key::new(namespace, name)).is_none();
                    store.patch(stored, namespace, name, part, &patch, write).map(|object| (is_new, object))
                })?;
                shown(if is_new { 201 } else { 200 }, &object)
            }
            Verb::Delete => {
                let options = call.delete_options()?;
                match self.server.write(|store| store.delete(stored, namespace, name, &options, write))? {
                    Deleted::Gone(object) if !resource.get().returns_deleted => {
                        let mut status = success();
                        status["details"] = json!({"name": name, "group": resource.get().group, "kind": resource.get().plural,
                                                   "uid": object::uid(&object)});
                        Ok(json_answer(200, status.to_string()))
                    }
                    deleted => shown(200, deleted.object()),
                }
            }
            Verb::DeleteCollection => {
                let (filter, options) = (call.query.filter(&call.target)?, call.delete_options()?);
                self.server.write(|store| store.delete_collection(stored, &filter, &options, write))?;
                Ok(json_answer(200, success().to_string()))
            }
            Verb::Watch => Err(ApiError::method_not_allowed()),
        }
    }

    fn list(&self, call: &Call) -> Result<Response<Answer>, ApiError> {
        let filter = call.query.filter(&call.target)?;
        let limit = call.query.number("limit")?.and_then(|limit| usize::try_from(limit).ok()).unwrap_or(0);
        let mut page = Page { limit, ..Page::default() };
        let token = call.query.get("continue");
        if token.is_empty() {
            self.check_not_ahead(&call.query)?;
            if call.query.get("resourceVersionMatch") == "Exact" {
                page.revision = call.query.number("resourceVersion")?;
            }
        } else {
            let mut parts = token.splitn(3, '/');
            let revision = parts.next().and_then(|text| text.parse().ok());
            let (Some(revision), Some(namespace), Some(name)) = (revision, parts.next(), parts.next()) else {
                return Err(ApiError::bad_request("continue: not a token of this server"));
            };
            (page.revision, page.after) = (Some(revision), Some(Key::new(namespace, name)));
        }
        let stored = events::storage(call.target.resource);
        let listing = self.server.read(|store| store.list(stored, &filter, &page))?;
        Ok(json_answer(200, list_bytes(call.target.resource, call.form, &listing)?))
    }

    fn check_not_ahead(&self, query: &Query) -> Result<(), ApiError> {
        let (asked, current) = (query.number("resourceVersion")?.unwrap_or(0), self.server.read(Store::revision));
        if asked > current { Err(ApiError::too_large_version(asked, current)) } else { Ok(()) }
    }

    fn scale(&self, call: &Call, write: &Write<'_>) -> Result<Response<Answer>, ApiError> {
        let Target { resource, namespace, name, .. } = &call.target;
        let scale = match call.verb {
            Verb::Get => self.server.read(|store| store.scale(*resource, namespace, name))?,
            Verb::Update => {
                let body = call.json()?;
                self.server.write(|store| store.set_scale(*resource, namespace, name, &body, write))?
            }
            Verb::Patch => {
                let patch = call.patch()?;
                self.server.write(|store| store.patch_scale(*resource, namespace, name, &patch, write))?
            }
            _ => return Err(ApiError::method_not_allowed()),
        };
        Ok(json_answer(200, scale.to_string()))
    }

    fn evict(&self, call: &Call, write: &Write<'_>) -> Result<Response<Answer>, ApiError> {
        let Target { namespace, name, .. } = &call.target;
        let body = call.json()?;
        if call.verb != Verb::Create {
            return Err(ApiError::method_not_allowed());
        }
        if object::name(&body) != name {
            return Err(ApiError::bad_request("metadata.name: is not the pod of the request"));
        }
        let options = body.get("deleteOptions").cloned().unwrap_or_else(|| json!({}));
        let dry_run = write.dry_run || !object::items(&options, &["dryRun"]).is_empty();
        let eviction = Eviction { options: DeleteOptions::parse(&options)? };
        let write = Write { dry_run, ..*write };
        self.server.write(|store| store.evict(namespace, name, &eviction, &write))?;
        Ok(json_answer(201, success().to_string()))
    }

    fn bind(&self, call: &Call, write: &Write<'_>) -> Result<Response<Answer>, ApiError> {
        let Target { namespace, name, .. } = &call.target;
        let body = call.json()?;
        let node = object::text(&body, &["target", "name"]);
        if call.verb != Verb::Create {
            return Err(ApiError::method_not_allowed());
        }
        if node.is_empty() {
            return Err(ApiError::bad_request("target.name: is required"));
        }
        let uid = Some(object::uid(&body)).filter(|uid| !uid.is_empty());
        self.server.write(|store| store.bind(namespace, name, uid, node, write))?;
        Ok(json_answer(201, success().to_string()))
    }
}

#[derive(Default)]
struct After {
    delay: Duration,
    gate: Option<Gate>,
    lost: bool,
}

enum Before {
    Proceed(After),
    Refused(ApiError),
    Late(Duration),
}

impl Call {
    fn json(&self) -> Result<Value, ApiError> {
        serde_json::from_slice(&self.body)
            .map_err(|error| ApiError::bad_request(format!("the body is not JSON: {error}")))
    }

    fn patch(&self) -> Result<Patch, ApiError> {
        let resource = self.target.resource;
        Ok(match Patch::parse(&self.content_type, &self.body, self.query.is_set("force"))? {
            Patch::Merge(patch) => Patch::Merge(events::stored(resource, patch)),
            Patch::Strategic(patch) => Patch::Strategic(events::stored(resource, patch)),
            Patch::Apply { config, force } => Patch::Apply { config: events::stored(resource, config), force },
            patch @ Patch::Json(_) => patch,
        })
    }

    fn delete_options(&self) -> Result<DeleteOptions, ApiError> {
        let mut body = if self.body.is_empty() { json!({}) } else { self.json()? };
        if let Some(seconds) = self.query.number("gracePeriodSeconds")? {
            body["gracePeriodSeconds"] = json!(seconds);
        }
        if !self.query.get("propagationPolicy").is_empty() {
            body["propagationPolicy"] = json!(self.query.get("propagationPolicy"));
        }
        DeleteOptions::parse(&body)
    }

    fn is_dry_run(&self) -> bool {
        let in_body =
            || self.verb == Verb::Delete && self.json().is_ok_and(|body| !object::items(&body, &["dryRun"]).is_empty());
        self.query.get("dryRun") == "All" || in_body()
    }

    /// Name of the object. On creation, it is in the body.
    fn name(&self) -> String {
        if self.verb == Verb::Create && self.target.name.is_empty() {
            return self.json().map(|body| object::name(&body).to_owned()).unwrap_or_default();
        }
        self.target.name.clone()
    }
}

fn answer_of(result: Result<Response<Answer>, ApiError>) -> Response<Answer> {
    result.unwrap_or_else(|error| error_answer(&error))
}

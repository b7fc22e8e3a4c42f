//! Creates and updates objects: fields that a client may set, and fields that the server sets.

use super::{Key, Object, Part, Store, Stored, Write};
use crate::apiserver::admission::Situation;
use crate::apiserver::apply::{Apply, Owners};
use crate::apiserver::error::{ApiError, Cause};
use crate::apiserver::fields::Difference;
use crate::apiserver::object;
use crate::apiserver::patch::Patch;
use crate::apiserver::resources::{Resource, ResourceId};
use crate::apiserver::validate;
use jiff::Timestamp;
use serde_json::{Value, json};

/// Metadata that only the server writes. Updates keep the stored values.
const SERVER_OWNED: &[&str] = &[
    "uid",
    "creationTimestamp",
    "deletionTimestamp",
    "deletionGracePeriodSeconds",
    "generation",
    "resourceVersion",
    "managedFields",
    "selfLink",
    "namespace",
];

/// Number of random characters that `generateName` adds.
const SUFFIX_LENGTH: usize = 5;

impl Store {
    /// Creates an object.
    ///
    /// # Errors
    /// 400; 404 if the namespace does not exist; 409 if the name is taken; 422.
    pub fn create(
        &mut self,
        resource: ResourceId,
        namespace: &str,
        body: Value,
        write: &Write<'_>,
    ) -> Result<Object, ApiError> {
        self.create_owned(resource, namespace, body, None, write)
    }

    fn create_owned(
        &mut self,
        resource: ResourceId,
        namespace: &str,
        mut body: Value,
        owners: Option<Owners>,
        write: &Write<'_>,
    ) -> Result<Object, ApiError> {
        let row = resource.get();
        check_type(row, &mut body)?;
        strip_nulls(&mut body);
        let key = self.name_new(resource, namespace, &mut body)?;
        self.check_namespace(row, &key)?;
        if !object::resource_version(&body).is_empty() {
            return Err(ApiError::internal("resourceVersion should not be set on objects to be created"));
        }
        let uid = self.rng.uid();
        stamp_new(row, &key, &mut body, uid, write.now);
        // Kubelets create Nodes with a status; every other kind starts without one.
        if row.status && resource != ResourceId::NODES {
            object::remove(&mut body, &["status"]);
        }
        self.admit(resource, &mut body, None, write.now)?;
        validate::new_object(row, &body)?;
        if self.find(resource, &key).is_some() {
            return Err(ApiError::already_exists(row, &key.name));
        }
        if write.dry_run {
            return Ok(body.into());
        }
        let owners = owners.unwrap_or_else(|| {
            let mut owners = Owners::default();
            owners.note_write(write.manager, "", &Difference::between(row.custom, &json!({}), &body), write.now);
            owners
        });
        Ok(self.put(resource, key, body, owners))
    }

    fn name_new(&mut self, resource: ResourceId, namespace: &str, body: &mut Value) -> Result<Key, ApiError> {
        if object::name(body).is_empty() {
            let prefix = object::text(body, &["metadata", "generateName"]).to_owned();
            if prefix.is_empty() {
                let cause = Cause::required("metadata.name", "a name or generateName is required");
                return Err(ApiError::invalid(resource.get(), "", &[cause]));
            }
            let name = format!("{prefix}{}", self.rng.suffix(SUFFIX_LENGTH));
            object::set(body, &["metadata", "name"], Value::from(name));
        }
        let said = object::namespace(body);
        if !said.is_empty() && said != namespace {
            return Err(ApiError::bad_request(format!(
                "metadata.namespace: {said:?} is not the namespace of the request, {namespace:?}"
            )));
        }
        Ok(Key::new(namespace, object::name(body)))
    }

    fn check_namespace(&self, row: &Resource, key: &Key) -> Result<(), ApiError> {
        if !row.namespaced {
            return Ok(());
        }
        let namespace = self.get(ResourceId::NAMESPACES, "", &key.namespace)?;
        if object::is_deleting(&namespace) {
            return Err(ApiError::forbidden(row, &key.name, "its namespace is being deleted"));
        }
        Ok(())
    }

    fn admit(
        &self,
        resource: ResourceId,
        new: &mut Value,
        old: Option<&Value>,
        now: Timestamp,
    ) -> Result<(), ApiError> {
        self.admission.run(&Situation { store: self, resource, old, now }, new)
    }

    /// Replaces an object or its status.
    ///
    /// # Errors
    /// 400, 404, 409 (outdated `resourceVersion`, different UID), 422.
    pub fn update(
        &mut self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
        part: Part,
        mut body: Value,
        write: &Write<'_>,
    ) -> Result<Object, ApiError> {
        let row = resource.get();
        let key = Key::new(namespace, name);
        let old = self.stored(resource, &key)?;
        check_type(row, &mut body)?;
        if row.custom && object::resource_version(&body).is_empty() {
            let cause = Cause::invalid("metadata.resourceVersion", "must be specified for an update");
            return Err(ApiError::invalid(row, name, &[cause]));
        }
        self.finish(resource, &key, &old, body, part, None, write)
    }

    /// Patches an object or its status. An apply creates a missing object.
    ///
    /// # Errors
    /// As [`Store::update`]; 415 if the kind does not support the patch type; 409 if an apply conflicts with other
    /// owners.
    pub fn patch(
        &mut self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
        part: Part,
        patch: &Patch,
        write: &Write<'_>,
    ) -> Result<Object, ApiError> {
        let row = resource.get();
        let key = Key::new(namespace, name);
        let Patch::Apply { config, force } = patch else {
            let old = self.stored(resource, &key)?;
            let new = patch.applied(row, &old.object)?;
            return self.finish(resource, &key, &old, new, part, None, write);
        };
        let mut config = config.clone();
        check_type(row, &mut config)?;
        strip_nulls(&mut config);
        if config["metadata"]["managedFields"].as_array().is_some_and(|rows| !rows.is_empty()) {
            return Err(ApiError::bad_request("metadata.managedFields must be nil"));
        }
        let subresource = if part == Part::Status { "status" } else { "" };
        let apply = Apply { manager: write.manager, subresource, config: &config, force: *force, now: write.now };
        match self.stored(resource, &key) {
            Ok(old) => {
                let (new, owners) = old.owners.apply(row, &old.object, &apply)?;
                self.finish(resource, &key, &old, new, part, Some(owners), write)
            }
            Err(missing) if part == Part::Status => Err(missing),
            Err(_) => {
                let (mut new, owners) = Owners::default().apply(row, &json!({}), &apply)?;
                object::set(&mut new, &["metadata", "name"], Value::from(name));
                self.create_owned(resource, namespace, new, Some(owners), write)
            }
        }
    }

    #[expect(clippy::too_many_arguments, reason = "common function of all writes")]
    fn finish(
        &mut self,
        resource: ResourceId,
        key: &Key,
        old: &Stored,
        mut new: Value,
        part: Part,
        applied: Option<Owners>,
        write: &Write<'_>,
    ) -> Result<Object, ApiError> {
        let row = resource.get();
        strip_nulls(&mut new);
        check_identity(row, &old.object, &new)?;
        restore_server_fields(&old.object, &mut new);
        limit_to_part(row, part, &old.object, &mut new);
        self.admit(resource, &mut new, Some(&old.object), write.now)?;
        validate::changed_object(row, part, &old.object, &new)?;
        if row.generation && part == Part::Main && content_differs(&old.object, &new) {
            new["metadata"]["generation"] = json!(object::generation(&old.object) + 1);
        }
        let unchanged = new == *old.object;
        let owners = match applied {
            Some(owners) => owners,
            None if unchanged => return Ok(old.object.clone()),
            None => {
                let subresource = if part == Part::Status { "status" } else { "" };
                let mut owners = (*old.owners).clone();
                let difference = Difference::between(row.custom, &old.object, &new);
                owners.note_write(write.manager, subresource, &difference, write.now);
                owners
            }
        };
        if unchanged && owners.same_fields(&old.owners) {
            return Ok(old.object.clone());
        }
        if write.dry_run {
            return Ok(new.into());
        }
        let grace = object::integer(&new, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
        let released = object::finalizers(&new).next().is_none() && object::finalizers(&old.object).next().is_some();
        if object::is_deleting(&new) && grace == 0 && released && resource != ResourceId::NAMESPACES {
            self.take(resource, key);
            return Ok(new.into());
        }
        Ok(self.put(resource, key.clone(), new, owners))
    }
}

/// Sets `apiVersion` and `kind`. The body may omit them, but they must match.
fn check_type(row: &Resource, body: &mut Value) -> Result<(), ApiError> {
    if !body.is_object() {
        return Err(ApiError::bad_request("the body is not an object"));
    }
    for (field, expected) in [("apiVersion", row.api_version()), ("kind", row.kind.to_owned())] {
        let said = object::text(body, &[field]);
        if !said.is_empty() && said != expected {
            return Err(ApiError::bad_request(format!(
                "{field}: {said:?} does not match the path, which says {expected:?}"
            )));
        }
        body[field] = Value::from(expected);
    }
    if !object::at(body, &["metadata"]).is_some_and(Value::is_object) {
        body["metadata"] = json!({});
    }
    Ok(())
}

/// Removes null values: null means that a field is not set.
fn strip_nulls(value: &mut Value) {
    match value {
        Value::Object(map) => {
            map.retain(|_, inner| !inner.is_null());
            map.values_mut().for_each(strip_nulls);
        }
        Value::Array(list) => list.iter_mut().for_each(strip_nulls),
        _ => {}
    }
}

fn stamp_new(row: &Resource, key: &Key, body: &mut Value, uid: String, now: Timestamp) {
    for field in SERVER_OWNED {
        object::remove(body, &["metadata", field]);
    }
    let metadata = &mut body["metadata"];
    metadata["uid"] = Value::from(uid);
    metadata["creationTimestamp"] = Value::from(object::time(now));
    if row.namespaced {
        metadata["namespace"] = Value::from(key.namespace.clone());
    }
    if row.generation {
        metadata["generation"] = json!(1);
    }
}

fn check_identity(row: &Resource, old: &Value, new: &Value) -> Result<(), ApiError> {
    let name = object::name(old);
    if object::name(new) != name {
        return Err(ApiError::bad_request(format!(
            "metadata.name: {:?} is not the name of the request",
            object::name(new)
        )));
    }
    if !object::namespace(new).is_empty() && object::namespace(new) != object::namespace(old) {
        return Err(ApiError::bad_request("metadata.namespace: is not the namespace of the request"));
    }
    let (said, present) = (object::resource_version(new), object::resource_version(old));
    if !object::uid(new).is_empty() && object::uid(new) != object::uid(old) {
        return Err(ApiError::conflict(row, name, "the UID is that of another object of this name"));
    }
    if !said.is_empty() && said != present {
        return Err(ApiError::conflict(row, name, "it has been modified since it was read; read it again"));
    }
    Ok(())
}

fn restore_server_fields(old: &Value, new: &mut Value) {
    for field in SERVER_OWNED {
        match object::at(old, &["metadata", field]) {
            Some(value) => new["metadata"][*field] = value.clone(),
            None => drop(object::remove(new, &["metadata", field])),
        }
    }
}

/// Reverts changes outside the part that this write may change.
fn limit_to_part(row: &Resource, part: Part, old: &Value, new: &mut Value) {
    let mut restore = |path: &[&str]| match object::at(old, path) {
        Some(value) => object::set(new, path, value.clone()),
        None => drop(object::remove(new, path)),
    };
    match part {
        Part::Main if row.status => restore(&["status"]),
        Part::Main => {}
        Part::Status if row.custom => {
            let status = object::at(new, &["status"]).cloned();
            *new = old.clone();
            match status {
                Some(status) => new["status"] = status,
                None => drop(object::remove(new, &["status"])),
            }
        }
        // Kubelets update labels and annotations together with the status of their Nodes.
        Part::Status => {
            restore(&["spec"]);
            restore(&["metadata", "ownerReferences"]);
        }
    }
}

/// Whether fields other than metadata and status differ.
fn content_differs(old: &Value, new: &Value) -> bool {
    let (Some(old), Some(new)) = (old.as_object(), new.as_object()) else { return true };
    let relevant = |key: &str| key != "metadata" && key != "status";
    old.keys().chain(new.keys()).any(|key| relevant(key) && old.get(key) != new.get(key))
}

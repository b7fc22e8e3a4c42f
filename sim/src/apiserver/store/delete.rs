//! Deletion: preconditions, grace periods, finalizers, propagation.

use super::{Filter, Key, Object, Store, Stored, Write};
use crate::apiserver::error::ApiError;
use crate::apiserver::object;
use crate::apiserver::resources::ResourceId;
use jiff::{SignedDuration, Timestamp};
use serde_json::{Value, json};

/// Finalizer of an owner that waits for the deletion of its dependents.
pub(super) const FOREGROUND: &str = "foregroundDeletion";
/// Finalizer of an owner whose dependents are orphaned.
pub(super) const ORPHAN: &str = "orphan";

/// Default termination grace period of pods, in seconds.
const DEFAULT_GRACE_SECONDS: i64 = 30;

/// What happens to the dependents of a deleted object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Propagation {
    /// Dependents are deleted after their owner.
    Background,
    /// Dependents are deleted before their owner.
    Foreground,
    /// Dependents stay and lose their owner reference.
    Orphan,
}

/// Options of a deletion.
#[derive(Debug, Clone, Default)]
pub struct DeleteOptions {
    /// Precondition: UID of the object.
    pub uid: Option<String>,
    /// Precondition: resource version of the object.
    pub resource_version: Option<String>,
    /// Grace period of a pod in seconds. Defaults to that of the pod.
    pub grace_seconds: Option<i64>,
    /// What happens to dependents.
    pub propagation: Option<Propagation>,
}

impl DeleteOptions {
    /// Deletes immediately, without a grace period, if the UID matches.
    pub fn force(uid: impl Into<String>) -> Self {
        Self { uid: Some(uid.into()), grace_seconds: Some(0), ..Self::default() }
    }

    /// Parses a `DeleteOptions` object.
    ///
    /// # Errors
    /// 400 if the propagation policy is unknown or the grace period is negative.
    pub fn parse(body: &Value) -> Result<Self, ApiError> {
        let precondition =
            |field| object::at(body, &["preconditions", field]).and_then(Value::as_str).map(str::to_owned);
        let propagation = match object::text(body, &["propagationPolicy"]) {
            "" => None,
            "Background" => Some(Propagation::Background),
            "Foreground" => Some(Propagation::Foreground),
            "Orphan" => Some(Propagation::Orphan),
            other => return Err(ApiError::bad_request(format!("propagationPolicy: {other:?} is not one"))),
        };
        let grace_seconds = object::integer(body, &["gracePeriodSeconds"]);
        if grace_seconds.is_some_and(|seconds| seconds < 0) {
            return Err(ApiError::bad_request("gracePeriodSeconds: must not be negative"));
        }
        Ok(Self {
            uid: precondition("uid"),
            resource_version: precondition("resourceVersion"),
            grace_seconds,
            propagation,
        })
    }
}

/// Result of a deletion.
#[derive(Debug, Clone)]
pub enum Deleted {
    /// The object is deleted. Holds its last state.
    Gone(Object),
    /// The object is marked for deletion. It is deleted after its finalizers and its grace period.
    Pending(Object),
}

impl Deleted {
    /// The deleted or marked object.
    #[must_use]
    pub fn object(&self) -> &Object {
        match self {
            Self::Gone(object) | Self::Pending(object) => object,
        }
    }
}

impl Store {
    /// Deletes one object, or marks it for deletion.
    ///
    /// # Errors
    /// 404 if it does not exist, 409 if a precondition does not hold.
    pub fn delete(
        &mut self,
        resource: ResourceId,
        namespace: &str,
        name: &str,
        options: &DeleteOptions,
        write: &Write<'_>,
    ) -> Result<Deleted, ApiError> {
        let key = Key::new(namespace, name);
        let old = self.stored(resource, &key)?;
        check_preconditions(resource, &old.object, options)?;
        let mut new = (*old.object).clone();
        mark_propagation(&mut new, options.propagation);
        if resource == ResourceId::NAMESPACES {
            object::set(&mut new, &["status", "phase"], Value::from("Terminating"));
        }
        let grace = grace_seconds(resource, &new, options);
        let held = object::finalizers(&new).next().is_some() || resource == ResourceId::NAMESPACES;
        if grace == 0 && !held {
            return Ok(Deleted::Gone(self.gone(resource, &key, &old, write)));
        }
        mark_deleting(&mut new, grace, write.now);
        if new == *old.object {
            return Ok(Deleted::Pending(old.object));
        }
        if write.dry_run {
            return Ok(Deleted::Pending(new.into()));
        }
        Ok(Deleted::Pending(self.put(resource, key, new, (*old.owners).clone())))
    }

    /// Deletes all objects that a filter selects.
    ///
    /// # Errors
    /// The first error that is not a 404.
    pub fn delete_collection(
        &mut self,
        resource: ResourceId,
        filter: &Filter,
        options: &DeleteOptions,
        write: &Write<'_>,
    ) -> Result<Vec<Object>, ApiError> {
        let keys: Vec<_> =
            self.all(resource).filter(|(_, object)| filter.matches(object)).map(|(key, _)| key.clone()).collect();
        let mut deleted = Vec::new();
        for key in keys {
            match self.delete(resource, &key.namespace, &key.name, options, write) {
                Ok(outcome) => deleted.push(outcome.object().clone()),
                Err(error) if error.code == 404 => {}
                Err(error) => return Err(error),
            }
        }
        Ok(deleted)
    }

    fn gone(&mut self, resource: ResourceId, key: &Key, old: &Stored, write: &Write<'_>) -> Object {
        let taken = if write.dry_run { None } else { self.take(resource, key) };
        taken.unwrap_or_else(|| old.object.clone())
    }
}

fn check_preconditions(resource: ResourceId, object: &Value, options: &DeleteOptions) -> Result<(), ApiError> {
    let differs = |wanted: &Option<String>, actual: &str| wanted.as_ref().is_some_and(|wanted| wanted != actual);
    let conflict = |what| Err(ApiError::conflict(resource.get(), object::name(object), what));
    if differs(&options.uid, object::uid(object)) {
        return conflict("the UID in the precondition is that of another object");
    }
    if differs(&options.resource_version, object::resource_version(object)) {
        return conflict("the resourceVersion in the precondition is not the present one");
    }
    Ok(())
}

fn mark_propagation(object: &mut Value, propagation: Option<Propagation>) {
    let wanted = match propagation {
        Some(Propagation::Foreground) => Some(FOREGROUND),
        Some(Propagation::Orphan) => Some(ORPHAN),
        Some(Propagation::Background) | None => None,
    };
    if propagation.is_none() {
        return;
    }
    let mut kept: Vec<Value> =
        object::finalizers(object).filter(|one| *one != FOREGROUND && *one != ORPHAN).map(Value::from).collect();
    kept.extend(wanted.map(Value::from));
    if kept.is_empty() {
        object::remove(object, &["metadata", "finalizers"]);
    } else {
        object["metadata"]["finalizers"] = Value::Array(kept);
    }
}

/// Effective grace period. Only pods have one, and only while containers may still run on a node.
fn grace_seconds(resource: ResourceId, object: &Value, options: &DeleteOptions) -> i64 {
    let runs = resource == ResourceId::PODS
        && !object::text(object, &["spec", "nodeName"]).is_empty()
        && !matches!(object::text(object, &["status", "phase"]), "Succeeded" | "Failed");
    let own = || object::integer(object, &["spec", "terminationGracePeriodSeconds"]).unwrap_or(DEFAULT_GRACE_SECONDS);
    if runs { options.grace_seconds.unwrap_or_else(own) } else { 0 }
}

/// Marks an object for deletion. If it is already marked, the grace period can only be shortened.
fn mark_deleting(object: &mut Value, grace: i64, now: Timestamp) {
    let generation = object::generation(object);
    let marked = object::time_at(object, &["metadata", "deletionTimestamp"]);
    let granted = object::integer(object, &["metadata", "deletionGracePeriodSeconds"]).unwrap_or(0);
    let start = match marked {
        Some(_) if grace >= granted => return,
        Some(deadline) => deadline.checked_sub(SignedDuration::from_secs(granted)).unwrap_or(deadline),
        None => now,
    };
    let deadline = start.checked_add(SignedDuration::from_secs(grace)).unwrap_or(start);
    let metadata = &mut object["metadata"];
    metadata["deletionTimestamp"] = json!(object::time(deadline));
    metadata["deletionGracePeriodSeconds"] = json!(grace);
    if generation > 0 && marked.is_none() {
        metadata["generation"] = json!(generation + 1);
    }
}

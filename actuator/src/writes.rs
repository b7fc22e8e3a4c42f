//! Writes to the cluster: each passes the gate, is a patch of what differs, and is made on the object's newest version.

use crate::authority::{CLUSTER_CALL, NotAllowed};
use crate::context::Context;
use kube::api::{DeleteParams, Patch, PatchParams, Preconditions};
use kube::{Api, Resource};
use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value, json};
use std::fmt::Debug;

/// Tries on an object that others write to as well (kubelets, other controllers). Each is made on a newer version.
const MAX_TRIES: u32 = 5;

/// Why a write did not happen, or may not have.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// The gate is shut, or there was no answer in time.
    #[error(transparent)]
    NotAllowed(#[from] NotAllowed),
    /// The API server refused.
    #[error(transparent)]
    Cluster(#[from] kube::Error),
    /// Others changed the object each time.
    #[error("{0} is changed by others all the time")]
    Contended(String),
    /// The object could not be written as JSON: a defect of ours.
    #[error("cannot be written as JSON: {0}")]
    Json(#[from] serde_json::Error),
    /// The cloud refused.
    #[error(transparent)]
    Cloud(#[from] crate::ports::CloudError),
}

impl WriteError {
    /// Whether the write may have been carried out all the same, now or later: nothing was refused, but nothing was answered.
    #[must_use]
    pub fn may_have_happened(&self) -> bool {
        match self {
            Self::NotAllowed(NotAllowed::TimedOut(_)) => true,
            Self::NotAllowed(_) | Self::Contended(_) | Self::Json(_) | Self::Cloud(_) => false,
            Self::Cluster(error) => may_have_happened(error),
        }
    }
}

/// Whether a write that came to `error` may have been carried out all the same, now or later.
pub(crate) fn may_have_happened(error: &kube::Error) -> bool {
    match error {
        // An API server that fails or times out may have written first.
        kube::Error::Api(status) => status.code >= 500,
        _ => true,
    }
}

/// What became of an update.
#[derive(Debug, Clone, PartialEq)]
pub enum Updated<K> {
    /// It is so already.
    AlreadySo,
    /// It is now.
    Written(Box<K>),
    /// The object is gone, or another one has its name.
    Gone,
}

impl<K> Updated<K> {
    /// Whether the object is there.
    pub(crate) fn is_there(&self) -> bool {
        !matches!(self, Self::Gone)
    }
}

/// Which part of an object is written.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Part {
    Main,
    Status,
    /// The status, also while nothing else may be written: it says so.
    Notice,
}

/// Changes an object, beginning with the version at hand. `change` is applied again to each newer version.
pub(crate) async fn update<K>(
    context: &Context,
    api: &Api<K>,
    object: &K,
    part: Part,
    change: impl Fn(&mut K),
) -> Result<Updated<K>, WriteError>
where
    K: Resource<DynamicType = ()> + Serialize + DeserializeOwned + Clone + Debug,
{
    let name = object.meta().name.clone().unwrap_or_default();
    let mut current = object.clone();
    for _ in 0..MAX_TRIES {
        let mut wanted = current.clone();
        change(&mut wanted);
        let Some(mut patch) = difference(&serde_json::to_value(&current)?, &serde_json::to_value(&wanted)?) else {
            return Ok(Updated::AlreadySo);
        };
        let metadata = patch.entry("metadata").or_insert_with(|| json!({}));
        if let Value::Object(metadata) = metadata {
            metadata.insert("resourceVersion".to_owned(), json!(current.meta().resource_version));
            metadata.insert("uid".to_owned(), json!(current.meta().uid));
        }
        let (params, patch) = (PatchParams::default(), Patch::Merge(Value::Object(patch)));
        let call = async {
            match part {
                Part::Main => api.patch(&name, &params, &patch).await,
                Part::Status | Part::Notice => api.patch_status(&name, &params, &patch).await,
            }
        };
        let answer = match part {
            Part::Notice => context.authority.tell(call).await?,
            Part::Main | Part::Status => context.authority.act(CLUSTER_CALL, call).await?,
        };
        match answer {
            Ok(written) => return Ok(Updated::Written(Box::new(written))),
            Err(kube::Error::Api(status)) if status.code == 404 => return Ok(Updated::Gone),
            Err(kube::Error::Api(status)) if status.code == 409 => {}
            Err(error) => return Err(error.into()),
        }
        let read = match part {
            Part::Notice => context.authority.tell(api.get_opt(&name)).await??,
            Part::Main | Part::Status => context.authority.act(CLUSTER_CALL, api.get_opt(&name)).await??,
        };
        match read.filter(|read| read.meta().uid == object.meta().uid) {
            Some(read) => current = read,
            None => return Ok(Updated::Gone),
        }
    }
    Err(WriteError::Contended(name))
}

/// Deletes an object if it is still the same one; one that is gone is no error.
pub(crate) async fn delete<K>(
    context: &Context,
    api: &Api<K>,
    object: &K,
    grace_seconds: Option<u32>,
) -> Result<(), WriteError>
where
    K: Resource<DynamicType = ()> + DeserializeOwned + Clone + Debug,
{
    let name = object.meta().name.clone().unwrap_or_default();
    let preconditions = Preconditions { uid: object.meta().uid.clone(), resource_version: None };
    let params = DeleteParams {
        preconditions: Some(preconditions),
        grace_period_seconds: grace_seconds,
        ..DeleteParams::default()
    };
    match context.authority.act(CLUSTER_CALL, api.delete(&name, &params)).await? {
        // 409: another object has the name by now.
        Err(kube::Error::Api(status)) if matches!(status.code, 404 | 409) => Ok(()),
        other => other.map(|_| ()).map_err(WriteError::from),
    }
}

/// The merge patch (RFC 7386) that makes `old` into `new`; `None` if they are the same.
fn difference(old: &Value, new: &Value) -> Option<Map<String, Value>> {
    let (Value::Object(old), Value::Object(new)) = (old, new) else { return None };
    let mut patch = Map::new();
    for (key, value) in new {
        match old.get(key) {
            Some(before) if before == value => {}
            Some(before @ Value::Object(_)) if value.is_object() => {
                if let Some(inner) = difference(before, value) {
                    patch.insert(key.clone(), Value::Object(inner));
                }
            }
            _ => {
                patch.insert(key.clone(), value.clone());
            }
        }
    }
    for key in old.keys().filter(|key| !new.contains_key(*key)) {
        patch.insert(key.clone(), Value::Null);
    }
    (!patch.is_empty()).then_some(patch)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_patch_is_what_differs() {
        let old =
            json!({"metadata": {"labels": {"a": "1", "b": "2"}, "name": "x"}, "spec": {"taints": [1, 2]}, "same": {}});
        let new = json!({"metadata": {"labels": {"a": "1", "c": "3"}, "name": "x"}, "spec": {}, "same": {}});
        let patch = difference(&old, &new).map(Value::Object);
        assert_eq!(patch, Some(json!({"metadata": {"labels": {"c": "3", "b": null}}, "spec": {"taints": null}})));
        assert_eq!(difference(&new, &new), None);
    }
}

//! Objects that may be unreadable: valid for the API server, but not for our types. One of them must not hide the
//! others of its list.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use kube::Resource;
use kube::core::error_boundary::InvalidObject;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use std::borrow::Cow;

/// An object, or why it is unreadable. As [`kube::core::DeserializeGuard`], but without its two copies of each object
/// as a tree of sorted maps. The watcher reads every change of every pod.
#[derive(Debug, Clone)]
pub(crate) struct Guarded<K>(pub(crate) Result<K, Box<InvalidObject>>);

impl<'de, K: DeserializeOwned> Deserialize<'de> for Guarded<K> {
    /// Fails only if the metadata is unreadable: then the object has no name.
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
        let object = Value::deserialize(deserializer)?;
        let error = match K::deserialize(&object) {
            Ok(readable) => return Ok(Self(Ok(readable))),
            Err(error) => error.to_string(),
        };
        let metadata = object.get("metadata").map(ObjectMeta::deserialize).transpose().map_err(D::Error::custom)?;
        Ok(Self(Err(Box::new(InvalidObject { error, metadata: metadata.unwrap_or_default() }))))
    }
}

impl<K: Resource> Resource for Guarded<K> {
    type DynamicType = K::DynamicType;
    type Scope = K::Scope;

    fn kind(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::kind(dynamic)
    }

    fn group(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::group(dynamic)
    }

    fn version(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::version(dynamic)
    }

    fn plural(dynamic: &Self::DynamicType) -> Cow<'_, str> {
        K::plural(dynamic)
    }

    fn meta(&self) -> &ObjectMeta {
        self.0.as_ref().map_or_else(|invalid| &invalid.metadata, K::meta)
    }

    fn meta_mut(&mut self) -> &mut ObjectMeta {
        self.0.as_mut().map_or_else(|invalid| &mut invalid.metadata, K::meta_mut)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use serde_json::json;

    #[test]
    fn one_unreadable_object_does_not_hide_the_others_of_its_list() {
        let budget = |name: &str, spec: Value| json!({"metadata": {"name": name, "namespace": "apps"}, "spec": spec});
        let list: Vec<Guarded<PodDisruptionBudget>> =
            serde_json::from_value(json!([budget("bad", json!({"maxUnavailable": true})), budget("good", json!({}))]))
                .unwrap();
        let names: Vec<(&str, bool)> =
            list.iter().map(|budget| (budget.meta().name.as_deref().unwrap(), budget.0.is_ok())).collect();
        assert_eq!(names, [("bad", false), ("good", true)]);
    }

    #[test]
    fn an_object_without_readable_metadata_is_an_error() {
        let object = json!({"metadata": {"name": 7}, "spec": {}});
        assert!(serde_json::from_value::<Guarded<PodDisruptionBudget>>(object).is_err());
    }
}

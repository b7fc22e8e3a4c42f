//! Reads objects of which some may be unreadable: valid for the API server, but not for our types.

use k8s_openapi::apimachinery::pkg::apis::meta::v1::ObjectMeta;
use serde::de::{DeserializeOwned, Error as _};
use serde::{Deserialize, Deserializer};
use serde_json::Value;
use serde_json::value::RawValue;

/// An object that is not of its type.
#[derive(Clone, Debug)]
pub struct Unreadable {
    /// Why it is unreadable.
    pub error: String,
    /// Its metadata; empty if it has none.
    pub metadata: ObjectMeta,
    /// All of it.
    pub object: Value,
}

/// Reads an object, or says why it is unreadable, without an error for the list or the event that it is in. It is read
/// from its text: only an unreadable object is copied field by field.
///
/// The deserializer must be one of `serde_json`, and not one of what serde has buffered: it buffers the object of an
/// event if the type comes after it. The API server writes the type first.
///
/// # Errors
/// It is not JSON, or its metadata is unreadable: then it has no name.
pub fn read<'de, K, D>(deserializer: D) -> Result<Result<K, Box<Unreadable>>, D::Error>
where
    K: DeserializeOwned,
    D: Deserializer<'de>,
{
    let text = Box::<RawValue>::deserialize(deserializer)?;
    if let Ok(object) = serde_json::from_str(text.get()) {
        return Ok(Ok(object));
    }
    // An error of the text names a position, which is another one in each version of the object.
    let object: Value = serde_json::from_str(text.get()).map_err(D::Error::custom)?;
    let error = match K::deserialize(&object) {
        Ok(object) => return Ok(Ok(object)),
        Err(error) => error.to_string(),
    };
    let metadata = object.get("metadata").map(ObjectMeta::deserialize).transpose().map_err(D::Error::custom)?;
    Ok(Err(Box::new(Unreadable { error, metadata: metadata.unwrap_or_default(), object })))
}

#[cfg(test)]
mod tests {
    use super::*;
    use k8s_openapi::api::policy::v1::PodDisruptionBudget;
    use kube::core::{ObjectList, WatchEvent};

    #[derive(Clone, Debug)]
    struct Guarded(Result<PodDisruptionBudget, Box<Unreadable>>);

    impl<'de> Deserialize<'de> for Guarded {
        fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Self, D::Error> {
            read(deserializer).map(Self)
        }
    }

    const GOOD: &str = r#"{"metadata": {"name": "good"}, "spec": {"maxUnavailable": 1}}"#;
    const BAD: &str = r#"{"metadata": {"name": "bad"}, "spec": {"maxUnavailable": true}}"#;

    #[test]
    fn an_unreadable_object_does_not_hide_the_others_of_its_list() {
        let list = format!(r#"{{"kind": "List", "apiVersion": "v1", "metadata": {{}}, "items": [{BAD}, {GOOD}]}}"#);
        let list: ObjectList<Guarded> = serde_json::from_str(&list).unwrap();
        let [Guarded(Err(bad)), Guarded(Ok(good))] = &list.items[..] else { panic!("{list:?}") };
        assert_eq!((bad.metadata.name.as_deref(), good.metadata.name.as_deref()), (Some("bad"), Some("good")));
        assert_eq!(bad.object["spec"]["maxUnavailable"], true);
        assert!(bad.error.contains("true") && !bad.error.contains("column"), "{}", bad.error);
    }

    #[test]
    fn an_unreadable_object_does_not_end_a_watch() {
        for (object, is_readable) in [(GOOD, true), (BAD, false)] {
            let event = format!(r#"{{"type": "MODIFIED", "object": {object}}}"#);
            let event: WatchEvent<Guarded> = serde_json::from_str(&event).unwrap();
            let WatchEvent::Modified(guarded) = event else { panic!("{object}") };
            assert_eq!(guarded.0.is_ok(), is_readable, "{object}");
        }
    }

    #[test]
    fn an_object_without_a_readable_name_is_an_error() {
        for object in [r#"{"metadata": {"name": 7}}"#, r#"{"metadata""#] {
            assert!(serde_json::from_str::<Guarded>(object).is_err(), "{object}");
        }
    }
}

//! Versioned JSON for state that is stored in annotations, so that it survives restarts, upgrades and rollbacks.
//!
//! Each document is a JSON object with its version in `v`. Where the type allows it, a reader ignores unknown fields,
//! so that an older release reads what a newer one wrote. The version is raised only if an older reader would do harm
//! without the new fields; that reader then reports the document as too new.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The version that is written, and the highest one that is accepted. A document without `v` has version 1.
const VERSION: u64 = 1;
/// The field that holds the version.
const KEY: &str = "v";

/// Why a document cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// Not JSON, or not of the expected type.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// `v` is not a whole number.
    #[error("v: is not a version")]
    BadVersion,
    /// The document was written by a newer release.
    #[error("v: {0} is newer than version {VERSION}, the newest that is known here")]
    Newer(u64),
}

/// Serializes a document. `form` must be a struct.
///
/// # Errors
/// The value cannot be serialized as JSON.
pub fn write<T: Serialize>(form: &T) -> Result<String, serde_json::Error> {
    let mut fields = Map::from_iter([(KEY.to_owned(), Value::from(VERSION))]);
    if let Value::Object(own) = serde_json::to_value(form)? {
        fields.extend(own);
    }
    serde_json::to_string(&fields)
}

/// Deserializes a document.
///
/// # Errors
/// The document does not have this type, or has a newer version.
pub fn read<T: DeserializeOwned>(text: &str) -> Result<T, FormError> {
    let mut fields: Map<String, Value> = serde_json::from_str(text)?;
    match fields.remove(KEY).as_ref().map(Value::as_u64) {
        None | Some(Some(1..=VERSION)) => Ok(serde_json::from_value(Value::Object(fields))?),
        Some(Some(newer)) if newer > VERSION => Err(FormError::Newer(newer)),
        Some(_) => Err(FormError::BadVersion),
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::interruption::Interruption;
    use crate::ledger::Removal;
    use crate::state::launch_group::GroupKey;
    use serde_json::json;

    /// Simulates a document of a later release with one more field.
    fn of_a_later_version(text: &str) -> String {
        let mut fields: Map<String, Value> = serde_json::from_str(text).unwrap();
        fields.insert("added".to_owned(), json!({"later": true}));
        serde_json::to_string(&fields).unwrap()
    }

    #[test]
    fn older_release_reads_newer_documents() {
        let group = GroupKey { id: "g".to_owned(), size: 2 };
        let text = write(&group).unwrap();
        assert_eq!(text, r#"{"v":1,"id":"g","size":2}"#);
        assert_eq!(read::<GroupKey>(&of_a_later_version(&text)).unwrap(), group);

        let interruption =
            Interruption { kind: "spot_interrupted".to_owned(), heard: plimsoll_model::time::Timestamp(7), ends: None };
        let text = of_a_later_version(&write(&interruption).unwrap());
        assert_eq!(read::<Interruption>(&text).unwrap(), interruption);

        let removal = json!({"action": "a", "node": "n", "reason": "Drifted", "replacements": [], "evictions": {},
                             "rooms": {}, "pods": ["p"], "admitted": 5});
        let removal: Removal = read(&removal.to_string()).unwrap();
        let text = of_a_later_version(&write(&removal).unwrap());
        assert_eq!(read::<Removal>(&text).unwrap(), removal);
    }

    #[test]
    fn newer_version_is_rejected() {
        let error = read::<GroupKey>(r#"{"v":2,"id":"g","size":1}"#).unwrap_err().to_string();
        assert_eq!(error, "v: 2 is newer than version 1, the newest that is known here");
        for wrong in [r#"{"v":0,"id":"g","size":1}"#, r#"{"v":"1","id":"g","size":1}"#, r#"{"v":-1,"id":"g","size":1}"#]
        {
            assert!(matches!(read::<GroupKey>(wrong), Err(FormError::BadVersion)), "{wrong}");
        }
        assert!(matches!(read::<GroupKey>("[]"), Err(FormError::Json(_))));
    }
}

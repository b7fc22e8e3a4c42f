//! The form of what is kept in annotations, so that it outlives a process and an upgrade.
//!
//! Each form is a JSON object with its version in `v`. Fields that a reader does not know are ignored where the type allows
//! it, so that a rollback reads what the newer version wrote. The version is raised only where an older reader would do
//! harm without the new fields; it then refuses the form and says so.

use serde::Serialize;
use serde::de::DeserializeOwned;
use serde_json::{Map, Value};

/// The version that is written, and the highest one that is read. A form without `v` is of version 1.
const VERSION: u64 = 1;
/// Where the version is.
const KEY: &str = "v";

/// Why a form cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum FormError {
    /// Not JSON, or not of the expected type.
    #[error(transparent)]
    Json(#[from] serde_json::Error),
    /// `v` is there and is no whole number.
    #[error("v: is not a version")]
    BadVersion,
    /// A newer version of this program wrote it.
    #[error("v: {0} is newer than version {VERSION}, the newest that is known here")]
    Newer(u64),
}

/// Writes a form. `form` must be a struct.
///
/// # Errors
/// It cannot be written as JSON.
pub fn write<T: Serialize>(form: &T) -> Result<String, serde_json::Error> {
    let mut fields = Map::from_iter([(KEY.to_owned(), Value::from(VERSION))]);
    if let Value::Object(own) = serde_json::to_value(form)? {
        fields.extend(own);
    }
    serde_json::to_string(&fields)
}

/// Reads a form.
///
/// # Errors
/// It is not of this type, or of a newer version.
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
    use crate::state::launch_group::LaunchGroup;
    use serde_json::json;

    /// What a later version with one more field would write, as a rollback finds it.
    fn of_a_later_version(text: &str) -> String {
        let mut fields: Map<String, Value> = serde_json::from_str(text).unwrap();
        fields.insert("added".to_owned(), json!({"later": true}));
        serde_json::to_string(&fields).unwrap()
    }

    #[test]
    fn forms_are_read_by_the_version_before() {
        let group = LaunchGroup { id: "g".to_owned(), size: 2 };
        let text = write(&group).unwrap();
        assert_eq!(text, r#"{"v":1,"id":"g","size":2}"#);
        assert_eq!(read::<LaunchGroup>(&of_a_later_version(&text)).unwrap(), group);

        let interruption =
            Interruption { kind: "spot_interrupted".to_owned(), heard: plimsoll_model::time::Timestamp(7) };
        let text = of_a_later_version(&write(&interruption).unwrap());
        assert_eq!(read::<Interruption>(&text).unwrap(), interruption);

        let removal = json!({"action": "a", "node": "n", "reason": "Drifted", "replacements": [], "evictions": {},
                             "rooms": {}, "pods": ["p"], "admitted": 5});
        let removal: Removal = read(&removal.to_string()).unwrap();
        let text = of_a_later_version(&write(&removal).unwrap());
        assert_eq!(read::<Removal>(&text).unwrap(), removal);
    }

    #[test]
    fn a_version_that_older_readers_must_not_act_on_is_refused() {
        let error = read::<LaunchGroup>(r#"{"v":2,"id":"g","size":1}"#).unwrap_err().to_string();
        assert_eq!(error, "v: 2 is newer than version 1, the newest that is known here");
        for wrong in [r#"{"v":0,"id":"g","size":1}"#, r#"{"v":"1","id":"g","size":1}"#, r#"{"v":-1,"id":"g","size":1}"#]
        {
            assert!(matches!(read::<LaunchGroup>(wrong), Err(FormError::BadVersion)), "{wrong}");
        }
        assert!(matches!(read::<LaunchGroup>("[]"), Err(FormError::Json(_))));
    }
}

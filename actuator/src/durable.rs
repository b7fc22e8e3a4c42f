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
mod tests;

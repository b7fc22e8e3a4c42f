//! The four kinds of patch, as functions on JSON.

pub(crate) mod strategic;

use super::error::ApiError;
use super::resources::Resource;
use serde_json::Value;

/// Patch in a request.
#[derive(Debug, Clone)]
pub enum Patch {
    /// RFC 7386.
    Merge(Value),
    /// Strategic merge patch, which merges keyed lists by key.
    Strategic(Value),
    /// RFC 6902.
    Json(Value),
    /// Server-side apply.
    Apply {
        /// All fields that the manager wants to own.
        config: Value,
        /// Takes fields from other managers.
        force: bool,
    },
}

const CUSTOM_ACCEPTS: &str = "application/json-patch+json, application/merge-patch+json, application/apply-patch+yaml";

impl Patch {
    /// Parses a patch of this content type.
    ///
    /// # Errors
    /// 415 for an unknown content type, 400 for a body that is not JSON.
    pub fn parse(content_type: &str, body: &[u8], force: bool) -> Result<Self, ApiError> {
        let json = || -> Result<Value, ApiError> {
            serde_json::from_slice(body)
                .map_err(|error| ApiError::bad_request(format!("the patch is not JSON: {error}")))
        };
        match content_type.split(';').next().unwrap_or_default().trim() {
            "application/merge-patch+json" => Ok(Self::Merge(json()?)),
            "application/strategic-merge-patch+json" => Ok(Self::Strategic(json()?)),
            "application/json-patch+json" => Ok(Self::Json(json()?)),
            // JSON is valid YAML, and the clients of the simulation send only JSON.
            "application/apply-patch+yaml" => Ok(Self::Apply { config: json()?, force }),
            other => Err(ApiError::unsupported_media_type(other)),
        }
    }

    /// Applies a patch that does not depend on field owners.
    ///
    /// # Errors
    /// 415 for a strategic patch of a custom resource, 422 for a JSON patch that does not apply, 500 for server-side
    /// apply, which `apply` handles.
    pub(crate) fn applied(&self, resource: &Resource, object: &Value) -> Result<Value, ApiError> {
        let mut new = object.clone();
        match self {
            Self::Merge(patch) => json_patch::merge(&mut new, patch),
            Self::Strategic(_) if resource.custom => return Err(ApiError::unsupported_media_type(CUSTOM_ACCEPTS)),
            Self::Strategic(patch) => strategic::merge(&mut new, patch)?,
            Self::Json(operations) => {
                let patch: json_patch::Patch = serde_json::from_value(operations.clone())
                    .map_err(|error| ApiError::bad_request(format!("the JSON patch does not parse: {error}")))?;
                json_patch::patch(&mut new, &patch).map_err(|error| {
                    ApiError::new(422, "Invalid", format!("the JSON patch does not apply: {error}"))
                })?;
            }
            Self::Apply { .. } => return Err(ApiError::internal("an apply has no form without owners")),
        }
        Ok(new)
    }
}

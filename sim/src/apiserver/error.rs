//! API errors, in the form of the `metav1.Status` that clients parse.

use super::resources::Resource;
use serde_json::{Value, json};

/// A request error with its HTTP status code and `Status` body.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub struct ApiError {
    /// HTTP status code.
    pub code: u16,
    /// Machine-readable reason, such as `NotFound`.
    pub reason: &'static str,
    /// Human-readable message.
    pub message: String,
    /// `Status.details`.
    pub details: Option<Box<Value>>,
    /// Retry delay in seconds, sent as the `Retry-After` header and in the details.
    pub retry_after_seconds: Option<u32>,
}

/// One cause in the details of an `Invalid` error.
#[derive(Debug, Clone)]
pub struct Cause {
    /// Machine-readable reason, such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// Path of the field, dotted.
    pub field: String,
    /// Human-readable message.
    pub message: String,
}

impl Cause {
    /// An invalid field value.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: "FieldValueInvalid", field: field.into(), message: message.into() }
    }

    /// A missing required field.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: "FieldValueRequired", field: field.into(), message: message.into() }
    }

    /// A forbidden change.
    pub fn forbidden(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: message.into() }
    }
}

impl ApiError {
    /// An error without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, retry_after_seconds: None }
    }

    fn about(code: u16, reason: &'static str, resource: &Resource, name: &str, what: &str) -> Self {
        Self {
            details: Some(Box::new(json!({"name": name, "group": resource.group, "kind": resource.plural}))),
            ..Self::new(code, reason, format!("{} \"{name}\" {what}", resource.qualified()))
        }
    }

    /// 404: the object does not exist.
    #[must_use]
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::about(404, "NotFound", resource, name, "not found")
    }

    /// 404: the path is not served.
    #[must_use]
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "nothing is served at this path")
    }

    /// 409: an object of that name exists already.
    #[must_use]
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::about(409, "AlreadyExists", resource, name, "already exists")
    }

    /// 409: the write is based on an outdated version, or a precondition does not hold.
    #[must_use]
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        Self::about(409, "Conflict", resource, name, &format!("was not written: {why}"))
    }

    /// 409: other field managers own some of the applied fields.
    #[must_use]
    pub fn apply_conflict(owners: &[(String, String)]) -> Self {
        let causes: Vec<_> = owners
            .iter()
            .map(|(manager, field)| {
                json!({"reason": "FieldManagerConflict", "message": format!("conflict with {manager:?}"), "field": field})
            })
            .collect();
        let fields: Vec<_> = owners.iter().map(|(manager, field)| format!("{field} ({manager})")).collect();
        Self {
            details: Some(Box::new(json!({"causes": causes}))),
            ..Self::new(409, "Conflict", format!("apply failed: other managers own {}", fields.join(", ")))
        }
    }

    /// 422: the object is invalid.
    #[must_use]
    pub fn invalid(resource: &Resource, name: &str, causes: &[Cause]) -> Self {
        let what: Vec<_> = causes.iter().map(|cause| format!("{}: {}", cause.field, cause.message)).collect();
        let list: Vec<_> = causes
            .iter()
            .map(|cause| json!({"reason": cause.reason, "message": cause.message, "field": cause.field}))
            .collect();
        Self {
            details: Some(Box::new(
                json!({"name": name, "group": resource.group, "kind": resource.kind, "causes": list}),
            )),
            ..Self::new(422, "Invalid", format!("{} \"{name}\" is invalid: {}", resource.kind, what.join("; ")))
        }
    }

    /// 400: the request is malformed.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403: the request is forbidden.
    #[must_use]
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        Self::about(403, "Forbidden", resource, name, &format!("is forbidden: {why}"))
    }

    /// 405: the resource does not support the method.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the resource does not take this method")
    }

    /// 410: the requested history is no longer available.
    #[must_use]
    pub fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// 504: the requested resource version lies in the future.
    #[must_use]
    pub fn too_large_version(asked: u64, current: u64) -> Self {
        Self {
            details: Some(Box::new(json!({
                "causes": [{"reason": "ResourceVersionTooLarge", "message": "Too large resource version"}],
            }))),
            retry_after_seconds: Some(1),
            ..Self::new(504, "Timeout", format!("resource version {asked} is ahead of the current one, {current}"))
        }
    }

    /// 415: the patch type is not supported.
    #[must_use]
    pub fn unsupported_media_type(accepted: &str) -> Self {
        Self::new(415, "UnsupportedMediaType", format!("the patch type is not among those accepted: {accepted}"))
    }

    /// 429: a disruption budget rejects the eviction. The cause names the budget.
    #[must_use]
    pub fn disruption_budget(message: &str, retry_after_seconds: Option<u32>) -> Self {
        let mut details = json!({"causes": [{"reason": "DisruptionBudget", "message": message}]});
        if let Some(seconds) = retry_after_seconds {
            details["retryAfterSeconds"] = Value::from(seconds);
        }
        Self {
            details: Some(Box::new(details)),
            retry_after_seconds,
            ..Self::new(429, "TooManyRequests", "Cannot evict pod as it would violate the pod's disruption budget.")
        }
    }

    /// 500: internal error.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    /// `Status` object of this error.
    #[must_use]
    pub fn status(&self) -> Value {
        let mut status = json!({
            "kind": "Status", "apiVersion": "v1", "metadata": {}, "status": "Failure",
            "message": self.message, "reason": self.reason, "code": self.code,
        });
        let mut details = self.details.as_deref().cloned();
        if let Some(seconds) = self.retry_after_seconds {
            details.get_or_insert_with(|| json!({}))["retryAfterSeconds"] = Value::from(seconds);
        }
        if let Some(details) = details {
            status["details"] = details;
        }
        status
    }
}

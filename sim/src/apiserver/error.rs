//! Answers that are not the object asked for, as the `metav1.Status` that clients parse.

use super::resources::Resource;
use serde_json::{Value, json};

/// Why a request was refused; becomes an HTTP code and a `Status` body.
#[derive(Debug, Clone, thiserror::Error)]
#[error("{code} {reason}: {message}")]
pub struct ApiError {
    /// HTTP code.
    pub code: u16,
    /// Machine-readable cause, such as `NotFound`.
    pub reason: &'static str,
    /// For people.
    pub message: String,
    /// `Status.details`.
    pub details: Option<Box<Value>>,
    /// Seconds; sent as the `Retry-After` header and in the details.
    pub retry_after_seconds: Option<u32>,
}

/// One cause in the details of an `Invalid` answer.
#[derive(Debug, Clone)]
pub struct Cause {
    /// Such as `FieldValueInvalid`.
    pub reason: &'static str,
    /// Path of the field, dotted.
    pub field: String,
    /// What is wrong with it.
    pub message: String,
}

impl Cause {
    /// A field whose value is not acceptable.
    pub fn invalid(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: "FieldValueInvalid", field: field.into(), message: message.into() }
    }

    /// A field that must be there.
    pub fn required(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: "FieldValueRequired", field: field.into(), message: message.into() }
    }

    /// A change that is not allowed.
    pub fn forbidden(field: impl Into<String>, message: impl Into<String>) -> Self {
        Self { reason: "FieldValueForbidden", field: field.into(), message: message.into() }
    }
}

impl ApiError {
    /// An answer without details.
    pub fn new(code: u16, reason: &'static str, message: impl Into<String>) -> Self {
        Self { code, reason, message: message.into(), details: None, retry_after_seconds: None }
    }

    fn about(code: u16, reason: &'static str, resource: &Resource, name: &str, what: &str) -> Self {
        Self {
            details: Some(Box::new(json!({"name": name, "group": resource.group, "kind": resource.plural}))),
            ..Self::new(code, reason, format!("{} \"{name}\" {what}", resource.qualified()))
        }
    }

    /// 404 for an object.
    #[must_use]
    pub fn not_found(resource: &Resource, name: &str) -> Self {
        Self::about(404, "NotFound", resource, name, "not found")
    }

    /// 404 for a path that nothing is served at.
    #[must_use]
    pub fn no_such_path() -> Self {
        Self::new(404, "NotFound", "nothing is served at this path")
    }

    /// 409 for a name that is taken.
    #[must_use]
    pub fn already_exists(resource: &Resource, name: &str) -> Self {
        Self::about(409, "AlreadyExists", resource, name, "already exists")
    }

    /// 409 for a write that rests on an older state, or a precondition that does not hold.
    #[must_use]
    pub fn conflict(resource: &Resource, name: &str, why: &str) -> Self {
        Self::about(409, "Conflict", resource, name, &format!("was not written: {why}"))
    }

    /// 409 for fields that other field managers own.
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

    /// 422 with its causes.
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

    /// 400.
    pub fn bad_request(message: impl Into<String>) -> Self {
        Self::new(400, "BadRequest", message)
    }

    /// 403.
    #[must_use]
    pub fn forbidden(resource: &Resource, name: &str, why: &str) -> Self {
        Self::about(403, "Forbidden", resource, name, &format!("is forbidden: {why}"))
    }

    /// 405.
    #[must_use]
    pub fn method_not_allowed() -> Self {
        Self::new(405, "MethodNotAllowed", "the resource does not take this method")
    }

    /// 410: the history asked for is no longer kept.
    #[must_use]
    pub fn expired(asked: u64, oldest: u64) -> Self {
        Self::new(410, "Expired", format!("too old resource version: {asked} ({oldest})"))
    }

    /// 504: a resource version that lies in the future.
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

    /// 415.
    #[must_use]
    pub fn unsupported_media_type(accepted: &str) -> Self {
        Self::new(415, "UnsupportedMediaType", format!("the patch type is not among those accepted: {accepted}"))
    }

    /// 429, with a cause that names the budget.
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

    /// 500.
    pub fn internal(message: impl Into<String>) -> Self {
        Self::new(500, "InternalError", message)
    }

    /// The `Status` object of this answer.
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

//! Classifies failed calls as the ports' [`CloudError`].
//!
//! The question that costs money is whether a call may have taken effect. In doubt, the answer is yes.

use aws_credential_types::provider::error::CredentialsError;
use aws_sdk_ec2::config::http::HttpResponse;
use aws_sdk_ec2::error::{ProvideErrorMetadata, SdkError};
use plimsoll_actuator::ports::CloudError;
use std::error::Error;
use std::fmt::Write as _;

const THROTTLED: &[&str] = &[
    "BandwidthLimitExceeded",
    "EC2ThrottledException",
    "PriorRequestNotComplete",
    "RequestLimitExceeded",
    "RequestThrottled",
    "RequestThrottledException",
    "SlowDown",
    "ThrottledException",
    "Throttling",
    "ThrottlingException",
    "TooManyRequestsException",
];
const DENIED: &[&str] = &[
    "AccessDenied",
    "AccessDeniedException",
    "AuthFailure",
    "Blocked",
    "ExpiredToken",
    "ExpiredTokenException",
    "IncompleteSignature",
    "InvalidClientTokenId",
    "InvalidSignatureException",
    "MissingAuthenticationToken",
    "NotAuthorized",
    "OptInRequired",
    "PendingVerification",
    "RequestExpired",
    "SignatureDoesNotMatch",
    "UnauthorizedOperation",
    "UnrecognizedClientException",
];
const CAPACITY: &[&str] = &[
    "InstanceLimitExceeded",
    "InsufficientFreeAddressesInSubnet",
    "InsufficientHostCapacity",
    "InsufficientInstanceCapacity",
    "InsufficientReservedInstanceCapacity",
    "MaxFleetCountExceeded",
    "MaxSpotInstanceCountExceeded",
    "ReservationCapacityExceeded",
    "UnfulfillableCapacity",
    "VcpuLimitExceeded",
];
const MISSING: &[&str] = &[
    "AWS.SimpleQueueService.NonExistentQueue",
    "NoSuchEntity",
    "NoSuchEntityException",
    "ParameterNotFound",
    "QueueDoesNotExist",
    "ResourceNotFoundException",
];
/// Codes by which a service reports that it did not accept the call. An internal error does not imply this.
const UNAVAILABLE: &[&str] = &["ServiceUnavailable", "ServiceUnavailableException", "Unavailable"];
const MISMATCH: &[&str] = &["IdempotentParameterMismatch", "IdempotentParameterMismatchException"];
/// The text that follows is long, and only the account's administrator can decode it.
const ENCODED_REASON: &str = "Encoded authorization failure message";
/// Maximum length of messages in conditions and logs, in bytes.
const MESSAGE_MAX: usize = 500;

/// Classifies an SDK error.
#[expect(clippy::needless_pass_by_value, reason = "it is handed to map_err")]
pub(crate) fn classify<E>(error: SdkError<E, HttpResponse>) -> CloudError
where
    E: ProvideErrorMetadata + Error + Send + Sync + 'static,
{
    match &error {
        SdkError::ConstructionFailure(_) => {
            CloudError::InvalidRequest { code: "ConstructionFailure".to_owned(), message: chain(&error) }
        }
        // A response arrived but cannot be parsed: the call took effect.
        SdkError::ResponseError(_) => CloudError::Ambiguous { message: chain(&error) },
        SdkError::TimeoutError(_) | SdkError::DispatchFailure(_) => not_answered(&error),
        SdkError::ServiceError(answer) => {
            let metadata = answer.err();
            of_answer(answer.raw().status().as_u16(), metadata.code(), metadata.message().unwrap_or_default())
        }
        _ => CloudError::Ambiguous { message: chain(&error) },
    }
}

/// Whether the error says that what was asked for does not exist, by its kind or by one of `codes`.
pub(crate) fn is_missing(error: &CloudError, codes: &[&str]) -> bool {
    match error {
        CloudError::NotFound { .. } => true,
        CloudError::InvalidRequest { code, .. } => codes.contains(&code.as_str()),
        _ => false,
    }
}

/// Classifies an error response of the service.
fn of_answer(status: u16, code: Option<&str>, message: &str) -> CloudError {
    let message = short(message);
    let Some(code) = code.filter(|code| !code.is_empty()) else {
        let message = format!("HTTP {status} without an error code {message}").trim_end().to_owned();
        return match status {
            429 => CloudError::Throttled,
            500.. => CloudError::Ambiguous { message },
            _ => CloudError::InvalidRequest { code: format!("HTTP{status}"), message },
        };
    };
    let is = |codes: &[&str]| codes.contains(&code);
    let worded = || format!("{code}: {message}");
    if is(THROTTLED) || status == 429 {
        CloudError::Throttled
    } else if is(MISMATCH) {
        CloudError::IdempotentParameterMismatch
    } else if is(DENIED) || code.starts_with("AuthFailure.") {
        CloudError::Denied { message: worded() }
    } else if is(CAPACITY) {
        CloudError::InsufficientCapacity { message: worded() }
    } else if is(MISSING) || code.ends_with(".NotFound") || code.ends_with(".NotFoundException") {
        CloudError::NotFound { message: worded() }
    } else if is(UNAVAILABLE) {
        CloudError::Unavailable { message: worded() }
    } else if status >= 500 || code == "RequestTimeout" {
        CloudError::Ambiguous { message: worded() }
    } else {
        CloudError::InvalidRequest { code: code.to_owned(), message }
    }
}

/// Classifies an error without a response: whether the request can have left this process.
fn not_answered(error: &(dyn Error + 'static)) -> CloudError {
    let message = chain(error);
    let mut source = Some(error);
    while let Some(cause) = source {
        let refused = cause
            .downcast_ref::<std::io::Error>()
            .is_some_and(|cause| cause.kind() == std::io::ErrorKind::ConnectionRefused);
        if refused || cause.is::<CredentialsError>() {
            return CloudError::Unavailable { message };
        }
        source = cause.source();
    }
    // The connector's error types are not public.
    let never_sent = ["connect timeout", "dns error", "failed to resolve"];
    let lower = message.to_ascii_lowercase();
    if never_sent.iter().any(|pattern| lower.contains(pattern)) {
        return CloudError::Unavailable { message };
    }
    CloudError::Ambiguous { message }
}

/// The message of an error with its sources, which the SDK's own messages omit.
fn chain(error: &(dyn Error + 'static)) -> String {
    let mut text = error.to_string();
    let mut source = error.source();
    while let Some(cause) = source {
        let message = cause.to_string();
        if !text.ends_with(&message) {
            // Writing to a String cannot fail.
            let _ = write!(text, ": {message}");
        }
        source = cause.source();
    }
    short(&text)
}

fn short(message: &str) -> String {
    let message = message.split(ENCODED_REASON).next().unwrap_or_default().trim();
    message[..message.floor_char_boundary(MESSAGE_MAX)].to_owned()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kind(status: u16, code: &str) -> CloudError {
        of_answer(status, Some(code), "words")
    }

    #[test]
    fn error_codes_are_classified() {
        let message = |code: &str| format!("{code}: words");
        assert_eq!(kind(503, "RequestLimitExceeded"), CloudError::Throttled);
        assert_eq!(kind(400, "IdempotentParameterMismatch"), CloudError::IdempotentParameterMismatch);
        for code in ["UnauthorizedOperation", "AuthFailure.ServiceLinkedRoleCreationNotPermitted", "AccessDenied"] {
            assert_eq!(kind(403, code), CloudError::Denied { message: message(code) });
        }
        for code in ["InvalidInstanceID.NotFound", "NoSuchEntity", "InvalidLaunchTemplateName.NotFoundException"] {
            assert_eq!(kind(400, code), CloudError::NotFound { message: message(code) });
        }
        let code = "InsufficientInstanceCapacity";
        assert_eq!(kind(500, code), CloudError::InsufficientCapacity { message: message(code) });
        let invalid = CloudError::InvalidRequest { code: "MissingParameter".to_owned(), message: "words".to_owned() };
        assert_eq!(kind(400, "MissingParameter"), invalid);
    }

    #[test]
    fn internal_error_is_ambiguous_and_unavailable_is_definite() {
        assert!(!kind(500, "InternalError").nothing_happened());
        assert!(kind(503, "Unavailable").nothing_happened());
        assert!(!of_answer(502, None, "").nothing_happened());
        assert!(of_answer(404, None, "").nothing_happened());
        assert_eq!(of_answer(429, None, ""), CloudError::Throttled);
        assert_eq!(kind(429, "Unheard"), CloudError::Throttled);
    }

    #[test]
    fn encoded_authorization_messages_are_omitted() {
        let long = format!("You are not authorized. {ENCODED_REASON}: {}", "x".repeat(2000));
        assert_eq!(short(&long), "You are not authorized.");
        assert_eq!(short(&"ü".repeat(600)).len(), MESSAGE_MAX);
    }
}

//! Timeouts of calls.

use plimsoll_actuator::fencing::CLOUD_CALL;
use plimsoll_actuator::ports::CloudError;
use std::future::Future;
use std::time::Duration;

/// Mutating calls end within [`CLOUD_CALL`], which the lease outlives. The adapter's timeout is shorter by this margin,
/// so that its more precise error is reported.
const MARGIN: Duration = Duration::from_millis(500);
/// Timeout of one attempt, connection included. EC2 answers most calls within a second; CreateFleet takes some seconds.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(5);
/// Connect timeout. A call that could not connect was never sent.
pub(crate) const CONNECT: Duration = Duration::from_millis(1500);
/// Timeout of one page of a list, retries included. EC2 emulators return all instance types on one page.
pub(crate) const PAGE: Duration = Duration::from_secs(60);
/// Timeout of a whole list. The largest, instance types, has 14 pages.
pub(crate) const LIST: Duration = Duration::from_secs(180);
/// How long a receive call waits for messages, as the port specifies.
pub(crate) const LONG_POLL: Duration = Duration::from_secs(20);
/// Total timeout of a receive call.
pub(crate) const RECEIVE: Duration = Duration::from_secs(26);

/// Total timeout of a mutating call.
pub(crate) fn change() -> Duration {
    CLOUD_CALL.saturating_sub(MARGIN)
}

/// Runs a call with a timeout. A call that times out may have taken effect.
pub(crate) async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<T, CloudError>>,
) -> Result<T, CloudError> {
    match tokio::time::timeout(deadline, call).await {
        Ok(result) => result,
        Err(_) => Err(CloudError::Ambiguous { message: format!("no answer within {deadline:?}") }),
    }
}

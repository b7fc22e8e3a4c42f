//! How long calls may take in all.

use plimsoll_actuator::fencing::CLOUD_CALL;
use plimsoll_actuator::ports::CloudError;
use std::future::Future;
use std::time::Duration;

/// Calls that change something end within [`CLOUD_CALL`], which the lease outlives; this much before it, so that the
/// adapter's own words come first.
const MARGIN: Duration = Duration::from_millis(500);
/// One try of a call, connection included. EC2 answers most calls within a second; CreateFleet takes some.
pub(crate) const ATTEMPT: Duration = Duration::from_secs(5);
/// To connect. What is not answered by then was never sent.
pub(crate) const CONNECT: Duration = Duration::from_millis(1500);
/// One page of a list, retries included. Stand-ins of EC2 answer all instance types on one.
pub(crate) const PAGE: Duration = Duration::from_secs(60);
/// A whole list: the largest, instance types, are 14 pages.
pub(crate) const LIST: Duration = Duration::from_secs(180);
/// A receive waits that long for messages, as the port says.
pub(crate) const LONG_POLL: Duration = Duration::from_secs(20);
/// And so long in all.
pub(crate) const RECEIVE: Duration = Duration::from_secs(26);

/// The total deadline of a call that changes something.
pub(crate) fn change() -> Duration {
    CLOUD_CALL.saturating_sub(MARGIN)
}

/// Gives a call up after `deadline`. It may have happened.
pub(crate) async fn within<T>(
    deadline: Duration,
    call: impl Future<Output = Result<T, CloudError>>,
) -> Result<T, CloudError> {
    match tokio::time::timeout(deadline, call).await {
        Ok(result) => result,
        Err(_) => Err(CloudError::Ambiguous { message: format!("no answer within {deadline:?}") }),
    }
}

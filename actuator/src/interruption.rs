//! Notices that capacity is about to be taken back.

pub mod messages;

use crate::context::Context;
use jiff::Timestamp;
use k8s_openapi::api::core::v1::Pod;
use plimsoll_api::NodeClaim;
use std::sync::Arc;
use std::time::Duration;

/// How long a drain still waits for the replacement of an interrupted node (safety rule 13); `None`: not at all.
pub(crate) fn hold(
    _context: &Context,
    _claim: &NodeClaim,
    _pods: &[Arc<Pod>],
    _deadline: Option<Timestamp>,
) -> Option<Duration> {
    None
}

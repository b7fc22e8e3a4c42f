//! Label values of outcomes. Dashboards and alerts depend on these names: renaming an enum variant must not change
//! them.

use plimsoll_model::execution::{OutcomeReason, OutcomeStatus};

/// Value of the label `status`.
pub(crate) fn status(status: OutcomeStatus) -> &'static str {
    match status {
        OutcomeStatus::Accepted => "Accepted",
        OutcomeStatus::Rejected => "Rejected",
        OutcomeStatus::Launched => "Launched",
        OutcomeStatus::Failed => "Failed",
        OutcomeStatus::Removed => "Removed",
    }
}

/// Value of the label `reason`; empty for an outcome without a reason.
pub(crate) fn reason(reason: Option<OutcomeReason>) -> &'static str {
    match reason {
        None => "",
        Some(OutcomeReason::StaleSnapshot) => "StaleSnapshot",
        Some(OutcomeReason::PodChanged) => "PodChanged",
        Some(OutcomeReason::NodeChanged) => "NodeChanged",
        Some(OutcomeReason::PoolChanged) => "PoolChanged",
        Some(OutcomeReason::LimitReached) => "LimitReached",
        Some(OutcomeReason::BudgetExhausted) => "BudgetExhausted",
        Some(OutcomeReason::Blocked) => "Blocked",
        Some(OutcomeReason::Dependency) => "Dependency",
        Some(OutcomeReason::NoCapacity) => "NoCapacity",
        Some(OutcomeReason::CloudRefused) => "CloudRefused",
        Some(OutcomeReason::ClusterRefused) => "ClusterRefused",
        Some(OutcomeReason::Invalid) => "Invalid",
    }
}

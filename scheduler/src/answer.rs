//! Answers self-contained requests. Pure functions that return the same bytes in every process.

mod explain;
pub mod in_process;
mod solve_input;
mod what_if;

pub(crate) use explain::explain_of;
pub use explain::{ProtectedNode, place_waiting, protected_nodes, waiting_pods, without_protection};
pub use solve_input::options_from_wire;
pub(crate) use what_if::what_if_of;
pub use what_if::{MAX_ADDED_PODS, add_pods, without_nodes};

use crate::solve::{InvalidPlan, PlanFailure, solve};
use plimsoll_model::plan::Plan;
use plimsoll_proto::convert::{ConvertError, unshared_sizes, with_shared_reasons};
use plimsoll_proto::plan::v1 as wire;
use plimsoll_proto::scheduler::v1::{
    ExplainRequest, ExplainResponse, PlanRequest, PlanResponse, WhatIfRequest, WhatIfResponse,
};
use plimsoll_runtime::client_pool::WITHHELD_HEADER;
use plimsoll_runtime::serve::MAX_ENCODING_BYTES;
use plimsoll_solver::Cancel;
use solve_input::SolveInput;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// Reason why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The request is invalid.
    #[error(transparent)]
    Request(#[from] ConvertError),
    /// The planner failed, and not because of some pods.
    #[error(transparent)]
    Plan(#[from] PlanFailure),
    /// The response takes at least this many bytes, which is more than a message may have.
    #[error(
        "the response takes at least {0} bytes, more than the limit of {MAX_ENCODING_BYTES}: set shared_lists in the \
         request if it is not set, or ask for fewer pods at once"
    )]
    TooLarge(usize),
}

impl From<InvalidPlan> for AnswerError {
    fn from(error: InvalidPlan) -> Self {
        Self::Plan(error.into())
    }
}

impl AnswerError {
    pub(crate) fn request(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Request(ConvertError::new(path, message))
    }

    /// Checks the size of a response.
    ///
    /// # Errors
    /// [`Self::TooLarge`].
    pub fn check_size(bytes: usize) -> Result<(), Self> {
        if bytes > MAX_ENCODING_BYTES { Err(Self::TooLarge(bytes)) } else { Ok(()) }
    }
}

impl From<AnswerError> for Status {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Request(error) => invalid_argument(&error),
            AnswerError::TooLarge(_) => Self::out_of_range(error.to_string()),
            AnswerError::Plan(error @ PlanFailure::Cancelled) => Self::cancelled(error.to_string()),
            // Another replica may be faster.
            AnswerError::Plan(error @ (PlanFailure::TimedOut(_) | PlanFailure::NoTimeLeft)) => {
                Self::internal(error.to_string())
            }
            // Another replica would fail in the same way.
            AnswerError::Plan(error) => {
                let mut status = Self::internal(error.to_string());
                status.metadata_mut().insert(WITHHELD_HEADER, MetadataValue::from_static("true"));
                status
            }
        }
    }
}

/// INVALID_ARGUMENT with the path of each invalid field, in the message and in a `BadRequest` detail.
pub(crate) fn invalid_argument(error: &ConvertError) -> Status {
    let mut details = ErrorDetails::new();
    for (path, message) in error.all() {
        details.add_bad_request_violation(path, message);
    }
    Status::with_error_details(Code::InvalidArgument, error.to_string(), details)
}

/// Makes the plan for a request.
///
/// # Errors
/// INVALID_ARGUMENT with the path of an invalid field; INTERNAL if the planner fails for another reason than some pods.
pub fn plan(request: &PlanRequest) -> Result<PlanResponse, Status> {
    Ok(plan_of(request.clone(), &Cancel::default())?)
}

/// Like [`plan`], for an owned request.
pub(crate) fn plan_of(request: PlanRequest, cancel: &Cancel) -> Result<PlanResponse, AnswerError> {
    let input = SolveInput::new(request.snapshot, request.catalogs, request.options)?;
    let plan = solve(&input.snapshot, &input.catalogs, &input.options, cancel)?;
    Ok(PlanResponse { plan: Some(to_wire(&plan, request.shared_lists)?) })
}

/// Converts a plan for a response. A caller that does not ask for shared lists may not know `like`. Lists that are
/// repeated may take far more memory than a response may, so they are measured first.
fn to_wire(plan: &Plan, shared_lists: bool) -> Result<wire::Plan, AnswerError> {
    if shared_lists {
        return Ok(with_shared_reasons(plan));
    }
    let (launches, unschedulable) = unshared_sizes(plan);
    AnswerError::check_size(launches + unschedulable)?;
    Ok(plan.into())
}

/// Explains where a pod goes or why it has no place, or what is planned for a node.
///
/// # Errors
/// As [`plan`].
pub fn explain(request: &ExplainRequest) -> Result<ExplainResponse, Status> {
    Ok(explain_of(request.clone(), &Cancel::default())?)
}

/// Returns the plan for the present state and the plan under suppositions.
///
/// # Errors
/// As [`plan`].
pub fn what_if(request: &WhatIfRequest) -> Result<WhatIfResponse, Status> {
    Ok(what_if_of(request.clone(), &Cancel::default())?)
}

#[cfg(test)]
mod tests;

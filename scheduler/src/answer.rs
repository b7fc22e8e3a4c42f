//! Answers to self-contained requests: pure, the same bytes in this process as from any replica.

mod explain;
pub mod in_process;
mod question;
mod what_if;

pub(crate) use explain::explain_of;
pub(crate) use question::options_from_wire;
pub(crate) use what_if::what_if_of;

use crate::solve::{InvalidPlan, solve};
use plimsoll_proto::convert::ConvertError;
use plimsoll_proto::scheduler::v1::{
    ExplainRequest, ExplainResponse, PlanRequest, PlanResponse, WhatIfRequest, WhatIfResponse,
};
use plimsoll_runtime::client_pool::WITHHELD_HEADER;
use plimsoll_solver::Cancel;
use question::Question;
use tonic::metadata::MetadataValue;
use tonic::{Code, Status};
use tonic_types::{ErrorDetails, StatusExt};

/// Why there is no answer.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum AnswerError {
    /// The request makes no sense.
    #[error(transparent)]
    Request(#[from] ConvertError),
    /// The solver failed its check.
    #[error(transparent)]
    Plan(#[from] InvalidPlan),
}

impl AnswerError {
    pub(crate) fn request(path: impl Into<String>, message: impl Into<String>) -> Self {
        Self::Request(ConvertError { path: path.into(), message: message.into() })
    }
}

impl From<AnswerError> for Status {
    fn from(error: AnswerError) -> Self {
        match error {
            AnswerError::Request(error) => invalid_argument(&error),
            AnswerError::Plan(error) => {
                let mut status = Self::internal(error.to_string());
                status.metadata_mut().insert(WITHHELD_HEADER, MetadataValue::from_static("true"));
                status
            }
        }
    }
}

/// INVALID_ARGUMENT with the path of the field, as text and as a `BadRequest` detail.
pub(crate) fn invalid_argument(error: &ConvertError) -> Status {
    let details = ErrorDetails::with_bad_request_violation(&error.path, &error.message);
    Status::with_error_details(Code::InvalidArgument, error.to_string(), details)
}

/// The plan for a request.
///
/// # Errors
/// INVALID_ARGUMENT with the path of the field that makes no sense; INTERNAL if the plan fails its check.
pub fn plan(request: &PlanRequest) -> Result<PlanResponse, Status> {
    Ok(plan_of(request.clone(), &Cancel::default())?)
}

/// As [`plan`], for a request that is not needed any more.
pub(crate) fn plan_of(request: PlanRequest, cancel: &Cancel) -> Result<PlanResponse, AnswerError> {
    let question = Question::new(request.snapshot, request.catalogs, request.options)?;
    let plan = solve(&question.snapshot, &question.catalogs, &question.options, cancel)?;
    Ok(PlanResponse { plan: Some((&plan).into()) })
}

/// Why a pod has no place or where it goes, or what is planned for a node.
///
/// # Errors
/// As [`plan`].
pub fn explain(request: &ExplainRequest) -> Result<ExplainResponse, Status> {
    Ok(explain_of(request.clone(), &Cancel::default())?)
}

/// The plan as things are and as they would be.
///
/// # Errors
/// As [`plan`].
pub fn what_if(request: &WhatIfRequest) -> Result<WhatIfResponse, Status> {
    Ok(what_if_of(request.clone(), &Cancel::default())?)
}

#[cfg(test)]
mod tests;

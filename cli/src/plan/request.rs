//! The request of a plan in Protobuf's JSON form.

use crate::CommandError;
use crate::input::Question;
use plimsoll_proto::FILE_DESCRIPTOR_SET;
use prost::Message as _;
use prost_reflect::{DescriptorPool, DynamicMessage};

/// Request message of `SchedulerService/Plan`.
const REQUEST: &str = "plimsoll.scheduler.v1.PlanRequest";

/// The indented request.
pub(super) fn json(question: &Question) -> Result<String, CommandError> {
    let failed =
        |error: &dyn std::fmt::Display| CommandError::Failed(format!("the request cannot be written: {error}"));
    let pool = DescriptorPool::decode(FILE_DESCRIPTOR_SET).map_err(|error| failed(&error))?;
    let descriptor = pool.get_message_by_name(REQUEST).ok_or_else(|| failed(&"unknown message"))?;
    let encoded = question.request().encode_to_vec();
    let message = DynamicMessage::decode(descriptor, encoded.as_slice()).map_err(|error| failed(&error))?;
    let text = serde_json::to_string_pretty(&message).map_err(|error| failed(&error))?;
    Ok(text + "\n")
}

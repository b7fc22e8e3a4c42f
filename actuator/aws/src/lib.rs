//! The cloud of the actuator's ports: EC2, SQS, SSM, IAM and the price list. The only crate that names an AWS SDK.
//!
//! An adapter turns a port's words into a call and the answer into the port's words. It sets a total deadline for each call,
//! retries included, and tells by the closed kinds of [`plimsoll_actuator::ports::CloudError`] what a failure means; it decides nothing.

mod cluster;
mod compute;
mod connect;
mod deadline;
mod error;
mod parameters;
mod prices;
mod profiles;
pub mod program;
mod queue;
#[cfg(test)]
mod stub;
#[cfg(test)]
mod tests;

pub use compute::Ec2;
pub use connect::{ConnectError, Connection, Options, connect};
pub use parameters::Ssm;
pub use prices::Pricing;
pub use profiles::Iam;
pub use queue::Sqs;

//! The AWS adapters of the actuator's ports: EC2, SQS, SSM, IAM, EKS, ARC and the price
//! list. The only crate that uses an AWS
//! SDK.
//!
//! An adapter converts between the port's types and the SDK's. It sets a total timeout for each call, retries included,
//! and classifies failures as [`plimsoll_actuator::ports::CloudError`]. It makes no decisions.

mod cluster;
mod compute;
mod connect;
mod control_plane;
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
mod zonal_shift;

pub use compute::Ec2;
pub use connect::{ConnectError, Connection, Options, connect};
pub use control_plane::Eks;
pub use parameters::Ssm;
pub use prices::Pricing;
pub use profiles::Iam;
pub use queue::Sqs;
pub use zonal_shift::ArcZonalShift;

//! An EC2 in memory behind the actuator's ports, with the smaller services that it needs.
//!
//! [`Cloud`] is the synchronous core: what exists and what each call does to it, for a time that it is told. [`Ec2`]
//! puts it behind the ports, with faults between. What matters most here is what costs money: a launch with its client
//! token is atomic, and a token is never forgotten.

mod faults;
mod fleet;
mod machine;
mod messages;
mod network;
mod placement;
mod ports;
mod queue;
mod region;
mod reservations;
mod store;
mod support;
mod terminate;
#[cfg(test)]
mod tests;

pub use faults::{Action, Cut, Effect, Faults};
pub use fleet::Fleet;
pub use machine::Machine;
pub use ports::Ec2;
pub use queue::{Disorder, Queue};
pub use region::{DISCOVERY, KUBERNETES};
pub use store::{Call, Capacity, Cloud, Outcome, Pool, Settings};

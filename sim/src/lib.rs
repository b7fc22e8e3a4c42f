//! A cluster and an EC2 in memory, for tests, simulations and the demo.
//!
//! [`apiserver`] is a Kubernetes API server under `kube::Client`; [`kube`] holds the controllers, the scheduler and the
//! kubelets that make a cluster of it; [`contract`] holds the tests that it and the real API server both pass; [`cloud`] is EC2,
//! and [`machines`] makes Nodes of its instances.
//! Everything is deterministic for a seed, and runs on tokio's time, so that paused time is virtual time.
//! None of that uses the code under test, only the traits that it is driven by: the simulation must not share its mistakes.
//! [`world`] puts it together, and [`plimsoll`] runs the real services on it.

pub mod apiserver;
pub mod clock;
pub mod cloud;
pub mod contract;
pub mod kube;
pub mod machines;
pub mod network;
pub mod plimsoll;
pub mod seed;
pub mod world;

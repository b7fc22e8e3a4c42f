//! An in-memory cluster and EC2 for tests, simulations and the demo.
//!
//! - [`apiserver`] is a Kubernetes API server for `kube::Client`.
//! - [`kube`] holds the controllers, the scheduler and the kubelets that turn it into a cluster.
//! - [`contract`] holds the tests that [`apiserver`] and a real API server both pass.
//! - [`cloud`] is EC2.
//! - [`machines`] turns its instances into Nodes.
//! - [`world`] combines these parts, and [`plimsoll`] runs the real services on them.
//!
//! A seed makes everything deterministic. All parts run on tokio's time, so that paused time is virtual time. The
//! simulated parts share types, traits, the built-in catalog and kube-scheduler's rules (`kubesched`) with the code
//! under test. The rest is separate, so that errors in one do not hide errors in the other.

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

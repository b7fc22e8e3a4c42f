//! The end-to-end environment: control plane, EC2, kubelets and services as processes that end with the run.

pub(crate) mod audit;
pub(crate) mod cloud;
pub(crate) mod cluster;
pub(crate) mod confine;
pub(crate) mod controlplane;
pub(crate) mod http;
pub(crate) mod kubectl;
pub(crate) mod parts;
pub(crate) mod pods;
pub(crate) mod process;
pub(crate) mod servers;
pub(crate) mod services;
pub(crate) mod tools;
pub(crate) mod wait;
pub(crate) mod world;

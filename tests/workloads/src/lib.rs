//! Random clusters and workloads from a seed, as Kubernetes manifests and a catalog in the format that `plimsoll plan`
//! reads.
//!
//! [`case`] generates small cases that combine features, for comparing planners with each other and with
//! kube-scheduler. [`bench`](mod@bench) generates large cases for measuring speed, memory and cost. The same seed
//! always gives the same bytes, on every machine.

pub mod bench;
mod case;
mod catalogs;
mod cluster;
mod constraints;
mod feature;
mod generate;
mod kubernetes;
mod manifest;
mod pools;
mod preferences;
mod question;
mod rng;
mod template;
mod volumes;

pub use case::{Case, CatalogChoice};
pub use feature::{Feature, Offer, Profile};
pub use generate::case;
pub use question::{BadManifest, NOW, Question};
pub use rng::Rng;

#[cfg(test)]
mod tests;

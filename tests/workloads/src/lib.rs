//! Random clusters and workloads from a seed, as Kubernetes manifests and a catalog in the form that `plimsoll plan` reads.
//!
//! [`case`] makes small cases that combine features, for comparing planners with each other and with kube-scheduler; [`bench`] makes
//! the large ones that speed, memory and cost are measured on. The same seed gives the same bytes for ever, on every machine.

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

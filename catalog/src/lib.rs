//! Computes the instance types that the solver chooses from, based on EC2 facts and a node class, like Karpenter's AWS
//! provider. Uses no clock and no I/O.
//!
//! - [`build`] computes a catalog from facts, settings of a node class, zones and prices.
//! - [`builtin`] contains facts and prices of four regions, for use without an AWS account or without current prices.
//! - [`aws_cli`] reads facts, zones and prices from what the AWS CLI prints.
//! - [`mod@file`] reads and writes the JSON form of a catalog.

#![deny(clippy::indexing_slicing)]

pub mod aws_cli;
pub mod builtin;
mod capacity;
mod compatibility;
pub mod facts;
pub mod file;
mod labels;
pub mod limits;
pub mod offerings;
mod overhead;
mod pods;
pub mod reservations;
pub mod settings;

pub use capacity::is_plausible_memory;
pub use facts::InstanceTypeFacts;
pub use offerings::{Prices, SpotPrices, Zone};
pub use settings::NodeClassSettings;

use plimsoll_model::catalog::{Catalog, InstanceType};
use plimsoll_model::resources::{CPU, MEMORY};

/// Computes the catalog of a node class with these `settings` in `region`. Omits machines that cannot be nodes (macOS,
/// 32-bit, no HVM) and types that no zone offers at a known price or in a capacity reservation.
#[must_use]
pub fn build<'facts>(
    region: &str,
    facts: impl IntoIterator<Item = &'facts InstanceTypeFacts>,
    settings: &NodeClassSettings,
    zones: &[Zone],
    prices: &Prices,
) -> Catalog {
    let mut instance_types: Vec<InstanceType> =
        facts.into_iter().filter_map(|facts| instance_type(facts, settings, zones, prices)).collect();
    instance_types.sort_by(|left, right| left.name.cmp(&right.name));
    instance_types.dedup_by(|left, right| left.name == right.name);
    Catalog { region: region.to_owned(), instance_types }
}

fn instance_type(
    facts: &InstanceTypeFacts,
    settings: &NodeClassSettings,
    zones: &[Zone],
    prices: &Prices,
) -> Option<InstanceType> {
    let architecture = facts.architecture()?;
    let capacity = capacity::capacity(facts, settings);
    let overhead = overhead::overhead(facts, settings, &capacity);
    // A kubelet does not start if it has to reserve more than the node has. Of process IDs, the capacity is not known,
    // and of storage it may be a guess.
    let is_enough = [CPU, MEMORY].iter().all(|name| overhead.get(name) <= capacity.get(name));
    let compatible = compatibility::is_compatible(facts, settings) && is_enough;
    let offerings = offerings::offerings(facts, zones, prices, &settings.reservations, compatible);
    if offerings.is_empty() {
        return None;
    }
    let operating_system = match settings.ami_family.is_windows() {
        false => Some("linux"),
        true if architecture == "amd64" => Some("windows"),
        true => None,
    };
    Some(InstanceType {
        name: facts.name.clone(),
        architecture: architecture.to_owned(),
        operating_systems: operating_system.into_iter().map(str::to_owned).collect(),
        labels: labels::labels(facts, settings),
        capacity,
        overhead,
        offerings,
    })
}

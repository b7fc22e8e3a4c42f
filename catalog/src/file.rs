//! The JSON form of a catalog, which `plimsoll plan --catalog` reads and `plimsoll catalog -o json` writes.
//!
//! `{"region": ..., "instanceTypes": [{"name", "architecture", "operatingSystems", "capacity", "overhead", "labels",
//! "offerings": [{"zone", "zoneId", "capacityType", "price", "available"}]}]}`. Reserved offerings also have
//! `"reservation": {"id", "type", "interruptible", "count"}`. Amounts are Kubernetes quantities, and prices are in USD
//! per hour. Unknown fields are ignored.

mod parse;
mod render;

pub use parse::{CatalogFileError, MAX_FILE_BYTES, parse};
pub use render::{render, to_value};

#[cfg(test)]
mod tests;

//! A catalog as a JSON file: what `plimsoll plan --catalog` reads and `plimsoll catalog -o json` writes.
//!
//! `{"region": ..., "instanceTypes": [{"name", "architecture", "operatingSystems", "capacity", "overhead", "labels", "offerings":
//! [{"zone", "zoneId", "capacityType", "price", "available"}]}]}`; amounts are Kubernetes quantities, prices USD per hour.
//! Fields that are not known are left alone.

mod parse;
mod render;

pub use parse::{CatalogFileError, MAX_FILE_BYTES, parse};
pub use render::{render, to_value};

#[cfg(test)]
mod tests;

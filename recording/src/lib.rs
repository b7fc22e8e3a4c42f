//! Recordings of what the watcher asked schedulers for and what they answered: snapshots, options, plans and outcomes.
//!
//! A recording is a folder of files whose names sort by time. Each file is a gzip stream of length-delimited
//! [`Entry`](plimsoll_proto::recording::v1::Entry) messages and can be read alone: it begins with a full snapshot. The
//! oldest files are deleted when the folder reaches its limit.
//!
//! Recordings contain no Secrets and no environment of containers, since snapshots do not. They contain names of
//! objects, labels, requests and prices.

#![deny(clippy::indexing_slicing)]

mod catalogs;
mod files;
mod read;
mod write;

pub use files::files;
pub use read::{Planned, ReadError, Reader, Step};
pub use write::{Limits, PlannedEntry, Writer};

/// Number of the file format.
pub const FORMAT: u32 = 1;

/// Maximum size of an entry in bytes: that of a message between services. Larger ones are neither written nor read.
const MAX_ENTRY_BYTES: usize = 64 << 20;

#[cfg(test)]
mod tests;

//! The watcher reads the cluster into an index, streams snapshots to schedulers and other clients, and drives the loop
//! from snapshot to plan to execution.
//!
//! Its only write is its own Lease. It makes no decisions about nodes and launches nothing. It has no durable state: a
//! new leader reads everything again.

#![deny(clippy::indexing_slicing)]

pub mod args;
pub mod catalogs;
pub mod drive;
pub mod facts;
mod feed;
mod follow;
mod guarded;
pub mod index;
pub mod ledger;
pub mod metrics;
pub mod program;
mod recorder;
#[cfg(test)]
mod samples;
mod scheduler;
pub mod service;
pub mod snapshots;
